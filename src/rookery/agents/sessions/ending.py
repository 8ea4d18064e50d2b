"""How sessions end: by their agent, by another one that takes over, or because nobody came back (D-53, D-62)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from rookery.access.models import Caller
from rookery.agents.models.plans import By
from rookery.agents.models.sessions import Ending, Handoff, Notes, Session, SessionStatus, Taken
from rookery.agents.plans.claims import Claims
from rookery.agents.ports import Memories
from rookery.agents.sessions.errors import SessionEnded
from rookery.agents.sessions.reach import must_speak_for, sees
from rookery.agents.store import handoffs
from rookery.agents.store import sessions as store
from rookery.kernel.clock import Clock
from rookery.kernel.db import Database, Tx
from rookery.kernel.errors import NotFound, PermissionDenied, ValidationFailed
from rookery.kernel.events import AgentSessionEnded, Bus
from rookery.kernel.preconditions import Expected, require_match

MEMORIES_KEPT = timedelta(days=7)
"""How long the session memories of one that did not come to its end wait for a successor to end (D-53)."""

AT_ONCE = 200
"""So many memories are put away in one transaction, so that writers wait a few milliseconds at most; the sweep does the rest."""

PROMOTES = "brain:write"


@dataclass(frozen=True, slots=True, kw_only=True)
class Closing:
    """Ends a session within a transaction, with all that hangs on it."""

    memories: Memories
    claims: Claims
    bus: Bus

    def close(self, tx: Tx, session: Session, *, status: SessionStatus, by: By, at: datetime, reason: str | None = None) -> Session:
        """Return *session*, open and held by this transaction, ended: its leases are free, its memories put away or kept for a while."""
        ended = replace(
            session,
            status=status,
            end_reason=reason,
            ended_at=at,
            last_activity_at=max(session.last_activity_at, at) if by.key_id else session.last_activity_at,
            memories_due=self._due(tx, session, status, at),
            version=session.version + 1,
        )
        store.change(tx, ended)
        self.claims.free(tx, ended.workspace_id, ended.id, by=by, reason=f"the session is {reason or status.value}", now=at)
        self._end_wait(tx, ended, at)
        event = AgentSessionEnded(
            workspace_id=ended.workspace_id, session_id=ended.id, agent_id=ended.agent_id, plan_id=ended.plan_id, status=status.value, at=at
        )
        self.bus.announce(tx, event)
        return ended

    def _due(self, tx: Tx, session: Session, status: SessionStatus, at: datetime) -> datetime | None:
        match status:
            case SessionStatus.COMPLETED | SessionStatus.FAILED:
                is_done = self.memories.put_away(tx, session.workspace_id, session.id, at=at, limit=AT_ONCE)
                return None if is_done else at
            case _:
                return session.last_activity_at + MEMORIES_KEPT

    def _end_wait(self, tx: Tx, ended: Session, at: datetime) -> None:
        """Have the memories put away of those whose work *ended* went on with."""
        for session_id in {ended.resumed_from, ended.offered_id} - {None, ended.id}:
            before = store.locked(tx, ended.workspace_id, session_id) if session_id else None
            if before is None or before.memories_due is None:
                continue
            handed = handoffs.of_session(tx, before.workspace_id, before.id)
            if before.id == ended.resumed_from or (handed is not None and handed.taken_by == ended.id):
                store.set_due(tx, before.workspace_id, before.id, min(at, before.memories_due))


class Endings:
    """Ends sessions for their agents."""

    def __init__(self, *, db: Database, clock: Clock, memories: Memories, closing: Closing) -> None:
        self._db = db
        self._clock = clock
        self._memories = memories
        self._closing = closing

    async def end(self, caller: Caller, session_id: str, ending: Ending, *, expected: Expected = None) -> Session:
        """
        End a session and return it; the same once more changes nothing.

        Raises:
            NotFound: There is none that *caller* may know of.
            PermissionDenied: It is another agent's, or *caller* may not write memories and wants some promoted.
            SessionEnded: It ended with another status, summary or hand-off.
            PreconditionFailed: *expected* names another version of it.
            ValidationFailed: What is to be promoted is no memory of the session.
        """
        now = self._clock()

        def write(tx: Tx) -> Session:
            session = held(tx, caller, session_id)
            require_match("session", session.version, expected)
            if not session.is_open:
                if not _is_repeated(tx, session, ending):
                    raise SessionEnded(session)
                return session
            self._promote(tx, caller, session, ending, now)
            notes = ending.handoff
            if notes is None and ending.status is SessionStatus.HANDED_OFF and ending.summary is not None:
                written = handoffs.of_session(tx, session.workspace_id, session.id)
                notes = Notes(summary=ending.summary) if written is None else None
            if notes is not None:
                write_handoff(tx, session, notes, at=now)
            if ending.summary is not None:
                session = replace(session, summary=ending.summary)
            return self._closing.close(tx, session, status=ending.status, by=By.of(caller, session.id), at=now)

        return await self._db.write(write)

    def _promote(self, tx: Tx, caller: Caller, session: Session, ending: Ending, at: datetime) -> None:
        if ending.promote is False:
            return
        if not caller.may(PROMOTES):
            raise PermissionDenied(PROMOTES)
        ids = None if ending.promote is True else ending.promote
        if ids is not None:
            unknown = self._memories.unknown(tx, session.workspace_id, session.id, ids)
            if unknown:
                raise ValidationFailed({"promote": [f"{each!r} is no session memory of this session" for each in unknown[:10]]})
        self._memories.promote(tx, session.workspace_id, session.id, ids=ids, org=session.org, project=session.project, at=at)


def _is_repeated(tx: Tx, session: Session, ending: Ending) -> bool:
    """Return whether *session* ended just as *ending* asks for, so that nothing of it would be lost."""
    if session.status is not ending.status or session.end_reason is not None:
        return False
    if ending.summary is not None and ending.summary != session.summary:
        return False
    if ending.handoff is None:
        return True
    written = handoffs.of_session(tx, session.workspace_id, session.id)
    return written is not None and written.notes == ending.handoff


def held(tx: Tx, caller: Caller, session_id: str) -> Session:
    """
    Return a session that *caller* may work in, and let nobody else change it until this transaction ends.

    Raises:
        NotFound: There is none that *caller* may know of.
        PermissionDenied: It is another agent's.
    """
    session = store.locked(tx, caller.workspace_id, session_id)
    if session is None or not sees(caller, session):
        raise NotFound("session", session_id)
    must_speak_for(caller, session.agent_id)
    return session


def mine(tx: Tx, caller: Caller, session_id: str, session: Session | None) -> Session:
    """
    Return *session*, an open one of the workspace, if *caller* may work in it; None: there is no such open one.

    Raises:
        NotFound, PermissionDenied: As `held`.
        SessionEnded: It is over.
    """
    if session is None:
        raise SessionEnded(held(tx, caller, session_id))
    if not sees(caller, session):
        raise NotFound("session", session_id)
    must_speak_for(caller, session.agent_id)
    return session


def touched(tx: Tx, caller: Caller, session_id: str, *, at: datetime) -> Session:
    """
    Say that an open session is being worked in, and return it.

    Raises:
        NotFound, PermissionDenied, SessionEnded: As `mine`.
    """
    return mine(tx, caller, session_id, store.touch(tx, caller.workspace_id, session_id, at=at))


def write_handoff(tx: Tx, session: Session, notes: Notes, *, at: datetime) -> None:
    """Write the hand-off of *session*, instead of an earlier one; whoever writes one has taken what was offered (D-62)."""
    handoffs.put(
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
        handoffs.take(tx, session.workspace_id, session.offered_id, by=session.id, how=Taken.OWN_HANDOFF, at=at)
