"""Moving memories in: each judged by itself, stored in batches with its indexing job, a second time without effect (D-04, D-51)."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import islice

from rookery.kernel.clock import Clock
from rookery.kernel.db import Database, Tx
from rookery.kernel.errors import OUTAGES, Conflict, EngineUnavailable, StorageFull
from rookery.kernel.events import EventBus, MemoryDeleted, MemoryStored, MemorySuperseded
from rookery.kernel.jobs import JobQueue
from rookery.memory.batch_runs import RunCheckpoint, RunObserver, RunReport, null_observer
from rookery.memory.capacity import Capacity
from rookery.memory.errors import MemoriesFull
from rookery.memory.indexing import DELETE_JOB, EMBED_IMPORTED_JOB, Indexer
from rookery.memory.maintenance.cleaning import load_finders
from rookery.memory.models import Tombstone
from rookery.memory.store import merges, records, runs, transfer
from rookery.memory.transfer.conflicts import ConflictResolver, DryRunState, ImportBatch, ImportDecision
from rookery.memory.transfer.items import ImportItem, ImportReader
from rookery.memory.transfer.mapping import ImportRequest, map_item

__all__ = ["BATCH_SIZE", "ImportRequest", "MemoryImport"]

BATCH_SIZE = 200
"""So many a transaction: a writer beside it waits some ten milliseconds."""

_MAX_TRIES = 3
"""Another import may store the same ids first; then they are there, and that is seen."""

_COUNT_NAMES = ("imported", "unchanged", "duplicates", "expired", "tombstones", "ended", "conflicts", "refused")
_FAILURE_COUNT_NAMES = ("conflicts", "refused")


@dataclass(frozen=True, slots=True, kw_only=True)
class _BatchResult:
    """What came of a batch: of its first parcels, if there was no room for the rest."""

    decisions: Sequence[ImportDecision]
    batch: ImportBatch
    processed: int


class MemoryImport:
    """
    Stores what a reading gives, beside a running server or without one, and announces it as what is remembered is (spec 6.1).

    Words find it at once, its meaning when its job is done: in a queue of its own, behind which no agent's memory waits.
    """

    def __init__(
        self,
        *,
        db: Database,
        jobs: JobQueue,
        indexer: Indexer,
        capacity: Capacity,
        bus: EventBus,
        clock: Clock,
        timer: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._db = db
        self._jobs = jobs
        self._indexer = indexer
        self._capacity = capacity
        self._bus = bus
        self._clock = clock
        self._timer = timer

    async def run(self, request: ImportRequest, reader: ImportReader, *, observer: RunObserver | None = None) -> RunReport:
        """
        Store what *reader* gives, or tell what would be stored; it ends early when a store is full or down.

        The watch hears of what was not stored and should have been; of a dry run, of everything.
        """
        started_s, observer = self._timer(), observer or null_observer()
        counts = Counter[str](dict.fromkeys(_COUNT_NAMES, 0))
        known, before, stopped = load_finders() if request.strip_pii else (), DryRunState(), None
        parcels = iter(reader)
        done = await self._get_progress(request)
        if done:
            counts["earlier"] = sum(1 for _ in islice(parcels, done))
            observer.on_progress(reader.done, reader.total)
        batch = list[ImportItem]()
        try:
            while stopped is None and (batch := list(islice(parcels, BATCH_SIZE))):
                at = self._clock()
                stored = await self._store_batch(request, [map_item(request, each, known, at=at) for each in batch], before, done)
                done += stored.processed
                for verdict in stored.decisions:
                    counts[verdict.count_name] += 1
                    if request.dry_run or verdict.count_name in _FAILURE_COUNT_NAMES:
                        observer.on_item(verdict.item)
                observer.on_progress(reader.done, reader.total)
                batch = batch[stored.processed :]
                if batch:
                    stopped = MemoriesFull(self._capacity.max_memories).message
        except (EngineUnavailable, StorageFull) as error:
            stopped = error.message
        if stopped is None:
            await self._delete_checkpoint(request)
        failures = sum(counts[name] for name in _FAILURE_COUNT_NAMES)
        total = sum(counts[name] for name in _COUNT_NAMES)
        return RunReport(
            total=total,
            successes=total - failures,
            failures=failures,
            duration_s=self._timer() - started_s,
            counts=dict(counts),
            stopped=None if stopped is None else _describe_stop(stopped, batch, request),
        )

    async def _get_progress(self, request: ImportRequest) -> int:
        """Return how many parcels the run went through that this one goes on from."""
        name = request.run
        mark = await self._db.read(lambda tx: runs.get_checkpoint(tx, name)) if request.resume and name is not None else None
        return mark.done if mark else 0

    async def _delete_checkpoint(self, request: ImportRequest) -> None:
        name = request.run
        if name is not None and not request.dry_run:
            await self._db.write(lambda tx: runs.delete_checkpoint(tx, name))

    async def _store_batch(
        self, request: ImportRequest, batch: Sequence[ImportItem], dry_run_state: DryRunState, done: int
    ) -> _BatchResult:
        room = await self._capacity.count_admissible(request.workspace_id, len(batch) + len(dry_run_state.digests))
        if request.dry_run:
            told = await self._db.read(
                lambda tx: self._decide_batch(tx, request, batch, dry_run_state, room=room - len(dry_run_state.digests))
            )
            dry_run_state.add(told.batch)
            return told
        stored = await self._write_with_retries(request, batch, room=room, done=done)
        kept = stored.batch.memories
        self._capacity.add_imported(request.workspace_id, len(kept))
        try:
            await self._indexer.index([each.memory for each in kept.values() if each.memory.archived_at is None], words_only=True)
        except OUTAGES:
            return stored  # the record is kept, and its job brings the words too (D-51)
        return stored

    async def _write_with_retries(self, request: ImportRequest, batch: Sequence[ImportItem], *, room: int, done: int) -> _BatchResult:
        for _ in range(_MAX_TRIES - 1):
            try:
                return await self._db.write(lambda tx: self._write(tx, request, batch, room=room, done=done))
            except Conflict:
                continue
        return await self._db.write(lambda tx: self._write(tx, request, batch, room=room, done=done))

    def _decide_batch(
        self, tx: Tx, request: ImportRequest, batch: Sequence[ImportItem], dry_run_state: DryRunState | None, *, room: int
    ) -> _BatchResult:
        judge = ConflictResolver(
            tx, batch, workspace_id=request.workspace_id, at=self._clock(), dedupe=request.dedupe, dry_run_state=dry_run_state, room=room
        )
        verdicts, gone_through = list[ImportDecision](), 0
        for parcel in batch:
            verdict = judge.decide(parcel)
            if judge.is_full:
                break
            gone_through += 1
            if verdict is not None:
                verdicts.append(verdict)
        return _BatchResult(decisions=verdicts, batch=judge.batch, processed=gone_through)

    def _write(self, tx: Tx, request: ImportRequest, batch: Sequence[ImportItem], *, room: int, done: int) -> _BatchResult:
        stored = self._decide_batch(tx, request, batch, None, room=room)
        basket, now = stored.batch, self._clock()
        transfer.add(tx, list(basket.memories.values()))
        transfer.add_tombstones(tx, list(basket.tombstones.values()))
        if basket.merges:
            merges.add(tx, list(basket.merges.values()))
        for kept in basket.memories.values():
            if kept.memory.archived_at is None:
                self._jobs.enqueue(tx, EMBED_IMPORTED_JOB, workspace_id=request.workspace_id, payload={"memory_id": kept.id})
            self._announce(tx, request, MemoryStored(workspace_id=request.workspace_id, memory=kept.memory, at=now))
        for grave in basket.ended_tombstones.values():
            memory = records.lock_memory(tx, request.workspace_id, grave.id)
            if memory is not None and records.delete_memory(tx, memory, at=grave.ended_at, superseded_by=grave.superseded_by):
                self._jobs.enqueue(tx, DELETE_JOB, workspace_id=request.workspace_id, payload={"memory_id": grave.id})
                self._announce(tx, request, _end_event(grave))
        if request.run is not None:
            name, upto = request.run, done + stored.processed
            runs.save_checkpoint(tx, RunCheckpoint(name=name, workspace_id=request.workspace_id, cursor="", done=upto, at=now))
        return stored

    def _announce(self, tx: Tx, request: ImportRequest, event: MemoryStored | MemoryDeleted | MemorySuperseded) -> None:
        if not request.is_quiet:
            self._bus.publish_on_commit(tx, event)


def _end_event(tombstone: Tombstone) -> MemoryDeleted | MemorySuperseded:
    if tombstone.superseded_by is None:
        return MemoryDeleted(workspace_id=tombstone.workspace_id, memory_id=tombstone.id, at=tombstone.ended_at)
    return MemorySuperseded(
        workspace_id=tombstone.workspace_id, memory_id=tombstone.id, superseded_by=tombstone.superseded_by, at=tombstone.ended_at
    )


def _describe_stop(stopped: str, batch: Sequence[ImportItem], request: ImportRequest) -> str:
    """Say from where on nothing was stored, and how to go on."""
    if not batch:
        return stopped
    again = (
        "the same command with --resume goes on from there" if request.run else "the same command again passes over what is here by then"
    )
    return f"{stopped} Nothing was stored from {batch[0].location} on; {again}."
