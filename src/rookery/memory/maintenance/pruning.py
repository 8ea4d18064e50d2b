"""Pruning of memories of low value: they are archived, or deleted on request."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import groupby

from rookery.access.models import SYSTEM_ACTOR, Actor
from rookery.kernel.clock import Clock
from rookery.kernel.db import Database, Tx
from rookery.kernel.errors import OUTAGES
from rookery.kernel.events import EventBus
from rookery.kernel.jobs import JobQueue
from rookery.kernel.sentences import format_count
from rookery.memory.batch_runs import BATCH_SIZE, SILENT, RunItem, RunObserver, RunReport
from rookery.memory.events import MemoryDeleted
from rookery.memory.indexing import Indexer
from rookery.memory.maintenance.batch_runner import BatchRun, BatchRunner
from rookery.memory.maintenance.erasure import Erasure
from rookery.memory.merging import find_subject_distinction
from rookery.memory.models import Memory
from rookery.memory.ranking import DEFAULT_HALF_LIFE_DAYS, HALF_LIVES_DAYS, decay_factor
from rookery.memory.records import archive_memory, delete_memory
from rookery.memory.store import maintenance
from rookery.memory.store.maintenance import DELETED_TEXT, DuplicateRow, MemorySelection, PruneRow
from rookery.memory.store.tables import MEMORIES

UNUSED_MIN_AGE = timedelta(days=180)
UNUSED_MAX_CONFIDENCE = 0.3
"""The criteria of an unused memory: never recalled for that time, and at most this effective confidence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PruneRequest:
    """
    The memories of a workspace to prune: those that match any of the criteria.

    Attributes:
        min_confidence: Prune memories with a lower base confidence; *min_effective_confidence* likewise.
        deduplicate: Of memories with the same content in the same space, keep only the most trusted one.
        unused: Prune unused memories, which are otherwise only reported as candidates.
        delete: Delete instead of archive.
        by: The actor, for the audit log.
    """

    workspace_id: int
    min_confidence: float | None = None
    min_effective_confidence: float | None = None
    deduplicate: bool = False
    unused: bool = False
    delete: bool = False
    dry_run: bool = False
    by: Actor = SYSTEM_ACTOR

    @property
    def has_criteria(self) -> bool:
        """True if a criterion is given."""
        return self.min_confidence is not None or self.min_effective_confidence is not None or self.deduplicate or self.unused


@dataclass(frozen=True, slots=True, kw_only=True)
class _Removal:
    """A memory to remove and the reason. *duplicate_of* must still exist with the same content."""

    row: PruneRow
    reason: str
    duplicate_of: str | None = None


class Pruning:
    """The pruning of live memories, neither archived nor expired. A second run does not prune them again."""

    def __init__(
        self,
        *,
        db: Database,
        jobs: JobQueue,
        indexer: Indexer,
        bus: EventBus,
        clock: Clock,
        runner: BatchRunner,
        erasure: Erasure,
        half_lives_days: Mapping[str, int | None] | None = None,
    ) -> None:
        self._db = db
        self._jobs = jobs
        self._indexer = indexer
        self._bus = bus
        self._clock = clock
        self._runner = runner
        self._erasure = erasure
        self._half_lives_days = {**HALF_LIVES_DAYS, **(half_lives_days or {})}

    async def run(self, request: PruneRequest, *, observer: RunObserver = SILENT) -> RunReport:
        """Prune, or list the memories in a dry run."""
        now = self._clock()
        selection = MemorySelection(workspace_id=request.workspace_id, at=now)
        counts: Counter[str] = Counter({"deleted" if request.delete else "archived": 0, "candidates": 0})

        async def work(batch: Sequence[PruneRow]) -> None:
            removals = [_Removal(row=row, reason=reason) for row in batch if (reason := self._reason(request, row, now))]
            await self._remove(request, removals, counts, observer)
            removed_ids = {removal.row.id for removal in removals}
            for row in batch:
                if row.id not in removed_ids and self._is_unused(row, now):
                    counts["candidates"] += 1
                    observer.on_item(RunItem(id=row.id, action="candidate", why=self._describe_unused(row, now)))

        async def finish() -> str | None:
            if request.deduplicate:
                await self._deduplicate(request, selection, counts, observer)
            return await self._erasure.run() if request.delete and not request.dry_run else None

        return await self._runner.run(
            BatchRun(name=f"prune {request.workspace_id}", selection=selection),
            lambda tx, after: maintenance.list_prune_rows(tx, selection, after=after, limit=BATCH_SIZE),
            work,
            observer=observer,
            counts=counts,
            after_all=finish,
        )

    async def _deduplicate(self, request: PruneRequest, selection: MemorySelection, counts: Counter[str], observer: RunObserver) -> None:
        """Remove all duplicates of each fingerprint but the best one that no other criterion removes."""
        after = ""
        while fingerprints := await self._db.read(
            lambda tx, at=after: maintenance.list_repeated_fingerprints(tx, selection, after=at, limit=BATCH_SIZE)
        ):
            duplicates = await self._db.read(lambda tx, batch=fingerprints: maintenance.list_duplicates(tx, selection, batch))
            removals = list[_Removal]()
            for _, group in groupby(duplicates, key=lambda row: row.fingerprint):
                remaining = [row for row in group if not self._reason(request, row, selection.at or self._clock())]
                removals += _list_duplicates(remaining)
            for start in range(0, len(removals), BATCH_SIZE):
                await self._remove(request, removals[start : start + BATCH_SIZE], counts, observer)
            after = fingerprints[-1]

    async def _remove(self, request: PruneRequest, removals: Sequence[_Removal], counts: Counter[str], observer: RunObserver) -> None:
        if not removals:
            return
        removed_ids = set[str](removal.row.id for removal in removals)
        if not request.dry_run:
            removed_ids = await self._db.write(lambda tx: self._write(tx, request, removals))
            if request.delete and removed_ids:
                # Removed at once, as in `Forgetting`, because no server may be running.
                with contextlib.suppress(*OUTAGES):
                    await self._indexer.delete(request.workspace_id, sorted(removed_ids))
        action, name = ("delete", "deleted") if request.delete else ("archive", "archived")
        for removal in removals:
            if removal.row.id in removed_ids:
                counts[name] += 1
                observer.on_item(RunItem(id=removal.row.id, action=action, why=removal.reason))

    def _write(self, tx: Tx, request: PruneRequest, removals: Sequence[_Removal]) -> set[str]:
        """Remove the memories that did not change since they were selected. Return their ids."""
        now, removed_ids = self._clock(), set[str]()
        ids = {removal.row.id for removal in removals} | {removal.duplicate_of for removal in removals if removal.duplicate_of}
        locked_memories = {memory_id: MEMORIES.find(tx, request.workspace_id, id=memory_id, lock=True) for memory_id in sorted(ids)}
        for removal in removals:
            memory = locked_memories[removal.row.id]
            if memory is None or memory.archived_at is not None or _has_changed(memory, removal.row):
                continue
            original = locked_memories[removal.duplicate_of] if removal.duplicate_of else None
            if removal.duplicate_of and (original is None or original.archived_at is not None or not _is_copy(memory, original)):
                continue
            if request.delete:
                event = MemoryDeleted(workspace_id=memory.workspace_id, memory_id=memory.id, at=now)
                delete_memory(tx, self._jobs, self._bus, memory, event)
                self._erasure.add_pending(tx, DELETED_TEXT)
            else:
                archive_memory(tx, self._jobs, self._bus, memory, at=now)
            removed_ids.add(memory.id)
        return removed_ids

    def _reason(self, request: PruneRequest, row: PruneRow, now: datetime) -> str | None:
        """Return the criterion that the memory meets. None if it stays."""
        if request.min_confidence is not None and row.confidence < request.min_confidence:
            return f"confidence {row.confidence:.2f} is under {request.min_confidence:.2f}"
        minimum = request.min_effective_confidence
        if minimum is not None and (effective := self._effective_confidence(row, now)) < minimum:
            return f"effective confidence {effective:.2f} is under {minimum:.2f}"
        return self._describe_unused(row, now) if request.unused and self._is_unused(row, now) else None

    def _is_unused(self, row: PruneRow, now: datetime) -> bool:
        finish = row.recalled_at or row.created_at
        return now - finish >= UNUSED_MIN_AGE and self._effective_confidence(row, now) < UNUSED_MAX_CONFIDENCE

    def _describe_unused(self, row: PruneRow, now: datetime) -> str:
        days = (now - (row.recalled_at or row.created_at)).days
        return (
            f"not returned by any recall for {format_count(days, 'day')}, effective confidence {self._effective_confidence(row, now):.2f}"
        )

    def _effective_confidence(self, row: PruneRow, now: datetime) -> float:
        return row.confidence * decay_factor(now - row.content_at, self._half_lives_days.get(row.type, DEFAULT_HALF_LIFE_DAYS))


def _list_duplicates(rows: Sequence[DuplicateRow]) -> list[_Removal]:
    """Return the removals of all but the first of those of *rows*, which have the same content, that are about the same."""
    removals, originals = list[_Removal](), list[DuplicateRow]()
    for row in rows:
        original = next((candidate for candidate in originals if find_subject_distinction(candidate, row) is None), None)
        if original is None:
            originals.append(row)
        else:
            removals.append(_Removal(row=row, reason=f"a duplicate of {original.id}", duplicate_of=original.id))
    return removals


def _is_copy(memory: Memory, original: Memory) -> bool:
    return memory.content == original.content and find_subject_distinction(memory, original) is None


def _has_changed(memory: Memory, row: PruneRow) -> bool:
    now = replace(row, type=memory.type, confidence=memory.confidence, content_at=memory.content_at)
    return now != row
