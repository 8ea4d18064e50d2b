"""Going through a workspace's memories, stretch by stretch, so that any number needs no more memory than a few (spec 4.4)."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from rookery.kernel.clock import Clock
from rookery.kernel.db import Database, Tx
from rookery.kernel.errors import OUTAGES
from rookery.memory.batch_runs import BATCH_SIZE, RunCheckpoint, RunObserver
from rookery.memory.models import Memory
from rookery.memory.store import maintenance, runs
from rookery.memory.store.maintenance import MemorySelection


class _HasId(Protocol):
    @property
    def id(self) -> str: ...


T = TypeVar("T", bound=_HasId)


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchRun:
    """
    What a command goes through.

    Attributes:
        name: The command with its options: by it a run that was ended in the middle is found again.
        resume: Go on from there, if there is such a run.
        is_resumable: Remember how far it came; a dry run does not.
    """

    name: str
    selection: MemorySelection
    resume: bool
    is_resumable: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchRunResult:
    """How far it came; *stopped*: the engine that went down on the way."""

    total: int
    done: int
    duration_s: float
    stopped: str | None


class BatchRunner:
    """Reads stretches in the order of ids; what comes while it goes, with a later id, is gone through too."""

    def __init__(self, *, db: Database, clock: Clock, timer: Callable[[], float] = time.perf_counter) -> None:
        self._db = db
        self._clock = clock
        self._timer = timer

    async def run(
        self,
        batch_run: BatchRun,
        read_batch: Callable[[Tx, str], Sequence[T]],
        process_batch: Callable[[Sequence[T]], Awaitable[None]],
        *,
        observer: RunObserver,
        before: Callable[[], Awaitable[None]] | None = None,
        after_all: Callable[[], Awaitable[None]] | None = None,
    ) -> BatchRunResult:
        """
        Have *process_batch* done on each stretch that *read_batch* returns of what follows an id.

        A stretch is marked as gone through after its work, so the one in which a run is killed is done again.

        Args:
            before: Done before all stretches; *after_all*: after them, and not if an engine went down.
        """
        started_s = self._timer()
        total = done = 0
        stopped = None
        try:
            total = await self._db.read(lambda tx: maintenance.count_memories(tx, batch_run.selection))
            mark = await self._db.read(lambda tx: runs.get_checkpoint(tx, batch_run.name)) if batch_run.resume else None
            after, done = (mark.cursor, mark.done) if mark else ("", 0)
            if before is not None:
                await before()
            while stretch := await self._db.read(lambda tx, at=after: read_batch(tx, at)):
                await process_batch(stretch)
                done, after = done + len(stretch), stretch[-1].id
                await self._save_checkpoint(batch_run, done=done, after=after)
                observer.on_progress(min(done, total), total)
            if after_all is not None:
                await after_all()
            if batch_run.is_resumable:
                await self._db.write(lambda tx: runs.delete_checkpoint(tx, batch_run.name))
        except OUTAGES as error:
            stopped = error.message
        duration_s = self._timer() - started_s
        return BatchRunResult(total=max(total, done), done=done, duration_s=duration_s, stopped=stopped)

    async def _save_checkpoint(self, batch_run: BatchRun, *, done: int, after: str) -> None:
        if batch_run.is_resumable:
            mark = RunCheckpoint(
                name=batch_run.name, workspace_id=batch_run.selection.workspace_id, cursor=after, done=done, at=self._clock()
            )
            await self._db.write(lambda tx: runs.save_checkpoint(tx, mark))


def batch_reader(selection: MemorySelection) -> Callable[[Tx, str], Sequence[Memory]]:
    """Return what reads whole memories of *selection*, for `Rounds.run`."""
    return lambda tx, after: maintenance.list_memories(tx, selection, after=after, limit=BATCH_SIZE)
