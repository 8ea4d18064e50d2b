"""The pool of upstream sessions: assigns sessions to callers and tracks the health of servers."""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from rookery.access.models import Caller
from rookery.kernel.clock import Clock, utc_now
from rookery.kernel.events import EventBus
from rookery.tools.errors import ConnectFailed, ServerBusy, StartTimedOut
from rookery.tools.events import ServerHealthChanged
from rookery.tools.models import HealthStatus, Server, ServerKind, SessionIsolation, SessionLifecycle, has_own_lists
from rookery.tools.ports import Connector, UpstreamConnection
from rookery.tools.supervision.circuit_breaker import CircuitBreaker, SupervisionTimeouts
from rookery.tools.supervision.health import HealthState, HealthTracker, ServerHealth
from rookery.tools.supervision.start_limit import StartLimit
from rookery.tools.supervision.state_lock import CallLocks
from rookery.tools.supervision.upstream_session import UpstreamSession

_CLOSE_TIMEOUT_S = 5.0
_SPARE_HOLDER = "spare"
"""The holder of a session that no caller has used yet, opened to list features. The first caller that needs one takes it over."""


MAX_SESSIONS_PER_WORKSPACE_AND_SERVER = 64
"""
Limit on one workspace's sessions with one server, each of which may be a process.

At the limit, the least recently used idle session is closed. If none is idle, the server is busy. Only the isolations
`per_key` and `per_session` come near the limit.
"""

MAX_SESSIONS_WITH_OWN_SERVERS = 256
"""Limit on sessions with all servers that one workspace added. Each uses a file descriptor, which all workspaces share."""


@dataclass(slots=True)
class _SessionGroup:
    """The sessions of one holder with one server: up to the entry's `replicas`, opened as needed."""

    breaker: CircuitBreaker
    workspace_id: int | None
    holder: str | None
    replicas: list[UpstreamSession] = field(default_factory=list[UpstreamSession])


@dataclass(frozen=True, slots=True)
class _StartTimeout:
    """A start for the list of a server's features that timed out. New holders do not try again before `not_before`."""

    server: Server
    not_before: float
    error: str


class SessionPool:
    """All sessions, each in its own task. Call `start` before use and `aclose` afterwards."""

    def __init__(
        self,
        connectors: Mapping[ServerKind, Connector],
        *,
        timeouts: SupervisionTimeouts | None = None,
        bus: EventBus | None = None,
        clock: Clock = utc_now,
        max_per_workspace: int = MAX_SESSIONS_PER_WORKSPACE_AND_SERVER,
        max_with_own_servers: int = MAX_SESSIONS_WITH_OWN_SERVERS,
        start_limit: StartLimit | None = None,
        call_locks: CallLocks | None = None,
    ) -> None:
        self.start_limit = start_limit or StartLimit()
        self.open_listeners: list[Callable[[UpstreamSession, UpstreamConnection], None]] = []
        self.change_listeners: list[Callable[[UpstreamSession], None]] = []
        """Called in the event loop with each opened session, and with each whose features changed. They must not block."""
        self.failure_counts = Counter[str]()
        """Failed sessions and failed attempts to open one since the start, by server id."""
        self._connectors = connectors
        self._call_locks = call_locks
        self._timeouts = timeouts or SupervisionTimeouts()
        self._bus = bus or EventBus()
        self._max_per_workspace = max_per_workspace
        self._max_with_own_servers = max_with_own_servers
        self._groups: dict[str, dict[str, _SessionGroup]] = {}
        self._start_timeouts: dict[str, _StartTimeout] = {}
        self._draining: set[UpstreamSession] = set()
        self._clock = clock
        self._health = HealthTracker(clock)
        self._owner: asyncio.Task[None] | None = None
        self._tasks: asyncio.TaskGroup | None = None
        self._stopping = asyncio.Event()

    async def start(self) -> None:
        """Start the task that owns all sessions."""
        started = asyncio.Event()
        self._owner = asyncio.create_task(self._run_tasks(started), name="tools-sessions")
        await started.wait()

    async def aclose(self) -> None:
        """Close all sessions within 5 seconds. No child process is left."""
        self._stopping.set()
        for session in (*(session for key in self._groups for session in self.list_sessions(key)), *self._draining):
            session.stop()
        if self._owner is not None:
            with contextlib.suppress(TimeoutError, asyncio.CancelledError):
                async with asyncio.timeout(_CLOSE_TIMEOUT_S):
                    await self._owner

    def get_session(self, server: Server, caller: Caller, session_id: str | None) -> UpstreamSession:
        """
        Return the session of *caller* with *server* under the server's isolation. It may not be open yet.

        Among several replicas, the one with the lowest load is returned. If all have load, another one is opened.

        Raises:
            ServerBusy: The workspace has reached its limit of sessions with the server, and all are in use.
        """
        holder = get_holder(server, caller, session_id)
        group = self._groups.get(server.key, {}).get(holder)
        if group is not None and server.replicas == 1 and group.replicas:
            (session,) = group.replicas
            if session.server is server and not session.is_stopping:
                return session
        return self._choose_session(server, holder, _get_login_workspace(server, caller))

    def get_spare(self, server: Server) -> UpstreamSession:
        """Return a session to list the server's features with: an existing one, or a spare one without a holder."""
        if server.auth is None and not server.forward_headers:
            for session in self.list_sessions(server.key):
                if _accepts_calls(session, server) and not session.last_error:
                    return session
        return self._choose_session(server, "" if server.isolation is SessionIsolation.SHARED else _SPARE_HOLDER, server.owner)

    def release_spare(self, server: Server) -> None:
        """Close the session of `get_spare`, unless a caller took it over or the server's lifecycle is eager."""
        group = self._groups.get(server.key, {}).get(_SPARE_HOLDER)
        if group is not None and server.lifecycle is SessionLifecycle.LAZY:
            for session in group.replicas:
                session.stop()

    def drain(self, server_key: str) -> None:
        """Reject new calls in the sessions of a server whose entry changed or was removed. Running calls may finish."""
        for session in self.list_sessions(server_key):
            self._drain(session)
        self._health.forget(server_key)
        self._start_timeouts.pop(server_key, None)

    def close_agent_session(self, workspace_id: int, session_id: str) -> None:
        """Close the sessions of one agent session of a workspace."""
        prefix = _session_holder(workspace_id, session_id, "")
        for by_holder in self._groups.values():
            for holder, group in by_holder.items():
                if holder.startswith(prefix):
                    for session in group.replicas:
                        session.stop()

    def get_health_state(self, server: Server, workspace_id: int | None = None) -> HealthState:
        """Return the health of the server as *workspace_id* may see it. None: overall."""
        if server.fault is not None:
            return HealthState(health=HealthStatus.OFFLINE, last_error=server.fault)
        return self._health.get_state(server, workspace_id)

    def get_shown_health(self, server: Server, workspace_id: int) -> HealthState:
        """
        Return the health of the server as it is shown to *workspace_id*.

        While its first session opens, or all are closed and one opens, the reason says for how long and what its process wrote. Without
        it, a server that waits for something would show nothing until the time-out of its start.
        """
        state = self.get_health_state(server, workspace_id)
        if state.health not in {HealthStatus.UNKNOWN, HealthStatus.ONLINE}:
            return state
        sessions = [session for session in self.list_sessions(server.key) if session.workspace_id in {None, workspace_id}]
        if any(session.is_open for session in sessions):
            return state
        for session in sessions:
            if note := session.describe_start():
                return replace(state, last_error=note, stderr=_list_shown_output(session))
        return state

    def get_server_health(self, server: Server, workspace_id: int) -> ServerHealth:
        """Return the health of the sessions that serve a workspace: its own and the shared ones."""
        visible = [
            session
            for session in self.list_sessions(server.key)
            if session.workspace_id in {None, workspace_id} and not session.is_stopping
        ]
        return ServerHealth(sessions=tuple(session.get_health() for session in visible))

    def list_sessions(self, server_key: str) -> list[UpstreamSession]:
        return [session for group in self._groups.get(server_key, {}).values() for session in group.replicas]

    def count_open_breakers(self, server_key: str) -> int:
        """Return the number of holders whose circuit breaker is open."""
        return sum(group.breaker.trip_count > 0 for group in self._groups.get(server_key, {}).values())

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
        """Record the health of a server as seen in a session of *workspace_id*. *overall*: the health across all sessions, if different."""
        for transition in self._health.record(server, workspace_id, health, error, overall=overall or health, stderr=stderr):
            self._bus.publish(
                ServerHealthChanged(
                    server=server.id,
                    key=server.key,
                    health=health.value,
                    reason=error or None,
                    at=self._clock(),
                    workspace_id=transition.workspace_id,
                    excluded_workspaces=transition.except_workspaces,
                )
            )

    def _choose_session(self, server: Server, holder: str, workspace_id: int | None) -> UpstreamSession:
        group = self._get_group(server, holder, workspace_id)
        target_count = server.replicas if server.lifecycle is SessionLifecycle.EAGER and holder != _SPARE_HOLDER else 1
        while not group.replicas or (len(group.replicas) < target_count and self._count_free(server, workspace_id) > 0):
            self._open_another(server, group)
        if server.replicas == 1 or (group.breaker.trip_count and not any(replica.is_open for replica in group.replicas)):
            return group.replicas[0]
        ready = [replica for replica in group.replicas if replica.is_open]
        best = min(ready or group.replicas, key=lambda replica: replica.load)
        if best.load and not group.breaker.trip_count:
            # With an open replica, the caller does not wait for the new one's start. Without one, it may as well wait for the new one.
            idle = next((replica for replica in group.replicas if not replica.is_open and not replica.load), None)
            if idle is None and len(group.replicas) < server.replicas and self._count_free(server, workspace_id) > 0:
                idle = self._open_another(server, group)
            if idle is not None:
                idle.request_open()
                return best if ready else idle
        return best

    def _get_group(self, server: Server, holder: str, workspace_id: int | None) -> _SessionGroup:
        """Return the group of a holder, without sessions that reject calls. The spare group becomes the first holder's."""
        by_holder = self._groups.setdefault(server.key, {})
        group = by_holder.get(holder)
        if group is not None:
            for session in [replica for replica in group.replicas if replica.is_stopping or replica.server is not server]:
                self._drain(session)
            if by_holder.get(holder) is group:
                return group
        spare = by_holder.get(_SPARE_HOLDER)
        if (
            holder != _SPARE_HOLDER
            and spare is not None
            and _can_hand_over_spare(server)
            and all(_accepts_calls(replica, server) for replica in spare.replicas)
        ):
            del by_holder[_SPARE_HOLDER]
            spare.workspace_id, spare.holder = workspace_id, holder
            for session in spare.replicas:
                session.workspace_id, session.holder = workspace_id, holder
            by_holder[holder] = spare
            return spare
        if self._count_free(server, workspace_id) <= 0:
            self._evict_idle(server, workspace_id)
        group = _SessionGroup(CircuitBreaker(self._timeouts), workspace_id, None if holder == _SPARE_HOLDER else holder)
        if (timeout := self._find_start_timeout(server)) is not None:
            group.breaker.not_before = timeout.not_before
        self._groups.setdefault(server.key, {})[holder] = group
        return group

    def _find_start_timeout(self, server: Server) -> _StartTimeout | None:
        """Return the last start for the server's features if it timed out and its back-off has not passed."""
        timeout = self._start_timeouts.get(server.key)
        return timeout if timeout is not None and timeout.server is server and timeout.not_before > time.monotonic() else None

    def _count_free(self, server: Server, workspace_id: int | None) -> int:
        """Return the number of sessions that a workspace may still open. Only the entry limits shared sessions."""
        if workspace_id is None:
            return 1
        free = self._max_per_workspace - len(self._list_workspace_sessions(server, workspace_id))
        return free if server.owner is None else min(free, self._max_with_own_servers - len(self._list_own_server_sessions(server.owner)))

    def _evict_idle(self, server: Server, workspace_id: int | None) -> None:
        candidates = self._list_workspace_sessions(server, workspace_id)
        if server.owner is not None and len(candidates) < self._max_per_workspace:
            candidates = self._list_own_server_sessions(server.owner)
        idle = [candidate for candidate in candidates if candidate.is_idle]
        if not idle:
            raise ServerBusy(server.id)
        min(idle, key=lambda session: session.used_at).stop()

    def _list_workspace_sessions(self, server: Server, workspace_id: int | None) -> list[UpstreamSession]:
        return [session for session in self.list_sessions(server.key) if session.workspace_id == workspace_id and not session.is_stopping]

    def _list_own_server_sessions(self, owner: int) -> list[UpstreamSession]:
        """Return the sessions with servers that the workspace *owner* added."""
        keys = [key for key in self._groups if key.startswith(f"{owner}/")]
        return [session for key in keys for session in self.list_sessions(key) if not session.is_stopping]

    def _open_another(self, server: Server, group: _SessionGroup) -> UpstreamSession:
        if self._tasks is None or self._stopping.is_set():
            raise RuntimeError("sessions can be opened only between start and aclose")
        session = UpstreamSession(
            server,
            self._connectors[server.kind],
            timeouts=self._timeouts,
            breaker=group.breaker,
            on_opened=self._on_opened,
            on_down=self._on_down,
            on_changed=self._on_changed,
            start_limit=self.start_limit,
            call_locks=self._call_locks,
            workspace_id=group.workspace_id,
            holder=group.holder,
        )
        if (timeout := self._find_start_timeout(server)) is not None:
            session.last_error = timeout.error
        group.replicas.append(session)
        self._tasks.create_task(self._run(session), name=f"tools-session-{server.key}")
        return session

    def _drain(self, session: UpstreamSession) -> None:
        self._draining.add(session)
        self._remove(session)
        session.drain()

    def _remove(self, session: UpstreamSession) -> None:
        """Remove a session from its group, and remove empty groups, so that the tables do not grow with former callers."""
        by_holder = self._groups.get(session.server.key, {})
        for holder, group in list(by_holder.items()):
            if session in group.replicas:
                group.replicas.remove(session)
                if not group.replicas:
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
        self._start_timeouts.pop(session.server.key, None)
        self.record_health(session.server, HealthStatus.ONLINE, workspace_id=session.workspace_id)
        for listener in self.open_listeners:
            listener(session, connection)

    def _on_down(self, session: UpstreamSession, failure: ConnectFailed) -> None:
        if session in self._draining:
            return  # the session belongs to a former entry, so its failure does not affect the current server
        if failure.concerns_caller:
            return  # nothing is wrong with the server
        self.failure_counts[session.server.id] += 1
        spare = self._groups.get(session.server.key, {}).get(_SPARE_HOLDER)
        if isinstance(failure, StartTimedOut) and spare is not None and session in spare.replicas:
            self._start_timeouts[session.server.key] = _StartTimeout(session.server, session.breaker.not_before, str(failure))
        others = [other for other in self.list_sessions(session.server.key) if other is not session and other.is_open]
        own_sessions = [other for other in others if other.workspace_id in {None, session.workspace_id}]
        down = HealthStatus.NEEDS_LOGIN if failure.needs_login else HealthStatus.OFFLINE
        health, overall = (
            HealthStatus.DEGRADED if live_sessions and not failure.needs_login else down for live_sessions in (own_sessions, others)
        )
        self.record_health(
            session.server,
            health,
            str(failure),
            workspace_id=session.workspace_id,
            overall=overall,
            stderr=_list_shown_output(session),
        )

    def _on_changed(self, session: UpstreamSession) -> None:
        for listener in self.change_listeners:
            listener(session)


def _list_shown_output(session: UpstreamSession) -> tuple[str, ...]:
    """Return the output of a process. That of a session that all workspaces share may have data of another one; it is only in the log."""
    is_shared = session.server.isolation is SessionIsolation.SHARED and session.server.owner is None
    return () if is_shared else tuple(session.output)


def _accepts_calls(session: UpstreamSession, server: Server) -> bool:
    return session.server is server and not session.is_stopping


def _can_hand_over_spare(server: Server) -> bool:
    """
    Return whether a session that was opened without a caller may become a caller's.

    A session uses the login that it was opened with. One of a single key announces the extensions of the client of this key.
    """
    is_private = server.isolation in {SessionIsolation.PER_KEY, SessionIsolation.PER_SESSION}
    return server.auth is None and not server.forward_headers and not (is_private and server.lifecycle is SessionLifecycle.LAZY)


def _get_login_workspace(server: Server, caller: Caller) -> int | None:
    """Return the workspace whose login a caller's session uses. None: the login for all workspaces."""
    if server.owner is not None or server.isolation is SessionIsolation.SHARED:
        return server.owner
    return caller.workspace_id


def get_holder(server: Server, caller: Caller, session_id: str | None) -> str:
    """Return the name of the holder of a caller's session with *server*: its workspace, key or agent session, as `isolation` says."""
    match server.isolation:
        case SessionIsolation.SHARED:
            return ""
        case SessionIsolation.PER_WORKSPACE:
            return f"workspace:{caller.workspace_id}"
        case SessionIsolation.PER_KEY:
            return f"key:{caller.key_id}"
        case SessionIsolation.PER_SESSION:
            return f"key:{caller.key_id}" if session_id is None else _session_holder(caller.workspace_id, session_id, caller.key_id)


def get_list_holder(server: Server, caller: Caller, session_id: str | None) -> str | None:
    """Return the holder of the lists that *caller* sees. None: all callers see the same lists."""
    if not has_own_lists(server):
        return None
    if server.forward_headers and server.isolation is not SessionIsolation.PER_SESSION:
        return f"key:{caller.key_id}"
    return get_holder(server, caller, session_id)


def _session_holder(workspace_id: int, session_id: str, key_id: str) -> str:
    # The id is chosen by the caller: no other tenant or key may enter a session by sending its id.
    # JSON encoding ensures that no id can contain the prefix of another holder's name.
    return f"workspace:{workspace_id} session:{json.dumps(session_id)} key:{key_id}"
