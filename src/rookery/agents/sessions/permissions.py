"""Which sessions a key sees, and for which agent it speaks (D-23, D-43). Pure."""

from __future__ import annotations

from rookery.access.models import Caller, not_in_allow_list
from rookery.agents.models.sessions import AgentSession
from rookery.kernel.errors import PermissionDenied

ADMIN_SCOPE = "brain:admin"
"""What lets a key speak for another agent than its own, in memory as here."""


def can_read_session(caller: Caller, session: AgentSession) -> bool:
    """Tell whether *caller* may know of *session*: it is of its workspace, and within the key's orgs and projects."""
    return (
        session.workspace_id == caller.workspace_id
        and (caller.orgs is None or session.org in caller.orgs)
        and (caller.projects is None or session.project in caller.projects)
    )


def require_agent(caller: Caller, agent_id: str) -> None:
    """
    Do nothing if *caller* may act as the agent.

    Raises:
        PermissionDenied: Its key speaks for another one.
    """
    if caller.agent_id is not None and caller.agent_id != agent_id and not caller.has_scope(ADMIN_SCOPE):
        raise PermissionDenied(ADMIN_SCOPE, f"This key speaks for the agent {caller.agent_id!r}; acting for another needs {ADMIN_SCOPE!r}.")


def require_org_and_project(caller: Caller, org: str | None, project: str | None) -> None:
    """
    Do nothing if *caller* may have a session there.

    Raises:
        PermissionDenied: It is outside the key's orgs and projects: a key makes only what it could see.
    """
    for name, value, allowed in (("orgs", org, caller.orgs), ("projects", project, caller.projects)):
        if allowed is not None and value not in allowed:
            raise not_in_allow_list(name, value, allowed)
