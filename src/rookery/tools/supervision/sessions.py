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
from rookery.kernel.events import Bus, ServerHealthChanged
from rookery.tools.errors import ConnectFailed, ServerBusy
from rookery.tools.models import Health, Isolation, Kind, Lifecycle, Server
from rookery.tools.ports import Connection, Connector
from rookery.tools.supervision.breaker import Breaker, Timing
from rookery.tools.supervision.standing import Condition, Conditions, Standing
from rookery.tools.supervision.supervised import Session

_CLOSE_S = 5.0
_SPARE = "spare"
"""Who holds a session that no caller has used yet: a probe's. The first caller to need one takes it over."""


MOST_PER_WORKSPACE = 64
"""
Sessions with one server that one workspace may hold at once, each of which may be a process of the server's.

Past that the one unused for longest is closed; if all are in use the server is busy. Only `per_key` and `per_session` come near it.
"""

MOST_OF_ITS_OWN = 256
"""Sessions with all servers that one workspace added: each is a descriptor at least, of which all workspaces have so many together."""


@dataclass(slots=True)
class _Held:
    """The sessions of one holder with one server: as many as its entry has `replicas`, opened as they are needed."""

    breaker: Breaker
    workspace_id: int | None
    replicas: list[Session] = field(default_factory=list[Session])


@dataclass(frozen=True, slots=True)
class Listeners:
    """Who hears of openings and of changed lists; each is called in the loop and must not wait."""

    opened: list[Callable[[Session, Connection], None]] = field(default_factory=list[Callable[[Session, Connection], None]])
    changed: list[Callable[[Session], None]] = field(default_factory=list[Callable[[Session], None]])


class Sessions:
    """Every session, each in a task of its own under one group; `start` before use, `aclose` after."""

    def __init__(
        self,
        connectors: Mapping[Kind, Connector],
        *,
        timing: Timing | None = None,
        bus: Bus | None = None,
        clock: Clock = utc_now,
        most_per_workspace: int = MOST_PER_WORKSPACE,
        most_of_its_own: int = MOST_OF_ITS_OWN,
    ) -> None:
        self.listeners = Listeners()
        self.falls = Counter[str]()
        """How often a session fell or could not be opened, since the start, by the server's id."""
        self._connectors = connectors
        self._timing = timing or Timing()
        self._bus = bus or Bus()
        self._most_per_workspace = most_per_workspace
        self._most_of_its_own = most_of_its_own
        self._held: dict[str, dict[str, _Held]] = {}
        self._retired: set[Session] = set()
        self._clock = clock
        self._conditions = Conditions(clock)
        self._owner: asyncio.Task[None] | None = None
        self._tasks: asyncio.TaskGroup | None = None
        self._stopping = asyncio.Event()

    async def start(self) -> None:
        """Make ready to open sessions."""
        started = asyncio.Event()
        self._owner = asyncio.create_task(self._own(started), name="tools-sessions")
        await started.wait()

    async def aclose(self) -> None:
        """Close every session, within 5 seconds; no process of theirs is left."""
        self._stopping.set()
        for session in (*(each for key in self._held for each in self.of(key)), *self._retired):
            session.stop()
        if self._owner is not None:
            with contextlib.suppress(TimeoutError, asyncio.CancelledError):
                await asyncio.wait_for(self._owner, _CLOSE_S)

    def session(self, server: Server, caller: Caller, session_id: str | None) -> Session:
        """
        Return the session that *caller* has with *server* by the server's isolation; it need not be open yet.

        Of several replicas it is the one with the least to do; another one is opened when all have something to do.

        Raises:
            ServerBusy: The workspace holds as many sessions with the server as it may, and uses them all.
        """
        holder = _holder(server, caller, session_id)
        held = self._held.get(server.key, {}).get(holder)
        if held is not None and server.replicas == 1 and held.replicas:
            (session,) = held.replicas
            if session.server is server and not session.is_stopping:
                return session
        return self._chosen(server, holder, _login_of(server, caller))

    def spare(self, server: Server) -> Session:
        """Return a session to look at the server with, for no caller: one that there is, or one still to be given to somebody."""
        if server.auth is None:
            for session in self.of(server.key):
                if _takes_calls(session, server) and not session.last_error:
                    return session
        return self._chosen(server, "" if server.isolation is Isolation.SHARED else _SPARE, server.owner)

    def release_spare(self, server: Server) -> None:
        """Close what `spare` gave, unless a caller took it over meanwhile or the server is kept warm."""
        held = self._held.get(server.key, {}).get(_SPARE)
        if held is not None and server.lifecycle is Lifecycle.LAZY:
            for session in held.replicas:
                session.stop()

    def retire(self, server_key: str) -> None:
        """Let no new call into the sessions of a server whose entry changed or went; those running may end."""
        for session in self.of(server_key):
            self._retire(session)
        self._conditions.forget(server_key)

    def end_session(self, workspace_id: int, session_id: str) -> None:
        """Close what was held for one agent session of a workspace (D-38)."""
        beginning = _of_session(workspace_id, session_id, "")
        for by_holder in self._held.values():
            for holder, held in by_holder.items():
                if holder.startswith(beginning):
                    for session in held.replicas:
                        session.stop()

    def condition(self, server: Server, workspace_id: int | None = None) -> Condition:
        """Return how the server does, by what *workspace_id* may know of it; by everything, if it is None."""
        if server.fault is not None:
            return Condition(health=Health.OFFLINE, last_error=server.fault)
        return self._conditions.of(server, workspace_id)

    def standing(self, server: Server, workspace_id: int) -> Standing:
        """Return how the sessions do that serve a workspace: its own ones, and those of everybody."""
        theirs = [each for each in self.of(server.key) if each.workspace_id in {None, workspace_id} and not each.is_stopping]
        return Standing(sessions=tuple(session.standing() for session in theirs))

    def of(self, server_key: str) -> list[Session]:
        """Return the sessions there are with a server."""
        return [session for held in self._held.get(server_key, {}).values() for session in held.replicas]

    def left_alone(self, server_key: str) -> int:
        """Return of how many holders the breaker is open: their sessions fell over and over."""
        return sum(held.breaker.trips > 0 for held in self._held.get(server_key, {}).values())

    def note(
        self,
        server: Server,
        health: Health,
        error: str = "",
        *,
        workspace_id: int | None = None,
        overall: Health | None = None,
        stderr: tuple[str, ...] = (),
    ) -> None:
        """Keep how a server did just now, in a session of *workspace_id*; *overall* if other sessions do otherwise."""
        for turn in self._conditions.note(server, workspace_id, health, error, overall=overall or health, stderr=stderr):
            self._bus.publish(
                ServerHealthChanged(
                    server=server.id,
                    key=server.key,
                    health=health.value,
                    reason=error or None,
                    at=self._clock(),
                    workspace_id=turn.workspace_id,
                    but=turn.but,
                )
            )

    def _chosen(self, server: Server, holder: str, workspace_id: int | None) -> Session:
        held = self._held_by(server, holder, workspace_id)
        wanted = server.replicas if server.lifecycle is Lifecycle.EAGER and holder != _SPARE else 1
        while not held.replicas or (len(held.replicas) < wanted and self._room(server, workspace_id) > 0):
            self._open_another(server, held)
        if server.replicas == 1 or (held.breaker.trips and not any(each.is_open for each in held.replicas)):
            return held.replicas[0]
        ready = [each for each in held.replicas if each.is_open]
        best = min(ready or held.replicas, key=lambda each: each.load)
        if best.load and not held.breaker.trips:
            # Whoever finds one open does not wait for the new one's start; whoever finds none may as well wait for the new one.
            idle = next((each for each in held.replicas if not each.is_open and not each.load), None)
            if idle is None and len(held.replicas) < server.replicas and self._room(server, workspace_id) > 0:
                idle = self._open_another(server, held)
            if idle is not None:
                idle.want()
                return best if ready else idle
        return best

    def _held_by(self, server: Server, holder: str, workspace_id: int | None) -> _Held:
        """Return what a holder has, without what takes no more calls; the spare one becomes the first holder's."""
        by_holder = self._held.setdefault(server.key, {})
        held = by_holder.get(holder)
        if held is not None:
            for session in [each for each in held.replicas if each.is_stopping or each.server is not server]:
                self._retire(session)
            if by_holder.get(holder) is held:
                return held
        spare = by_holder.get(_SPARE)
        # A session is logged in as whom it was opened for: one that asks for a login is handed on to nobody.
        if holder != _SPARE and spare is not None and server.auth is None and all(_takes_calls(each, server) for each in spare.replicas):
            del by_holder[_SPARE]
            spare.workspace_id = workspace_id
            for session in spare.replicas:
                session.workspace_id = workspace_id
            by_holder[holder] = spare
            return spare
        if self._room(server, workspace_id) <= 0:
            self._make_room(server, workspace_id)
        held = _Held(Breaker(self._timing), workspace_id)
        self._held.setdefault(server.key, {})[holder] = held
        return held

    def _room(self, server: Server, workspace_id: int | None) -> int:
        """Return how many more sessions a workspace may have; what serves everybody is bounded by the entry alone."""
        if workspace_id is None:
            return 1
        room = self._most_per_workspace - len(self._theirs(server, workspace_id))
        return room if server.owner is None else min(room, self._most_of_its_own - len(self._with_own(server.owner)))

    def _make_room(self, server: Server, workspace_id: int | None) -> None:
        theirs = self._theirs(server, workspace_id)
        if server.owner is not None and len(theirs) < self._most_per_workspace:
            theirs = self._with_own(server.owner)
        idle = [each for each in theirs if each.is_idle]
        if not idle:
            raise ServerBusy(server.id)
        min(idle, key=lambda each: each.used_at).stop()

    def _theirs(self, server: Server, workspace_id: int | None) -> list[Session]:
        return [each for each in self.of(server.key) if each.workspace_id == workspace_id and not each.is_stopping]

    def _with_own(self, owner: int) -> list[Session]:
        """Return the sessions with servers that a workspace added."""
        keys = [key for key in self._held if key.startswith(f"{owner}/")]
        return [each for key in keys for each in self.of(key) if not each.is_stopping]

    def _open_another(self, server: Server, held: _Held) -> Session:
        if self._tasks is None or self._stopping.is_set():
            raise RuntimeError("sessions are opened between start and aclose")
        session = Session(
            server,
            self._connectors[server.kind],
            timing=self._timing,
            breaker=held.breaker,
            on_opened=self._opened,
            on_down=self._down,
            on_changed=self._changed,
            workspace_id=held.workspace_id,
        )
        held.replicas.append(session)
        self._tasks.create_task(self._run(session), name=f"tools-session-{server.key}")
        return session

    def _retire(self, session: Session) -> None:
        self._retired.add(session)
        self._let_go(session)
        session.retire()

    def _let_go(self, session: Session) -> None:
        """Find it no more; a holder who has no other is forgotten, so that tables do not grow with callers who left."""
        by_holder = self._held.get(session.server.key, {})
        for holder, held in list(by_holder.items()):
            if session in held.replicas:
                held.replicas.remove(session)
                if not held.replicas:
                    del by_holder[holder]
        if not by_holder:
            self._held.pop(session.server.key, None)

    async def _own(self, started: asyncio.Event) -> None:
        async with asyncio.TaskGroup() as self._tasks:
            started.set()
            await self._stopping.wait()

    async def _run(self, session: Session) -> None:
        try:
            await session.run()
        finally:
            self._let_go(session)
            self._retired.discard(session)

    def _opened(self, session: Session, connection: Connection) -> None:
        if session in self._retired:
            return
        self.note(session.server, Health.ONLINE, workspace_id=session.workspace_id)
        for listener in self.listeners.opened:
            listener(session, connection)

    def _down(self, session: Session, failure: ConnectFailed) -> None:
        if session in self._retired:
            return  # of an entry that is no more: it tells nothing of how the server does now
        self.falls[session.server.id] += 1
        others = [each for each in self.of(session.server.key) if each is not session and each.is_open]
        own = [each for each in others if each.workspace_id in {None, session.workspace_id}]
        down = Health.NEEDS_LOGIN if failure.needs_login else Health.OFFLINE
        health, overall = (Health.DEGRADED if alive and not failure.needs_login else down for alive in (own, others))
        # Of a session that all workspaces share, the lines may hold what another workspace sent: they are in the log alone.
        stderr = () if session.server.isolation is Isolation.SHARED and session.server.owner is None else tuple(session.stderr)
        self.note(session.server, health, str(failure), workspace_id=session.workspace_id, overall=overall, stderr=stderr)

    def _changed(self, session: Session) -> None:
        for listener in self.listeners.changed:
            listener(session)


def _takes_calls(session: Session, server: Server) -> bool:
    return session.server is server and not session.is_stopping


def _login_of(server: Server, caller: Caller) -> int | None:
    """Return whose login a caller's session uses; None: that of all workspaces."""
    if server.owner is not None or server.isolation is Isolation.SHARED:
        return server.owner
    return caller.workspace_id


def _holder(server: Server, caller: Caller, session_id: str | None) -> str:
    match server.isolation:
        case Isolation.SHARED:
            return ""
        case Isolation.PER_WORKSPACE:
            return f"workspace:{caller.workspace_id}"
        case Isolation.PER_KEY:
            return f"key:{caller.key_id}"
        case Isolation.PER_SESSION:
            return f"key:{caller.key_id}" if session_id is None else _of_session(caller.workspace_id, session_id, caller.key_id)


def _of_session(workspace_id: int, session_id: str, key_id: str) -> str:
    # The id is only what the caller sends: neither another tenant nor another key may enter a session by naming it.
    # JSON, so that no id can contain the beginning of another holder's name.
    return f"workspace:{workspace_id} session:{json.dumps(session_id)} key:{key_id}"
