"""All services of the shared memory, each built on first use."""

from __future__ import annotations

from datetime import timedelta
from functools import cached_property

from rookery.memory.agent_context import AgentContext
from rookery.memory.core_wiring import MemoryCore
from rookery.memory.feedback import Feedback
from rookery.memory.maintenance.erasure import Erasure
from rookery.memory.maintenance.index_check import IndexCheck
from rookery.memory.maintenance.operations import MaintenanceServices, build_maintenance
from rookery.memory.maintenance.orphaned_texts import OrphanedTexts
from rookery.memory.maintenance.reindexing import Reindexer
from rookery.memory.memory_map import MemoryMap
from rookery.memory.recall_log import RecallLog
from rookery.memory.records import Records
from rookery.memory.related import RelatedMemories
from rookery.memory.retention import RetentionTask
from rookery.memory.search import Listing
from rookery.memory.sessions import SessionMemories
from rookery.memory.transfer.exporting import MemoryExport
from rookery.memory.transfer.importing import MemoryImport, TransferServices


class MemoryServices(MemoryCore):
    """The services of the shared memory."""

    @cached_property
    def context(self) -> AgentContext:
        return AgentContext(
            db=self._runtime.db, sessions=self._ports.sessions, clock=self._runtime.clock, half_lives_days=self._half_lives_days
        )

    @cached_property
    def sessions(self) -> SessionMemories:
        return SessionMemories(
            jobs=self._runtime.jobs, bus=self._runtime.bus, context=self.context, serializer=self.serializer, audit=self.audit
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
        return Erasure(db=self._runtime.db, stores=self._ports.erasable_stores, clock=self._runtime.clock, orphans=self.orphaned_texts)

    @cached_property
    def orphaned_texts(self) -> OrphanedTexts:
        runtime = self._runtime
        return OrphanedTexts(db=runtime.db, texts=self._ports.texts, indexer=self.indexer)

    @cached_property
    def reindexer(self) -> Reindexer:
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
        ports, runtime = self._ports, self._runtime
        return IndexCheck(db=runtime.db, vectors=ports.vectors, texts=ports.texts, clock=runtime.clock, model=ports.embedder.model)

    @cached_property
    def maintenance(self) -> MaintenanceServices:
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
        runtime = self._runtime
        return TransferServices(
            exporter=MemoryExport(db=runtime.db, clock=runtime.clock),
            importer=MemoryImport(
                db=runtime.db, jobs=runtime.jobs, indexer=self.indexer, capacity=self.capacity, bus=runtime.bus, clock=runtime.clock
            ),
        )
