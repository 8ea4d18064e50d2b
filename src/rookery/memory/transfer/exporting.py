"""Moving memories out: all of a workspace or a part of it, in any number, with the room of a few (D-04)."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from rookery.kernel.clock import Clock
from rookery.kernel.db import Database, Tx
from rookery.memory.maintenance.cleaning import finders
from rookery.memory.maintenance.scrubbing import clean
from rookery.memory.merging import Merge
from rookery.memory.models import Tombstone
from rookery.memory.runs import Report, Watch, unwatched
from rookery.memory.store import records, transfer
from rookery.memory.store.transfer import Choice, Kept

BATCH = 500
_LONGEST_CHAIN = 1_000
"""A bound on walking a lineage, so that no damage to the store can hold a run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """Which memories of which workspace; *strip_pii*: with marks for personal data and secrets."""

    workspace_id: int
    org: str | None = None
    project: str | None = None
    agent_id: str | None = None
    type: str | None = None
    archived_too: bool = False
    strip_pii: bool = False


class Target(Protocol):
    """Where it is written to, in the order of these methods, each of the middle ones any number of times."""

    def begin(self) -> None:
        """Write what comes before all."""
        ...

    def memory(self, kept: Kept) -> None:
        """Write a memory."""
        ...

    def tombstone(self, grave: Tombstone) -> None:
        """Write what stayed of a memory."""
        ...

    def merge(self, merge: Merge) -> None:
        """Write what was merged into what."""
        ...

    def end(self) -> None:
        """Write what says that this was all."""
        ...


@dataclass(frozen=True, slots=True)
class _Stretch:
    kept: Sequence[Kept]
    graves: Sequence[Tombstone]
    merges: Sequence[Merge]


class Export:
    """
    Reads stretches in the order of ids, each as the store has it at its moment.

    Tombstones of the whole workspace come last: a memory that is superseded on the way is there, and its end after it.
    """

    def __init__(self, *, db: Database, clock: Clock, timer: Callable[[], float] = time.perf_counter) -> None:
        self._db = db
        self._clock = clock
        self._timer = timer

    async def run(self, wanted: Wanted, target: Target, *, watch: Watch | None = None) -> Report:
        """
        Write what is wanted to *target*.

        Raises:
            EngineUnavailable: The store went down; what was written is not all.
        """
        started_s, watch = self._timer(), watch or unwatched()
        of = Choice(
            workspace_id=wanted.workspace_id,
            at=self._clock(),
            org=wanted.org,
            project=wanted.project,
            agent_id=wanted.agent_id,
            type=wanted.type,
            archived_too=wanted.archived_too,
        )
        known = finders() if wanted.strip_pii else ()
        total = await self._db.read(lambda tx: transfer.number(tx, of))
        counts = {"memories": 0, "tombstones": 0}
        target.begin()
        after = ""
        while True:
            stretch = await self._db.read(lambda tx, after=after: _read(tx, of, after=after))
            if not stretch.kept:
                break
            for kept in stretch.kept:
                target.memory(replace(kept, memory=clean(kept.memory, known, normalise=False).memory) if known else kept)
            self._write(target, stretch.graves, stretch.merges, counts)
            counts["memories"] += len(stretch.kept)
            after = stretch.kept[-1].id
            watch.progress(min(counts["memories"], total), total)
        if of.is_all:
            await self._bury(target, of.workspace_id, counts)
        target.end()
        done = counts["memories"]
        return Report(total=done, successes=done, failures=0, duration_s=self._timer() - started_s, counts=counts)

    async def _bury(self, target: Target, workspace_id: int, counts: dict[str, int]) -> None:
        after = ""
        while graves := await self._db.read(lambda tx, after=after: transfer.graves(tx, workspace_id, after=after, limit=BATCH)):
            self._write(target, graves, (), counts)
            after = graves[-1].id

    def _write(self, target: Target, graves: Sequence[Tombstone], merges: Sequence[Merge], counts: dict[str, int]) -> None:
        for grave in graves:
            target.tombstone(grave)
        for merge in merges:
            target.merge(merge)
        counts["tombstones"] += len(graves)


def _read(tx: Tx, of: Choice, *, after: str) -> _Stretch:
    kept = transfer.stretch(tx, of, after=after, limit=BATCH)
    # Of a part only what it replaced: the tombstones themselves do not say to which part they belonged.
    graves = [] if of.is_all else [grave for each in kept for grave in _before(tx, of.workspace_id, each.memory.supersedes_id)]
    merged = transfer.merged(tx, [each.id for each in kept])
    return _Stretch(kept, graves, sorted(merged.values(), key=lambda merge: merge.memory_id))


def _before(tx: Tx, workspace_id: int, memory_id: str | None) -> list[Tombstone]:
    """Return the tombstones of what a memory replaced, newest first."""
    found = list[Tombstone]()
    while memory_id is not None and len(found) < _LONGEST_CHAIN:
        grave = records.tombstone(tx, workspace_id, memory_id)
        if grave is None:
            break
        found.append(grave)
        memory_id = grave.supersedes_id
    return found
