"""Memories of little worth leave: archived, or deleted where that is asked for (spec 4.4, D-47, D-52)."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import groupby

from rookery.kernel.clock import Clock
from rookery.kernel.db import Database, Tx
from rookery.kernel.errors import OUTAGES
from rookery.kernel.events import Bus, MemoryDeleted
from rookery.kernel.jobs import Jobs
from rookery.memory.indexing import Indexer
from rookery.memory.maintenance.erasing import DELETED, Erasing
from rookery.memory.maintenance.rounds import Course, Rounds
from rookery.memory.models import Memory
from rookery.memory.ranking import HALF_LIVES_DAYS, OTHER_HALF_LIFE_DAYS, decay
from rookery.memory.records import put_away, remove
from rookery.memory.runs import BATCH, Item, Report, Watch, unwatched
from rookery.memory.store import records, tidying
from rookery.memory.store.tidying import Range, Worth

UNUSED_FOR = timedelta(days=180)
UNUSED_UNDER = 0.3
"""Never returned by any recall for so long, and of no more effective confidence: a candidate (D-47)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """
    Which memories of a workspace to prune: those that meet any of the criteria.

    Attributes:
        min_confidence: Under it the base confidence is too little; so too *min_effective_confidence*.
        deduplicate: Of those with the same content in the same space only the most trusted one stays.
        unused: The candidates, which are else only named.
        delete: Delete instead of archive.
    """

    workspace_id: int
    min_confidence: float | None = None
    min_effective_confidence: float | None = None
    deduplicate: bool = False
    unused: bool = False
    delete: bool = False
    dry_run: bool = False

    @property
    def has_criteria(self) -> bool:
        """Tell whether anything is asked for."""
        return self.min_confidence is not None or self.min_effective_confidence is not None or self.deduplicate or self.unused


@dataclass(frozen=True, slots=True, kw_only=True)
class _Doomed:
    """Who goes and why; *twin_of*: only while that one stays and says the same."""

    worth: Worth
    why: str
    twin_of: str | None = None


class Pruning:
    """Judges each memory that counts, neither archived nor expired; what is pruned already is not there to be pruned twice."""

    def __init__(
        self,
        *,
        db: Database,
        jobs: Jobs,
        indexer: Indexer,
        bus: Bus,
        clock: Clock,
        rounds: Rounds,
        erasing: Erasing,
        half_lives_days: Mapping[str, int | None] | None = None,
    ) -> None:
        self._db = db
        self._jobs = jobs
        self._indexer = indexer
        self._bus = bus
        self._clock = clock
        self._rounds = rounds
        self._erasing = erasing
        self._half_lives_days = {**HALF_LIVES_DAYS, **(half_lives_days or {})}

    async def run(self, wanted: Wanted, *, watch: Watch | None = None) -> Report:
        """Prune, or tell what would be pruned."""
        watch = watch or unwatched()
        now = self._clock()
        within = Range(workspace_id=wanted.workspace_id, at=now)
        counts: Counter[str] = Counter({"deleted" if wanted.delete else "archived": 0, "candidates": 0})

        async def work(stretch: Sequence[Worth]) -> None:
            doomed = [_Doomed(worth=each, why=why) for each in stretch if (why := self._why(wanted, each, now))]
            await self._part_with(wanted, doomed, counts, watch)
            going = {each.worth.id for each in doomed}
            for each in stretch:
                if each.id not in going and self._is_unused(each, now):
                    counts["candidates"] += 1
                    watch.item(Item(id=each.id, action="candidate", why=self._unused(each, now)))

        async def deduplicate() -> None:
            if wanted.deduplicate:
                await self._deduplicate(wanted, within, counts, watch)

        left: str | None = None

        async def last() -> None:
            nonlocal left
            await deduplicate()
            left = await self._erasing.settle() if wanted.delete and not wanted.dry_run else None

        gone = await self._rounds.through(
            Course(name=f"prune {wanted.workspace_id}", of=within, resume=False, is_kept=False),
            lambda tx, after: tidying.worths(tx, within, after=after, limit=BATCH),
            work,
            watch=watch,
            last=last,
        )
        return Report(
            total=gone.total, successes=gone.done, failures=0, duration_s=gone.duration_s, counts=dict(counts), stopped=gone.stopped or left
        )

    async def _deduplicate(self, wanted: Wanted, within: Range, counts: Counter[str], watch: Watch) -> None:
        """Keep of each fingerprint the best that no other criterion takes."""
        after = ""
        while fingerprints := await self._db.read(lambda tx, at=after: tidying.repeated(tx, within, after=at, limit=BATCH)):
            twins = await self._db.read(lambda tx, of=fingerprints: tidying.twins(tx, within, of))
            doomed = list[_Doomed]()
            for _, same in groupby(twins, key=lambda each: each.fingerprint):
                kept = [each for each in same if not self._why(wanted, each, within.at or self._clock())]
                doomed += [_Doomed(worth=each, why=f"a duplicate of {kept[0].id}", twin_of=kept[0].id) for each in kept[1:]]
            for start in range(0, len(doomed), BATCH):
                await self._part_with(wanted, doomed[start : start + BATCH], counts, watch)
            after = fingerprints[-1]

    async def _part_with(self, wanted: Wanted, doomed: Sequence[_Doomed], counts: Counter[str], watch: Watch) -> None:
        if not doomed:
            return
        gone = set[str](each.worth.id for each in doomed)
        if not wanted.dry_run:
            gone = await self._db.write(lambda tx: self._write(tx, wanted, doomed))
            if wanted.delete and gone:
                # As `Forgetting` does, and for its reasons: what is deleted is gone when the command ends, also where no server runs.
                with contextlib.suppress(*OUTAGES):
                    await self._indexer.drop(wanted.workspace_id, sorted(gone))
        action, name = ("delete", "deleted") if wanted.delete else ("archive", "archived")
        for each in doomed:
            if each.worth.id in gone:
                counts[name] += 1
                watch.item(Item(id=each.worth.id, action=action, why=each.why))

    def _write(self, tx: Tx, wanted: Wanted, doomed: Sequence[_Doomed]) -> set[str]:
        """Part with them as far as they are still what they were judged as; return those."""
        now, gone = self._clock(), set[str]()
        ids = {each.worth.id for each in doomed} | {each.twin_of for each in doomed if each.twin_of}
        held = {each: records.locked(tx, wanted.workspace_id, each) for each in sorted(ids)}
        for each in doomed:
            memory = held[each.worth.id]
            if memory is None or memory.archived_at is not None or _changed(memory, each.worth):
                continue
            twin = held[each.twin_of] if each.twin_of else None
            if each.twin_of and (twin is None or twin.archived_at is not None or twin.content != memory.content):
                continue
            if wanted.delete:
                event = MemoryDeleted(workspace_id=memory.workspace_id, memory_id=memory.id, at=now)
                remove(tx, self._jobs, self._bus, memory, event)
                self._erasing.owe(tx, DELETED)
            else:
                put_away(tx, self._jobs, self._bus, memory, at=now)
            gone.add(memory.id)
        return gone

    def _why(self, wanted: Wanted, worth: Worth, now: datetime) -> str | None:
        """Return by which criterion it goes; None: it stays."""
        if wanted.min_confidence is not None and worth.confidence < wanted.min_confidence:
            return f"confidence {worth.confidence:.2f} is under {wanted.min_confidence:.2f}"
        least = wanted.min_effective_confidence
        if least is not None and (effective := self._effective(worth, now)) < least:
            return f"effective confidence {effective:.2f} is under {least:.2f}"
        return self._unused(worth, now) if wanted.unused and self._is_unused(worth, now) else None

    def _is_unused(self, worth: Worth, now: datetime) -> bool:
        last = worth.recalled_at or worth.created_at
        return now - last >= UNUSED_FOR and self._effective(worth, now) < UNUSED_UNDER

    def _unused(self, worth: Worth, now: datetime) -> str:
        days = (now - (worth.recalled_at or worth.created_at)).days
        return f"not returned by any recall for {days} days, effective confidence {self._effective(worth, now):.2f}"

    def _effective(self, worth: Worth, now: datetime) -> float:
        return worth.confidence * decay(now - worth.content_at, self._half_lives_days.get(worth.type, OTHER_HALF_LIFE_DAYS))


def _changed(memory: Memory, worth: Worth) -> bool:
    now = replace(worth, type=memory.type, confidence=memory.confidence, content_at=memory.content_at)
    return now != worth
