"""Waits of tasks that are cancelled."""

from __future__ import annotations

import asyncio
import time

import pytest

from rookery.kernel.cancellation import timeout_while_responsive, wait_until_set
from tests.deadlines import HANG_S


async def test_a_task_that_is_woken_and_cancelled_at_the_same_moment_ends() -> None:
    """A server that is stopped while a message arrives must end: the loops of its domains wait for both."""
    wake = asyncio.Event()
    task = asyncio.create_task(wait_until_set(wake, timeout_s=HANG_S))
    await asyncio.sleep(0)
    await asyncio.sleep(0)  # the task waits now
    wake.set()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.parametrize("is_set", [True, False], ids=["set before", "never set"])
async def test_a_wait_returns_whether_the_event_is_set(*, is_set: bool) -> None:
    """A wait that is over returns at once if the event was set before it, and else after its time."""
    wake = asyncio.Event()
    if is_set:
        wake.set()
    assert await wait_until_set(wake, timeout_s=HANG_S if is_set else 0.001) is is_set


async def test_a_blocked_event_loop_does_not_use_up_a_time_limit() -> None:
    """The answer was there in time; only nobody read it. Rate limits became local while a process was busy."""
    loop = asyncio.get_running_loop()
    answer = loop.create_future()
    loop.call_soon(time.sleep, 0.3)
    loop.call_later(0.31, answer.set_result, "answer")
    async with timeout_while_responsive(0.2):
        assert await answer == "answer"


async def test_a_time_limit_ends_a_wait_of_a_responsive_loop() -> None:
    """It is about as long as asked for, and the error is that of `asyncio.timeout`."""
    started = time.monotonic()
    with pytest.raises(TimeoutError):
        async with timeout_while_responsive(0.05):
            await asyncio.Event().wait()
    assert time.monotonic() - started >= 0.04
