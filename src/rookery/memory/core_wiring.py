"""The services that store and find memories, each built on first use. Commands that need only these import nothing else of memory."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import cached_property

from rookery.access.audit_log import AuditLog
from rookery.kernel.runtime import Runtime
from rookery.memory.candidates import CandidateSearch
from rookery.memory.capacity import Capacity, StorageLimits
from rookery.memory.embedding_migration import EmbeddingMigration, IndexVersion
from rookery.memory.feedback import RecallBuffer
from rookery.memory.indexing import Indexer
from rookery.memory.memory_audit import MemoryAudit
from rookery.memory.ports import (
    Embedder,
    ErasableStore,
    ModelVersion,
    OpenComparison,
    ProjectVectors,
    SessionLookup,
    TextIndex,
    VectorIndex,
)
from rookery.memory.recall import Recall
from rookery.memory.remember import Remember
from rookery.memory.schemas.responses import MemorySerializer
from rookery.memory.search import MemorySearch
from rookery.memory.similarity_scales import SimilarityScales
from rookery.memory.training import Training

_MIB = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryPorts:
    """
    The implementations that memory gets from engines and other domains.

    Attributes:
        erasable_stores: The stores with files on this host, whose deleted data is erased in this order. The record store is last,
            because it holds the list of pending erasures.
        find_previous: Returns the embedder and the vector index of a previous model; None if no known embedder has it.
        close_previous: Closes the engines that `find_previous` opened.
    """

    embedder: Embedder
    vectors: VectorIndex
    open_comparison: OpenComparison
    project_vectors: ProjectVectors
    texts: TextIndex
    erasable_stores: list[ErasableStore]
    find_previous: Callable[[ModelVersion], IndexVersion | None]
    close_previous: Callable[[], Awaitable[None]]
    sessions: SessionLookup


class MemoryCore:
    """The services that store and find memories."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._ports = runtime.use(MemoryPorts)
        self._half_lives_days = dict(runtime.settings.half_lives)
        self._breakers = runtime.breakers

    @cached_property
    def migration(self) -> EmbeddingMigration:
        ports = self._ports
        return EmbeddingMigration(
            db=self._runtime.db,
            clock=self._runtime.clock,
            current=IndexVersion(embedder=ports.embedder, vectors=ports.vectors),
            find_previous=ports.find_previous,
            close_previous=ports.close_previous,
        )

    @cached_property
    def indexer(self) -> Indexer:
        runtime, ports = self._runtime, self._ports
        return Indexer(
            db=runtime.db,
            embedder=ports.embedder,
            vectors=ports.vectors,
            texts=ports.texts,
            clock=runtime.clock,
            migration=self.migration,
            early_writes=self._breakers.early_text_writes,
            writes=self._breakers.writes,
            jobs=runtime.jobs,
        )

    @cached_property
    def capacity(self) -> Capacity:
        runtime, settings = self._runtime, self._runtime.settings
        limits = StorageLimits(
            max_memories=settings.max_memories,
            max_backlog=settings.max_backlog,
            min_free_bytes=settings.min_free_disk_mb * _MIB,
            folder=settings.data_dir if runtime.db.dialect == "sqlite" else None,
        )
        return Capacity(db=runtime.db, jobs=runtime.jobs, limits=limits, monotonic=time.monotonic)

    @cached_property
    def recall_buffer(self) -> RecallBuffer:
        buffer = RecallBuffer(db=self._runtime.db)
        self._runtime.on_close(buffer.flush)
        return buffer

    @cached_property
    def training(self) -> Training:
        training = Training(db=self._runtime.db, bus=self._runtime.bus, clock=self._runtime.clock, audit=self.audit)
        self._runtime.on_close(training.flush)
        return training

    @cached_property
    def audit(self) -> MemoryAudit:
        return MemoryAudit(audit=AuditLog(self._runtime.db, self._runtime.clock))

    @cached_property
    def serializer(self) -> MemorySerializer:
        return MemorySerializer(clock=self._runtime.clock, model=self._ports.embedder.model, half_lives_days=self._half_lives_days)

    @cached_property
    def remember(self) -> Remember:
        runtime = self._runtime
        return Remember(
            db=runtime.db,
            jobs=runtime.jobs,
            indexer=self.indexer,
            capacity=self.capacity,
            bus=runtime.bus,
            clock=runtime.clock,
            ids=runtime.ids,
            shares=runtime.shares,
            index_first=not runtime.settings.async_embedding,
            sessions=self._ports.sessions,
        )

    @cached_property
    def recall(self) -> Recall:
        runtime = self._runtime
        return Recall(
            db=runtime.db,
            candidates=CandidateSearch(
                db=runtime.db,
                migration=self.migration,
                texts=self._ports.texts,
                scales=SimilarityScales(db=runtime.db, breaker=self._breakers.vectors),
                breakers=self._breakers,
            ),
            writes=self._breakers.writes,
            buffer=self.recall_buffer,
            bus=runtime.bus,
            sessions=self._ports.sessions,
            clock=runtime.clock,
            ids=runtime.ids,
            shares=runtime.shares,
            half_lives_days=self._half_lives_days,
        )

    @cached_property
    def search(self) -> MemorySearch:
        runtime, ports = self._runtime, self._ports
        return MemorySearch(
            db=runtime.db,
            texts=ports.texts,
            sessions=ports.sessions,
            breaker=self._breakers.texts,
            writes=self._breakers.writes,
            clock=runtime.clock,
            shares=runtime.shares,
        )
