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
from rookery.kernel.clock import Clock
from rookery.kernel.db import Database, Tx
from rookery.kernel.events import (
    AgentSessionEnded,
    AgentSessionStarted,
    AgentSessionUpdated,
    EventBus,
    PhaseChanged,
    PlanChanged,
    ServerHealthChanged,
    TaskChanged,
    ToolCalled,
)
from rookery.memory_event_mapping import memory_event_mappings, redact_deliveries
from rookery.memory_wiring import MemoryServices
from rookery.tool_wiring import ToolServices
from rookery.tools import serializers as tool_serializers
from rookery.tools.serializers import ServerSerializer
from rookery.webhooks.outbox import Outbox
from rookery.webhooks.store.endpoints import list_subscribed_tenants

_log = structlog.stdlib.get_logger("rookery.events")

_MAX_QUEUED_EVENTS = 10_000
"""Maximum health changes of servers that wait to be written. Any beyond these are dropped and logged."""


def connect_events(
    bus: EventBus, outbox: Outbox, *, db: Database, clock: Clock, memory: MemoryServices, agents: AgentServices, tools: ToolServices
) -> ServerHealthPublisher:
    """Connect the bus to webhooks. Return the publisher of server health changes, which must run because they have no transaction."""
    agent_payloads = AgentEventPayloads(agents.sessions.records, clock)
    mappings = {
        **memory_event_mappings(memory.serializer),
        **_agent_mappings(agent_payloads),
        **_tool_mappings(),
        **key_event_mappings(clock),
        **webhook_event_mappings(clock),
    }
    EventMapper(outbox, mappings).subscribe(bus)

    redact_deliveries(bus, outbox)
    return ServerHealthPublisher(db, bus, outbox, ServerSerializer(tools.catalogue, tools.sessions, tools.resources, tools.discovery))


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
