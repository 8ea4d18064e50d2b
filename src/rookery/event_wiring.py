"""What every domain announces, brought to webhooks: which type of event it is, whose, and how it looks (D-80, D-81)."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import structlog

from rookery.access import portraits as key_portraits
from rookery.access.models import Caller
from rookery.agent_wiring import AgentServices
from rookery.agents.portraits import AgentPortraits
from rookery.announcing import (
    Announcement,
    Announcer,
    EventMappings,
    Renderer,
    key_announcements,
    map_event,
    to_record,
    webhook_announcements,
)
from rookery.kernel.clock import Clock, iso
from rookery.kernel.db import Database, Tx
from rookery.kernel.events import (
    AgentSessionEnded,
    AgentSessionNoted,
    AgentSessionStarted,
    Bus,
    MemoryArchived,
    MemoryDeleted,
    MemoryStored,
    MemoryStripped,
    MemorySuperseded,
    PhaseChanged,
    PlanChanged,
    ReindexCompleted,
    ServerHealthChanged,
    TaskChanged,
    ToolCalled,
)
from rookery.memory.portraits import MemoryPortraits
from rookery.memory_wiring import MemoryServices
from rookery.tool_wiring import ToolServices
from rookery.tools import portraits as tool_portraits
from rookery.tools.portraits import ServerPortraits
from rookery.webhooks.recording import Recorder
from rookery.webhooks.store import listening

_log = structlog.stdlib.get_logger("rookery.events")

_MOST_WAITING = 10_000
"""Changes of servers' health that are not written yet; beyond it they are dropped, and logged."""


def connect(
    bus: Bus, recorder: Recorder, *, db: Database, clock: Clock, memory: MemoryServices, agents: AgentServices, tools: ToolServices
) -> ServerNews:
    """Have webhooks told of all that is announced; return what must run for tool servers, which no transaction makes come or go."""
    memories, work = MemoryPortraits(memory.answers), AgentPortraits(agents.sessions.working, clock)
    mappings = {
        **_of_memory(memories),
        **_of_agents(work),
        **_of_tools(),
        **key_announcements(clock),
        **webhook_announcements(clock),
    }
    Announcer(recorder, mappings).connect(bus)

    def forget(tx: Tx, event: MemorySuperseded | MemoryDeleted | MemoryStripped) -> None:
        recorder.forget(tx, event.workspace_id, event.memory_id)

    bus.record(MemorySuperseded, forget)
    bus.record(MemoryDeleted, forget)
    bus.record(MemoryStripped, forget)
    return ServerNews(db, bus, recorder, ServerPortraits(tools.catalogue, tools.sessions, tools.resources))


class ServerNews:
    """Tells webhooks of tool servers that came online or went offline: each tenant that sees the server, as it sees it."""

    def __init__(self, db: Database, bus: Bus, recorder: Recorder, portraits: ServerPortraits) -> None:
        """Hear of them from now on; they are told while `run` runs."""
        self._db = db
        self._recorder = recorder
        self._portraits = portraits
        self._waiting = asyncio.Queue[ServerHealthChanged](_MOST_WAITING)
        bus.subscribe(ServerHealthChanged, self._heard)

    async def run(self) -> None:
        """Tell of each change soon after it came, for ever."""
        while True:
            event = await self._waiting.get()
            try:
                await self._tell(event)
            except Exception:  # noqa: BLE001 - logged; the next change is another matter
                _log.exception("event.server_not_told", server=event.server, health=event.health)

    def _heard(self, event: ServerHealthChanged) -> None:
        try:
            self._waiting.put_nowait(event)
        except asyncio.QueueFull:
            _log.warning("event.server_not_told", server=event.server, health=event.health, reason="too many changes at once")

    async def _tell(self, event: ServerHealthChanged) -> None:
        name = f"server.{event.health}"

        def read(tx: Tx) -> list[Caller]:
            concerned = (each for each in listening.tenants(tx, name) if event.workspace_id in {None, each} and each not in event.but)
            return [key_portraits.onlooker(tx, each) for each in concerned]

        viewers = await self._db.read(read)
        seen = dict[int, Mapping[str, object]]()
        for viewer in viewers:
            # Looked at here, on the event loop: the catalogue is not the store's. One by one, for there may be many.
            data = self._portraits.told(viewer, event.key, event.health)
            if data is not None:
                seen[viewer.workspace_id] = data
            await asyncio.sleep(0)

        def work(tx: Tx) -> None:
            for workspace_id, data in seen.items():
                self._recorder.tell_all(tx, workspace_id, [to_record(tx, workspace_id, Announcement(name, event.at, _same(data)))])

        if seen:
            await self._db.write(work)


def _of_memory(memories: MemoryPortraits) -> EventMappings:
    def kept(name: str, event: MemoryStored | MemoryArchived) -> list[Announcement]:
        def look(tx: Tx, viewer: Caller, with_content: bool) -> Mapping[str, object]:  # noqa: FBT001 - as a portrait is called
            return memories.kept(tx, viewer, event.memory_id, with_content=with_content)

        return [Announcement(name, event.at, look, about=event.memory_id)]

    def ended(name: str, event: MemorySuperseded | MemoryDeleted) -> list[Announcement]:
        return [Announcement(name, event.at, lambda tx, viewer, _: memories.ended(tx, viewer, event.memory_id, at=event.at))]

    def reindexed(event: ReindexCompleted) -> list[Announcement]:
        about = {"org": event.org, "project": event.project, "duration_s": round(event.duration_s, 3), "completed_at": iso(event.at)}
        look: Renderer = lambda _, viewer, __: {**about, "count": event.by_workspace[viewer.workspace_id]}  # noqa: E731 - as the others
        return [Announcement("memory.reindexed", event.at, look)]

    return {
        MemoryStored: map_event(MemoryStored, lambda event: kept("memory.stored", event)),
        MemoryArchived: map_event(MemoryArchived, lambda event: kept(f"memory.{'restored' if event.restored else 'archived'}", event)),
        MemorySuperseded: map_event(MemorySuperseded, lambda event: ended("memory.superseded", event)),
        MemoryDeleted: map_event(MemoryDeleted, lambda event: ended("memory.deleted", event)),
        ReindexCompleted: map_event(ReindexCompleted, reindexed, lambda event: [(tenant, "") for tenant in event.by_workspace]),
    }


def _of_agents(agents: AgentPortraits) -> EventMappings:
    def plan(event: PlanChanged) -> list[Announcement]:
        return [Announcement(event.name, event.at, lambda tx, viewer, _: agents.plan(tx, viewer, event.plan_id))]

    def phase(event: PhaseChanged) -> list[Announcement]:
        def look(tx: Tx, viewer: Caller, _: object) -> Mapping[str, object]:
            return agents.phase(tx, viewer, event.plan_id, event.phase_id)

        return [Announcement(event.name, event.at, look)]

    def task(event: TaskChanged) -> list[Announcement]:
        def look(tx: Tx, viewer: Caller, _: object) -> Mapping[str, object]:
            return agents.task(tx, viewer, event.plan_id, event.task_id)

        return [Announcement(event.name, event.at, look)]

    def session(name: str, event: AgentSessionStarted | AgentSessionNoted | AgentSessionEnded) -> list[Announcement]:
        return [Announcement(name, event.at, lambda tx, viewer, _: agents.session(tx, viewer, event.session_id))]

    return {
        PlanChanged: map_event(PlanChanged, plan),
        PhaseChanged: map_event(PhaseChanged, phase),
        TaskChanged: map_event(TaskChanged, task),
        AgentSessionStarted: map_event(AgentSessionStarted, lambda event: session("session.started", event)),
        AgentSessionNoted: map_event(AgentSessionNoted, lambda event: session("session.noted", event)),
        AgentSessionEnded: map_event(AgentSessionEnded, lambda event: session("session.ended", event)),
    }


def _of_tools() -> EventMappings:
    def called(event: ToolCalled) -> list[Announcement]:
        has_failed = not event.success and event.code != "input_required"
        names = ["tool.called", "tool.failed"] if has_failed else ["tool.called"]

        def look(tx: Tx, viewer: Caller, _: object) -> Mapping[str, object]:
            return tool_portraits.call(tx, viewer.workspace_id, event.call_id)

        return [Announcement(name, event.at, look) for name in names]

    return {ToolCalled: map_event(ToolCalled, called)}


def _same(data: Mapping[str, object]) -> Renderer:
    """Return the look of what is nobody's resource."""
    return lambda _tx, _viewer, _with_content: data
