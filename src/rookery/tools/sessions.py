"""All sessions with upstreams: which caller gets which, and how each server does (D-32, D-33)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from rookery.access.models import Caller
from rookery.kernel.clock import Clock, utc_now
from rookery.kernel.events import Bus, ServerHealthChanged
from rookery.tools.errors import ConnectFailed
from rookery.tools.models import Health, Isolation, Kind, Lifecycle, Server
from rookery.tools.ports import Connection, Connector
from rookery.tools.supervised import Session, Timing

_CLOSE_S = 5.0
_SPARE = "spare"
"""Who holds a session that no caller has used yet: a probe's. The first caller to need one takes it over."""


@dataclass(slots=True, kw_only=True)
class Condition:
    """How a server did lately, over all its sessions."""

    health: Health = Health.UNKNOWN
    last_error: str = ""
    changed_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Listeners:
    """Who hears of openings and of changed lists; each is called in the loop and must not wait."""

    opened: list[Callable[[Session, Connection], None]] = field(default_factory=list[Callable[[Session, Connection], None]])
    changed: list[Callable[[Server], None]] = field(default_factory=list[Callable[[Server], None]])


class Sessions:
    """Every session, each in a task of its own under one group; `start` before use, `aclose` after."""

    def __init__(
        self,
        connectors: Mapping[Kind, Connector],
        *,
        timing: Timing | None = None,
        bus: Bus | None = None,
        clock: Clock = utc_now,
    ) -> None:
        self.listeners = Listeners()
        self._connectors = connectors
        self._timing = timing or Timing()
        self._clock = clock
        self._bus = bus or Bus()
        self._sessions: dict[tuple[str, str], Session] = {}
        self._retired: set[Session] = set()
        self._conditions: dict[str, Condition] = {}
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
        for session in (*self._sessions.values(), *self._retired):
            session.stop()
        if self._owner is not None:
            with contextlib.suppress(TimeoutError, asyncio.CancelledError):
                await asyncio.wait_for(self._owner, _CLOSE_S)

    def session(self, server: Server, caller: Caller, session_id: str | None) -> Session:
        """Return the session that *caller* has with *server* by the server's isolation; it need not be open yet."""
        return self._session(server, _holder(server, caller, session_id))

    def spare(self, server: Server) -> Session:
        """Return a session to look at the server with, for no caller: the shared one, or one still to be given to somebody."""
        return self._session(server, "" if server.isolation is Isolation.SHARED else _SPARE)

    def release_spare(self, server: Server) -> None:
        """Close what `spare` gave, unless a caller took it over meanwhile or the server is kept warm."""
        session = self._sessions.get((server.key, _SPARE))
        if session is not None and server.lifecycle is Lifecycle.LAZY:
            session.stop()

    def retire(self, server_key: str) -> None:
        """Let no new call into the sessions of a server whose entry changed or went; those running may end."""
        for key in [key for key in self._sessions if key[0] == server_key]:
            self._retire(key)
        self._conditions.pop(server_key, None)

    def end_session(self, workspace_id: int, session_id: str) -> None:
        """Close what was held for one agent session of a workspace (D-38)."""
        for (_, holder), session in list(self._sessions.items()):
            if holder == _of_session(workspace_id, session_id):
                session.stop()

    def condition(self, server: Server) -> Condition:
        """Return how the server does."""
        if server.fault is not None:
            return Condition(health=Health.OFFLINE, last_error=server.fault)
        return self._conditions.setdefault(server.key, Condition())

    def of(self, server_key: str) -> list[Session]:
        """Return the sessions there are with a server."""
        return [session for (held, _), session in self._sessions.items() if held == server_key]

    def note(self, server: Server, health: Health, error: str = "") -> None:
        """Keep how a server did just now."""
        condition = self._conditions.setdefault(server.key, Condition())
        has_changed = condition.health is not health
        condition.health, condition.last_error = health, error
        if has_changed:
            condition.changed_at = self._clock()
            changed = ServerHealthChanged(server=server.id, health=health.value, reason=error or None, at=condition.changed_at)
            self._bus.publish(changed)

    def _session(self, server: Server, holder: str) -> Session:
        key = (server.key, holder)
        session = self._sessions.get(key)
        if session is not None and not session.is_stopping and session.server is server:
            return session
        if session is not None:
            self._retire(key)
        spare = self._sessions.get((server.key, _SPARE))
        if holder != _SPARE and spare is not None and not spare.is_stopping and spare.server is server:
            del self._sessions[server.key, _SPARE]
            self._sessions[key] = spare
            return spare
        if self._tasks is None or self._stopping.is_set():
            raise RuntimeError("sessions are opened between start and aclose")
        session = Session(
            server,
            self._connectors[server.kind],
            timing=self._timing,
            on_opened=self._opened,
            on_down=self._down,
            on_changed=self._changed,
        )
        self._sessions[key] = session
        self._tasks.create_task(self._run(session), name=f"tools-session-{server.key}")
        return session

    def _retire(self, key: tuple[str, str]) -> None:
        session = self._sessions.pop(key)
        self._retired.add(session)
        session.retire()

    async def _own(self, started: asyncio.Event) -> None:
        async with asyncio.TaskGroup() as self._tasks:
            started.set()
            await self._stopping.wait()

    async def _run(self, session: Session) -> None:
        try:
            await session.run()
        finally:
            for key in [key for key, each in self._sessions.items() if each is session]:
                del self._sessions[key]
            self._retired.discard(session)

    def _opened(self, session: Session, connection: Connection) -> None:
        if session in self._retired:
            return
        self.note(session.server, Health.ONLINE)
        for listener in self.listeners.opened:
            listener(session, connection)

    def _down(self, session: Session, failure: ConnectFailed) -> None:
        if session in self._retired:
            return  # of an entry that is no more: it tells nothing of how the server does now
        others = [each for each in self.of(session.server.key) if each is not session and each.is_open]
        health = Health.NEEDS_LOGIN if failure.needs_login else Health.DEGRADED if others else Health.OFFLINE
        self.note(session.server, health, str(failure))

    def _changed(self, session: Session) -> None:
        for listener in self.listeners.changed:
            listener(session.server)


def _holder(server: Server, caller: Caller, session_id: str | None) -> str:
    match server.isolation:
        case Isolation.SHARED:
            return ""
        case Isolation.PER_WORKSPACE:
            return f"workspace:{caller.workspace_id}"
        case Isolation.PER_KEY:
            return f"key:{caller.key_id}"
        case Isolation.PER_SESSION:
            return f"key:{caller.key_id}" if session_id is None else _of_session(caller.workspace_id, session_id)


def _of_session(workspace_id: int, session_id: str) -> str:
    # Of the workspace too: the id is the caller's word, and no word of theirs may open another tenant's session.
    return f"workspace:{workspace_id} session:{session_id}"
