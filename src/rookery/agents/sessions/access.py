"""Access to sessions: of keys, also as other agents, and of calls in a session, which must be open."""

from __future__ import annotations

from datetime import timedelta

from rookery.access.models import Caller, not_in_allow_list
from rookery.agents.models.sessions import AgentSession
from rookery.agents.store import sessions as store
from rookery.agents.store.tables import SESSIONS
from rookery.kernel.clock import Clock
from rookery.kernel.db import Database
from rookery.kernel.errors import PermissionDenied

ADMIN_SCOPE = "brain:admin"
"""The scope that lets a key act for other agents than its own, here and in memory."""


def can_read_session(caller: Caller, session: AgentSession) -> bool:
    """Return True if *session* is in the workspace of *caller* and in the orgs and projects of its key."""
    return (
        session.workspace_id == caller.workspace_id
        and (caller.orgs is None or session.org in caller.orgs)
        and (caller.projects is None or session.project in caller.projects)
    )


def require_agent(caller: Caller, agent_id: str) -> None:
    """
    Check that *caller* may act as the agent.

    Raises:
        PermissionDenied: The key belongs to another agent and has no `brain:admin`.
    """
    if caller.agent_id is not None and caller.agent_id != agent_id and not caller.has_scope(ADMIN_SCOPE):
        raise PermissionDenied(
            ADMIN_SCOPE, f"This key belongs to the agent {caller.agent_id!r}; acting for another agent needs {ADMIN_SCOPE!r}."
        )


def require_org_and_project(caller: Caller, org: str | None, project: str | None) -> None:
    """
    Check that the key of *caller* allows a session in the org and project. A key can write only what it can read.

    Raises:
        NotInAllowList: The org or project is not in the allow-lists of the key.
    """
    for name, value, allowed in (("orgs", org, caller.orgs), ("projects", project, caller.projects)):
        if allowed is not None and value not in allowed:
            raise not_in_allow_list(name, value, allowed)


_ACTIVITY_WRITE_INTERVAL = timedelta(minutes=5)
"""Minimum time between two writes of the last activity."""


class SessionFinder:
    """A finder of sessions for other domains."""

    def __init__(self, *, db: Database, clock: Clock) -> None:
        self._db = db
        self._clock = clock

    async def list_predecessors(self, workspace_id: int, session_id: str) -> list[str]:
        """Return the ids of the sessions of the workspace that a session continues, the nearest first."""
        return await self._db.lookup(lambda tx: store.list_predecessor_ids(tx, workspace_id, session_id))

    async def is_open(self, workspace_id: int, session_id: str) -> bool:
        """Return True if the workspace has the session and it is open. The call counts as activity in the session."""
        session = await self._db.lookup(lambda tx: SESSIONS.find(tx, workspace_id, id=session_id))
        if session is None or not session.is_open:
            return False
        now = self._clock()
        if now - session.last_activity_at > _ACTIVITY_WRITE_INTERVAL:
            return await self._db.write(lambda tx: store.touch(tx, workspace_id, session_id, at=now)) is not None
        return True
