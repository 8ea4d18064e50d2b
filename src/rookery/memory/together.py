"""What callers of one event loop want at the same moment, done at once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from contextvars import Context, copy_context
from typing import Generic, NamedTuple, TypeVar

from rookery.kernel.errors import EngineUnavailable, StorageFull

T = TypeVar("T")
R = TypeVar("R")

_SOLITUDE = 8
"""After so many that each came alone the next is taken to be alone, too."""

_MOST = 64
"""So many are done at once, so that the first waits a few milliseconds at most."""


class _Asked(NamedTuple, Generic[T, R]):
    item: T
    answer: asyncio.Future[R]
    context: Context


class Together(Generic[T, R]):
    """
    Does one by one what comes alone, and at once all that came meanwhile: the more is asked, the less each costs.

    Where many at once fail, each is tried alone, so that none fails by another; not when an engine is down or a disk full.

    Args:
        work: Does what is given, and returns what came of each in its order; what it raised undid all of it.
    """

    def __init__(self, work: Callable[[Sequence[T]], Awaitable[Sequence[R]]]) -> None:
        self._do = work
        self._waiting: list[_Asked[T, R]] = []
        self._task: asyncio.Task[None] | None = None
        self._is_alone = False
        self._alone_in_a_row = _SOLITUDE

    @property
    def waiting(self) -> int:
        """How many are not begun."""
        return len(self._waiting)

    async def do(self, item: T) -> R:
        """
        Do *item* and return what came of it; raises what that raised.

        Where nobody else is there, and nobody was lately, it is done as part of the caller: no task is made, and the loop does
        not turn twice more for it. Otherwise all that begin in one turn of the loop go together.
        """
        if self._is_alone or self._task is not None or self._alone_in_a_row < _SOLITUDE:
            return await self.ask(item)
        self._is_alone = True
        try:
            (done,) = await self._do([item])
            return done
        finally:
            self._is_alone = False
            if self._waiting:
                self._alone_in_a_row = 0
                self._begin()

    def ask(self, item: T) -> asyncio.Future[R]:
        """Have *item* done; who cancels what is returned does not stop it."""
        answer: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        self._waiting.append(_Asked(item, answer, copy_context()))
        if self._task is None and not self._is_alone:
            self._begin()
        return answer

    def _begin(self) -> None:
        # As the first of them: what is traced of a request that came alone is its own.
        self._task = asyncio.get_running_loop().create_task(self._work(), context=self._waiting[0].context)

    async def _work(self) -> None:
        taken, self._waiting = self._waiting[:_MOST], self._waiting[_MOST:]
        self._alone_in_a_row = self._alone_in_a_row + 1 if len(taken) == 1 else 0
        try:
            await self._try(taken)
        finally:
            self._task = None
            for each in taken:
                each.answer.cancel()  # only of one who ended us there is any left
            if self._waiting:
                self._begin()

    async def _try(self, taken: Sequence[_Asked[T, R]]) -> None:
        try:
            done = await self._do([each.item for each in taken])
        except Exception as error:  # noqa: BLE001 - raised where it was asked for
            if len(taken) > 1 and not isinstance(error, EngineUnavailable | StorageFull):
                for each in taken:
                    await self._try([each])
                return
            for each in taken:
                if not each.answer.done():
                    each.answer.set_exception(error)
            return
        for each, result in zip(taken, done, strict=True):
            if not each.answer.done():
                each.answer.set_result(result)
