"""The start of sessions: new ones, take-overs of open ones, and successors of ended ones."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime

from rookery.access.models import Caller
from rookery.agents.errors import PlanArchived
from rookery.agents.events import AgentSessionStarted
from rookery.agents.models.plans import EventActor, Plan, PlanAccessFilter, PlanStatus
from rookery.agents.models.sessions import (
    END_REASON_RESUMED,
    END_REASON_SUPERSEDED,
    AgentSession,
    NewSession,
    PreviousSessionState,
    SessionResumeRequest,
    SessionStatus,
)
from rookery.agents.plans.transitions import get_plan
from rookery.agents.sessions.access import can_read_session, require_agent, require_org_and_project
from rookery.agents.sessions.end import SessionCloser
from rookery.agents.sessions.errors import SessionActive, SessionResumed
from rookery.agents.store import handoffs, session_events
from rookery.agents.store.tables import HANDOFFS, SESSIONS
from rookery.kernel.clock import Clock
from rookery.kernel.db import Database, Tx
from rookery.kernel.errors import Conflict, NotFound, ValidationFailed
from rookery.kernel.events import EventBus
from rookery.kernel.ids import IdFactory
from rookery.kernel.preconditions import ExpectedETags, require_match


class SessionStarter:
    """Starts and resumes sessions."""

    def __init__(self, *, db: Database, bus: EventBus, clock: Clock, ids: IdFactory, closer: SessionCloser) -> None:
        self._db = db
        self._bus = bus
        self._clock = clock
        self._ids = ids
        self._closer = closer

    async def start(self, caller: Caller, request: NewSession) -> AgentSession:
        """
        Start a session and return it.

        Raises:
            NotFound: The plan does not exist.
            PermissionDenied: The key may not act for the agent, or does not allow the org or project.
            PlanArchived: The plan is read-only.
            SessionActive: The agent has an open session on the plan and `takeover` is not set.
            ValidationFailed: The org or project differs from that of the plan, or the agent is missing.
        """
        now = self._clock()
        return await self._write_with_retry(lambda tx: self.add(tx, caller, request, at=now))

    def add(self, tx: Tx, caller: Caller, request: NewSession, *, at: datetime) -> AgentSession:
        """
        Start a session within the transaction *tx* and return it.

        Raises:
            Conflict: Another transaction has just started a session of the agent on the plan.
            NotFound, PermissionDenied, PlanArchived, SessionActive, ValidationFailed: As for `start`.
        """
        agent_id = request.agent_id or caller.agent_id or request.agent_type
        if agent_id is None:
            raise ValidationFailed({"agent_type": ["is required if the request has no agent_id and the key belongs to no agent"]})
        require_agent(caller, agent_id)
        plan = None if request.plan is None else _get_unarchived_plan(tx, caller, request.plan)
        org, project = (request.org, request.project) if plan is None else _resolve_org_and_project(plan, request)
        require_org_and_project(caller, org, project)
        predecessor = None if plan is None else self._take_over(tx, caller, plan.id, agent_id, takeover=request.takeover, at=at)
        return self._store_session(
            tx,
            AgentSession(
                id=f"sess_{self._ids()}",
                workspace_id=caller.workspace_id,
                agent_id=agent_id,
                agent_type=request.agent_type or agent_id,
                key_id=caller.key_id,
                plan_id=None if plan is None else plan.id,
                org=org,
                project=project,
                status=SessionStatus.ACTIVE,
                goal=request.goal,
                context=request.context,
                started_at=at,
                last_activity_at=at,
            ),
            predecessor,
        )

    async def resume(
        self, caller: Caller, session_id: str, request: SessionResumeRequest, *, expected: ExpectedETags = None
    ) -> AgentSession:
        """
        Start the successor of a session and return it. If the session is open, it ends.

        Raises:
            NotFound: The session does not exist, or *caller* has no access to it.
            PermissionDenied: The key may not act for the agent of the successor, or for that of the open session.
            PlanArchived: The plan is read-only.
            SessionActive: The session is active, or the agent has another open session on the plan, and `takeover` is not set.
            SessionResumed: The session already has a successor.
            PreconditionFailed: *expected* does not match the version of the session.
        """
        now = self._clock()
        return await self._write_with_retry(lambda tx: self.add_successor(tx, caller, session_id, request, expected=expected, at=now))

    def add_successor(
        self, tx: Tx, caller: Caller, session_id: str, request: SessionResumeRequest, *, expected: ExpectedETags = None, at: datetime
    ) -> AgentSession:
        """
        Start the successor of a session within the transaction *tx* and return it.

        Raises:
            Conflict: Another transaction has just started a session of the agent on the plan.
            NotFound, PermissionDenied, PlanArchived, SessionActive, SessionResumed, PreconditionFailed: As for `resume`.
        """
        was = SESSIONS.find(tx, caller.workspace_id, id=session_id, lock=True)
        if was is None or not can_read_session(caller, was):
            raise NotFound("session", session_id)
        require_match("session", was.version, expected)
        if was.resumed_by is not None:
            raise SessionResumed(was.id, was.resumed_by)
        agent_id = request.agent_id or caller.agent_id or was.agent_id
        require_agent(caller, agent_id)
        if was.is_open:
            if agent_id != was.agent_id:
                require_agent(caller, was.agent_id)
            if was.status is SessionStatus.ACTIVE and not request.takeover:
                raise SessionActive(was)
            reason = END_REASON_RESUMED if was.status is SessionStatus.PAUSED else END_REASON_SUPERSEDED
            was = self._closer.close(
                tx, was, status=SessionStatus.HANDED_OFF, actor=EventActor.from_caller(caller, was.id), at=at, reason=reason
            )
        if was.plan_id is not None:
            _get_unarchived_plan(tx, caller, was.plan_id)
            self._take_over(tx, caller, was.plan_id, agent_id, takeover=request.takeover, at=at)
        return self._store_session(
            tx,
            AgentSession(
                id=f"sess_{self._ids()}",
                workspace_id=caller.workspace_id,
                agent_id=agent_id,
                agent_type=request.agent_type or was.agent_type,
                key_id=caller.key_id,
                plan_id=was.plan_id,
                org=was.org,
                project=was.project,
                status=SessionStatus.ACTIVE,
                goal=was.goal if request.goal is None else request.goal,
                context=was.context if request.context is None else request.context,
                started_at=at,
                last_activity_at=at,
            ),
            was,
        )

    async def load_previous_state(self, session: AgentSession) -> PreviousSessionState:
        """Return the offered hand-off and the last checkpoint for *session*, which has just started."""
        now = self._clock()

        def read(tx: Tx) -> PreviousSessionState:
            handoff = None if session.offered_id is None else HANDOFFS.find(tx, session.workspace_id, session_id=session.offered_id)
            checkpoint = None
            if session.resumed_from is not None:
                checkpoint = session_events.find_last_checkpoint(tx, session.workspace_id, session.resumed_from)
            if checkpoint is None and session.plan_id is not None:
                checkpoint = session_events.find_last_plan_checkpoint(tx, session.workspace_id, session.plan_id)
            writer = None if checkpoint is None else SESSIONS.find(tx, session.workspace_id, id=checkpoint.session_id)
            return PreviousSessionState(
                handoff=handoff,
                handoff_age_s=0.0 if handoff is None else _compute_age_s(handoff.written_at, now),
                checkpoint=checkpoint,
                checkpoint_agent_id=None if writer is None else writer.agent_id,
                checkpoint_age_s=0.0 if checkpoint is None else _compute_age_s(checkpoint.created_at, now),
            )

        return await self._db.read(read)

    async def _write_with_retry(self, write: Callable[[Tx], AgentSession]) -> AgentSession:
        try:
            return await self._db.write(write)
        except Conflict as error:
            if type(error) is not Conflict:
                raise
        # Two sessions started at the same moment and the unique index rejected this one. The second try finds the other session.
        return await self._db.write(write)

    def _take_over(self, tx: Tx, caller: Caller, plan_id: str, agent_id: str, *, takeover: bool, at: datetime) -> AgentSession | None:
        was = SESSIONS.find(tx, caller.workspace_id, plan_id=plan_id, agent_id=agent_id, ended_at=None, lock=True)
        if was is None:
            return None
        if not takeover:
            raise SessionActive(was)
        return self._closer.close(
            tx, was, status=SessionStatus.HANDED_OFF, actor=EventActor.from_caller(caller, was.id), at=at, reason=END_REASON_SUPERSEDED
        )

    def _store_session(self, tx: Tx, session: AgentSession, predecessor: AgentSession | None) -> AgentSession:
        offer = None if predecessor is None else HANDOFFS.find(tx, session.workspace_id, session_id=predecessor.id)
        if offer is None and session.plan_id is not None:
            offer = handoffs.find_pending(tx, session.workspace_id, session.plan_id)
        session = replace(
            session,
            resumed_from=None if predecessor is None else predecessor.id,
            offered_id=None if offer is None else offer.session_id,
        )
        SESSIONS.insert(tx, session)
        if predecessor is not None:
            SESSIONS.update(tx, replace(predecessor, resumed_by=session.id))
        event = AgentSessionStarted(
            workspace_id=session.workspace_id,
            session_id=session.id,
            agent_id=session.agent_id,
            org=session.org,
            project=session.project,
            plan_id=session.plan_id,
            at=session.started_at,
        )
        self._bus.publish_on_commit(tx, event)
        return session


def _get_unarchived_plan(tx: Tx, caller: Caller, name: str) -> Plan:
    plan = get_plan(tx, PlanAccessFilter.from_caller(caller), name)
    if plan.status is PlanStatus.ARCHIVED:
        raise PlanArchived(plan.slug)
    return plan


def _resolve_org_and_project(plan: Plan, request: NewSession) -> tuple[str | None, str | None]:
    errors = {
        name: [f"must be {value!r}, as on the plan, or omitted"]
        for name, value, requested in (("org", plan.org, request.org), ("project", plan.project, request.project))
        if requested is not None and requested != value
    }
    if errors:
        raise ValidationFailed(errors)
    return plan.org, plan.project


def _compute_age_s(since: datetime, now: datetime) -> float:
    return max(0.0, (now - since).total_seconds())
