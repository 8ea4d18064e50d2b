"""The construction of webhook events: the mapping of every domain's events to type, recipients and data (D-80, D-81)."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import structlog

from rookery.access import event_payloads as key_payloads
from rookery.access.models import Caller
from rookery.agent_wiring import AgentServices
from rookery.agents.event_payloads import AgentEventPayloads
from rookery.event_mapping import (
    EventMapper,
    EventMappings,
    MappedEvent,
    RenderPayload,
    key_event_mappings,
    make_mapping,
    to_new_event,
    webhook_event_mappings,
)
from rookery.kernel.clock import Clock, format_iso
from rookery.kernel.db import Database, Tx
from rookery.kernel.events import (
    AgentSessionEnded,
    AgentSessionStarted,
    AgentSessionUpdated,
    EventBus,
    MemoryArchived,
    MemoryDeleted,
    MemoryRedacted,
    MemoryStored,
    MemorySuperseded,
    PhaseChanged,
    PlanChanged,
    ReindexCompleted,
    ServerHealthChanged,
    TaskChanged,
    ToolCalled,
)
from rookery.memory.event_payloads import MemoryEventPayloads
from rookery.memory_wiring import MemoryServices
from rookery.tool_wiring import ToolServices
from rookery.tools import serializers as tool_serializers
from rookery.tools.serializers import ServerSerializer
from rookery.webhooks.outbox import Outbox
from rookery.webhooks.store.endpoints import list_subscribed_tenants

_log = structlog.stdlib.get_logger("rookery.events")

_MAX_QUEUED_EVENTS = 10_000
"""Most health changes of servers that wait to be written. Any beyond these are dropped and logged."""


def connect_events(
    bus: EventBus, outbox: Outbox, *, db: Database, clock: Clock, memory: MemoryServices, agents: AgentServices, tools: ToolServices
) -> ServerHealthPublisher:
    """Connect the bus to webhooks. Return the publisher of server health changes, which must run because they have no transaction."""
    memory_payloads, agent_payloads = MemoryEventPayloads(memory.serializer), AgentEventPayloads(agents.sessions.records, clock)
    mappings = {
        **_memory_mappings(memory_payloads),
        **_agent_mappings(agent_payloads),
        **_tool_mappings(),
        **key_event_mappings(clock),
        **webhook_event_mappings(clock),
    }
    EventMapper(outbox, mappings).subscribe(bus)

    def redact_deliveries(tx: Tx, event: MemorySuperseded | MemoryDeleted | MemoryRedacted) -> None:
        outbox.redact_memory(tx, event.workspace_id, event.memory_id)

    bus.add_recorder(MemorySuperseded, redact_deliveries)
    bus.add_recorder(MemoryDeleted, redact_deliveries)
    bus.add_recorder(MemoryRedacted, redact_deliveries)
    return ServerHealthPublisher(db, bus, outbox, ServerSerializer(tools.catalogue, tools.sessions, tools.resources))


class ServerHealthPublisher:
    """Publishes that tool servers came online or went offline, to each tenant that can see the server."""

    def __init__(self, db: Database, bus: EventBus, outbox: Outbox, serializer: ServerSerializer) -> None:
        """Queue health changes from now on. They are published while `run` runs."""
        self._db = db
        self._outbox = outbox
        self._payloads = serializer
        self._queue = asyncio.Queue[ServerHealthChanged](_MAX_QUEUED_EVENTS)
        bus.subscribe(ServerHealthChanged, self._enqueue)

    async def run(self) -> None:
        """Publish each queued change, until cancelled."""
        while True:
            event = await self._queue.get()
            try:
                await self._publish(event)
            except Exception:  # noqa: BLE001 - logged; the next change is still published
                _log.exception("event.server_health_not_published", server=event.server, health=event.health)

    def _enqueue(self, event: ServerHealthChanged) -> None:
        try:
            self._queue.put_nowait(event)
        except asyncio.QueueFull:
            _log.warning("event.server_health_not_published", server=event.server, health=event.health, reason="too many changes at once")

    async def _publish(self, event: ServerHealthChanged) -> None:
        name = f"server.{event.health}"

        def read(tx: Tx) -> list[Caller]:
            tenants = (
                tenant
                for tenant in list_subscribed_tenants(tx, name)
                if event.workspace_id in {None, tenant} and tenant not in event.excluded_workspaces
            )
            return [key_payloads.make_system_caller(tx, tenant) for tenant in tenants]

        viewers = await self._db.read(read)
        payloads = dict[int, Mapping[str, object]]()
        for viewer in viewers:
            # Serialised on the event loop, because the catalogue is in memory. There may be many viewers, so the loop runs in between.
            data = self._payloads.serialize_health_event(viewer, event.key, event.health)
            if data is not None:
                payloads[viewer.workspace_id] = data
            await asyncio.sleep(0)

        def work(tx: Tx) -> None:
            for workspace_id, data in payloads.items():
                self._outbox.add_events(
                    tx, workspace_id, [to_new_event(tx, workspace_id, MappedEvent(name, event.at, _constant_payload(data)))]
                )

        if payloads:
            await self._db.write(work)


def _memory_mappings(memories: MemoryEventPayloads) -> EventMappings:
    def map_memory(name: str, event: MemoryStored | MemoryArchived) -> list[MappedEvent]:
        def render(tx: Tx, viewer: Caller, with_content: bool) -> Mapping[str, object]:  # noqa: FBT001 - called by position
            return memories.render_memory(tx, viewer, event.memory_id, with_content=with_content)

        return [MappedEvent(name, event.at, render, memory_id=event.memory_id)]

    def ended(name: str, event: MemorySuperseded | MemoryDeleted) -> list[MappedEvent]:
        return [MappedEvent(name, event.at, lambda tx, viewer, _: memories.render_deleted(tx, viewer, event.memory_id, at=event.at))]

    def reindexed(event: ReindexCompleted) -> list[MappedEvent]:
        base = {"org": event.org, "project": event.project, "duration_s": round(event.duration_s, 3), "completed_at": format_iso(event.at)}
        render: RenderPayload = lambda _, viewer, __: {**base, "count": event.by_workspace[viewer.workspace_id]}  # noqa: E731 - as the others
        return [MappedEvent("memory.reindexed", event.at, render)]

    return {
        MemoryStored: make_mapping(MemoryStored, lambda event: map_memory("memory.stored", event)),
        MemoryArchived: make_mapping(
            MemoryArchived, lambda event: map_memory(f"memory.{'restored' if event.restored else 'archived'}", event)
        ),
        MemorySuperseded: make_mapping(MemorySuperseded, lambda event: ended("memory.superseded", event)),
        MemoryDeleted: make_mapping(MemoryDeleted, lambda event: ended("memory.deleted", event)),
        ReindexCompleted: make_mapping(ReindexCompleted, reindexed, lambda event: [(tenant, "") for tenant in event.by_workspace]),
    }


def _agent_mappings(agents: AgentEventPayloads) -> EventMappings:
    def plan(event: PlanChanged) -> list[MappedEvent]:
        return [MappedEvent(event.name, event.at, lambda tx, viewer, _: agents.render_plan(tx, viewer, event.plan_id))]

    def phase(event: PhaseChanged) -> list[MappedEvent]:
        def render(tx: Tx, viewer: Caller, _: object) -> Mapping[str, object]:
            return agents.render_phase(tx, viewer, event.plan_id, event.phase_id)

        return [MappedEvent(event.name, event.at, render)]

    def task(event: TaskChanged) -> list[MappedEvent]:
        def render(tx: Tx, viewer: Caller, _: object) -> Mapping[str, object]:
            return agents.render_task(tx, viewer, event.plan_id, event.task_id)

        return [MappedEvent(event.name, event.at, render)]

    def session(name: str, event: AgentSessionStarted | AgentSessionUpdated | AgentSessionEnded) -> list[MappedEvent]:
        return [MappedEvent(name, event.at, lambda tx, viewer, _: agents.render_session(tx, viewer, event.session_id))]

    return {
        PlanChanged: make_mapping(PlanChanged, plan),
        PhaseChanged: make_mapping(PhaseChanged, phase),
        TaskChanged: make_mapping(TaskChanged, task),
        AgentSessionStarted: make_mapping(AgentSessionStarted, lambda event: session("session.started", event)),
        AgentSessionUpdated: make_mapping(AgentSessionUpdated, lambda event: session("session.noted", event)),
        AgentSessionEnded: make_mapping(AgentSessionEnded, lambda event: session("session.ended", event)),
    }


def _tool_mappings() -> EventMappings:
    def called(event: ToolCalled) -> list[MappedEvent]:
        has_failed = not event.success and event.code != "input_required"
        names = ["tool.called", "tool.failed"] if has_failed else ["tool.called"]

        def render(tx: Tx, viewer: Caller, _: object) -> Mapping[str, object]:
            return tool_serializers.serialize_call(tx, viewer.workspace_id, event.call_id)

        return [MappedEvent(name, event.at, render) for name in names]

    return {ToolCalled: make_mapping(ToolCalled, called)}


def _constant_payload(data: Mapping[str, object]) -> RenderPayload:
    """Return a renderer that returns *data* for every viewer."""
    return lambda _tx, _viewer, _with_content: data
