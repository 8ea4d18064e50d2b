"""Operations on existing sessions: read, list, update, heartbeat, events and the tokens that agents report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

import orjson

from rookery.access.models import Caller
from rookery.agents.errors import WrongTransition
from rookery.agents.events import AgentSessionUpdated
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
    TokenReport,
)
from rookery.agents.plans.transitions import get_plan
from rookery.agents.ports import PriceTokens, ToolCallCounter
from rookery.agents.sessions.access import can_read_session
from rookery.agents.sessions.end import lock_session, require_open_session, touch_session, write_handoff
from rookery.agents.sessions.errors import NoHandoffOffered, SessionEnded, SessionFull
from rookery.agents.store import handoffs, plans, session_events
from rookery.agents.store import sessions as store
from rookery.agents.store.tables import PLANS, SESSION_EVENTS, SESSIONS
from rookery.kernel.clock import Clock
from rookery.kernel.db import Database, Tx
from rookery.kernel.errors import NotFound, ValidationFailed
from rookery.kernel.events import EventBus
from rookery.kernel.pages import ListPage, PageSlice
from rookery.kernel.preconditions import ExpectedETags, require_match
from rookery.kernel.unset import UNSET, apply_changes
from rookery.usage.ledger import UsageLedger
from rookery.usage.models import UsageEntry, UsageKind, day_of


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionTokenMeter:
    """Adds reported tokens to the ledger, at the cost that the agent reports, else at the price of the model."""

    ledger: UsageLedger
    price_tokens: PriceTokens

    def resolve(self, tokens: TokenReport) -> TokenReport:
        """
        Return *tokens* with the currency of their cost, if they have one.

        Raises:
            ValidationFailed: They have a cost in another currency than that of this server. Amounts are never converted.
        """
        currency = self.ledger.currency
        if tokens.currency not in {None, currency}:
            raise ValidationFailed({"tokens.currency": [f"must be {currency}, the currency of this server, not {tokens.currency}"]})
        return tokens if tokens.cost_nanos is None else replace(tokens, currency=currency)

    def record(self, tx: Tx, caller: Caller, session: AgentSession, tokens: TokenReport, at: datetime) -> None:
        """Add the tokens of an event, if it reports any."""
        if tokens == TokenReport():
            return
        cost = self.price_tokens(tokens) if tokens.cost_nanos is None else tokens.cost_nanos
        entry = UsageEntry(
            workspace_id=session.workspace_id,
            day=day_of(at),
            kind=UsageKind.SESSION,
            key_id=caller.key_id,
            agent_id=session.agent_id,
            model=tokens.model or "",
            calls=1,
            input_tokens=tokens.input,
            cached_input_tokens=tokens.cached_input,
            output_tokens=tokens.output,
            unpriced_calls=int(cost is None),
            cost_nanos=cost or 0,
        )
        self.ledger.add(tx, entry)


MAX_EVENTS_PER_SESSION = 100_000
"""Maximum number of events in one session."""

MAX_EVENT_BYTES_PER_SESSION = 64 * 1024 * 1024
"""Maximum total size of the events of one session. A checkpoint takes up to 256 KiB."""


class SessionRecords:
    """Operations on existing sessions. A session that the caller has no access to is not found."""

    def __init__(self, *, db: Database, bus: EventBus, clock: Clock, tool_calls: ToolCallCounter, token_meter: SessionTokenMeter) -> None:
        self._db = db
        self._bus = bus
        self._clock = clock
        self._tool_calls = tool_calls
        self._token_meter = token_meter

    async def get(self, caller: Caller, session_id: str) -> SessionView:
        """
        Return a session.

        Raises:
            NotFound: The session does not exist, or *caller* has no access to it.
        """
        view = await self._db.read(lambda tx: self.find_view(tx, caller, session_id))
        if view is None:
            raise NotFound("session", session_id)
        return view

    def find_view(self, tx: Tx, caller: Caller, session_id: str) -> SessionView | None:
        """Return a session within the transaction *tx*, or None if it does not exist or *caller* has no access to it."""
        session = SESSIONS.find(tx, caller.workspace_id, id=session_id)
        return None if session is None or not can_read_session(caller, session) else self._load_views(tx, [session])[0]

    async def list_page(self, caller: Caller, filters: SessionFilter, *, plan: str | None, page: PageSlice) -> ListPage[SessionView]:
        """
        Return a page of the sessions that match *filters* and that *caller* has access to, newest first, and the total count.

        Args:
            plan: The id or slug of a plan. None matches sessions on any plan or without one.

        Raises:
            NotFound: The plan does not exist.
            NotInAllowList: The filter names an org or project that is not in the allow-lists of the key.
        """
        caller.require_in_allow_lists(org=filters.org, project=filters.project)
        filters = replace(filters, orgs=caller.orgs, projects=caller.projects)

        def read(tx: Tx) -> ListPage[SessionView]:
            access_filter = PlanAccessFilter.from_caller(caller)
            in_plan = filters if plan is None else replace(filters, plan_id=get_plan(tx, access_filter, plan).id)
            session_page = store.list_page(tx, caller.workspace_id, in_plan, page=page)
            return session_page.with_items(self._load_views(tx, session_page.items))

        return await self._db.read(read)

    async def load_view(self, session: AgentSession) -> SessionView:
        return (await self._db.read(lambda tx: self._load_views(tx, [session])))[0]

    async def change(self, caller: Caller, session_id: str, change: SessionChange, *, expected: ExpectedETags = None) -> AgentSession:
        """
        Update the fields of a session that *change* sets, and return the session.

        Args:
            expected: The ETags of If-Match.

        Raises:
            NotFound: The session does not exist, or *caller* has no access to it.
            PermissionDenied: The session belongs to another agent.
            SessionEnded: The session has ended.
            PreconditionFailed: *expected* does not match the version of the session.
            NoHandoffOffered: There is no hand-off to acknowledge.
        """
        now = self._clock()

        def write(tx: Tx) -> AgentSession:
            session = lock_session(tx, caller, session_id)
            require_match("session", session.version, expected)
            if not session.is_open:
                raise SessionEnded(session)
            changed_session = _apply_change(session, change)
            if change.handoff is not UNSET:
                write_handoff(tx, session, change.handoff, at=now)
            if change.acknowledge is not UNSET:
                if session.offered_id is None:
                    raise NoHandoffOffered(session.id)
                handoffs.mark_taken(tx, session.workspace_id, session.offered_id, taken_by=session.id, outcome=change.acknowledge, at=now)
            changed_session = replace(changed_session, last_activity_at=max(now, session.last_activity_at), version=session.version + 1)
            SESSIONS.update(tx, changed_session)
            if changed_session.status is not session.status:
                self._announce(tx, changed_session, now)
            return changed_session

        return await self._db.write(write)

    async def heartbeat(self, caller: Caller, session_id: str, *, expected: ExpectedETags = None) -> AgentSession:
        """
        Record activity in the session and return it.

        Raises:
            NotFound, PermissionDenied, SessionEnded, PreconditionFailed: As for `append`.
        """
        now = self._clock()

        def write(tx: Tx) -> AgentSession:
            session = touch_session(tx, caller, session_id, at=now)
            require_match("session", session.version, expected)
            return session

        return await self._db.write(write)

    async def append(self, caller: Caller, session_id: str, new_event: NewSessionEvent, *, expected: ExpectedETags = None) -> SessionEvent:
        """
        Append an event with the next seq and return it.

        Raises:
            NotFound: The session does not exist, or *caller* has no access to it.
            PermissionDenied: The session belongs to another agent.
            SessionEnded: The session has ended.
            SessionFull: The session has reached the limit of the number or size of its events.
            PreconditionFailed: *expected* does not match the version of the session.
            ValidationFailed: As for `SessionTokenMeter.resolve`.
        """
        now = self._clock()
        return await self._db.write(lambda tx: self.add_event(tx, caller, session_id, new_event, expected=expected, at=now))

    def add_event(
        self, tx: Tx, caller: Caller, session_id: str, new_event: NewSessionEvent, *, expected: ExpectedETags = None, at: datetime
    ) -> SessionEvent:
        """
        Append an event within the transaction *tx* and return it.

        Raises:
            NotFound, PermissionDenied, SessionEnded, SessionFull, PreconditionFailed, ValidationFailed: As for `append`.
        """
        tokens = self._token_meter.resolve(new_event.tokens)
        size = sum(len(orjson.dumps(part)) for part in (new_event.message, new_event.data, new_event.state))
        reserved = store.reserve_event(
            tx,
            caller.workspace_id,
            session_id,
            size=size,
            tokens_in=tokens.input,
            tokens_out=tokens.output,
            at=at,
        )
        session = require_open_session(tx, caller, session_id, reserved)
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
            tokens=tokens,
            created_at=at,
        )
        SESSION_EVENTS.insert(tx, event)
        self._token_meter.record(tx, caller, session, tokens, at)
        self._announce(tx, session, at)
        return event

    async def list_events(
        self, caller: Caller, session_id: str, *, after: int, event_type: SessionEventType | None, page: PageSlice
    ) -> ListPage[SessionEvent]:
        """
        Return a page of the events with a seq greater than *after*, in order, and their total count.

        Raises:
            NotFound: The session does not exist, or *caller* has no access to it.
        """

        def read(tx: Tx) -> ListPage[SessionEvent] | None:
            session = SESSIONS.find(tx, caller.workspace_id, id=session_id)
            if session is None or not can_read_session(caller, session):
                return None
            return session_events.list_page(tx, caller.workspace_id, session_id, after, event_type, page=page)

        event_page = await self._db.read(read)
        if event_page is None:
            raise NotFound("session", session_id)
        return event_page

    def _load_views(self, tx: Tx, sessions: Sequence[AgentSession]) -> list[SessionView]:
        if not sessions:
            return []
        workspace_id, ids = sessions[0].workspace_id, [session.id for session in sessions]
        handoffs_by_session = handoffs.find_by_sessions(tx, workspace_id, ids)
        calls = self._tool_calls.count_by_session(tx, workspace_id, ids)
        completed_counts = plans.count_completed_tasks(tx, workspace_id, ids)
        plan_ids = sorted({session.plan_id for session in sessions if session.plan_id is not None})
        slugs = {plan.id: plan.slug for plan in PLANS.find_all(tx, workspace_id, id=plan_ids)}
        return [
            SessionView(
                session=session,
                plan_slug=None if session.plan_id is None else slugs.get(session.plan_id),
                handoff=handoffs_by_session.get(session.id),
                tool_calls=calls.get(session.id, 0),
                tasks_completed=completed_counts.get(session.id, 0),
            )
            for session in sessions
        ]

    def _announce(self, tx: Tx, session: AgentSession, at: datetime) -> None:
        event = AgentSessionUpdated(workspace_id=session.workspace_id, session_id=session.id, seq=session.last_seq, at=at)
        self._bus.publish_on_commit(tx, event)


def _apply_change(session: AgentSession, change: SessionChange) -> AgentSession:
    if change.status is not UNSET and change.status not in (SessionStatus.ACTIVE, SessionStatus.PAUSED):
        raise WrongTransition("session", session.id, session.status.value, change.status.value, allowed=["active", "paused"])
    return apply_changes(session, replace(change, handoff=UNSET, acknowledge=UNSET))
