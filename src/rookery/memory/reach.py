"""Which memories a key may name, see and write: D-23's allow-lists and D-43's rule about agents. Pure."""

from __future__ import annotations

from datetime import datetime

from rookery.access.models import Caller, not_listed
from rookery.kernel.errors import PermissionDenied, ValidationFailed
from rookery.memory.models import Filters, Memory, MemoryScope, Within
from rookery.memory.visibility import sees

ADMIN = "brain:admin"

ALL_AGENTS = "*"
"""In place of an agent's id, in lists: every agent's own memories."""


def within(caller: Caller, filters: Filters, *, at: datetime, is_list: bool = False) -> Within:
    """
    Return what *caller* may see of what *filters* ask for.

    Where no agent is named, the key's own is meant: an agent's key sees the agent's own memories.

    Args:
        is_list: Whether `ALL_AGENTS` may stand for every agent; the indexes cannot search for that.

    Raises:
        PermissionDenied: They name another agent than the key's own, or all of them.
        NotInList: They name an org or a project that is not in the key's lists.
        ValidationFailed: They ask only for memories of an agent or a session, and name none.
    """
    caller.require_listed(org=filters.org, project=filters.project)
    agent_id = caller.agent_id if filters.agent_id is None else filters.agent_id
    of_all = agent_id == ALL_AGENTS
    if of_all and not is_list:
        raise ValidationFailed({"agent_id": [f"{ALL_AGENTS!r} stands for all agents in lists, tags and scopes only; name one agent here"]})
    if of_all and not caller.may(ADMIN):
        raise PermissionDenied(ADMIN, f"Listing the own memories of all agents needs {ADMIN!r}.")
    if not of_all:
        _must_name(caller, agent_id)
    _must_have_owners(filters, agent_id)
    return Within(
        workspace_id=caller.workspace_id,
        at=at,
        org=filters.org,
        project=filters.project,
        agent_id=None if of_all else agent_id,
        of_all_agents=of_all,
        session_id=filters.session_id,
        scopes=filters.scopes,
        type=filters.type,
        tags=filters.tags,
        labels=filters.labels,
        source=filters.source,
        since=filters.since,
        until=filters.until,
        min_confidence=filters.min_confidence,
        orgs=caller.orgs,
        projects=caller.projects,
    )


def reaches(caller: Caller, memory: Memory, *, at: datetime) -> bool:
    """Tell whether *caller* may read *memory* by its id; an archived one too."""
    if memory.memory_scope is MemoryScope.AGENT and not _names(caller, memory.agent_id):
        return False
    return sees(_around(caller, memory, at=at), memory)


def must_write(caller: Caller, memory: Memory, *, at: datetime) -> None:
    """
    Do nothing if *caller* may store *memory* where and for whom it says.

    Raises:
        PermissionDenied: It is for another agent, or outside the key's orgs and projects: a key writes only what it could read.
    """
    _must_name(caller, memory.agent_id)
    if not sees(_around(caller, memory, at=at), memory):
        if caller.orgs is not None and memory.org not in caller.orgs:
            raise not_listed("orgs", memory.org, caller.orgs)
        raise not_listed("projects", memory.project, caller.projects or ())


def _must_have_owners(filters: Filters, agent_id: str | None) -> None:
    """Raise ValidationFailed if *filters* ask for private memories alone and name nobody whose they are."""
    if filters.scopes is None:
        return
    missing = dict[str, list[str]]()
    if MemoryScope.AGENT in filters.scopes and agent_id is None:
        missing["agent_id"] = ["is required for the scope agent, unless the key is an agent's"]
    if MemoryScope.SESSION in filters.scopes and filters.session_id is None:
        missing["session_id"] = ["is required for the scope session"]
    if missing and len(missing) == len(filters.scopes):
        raise ValidationFailed(missing)


def _must_name(caller: Caller, agent_id: str | None) -> None:
    if not _names(caller, agent_id):
        raise PermissionDenied(ADMIN, f"This key speaks for the agent {caller.agent_id!r}; naming another needs {ADMIN!r}.")


def _names(caller: Caller, agent_id: str | None) -> bool:
    return agent_id is None or caller.agent_id is None or agent_id == caller.agent_id or caller.may(ADMIN)


def _around(caller: Caller, memory: Memory, *, at: datetime) -> Within:
    """Return the widest query of *caller* that could see *memory*."""
    return Within(
        workspace_id=caller.workspace_id,
        at=at,
        agent_id=memory.agent_id,
        session_id=memory.session_id,
        orgs=caller.orgs,
        projects=caller.projects,
    )
