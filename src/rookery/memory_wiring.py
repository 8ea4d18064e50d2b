"""The shared memory, put together: what `wiring` leaves to this file, so that each can be read in one go."""

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
from rookery.memory.transfer.importing import MemoryImport
from rookery.memory.transfer.operations import TransferServices

_MIB = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryServices:
    """The shared memory."""

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
    """The engines that memory stands on."""

    embedder: embedders.EmbedderEngine
    vectors: vectors.VectorEngine
    texts: texts.TextEngine


class PreviousEngines:
    """The sides of former generations, opened when they are first asked for (D-54): by ROOKERY_EMBEDDER_PREVIOUS, or built in."""

    def __init__(self, settings: Settings) -> None:
        """Open nothing; raises `WrongSettings` of an address that cannot be."""
        self._settings = settings
        self._previous = None if settings.embedder_previous is None else settings.embedder_previous.reveal()
        self._engines: dict[ModelVersion, tuple[embedders.EmbedderEngine, vectors.VectorEngine]] = {}
        if self._previous is not None:
            embedders.open(self._previous, data_dir=settings.data_dir, setting="ROOKERY_EMBEDDER_PREVIOUS")

    def find_index(self, generation: ModelVersion) -> IndexVersion | None:
        """Return the side of *generation*; None: no embedder that we know of has its model."""
        opened = self._engines.get(generation)
        if opened is None:
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
            opened = self._engines[generation] = (embedder, index)
        return IndexVersion(embedder=opened[0], vectors=opened[1], is_previous=True)

    async def close(self) -> None:
        """Close what was opened; it is opened again when it is asked for."""
        opened = list(self._engines.values())
        self._engines.clear()
        for embedder, index in opened:
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
    """Put the memory together; nothing is opened."""
    limits = StorageLimits(
        max_memories=settings.max_memories,
        max_backlog=settings.max_backlog,
        min_free_bytes=settings.min_free_disk_mb * _MIB,
        folder=settings.data_dir if db.dialect == "sqlite" else None,
    )
    formers, now = PreviousEngines(settings), IndexVersion(embedder=indexes.embedder, vectors=indexes.vectors)
    rebuild = EmbeddingMigration(
        current=now, model_versions=indexes.vectors, find_previous=formers.find_index, close_previous=formers.close
    )
    indexer = Indexer(db=db, embedder=indexes.embedder, vectors=indexes.vectors, texts=indexes.texts, clock=clock, migration=rebuild)
    erasing = Erasure(db=db, stores=_erasable_stores(settings, indexes, db), clock=clock)
    capacity, journal = Capacity(db=db, jobs=jobs, limits=limits, monotonic=time.monotonic), RecallBuffer(db=db)
    context = AgentContext(db=db, clock=clock, half_lives_days=dict(settings.half_lives))
    answers = MemorySerializer(clock=clock, model=indexes.embedder.model, half_lives_days=dict(settings.half_lives))
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
            migration=rebuild,
            texts=indexes.texts,
            buffer=journal,
            bus=bus,
            clock=clock,
            ids=ids,
            half_lives_days=dict(settings.half_lives),
        ),
        search=MemorySearch(db=db, texts=indexes.texts, clock=clock),
        feedback=Feedback(db=db, jobs=jobs, recalls=journal, clock=clock),
        context=context,
        listing=Listing(db=db, clock=clock, model=indexes.embedder.model),
        serializer=answers,
        sessions=SessionMemories(jobs=jobs, bus=bus, context=context, serializer=answers),
        reindexer=Reindexer(db=db, indexer=indexer, texts=indexes.texts, bus=bus, clock=clock, migration=rebuild, erasure=erasing),
        index_check=IndexCheck(db=db, vectors=indexes.vectors, texts=indexes.texts, clock=clock, model=indexes.embedder.model),
        migration=rebuild,
        previous_engines=formers,
        maintenance=build_maintenance(
            db=db,
            indexer=indexer,
            vectors=indexes.vectors,
            comparer=indexes.vectors,
            jobs=jobs,
            bus=bus,
            clock=clock,
            ids=ids,
            erasure=erasing,
            half_lives_days=dict(settings.half_lives),
        ),
        transfer=TransferServices(
            exporter=MemoryExport(db=db, clock=clock),
            importer=MemoryImport(db=db, jobs=jobs, indexer=indexer, capacity=capacity, bus=bus, clock=clock),
        ),
        indexer=indexer,
        recall_buffer=journal,
        training=Training(db=db, bus=bus, clock=clock),
        retention=RetentionTask(db=db, jobs=jobs, bus=bus, clock=clock),
    )


def _erasable_stores(settings: Settings, indexes: Indexes, db: Database) -> list[ErasableStore]:
    """Return the stores with files here; the records come last, as what they are asked to forget is noted in them."""
    own: list[ErasableStore] = [RecordStoreWal(settings.data_dir / "records.db")] if db.dialect == "sqlite" else []
    return [indexes.texts, indexes.vectors, *own]
