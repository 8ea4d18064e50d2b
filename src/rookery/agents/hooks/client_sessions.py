"""The agent sessions of the sessions of coding agents: found, started, continued and recorded."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from rookery.access.models import Caller
from rookery.agents.models.agent_hooks import HookCall, HookProject
from rookery.agents.models.sessions import (
    AgentSession,
    NewSession,
    NewSessionEvent,
    SessionEventType,
    SessionResumeRequest,
)
from rookery.agents.sessions.access import can_read_session, require_agent
from rookery.agents.sessions.errors import SessionResumed
from rookery.agents.sessions.records import SessionRecords
from rookery.agents.sessions.start import SessionStarter
from rookery.agents.sessions.working_context import get_holder
from rookery.agents.store import hooks as store
from rookery.agents.store.tables import SESSIONS
from rookery.kernel.db import Tx

MAX_MESSAGE_CHARS = 50_000
"""Characters of a message that are recorded, as in other events of sessions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSessions:
    """The sessions of coding agents. All methods run within a transaction."""

    starter: SessionStarter
    records: SessionRecords

    def find(self, tx: Tx, caller: Caller, client_session: str) -> AgentSession | None:
        """
        Return the agent session of a client's session, open or not, or None.

        Raises:
            PermissionDenied: It belongs to another agent.
        """
        session_id = store.find_session_id(tx, caller.workspace_id, client_session)
        session = None if session_id is None else SESSIONS.find(tx, caller.workspace_id, id=session_id)
        if session is None or not can_read_session(caller, session):
            return None
        require_agent(caller, session.agent_id)
        return session

    def open(self, tx: Tx, caller: Caller, call: HookCall, project: HookProject | None, *, at: datetime) -> AgentSession | None:
        """
        Return the open agent session of the client's session. Start it, or the successor of one that has ended.

        Return None if the client's session is unknown and its *project* too, because then nothing is recorded.

        Raises:
            PermissionDenied: The session belongs to another agent, or the key does not allow the project.
        """
        workspace_id, client_session = caller.workspace_id, call.session_id
        if project is not None and store.add_client_session(tx, workspace_id, client_session, at=at):
            return self._start(tx, caller, call, project, at)
        session_id = store.find_session_id(tx, workspace_id, client_session, lock=True)
        if session_id is None:
            return None
        session = SESSIONS.find(tx, workspace_id, id=session_id, lock=True)
        if session is None or not can_read_session(caller, session):
            return None
        require_agent(caller, session.agent_id)
        if session.is_open:
            return session
        try:
            successor = self.starter.add_successor(tx, caller, session.id, SessionResumeRequest(), at=at)
        except SessionResumed:
            project = project or get_project(session)
            return None if project is None else self._start(tx, caller, call, project, at)
        store.set_session_id(tx, workspace_id, client_session, successor.id, at=at)
        return successor

    def record_event(self, tx: Tx, caller: Caller, call: HookCall, *, at: datetime) -> None:
        """Store that the agent now works on a prompt in the client's session, or has ended its turn."""
        has_turn = call.event == "prompt"
        store.record_event(tx, caller.workspace_id, call.session_id, get_holder(caller), has_turn=has_turn, at=at)

    def _start(self, tx: Tx, caller: Caller, call: HookCall, project: HookProject, at: datetime) -> AgentSession:
        request = NewSession(
            agent_type=call.client,
            org=project.org,
            project=project.project,
            context={"client": call.client, "client_session": call.session_id},
        )
        session = self.starter.add(tx, caller, request, at=at)
        store.set_session_id(tx, caller.workspace_id, call.session_id, session.id, at=at)
        return session

    def append_message(self, tx: Tx, caller: Caller, session: AgentSession, call: HookCall, message: str, *, at: datetime) -> None:
        """Append the last message of a turn to the events of *session*."""
        event = NewSessionEvent(
            type=SessionEventType.NOTE,
            message=message[:MAX_MESSAGE_CHARS],
            data={"hook": call.event, "client": call.client, **({} if call.turn is None else {"turn": call.turn})},
        )
        self.records.add_event(tx, caller, session.id, event, at=at)


def get_project(session: AgentSession | None) -> HookProject | None:
    """Return the project of an agent session, or None without a session or a project."""
    return None if session is None or session.project is None else HookProject(project=session.project, org=session.org)
