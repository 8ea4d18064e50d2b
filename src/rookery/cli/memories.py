"""Memories and workspaces, opened for one command without tool servers, the web framework and maintenance."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

import structlog

from rookery.access.workspaces import Workspaces
from rookery.agents.sessions.access import OpenSessionChecker
from rookery.cli.store import open_records
from rookery.engines import embedders, texts, vectors
from rookery.event_mapping import EventMapper
from rookery.kernel.clock import utc_now
from rookery.kernel.config import Settings
from rookery.kernel.errors import OUTAGES
from rookery.kernel.events import EventBus
from rookery.kernel.ids import uuid7
from rookery.kernel.jobs import JobQueue
from rookery.memory_core_wiring import Indexes, MemoryCore, build_memory_core
from rookery.memory_event_mapping import memory_event_mappings, redact_deliveries
from rookery.webhooks.outbox import Outbox

_log = structlog.stdlib.get_logger("rookery.cli")


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryStore:
    """The services for the commands that store and find memories."""

    workspaces: Workspaces
    memory: MemoryCore


@asynccontextmanager
async def open_memory(settings: Settings) -> AsyncGenerator[MemoryStore]:
    """Open them. Changes are published to webhooks and queued for indexing, as the whole platform does."""
    indexes = _open_indexes(settings)  # an invalid address raises before anything is created
    async with open_records(settings) as records:
        db, bus, outbox = records.db, EventBus(), Outbox(utc_now, uuid7)
        core = build_memory_core(
            settings,
            indexes,
            db=db,
            jobs=JobQueue(db, utc_now, uuid7),
            bus=bus,
            clock=utc_now,
            ids=uuid7,
            sessions=OpenSessionChecker(db=db, clock=utc_now),
        )
        EventMapper(outbox, memory_event_mappings(core.serializer)).subscribe(bus)
        redact_deliveries(bus, outbox)
        closing = AsyncExitStack()
        for close in (
            *(indexes.embedder.close, core.previous_engines.close, indexes.texts.close, indexes.vectors.close),
            *(core.recall_buffer.flush, core.training.flush),
        ):
            closing.push_async_callback(close)
        try:
            yield MemoryStore(workspaces=records.workspaces, memory=core)
        finally:
            try:
                await closing.aclose()
            except OUTAGES as error:  # every step was tried; unwritten data is lost
                _log.error("stopped.not_all_written", reason=error.message)


def _open_indexes(settings: Settings) -> Indexes:
    embedder = embedders.open(
        settings.embedder.reveal(), data_dir=settings.data_dir, dimension=settings.vector_dimension, verify_ssl=settings.verify_ssl
    )
    return Indexes(
        embedder,
        vectors.open(settings.vectors.reveal(), data_dir=settings.data_dir, model=embedder.model, dimension=embedder.dimension),
        texts.open(settings.texts.reveal(), data_dir=settings.data_dir),
    )
