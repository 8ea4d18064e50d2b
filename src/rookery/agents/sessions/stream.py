"""
Following a session as it goes on: its events, in order, each as soon as it is written (D-62).

What this process writes wakes its followers at once; what others write is found by one look a second at all sessions that
are followed here. Each event is read once, whoever many follow; a follower that is behind reads for itself, a page at a time,
so that a slow one costs no memory.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field

import orjson
import structlog

from rookery.access.models import Caller
from rookery.agents.models.sessions import AgentSession, SessionEvent, SessionStatus, SessionUpdate
from rookery.agents.ports import SessionKeyVerifier
from rookery.agents.sessions.errors import TooManyStreams
from rookery.agents.sessions.permissions import can_read_session
from rookery.agents.store import session_events
from rookery.agents.store import sessions as store
from rookery.kernel.db import Database
from rookery.kernel.errors import NotFound
from rookery.kernel.events import AgentSessionEnded, AgentSessionUpdated, EventBus
from rookery.kernel.log_limits import FailureLog

MAX_STREAMS_PER_WORKSPACE = 200
"""Streams at once, in one process: each is a connection, of which all workspaces together have a thousand."""

_PAGE_SIZE = 100
_MAX_BUFFERED_EVENTS = 100
_MAX_BUFFERED_BYTES = 512 * 1024
_POLL_INTERVAL_S = 1.0
_POLLS_PER_KEY_CHECK = 5
"""So many looks between two at whether the followers' keys are still good."""

_log = structlog.stdlib.get_logger("rookery.agents")


@dataclass(slots=True, eq=False)
class _Subscriber:
    caller: Caller
    wakeup: asyncio.Event = field(default_factory=asyncio.Event)
    is_revoked: bool = False


@dataclass(slots=True, eq=False)
class _Channel:
    """
    Who follows one session, and its newest events, so that they are read once for all.

    Attributes:
        notify_count: How often there was news; *read_notify_count*: what that was when the last look began.
    """

    workspace_id: int
    session: AgentSession
    subscribers: set[_Subscriber] = field(default_factory=set[_Subscriber])
    buffer: deque[tuple[int, SessionEvent]] = field(default_factory=deque[tuple[int, SessionEvent]])
    buffer_bytes: int = 0
    read_lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    notify_count: int = 1
    read_notify_count: int = 0

    def notify(self) -> None:
        """Have every follower look."""
        self.notify_count += 1
        for follower in self.subscribers:
            follower.wakeup.set()

    def close(self) -> None:
        """Let every follower go."""
        for follower in self.subscribers:
            follower.is_revoked = True
        self.notify()

    @property
    def last_buffered_seq(self) -> int | None:
        """The number of the newest event that is kept here."""
        return self.buffer[-1][1].seq if self.buffer else None

    def append(self, events: Sequence[SessionEvent]) -> None:
        """Keep the newest of *events* for those who are no further behind."""
        for event in events:
            size = len(event.message) + len(orjson.dumps((event.data, event.state)))
            self.buffer.append((size, event))
            self.buffer_bytes += size
        while len(self.buffer) > _MAX_BUFFERED_EVENTS or (len(self.buffer) > 1 and self.buffer_bytes > _MAX_BUFFERED_BYTES):
            self.buffer_bytes -= self.buffer.popleft()[0]

    def clear(self) -> None:
        """Keep none: there is a gap before what comes now."""
        self.buffer.clear()
        self.buffer_bytes = 0

    def events_after(self, seq: int) -> list[SessionEvent] | None:
        """Return the events later than *seq*; None: they are not all kept here."""
        if not self.buffer or self.buffer[0][1].seq > seq + 1:
            return None
        return [event for _, event in self.buffer if event.seq > seq]


class SessionStreams:
    """Lets callers follow sessions; `aclose` ends all."""

    def __init__(
        self, *, db: Database, bus: EventBus, keys: SessionKeyVerifier, max_per_workspace: int = MAX_STREAMS_PER_WORKSPACE
    ) -> None:
        self._db = db
        self._keys = keys
        self._max_per_workspace = max_per_workspace
        self._channels: dict[str, _Channel] = {}
        self._poll_task: asyncio.Task[None] | None = None
        self._is_closed = False
        bus.subscribe(AgentSessionUpdated, self._on_event)
        bus.subscribe(AgentSessionEnded, self._on_event)

    def close_streams(self) -> None:
        """End every stream, and let none begin: the server stops."""
        self._is_closed = True
        for room in self._channels.values():
            room.close()

    async def aclose(self) -> None:
        """End every stream."""
        if self._poll_task is not None:
            self._poll_task.cancel()
            await asyncio.wait({self._poll_task})
        self.close_streams()

    async def open_session(self, caller: Caller, session_id: str) -> AgentSession:
        """
        Return the session to be followed.

        Raises:
            NotFound: There is none that *caller* may know of.
            TooManyStreams: The workspace follows as many as it may.
        """
        session = await self._db.lookup(lambda tx: store.find(tx, caller.workspace_id, session_id))
        if session is None or not can_read_session(caller, session):
            raise NotFound("session", session_id)
        theirs = sum(len(room.subscribers) for room in self._channels.values() if room.workspace_id == caller.workspace_id)
        if theirs >= self._max_per_workspace:
            raise TooManyStreams(self._max_per_workspace)
        return session

    async def follow(self, caller: Caller, session: AgentSession, *, after: int, required_scope: str) -> AsyncGenerator[SessionUpdate]:
        """
        Yield what happens in *open_session* later than the event *after*, until it has ended or the caller's key is not good any more.

        Args:
            required_scope: The scope that the key must keep.
        """
        follower = _Subscriber(caller)
        room = self._channels.setdefault(session.id, _Channel(session.workspace_id, session))
        room.subscribers.add(follower)
        if self._poll_task is None or self._poll_task.done():
            self._poll_task = asyncio.create_task(self._poll(required_scope), name="agents-following")
        shown: SessionStatus | None = None
        try:
            while True:
                follower.wakeup.clear()
                if follower.is_revoked or self._is_closed:
                    return
                events = await self._read_next(room, after)
                if events:
                    after = events[-1].seq
                now = room.session
                is_over = not now.is_open and after >= now.last_seq
                status = now.status if now.status is not shown and after >= now.last_seq else None
                if events or status is not None or is_over:
                    shown = status or shown
                    yield SessionUpdate(events=events, status=status, is_ended=is_over)
                if is_over:
                    return
                if not events:
                    await follower.wakeup.wait()
        finally:
            room.subscribers.discard(follower)
            if not room.subscribers:
                self._channels.pop(session.id, None)

    async def _read_next(self, channel: _Channel, after: int) -> list[SessionEvent]:
        await self._refresh_channel(channel)
        if after >= channel.session.last_seq:
            return []
        kept = channel.events_after(after)
        if kept is not None:
            return kept
        workspace_id, session_id = channel.workspace_id, channel.session.id
        return await self._db.read(lambda tx: session_events.list_after(tx, workspace_id, session_id, after, limit=_PAGE_SIZE))

    async def _refresh_channel(self, channel: _Channel) -> None:
        """Read what is new in the session, once for all who were woken by the same news."""
        async with channel.read_lock:
            if channel.read_notify_count == channel.notify_count:
                return
            channel.read_notify_count = channel.notify_count
            workspace_id, session_id = channel.workspace_id, channel.session.id
            session = await self._db.lookup(lambda tx: store.find(tx, workspace_id, session_id))
            if session is None:
                channel.close()  # its workspace was deleted
                return
            known = channel.session.last_seq if channel.last_buffered_seq is None else channel.last_buffered_seq
            if session.last_seq - known > _MAX_BUFFERED_EVENTS:
                channel.clear()
            elif session.last_seq > known:
                channel.append(
                    await self._db.read(
                        lambda tx: session_events.list_after(tx, workspace_id, session_id, known, limit=_MAX_BUFFERED_EVENTS)
                    )
                )
            channel.session = session

    def _on_event(self, event: AgentSessionUpdated | AgentSessionEnded) -> None:
        room = self._channels.get(event.session_id)
        if room is not None:
            room.notify()

    async def _poll(self, required_scope: str) -> None:
        looks = 0
        failures = FailureLog(_log, "agents.sessions_not_read")
        while self._channels:
            await asyncio.sleep(_POLL_INTERVAL_S)
            looks += 1
            try:
                await self._poll_sessions()
                if looks % _POLLS_PER_KEY_CHECK == 0:
                    await self._check_keys(required_scope)
            except Exception as error:  # noqa: BLE001 - the next look is another try, and without any followers would wait for ever
                failures.report(error)

    async def _poll_sessions(self) -> None:
        """Wake the followers of sessions in which another process wrote."""
        ids = list(self._channels)
        found = {session.id: session for session in await self._db.lookup(lambda tx: store.find_by_ids(tx, ids))}
        for session_id in ids:
            room, now = self._channels.get(session_id), found.get(session_id)
            if room is None:
                continue
            was = room.session
            if now is None or (now.last_seq, now.status) != (was.last_seq, was.status):
                room.notify()

    async def _check_keys(self, required_scope: str) -> None:
        """End the streams of keys that would not be let in any more, or not see the session."""
        followers = [(room, follower) for room in self._channels.values() for follower in room.subscribers]
        callers = {follower.caller.key_id: follower.caller for _, follower in followers}
        now = {key_id: await self._keys.refresh_caller(caller, required_scope) for key_id, caller in callers.items()}
        for room, follower in followers:
            caller = now.get(follower.caller.key_id)
            if caller is None or not can_read_session(caller, room.session):
                follower.is_revoked = True
                follower.wakeup.set()
