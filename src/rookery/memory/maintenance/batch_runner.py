"""Processing of a workspace's memories in batches, so that memory use does not depend on their number."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from rookery.kernel.clock import Clock
from rookery.kernel.db import Database, Tx
from rookery.kernel.errors import OUTAGES
from rookery.memory.batch_runs import BATCH_SIZE, RunCheckpoint, RunObserver, RunReport
from rookery.memory.models import Memory
from rookery.memory.store import maintenance
from rookery.memory.store.maintenance import MemorySelection


class _HasId(Protocol):
    @property
    def id(self) -> str: ...


T = TypeVar("T", bound=_HasId)


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchRun:
    """
    The parameters of a run over all memories.

    Attributes:
        name: The command with its options, which identifies an interrupted run.
        resume: Continue an interrupted run of this name, if there is one.
        is_resumable: Save checkpoints; a dry run does not.
    """

    name: str
    selection: MemorySelection
    resume: bool = False
    is_resumable: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchRunner:
    """A runner that reads batches in the order of ids. Memories added meanwhile with a later id are processed too."""

    db: Database
    clock: Clock
    timer: Callable[[], float] = time.perf_counter

    async def run(
        self,
        batch_run: BatchRun,
        read_batch: Callable[[Tx, str], Sequence[T]],
        process_batch: Callable[[Sequence[T]], Awaitable[None]],
        *,
        observer: RunObserver,
        counts: Mapping[str, int] | None = None,
        before: Callable[[], Awaitable[None]] | None = None,
        after_all: Callable[[], Awaitable[str | None]] | None = None,
    ) -> RunReport:
        """
        Call *process_batch* with each batch. *read_batch* returns the items after an id.

        A checkpoint is saved after each batch, so a killed run repeats its last batch.

        Args:
            counts: The numbers of memories by outcome, which *process_batch* and *after_all* update, for the report.
            before: Runs before the first batch.
            after_all: Runs after the last batch, unless an engine went down. It returns the reason if something remains to be done.
        """
        started_s = self.timer()
        total = done = 0
        stop_reason = None
        try:
            total = await self.db.read(lambda tx: maintenance.count_memories(tx, batch_run.selection))
            checkpoint = await self.db.read(lambda tx: maintenance.get_checkpoint(tx, batch_run.name)) if batch_run.resume else None
            after, done = (checkpoint.cursor, checkpoint.done) if checkpoint else ("", 0)
            if before is not None:
                await before()
            while batch := await self.db.read(lambda tx, at=after: read_batch(tx, at)):
                await process_batch(batch)
                done, after = done + len(batch), batch[-1].id
                await self._save_checkpoint(batch_run, done=done, after=after)
                observer.on_progress(min(done, total), total)
            if after_all is not None:
                stop_reason = await after_all()
            if batch_run.is_resumable:
                await self.db.write(lambda tx: maintenance.delete_checkpoint(tx, batch_run.name))
        except OUTAGES as error:
            stop_reason = error.message
        return RunReport(
            total=max(total, done),
            successes=done,
            failures=0,
            duration_s=self.timer() - started_s,
            counts=dict(counts or {}),
            stopped=stop_reason,
        )

    async def _save_checkpoint(self, batch_run: BatchRun, *, done: int, after: str) -> None:
        if batch_run.is_resumable:
            checkpoint = RunCheckpoint(
                name=batch_run.name, workspace_id=batch_run.selection.workspace_id, cursor=after, done=done, at=self.clock()
            )
            await self.db.write(lambda tx: maintenance.save_checkpoint(tx, checkpoint))


def batch_reader(selection: MemorySelection) -> Callable[[Tx, str], Sequence[Memory]]:
    """Return a `read_batch` for `BatchRunner.run` that reads memories of *selection*."""
    return lambda tx, after: maintenance.list_memories(tx, selection, after=after, limit=BATCH_SIZE)
