"""What callers of one event loop want at the same moment, done at once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextvars import Context, copy_context
from typing import Generic, NamedTuple, TypeVar

from rookery.kernel.errors import EngineUnavailable, StorageFull

T = TypeVar("T")
R = TypeVar("R")

_INLINE_AFTER_SINGLES = 8
"""After so many that each came alone the next is taken to be alone, too."""

_MAX_BATCH_SIZE = 64
"""So many are done at once, so that the first waits a few milliseconds at most."""


class _PendingItem(NamedTuple, Generic[T, R]):
    item: T
    future: asyncio.Future[R]
    context: Context


class Batcher(Generic[T, R]):
    """
    Does one by one what comes alone, and at once all that came meanwhile: the more is asked, the less each costs.

    Where many at once fail, each is tried alone, so that none fails by another; not when an engine is down or a disk full.

    Args:
        work: Does what is given, and returns what came of each in its order; what it raised undid all of it.
    """

    def __init__(self, work: Callable[[Sequence[T]], Awaitable[Sequence[R]]]) -> None:
        self._run_batch = work
        self._pending: list[_PendingItem[T, R]] = []
        self._task: asyncio.Task[None] | None = None
        self._is_running_inline = False
        self._consecutive_singles = _INLINE_AFTER_SINGLES

    @property
    def pending_count(self) -> int:
        """How many are not begun."""
        return len(self._pending)

    async def run(self, item: T) -> R:
        """
        Do *item* and return what came of it; raises what that raised.

        Where nobody else is there, and nobody was lately, it is done as part of the caller: no task is made, and the loop does
        not turn twice more for it. Otherwise all that begin in one turn of the loop go together.
        """
        if self._is_running_inline or self._task is not None or self._consecutive_singles < _INLINE_AFTER_SINGLES:
            return await self.submit(item)
        self._is_running_inline = True
        try:
            (done,) = await self._run_batch([item])
            return done
        finally:
            self._is_running_inline = False
            if self._pending:
                self._consecutive_singles = 0
                self._start_task()

    def submit(self, item: T) -> asyncio.Future[R]:
        """Have *item* done; who cancels what is returned does not stop it."""
        answer: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        self._pending.append(_PendingItem(item, answer, copy_context()))
        if self._task is None and not self._is_running_inline:
            self._start_task()
        return answer

    def _start_task(self) -> None:
        # As the first of them: what is traced of a request that came alone is its own.
        self._task = asyncio.get_running_loop().create_task(self._drain(), context=self._pending[0].context)

    async def _drain(self) -> None:
        taken, self._pending = self._pending[:_MAX_BATCH_SIZE], self._pending[_MAX_BATCH_SIZE:]
        self._consecutive_singles = self._consecutive_singles + 1 if len(taken) == 1 else 0
        try:
            await self._run_or_split(taken)
        finally:
            self._task = None
            for each in taken:
                each.future.cancel()  # only of one who ended us there is any left
            if self._pending:
                self._start_task()

    async def _run_or_split(self, items: Sequence[_PendingItem[T, R]]) -> None:
        try:
            done = await self._run_batch([each.item for each in items])
        except Exception as error:  # noqa: BLE001 - raised where it was asked for
            if len(items) > 1 and not isinstance(error, EngineUnavailable | StorageFull):
                for each in items:
                    await self._run_or_split([each])
                return
            for each in items:
                if not each.future.done():
                    each.future.set_exception(error)
            return
        for each, result in zip(items, done, strict=True):
            if not each.future.done():
                each.future.set_result(result)
