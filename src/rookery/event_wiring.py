"""What every domain announces, brought to webhooks: which type of event it is, whose, and how it looks (D-80, D-81)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Generic, Protocol, TypeVar, cast

import structlog

from rookery.access import portraits as key_portraits
from rookery.access.models import Caller, KeyKind
from rookery.agent_wiring import AgentServices
from rookery.agents.portraits import AgentPortraits
from rookery.kernel.clock import Clock, iso
from rookery.kernel.db import Database, Tx
from rookery.kernel.events import (
    AgentSessionEnded,
    AgentSessionNoted,
    AgentSessionStarted,
    Bus,
    KeyChanged,
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
    WebhookDisabled,
)
from rookery.memory.portraits import MemoryPortraits
from rookery.memory_wiring import MemoryServices
from rookery.tool_wiring import ToolServices
from rookery.tools import portraits as tool_portraits
from rookery.tools.portraits import ServerPortraits
from rookery.webhooks.catalogue import DISABLED
from rookery.webhooks.recording import Recorder, Told
from rookery.webhooks.shown import webhook
from rookery.webhooks.store import endpoints, listening

E = TypeVar("E")

_log = structlog.stdlib.get_logger("rookery.events")

_MOST_WAITING = 10_000
"""Changes of servers' health that are not written yet; beyond it they are dropped, and logged."""


def connect(
    bus: Bus, recorder: Recorder, *, db: Database, clock: Clock, memory: MemoryServices, agents: AgentServices, tools: ToolServices
) -> ServerNews:
    """Have webhooks told of all that is announced; return what must run for tool servers, which no transaction makes come or go."""
    memories, work = MemoryPortraits(memory.answers), AgentPortraits(agents.sessions.working, clock)
    Announcing(recorder, {**_of_memory(memories), **_of_agents(work), **_of_tools(), **_of_keys(clock), **_of_webhooks(clock)}).connect(bus)

    def forget(tx: Tx, event: MemorySuperseded | MemoryDeleted | MemoryStripped) -> None:
        recorder.forget(tx, event.workspace_id, event.memory_id)

    bus.record(MemorySuperseded, forget)
    bus.record(MemoryDeleted, forget)
    bus.record(MemoryStripped, forget)
    return ServerNews(db, bus, recorder, ServerPortraits(tools.catalogue, tools.sessions, tools.resources))


_Look = Callable[[Tx, Caller, bool], Mapping[str, object]]
"""Returns how a thing looks to a viewer at the end of a transaction, with its content or without."""


_Whom = tuple[int, str]
"""A tenant, and which of its endpoints is not told, as it is what the fact is about; mostly none, ""."""


@dataclass(frozen=True, slots=True)
class _Said:
    """What a tenant is to be told of a fact."""

    type: str
    at: datetime
    look: _Look
    about: str | None = None


class _OfTenant(Protocol):
    @property
    def workspace_id(self) -> int: ...


def _its_tenant(event: _OfTenant) -> Sequence[_Whom]:
    return ((event.workspace_id, ""),)


@dataclass(frozen=True, slots=True)
class _Telling(Generic[E]):
    """How facts of one class are told; *says* is asked only where somebody listens."""

    whom: Callable[[E], Sequence[_Whom]]
    says: Callable[[E], list[_Said]]


_Tellings = Mapping[type[object], _Telling[object]]


@dataclass(frozen=True, slots=True, eq=False)
class Announcing:
    """
    Tells webhooks at the end of each transaction what it makes true, all of one tenant at once.

    At its end, so that what is shown is what the next GET shows, whatever else the transaction changes after an announcement.
    """

    recorder: Recorder
    tellings: _Tellings

    def connect(self, bus: Bus) -> None:
        """Hear of every fact there is a telling for."""
        for event in self.tellings:
            bus.record(event, self._heard)

    def _heard(self, tx: Tx, event: object) -> None:
        tx.at_end(self._tell, event)

    def _tell(self, tx: Tx, facts: list[object]) -> None:
        together = dict[_Whom, list[object]]()
        for fact in facts:
            for whom in self.tellings[type(fact)].whom(fact):
                together.setdefault(whom, []).append(fact)
        # In one order, so that two transactions that tell the same tenants do not wait for each other in a circle.
        for (workspace_id, but), theirs in sorted(together.items(), key=lambda item: item[0]):
            self.recorder.tell_all(tx, workspace_id, self._all_said(tx, workspace_id, theirs), but=but or None)

    def _all_said(self, tx: Tx, workspace_id: int, facts: list[object]) -> Iterator[Told]:
        for fact in facts:
            for said in self.tellings[type(fact)].says(fact):
                yield _told(tx, workspace_id, said)


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
                self._recorder.tell_all(tx, workspace_id, [_told(tx, workspace_id, _Said(name, event.at, _same(data)))])

        if seen:
            await self._db.write(work)


def _told(tx: Tx, workspace_id: int, said: _Said) -> Told:
    def data(with_content: bool) -> Mapping[str, object]:  # noqa: FBT001 - as a portrait is called
        return said.look(tx, key_portraits.onlooker(tx, workspace_id), with_content)

    return Told(type=said.type, at=said.at, data=data, about=said.about)


def _of_memory(memories: MemoryPortraits) -> _Tellings:
    def kept(name: str, event: MemoryStored | MemoryArchived) -> list[_Said]:
        def look(tx: Tx, viewer: Caller, with_content: bool) -> Mapping[str, object]:  # noqa: FBT001 - as a portrait is called
            return memories.kept(tx, viewer, event.memory_id, with_content=with_content)

        return [_Said(name, event.at, look, about=event.memory_id)]

    def ended(name: str, event: MemorySuperseded | MemoryDeleted) -> list[_Said]:
        return [_Said(name, event.at, lambda tx, viewer, _: memories.ended(tx, viewer, event.memory_id, at=event.at))]

    def reindexed(event: ReindexCompleted) -> list[_Said]:
        about = {"org": event.org, "project": event.project, "duration_s": round(event.duration_s, 3), "completed_at": iso(event.at)}
        look: _Look = lambda _, viewer, __: {**about, "count": event.by_workspace[viewer.workspace_id]}  # noqa: E731 - as the others
        return [_Said("memory.reindexed", event.at, look)]

    return {
        MemoryStored: _telling(MemoryStored, lambda event: kept("memory.stored", event)),
        MemoryArchived: _telling(MemoryArchived, lambda event: kept(f"memory.{'restored' if event.restored else 'archived'}", event)),
        MemorySuperseded: _telling(MemorySuperseded, lambda event: ended("memory.superseded", event)),
        MemoryDeleted: _telling(MemoryDeleted, lambda event: ended("memory.deleted", event)),
        ReindexCompleted: _telling(ReindexCompleted, reindexed, lambda event: [(tenant, "") for tenant in event.by_workspace]),
    }


def _of_agents(agents: AgentPortraits) -> _Tellings:
    def plan(event: PlanChanged) -> list[_Said]:
        return [_Said(event.name, event.at, lambda tx, viewer, _: agents.plan(tx, viewer, event.plan_id))]

    def phase(event: PhaseChanged) -> list[_Said]:
        def look(tx: Tx, viewer: Caller, _: object) -> Mapping[str, object]:
            return agents.phase(tx, viewer, event.plan_id, event.phase_id)

        return [_Said(event.name, event.at, look)]

    def task(event: TaskChanged) -> list[_Said]:
        def look(tx: Tx, viewer: Caller, _: object) -> Mapping[str, object]:
            return agents.task(tx, viewer, event.plan_id, event.task_id)

        return [_Said(event.name, event.at, look)]

    def session(name: str, event: AgentSessionStarted | AgentSessionNoted | AgentSessionEnded) -> list[_Said]:
        return [_Said(name, event.at, lambda tx, viewer, _: agents.session(tx, viewer, event.session_id))]

    return {
        PlanChanged: _telling(PlanChanged, plan),
        PhaseChanged: _telling(PhaseChanged, phase),
        TaskChanged: _telling(TaskChanged, task),
        AgentSessionStarted: _telling(AgentSessionStarted, lambda event: session("session.started", event)),
        AgentSessionNoted: _telling(AgentSessionNoted, lambda event: session("session.noted", event)),
        AgentSessionEnded: _telling(AgentSessionEnded, lambda event: session("session.ended", event)),
    }


def _of_tools() -> _Tellings:
    def called(event: ToolCalled) -> list[_Said]:
        has_failed = not event.success and event.code != "input_required"
        names = ["tool.called", "tool.failed"] if has_failed else ["tool.called"]

        def look(tx: Tx, viewer: Caller, _: object) -> Mapping[str, object]:
            return tool_portraits.call(tx, viewer.workspace_id, event.call_id)

        return [_Said(name, event.at, look) for name in names]

    return {ToolCalled: _telling(ToolCalled, called)}


def _of_keys(clock: Clock) -> _Tellings:
    def changed(event: KeyChanged) -> list[_Said]:
        def look(tx: Tx, viewer: Caller, _: object) -> Mapping[str, object]:
            if event.last is not None:
                return event.last
            return key_portraits.key(tx, cast("KeyKind", event.kind), viewer.shown_workspace_id, event.key_id, clock=clock)

        return [_Said(event.name, event.at, look)]

    def whom(event: KeyChanged) -> Sequence[_Whom]:
        # A test key is known to its workspace and to the sandbox; a live key is nothing to the sandbox (D-25).
        return [(tenant, "") for tenant in dict.fromkeys((event.workspace_id, event.acts_in))]

    return {KeyChanged: _telling(KeyChanged, changed, whom)}


def _of_webhooks(clock: Clock) -> _Tellings:
    def disabled(event: WebhookDisabled) -> list[_Said]:
        def look(tx: Tx, viewer: Caller, _: object) -> Mapping[str, object]:
            found = endpoints.find(tx, viewer.workspace_id, event.endpoint_id)
            return {"id": event.endpoint_id} if found is None else webhook(found, clock())

        return [_Said(DISABLED, event.at, look)]

    return {WebhookDisabled: _telling(WebhookDisabled, disabled, lambda event: [(event.workspace_id, event.endpoint_id)])}


def _telling(event: type[E], says: Callable[[E], list[_Said]], whom: Callable[[E], Sequence[_Whom]] | None = None) -> _Telling[object]:
    """Return how facts of a class are told, to their own tenant if *whom* is not given, as one of many: it is asked of that class alone."""
    del event
    return cast("_Telling[object]", _Telling(whom or cast("Callable[[E], Sequence[_Whom]]", _its_tenant), says))


def _same(data: Mapping[str, object]) -> _Look:
    """Return the look of what is nobody's resource."""
    return lambda _tx, _viewer, _with_content: data
