"""The construction of the shared memory. It is a part of `wiring`, in a file of its own for its length."""

from __future__ import annotations

from dataclasses import dataclass, fields

from rookery.kernel.clock import Clock
from rookery.kernel.config import Settings
from rookery.kernel.db import Database
from rookery.kernel.events import EventBus
from rookery.kernel.ids import IdFactory
from rookery.kernel.jobs import JobQueue
from rookery.kernel.wal import RecordStoreWal
from rookery.memory.agent_context import AgentContext
from rookery.memory.feedback import Feedback
from rookery.memory.maintenance.erasure import Erasure
from rookery.memory.maintenance.index_check import IndexCheck
from rookery.memory.maintenance.operations import MaintenanceServices, build_maintenance
from rookery.memory.maintenance.reindexing import Reindexer
from rookery.memory.ports import ErasableStore, SessionLookup
from rookery.memory.records import Records
from rookery.memory.retention import RetentionTask
from rookery.memory.search import Listing
from rookery.memory.sessions import SessionMemories
from rookery.memory.transfer.exporting import MemoryExport
from rookery.memory.transfer.importing import MemoryImport, TransferServices
from rookery.memory_core_wiring import Indexes, MemoryCore, build_memory_core


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryServices(MemoryCore):
    """The services of the shared memory: those that store and find memories, and all others."""

    records: Records
    listing: Listing
    feedback: Feedback
    context: AgentContext
    sessions: SessionMemories
    reindexer: Reindexer
    index_check: IndexCheck
    maintenance: MaintenanceServices
    transfer: TransferServices
    retention: RetentionTask


def build_memory(
    settings: Settings,
    indexes: Indexes,
    *,
    db: Database,
    jobs: JobQueue,
    bus: EventBus,
    clock: Clock,
    ids: IdFactory,
    sessions: SessionLookup,
) -> MemoryServices:
    """Build the services of the shared memory. Nothing is opened."""
    core = build_memory_core(settings, indexes, db=db, jobs=jobs, bus=bus, clock=clock, ids=ids, sessions=sessions)
    indexer, migration = core.indexer, core.migration
    erasure = Erasure(db=db, stores=_erasable_stores(settings, indexes, db), clock=clock)
    context = AgentContext(db=db, clock=clock, half_lives_days=dict(settings.half_lives))
    return MemoryServices(
        **{column.name: getattr(core, column.name) for column in fields(core)},
        records=Records(db=db, jobs=jobs, indexer=indexer, bus=bus, clock=clock),
        feedback=Feedback(db=db, jobs=jobs, recalls=core.recall_buffer, clock=clock),
        context=context,
        listing=Listing(db=db, clock=clock, model=indexes.embedder.model),
        sessions=SessionMemories(jobs=jobs, bus=bus, context=context, serializer=core.serializer),
        reindexer=Reindexer(db=db, indexer=indexer, texts=indexes.texts, bus=bus, clock=clock, migration=migration, erasure=erasure),
        index_check=IndexCheck(db=db, vectors=indexes.vectors, texts=indexes.texts, clock=clock, model=indexes.embedder.model),
        maintenance=build_maintenance(
            db=db,
            indexer=indexer,
            vectors=indexes.vectors,
            comparer=indexes.vectors,
            jobs=jobs,
            bus=bus,
            clock=clock,
            ids=ids,
            erasure=erasure,
            half_lives_days=dict(settings.half_lives),
        ),
        transfer=TransferServices(
            exporter=MemoryExport(db=db, clock=clock),
            importer=MemoryImport(db=db, jobs=jobs, indexer=indexer, capacity=core.capacity, bus=bus, clock=clock),
        ),
        retention=RetentionTask(db=db, jobs=jobs, bus=bus, clock=clock),
    )


def _erasable_stores(settings: Settings, indexes: Indexes, db: Database) -> list[ErasableStore]:
    """Return the stores with files on this host. The record store comes last, because it holds the list of pending erasures."""
    record_stores: list[ErasableStore] = [RecordStoreWal(settings.data_dir / "records.db")] if db.dialect == "sqlite" else []
    return [indexes.texts, indexes.vectors, *record_stores]
