"""The operators' verbs that change what is remembered, together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rookery.kernel.clock import Clock
from rookery.kernel.db import Database
from rookery.kernel.events import Bus
from rookery.kernel.ids import Ids
from rookery.kernel.jobs import Jobs
from rookery.memory.indexing import Indexer
from rookery.memory.maintenance.backfill import Backfill
from rookery.memory.maintenance.consolidation import Consolidation
from rookery.memory.maintenance.erasing import Erasing
from rookery.memory.maintenance.forgetting import Forgetting
from rookery.memory.maintenance.pruning import Pruning
from rookery.memory.maintenance.rounds import Rounds
from rookery.memory.maintenance.scrubbing import Scrubbing
from rookery.memory.ports import Comparisons, VectorIndex


@dataclass(frozen=True, slots=True, kw_only=True)
class Tidying:
    """Of one workspace at a time; each may be ended at any moment and run again."""

    scrubbing: Scrubbing
    pruning: Pruning
    consolidation: Consolidation
    backfill: Backfill
    forgetting: Forgetting
    erasing: Erasing


def tidying(
    *,
    db: Database,
    indexer: Indexer,
    vectors: VectorIndex,
    comparisons: Comparisons,
    jobs: Jobs,
    bus: Bus,
    clock: Clock,
    ids: Ids,
    erasing: Erasing,
    half_lives_days: Mapping[str, int | None] | None = None,
) -> Tidying:
    """Return the verbs on one record store and its indexes."""
    rounds = Rounds(db=db, clock=clock)
    return Tidying(
        scrubbing=Scrubbing(db=db, indexer=indexer, bus=bus, clock=clock, rounds=rounds, erasing=erasing),
        pruning=Pruning(
            db=db, jobs=jobs, indexer=indexer, bus=bus, clock=clock, rounds=rounds, erasing=erasing, half_lives_days=half_lives_days
        ),
        consolidation=Consolidation(
            db=db,
            indexer=indexer,
            vectors=vectors,
            comparisons=comparisons,
            jobs=jobs,
            bus=bus,
            clock=clock,
            ids=ids,
            rounds=rounds,
        ),
        backfill=Backfill(db=db, clock=clock, rounds=rounds),
        forgetting=Forgetting(db=db, jobs=jobs, indexer=indexer, bus=bus, clock=clock, rounds=rounds, erasing=erasing),
        erasing=erasing,
    )
