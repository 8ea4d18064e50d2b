"""All sessions with upstreams: which caller gets which, and how each server does (D-32, D-33)."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from rookery.access.models import Caller
from rookery.kernel.clock import Clock, utc_now
from rookery.kernel.events import EventBus, ServerHealthChanged
from rookery.tools.errors import ConnectFailed, ServerBusy
from rookery.tools.models import HealthStatus, Server, ServerKind, SessionIsolation, SessionLifecycle
from rookery.tools.ports import Connector, UpstreamConnection
from rookery.tools.supervision.circuit_breaker import CircuitBreaker, SupervisionTimeouts
from rookery.tools.supervision.health import HealthState, HealthTracker, ServerHealth
from rookery.tools.supervision.upstream_session import UpstreamSession

_CLOSE_TIMEOUT_S = 5.0
_SPARE_HOLDER = "spare"
"""Who holds a session that no caller has used yet: a probe's. The first caller to need one takes it over."""


MAX_SESSIONS_PER_WORKSPACE_AND_SERVER = 64
"""
Sessions with one server that one workspace may hold at once, each of which may be a process of the server's.

Past that the one unused for longest is closed; if all are in use the server is busy. Only `per_key` and `per_session` come near it.
"""

MAX_SESSIONS_WITH_OWN_SERVERS = 256
"""Sessions with all servers that one workspace added: each is a descriptor at least, of which all workspaces have so many together."""


@dataclass(slots=True)
class _SessionGroup:
    """The sessions of one holder with one server: as many as its entry has `replicas`, opened as they are needed."""

    breaker: CircuitBreaker
    workspace_id: int | None
    replicas: list[UpstreamSession] = field(default_factory=list[UpstreamSession])


@dataclass(frozen=True, slots=True)
class SessionListeners:
    """Who hears of openings and of changed lists; each is called in the loop and must not wait."""

    opened: list[Callable[[UpstreamSession, UpstreamConnection], None]] = field(
        default_factory=list[Callable[[UpstreamSession, UpstreamConnection], None]]
    )
    changed: list[Callable[[UpstreamSession], None]] = field(default_factory=list[Callable[[UpstreamSession], None]])


class SessionPool:
    """Every session, each in a task of its own under one group; `start` before use, `aclose` after."""

    def __init__(
        self,
        connectors: Mapping[ServerKind, Connector],
        *,
        timeouts: SupervisionTimeouts | None = None,
        bus: EventBus | None = None,
        clock: Clock = utc_now,
        max_per_workspace: int = MAX_SESSIONS_PER_WORKSPACE_AND_SERVER,
        max_with_own_servers: int = MAX_SESSIONS_WITH_OWN_SERVERS,
    ) -> None:
        self.listeners = SessionListeners()
        self.failure_counts = Counter[str]()
        """How often a session fell or could not be opened, since the start, by the server's id."""
        self._connectors = connectors
        self._timeouts = timeouts or SupervisionTimeouts()
        self._bus = bus or EventBus()
        self._max_per_workspace = max_per_workspace
        self._max_with_own_servers = max_with_own_servers
        self._groups: dict[str, dict[str, _SessionGroup]] = {}
        self._draining: set[UpstreamSession] = set()
        self._clock = clock
        self._health = HealthTracker(clock)
        self._owner: asyncio.Task[None] | None = None
        self._tasks: asyncio.TaskGroup | None = None
        self._stopping = asyncio.Event()

    async def start(self) -> None:
        """Make ready to open sessions."""
        started = asyncio.Event()
        self._owner = asyncio.create_task(self._run_tasks(started), name="tools-sessions")
        await started.wait()

    async def aclose(self) -> None:
        """Close every session, within 5 seconds; no process of theirs is left."""
        self._stopping.set()
        for session in (*(each for key in self._groups for each in self.list_sessions(key)), *self._draining):
            session.stop()
        if self._owner is not None:
            with contextlib.suppress(TimeoutError, asyncio.CancelledError):
                await asyncio.wait_for(self._owner, _CLOSE_TIMEOUT_S)

    def get_session(self, server: Server, caller: Caller, session_id: str | None) -> UpstreamSession:
        """
        Return the session that *caller* has with *server* by the server's isolation; it need not be open yet.

        Of several replicas it is the one with the least to do; another one is opened when all have something to do.

        Raises:
            ServerBusy: The workspace holds as many sessions with the server as it may, and uses them all.
        """
        holder = _get_holder(server, caller, session_id)
        held = self._groups.get(server.key, {}).get(holder)
        if held is not None and server.replicas == 1 and held.replicas:
            (session,) = held.replicas
            if session.server is server and not session.is_stopping:
                return session
        return self._choose_session(server, holder, _get_login_workspace(server, caller))

    def get_spare(self, server: Server) -> UpstreamSession:
        """Return a session to look at the server with, for no caller: one that there is, or one still to be given to somebody."""
        if server.auth is None:
            for session in self.list_sessions(server.key):
                if _accepts_calls(session, server) and not session.last_error:
                    return session
        return self._choose_session(server, "" if server.isolation is SessionIsolation.SHARED else _SPARE_HOLDER, server.owner)

    def release_spare(self, server: Server) -> None:
        """Close what `get_spare` gave, unless a caller took it over meanwhile or the server is kept warm."""
        held = self._groups.get(server.key, {}).get(_SPARE_HOLDER)
        if held is not None and server.lifecycle is SessionLifecycle.LAZY:
            for session in held.replicas:
                session.stop()

    def drain(self, server_key: str) -> None:
        """Let no new call into the sessions of a server whose entry changed or went; those running may end."""
        for session in self.list_sessions(server_key):
            self._drain(session)
        self._health.forget(server_key)

    def close_agent_session(self, workspace_id: int, session_id: str) -> None:
        """Close what was held for one agent session of a workspace (D-38)."""
        beginning = _session_holder(workspace_id, session_id, "")
        for by_holder in self._groups.values():
            for holder, held in by_holder.items():
                if holder.startswith(beginning):
                    for session in held.replicas:
                        session.stop()

    def get_health_state(self, server: Server, workspace_id: int | None = None) -> HealthState:
        """Return how the server does, by what *workspace_id* may know of it; by everything, if it is None."""
        if server.fault is not None:
            return HealthState(health=HealthStatus.OFFLINE, last_error=server.fault)
        return self._health.get_state(server, workspace_id)

    def get_server_health(self, server: Server, workspace_id: int) -> ServerHealth:
        """Return how the sessions do that serve a workspace: its own ones, and those of everybody."""
        theirs = [each for each in self.list_sessions(server.key) if each.workspace_id in {None, workspace_id} and not each.is_stopping]
        return ServerHealth(sessions=tuple(session.get_health() for session in theirs))

    def list_sessions(self, server_key: str) -> list[UpstreamSession]:
        """Return the sessions there are with a server."""
        return [session for held in self._groups.get(server_key, {}).values() for session in held.replicas]

    def count_open_breakers(self, server_key: str) -> int:
        """Return of how many holders the breaker is open: their sessions fell over and over."""
        return sum(held.breaker.trip_count > 0 for held in self._groups.get(server_key, {}).values())

    def record_health(
        self,
        server: Server,
        health: HealthStatus,
        error: str = "",
        *,
        workspace_id: int | None = None,
        overall: HealthStatus | None = None,
        stderr: tuple[str, ...] = (),
    ) -> None:
        """Keep how a server did just now, in a session of *workspace_id*; *overall* if other sessions do otherwise."""
        for turn in self._health.record(server, workspace_id, health, error, overall=overall or health, stderr=stderr):
            self._bus.publish(
                ServerHealthChanged(
                    server=server.id,
                    key=server.key,
                    health=health.value,
                    reason=error or None,
                    at=self._clock(),
                    workspace_id=turn.workspace_id,
                    excluded_workspaces=turn.except_workspaces,
                )
            )

    def _choose_session(self, server: Server, holder: str, workspace_id: int | None) -> UpstreamSession:
        held = self._get_group(server, holder, workspace_id)
        wanted = server.replicas if server.lifecycle is SessionLifecycle.EAGER and holder != _SPARE_HOLDER else 1
        while not held.replicas or (len(held.replicas) < wanted and self._count_free(server, workspace_id) > 0):
            self._open_another(server, held)
        if server.replicas == 1 or (held.breaker.trip_count and not any(each.is_open for each in held.replicas)):
            return held.replicas[0]
        ready = [each for each in held.replicas if each.is_open]
        best = min(ready or held.replicas, key=lambda each: each.load)
        if best.load and not held.breaker.trip_count:
            # Whoever finds one open does not wait for the new one's start; whoever finds none may as well wait for the new one.
            idle = next((each for each in held.replicas if not each.is_open and not each.load), None)
            if idle is None and len(held.replicas) < server.replicas and self._count_free(server, workspace_id) > 0:
                idle = self._open_another(server, held)
            if idle is not None:
                idle.request_open()
                return best if ready else idle
        return best

    def _get_group(self, server: Server, holder: str, workspace_id: int | None) -> _SessionGroup:
        """Return what a holder has, without what takes no more calls; the spare one becomes the first holder's."""
        by_holder = self._groups.setdefault(server.key, {})
        held = by_holder.get(holder)
        if held is not None:
            for session in [each for each in held.replicas if each.is_stopping or each.server is not server]:
                self._drain(session)
            if by_holder.get(holder) is held:
                return held
        spare = by_holder.get(_SPARE_HOLDER)
        # A session is logged in as whom it was opened for: one that asks for a login is handed on to nobody.
        if (
            holder != _SPARE_HOLDER
            and spare is not None
            and server.auth is None
            and all(_accepts_calls(each, server) for each in spare.replicas)
        ):
            del by_holder[_SPARE_HOLDER]
            spare.workspace_id = workspace_id
            for session in spare.replicas:
                session.workspace_id = workspace_id
            by_holder[holder] = spare
            return spare
        if self._count_free(server, workspace_id) <= 0:
            self._evict_idle(server, workspace_id)
        held = _SessionGroup(CircuitBreaker(self._timeouts), workspace_id)
        self._groups.setdefault(server.key, {})[holder] = held
        return held

    def _count_free(self, server: Server, workspace_id: int | None) -> int:
        """Return how many more sessions a workspace may have; what serves everybody is bounded by the entry alone."""
        if workspace_id is None:
            return 1
        room = self._max_per_workspace - len(self._list_workspace_sessions(server, workspace_id))
        return room if server.owner is None else min(room, self._max_with_own_servers - len(self._list_own_server_sessions(server.owner)))

    def _evict_idle(self, server: Server, workspace_id: int | None) -> None:
        theirs = self._list_workspace_sessions(server, workspace_id)
        if server.owner is not None and len(theirs) < self._max_per_workspace:
            theirs = self._list_own_server_sessions(server.owner)
        idle = [each for each in theirs if each.is_idle]
        if not idle:
            raise ServerBusy(server.id)
        min(idle, key=lambda each: each.used_at).stop()

    def _list_workspace_sessions(self, server: Server, workspace_id: int | None) -> list[UpstreamSession]:
        return [each for each in self.list_sessions(server.key) if each.workspace_id == workspace_id and not each.is_stopping]

    def _list_own_server_sessions(self, owner: int) -> list[UpstreamSession]:
        """Return the sessions with servers that a workspace added."""
        keys = [key for key in self._groups if key.startswith(f"{owner}/")]
        return [each for key in keys for each in self.list_sessions(key) if not each.is_stopping]

    def _open_another(self, server: Server, held: _SessionGroup) -> UpstreamSession:
        if self._tasks is None or self._stopping.is_set():
            raise RuntimeError("sessions are opened between start and aclose")
        session = UpstreamSession(
            server,
            self._connectors[server.kind],
            timeouts=self._timeouts,
            breaker=held.breaker,
            on_opened=self._on_opened,
            on_down=self._on_down,
            on_changed=self._on_changed,
            workspace_id=held.workspace_id,
        )
        held.replicas.append(session)
        self._tasks.create_task(self._run(session), name=f"tools-session-{server.key}")
        return session

    def _drain(self, session: UpstreamSession) -> None:
        self._draining.add(session)
        self._remove(session)
        session.drain()

    def _remove(self, session: UpstreamSession) -> None:
        """Find it no more; a holder who has no other is forgotten, so that tables do not grow with callers who left."""
        by_holder = self._groups.get(session.server.key, {})
        for holder, held in list(by_holder.items()):
            if session in held.replicas:
                held.replicas.remove(session)
                if not held.replicas:
                    del by_holder[holder]
        if not by_holder:
            self._groups.pop(session.server.key, None)

    async def _run_tasks(self, started: asyncio.Event) -> None:
        async with asyncio.TaskGroup() as self._tasks:
            started.set()
            await self._stopping.wait()

    async def _run(self, session: UpstreamSession) -> None:
        try:
            await session.run()
        finally:
            self._remove(session)
            self._draining.discard(session)

    def _on_opened(self, session: UpstreamSession, connection: UpstreamConnection) -> None:
        if session in self._draining:
            return
        self.record_health(session.server, HealthStatus.ONLINE, workspace_id=session.workspace_id)
        for listener in self.listeners.opened:
            listener(session, connection)

    def _on_down(self, session: UpstreamSession, failure: ConnectFailed) -> None:
        if session in self._draining:
            return  # of an entry that is no more: it tells nothing of how the server does now
        self.failure_counts[session.server.id] += 1
        others = [each for each in self.list_sessions(session.server.key) if each is not session and each.is_open]
        own = [each for each in others if each.workspace_id in {None, session.workspace_id}]
        down = HealthStatus.NEEDS_LOGIN if failure.needs_login else HealthStatus.OFFLINE
        health, overall = (HealthStatus.DEGRADED if alive and not failure.needs_login else down for alive in (own, others))
        # Of a session that all workspaces share, the lines may hold what another workspace sent: they are in the log alone.
        stderr = () if session.server.isolation is SessionIsolation.SHARED and session.server.owner is None else tuple(session.stderr)
        self.record_health(session.server, health, str(failure), workspace_id=session.workspace_id, overall=overall, stderr=stderr)

    def _on_changed(self, session: UpstreamSession) -> None:
        for listener in self.listeners.changed:
            listener(session)


def _accepts_calls(session: UpstreamSession, server: Server) -> bool:
    return session.server is server and not session.is_stopping


def _get_login_workspace(server: Server, caller: Caller) -> int | None:
    """Return whose login a caller's session uses; None: that of all workspaces."""
    if server.owner is not None or server.isolation is SessionIsolation.SHARED:
        return server.owner
    return caller.workspace_id


def _get_holder(server: Server, caller: Caller, session_id: str | None) -> str:
    match server.isolation:
        case SessionIsolation.SHARED:
            return ""
        case SessionIsolation.PER_WORKSPACE:
            return f"workspace:{caller.workspace_id}"
        case SessionIsolation.PER_KEY:
            return f"key:{caller.key_id}"
        case SessionIsolation.PER_SESSION:
            return f"key:{caller.key_id}" if session_id is None else _session_holder(caller.workspace_id, session_id, caller.key_id)


def _session_holder(workspace_id: int, session_id: str, key_id: str) -> str:
    # The id is only what the caller sends: neither another tenant nor another key may enter a session by naming it.
    # JSON, so that no id can contain the beginning of another holder's name.
    return f"workspace:{workspace_id} session:{json.dumps(session_id)} key:{key_id}"
