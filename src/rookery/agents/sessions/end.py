"""The end of sessions: by their agent, by a take-over, or by abandonment."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from rookery.access.models import Caller
from rookery.agents.events import AgentSessionEnded
from rookery.agents.models.plans import SYSTEM_ACTOR, EventActor
from rookery.agents.models.sessions import AgentSession, Handoff, HandoffOutcome, SessionEndRequest, SessionNotes, SessionStatus
from rookery.agents.plans.claims import Claims
from rookery.agents.plans.server_pulse import ServerPulse
from rookery.agents.ports import SessionMemoryStore
from rookery.agents.sessions.access import can_read_session, require_agent
from rookery.agents.sessions.errors import SessionEnded
from rookery.agents.store import handoffs
from rookery.agents.store import sessions as store
from rookery.agents.store.tables import HANDOFFS, SESSIONS
from rookery.kernel.clock import Clock
from rookery.kernel.db import Database, Tx
from rookery.kernel.errors import NotFound, PermissionDenied, ValidationFailed
from rookery.kernel.events import EventBus
from rookery.kernel.preconditions import ExpectedETags, require_match

MEMORY_GRACE_PERIOD = timedelta(days=7)
"""Time that the memories of a handed-off or abandoned session are kept for a successor."""

MEMORY_BATCH_SIZE = 200
"""Memories archived in one transaction, so that it takes a few milliseconds. The sweeper archives the rest."""

PROMOTE_SCOPE = "brain:write"


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionCloser:
    """Ends a session within a transaction: releases its tasks, archives its memories and publishes the event."""

    memories: SessionMemoryStore
    claims: Claims
    bus: EventBus

    def close(
        self,
        tx: Tx,
        session: AgentSession,
        *,
        status: SessionStatus,
        actor: EventActor,
        at: datetime,
        reason: str | None = None,
        keeps_memories: bool = False,
    ) -> AgentSession:
        """
        End *session* and return it. The session must be open and locked by this transaction.

        The leases of the session are released. Its memories are archived now or, if a successor may follow, later.

        Args:
            keeps_memories: A successor may follow, whatever the status.
        """
        is_final = status in (SessionStatus.COMPLETED, SessionStatus.FAILED) and not keeps_memories
        ended_session = replace(
            session,
            status=status,
            end_reason=reason,
            ended_at=at,
            last_activity_at=max(session.last_activity_at, at) if actor.key_id else session.last_activity_at,
            memories_due=self._archive_memories(tx, session, at) if is_final else session.last_activity_at + MEMORY_GRACE_PERIOD,
            version=session.version + 1,
        )
        SESSIONS.update(tx, ended_session)
        self.claims.release_session_tasks(
            tx, ended_session.workspace_id, ended_session.id, actor=actor, reason=f"the session is {reason or status.value}", now=at
        )
        self._schedule_predecessor_memories(tx, ended_session, at if is_final else ended_session.last_activity_at + MEMORY_GRACE_PERIOD)
        event = AgentSessionEnded(
            workspace_id=ended_session.workspace_id,
            session_id=ended_session.id,
            agent_id=ended_session.agent_id,
            plan_id=ended_session.plan_id,
            status=status.value,
            at=at,
        )
        self.bus.publish_on_commit(tx, event)
        return ended_session

    def _archive_memories(self, tx: Tx, session: AgentSession, at: datetime) -> datetime | None:
        is_done = self.memories.archive(tx, session.workspace_id, session.id, at=at, limit=MEMORY_BATCH_SIZE)
        return None if is_done else at

    def _schedule_predecessor_memories(self, tx: Tx, session: AgentSession, due: datetime) -> None:
        """Set the time to archive the memories of the sessions that *session* continued, unless they are archived."""
        ids = store.list_predecessor_ids(tx, session.workspace_id, session.id)
        if session.offered_id not in (None, session.id, *ids):
            handoff = HANDOFFS.find(tx, session.workspace_id, session_id=session.offered_id)
            ids += [session.offered_id] if handoff is not None and handoff.taken_by == session.id else []
        for session_id in ids:
            predecessor = SESSIONS.find(tx, session.workspace_id, id=session_id, lock=True)
            if predecessor is not None and predecessor.memories_due is not None:
                store.set_memories_due(tx, predecessor.workspace_id, predecessor.id, due)


class SessionEnder:
    """Ends sessions on request of their agents."""

    def __init__(self, *, db: Database, clock: Clock, memories: SessionMemoryStore, closer: SessionCloser) -> None:
        self._db = db
        self._clock = clock
        self._memories = memories
        self._closer = closer

    async def end(self, caller: Caller, session_id: str, request: SessionEndRequest, *, expected: ExpectedETags = None) -> AgentSession:
        """
        End a session and return it. The same request again changes nothing.

        Raises:
            NotFound: The session does not exist, or *caller* has no access to it.
            PermissionDenied: The session belongs to another agent, or memories are to be promoted and *caller* may not write memories.
            SessionEnded: The session has ended with another status, summary or hand-off.
            PreconditionFailed: *expected* does not match the version of the session.
            ValidationFailed: A memory to promote does not belong to the session.
        """
        now = self._clock()

        def write(tx: Tx) -> AgentSession:
            session = lock_session(tx, caller, session_id)
            require_match("session", session.version, expected)
            if not session.is_open:
                if not _is_same_end(tx, session, request):
                    raise SessionEnded(session)
                return session
            self._promote(tx, caller, session, request, now)
            notes = request.handoff
            if notes is None and request.status is SessionStatus.HANDED_OFF and request.summary is not None:
                handoff = HANDOFFS.find(tx, session.workspace_id, session_id=session.id)
                notes = SessionNotes(summary=request.summary) if handoff is None else None
            if notes is not None:
                write_handoff(tx, session, notes, at=now)
            if request.summary is not None:
                session = replace(session, summary=request.summary)
            return self._closer.close(
                tx,
                session,
                status=request.status,
                actor=EventActor.from_caller(caller, session.id),
                at=now,
                keeps_memories=request.keeps_memories,
            )

        return await self._db.write(write)

    def _promote(self, tx: Tx, caller: Caller, session: AgentSession, request: SessionEndRequest, at: datetime) -> None:
        if request.promote is False:
            return
        if not caller.has_scope(PROMOTE_SCOPE):
            raise PermissionDenied(PROMOTE_SCOPE)
        ids = None if request.promote is True else request.promote
        if ids is not None:
            unknown_ids = self._memories.find_unknown(tx, session.workspace_id, session.id, ids)
            if unknown_ids:
                raise ValidationFailed(
                    {"promote": [f"{memory_id!r} is not a session memory of this session" for memory_id in unknown_ids[:10]]}
                )
        self._memories.promote(tx, caller, session.id, ids=ids, org=session.org, project=session.project, at=at)


def _is_same_end(tx: Tx, session: AgentSession, request: SessionEndRequest) -> bool:
    """Return True if *session* has ended as *request* describes, so that nothing in the request would be lost."""
    if session.status is not request.status or session.end_reason is not None:
        return False
    if request.summary is not None and request.summary != session.summary:
        return False
    if request.handoff is None:
        return True
    handoff = HANDOFFS.find(tx, session.workspace_id, session_id=session.id)
    return handoff is not None and handoff.notes == request.handoff


def lock_session(tx: Tx, caller: Caller, session_id: str) -> AgentSession:
    """
    Return a session that *caller* may work in, and lock it until this transaction ends.

    Raises:
        NotFound: The session does not exist, or *caller* has no access to it.
        PermissionDenied: The session belongs to another agent.
    """
    session = SESSIONS.find(tx, caller.workspace_id, id=session_id, lock=True)
    if session is None or not can_read_session(caller, session):
        raise NotFound("session", session_id)
    require_agent(caller, session.agent_id)
    return session


def require_open_session(tx: Tx, caller: Caller, session_id: str, session: AgentSession | None) -> AgentSession:
    """
    Return *session* if *caller* may work in it.

    Args:
        session: The open session with the id *session_id*, or None if it was not found.

    Raises:
        NotFound, PermissionDenied: As for `lock_session`.
        SessionEnded: The session has ended.
    """
    if session is None:
        raise SessionEnded(lock_session(tx, caller, session_id))
    if not can_read_session(caller, session):
        raise NotFound("session", session_id)
    require_agent(caller, session.agent_id)
    return session


def touch_session(tx: Tx, caller: Caller, session_id: str, *, at: datetime) -> AgentSession:
    """
    Record activity in an open session and return it.

    Raises:
        NotFound, PermissionDenied, SessionEnded: As for `require_open_session`.
    """
    return require_open_session(tx, caller, session_id, store.touch(tx, caller.workspace_id, session_id, at=at))


def write_handoff(tx: Tx, session: AgentSession, notes: SessionNotes, *, at: datetime) -> None:
    """Store the hand-off of *session*, replacing an earlier one. This also takes the hand-off offered to the session."""
    handoffs.save(
        tx,
        Handoff(
            session_id=session.id,
            workspace_id=session.workspace_id,
            plan_id=session.plan_id,
            agent_id=session.agent_id,
            notes=notes,
            written_at=at,
        ),
    )
    if session.offered_id is not None:
        handoffs.mark_taken(tx, session.workspace_id, session.offered_id, taken_by=session.id, outcome=HandoffOutcome.OWN_HANDOFF, at=at)


ACTIVE_TIMEOUT = timedelta(hours=24)
"""Time without activity after which an active session is abandoned."""

PAUSED_TIMEOUT = timedelta(days=7)
"""Time without activity after which a paused session is abandoned. Its memories would be archived then, too."""

_SESSION_BATCH_SIZE = 20
_MAX_BATCHES = 1_000


class SessionSweeper:
    """Abandons idle sessions and archives due memories. It runs in every process; rows locked by another one are skipped."""

    def __init__(self, *, db: Database, clock: Clock, memories: SessionMemoryStore, closer: SessionCloser, pulse: ServerPulse) -> None:
        self._db = db
        self._clock = clock
        self._memories = memories
        self._closer = closer
        self._pulse = pulse

    async def sweep(self) -> tuple[int, int]:
        """
        Abandon idle sessions and archive due memories. Return the numbers of abandoned sessions and of archived batches.

        After a gap of the server, no session is abandoned for a minute, so that agents that slept too can go on.
        """
        await self._pulse.require_beat()
        abandoned_count = 0 if self._pulse.is_in_grace_period else await self._run_batches(self._abandon_batch)
        return abandoned_count, await self._run_batches(self._archive_batch)

    async def _run_batches(self, work: Callable[[Tx], int]) -> int:
        swept_count = 0
        for _ in range(_MAX_BATCHES):
            swept = await self._db.write(work)
            swept_count += swept
            if swept == 0:
                break
        return swept_count

    def _abandon_batch(self, tx: Tx) -> int:
        now = self._clock()
        idle = store.list_idle(tx, at=now, active_timeout=ACTIVE_TIMEOUT, paused_timeout=PAUSED_TIMEOUT, limit=_SESSION_BATCH_SIZE)
        for session in idle:
            self._closer.close(tx, session, status=SessionStatus.ABANDONED, actor=SYSTEM_ACTOR, at=now)
        return len(idle)

    def _archive_batch(self, tx: Tx) -> int:
        now = self._clock()
        due = store.list_memories_due(tx, at=now, limit=1)
        for session in due:
            later = self._find_later_due(tx, session, now)
            if later is not None:
                store.set_memories_due(tx, session.workspace_id, session.id, later)
            elif self._memories.archive(tx, session.workspace_id, session.id, at=now, limit=MEMORY_BATCH_SIZE):
                store.set_memories_due(tx, session.workspace_id, session.id, None)
        return len(due)

    def _find_later_due(self, tx: Tx, session: AgentSession, at: datetime) -> datetime | None:
        """Return the time until which the successors of *session* need its memories, or None if that is past."""
        last = session
        for _ in range(store.MAX_PREDECESSORS):
            successor = None if last.resumed_by is None else SESSIONS.find(tx, session.workspace_id, id=last.resumed_by)
            if successor is None:
                break
            last = successor
        if last.is_open:
            return at + MEMORY_GRACE_PERIOD
        return last.memories_due if last is not session and last.memories_due is not None and last.memories_due > at else None
