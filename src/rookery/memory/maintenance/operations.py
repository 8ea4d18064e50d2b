"""The maintenance services that change stored memories."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from rookery.kernel.clock import Clock
from rookery.kernel.db import Database
from rookery.kernel.events import EventBus
from rookery.kernel.ids import IdFactory
from rookery.kernel.jobs import JobQueue
from rookery.memory.indexing import Indexer
from rookery.memory.maintenance.backfill import Backfill
from rookery.memory.maintenance.batch_runner import BatchRunner
from rookery.memory.maintenance.consolidation import Consolidation
from rookery.memory.maintenance.erasure import Erasure
from rookery.memory.maintenance.forgetting import Forgetting
from rookery.memory.maintenance.pruning import Pruning
from rookery.memory.maintenance.scrubbing import Scrubbing
from rookery.memory.ports import OpenComparison, VectorIndex


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenanceServices:
    """The maintenance services. Each works on one workspace, can be interrupted at any time, and can be run again."""

    scrubbing: Scrubbing
    pruning: Pruning
    consolidation: Consolidation
    backfill: Backfill
    forgetting: Forgetting
    erasure: Erasure


def build_maintenance(
    *,
    db: Database,
    indexer: Indexer,
    vectors: VectorIndex,
    open_comparison: OpenComparison,
    jobs: JobQueue,
    bus: EventBus,
    clock: Clock,
    ids: IdFactory,
    erasure: Erasure,
    half_lives_days: Mapping[str, int | None] | None = None,
) -> MaintenanceServices:
    """Return the maintenance services of a record store and its indexes."""
    runner = BatchRunner(db=db, clock=clock)
    return MaintenanceServices(
        scrubbing=Scrubbing(db=db, indexer=indexer, bus=bus, clock=clock, runner=runner, erasure=erasure),
        pruning=Pruning(
            db=db, jobs=jobs, indexer=indexer, bus=bus, clock=clock, runner=runner, erasure=erasure, half_lives_days=half_lives_days
        ),
        consolidation=Consolidation(
            db=db,
            indexer=indexer,
            vectors=vectors,
            open_comparison=open_comparison,
            jobs=jobs,
            bus=bus,
            clock=clock,
            ids=ids,
            runner=runner,
        ),
        backfill=Backfill(db=db, clock=clock, runner=runner),
        forgetting=Forgetting(db=db, jobs=jobs, indexer=indexer, bus=bus, clock=clock, runner=runner, erasure=erasure),
        erasure=erasure,
    )
