"""Going through a workspace's memories, stretch by stretch, so that any number needs no more memory than a few (spec 4.4)."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from rookery.kernel.clock import Clock
from rookery.kernel.db import Database, Tx
from rookery.kernel.errors import OUTAGES
from rookery.memory.models import Memory
from rookery.memory.runs import BATCH, Mark, Watch
from rookery.memory.store import runs, tidying
from rookery.memory.store.tidying import Range


class _Numbered(Protocol):
    @property
    def id(self) -> str: ...


T = TypeVar("T", bound=_Numbered)


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """
    What a command goes through.

    Attributes:
        name: The command with its options: by it a run that was ended in the middle is found again.
        resume: Go on from there, if there is such a run.
        is_kept: Remember how far it came; a dry run does not.
    """

    name: str
    of: Range
    resume: bool
    is_kept: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Gone:
    """How far it came; *stopped*: the engine that went down on the way."""

    total: int
    done: int
    duration_s: float
    stopped: str | None


class Rounds:
    """Reads stretches in the order of ids; what comes while it goes, with a later id, is gone through too."""

    def __init__(self, *, db: Database, clock: Clock, timer: Callable[[], float] = time.perf_counter) -> None:
        self._db = db
        self._clock = clock
        self._timer = timer

    async def through(
        self,
        course: Course,
        read: Callable[[Tx, str], Sequence[T]],
        work: Callable[[Sequence[T]], Awaitable[None]],
        *,
        watch: Watch,
        first: Callable[[], Awaitable[None]] | None = None,
        last: Callable[[], Awaitable[None]] | None = None,
    ) -> Gone:
        """
        Have *work* done on each stretch that *read* returns of what follows an id.

        A stretch is marked as gone through after its work, so the one in which a run is killed is done again.

        Args:
            first: Done before all stretches; *last*: after them, and not if an engine went down.
        """
        started_s = self._timer()
        total = done = 0
        stopped = None
        try:
            total = await self._db.read(lambda tx: tidying.number(tx, course.of))
            mark = await self._db.read(lambda tx: runs.one(tx, course.name)) if course.resume else None
            after, done = (mark.cursor, mark.done) if mark else ("", 0)
            if first is not None:
                await first()
            while stretch := await self._db.read(lambda tx, at=after: read(tx, at)):
                await work(stretch)
                done, after = done + len(stretch), stretch[-1].id
                await self._keep(course, done=done, after=after)
                watch.progress(min(done, total), total)
            if last is not None:
                await last()
            if course.is_kept:
                await self._db.write(lambda tx: runs.drop(tx, course.name))
        except OUTAGES as error:
            stopped = error.message
        duration_s = self._timer() - started_s
        return Gone(total=max(total, done), done=done, duration_s=duration_s, stopped=stopped)

    async def _keep(self, course: Course, *, done: int, after: str) -> None:
        if course.is_kept:
            mark = Mark(name=course.name, workspace_id=course.of.workspace_id, cursor=after, done=done, at=self._clock())
            await self._db.write(lambda tx: runs.keep(tx, mark))


def batches(of: Range) -> Callable[[Tx, str], Sequence[Memory]]:
    """Return what reads whole memories of *of*, for `Rounds.through`."""
    return lambda tx, after: tidying.batch(tx, of, after=after, limit=BATCH)
