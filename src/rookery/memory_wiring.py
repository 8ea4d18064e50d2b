"""The construction of the shared memory. It is a part of `wiring`, in a file of its own for its length."""

from __future__ import annotations

import time
from dataclasses import dataclass

from rookery.engines import embedders, texts, vectors
from rookery.kernel.clock import Clock
from rookery.kernel.config import Settings
from rookery.kernel.db import Database
from rookery.kernel.events import EventBus
from rookery.kernel.ids import IdFactory
from rookery.kernel.jobs import JobQueue
from rookery.kernel.wal import RecordStoreWal
from rookery.memory.agent_context import AgentContext
from rookery.memory.capacity import Capacity, StorageLimits
from rookery.memory.embedding_migration import EmbeddingMigration, IndexVersion
from rookery.memory.feedback import Feedback
from rookery.memory.indexing import Indexer
from rookery.memory.listing import Listing
from rookery.memory.maintenance.erasure import Erasure
from rookery.memory.maintenance.index_check import IndexCheck
from rookery.memory.maintenance.operations import MaintenanceServices, build_maintenance
from rookery.memory.maintenance.reindexing import Reindexer
from rookery.memory.ports import ErasableStore, ModelVersion, SessionLookup
from rookery.memory.recall import Recall
from rookery.memory.recall_buffer import RecallBuffer
from rookery.memory.records import Records
from rookery.memory.remember import Remember
from rookery.memory.retention import RetentionTask
from rookery.memory.schemas.responses import MemorySerializer
from rookery.memory.search import MemorySearch
from rookery.memory.sessions import SessionMemories
from rookery.memory.training import Training
from rookery.memory.transfer.exporting import MemoryExport
from rookery.memory.transfer.importing import MemoryImport, TransferServices

_MIB = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryServices:
    """The services of the shared memory."""

    remember: Remember
    records: Records
    recall: Recall
    search: MemorySearch
    listing: Listing
    feedback: Feedback
    context: AgentContext
    serializer: MemorySerializer
    sessions: SessionMemories
    reindexer: Reindexer
    index_check: IndexCheck
    migration: EmbeddingMigration
    previous_engines: PreviousEngines
    maintenance: MaintenanceServices
    transfer: TransferServices
    indexer: Indexer
    recall_buffer: RecallBuffer
    training: Training
    retention: RetentionTask


@dataclass(frozen=True, slots=True)
class Indexes:
    """The engines of the shared memory."""

    embedder: embedders.EmbedderEngine
    vectors: vectors.VectorEngine
    texts: texts.TextEngine


class PreviousEngines:
    """The engines of previous embedding models, opened on first use (D-54). They come from ROOKERY_EMBEDDER_PREVIOUS or are built in."""

    def __init__(self, settings: Settings) -> None:
        """Open nothing. Raises `WrongSettings` for an invalid URL."""
        self._settings = settings
        self._previous = None if settings.embedder_previous is None else settings.embedder_previous.reveal()
        self._engines: dict[ModelVersion, tuple[embedders.EmbedderEngine, vectors.VectorEngine]] = {}
        if self._previous is not None:
            embedders.open(self._previous, data_dir=settings.data_dir, setting="ROOKERY_EMBEDDER_PREVIOUS")

    def find_index(self, generation: ModelVersion) -> IndexVersion | None:
        """Return the embedder and the vector index of *generation*; None if no known embedder has its model."""
        engines = self._engines.get(generation)
        if engines is None:
            settings = self._settings
            embedder = embedders.open_for_model(
                generation.model,
                generation.dimension,
                urls=(self._previous, settings.embedder.reveal()),
                data_dir=settings.data_dir,
                verify_ssl=settings.verify_ssl,
            )
            if embedder is None:
                return None
            index = vectors.open(
                settings.vectors.reveal(), data_dir=settings.data_dir, model=generation.model, dimension=generation.dimension
            )
            engines = self._engines[generation] = (embedder, index)
        return IndexVersion(embedder=engines[0], vectors=engines[1], is_previous=True)

    async def close(self) -> None:
        """Close the open engines. They are opened again on their next use."""
        engine_pairs = list(self._engines.values())
        self._engines.clear()
        for embedder, index in engine_pairs:
            await embedder.close()
            await index.close()


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
    limits = StorageLimits(
        max_memories=settings.max_memories,
        max_backlog=settings.max_backlog,
        min_free_bytes=settings.min_free_disk_mb * _MIB,
        folder=settings.data_dir if db.dialect == "sqlite" else None,
    )
    previous_engines = PreviousEngines(settings)
    migration = EmbeddingMigration(
        current=IndexVersion(embedder=indexes.embedder, vectors=indexes.vectors),
        model_versions=indexes.vectors,
        find_previous=previous_engines.find_index,
        close_previous=previous_engines.close,
    )
    indexer = Indexer(db=db, embedder=indexes.embedder, vectors=indexes.vectors, texts=indexes.texts, clock=clock, migration=migration)
    erasure = Erasure(db=db, stores=_erasable_stores(settings, indexes, db), clock=clock)
    capacity, recall_buffer = Capacity(db=db, jobs=jobs, limits=limits, monotonic=time.monotonic), RecallBuffer(db=db)
    context = AgentContext(db=db, clock=clock, half_lives_days=dict(settings.half_lives))
    serializer = MemorySerializer(clock=clock, model=indexes.embedder.model, half_lives_days=dict(settings.half_lives))
    return MemoryServices(
        remember=Remember(
            db=db,
            jobs=jobs,
            indexer=indexer,
            capacity=capacity,
            bus=bus,
            clock=clock,
            ids=ids,
            index_first=not settings.async_embedding,
            sessions=sessions,
        ),
        records=Records(db=db, jobs=jobs, indexer=indexer, bus=bus, clock=clock),
        recall=Recall(
            db=db,
            migration=migration,
            texts=indexes.texts,
            buffer=recall_buffer,
            bus=bus,
            clock=clock,
            ids=ids,
            half_lives_days=dict(settings.half_lives),
        ),
        search=MemorySearch(db=db, texts=indexes.texts, clock=clock),
        feedback=Feedback(db=db, jobs=jobs, recalls=recall_buffer, clock=clock),
        context=context,
        listing=Listing(db=db, clock=clock, model=indexes.embedder.model),
        serializer=serializer,
        sessions=SessionMemories(jobs=jobs, bus=bus, context=context, serializer=serializer),
        reindexer=Reindexer(db=db, indexer=indexer, texts=indexes.texts, bus=bus, clock=clock, migration=migration, erasure=erasure),
        index_check=IndexCheck(db=db, vectors=indexes.vectors, texts=indexes.texts, clock=clock, model=indexes.embedder.model),
        migration=migration,
        previous_engines=previous_engines,
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
            importer=MemoryImport(db=db, jobs=jobs, indexer=indexer, capacity=capacity, bus=bus, clock=clock),
        ),
        indexer=indexer,
        recall_buffer=recall_buffer,
        training=Training(db=db, bus=bus, clock=clock),
        retention=RetentionTask(db=db, jobs=jobs, bus=bus, clock=clock),
    )


def _erasable_stores(settings: Settings, indexes: Indexes, db: Database) -> list[ErasableStore]:
    """Return the stores with files on this host. The record store comes last, because it holds the list of pending erasures."""
    record_stores: list[ErasableStore] = [RecordStoreWal(settings.data_dir / "records.db")] if db.dialect == "sqlite" else []
    return [indexes.texts, indexes.vectors, *record_stores]
