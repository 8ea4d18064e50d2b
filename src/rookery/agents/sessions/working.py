"""What is done in sessions that there are: look, note, change, say that one is still there (D-62)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

import orjson

from rookery.access.models import Caller
from rookery.agents.errors import WrongTransition
from rookery.agents.models.plans import Within
from rookery.agents.models.sessions import (
    EventType,
    Happening,
    Session,
    SessionChange,
    SessionEvent,
    SessionFilter,
    SessionStatus,
    Shown,
)
from rookery.agents.plans.holding import the_plan
from rookery.agents.ports import ToolCalls
from rookery.agents.sessions.ending import held, mine, touched, write_handoff
from rookery.agents.sessions.errors import NothingOffered, SessionEnded, SessionFull
from rookery.agents.sessions.reach import sees
from rookery.agents.store import handoffs, plans, session_events, work_done
from rookery.agents.store import sessions as store
from rookery.kernel.clock import Clock
from rookery.kernel.db import Database, Tx
from rookery.kernel.errors import NotFound
from rookery.kernel.events import AgentSessionNoted, Bus
from rookery.kernel.preconditions import Expected, require_match

MAX_EVENTS = 100_000
"""Of one session."""

MAX_BYTES = 64 * 1024 * 1024
"""What the events of one session may take together: checkpoints are up to 256 KiB each."""


class Working:
    """What may be done in a session; one that the caller may not know of is not there."""

    def __init__(self, *, db: Database, bus: Bus, clock: Clock, tool_calls: ToolCalls) -> None:
        self._db = db
        self._bus = bus
        self._clock = clock
        self._tool_calls = tool_calls

    async def get(self, caller: Caller, session_id: str) -> Shown:
        """
        Return a session.

        Raises:
            NotFound: There is none that *caller* may know of.
        """
        found = await self._db.read(lambda tx: self.seen_in(tx, caller, session_id))
        if found is None:
            raise NotFound("session", session_id)
        return found

    def seen_in(self, tx: Tx, caller: Caller, session_id: str) -> Shown | None:
        """Return a session as it is in *tx*; None: there is none that *caller* may know of."""
        session = store.by_id(tx, caller.workspace_id, session_id)
        return None if session is None or not sees(caller, session) else self._shown(tx, [session])[0]

    async def page(self, caller: Caller, wanted: SessionFilter, *, plan: str | None, limit: int, offset: int) -> tuple[list[Shown], int]:
        """
        Return a stretch of the sessions asked for that *caller* may know of, newest first, and how many there are in all.

        Args:
            plan: Only those on it, by id or slug; None: on any or none.

        Raises:
            NotFound: There is no such plan.
        """
        caller.require_listed(org=wanted.org, project=wanted.project)
        wanted = replace(wanted, orgs=caller.orgs, projects=caller.projects)

        def read(tx: Tx) -> tuple[list[Shown], int]:
            of = wanted if plan is None else replace(wanted, plan_id=the_plan(tx, Within.of(caller), plan).id)
            found, total = store.page(tx, caller.workspace_id, of, limit=limit, offset=offset)
            return self._shown(tx, found), total

        return await self._db.read(read)

    async def shown(self, session: Session) -> Shown:
        """Return *session* with what is shown beside it."""
        return (await self._db.read(lambda tx: self._shown(tx, [session])))[0]

    async def change(self, caller: Caller, session_id: str, change: SessionChange, *, expected: Expected = None) -> Session:
        """
        Change what *change* gives and return the session.

        Args:
            expected: The ETags of If-Match.

        Raises:
            NotFound: There is none that *caller* may know of.
            PermissionDenied: It is another agent's.
            SessionEnded: It is over.
            PreconditionFailed: It has another version.
            NothingOffered: There is no hand-off to acknowledge.
        """
        now = self._clock()

        def write(tx: Tx) -> Session:
            was = held(tx, caller, session_id)
            require_match("session", was.version, expected)
            if not was.is_open:
                raise SessionEnded(was)
            changed = _changed(was, change)
            if "handoff" in change.given and change.handoff is not None:
                write_handoff(tx, was, change.handoff, at=now)
            if "acknowledge" in change.given:
                if was.offered_id is None:
                    raise NothingOffered(was.id)
                handoffs.take(tx, was.workspace_id, was.offered_id, by=was.id, how=change.acknowledge, at=now)
            changed = replace(changed, last_activity_at=max(now, was.last_activity_at), version=was.version + 1)
            store.change(tx, changed)
            if changed.status is not was.status:
                self._tell(tx, changed, now)
            return changed

        return await self._db.write(write)

    async def heartbeat(self, caller: Caller, session_id: str, *, expected: Expected = None) -> Session:
        """
        Say that the agent is still there, and return the session.

        Raises: as `append`.
        """
        now = self._clock()

        def write(tx: Tx) -> Session:
            session = touched(tx, caller, session_id, at=now)
            require_match("session", session.version, expected)
            return session

        return await self._db.write(write)

    async def append(self, caller: Caller, session_id: str, happening: Happening, *, expected: Expected = None) -> SessionEvent:
        """
        Write down what happened, under the next number, and return it.

        Raises:
            NotFound: There is no session that *caller* may know of.
            PermissionDenied: It is another agent's.
            SessionEnded: It is over.
            SessionFull: It has as many events as it may.
            PreconditionFailed: *expected* names another version of the session.
        """
        now = self._clock()
        size = sum(len(orjson.dumps(each)) for each in (happening.message, happening.data, happening.state))

        def write(tx: Tx) -> SessionEvent:
            counted = store.count_event(
                tx,
                caller.workspace_id,
                session_id,
                size=size,
                tokens_in=happening.tokens_in,
                tokens_out=happening.tokens_out,
                at=now,
            )
            session = mine(tx, caller, session_id, counted)
            require_match("session", session.version, expected)
            if session.last_seq > MAX_EVENTS:
                raise SessionFull(session.id, f"{MAX_EVENTS:,}")
            if session.size > MAX_BYTES:
                raise SessionFull(session.id, f"{MAX_BYTES // 1024**2} MiB")
            event = SessionEvent(
                session_id=session.id,
                workspace_id=session.workspace_id,
                seq=session.last_seq,
                type=happening.type,
                message=happening.message,
                data=happening.data,
                state=happening.state,
                task_id=happening.task_id,
                tokens_in=happening.tokens_in,
                tokens_out=happening.tokens_out,
                created_at=now,
            )
            session_events.add(tx, event)
            self._tell(tx, session, now)
            return event

        return await self._db.write(write)

    async def events(
        self, caller: Caller, session_id: str, *, after: int, kind: EventType | None, limit: int, offset: int
    ) -> tuple[list[SessionEvent], int]:
        """
        Return a stretch of the events later than *after*, in order, and how many there are in all.

        Raises:
            NotFound: There is no session that *caller* may know of.
        """

        def read(tx: Tx) -> tuple[list[SessionEvent], int] | None:
            session = store.by_id(tx, caller.workspace_id, session_id)
            if session is None or not sees(caller, session):
                return None
            return session_events.page(tx, caller.workspace_id, session_id, after, kind, limit=limit, offset=offset)

        found = await self._db.read(read)
        if found is None:
            raise NotFound("session", session_id)
        return found

    def _shown(self, tx: Tx, found: Sequence[Session]) -> list[Shown]:
        if not found:
            return []
        workspace_id, ids = found[0].workspace_id, [session.id for session in found]
        written = handoffs.of_sessions(tx, workspace_id, ids)
        calls = self._tool_calls.of_sessions(tx, workspace_id, ids)
        completed = work_done.tasks_completed(tx, workspace_id, ids)
        worked_on = plans.by_ids(tx, sorted({session.plan_id for session in found if session.plan_id is not None}))
        slugs = {plan.id: plan.slug for plan in worked_on.values()}
        return [
            Shown(
                session=session,
                plan_slug=None if session.plan_id is None else slugs.get(session.plan_id),
                handoff=written.get(session.id),
                tool_calls=calls.get(session.id, 0),
                tasks_completed=completed.get(session.id, 0),
            )
            for session in found
        ]

    def _tell(self, tx: Tx, session: Session, at: datetime) -> None:
        event = AgentSessionNoted(workspace_id=session.workspace_id, session_id=session.id, seq=session.last_seq, at=at)
        self._bus.announce(tx, event)


def _changed(was: Session, change: SessionChange) -> Session:
    changed = was
    if "status" in change.given:
        if change.status not in (SessionStatus.ACTIVE, SessionStatus.PAUSED):
            raise WrongTransition("session", was.id, was.status.value, change.status.value, allowed=["active", "paused"])
        changed = replace(changed, status=change.status)
    if "goal" in change.given:
        changed = replace(changed, goal=change.goal)
    if "context" in change.given:
        changed = replace(changed, context=change.context)
    if "summary" in change.given:
        changed = replace(changed, summary=change.summary)
    return changed
