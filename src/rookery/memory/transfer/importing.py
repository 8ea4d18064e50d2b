"""Moving memories in: each judged by itself, stored in batches with its indexing job, a second time without effect (D-04, D-51)."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice

from rookery.kernel.clock import Clock
from rookery.kernel.db import Database, Tx
from rookery.kernel.errors import Conflict, EngineUnavailable, RookeryError, StorageFull
from rookery.kernel.jobs import Jobs
from rookery.memory.capacity import Capacity
from rookery.memory.errors import MemoriesFull
from rookery.memory.indexing import DELETE, EMBED_MOVED, Indexer
from rookery.memory.maintenance.cleaning import finders
from rookery.memory.maintenance.cleaning.marks import Finder
from rookery.memory.maintenance.scrubbing import clean
from rookery.memory.merging import Merge
from rookery.memory.models import Memory, Tombstone
from rookery.memory.records import normal
from rookery.memory.runs import Report, Watch, unwatched
from rookery.memory.store import merges, records, transfer
from rookery.memory.transfer.fields import must_fit
from rookery.memory.transfer.judging import Basket, Before, Judge, Verdict
from rookery.memory.transfer.parcels import Arrived, Parcel, Place, Reading, Refused, named_id, new_id

BATCH = 200
"""So many a transaction: a writer beside it waits some ten milliseconds."""

_TRIES = 3
"""Another import may store the same ids first; then they are there, and that is seen."""

_COUNTED = ("imported", "unchanged", "duplicates", "expired", "tombstones", "ended", "conflicts", "refused")
_FAILED = ("conflicts", "refused")


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """
    Into which workspace, and how.

    Attributes:
        dedupe: Leave out what says the same as a memory of the same space that is there.
        new_ids: Store copies with ids of their own, for a store where the old ones are taken.
        strip_pii: Put marks for personal data and secrets.
        dry_run: Only tell what would be done.
    """

    workspace_id: int
    place: Place = field(default_factory=Place)
    dedupe: bool = False
    new_ids: bool = False
    strip_pii: bool = False
    dry_run: bool = False


class Import:
    """
    Stores what a reading gives, beside a running server or without one.

    Words find it at once, its meaning when its job is done: in a queue of its own, behind which no agent's memory waits.
    """

    def __init__(
        self,
        *,
        db: Database,
        jobs: Jobs,
        indexer: Indexer,
        capacity: Capacity,
        clock: Clock,
        timer: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._db = db
        self._jobs = jobs
        self._indexer = indexer
        self._capacity = capacity
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
        try:
            while batch := list(islice(parcels, BATCH)):
                for verdict in await self._store(wanted, [_placed(wanted, each, known) for each in batch], before):
                    counts[verdict.counted] += 1
                    if wanted.dry_run or verdict.counted in _FAILED:
                        watch.item(verdict.item)
                watch.progress(reading.done, reading.total)
        except (EngineUnavailable, StorageFull, MemoriesFull) as error:
            stopped = error.message
        failures = sum(counts[name] for name in _FAILED)
        return Report(
            total=counts.total(),
            successes=counts.total() - failures,
            failures=failures,
            duration_s=self._timer() - started_s,
            counts=dict(counts),
            stopped=stopped,
        )

    async def _store(self, wanted: Wanted, batch: Sequence[Parcel], before: Before) -> Sequence[Verdict]:
        if wanted.dry_run:
            verdicts, basket = await self._db.read(lambda tx: self._judge(tx, wanted, batch, before))
            before.take(basket)
            return verdicts
        await self._capacity.make_room(wanted.workspace_id, len(batch))
        verdicts, basket = await self._written(wanted, batch)
        self._capacity.moved_in(wanted.workspace_id, len(basket.kept))
        try:
            await self._indexer.index([each.memory for each in basket.kept.values() if each.memory.archived_at is None], words_only=True)
        except EngineUnavailable:
            return verdicts  # the record is kept, and its job brings the words too (D-51)
        return verdicts

    async def _written(self, wanted: Wanted, batch: Sequence[Parcel]) -> tuple[list[Verdict], Basket]:
        for _ in range(_TRIES - 1):
            try:
                return await self._db.write(lambda tx: self._write(tx, wanted, batch))
            except Conflict:
                continue
        return await self._db.write(lambda tx: self._write(tx, wanted, batch))

    def _judge(self, tx: Tx, wanted: Wanted, batch: Sequence[Parcel], before: Before | None) -> tuple[list[Verdict], Basket]:
        judge = Judge(tx, batch, workspace_id=wanted.workspace_id, at=self._clock(), dedupe=wanted.dedupe, before=before)
        verdicts = [verdict for parcel in batch if (verdict := judge.verdict(parcel)) is not None]
        return verdicts, judge.basket

    def _write(self, tx: Tx, wanted: Wanted, batch: Sequence[Parcel]) -> tuple[list[Verdict], Basket]:
        verdicts, basket = self._judge(tx, wanted, batch, None)
        transfer.add(tx, list(basket.kept.values()))
        transfer.bury(tx, list(basket.graves.values()))
        for grave in basket.ended.values():
            memory = records.locked(tx, wanted.workspace_id, grave.id)
            if memory is not None and records.bury(tx, memory, at=grave.ended_at, superseded_by=grave.superseded_by):
                self._jobs.enqueue(tx, DELETE, workspace_id=wanted.workspace_id, payload={"memory_id": grave.id})
        if basket.merges:
            merges.add(tx, list(basket.merges.values()))
        for kept in basket.kept.values():
            if kept.memory.archived_at is None:
                self._jobs.enqueue(tx, EMBED_MOVED, workspace_id=wanted.workspace_id, payload={"memory_id": kept.id})
        return verdicts, basket


def _placed(wanted: Wanted, parcel: Parcel, known: Sequence[Finder]) -> Parcel:
    """Return *parcel* as it is to be stored in its workspace, or why it cannot be."""
    match parcel.holds:
        case Arrived() as arrived:
            try:
                return replace(parcel, holds=_settled(wanted, arrived, known))
            except RookeryError as error:
                return replace(parcel, holds=Refused(why=error.message, name=arrived.memory.id or None))
        case Tombstone() as grave:
            placed = replace(grave, workspace_id=wanted.workspace_id)
            if wanted.new_ids:
                placed = replace(placed, id=new_id(wanted.workspace_id, grave.id), **_lineage(wanted, grave))
            return replace(parcel, holds=placed)
        case Merge() as merge:
            placed = replace(merge, workspace_id=wanted.workspace_id)
            if wanted.new_ids:
                ids = {name: new_id(wanted.workspace_id, getattr(merge, name)) for name in ("memory_id", "primary_id")}
                placed = replace(placed, **ids)
            return replace(parcel, holds=placed)
        case Refused():
            return parcel


def _settled(wanted: Wanted, arrived: Arrived, known: Sequence[Finder]) -> Arrived:
    memory = wanted.place.put(replace(arrived.memory, workspace_id=wanted.workspace_id, tags=normal(arrived.memory.tags)))
    if known:
        memory = clean(memory, known, normalise=False).memory
    must_fit(memory)
    if arrived.known_as is not None:
        memory = replace(memory, id=named_id(wanted.workspace_id, memory, arrived.known_as))
    elif wanted.new_ids:
        memory = replace(memory, id=new_id(wanted.workspace_id, memory.id), **_lineage(wanted, memory))
    return replace(arrived, memory=memory)


def _lineage(wanted: Wanted, of: Memory | Tombstone) -> dict[str, str | None]:
    """Return the ids that *of* refers to, as those of copies."""
    names = ("supersedes_id", "superseded_by")
    return {name: None if (old := getattr(of, name)) is None else new_id(wanted.workspace_id, old) for name in names}
