"""Moving memories out: all of a workspace or a part of it, in any number, with the room of a few (D-04)."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from rookery.kernel.clock import Clock
from rookery.kernel.db import Database, Tx
from rookery.memory.batch_runs import RunObserver, RunReport, null_observer
from rookery.memory.maintenance.cleaning import load_finders
from rookery.memory.maintenance.scrubbing import clean_memory
from rookery.memory.merging import Merge
from rookery.memory.models import Tombstone
from rookery.memory.store import records, transfer
from rookery.memory.store.transfer import ExportSelection, TransferRecord

BATCH_SIZE = 500
_MAX_CHAIN_STEPS = 1_000
"""A bound on walking a lineage, so that no damage to the store can hold a run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportRequest:
    """Which memories of which workspace; *strip_pii*: with marks for personal data and secrets."""

    workspace_id: int
    org: str | None = None
    project: str | None = None
    agent_id: str | None = None
    type: str | None = None
    includes_archived: bool = False
    strip_pii: bool = False


class ExportDestination(Protocol):
    """Where it is written to, in the order of these methods, each of the middle ones any number of times."""

    def write_header(self) -> None:
        """Write what comes before all."""
        ...

    def write_memory(self, record: TransferRecord) -> None:
        """Write a memory."""
        ...

    def write_tombstone(self, tombstone: Tombstone) -> None:
        """Write what stayed of a memory."""
        ...

    def write_merge(self, merge: Merge) -> None:
        """Write what was merged into what."""
        ...

    def write_end(self) -> None:
        """Write what says that this was all."""
        ...


@dataclass(frozen=True, slots=True)
class _ExportBatch:
    memories: Sequence[TransferRecord]
    tombstones: Sequence[Tombstone]
    merges: Sequence[Merge]


class MemoryExport:
    """
    Reads stretches in the order of ids, each as the store has it at its moment.

    Tombstones of the whole workspace come last: a memory that is superseded on the way is there, and its end after it.
    """

    def __init__(self, *, db: Database, clock: Clock, timer: Callable[[], float] = time.perf_counter) -> None:
        self._db = db
        self._clock = clock
        self._timer = timer

    async def run(self, request: ExportRequest, target: ExportDestination, *, observer: RunObserver | None = None) -> RunReport:
        """
        Write what is wanted to *target*.

        Raises:
            EngineUnavailable: The store went down; what was written is not all.
        """
        started_s, observer = self._timer(), observer or null_observer()
        of = ExportSelection(
            workspace_id=request.workspace_id,
            at=self._clock(),
            org=request.org,
            project=request.project,
            agent_id=request.agent_id,
            type=request.type,
            includes_archived=request.includes_archived,
        )
        known = load_finders() if request.strip_pii else ()
        total = await self._db.read(lambda tx: transfer.count_memories(tx, of))
        counts = {"memories": 0, "tombstones": 0}
        target.write_header()
        after = ""
        while True:
            stretch = await self._db.read(lambda tx, after=after: _read_batch(tx, of, after=after))
            if not stretch.memories:
                break
            for kept in stretch.memories:
                target.write_memory(replace(kept, memory=clean_memory(kept.memory, known, normalise=False).memory) if known else kept)
            self._write(target, stretch.tombstones, stretch.merges, counts)
            counts["memories"] += len(stretch.memories)
            after = stretch.memories[-1].id
            observer.on_progress(min(counts["memories"], total), total)
        if of.is_whole_workspace:
            await self._write_all_tombstones(target, of.workspace_id, counts)
        target.write_end()
        done = counts["memories"]
        return RunReport(total=done, successes=done, failures=0, duration_s=self._timer() - started_s, counts=counts)

    async def _write_all_tombstones(self, target: ExportDestination, workspace_id: int, counts: dict[str, int]) -> None:
        after = ""
        while graves := await self._db.read(
            lambda tx, after=after: transfer.list_tombstones(tx, workspace_id, after=after, limit=BATCH_SIZE)
        ):
            self._write(target, graves, (), counts)
            after = graves[-1].id

    def _write(self, target: ExportDestination, tombstones: Sequence[Tombstone], merges: Sequence[Merge], counts: dict[str, int]) -> None:
        for grave in tombstones:
            target.write_tombstone(grave)
        for merge in merges:
            target.write_merge(merge)
        counts["tombstones"] += len(tombstones)


def _read_batch(tx: Tx, selection: ExportSelection, *, after: str) -> _ExportBatch:
    kept = transfer.list_batch(tx, selection, after=after, limit=BATCH_SIZE)
    # Of a part only what it replaced: the tombstones themselves do not say to which part they belonged.
    graves = (
        []
        if selection.is_whole_workspace
        else [grave for each in kept for grave in _list_previous_tombstones(tx, selection.workspace_id, each.memory.supersedes_id)]
    )
    merged = transfer.get_merges(tx, [each.id for each in kept])
    return _ExportBatch(kept, graves, sorted(merged.values(), key=lambda merge: merge.memory_id))


def _list_previous_tombstones(tx: Tx, workspace_id: int, memory_id: str | None) -> list[Tombstone]:
    """Return the tombstones of what a memory replaced, newest first."""
    found = list[Tombstone]()
    while memory_id is not None and len(found) < _MAX_CHAIN_STEPS:
        grave = records.get_tombstone(tx, workspace_id, memory_id)
        if grave is None:
            break
        found.append(grave)
        memory_id = grave.supersedes_id
    return found
