"""
The services of the shared memory, each built on first use, and the registration of the domain.

The API, maintenance and transfer are imported when they are used. Without them, `rookery recall` takes half the time to import memory.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING

from rookery.access.audit_log import AuditLog
from rookery.kernel.domain import Domain
from rookery.kernel.runtime import PeriodicTask, Runtime
from rookery.kernel.working_context import WorkingContextFinder
from rookery.memory.agent_context import AgentContext
from rookery.memory.candidates import CandidateSearch
from rookery.memory.capacity import Capacity, StorageLimits
from rookery.memory.embedding_migration import EmbeddingMigration, IndexVersion
from rookery.memory.feedback import Feedback, RecallBuffer
from rookery.memory.indexing import Indexer
from rookery.memory.memory_audit import MemoryAudit
from rookery.memory.memory_map import MemoryMap
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
from rookery.memory.recall_log import RecallLog
from rookery.memory.records import Records
from rookery.memory.related import RelatedMemories
from rookery.memory.remember import Remember
from rookery.memory.retention import MemoryPurge, RetentionTask
from rookery.memory.schemas.responses import MemorySerializer
from rookery.memory.search import Listing, MemorySearch
from rookery.memory.sessions import SessionMemories
from rookery.memory.similarity_scales import SimilarityScales
from rookery.memory.training import Training

if TYPE_CHECKING:
    from rookery.memory.maintenance.erasure import Erasure
    from rookery.memory.maintenance.index_check import IndexCheck
    from rookery.memory.maintenance.operations import MaintenanceServices
    from rookery.memory.maintenance.orphaned_texts import OrphanedTexts
    from rookery.memory.maintenance.reindexing import Reindexer
    from rookery.memory.transfer.importing import TransferServices

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


class MemoryServices:
    """The services of the shared memory."""

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

    @cached_property
    def context(self) -> AgentContext:
        return AgentContext(
            db=self._runtime.db, sessions=self._ports.sessions, clock=self._runtime.clock, half_lives_days=self._half_lives_days
        )

    @cached_property
    def sessions(self) -> SessionMemories:
        return SessionMemories(
            jobs=self._runtime.jobs,
            bus=self._runtime.bus,
            context=self.context,
            serialize_boot=self.serializer.serialize_boot,
            audit=self.audit,
        )

    @cached_property
    def related(self) -> RelatedMemories:
        return RelatedMemories(recall=self.recall, mode=self._runtime.settings.recall_mode)

    @cached_property
    def records(self) -> Records:
        runtime = self._runtime
        return Records(db=runtime.db, jobs=runtime.jobs, indexer=self.indexer, bus=runtime.bus, clock=runtime.clock, audit=self.audit)

    @cached_property
    def listing(self) -> Listing:
        return Listing(db=self._runtime.db, sessions=self._ports.sessions, clock=self._runtime.clock, model=self._ports.embedder.model)

    @cached_property
    def map(self) -> MemoryMap:
        runtime = self._runtime
        return MemoryMap(
            db=runtime.db,
            migration=self.migration,
            breaker=self._breakers.vectors,
            project_vectors=self._ports.project_vectors,
            sessions=self._ports.sessions,
            clock=runtime.clock,
        )

    @cached_property
    def feedback(self) -> Feedback:
        return Feedback(db=self._runtime.db, jobs=self._runtime.jobs, recalls=self.recall_buffer, clock=self._runtime.clock)

    @cached_property
    def retention(self) -> RetentionTask:
        runtime, recall_retention = self._runtime, timedelta(days=self._runtime.settings.recall_days)
        return RetentionTask(db=runtime.db, jobs=runtime.jobs, bus=runtime.bus, clock=runtime.clock, recall_retention=recall_retention)

    @cached_property
    def recall_log(self) -> RecallLog:
        return RecallLog(
            db=self._runtime.db,
            buffer=self.recall_buffer,
            recall=self.recall,
            clock=self._runtime.clock,
            audit=self.audit,
            sessions=self._ports.sessions,
        )

    @cached_property
    def erasure(self) -> Erasure:
        from rookery.memory.maintenance.erasure import Erasure

        return Erasure(db=self._runtime.db, stores=self._ports.erasable_stores, clock=self._runtime.clock, orphans=self.orphaned_texts)

    @cached_property
    def orphaned_texts(self) -> OrphanedTexts:
        from rookery.memory.maintenance.orphaned_texts import OrphanedTexts

        runtime = self._runtime
        return OrphanedTexts(db=runtime.db, texts=self._ports.texts, indexer=self.indexer)

    @cached_property
    def reindexer(self) -> Reindexer:
        from rookery.memory.maintenance.reindexing import Reindexer

        runtime = self._runtime
        return Reindexer(
            db=runtime.db,
            indexer=self.indexer,
            texts=self._ports.texts,
            bus=runtime.bus,
            clock=runtime.clock,
            migration=self.migration,
            erasure=self.erasure,
            orphans=self.orphaned_texts,
        )

    @cached_property
    def index_check(self) -> IndexCheck:
        from rookery.memory.maintenance.index_check import IndexCheck

        ports, runtime = self._ports, self._runtime
        return IndexCheck(db=runtime.db, vectors=ports.vectors, texts=ports.texts, clock=runtime.clock, model=ports.embedder.model)

    @cached_property
    def maintenance(self) -> MaintenanceServices:
        from rookery.memory.maintenance.operations import build_maintenance

        runtime = self._runtime
        return build_maintenance(
            db=runtime.db,
            indexer=self.indexer,
            vectors=self._ports.vectors,
            open_comparison=self._ports.open_comparison,
            jobs=runtime.jobs,
            bus=runtime.bus,
            clock=runtime.clock,
            ids=runtime.ids,
            erasure=self.erasure,
            half_lives_days=self._half_lives_days,
        )

    @cached_property
    def transfer(self) -> TransferServices:
        from rookery.memory.transfer.exporting import MemoryExport
        from rookery.memory.transfer.importing import MemoryImport, TransferServices

        runtime = self._runtime
        return TransferServices(
            exporter=MemoryExport(db=runtime.db, clock=runtime.clock),
            importer=MemoryImport(
                db=runtime.db, jobs=runtime.jobs, indexer=self.indexer, capacity=self.capacity, bus=runtime.bus, clock=runtime.clock
            ),
        )


_ORPHANS_INTERVAL_S = 24 * 3600
"""Interval of the search for texts that a killed process left without a memory. The first one is at the start, when they are there."""


def build(runtime: Runtime) -> Domain:
    """Return the domain. Nothing is started."""
    from rookery.memory.api import MemoryApi
    from rookery.memory.jobs import MemoryJobs

    services, ports = runtime.use(MemoryServices), runtime.use(MemoryPorts)
    api = MemoryApi(
        remember=services.remember,
        records=services.records,
        recall=services.recall,
        search=services.search,
        listing=services.listing,
        map=services.map,
        feedback=services.feedback,
        recall_log=services.recall_log,
        context=services.context,
        serializer=services.serializer,
        mode=runtime.settings.recall_mode,
        contexts=runtime.use(WorkingContextFinder),
    )

    async def probe_vectors() -> str:
        await ports.vectors.count(0)
        await services.indexer.recheck_writes("vectors")
        return "ok"

    async def probe_texts() -> str:
        await ports.texts.setup()
        await services.indexer.recheck_writes("texts")
        return "ok"

    return Domain(
        operations=[("/v1/brain", api.operations())],
        tool_servers=[api.server()],
        job_kinds=MemoryJobs(
            db=runtime.db,
            queue=runtime.jobs,
            indexer=services.indexer,
            clock=runtime.clock,
            # An embedder on another host takes large batches of several processes at once, and no core of this one.
            shares=runtime.shares if runtime.settings.embedder.reveal().startswith("embedded:") else None,
        ).kinds(),
        periodic_tasks=[
            PeriodicTask(name="results of recalls", interval_s=0.5, run=services.recall_buffer.flush),
            PeriodicTask(name="training examples", interval_s=0.5, run=services.training.flush),
            PeriodicTask(name="expired memories", interval_s=60, run=services.retention.sweep),
            PeriodicTask(name="texts without a memory", interval_s=_ORPHANS_INTERVAL_S, run=services.orphaned_texts.remove, is_single=True),
            PeriodicTask(name="embedding migration", interval_s=30, run=services.migration.run_periodic),
        ],
        probes={"vectors": probe_vectors, "texts": probe_texts},
        purgers=[MemoryPurge(runtime.jobs, runtime.clock)],
    )
