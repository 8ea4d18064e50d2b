"""
Streams of session events, in order and as soon as they are stored.

A write by this process wakes its subscribers at once, and so does one by another process if the record store has a channel for wake-ups.
One poll a second over all followed sessions finds the others. Each event is read once for all subscribers of a session. A subscriber that
falls behind reads pages from the database, so a slow one costs no memory.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field

import orjson
import structlog

from rookery.access.models import Caller
from rookery.agents.events import AgentSessionEnded, AgentSessionUpdated
from rookery.agents.models.sessions import AgentSession, SessionEvent, SessionStatus, SessionUpdate
from rookery.agents.ports import SessionKeyVerifier
from rookery.agents.sessions.access import can_read_session
from rookery.agents.sessions.errors import TooManyStreams
from rookery.agents.store import session_events
from rookery.agents.store import sessions as store
from rookery.agents.store.tables import SESSIONS
from rookery.kernel.db import Database
from rookery.kernel.errors import NotFound
from rookery.kernel.events import EventBus
from rookery.kernel.logs import FailureLog
from rookery.kernel.wakeups import Wakeups

MAX_STREAMS_PER_WORKSPACE = 200
"""Open streams of one workspace in one process. Each uses one of the 1,000 connections that all workspaces share."""

_PAGE_SIZE = 100
_MAX_BUFFERED_EVENTS = 100
_MAX_BUFFERED_BYTES = 512 * 1024
_WAKEUP_TOPIC = "sessions"
_POLL_INTERVAL_S = 1.0

_log = structlog.stdlib.get_logger("rookery.agents")


@dataclass(slots=True, eq=False)
class _Subscriber:
    caller: Caller
    wakeup: asyncio.Event = field(default_factory=asyncio.Event)
    is_revoked: bool = False


@dataclass(slots=True, eq=False)
class _Channel:
    """
    The subscribers of one session and a buffer of its newest events.

    Attributes:
        notify_count: The number of notifications.
        read_notify_count: The value of *notify_count* when the last read started.
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
        """Wake all subscribers."""
        self.notify_count += 1
        for subscriber in self.subscribers:
            subscriber.wakeup.set()

    def close(self) -> None:
        """End the streams of all subscribers."""
        for subscriber in self.subscribers:
            subscriber.is_revoked = True
        self.notify()

    @property
    def last_buffered_seq(self) -> int | None:
        """The seq of the newest event in the buffer, or None."""
        return self.buffer[-1][1].seq if self.buffer else None

    def append(self, events: Sequence[SessionEvent]) -> None:
        """Add *events* to the buffer, and drop the oldest events beyond its limits."""
        for event in events:
            size = len(event.message) + len(orjson.dumps((event.data, event.state)))
            self.buffer.append((size, event))
            self.buffer_bytes += size
        while len(self.buffer) > _MAX_BUFFERED_EVENTS or (len(self.buffer) > 1 and self.buffer_bytes > _MAX_BUFFERED_BYTES):
            self.buffer_bytes -= self.buffer.popleft()[0]

    def clear(self) -> None:
        """Empty the buffer, when the next events do not follow the buffered ones directly."""
        self.buffer.clear()
        self.buffer_bytes = 0

    def events_after(self, seq: int) -> list[SessionEvent] | None:
        """Return the events with a greater seq than *seq*, or None if the buffer does not have all of them."""
        if not self.buffer or self.buffer[0][1].seq > seq + 1:
            return None
        return [event for _, event in self.buffer if event.seq > seq]


class SessionStreams:
    """Streams sessions to subscribers. `aclose` ends all streams."""

    def __init__(
        self,
        *,
        db: Database,
        bus: EventBus,
        wakeups: Wakeups,
        keys: SessionKeyVerifier,
        max_per_workspace: int = MAX_STREAMS_PER_WORKSPACE,
    ) -> None:
        self._wakeups = wakeups
        self._db = db
        self._keys = keys
        self._max_per_workspace = max_per_workspace
        self._channels: dict[str, _Channel] = {}
        self._poll_task: asyncio.Task[None] | None = None
        self._is_closed = False
        bus.subscribe(AgentSessionUpdated, self._on_event)
        bus.subscribe(AgentSessionEnded, self._on_event)
        wakeups.subscribe(_WAKEUP_TOPIC, self._on_wakeup)

    def close_streams(self) -> None:
        """End all streams and reject new ones, because the server is stopping."""
        self._is_closed = True
        for channel in self._channels.values():
            channel.close()

    async def aclose(self) -> None:
        """End all streams and the polling task."""
        if self._poll_task is not None:
            self._poll_task.cancel()
            await asyncio.wait({self._poll_task})
        self.close_streams()

    async def open_session(self, caller: Caller, session_id: str) -> AgentSession:
        """
        Return the session to stream.

        Raises:
            NotFound: The session does not exist, or *caller* has no access to it.
            TooManyStreams: The workspace has reached its limit of open streams.
        """
        session = await self._db.lookup(lambda tx: SESSIONS.find(tx, caller.workspace_id, id=session_id))
        if session is None or not can_read_session(caller, session):
            raise NotFound("session", session_id)
        open_streams = sum(len(channel.subscribers) for channel in self._channels.values() if channel.workspace_id == caller.workspace_id)
        if open_streams >= self._max_per_workspace:
            raise TooManyStreams(self._max_per_workspace)
        return session

    async def follow(self, caller: Caller, session: AgentSession, *, after: int, required_scope: str) -> AsyncGenerator[SessionUpdate]:
        """
        Yield the updates of *session* with a greater seq than *after*, until it ends or the key of *caller* loses access.

        Args:
            required_scope: The scope that the key must have during the stream.
        """
        subscriber = _Subscriber(caller)
        channel = self._channels.setdefault(session.id, _Channel(session.workspace_id, session))
        channel.subscribers.add(subscriber)
        if self._poll_task is None or self._poll_task.done():
            self._poll_task = asyncio.create_task(self._poll(required_scope), name="agents-following")
        sent_status: SessionStatus | None = None
        try:
            while True:
                subscriber.wakeup.clear()
                if subscriber.is_revoked or self._is_closed:
                    return
                events = await self._read_next(channel, after)
                if events:
                    after = events[-1].seq
                current = channel.session
                is_ended = not current.is_open and after >= current.last_seq
                status = current.status if current.status is not sent_status and after >= current.last_seq else None
                if events or status is not None or is_ended:
                    sent_status = status or sent_status
                    yield SessionUpdate(events=events, status=status, is_ended=is_ended)
                if is_ended:
                    return
                if not events:
                    await subscriber.wakeup.wait()
        finally:
            channel.subscribers.discard(subscriber)
            if not channel.subscribers:
                self._channels.pop(session.id, None)

    async def _read_next(self, channel: _Channel, after: int) -> list[SessionEvent]:
        await self._refresh_channel(channel)
        if after >= channel.session.last_seq:
            return []
        buffered = channel.events_after(after)
        if buffered is not None:
            return buffered
        workspace_id, session_id = channel.workspace_id, channel.session.id
        return await self._db.read(lambda tx: session_events.list_after(tx, workspace_id, session_id, after, limit=_PAGE_SIZE))

    async def _refresh_channel(self, channel: _Channel) -> None:
        """Read the new events of the session, once for all subscribers that the same notification woke."""
        async with channel.read_lock:
            if channel.read_notify_count == channel.notify_count:
                return
            channel.read_notify_count = channel.notify_count
            workspace_id, session_id = channel.workspace_id, channel.session.id
            session = await self._db.lookup(lambda tx: SESSIONS.find(tx, workspace_id, id=session_id))
            if session is None:
                channel.close()  # The workspace was deleted.
                return
            last_seq = channel.session.last_seq if channel.last_buffered_seq is None else channel.last_buffered_seq
            if session.last_seq - last_seq > _MAX_BUFFERED_EVENTS:
                channel.clear()
            elif session.last_seq > last_seq:
                channel.append(
                    await self._db.read(
                        lambda tx: session_events.list_after(tx, workspace_id, session_id, last_seq, limit=_MAX_BUFFERED_EVENTS)
                    )
                )
            channel.session = session

    def _on_event(self, event: AgentSessionUpdated | AgentSessionEnded) -> None:
        channel = self._channels.get(event.session_id)
        if channel is not None:
            channel.notify()
        self._wakeups.send(_WAKEUP_TOPIC, event.session_id)

    def _on_wakeup(self, session_id: str | None) -> None:
        for channel in self._channels.values():
            if session_id is None or session_id == channel.session.id:
                channel.notify()

    async def _poll(self, required_scope: str) -> None:
        failures = FailureLog(_log, "agents.sessions_not_read")
        while self._channels:
            await asyncio.sleep(_POLL_INTERVAL_S)
            try:
                await self._poll_sessions()
                await self._check_keys(required_scope)
            except Exception as error:  # noqa: BLE001 - the next poll tries again; without polls, subscribers would wait forever
                failures.report(error)

    async def _poll_sessions(self) -> None:
        """Wake the subscribers of sessions that another process has written to."""
        ids = list(self._channels)
        sessions_by_id = {session.id: session for session in await self._db.lookup(lambda tx: store.find_by_ids(tx, ids))}
        for session_id in ids:
            channel, current = self._channels.get(session_id), sessions_by_id.get(session_id)
            if channel is None:
                continue
            known_session = channel.session
            if current is None or (current.last_seq, current.status) != (known_session.last_seq, known_session.status):
                channel.notify()

    async def _check_keys(self, required_scope: str) -> None:
        """End the streams of keys that are no longer valid or have lost access to the session."""
        subscribers = [(channel, subscriber) for channel in self._channels.values() for subscriber in channel.subscribers]
        callers = {subscriber.caller.key_id: subscriber.caller for _, subscriber in subscribers}
        refreshed = {key_id: await self._keys.refresh_caller(caller, required_scope) for key_id, caller in callers.items()}
        for channel, subscriber in subscribers:
            caller = refreshed.get(subscriber.caller.key_id)
            if caller is None or not can_read_session(caller, channel.session):
                subscriber.is_revoked = True
                subscriber.wakeup.set()
