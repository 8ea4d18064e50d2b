"""How sessions start: anew, in place of an open one, or as the successor of one that is over (D-62)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime

from rookery.access.models import Caller
from rookery.agents.errors import PlanArchived
from rookery.agents.models.plans import By, Plan, PlanStatus, Within
from rookery.agents.models.sessions import (
    RESUMED,
    SUPERSEDED,
    NewSession,
    Offered,
    Resumption,
    Session,
    SessionStatus,
)
from rookery.agents.plans.holding import the_plan
from rookery.agents.sessions.ending import Closing
from rookery.agents.sessions.errors import SessionActive, SessionResumed
from rookery.agents.sessions.reach import must_speak_for, must_work_in, sees
from rookery.agents.store import handoffs, session_events
from rookery.agents.store import sessions as store
from rookery.kernel.clock import Clock
from rookery.kernel.db import Database, Tx
from rookery.kernel.errors import Conflict, NotFound, ValidationFailed
from rookery.kernel.events import AgentSessionStarted, Bus
from rookery.kernel.ids import Ids
from rookery.kernel.preconditions import Expected, require_match


class Starting:
    """Starts sessions."""

    def __init__(self, *, db: Database, bus: Bus, clock: Clock, ids: Ids, closing: Closing) -> None:
        self._db = db
        self._bus = bus
        self._clock = clock
        self._ids = ids
        self._closing = closing

    async def start(self, caller: Caller, new: NewSession) -> Session:
        """
        Start a session and return it.

        Raises:
            NotFound: There is no such plan.
            PermissionDenied: It is for another agent, org or project than the key's.
            PlanArchived: It can only be read.
            SessionActive: The agent has an open session on the plan, and *takeover* was not said.
            ValidationFailed: org or project are not the plan's.
        """
        now = self._clock()

        def write(tx: Tx) -> Session:
            agent_id = new.agent_id or caller.agent_id or new.agent_type
            if agent_id is None:
                raise ValidationFailed({"agent_type": ["is required, or an agent_id: this key belongs to no agent"]})
            must_speak_for(caller, agent_id)
            plan = None if new.plan is None else _living(tx, caller, new.plan)
            org, project = (new.org, new.project) if plan is None else _place(plan, new)
            must_work_in(caller, org, project)
            before = None if plan is None else self._in_place_of(tx, caller, plan.id, agent_id, takeover=new.takeover, at=now)
            return self._begin(
                tx,
                Session(
                    id=f"sess_{self._ids()}",
                    workspace_id=caller.workspace_id,
                    agent_id=agent_id,
                    agent_type=new.agent_type or agent_id,
                    key_id=caller.key_id,
                    plan_id=None if plan is None else plan.id,
                    org=org,
                    project=project,
                    status=SessionStatus.ACTIVE,
                    goal=new.goal,
                    context=new.context,
                    started_at=now,
                    last_activity_at=now,
                ),
                before,
            )

        return await self._once_more(write)

    async def resume(self, caller: Caller, session_id: str, resumption: Resumption, *, expected: Expected = None) -> Session:
        """
        Start the successor of a session, which is over or is ended by this, and return it.

        Raises:
            NotFound: There is none that *caller* may know of.
            PermissionDenied: The successor is for another agent than the key's, or the session is open and another agent's.
            SessionActive: It is active, and *takeover* was not said; or the agent has another open one on the plan.
            SessionResumed: It has a successor.
            PreconditionFailed: *expected* names another version of it.
        """
        now = self._clock()

        def write(tx: Tx) -> Session:
            was = store.locked(tx, caller.workspace_id, session_id)
            if was is None or not sees(caller, was):
                raise NotFound("session", session_id)
            require_match("session", was.version, expected)
            if was.resumed_by is not None:
                raise SessionResumed(was.id, was.resumed_by)
            agent_id = resumption.agent_id or caller.agent_id or was.agent_id
            must_speak_for(caller, agent_id)
            if was.is_open:
                if agent_id != was.agent_id:
                    must_speak_for(caller, was.agent_id)
                if was.status is SessionStatus.ACTIVE and not resumption.takeover:
                    raise SessionActive(was)
                reason = RESUMED if was.status is SessionStatus.PAUSED else SUPERSEDED
                was = self._closing.close(tx, was, status=SessionStatus.HANDED_OFF, by=By.of(caller, was.id), at=now, reason=reason)
            if was.plan_id is not None:
                _living(tx, caller, was.plan_id)
                self._in_place_of(tx, caller, was.plan_id, agent_id, takeover=resumption.takeover, at=now)
            return self._begin(
                tx,
                Session(
                    id=f"sess_{self._ids()}",
                    workspace_id=caller.workspace_id,
                    agent_id=agent_id,
                    agent_type=resumption.agent_type or was.agent_type,
                    key_id=caller.key_id,
                    plan_id=was.plan_id,
                    org=was.org,
                    project=was.project,
                    status=SessionStatus.ACTIVE,
                    goal=was.goal if resumption.goal is None else resumption.goal,
                    context=was.context if resumption.context is None else resumption.context,
                    started_at=now,
                    last_activity_at=now,
                ),
                was,
            )

        return await self._once_more(write)

    async def offered(self, session: Session) -> Offered:
        """Return what *session*, just started, is told of those before it."""
        now = self._clock()

        def read(tx: Tx) -> Offered:
            handoff = None if session.offered_id is None else handoffs.of_session(tx, session.workspace_id, session.offered_id)
            checkpoint = None
            if session.resumed_from is not None:
                checkpoint = session_events.checkpoint(tx, session.workspace_id, session.resumed_from)
            if checkpoint is None and session.plan_id is not None:
                checkpoint = session_events.checkpoint_of_plan(tx, session.workspace_id, session.plan_id)
            writer = None if checkpoint is None else store.by_id(tx, session.workspace_id, checkpoint.session_id)
            return Offered(
                handoff=handoff,
                handoff_age_s=0.0 if handoff is None else _age_s(handoff.written_at, now),
                checkpoint=checkpoint,
                checkpoint_agent=None if writer is None else writer.agent_id,
                checkpoint_age_s=0.0 if checkpoint is None else _age_s(checkpoint.created_at, now),
            )

        return await self._db.read(read)

    async def _once_more(self, write: Callable[[Tx], Session]) -> Session:
        try:
            return await self._db.write(write)
        except Conflict as error:
            if type(error) is not Conflict:
                raise
        # Two began at the same moment, and the store let one through: now it is there to be told of.
        return await self._db.write(write)

    def _in_place_of(self, tx: Tx, caller: Caller, plan_id: str, agent_id: str, *, takeover: bool, at: datetime) -> Session | None:
        was = store.open_of(tx, caller.workspace_id, plan_id, agent_id)
        if was is None:
            return None
        if not takeover:
            raise SessionActive(was)
        return self._closing.close(tx, was, status=SessionStatus.HANDED_OFF, by=By.of(caller, was.id), at=at, reason=SUPERSEDED)

    def _begin(self, tx: Tx, session: Session, before: Session | None) -> Session:
        offer = None if before is None else handoffs.of_session(tx, session.workspace_id, before.id)
        if offer is None and session.plan_id is not None:
            offer = handoffs.offered(tx, session.workspace_id, session.plan_id)
        session = replace(
            session,
            resumed_from=None if before is None else before.id,
            offered_id=None if offer is None else offer.session_id,
        )
        store.add(tx, session)
        if before is not None:
            store.change(tx, replace(before, resumed_by=session.id))
        event = AgentSessionStarted(
            workspace_id=session.workspace_id,
            session_id=session.id,
            agent_id=session.agent_id,
            org=session.org,
            project=session.project,
            plan_id=session.plan_id,
            at=session.started_at,
        )
        self._bus.announce(tx, event)
        return session


def _living(tx: Tx, caller: Caller, name: str) -> Plan:
    plan = the_plan(tx, Within.of(caller), name)
    if plan.status is PlanStatus.ARCHIVED:
        raise PlanArchived(plan.slug)
    return plan


def _place(plan: Plan, new: NewSession) -> tuple[str | None, str | None]:
    wrong = {
        name: [f"is {had!r} on this plan; leave it out"]
        for name, had, wanted in (("org", plan.org, new.org), ("project", plan.project, new.project))
        if wanted is not None and wanted != had
    }
    if wrong:
        raise ValidationFailed(wrong)
    return plan.org, plan.project


def _age_s(since: datetime, now: datetime) -> float:
    return max(0.0, (now - since).total_seconds())
