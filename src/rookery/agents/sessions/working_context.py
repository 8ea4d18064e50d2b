"""
The project in which an agent works: that of its session, for calls that name none.

Hooks open the sessions, and the tools of the built-in servers store under their projects.
"""

from __future__ import annotations

from dataclasses import dataclass

from rookery.access.models import Caller
from rookery.agents.models.sessions import AgentSession
from rookery.agents.sessions.access import can_read_session
from rookery.agents.store import hooks
from rookery.agents.store.tables import SESSIONS
from rookery.kernel.db import Database, Tx
from rookery.kernel.working_context import CallSession


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionSpace:
    """The org, project and session in which an agent works."""

    org: str | None
    project: str | None
    session_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkingContexts:
    """Finds the session in which a caller works."""

    db: Database

    async def find(self, caller: Caller, call_session: CallSession) -> SessionSpace | None:
        """
        Return where *caller* works, or None if no session of it is known.

        If the call names no session, and need not, it is that in which the caller's agent works on the newest prompt, or else the one with
        the newest event.
        """
        session = await self.db.lookup(lambda tx: self._find(tx, caller, call_session))
        if session is None or not can_read_session(caller, session):
            return None
        return SessionSpace(org=session.org, project=session.project, session_id=session.id)

    def _find(self, tx: Tx, caller: Caller, call_session: CallSession) -> AgentSession | None:
        workspace_id, session_id, client_sessions = caller.workspace_id, call_session.session_id, call_session.client_sessions
        named_session = None if session_id is None else SESSIONS.find(tx, workspace_id, id=session_id)
        if named_session is not None:
            return named_session
        for client_session in client_sessions if session_id is None else (session_id, *client_sessions):
            own_id = hooks.find_session_id(tx, workspace_id, client_session)
            session = None if own_id is None else SESSIONS.find(tx, workspace_id, id=own_id)
            if session is not None and _is_own(caller, session):
                return session
        return None if call_session.is_required else hooks.find_active_session(tx, workspace_id, get_holder(caller))


def get_holder(caller: Caller) -> str:
    """Return the agent that works with the key of *caller*, or the key if it belongs to no agent."""
    return f"key:{caller.key_id}" if caller.agent_id is None else f"agent:{caller.agent_id}"


def _is_own(caller: Caller, session: AgentSession) -> bool:
    return session.key_id == caller.key_id if caller.agent_id is None else session.agent_id == caller.agent_id
