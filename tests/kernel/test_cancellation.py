"""Waits of tasks that are cancelled."""

from __future__ import annotations

import asyncio

import pytest

from rookery.kernel.cancellation import wait_until_set
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
