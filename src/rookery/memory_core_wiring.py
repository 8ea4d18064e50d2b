"""The construction of storing, recall and search of memories. It is a part of `memory_wiring`, which commands need alone."""

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
from rookery.memory.capacity import Capacity, StorageLimits
from rookery.memory.embedding_migration import EmbeddingMigration, IndexVersion
from rookery.memory.feedback import RecallBuffer
from rookery.memory.indexing import Indexer
from rookery.memory.ports import ModelVersion, SessionLookup
from rookery.memory.recall import Recall
from rookery.memory.remember import Remember
from rookery.memory.schemas.responses import MemorySerializer
from rookery.memory.search import MemorySearch
from rookery.memory.training import Training

_MIB = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryCore:
    """The services that store and find memories."""

    remember: Remember
    recall: Recall
    search: MemorySearch
    serializer: MemorySerializer
    indexer: Indexer
    capacity: Capacity
    migration: EmbeddingMigration
    previous_engines: PreviousEngines
    recall_buffer: RecallBuffer
    training: Training


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


def build_memory_core(
    settings: Settings,
    indexes: Indexes,
    *,
    db: Database,
    jobs: JobQueue,
    bus: EventBus,
    clock: Clock,
    ids: IdFactory,
    sessions: SessionLookup,
) -> MemoryCore:
    """Build the services that store and find memories. Nothing is opened."""
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
    capacity, recall_buffer = Capacity(db=db, jobs=jobs, limits=limits, monotonic=time.monotonic), RecallBuffer(db=db)
    return MemoryCore(
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
        serializer=MemorySerializer(clock=clock, model=indexes.embedder.model, half_lives_days=dict(settings.half_lives)),
        indexer=indexer,
        capacity=capacity,
        migration=migration,
        previous_engines=previous_engines,
        recall_buffer=recall_buffer,
        training=Training(db=db, bus=bus, clock=clock),
    )
