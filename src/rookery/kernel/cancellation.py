"""Waits that a cancellation ends, and work that must not end in the middle when its task is cancelled."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Coroutine
from typing import TypeVar

T = TypeVar("T")
A = TypeVar("A")
B = TypeVar("B")

_TICKS = 10
"""Parts of a time limit after each of which the event loop has run."""


async def run_to_end(work: Awaitable[T]) -> T:
    """Return the result of *work*, which runs to its end even if the current task is cancelled meanwhile."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        if not task.done():
            await asyncio.wait({task})
        raise


async def gather_pair(first: Coroutine[None, None, A], second: Coroutine[None, None, B]) -> tuple[A, B]:
    """Await both coroutines at once and return their results. If one fails, cancel the other and discard its error."""
    other = asyncio.ensure_future(second)
    try:
        return await first, await other
    finally:
        if not other.cancel() and not other.cancelled():
            other.exception()


async def wait_until_set(event: asyncio.Event, *, timeout_s: float | None) -> bool:
    """
    Return whether *event* is set after at most *timeout_s*. None: without a limit.

    `asyncio.wait_for` of Python 3.11 loses the cancellation of a task whose event is set in the same moment, so that the task never ends.
    """
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(timeout_s):
            await event.wait()
    return event.is_set()


@contextlib.asynccontextmanager
async def timeout_while_responsive(timeout_s: float) -> AsyncGenerator[None]:
    """
    Limit the time of the block as `asyncio.timeout` does, without most of the time in which the event loop is blocked.

    An answer that arrives while the loop is blocked would otherwise be lost: its time limit ends before it is read.
    """
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(None) as limit:

        def tick(number: int) -> None:
            nonlocal handle
            if number == _TICKS:
                limit.reschedule(loop.time())
            else:
                handle = loop.call_later(timeout_s / _TICKS, tick, number + 1)

        handle = loop.call_later(timeout_s / _TICKS, tick, 1)
        try:
            yield
        finally:
            handle.cancel()
