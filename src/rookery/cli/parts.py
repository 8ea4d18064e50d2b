"""
The record store, opened for one command with the services that the command uses.

A function here imports what its commands need, since the whole platform and each of the other domains take more than 50 ms to import.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, NoReturn

import structlog

from rookery.access.build import AccessServices
from rookery.access.ports import AccessPorts, IsAgentInUse
from rookery.cli.store import prepare_store
from rookery.domains import load_events, record_events
from rookery.engines import counters
from rookery.kernel.clock import utc_now
from rookery.kernel.config import Settings
from rookery.kernel.db import Tx, open_database
from rookery.kernel.errors import OUTAGES
from rookery.kernel.events import EventBus
from rookery.kernel.ids import uuid7
from rookery.kernel.runtime import Runtime

if TYPE_CHECKING:
    from rookery.access.workspaces import Workspaces
    from rookery.agents.commands.templates import TemplateServices
    from rookery.kernel.sealing import SealedColumn
    from rookery.memory.build import MemoryServices
    from rookery.notifications.build import NotificationServices
    from rookery.scoring.scorer import ContentScorer
    from rookery.webhooks.build import WebhookServices

_log = structlog.stdlib.get_logger("rookery.cli")


def _refuse_agent(_: Tx, workspace_id: int, agent_id: str) -> NoReturn:
    msg = f"memories of agent {agent_id} in workspace {workspace_id} cannot be checked: this command does not open memories"
    raise AssertionError(msg)


def build_runtime(settings: Settings, *, bus: EventBus | None = None, is_agent_in_use: IsAgentInUse = _refuse_agent) -> Runtime:
    """
    Return a runtime on which a command builds its services. Nothing is opened.

    Args:
        bus: The bus for changes; None: an empty one.
        is_agent_in_use: Returns whether a workspace has memories of an agent, for changes of agent keys.
    """
    settings.require_secret_key()
    db = open_database(settings.database_url.reveal(), data_dir=settings.data_dir)
    runtime = Runtime(settings, db=db, bus=bus or EventBus(), clock=utc_now, ids=uuid7)
    runtime.on_close(db.close)
    counter = counters.open(settings.counters.reveal(), data_dir=settings.data_dir, verify_ssl=settings.verify_ssl)
    runtime.provide(AccessPorts, lambda _: AccessPorts(counter=counter, is_agent_in_use=is_agent_in_use, purgers=[_refuse_deletion]))
    return runtime


def _refuse_deletion(_: Tx, workspace_id: int) -> NoReturn:
    msg = f"workspace {workspace_id} can be deleted only by the whole platform, which covers every table"
    raise AssertionError(msg)


@asynccontextmanager
async def open_runtime(runtime: Runtime) -> AsyncGenerator[None]:
    """Migrate the record store, and at the end close what was used."""
    prepare_store(runtime.settings)
    try:
        yield
    finally:
        try:
            await runtime.close()
        except OUTAGES as error:  # every step was tried; unwritten data is lost
            _log.error("stopped.not_all_written", reason=error.message)


def _provide_sealing(runtime: Runtime, columns: Sequence[SealedColumn]) -> None:
    """Let `use` return the encryption of *columns*, the guard of outgoing requests, and the types of events."""
    from rookery.kernel.egress import EgressGuard
    from rookery.kernel.events import EventCatalogue
    from rookery.kernel.sealing import KeySource, Sealer

    settings = runtime.settings
    source = KeySource(settings.data_dir, configured=settings.secret_key, previous=settings.secret_key_previous)
    runtime.provide(Sealer, lambda runtime: Sealer(runtime.db, source, columns, runtime.clock))
    runtime.provide(EgressGuard, lambda _: EgressGuard(allow=settings.egress_allow, allow_private=settings.egress_private))
    runtime.provide(EventCatalogue, lambda _: EventCatalogue(load_events()))


@asynccontextmanager
async def open_keys_for_reading(settings: Settings) -> AsyncGenerator[AccessServices]:
    """Open keys, workspaces and the audit log without webhooks. A change of a key raises AssertionError."""
    runtime = build_runtime(settings, bus=_NoBus())
    async with open_runtime(runtime):
        yield runtime.use(AccessServices)


class _NoBus(EventBus):
    """A bus for commands that change nothing."""

    def publish_on_commit(self, tx: Tx, event: object) -> NoReturn:
        """Raise AssertionError, so that the transaction is rolled back."""
        del tx
        msg = f"{type(event).__name__} cannot be sent to webhooks: keys were opened for reading"
        raise AssertionError(msg)


@asynccontextmanager
async def open_keys_for_changes(settings: Settings) -> AsyncGenerator[AccessServices]:
    """Open keys, workspaces and the audit log."""
    from rookery.memory.store.records import has_agent

    runtime = build_runtime(settings, is_agent_in_use=has_agent)
    record_events(runtime, domains=["access"])
    async with open_runtime(runtime):
        yield runtime.use(AccessServices)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryStore:
    """The services for the commands that store and find memories."""

    workspaces: Workspaces
    memory: MemoryServices


@asynccontextmanager
async def open_memory(settings: Settings) -> AsyncGenerator[MemoryStore]:
    """Open memories and workspaces. Changes are queued for indexing. Raises `WrongSettings` before anything is created."""
    from rookery.memory.build import MemoryServices
    from rookery.memory_engines import provide_memory_ports

    runtime = build_runtime(settings)
    provide_memory_ports(runtime)
    memory = runtime.use(MemoryServices)
    _ = memory.training  # from here on it collects what is stored and recalled
    record_events(runtime, domains=["memory"])
    async with open_runtime(runtime):
        yield MemoryStore(workspaces=runtime.use(AccessServices).workspaces, memory=memory)


@asynccontextmanager
async def open_webhooks(settings: Settings) -> AsyncGenerator[WebhookServices]:
    """Open webhooks. A running server or worker sends the deliveries."""
    from rookery.webhooks.build import WebhookServices
    from rookery.webhooks.store.tables import SEALED_COLUMNS

    runtime = build_runtime(settings)
    _provide_sealing(runtime, SEALED_COLUMNS)
    webhooks = runtime.use(WebhookServices)
    record_events(runtime, webhooks.outbox, domains=["webhooks"])
    async with open_runtime(runtime):
        yield webhooks


@asynccontextmanager
async def open_notifications(settings: Settings) -> AsyncGenerator[NotificationServices]:
    """Open subscribers, campaigns and deliveries. A running server or worker sends the messages."""
    from rookery.notifications.build import NotificationServices
    from rookery.notifications.store.tables import SEALED_COLUMNS

    runtime = build_runtime(settings)
    _provide_sealing(runtime, SEALED_COLUMNS)
    record_events(runtime, domains=["notifications"])
    async with open_runtime(runtime):
        yield runtime.use(NotificationServices)


@asynccontextmanager
async def open_templates(settings: Settings) -> AsyncGenerator[TemplateServices]:
    """Open templates of plans and workspaces."""
    from rookery.agents.commands.templates import TemplateServices
    from rookery.agents.templates.library import Templates

    runtime = build_runtime(settings)
    access = runtime.use(AccessServices)
    async with open_runtime(runtime):
        yield TemplateServices(workspaces=access.workspaces, templates=Templates(runtime.db, access.audit, runtime.clock))


@asynccontextmanager
async def open_scoring(settings: Settings) -> AsyncGenerator[ContentScorer]:
    """Open the scorer. No store is opened, and nothing is written."""
    from rookery.engines import detection
    from rookery.scoring.scorer import ContentScorer

    del settings  # no setting changes a score
    scorer = ContentScorer(detection.open)
    try:
        yield scorer
    finally:
        scorer.close()
