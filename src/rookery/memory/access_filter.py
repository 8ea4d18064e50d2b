"""Which memories a key may name, see and write: D-23's allow-lists and D-43's rule about agents. Pure."""

from __future__ import annotations

from datetime import datetime

from rookery.access.models import Caller, not_in_allow_list
from rookery.kernel.errors import PermissionDenied, ValidationFailed
from rookery.memory.models import AccessFilter, Memory, MemoryFilter, MemoryScope
from rookery.memory.visibility import is_visible

ADMIN_SCOPE = "brain:admin"

ALL_AGENTS = "*"
"""In place of an agent's id, in lists: every agent's own memories."""


def build_access_filter(caller: Caller, memory_filter: MemoryFilter, *, at: datetime, is_list: bool = False) -> AccessFilter:
    """
    Return what *caller* may see of what *memory_filter* ask for.

    Where no agent is named, the key's own is meant: an agent's key sees the agent's own memories.

    Args:
        is_list: Whether `ALL_AGENTS` may stand for every agent; the indexes cannot search for that.

    Raises:
        PermissionDenied: They name another agent than the key's own, or all of them.
        NotInList: They name an org or a project that is not in the key's lists.
        ValidationFailed: They ask only for memories of an agent or a session, and name none.
    """
    caller.require_in_allow_lists(org=memory_filter.org, project=memory_filter.project)
    agent_id = caller.agent_id if memory_filter.agent_id is None else memory_filter.agent_id
    of_all = agent_id == ALL_AGENTS
    if of_all and not is_list:
        raise ValidationFailed({"agent_id": [f"{ALL_AGENTS!r} stands for all agents in lists, tags and scopes only; name one agent here"]})
    if of_all and not caller.has_scope(ADMIN_SCOPE):
        raise PermissionDenied(ADMIN_SCOPE, f"Listing the own memories of all agents needs {ADMIN_SCOPE!r}.")
    if not of_all:
        _require_can_name_agent(caller, agent_id)
    _require_owners(memory_filter, agent_id)
    return AccessFilter(
        workspace_id=caller.workspace_id,
        at=at,
        org=memory_filter.org,
        project=memory_filter.project,
        agent_id=None if of_all else agent_id,
        includes_all_agents=of_all,
        session_id=memory_filter.session_id,
        scopes=memory_filter.scopes,
        type=memory_filter.type,
        tags=memory_filter.tags,
        labels=memory_filter.labels,
        source=memory_filter.source,
        since=memory_filter.since,
        until=memory_filter.until,
        min_confidence=memory_filter.min_confidence,
        orgs=caller.orgs,
        projects=caller.projects,
    )


def can_read(caller: Caller, memory: Memory, *, at: datetime) -> bool:
    """Tell whether *caller* may read *memory* by its id; an archived one too."""
    if memory.memory_scope is MemoryScope.AGENT and not _can_name_agent(caller, memory.agent_id):
        return False
    return is_visible(_widest_filter(caller, memory, at=at), memory)


def require_can_write(caller: Caller, memory: Memory, *, at: datetime) -> None:
    """
    Do nothing if *caller* may store *memory* where and for whom it says.

    Raises:
        PermissionDenied: It is for another agent, or outside the key's orgs and projects: a key writes only what it could read.
    """
    _require_can_name_agent(caller, memory.agent_id)
    if not is_visible(_widest_filter(caller, memory, at=at), memory):
        if caller.orgs is not None and memory.org not in caller.orgs:
            raise not_in_allow_list("orgs", memory.org, caller.orgs)
        raise not_in_allow_list("projects", memory.project, caller.projects or ())


def _require_owners(memory_filter: MemoryFilter, agent_id: str | None) -> None:
    """Raise ValidationFailed if *memory_filter* ask for private memories alone and name nobody whose they are."""
    if memory_filter.scopes is None:
        return
    missing = dict[str, list[str]]()
    if MemoryScope.AGENT in memory_filter.scopes and agent_id is None:
        missing["agent_id"] = ["is required for the scope agent, unless the key is an agent's"]
    if MemoryScope.SESSION in memory_filter.scopes and memory_filter.session_id is None:
        missing["session_id"] = ["is required for the scope session"]
    if missing and len(missing) == len(memory_filter.scopes):
        raise ValidationFailed(missing)


def _require_can_name_agent(caller: Caller, agent_id: str | None) -> None:
    if not _can_name_agent(caller, agent_id):
        raise PermissionDenied(ADMIN_SCOPE, f"This key speaks for the agent {caller.agent_id!r}; naming another needs {ADMIN_SCOPE!r}.")


def _can_name_agent(caller: Caller, agent_id: str | None) -> bool:
    return agent_id is None or caller.agent_id is None or agent_id == caller.agent_id or caller.has_scope(ADMIN_SCOPE)


def _widest_filter(caller: Caller, memory: Memory, *, at: datetime) -> AccessFilter:
    """Return the widest query of *caller* that could see *memory*."""
    return AccessFilter(
        workspace_id=caller.workspace_id,
        at=at,
        agent_id=memory.agent_id,
        session_id=memory.session_id,
        orgs=caller.orgs,
        projects=caller.projects,
    )
