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
from rookery.agents.models.sessions import Followed, Session, SessionEvent, SessionStatus
from rookery.agents.ports import Keys
from rookery.agents.sessions.errors import TooManyStreams
from rookery.agents.sessions.reach import sees
from rookery.agents.store import session_events
from rookery.agents.store import sessions as store
from rookery.kernel.db import Database
from rookery.kernel.errors import NotFound
from rookery.kernel.events import AgentSessionEnded, AgentSessionNoted, Bus
from rookery.kernel.log_limits import FailureLog

MOST_PER_WORKSPACE = 200
"""Streams at once, in one process: each is a connection, of which all workspaces together have a thousand."""

_PAGE = 100
_KEPT = 100
_KEPT_BYTES = 512 * 1024
_LOOK_S = 1.0
_LOOKS_A_KEY = 5
"""So many looks between two at whether the followers' keys are still good."""

_log = structlog.stdlib.get_logger("rookery.agents")


@dataclass(slots=True, eq=False)
class _Follower:
    caller: Caller
    news: asyncio.Event = field(default_factory=asyncio.Event)
    is_refused: bool = False


@dataclass(slots=True, eq=False)
class _Room:
    """
    Who follows one session, and its newest events, so that they are read once for all.

    Attributes:
        wakes: How often there was news; *caught_up*: what that was when the last look began.
    """

    workspace_id: int
    session: Session
    followers: set[_Follower] = field(default_factory=set[_Follower])
    latest: deque[tuple[int, SessionEvent]] = field(default_factory=deque[tuple[int, SessionEvent]])
    size: int = 0
    looking: asyncio.Lock = field(default_factory=asyncio.Lock)
    wakes: int = 1
    caught_up: int = 0

    def wake(self) -> None:
        """Have every follower look."""
        self.wakes += 1
        for follower in self.followers:
            follower.news.set()

    def end(self) -> None:
        """Let every follower go."""
        for follower in self.followers:
            follower.is_refused = True
        self.wake()

    @property
    def last_kept(self) -> int | None:
        """The number of the newest event that is kept here."""
        return self.latest[-1][1].seq if self.latest else None

    def keep(self, events: Sequence[SessionEvent]) -> None:
        """Keep the newest of *events* for those who are no further behind."""
        for event in events:
            size = len(event.message) + len(orjson.dumps((event.data, event.state)))
            self.latest.append((size, event))
            self.size += size
        while len(self.latest) > _KEPT or (len(self.latest) > 1 and self.size > _KEPT_BYTES):
            self.size -= self.latest.popleft()[0]

    def forget(self) -> None:
        """Keep none: there is a gap before what comes now."""
        self.latest.clear()
        self.size = 0

    def after(self, seq: int) -> list[SessionEvent] | None:
        """Return the events later than *seq*; None: they are not all kept here."""
        if not self.latest or self.latest[0][1].seq > seq + 1:
            return None
        return [event for _, event in self.latest if event.seq > seq]


class Following:
    """Lets callers follow sessions; `aclose` ends all."""

    def __init__(self, *, db: Database, bus: Bus, keys: Keys, most_per_workspace: int = MOST_PER_WORKSPACE) -> None:
        self._db = db
        self._keys = keys
        self._most = most_per_workspace
        self._rooms: dict[str, _Room] = {}
        self._looking: asyncio.Task[None] | None = None
        self._is_over = False
        bus.subscribe(AgentSessionNoted, self._heard)
        bus.subscribe(AgentSessionEnded, self._heard)

    def hang_up(self) -> None:
        """End every stream, and let none begin: the server stops."""
        self._is_over = True
        for room in self._rooms.values():
            room.end()

    async def aclose(self) -> None:
        """End every stream."""
        if self._looking is not None:
            self._looking.cancel()
            await asyncio.wait({self._looking})
        self.hang_up()

    async def session(self, caller: Caller, session_id: str) -> Session:
        """
        Return the session to be followed.

        Raises:
            NotFound: There is none that *caller* may know of.
            TooManyStreams: The workspace follows as many as it may.
        """
        session = await self._db.quick(lambda tx: store.by_id(tx, caller.workspace_id, session_id))
        if session is None or not sees(caller, session):
            raise NotFound("session", session_id)
        theirs = sum(len(room.followers) for room in self._rooms.values() if room.workspace_id == caller.workspace_id)
        if theirs >= self._most:
            raise TooManyStreams(self._most)
        return session

    async def follow(self, caller: Caller, session: Session, *, after: int, needs: str) -> AsyncGenerator[Followed]:
        """
        Yield what happens in *session* later than the event *after*, until it has ended or the caller's key is not good any more.

        Args:
            needs: The scope that the key must keep.
        """
        follower = _Follower(caller)
        room = self._rooms.setdefault(session.id, _Room(session.workspace_id, session))
        room.followers.add(follower)
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look(needs), name="agents-following")
        shown: SessionStatus | None = None
        try:
            while True:
                follower.news.clear()
                if follower.is_refused or self._is_over:
                    return
                events = await self._next(room, after)
                if events:
                    after = events[-1].seq
                now = room.session
                is_over = not now.is_open and after >= now.last_seq
                status = now.status if now.status is not shown and after >= now.last_seq else None
                if events or status is not None or is_over:
                    shown = status or shown
                    yield Followed(events=events, status=status, is_over=is_over)
                if is_over:
                    return
                if not events:
                    await follower.news.wait()
        finally:
            room.followers.discard(follower)
            if not room.followers:
                self._rooms.pop(session.id, None)

    async def _next(self, room: _Room, after: int) -> list[SessionEvent]:
        await self._catch_up(room)
        if after >= room.session.last_seq:
            return []
        kept = room.after(after)
        if kept is not None:
            return kept
        workspace_id, session_id = room.workspace_id, room.session.id
        return await self._db.read(lambda tx: session_events.after(tx, workspace_id, session_id, after, limit=_PAGE))

    async def _catch_up(self, room: _Room) -> None:
        """Read what is new in the session, once for all who were woken by the same news."""
        async with room.looking:
            if room.caught_up == room.wakes:
                return
            room.caught_up = room.wakes
            workspace_id, session_id = room.workspace_id, room.session.id
            session = await self._db.quick(lambda tx: store.by_id(tx, workspace_id, session_id))
            if session is None:
                room.end()  # its workspace was deleted
                return
            known = room.session.last_seq if room.last_kept is None else room.last_kept
            if session.last_seq - known > _KEPT:
                room.forget()
            elif session.last_seq > known:
                room.keep(await self._db.read(lambda tx: session_events.after(tx, workspace_id, session_id, known, limit=_KEPT)))
            room.session = session

    def _heard(self, event: AgentSessionNoted | AgentSessionEnded) -> None:
        room = self._rooms.get(event.session_id)
        if room is not None:
            room.wake()

    async def _look(self, needs: str) -> None:
        looks = 0
        failures = FailureLog(_log, "agents.sessions_not_read")
        while self._rooms:
            await asyncio.sleep(_LOOK_S)
            looks += 1
            try:
                await self._look_at_sessions()
                if looks % _LOOKS_A_KEY == 0:
                    await self._look_at_keys(needs)
            except Exception as error:  # noqa: BLE001 - the next look is another try, and without any followers would wait for ever
                failures.report(error)

    async def _look_at_sessions(self) -> None:
        """Wake the followers of sessions in which another process wrote."""
        ids = list(self._rooms)
        found = {session.id: session for session in await self._db.quick(lambda tx: store.by_ids(tx, ids))}
        for session_id in ids:
            room, now = self._rooms.get(session_id), found.get(session_id)
            if room is None:
                continue
            was = room.session
            if now is None or (now.last_seq, now.status) != (was.last_seq, was.status):
                room.wake()

    async def _look_at_keys(self, needs: str) -> None:
        """End the streams of keys that would not be let in any more, or not see the session."""
        followers = [(room, follower) for room in self._rooms.values() for follower in room.followers]
        callers = {follower.caller.key_id: follower.caller for _, follower in followers}
        now = {key_id: await self._keys.still(caller, needs) for key_id, caller in callers.items()}
        for room, follower in followers:
            caller = now.get(follower.caller.key_id)
            if caller is None or not sees(caller, room.session):
                follower.is_refused = True
                follower.news.set()
