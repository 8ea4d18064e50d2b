"""The concurrency of memory: micro-batches, and the back-off of background indexing."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from contextvars import Context, copy_context
from typing import Generic, NamedTuple, TypeVar

from rookery.kernel.errors import EngineUnavailable, StorageFull

T = TypeVar("T")
R = TypeVar("R")

_INLINE_AFTER_SINGLES = 8
"""Number of consecutive batches of one item after which the next item is run inline."""

_MAX_BATCH_SIZE = 64
"""Maximum items per batch, so that the first item waits a few milliseconds at most."""


class _PendingItem(NamedTuple, Generic[T, R]):
    item: T
    future: asyncio.Future[R]
    context: Context


class Batcher(Generic[T, R]):
    """
    A batcher that runs a lone item at once, and items that arrive meanwhile together. The cost per item falls under load.

    If a batch fails, each item is retried alone, so that one invalid item does not fail the others. A batch is not split if an engine
    is down or the disk is full.

    Args:
        work: Processes the items and returns one result per item, in order. It must undo everything if it raises.
    """

    def __init__(self, work: Callable[[Sequence[T]], Awaitable[Sequence[R]]]) -> None:
        self._run_batch = work
        self._pending: list[_PendingItem[T, R]] = []
        self._task: asyncio.Task[None] | None = None
        self._is_running_inline = False
        self._consecutive_singles = _INLINE_AFTER_SINGLES

    @property
    def pending_count(self) -> int:
        """The number of items that wait to start."""
        return len(self._pending)

    async def run(self, item: T) -> R:
        """
        Process *item* and return its result. Errors of the work are raised here.

        If no other item is running or was running lately, the work runs inline: without a new task, and without two more turns of the
        event loop. Otherwise all items of one turn of the loop form a batch.
        """
        if self._is_running_inline or self._task is not None or self._consecutive_singles < _INLINE_AFTER_SINGLES:
            return await self.submit(item)
        self._is_running_inline = True
        try:
            (result,) = await self._run_batch([item])
            return result
        finally:
            self._is_running_inline = False
            if self._pending:
                self._consecutive_singles = 0
                self._start_task()

    def submit(self, item: T) -> asyncio.Future[R]:
        """Queue *item*. Cancelling the returned future does not stop the work."""
        future: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        self._pending.append(_PendingItem(item, future, copy_context()))
        if self._task is None and not self._is_running_inline:
            self._start_task()
        return future

    def _start_task(self) -> None:
        # In the context of the first item: the trace of a lone request stays its own.
        self._task = asyncio.get_running_loop().create_task(self._drain(), context=self._pending[0].context)

    async def _drain(self) -> None:
        batch, self._pending = self._pending[:_MAX_BATCH_SIZE], self._pending[_MAX_BATCH_SIZE:]
        self._consecutive_singles = self._consecutive_singles + 1 if len(batch) == 1 else 0
        try:
            await self._run_or_split(batch)
        finally:
            self._task = None
            for pending in batch:
                pending.future.cancel()  # only pending if this task was cancelled
            if self._pending:
                self._start_task()

    async def _run_or_split(self, items: Sequence[_PendingItem[T, R]]) -> None:
        try:
            results = await self._run_batch([pending.item for pending in items])
        except Exception as error:  # noqa: BLE001 - raised to the callers
            if len(items) > 1 and not isinstance(error, EngineUnavailable | StorageFull):
                for pending in items:
                    await self._run_or_split([pending])
                return
            for pending in items:
                if not pending.future.done():
                    pending.future.set_exception(error)
            return
        for pending, result in zip(items, results, strict=True):
            if not pending.future.done():
                pending.future.set_result(result)


_IDLE_GAP_S = 0.004
"""Seconds without a request that count as idle. A client that sends requests one after the other returns sooner."""

_MAX_WAIT_S = 0.15
"""Maximum wait before a batch. A batch of 32 takes about 0.1 s, so indexing gets two fifths of the time under constant load."""


class ForegroundBackoff:
    """
    A back-off that delays background work until no request was served for a moment, or until a maximum wait has passed.

    On a machine of two cores, embedding takes one core. It also competes with the requests for the other core and for the interpreter
    lock.

    Args:
        monotonic: A clock in seconds that never goes back; tests pass their own, and a *sleep* that advances it.
    """

    def __init__(
        self,
        *,
        idle_gap_s: float = _IDLE_GAP_S,
        max_wait_s: float = _MAX_WAIT_S,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._idle_gap_s = idle_gap_s
        self._max_wait_s = max_wait_s
        self._monotonic = monotonic
        self._sleep = sleep
        self._active_count = 0
        self._last_end_s = float("-inf")

    def begin_request(self) -> None:
        """Record the start of a request. `end_request` must follow."""
        self._active_count += 1

    def end_request(self) -> None:
        self._active_count -= 1
        self._last_end_s = self._monotonic()

    async def wait_for_idle(self) -> None:
        """Return at the first idle moment, or after the maximum wait."""
        until = self._monotonic() + self._max_wait_s
        while True:
            now = self._monotonic()
            remaining_s = self._idle_gap_s if self._active_count else self._last_end_s + self._idle_gap_s - now
            if remaining_s <= 0 or now >= until:
                return
            await self._sleep(min(remaining_s, until - now))
