"""What is done in sessions that there are: look, note, change, say that one is still there (D-62)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

import orjson

from rookery.access.models import Caller
from rookery.agents.errors import WrongTransition
from rookery.agents.models.plans import PlanAccessFilter
from rookery.agents.models.sessions import (
    AgentSession,
    NewSessionEvent,
    SessionChange,
    SessionEvent,
    SessionEventType,
    SessionFilter,
    SessionStatus,
    SessionView,
)
from rookery.agents.plans.locking import get_plan
from rookery.agents.ports import ToolCallCounter
from rookery.agents.sessions.end import lock_session, require_open_session, touch_session, write_handoff
from rookery.agents.sessions.errors import NoHandoffOffered, SessionEnded, SessionFull
from rookery.agents.sessions.permissions import can_read_session
from rookery.agents.store import handoffs, plans, session_events
from rookery.agents.store import sessions as store
from rookery.kernel.clock import Clock
from rookery.kernel.db import Database, Tx
from rookery.kernel.errors import NotFound
from rookery.kernel.events import AgentSessionUpdated, EventBus
from rookery.kernel.preconditions import ExpectedETags, require_match

MAX_EVENTS_PER_SESSION = 100_000
"""Of one session."""

MAX_EVENT_BYTES_PER_SESSION = 64 * 1024 * 1024
"""What the events of one session may take together: checkpoints are up to 256 KiB each."""


class SessionRecords:
    """What may be done in a session; one that the caller may not know of is not there."""

    def __init__(self, *, db: Database, bus: EventBus, clock: Clock, tool_calls: ToolCallCounter) -> None:
        self._db = db
        self._bus = bus
        self._clock = clock
        self._tool_calls = tool_calls

    async def get(self, caller: Caller, session_id: str) -> SessionView:
        """
        Return a session.

        Raises:
            NotFound: There is none that *caller* may know of.
        """
        found = await self._db.read(lambda tx: self.find_view(tx, caller, session_id))
        if found is None:
            raise NotFound("session", session_id)
        return found

    def find_view(self, tx: Tx, caller: Caller, session_id: str) -> SessionView | None:
        """Return a session as it is in *tx*; None: there is none that *caller* may know of."""
        session = store.find(tx, caller.workspace_id, session_id)
        return None if session is None or not can_read_session(caller, session) else self._load_views(tx, [session])[0]

    async def list_page(
        self, caller: Caller, filters: SessionFilter, *, plan: str | None, limit: int, offset: int
    ) -> tuple[list[SessionView], int]:
        """
        Return a stretch of the sessions asked for that *caller* may know of, newest first, and how many there are in all.

        Args:
            plan: Only those on it, by id or slug; None: on any or none.

        Raises:
            NotFound: There is no such plan.
        """
        caller.require_in_allow_lists(org=filters.org, project=filters.project)
        filters = replace(filters, orgs=caller.orgs, projects=caller.projects)

        def read(tx: Tx) -> tuple[list[SessionView], int]:
            of = filters if plan is None else replace(filters, plan_id=get_plan(tx, PlanAccessFilter.from_caller(caller), plan).id)
            found, total = store.list_page(tx, caller.workspace_id, of, limit=limit, offset=offset)
            return self._load_views(tx, found), total

        return await self._db.read(read)

    async def load_view(self, session: AgentSession) -> SessionView:
        """Return *session* with what is shown beside it."""
        return (await self._db.read(lambda tx: self._load_views(tx, [session])))[0]

    async def change(self, caller: Caller, session_id: str, change: SessionChange, *, expected: ExpectedETags = None) -> AgentSession:
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

        def write(tx: Tx) -> AgentSession:
            was = lock_session(tx, caller, session_id)
            require_match("session", was.version, expected)
            if not was.is_open:
                raise SessionEnded(was)
            changed = _apply_change(was, change)
            if "handoff" in change.fields_set and change.handoff is not None:
                write_handoff(tx, was, change.handoff, at=now)
            if "acknowledge" in change.fields_set:
                if was.offered_id is None:
                    raise NoHandoffOffered(was.id)
                handoffs.mark_taken(tx, was.workspace_id, was.offered_id, taken_by=was.id, outcome=change.acknowledge, at=now)
            changed = replace(changed, last_activity_at=max(now, was.last_activity_at), version=was.version + 1)
            store.change(tx, changed)
            if changed.status is not was.status:
                self._announce(tx, changed, now)
            return changed

        return await self._db.write(write)

    async def heartbeat(self, caller: Caller, session_id: str, *, expected: ExpectedETags = None) -> AgentSession:
        """
        Say that the agent is still there, and return the session.

        Raises: as `append`.
        """
        now = self._clock()

        def write(tx: Tx) -> AgentSession:
            session = touch_session(tx, caller, session_id, at=now)
            require_match("session", session.version, expected)
            return session

        return await self._db.write(write)

    async def append(self, caller: Caller, session_id: str, new_event: NewSessionEvent, *, expected: ExpectedETags = None) -> SessionEvent:
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
        size = sum(len(orjson.dumps(each)) for each in (new_event.message, new_event.data, new_event.state))

        def write(tx: Tx) -> SessionEvent:
            counted = store.reserve_event(
                tx,
                caller.workspace_id,
                session_id,
                size=size,
                tokens_in=new_event.tokens_in,
                tokens_out=new_event.tokens_out,
                at=now,
            )
            session = require_open_session(tx, caller, session_id, counted)
            require_match("session", session.version, expected)
            if session.last_seq > MAX_EVENTS_PER_SESSION:
                raise SessionFull(session.id, f"{MAX_EVENTS_PER_SESSION:,}")
            if session.size > MAX_EVENT_BYTES_PER_SESSION:
                raise SessionFull(session.id, f"{MAX_EVENT_BYTES_PER_SESSION // 1024**2} MiB")
            event = SessionEvent(
                session_id=session.id,
                workspace_id=session.workspace_id,
                seq=session.last_seq,
                type=new_event.type,
                message=new_event.message,
                data=new_event.data,
                state=new_event.state,
                task_id=new_event.task_id,
                tokens_in=new_event.tokens_in,
                tokens_out=new_event.tokens_out,
                created_at=now,
            )
            session_events.add(tx, event)
            self._announce(tx, session, now)
            return event

        return await self._db.write(write)

    async def list_events(
        self, caller: Caller, session_id: str, *, after: int, event_type: SessionEventType | None, limit: int, offset: int
    ) -> tuple[list[SessionEvent], int]:
        """
        Return a stretch of the events later than *after*, in order, and how many there are in all.

        Raises:
            NotFound: There is no session that *caller* may know of.
        """

        def read(tx: Tx) -> tuple[list[SessionEvent], int] | None:
            session = store.find(tx, caller.workspace_id, session_id)
            if session is None or not can_read_session(caller, session):
                return None
            return session_events.list_page(tx, caller.workspace_id, session_id, after, event_type, limit=limit, offset=offset)

        found = await self._db.read(read)
        if found is None:
            raise NotFound("session", session_id)
        return found

    def _load_views(self, tx: Tx, found: Sequence[AgentSession]) -> list[SessionView]:
        if not found:
            return []
        workspace_id, ids = found[0].workspace_id, [session.id for session in found]
        written = handoffs.find_by_sessions(tx, workspace_id, ids)
        calls = self._tool_calls.count_by_session(tx, workspace_id, ids)
        completed = plans.count_completed_tasks(tx, workspace_id, ids)
        worked_on = plans.find_by_ids(tx, sorted({session.plan_id for session in found if session.plan_id is not None}))
        slugs = {plan.id: plan.slug for plan in worked_on.values()}
        return [
            SessionView(
                session=session,
                plan_slug=None if session.plan_id is None else slugs.get(session.plan_id),
                handoff=written.get(session.id),
                tool_calls=calls.get(session.id, 0),
                tasks_completed=completed.get(session.id, 0),
            )
            for session in found
        ]

    def _announce(self, tx: Tx, session: AgentSession, at: datetime) -> None:
        event = AgentSessionUpdated(workspace_id=session.workspace_id, session_id=session.id, seq=session.last_seq, at=at)
        self._bus.publish_on_commit(tx, event)


def _apply_change(session: AgentSession, change: SessionChange) -> AgentSession:
    changed = session
    if "status" in change.fields_set:
        if change.status not in (SessionStatus.ACTIVE, SessionStatus.PAUSED):
            raise WrongTransition("session", session.id, session.status.value, change.status.value, allowed=["active", "paused"])
        changed = replace(changed, status=change.status)
    if "goal" in change.fields_set:
        changed = replace(changed, goal=change.goal)
    if "context" in change.fields_set:
        changed = replace(changed, context=change.context)
    if "summary" in change.fields_set:
        changed = replace(changed, summary=change.summary)
    return changed
