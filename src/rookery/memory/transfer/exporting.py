"""Export of all or some memories of a workspace. Memory use does not depend on their number."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Protocol

from rookery.kernel.clock import Clock
from rookery.kernel.db import Database, Tx
from rookery.memory.batch_runs import SILENT, RunObserver, RunReport
from rookery.memory.maintenance.cleaning import load_finders
from rookery.memory.maintenance.cleaning.redaction import PiiFinder
from rookery.memory.maintenance.scrubbing import clean_memory
from rookery.memory.merging import Merge
from rookery.memory.models import Tombstone
from rookery.memory.store import transfer
from rookery.memory.store.tables import TOMBSTONES
from rookery.memory.store.transfer import ExportSelection, TransferRecord

BATCH_SIZE = 500
_MAX_CHAIN_STEPS = 1_000
"""Maximum steps along a lineage, so that damaged data cannot block an export."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportRequest(ExportSelection):
    """The memories to export. *strip_pii* redacts personal data and secrets."""

    strip_pii: bool = False


class ExportDestination(Protocol):
    """The destination of an export. Its methods are called in this order, those between header and end any number of times."""

    def write_header(self) -> None: ...

    def write_memory(self, record: TransferRecord) -> None: ...

    def write_tombstone(self, tombstone: Tombstone) -> None: ...

    def write_merge(self, merge: Merge) -> None: ...

    def write_end(self) -> None:
        """Write the end, which marks the export as complete."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryExport:
    """
    An export that reads batches in the order of ids; each batch is a snapshot of its moment.

    Tombstones of a whole workspace come last, so that those of memories superseded during the export are included.
    """

    db: Database
    clock: Clock
    timer: Callable[[], float] = time.perf_counter

    async def run(self, request: ExportRequest, target: ExportDestination, *, observer: RunObserver = SILENT) -> RunReport:
        """
        Write the selected memories to *target*.

        Raises:
            EngineUnavailable: The store went down; the output is incomplete.
        """
        started_s = self.timer()
        at, workspace_id = self.clock(), request.workspace_id
        finders = load_finders() if request.strip_pii else ()
        total = await self.db.read(lambda tx: transfer.count_memories(tx, request, at=at))
        counts = {"memories": 0, "tombstones": 0}
        target.write_header()
        after = ""
        while True:
            memories, tombstones, merges = await self.db.read(lambda tx, after=after: _read_batch(tx, request, at=at, after=after))
            if not memories:
                break
            for record in memories:
                target.write_memory(_redact_record(record, finders))
            for tombstone in tombstones:
                target.write_tombstone(tombstone)
            for merge in merges:
                target.write_merge(merge)
            counts["memories"] += len(memories)
            counts["tombstones"] += len(tombstones)
            after = memories[-1].id
            observer.on_progress(min(counts["memories"], total), total)
        after = ""
        while request.is_whole_workspace and (
            tombstones := await self.db.read(
                lambda tx, after=after: transfer.list_tombstones(tx, workspace_id, after=after, limit=BATCH_SIZE)
            )
        ):
            for tombstone in tombstones:
                target.write_tombstone(tombstone)
            counts["tombstones"] += len(tombstones)
            after = tombstones[-1].id
        target.write_end()
        done = counts["memories"]
        return RunReport(total=done, successes=done, failures=0, duration_s=self.timer() - started_s, counts=counts)


def _redact_record(record: TransferRecord, finders: Sequence[PiiFinder]) -> TransferRecord:
    return replace(record, memory=clean_memory(record.memory, finders, normalise=False).memory) if finders else record


def _read_batch(
    tx: Tx, selection: ExportSelection, *, at: datetime, after: str
) -> tuple[list[TransferRecord], list[Tombstone], list[Merge]]:
    memories = transfer.list_batch(tx, selection, at=at, after=after, limit=BATCH_SIZE)
    # For a part of a workspace, only the tombstones of replaced memories: a tombstone has no org or project.
    tombstones = (
        []
        if selection.is_whole_workspace
        else [
            tombstone
            for record in memories
            for tombstone in _list_previous_tombstones(tx, selection.workspace_id, record.memory.supersedes_id)
        ]
    )
    merges_by_id = transfer.get_merges(tx, [record.id for record in memories])
    return memories, tombstones, sorted(merges_by_id.values(), key=lambda merge: merge.memory_id)


def _list_previous_tombstones(tx: Tx, workspace_id: int, memory_id: str | None) -> list[Tombstone]:
    """Return the tombstones of the memories that a memory replaced, newest first."""
    tombstones = list[Tombstone]()
    while memory_id is not None and len(tombstones) < _MAX_CHAIN_STEPS:
        tombstone = TOMBSTONES.find(tx, workspace_id, id=memory_id)
        if tombstone is None:
            break
        tombstones.append(tombstone)
        memory_id = tombstone.supersedes_id
    return tombstones
