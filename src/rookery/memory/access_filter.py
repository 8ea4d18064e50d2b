"""Authorisation of memory reads and writes: the allow-lists of a key and the rules for an agent's key."""

from __future__ import annotations

from dataclasses import fields, replace
from datetime import datetime

from rookery.access.models import Caller, not_in_allow_list
from rookery.kernel.errors import PermissionDenied, ValidationFailed
from rookery.memory.models import ALL_AGENTS, AccessFilter, Memory, MemoryFilter, MemoryScope, read_fields
from rookery.memory.ports import SessionLookup
from rookery.memory.visibility import is_visible

ADMIN_SCOPE = "brain:admin"

_FILTER_FIELDS = tuple(column.name for column in fields(MemoryFilter))


async def resolve_access_filter(
    sessions: SessionLookup | None, caller: Caller, memory_filter: MemoryFilter, *, at: datetime, is_list: bool = False
) -> AccessFilter:
    """Return the filter of `build_access_filter`, with the sessions that the session of *memory_filter* continues."""
    return build_access_filter(caller, await add_continued_sessions(sessions, caller.workspace_id, memory_filter), at=at, is_list=is_list)


async def add_continued_sessions(sessions: SessionLookup | None, workspace_id: int, memory_filter: MemoryFilter) -> MemoryFilter:
    """Return *memory_filter* with the sessions that its session continues; unchanged without a session, or if *sessions* is None."""
    if memory_filter.session_id is None or sessions is None:
        return memory_filter
    ids = await sessions.list_predecessors(workspace_id, memory_filter.session_id)
    return replace(memory_filter, continued_session_ids=frozenset(ids)) if ids else memory_filter


def build_access_filter(caller: Caller, memory_filter: MemoryFilter, *, at: datetime, is_list: bool = False) -> AccessFilter:
    """
    Return the filter that combines *memory_filter* with the rights of *caller*.

    If *memory_filter* names no agent, the agent of the key is used. An agent's key therefore sees the agent's own memories.

    Args:
        is_list: Allow `ALL_AGENTS` as the agent. The indexes do not support it.

    Raises:
        PermissionDenied: The filter names an agent other than the key's, or all agents, without `brain:admin`.
        NotInList: The filter names an org or a project outside the key's lists.
        ValidationFailed: The scopes are only `agent` or `session`, and the agent or session id is missing.
    """
    caller.require_in_allow_lists(org=memory_filter.org, project=memory_filter.project)
    agent_id = caller.agent_id if memory_filter.agent_id is None else memory_filter.agent_id
    all_agents = agent_id == ALL_AGENTS
    if all_agents and not is_list:
        raise ValidationFailed(
            {"agent_id": [f"{ALL_AGENTS!r} (all agents) is allowed only when listing memories, tags and scopes; send the id of one agent"]}
        )
    if all_agents and not caller.has_scope(ADMIN_SCOPE):
        raise PermissionDenied(ADMIN_SCOPE, f"Listing the own memories of all agents requires the scope {ADMIN_SCOPE!r}.")
    if not all_agents:
        _require_can_name_agent(caller, agent_id)
    _require_owners(memory_filter, agent_id)
    values = read_fields(memory_filter, _FILTER_FIELDS)
    values["agent_id"] = None if all_agents else agent_id
    return AccessFilter(
        workspace_id=caller.workspace_id, at=at, includes_all_agents=all_agents, orgs=caller.orgs, projects=caller.projects, **values
    )


def can_read(caller: Caller, memory: Memory, *, at: datetime) -> bool:
    """Return whether *caller* may read *memory* by its id. Archived memories count too."""
    if memory.memory_scope is MemoryScope.AGENT and not _can_name_agent(caller, memory.agent_id):
        return False
    return is_visible(_widest_filter(caller, memory, at=at), memory)


def require_can_write(caller: Caller, memory: Memory, *, at: datetime) -> None:
    """
    Check that *caller* may store *memory* in its org and project, and for its agent.

    Raises:
        PermissionDenied: The memory belongs to another agent, or lies outside the key's orgs and projects. A key can
            write only what it could read.
    """
    _require_can_name_agent(caller, memory.agent_id)
    if not is_visible(_widest_filter(caller, memory, at=at), memory):
        if caller.orgs is not None and memory.org not in caller.orgs:
            raise not_in_allow_list("orgs", memory.org, caller.orgs)
        raise not_in_allow_list("projects", memory.project, caller.projects or ())


def _require_owners(memory_filter: MemoryFilter, agent_id: str | None) -> None:
    """Raise ValidationFailed if *memory_filter* has only private scopes and the ids of their owners are missing."""
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
        raise PermissionDenied(
            ADMIN_SCOPE, f"This key belongs to the agent {caller.agent_id!r}; using another agent's id requires the scope {ADMIN_SCOPE!r}."
        )


def _can_name_agent(caller: Caller, agent_id: str | None) -> bool:
    return agent_id is None or caller.agent_id is None or agent_id == caller.agent_id or caller.has_scope(ADMIN_SCOPE)


def _widest_filter(caller: Caller, memory: Memory, *, at: datetime) -> AccessFilter:
    """Return the widest filter of *caller* that could match *memory*."""
    return AccessFilter(
        workspace_id=caller.workspace_id,
        at=at,
        agent_id=memory.agent_id,
        session_id=memory.session_id,
        orgs=caller.orgs,
        projects=caller.projects,
    )
