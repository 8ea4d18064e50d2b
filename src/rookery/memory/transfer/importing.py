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
from rookery.kernel.events import Bus, MemoryDeleted, MemoryStored, MemorySuperseded
from rookery.kernel.jobs import Jobs
from rookery.memory.capacity import Capacity
from rookery.memory.errors import MemoriesFull
from rookery.memory.indexing import DELETE, EMBED_MOVED, Indexer
from rookery.memory.maintenance.cleaning import finders
from rookery.memory.models import Tombstone
from rookery.memory.runs import Mark, Report, Watch, unwatched
from rookery.memory.store import merges, records, runs, transfer
from rookery.memory.transfer.judging import Basket, Before, Judge, Verdict
from rookery.memory.transfer.parcels import Parcel, Reading
from rookery.memory.transfer.placing import Wanted, placed

__all__ = ["BATCH", "Import", "Wanted"]

BATCH = 200
"""So many a transaction: a writer beside it waits some ten milliseconds."""

_TRIES = 3
"""Another import may store the same ids first; then they are there, and that is seen."""

_COUNTED = ("imported", "unchanged", "duplicates", "expired", "tombstones", "ended", "conflicts", "refused")
_FAILED = ("conflicts", "refused")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Stored:
    """What came of a batch: of its first parcels, if there was no room for the rest."""

    verdicts: Sequence[Verdict]
    basket: Basket
    gone_through: int


class Import:
    """
    Stores what a reading gives, beside a running server or without one, and announces it as what is remembered is (spec 6.1).

    Words find it at once, its meaning when its job is done: in a queue of its own, behind which no agent's memory waits.
    """

    def __init__(
        self,
        *,
        db: Database,
        jobs: Jobs,
        indexer: Indexer,
        capacity: Capacity,
        bus: Bus,
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

    async def run(self, wanted: Wanted, reading: Reading, *, watch: Watch | None = None) -> Report:
        """
        Store what *reading* gives, or tell what would be stored; it ends early when a store is full or down.

        The watch hears of what was not stored and should have been; of a dry run, of everything.
        """
        started_s, watch = self._timer(), watch or unwatched()
        counts = Counter[str](dict.fromkeys(_COUNTED, 0))
        known, before, stopped = finders() if wanted.strip_pii else (), Before(), None
        parcels = iter(reading)
        done = await self._earlier(wanted)
        if done:
            counts["earlier"] = sum(1 for _ in islice(parcels, done))
            watch.progress(reading.done, reading.total)
        batch = list[Parcel]()
        try:
            while stopped is None and (batch := list(islice(parcels, BATCH))):
                at = self._clock()
                stored = await self._store(wanted, [placed(wanted, each, known, at=at) for each in batch], before, done)
                done += stored.gone_through
                for verdict in stored.verdicts:
                    counts[verdict.counted] += 1
                    if wanted.dry_run or verdict.counted in _FAILED:
                        watch.item(verdict.item)
                watch.progress(reading.done, reading.total)
                batch = batch[stored.gone_through :]
                if batch:
                    stopped = MemoriesFull(self._capacity.most_memories).message
        except (EngineUnavailable, StorageFull) as error:
            stopped = error.message
        if stopped is None:
            await self._ended(wanted)
        failures = sum(counts[name] for name in _FAILED)
        total = sum(counts[name] for name in _COUNTED)
        return Report(
            total=total,
            successes=total - failures,
            failures=failures,
            duration_s=self._timer() - started_s,
            counts=dict(counts),
            stopped=None if stopped is None else _left(stopped, batch, wanted),
        )

    async def _earlier(self, wanted: Wanted) -> int:
        """Return how many parcels the run went through that this one goes on from."""
        name = wanted.run
        mark = await self._db.read(lambda tx: runs.one(tx, name)) if wanted.resume and name is not None else None
        return mark.done if mark else 0

    async def _ended(self, wanted: Wanted) -> None:
        name = wanted.run
        if name is not None and not wanted.dry_run:
            await self._db.write(lambda tx: runs.drop(tx, name))

    async def _store(self, wanted: Wanted, batch: Sequence[Parcel], before: Before, done: int) -> _Stored:
        room = await self._capacity.room(wanted.workspace_id, len(batch) + len(before.kept))
        if wanted.dry_run:
            told = await self._db.read(lambda tx: self._judge(tx, wanted, batch, before, room=room - len(before.kept)))
            before.take(told.basket)
            return told
        stored = await self._written(wanted, batch, room=room, done=done)
        kept = stored.basket.kept
        self._capacity.moved_in(wanted.workspace_id, len(kept))
        try:
            await self._indexer.index([each.memory for each in kept.values() if each.memory.archived_at is None], words_only=True)
        except OUTAGES:
            return stored  # the record is kept, and its job brings the words too (D-51)
        return stored

    async def _written(self, wanted: Wanted, batch: Sequence[Parcel], *, room: int, done: int) -> _Stored:
        for _ in range(_TRIES - 1):
            try:
                return await self._db.write(lambda tx: self._write(tx, wanted, batch, room=room, done=done))
            except Conflict:
                continue
        return await self._db.write(lambda tx: self._write(tx, wanted, batch, room=room, done=done))

    def _judge(self, tx: Tx, wanted: Wanted, batch: Sequence[Parcel], before: Before | None, *, room: int) -> _Stored:
        judge = Judge(tx, batch, workspace_id=wanted.workspace_id, at=self._clock(), dedupe=wanted.dedupe, before=before, room=room)
        verdicts, gone_through = list[Verdict](), 0
        for parcel in batch:
            verdict = judge.verdict(parcel)
            if judge.is_full:
                break
            gone_through += 1
            if verdict is not None:
                verdicts.append(verdict)
        return _Stored(verdicts=verdicts, basket=judge.basket, gone_through=gone_through)

    def _write(self, tx: Tx, wanted: Wanted, batch: Sequence[Parcel], *, room: int, done: int) -> _Stored:
        stored = self._judge(tx, wanted, batch, None, room=room)
        basket, now = stored.basket, self._clock()
        transfer.add(tx, list(basket.kept.values()))
        transfer.bury(tx, list(basket.graves.values()))
        if basket.merges:
            merges.add(tx, list(basket.merges.values()))
        for kept in basket.kept.values():
            if kept.memory.archived_at is None:
                self._jobs.enqueue(tx, EMBED_MOVED, workspace_id=wanted.workspace_id, payload={"memory_id": kept.id})
            self._announce(tx, wanted, MemoryStored(workspace_id=wanted.workspace_id, memory=kept.memory, at=now))
        for grave in basket.ended.values():
            memory = records.locked(tx, wanted.workspace_id, grave.id)
            if memory is not None and records.bury(tx, memory, at=grave.ended_at, superseded_by=grave.superseded_by):
                self._jobs.enqueue(tx, DELETE, workspace_id=wanted.workspace_id, payload={"memory_id": grave.id})
                self._announce(tx, wanted, _end(grave))
        if wanted.run is not None:
            name, upto = wanted.run, done + stored.gone_through
            runs.keep(tx, Mark(name=name, workspace_id=wanted.workspace_id, cursor="", done=upto, at=now))
        return stored

    def _announce(self, tx: Tx, wanted: Wanted, event: MemoryStored | MemoryDeleted | MemorySuperseded) -> None:
        if not wanted.is_quiet:
            self._bus.announce(tx, event)


def _end(grave: Tombstone) -> MemoryDeleted | MemorySuperseded:
    if grave.superseded_by is None:
        return MemoryDeleted(workspace_id=grave.workspace_id, memory_id=grave.id, at=grave.ended_at)
    return MemorySuperseded(workspace_id=grave.workspace_id, memory_id=grave.id, superseded_by=grave.superseded_by, at=grave.ended_at)


def _left(stopped: str, batch: Sequence[Parcel], wanted: Wanted) -> str:
    """Say from where on nothing was stored, and how to go on."""
    if not batch:
        return stopped
    again = "the same command with --resume goes on from there" if wanted.run else "the same command again passes over what is here by then"
    return f"{stopped} Nothing was stored from {batch[0].where} on; {again}."
