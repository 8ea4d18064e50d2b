"""The visibility rule of memories. Pure functions: no I/O, no clock, no settings."""

from __future__ import annotations

from rookery.memory.models import AccessFields, AccessFilter, IndexDocument, Memory, MemoryScope

_ORG_OPTIONAL_SCOPES = frozenset({MemoryScope.AGENT, MemoryScope.SESSION})
_PROJECT_OPTIONAL_SCOPES = frozenset({MemoryScope.SHARED, MemoryScope.AGENT, MemoryScope.SESSION})


def is_visible(access_filter: AccessFilter, memory: Memory | IndexDocument) -> bool:
    """Return whether *access_filter* allows *memory*. Archiving is not part of the rule; the record store checks it."""
    return is_readable(access_filter, memory) and _matches_fields(access_filter, memory)


def is_readable(access_filter: AccessFilter, memory: Memory | IndexDocument | AccessFields) -> bool:
    """Return whether *access_filter* allows *memory*, without its filters by field: type, tags, labels, source, times and confidence."""
    return (
        memory.workspace_id == access_filter.workspace_id
        and (memory.expires_at is None or memory.expires_at > access_filter.at)
        and _matches_space(access_filter, memory)
        and _matches_owner(access_filter, memory)
    )


def _matches_space(access_filter: AccessFilter, memory: Memory | IndexDocument | AccessFields) -> bool:
    if memory.org is None:
        restricted = access_filter.org is not None or access_filter.orgs is not None
        if restricted and memory.memory_scope not in _ORG_OPTIONAL_SCOPES:
            return False
    elif access_filter.org not in (None, memory.org) or (access_filter.orgs is not None and memory.org not in access_filter.orgs):
        return False
    if memory.project is None:
        restricted = access_filter.project is not None or access_filter.projects is not None
        return not restricted or memory.memory_scope in _PROJECT_OPTIONAL_SCOPES
    if access_filter.project not in (None, memory.project):
        return False
    return access_filter.projects is None or memory.project in access_filter.projects


def _matches_owner(access_filter: AccessFilter, memory: Memory | IndexDocument | AccessFields) -> bool:
    if access_filter.scopes is not None and memory.memory_scope not in access_filter.scopes:
        return False
    match memory.memory_scope:
        case MemoryScope.AGENT:
            return access_filter.includes_all_agents or (access_filter.agent_id is not None and memory.agent_id == access_filter.agent_id)
        case MemoryScope.SESSION:
            return memory.session_id in access_filter.session_ids
        case MemoryScope.PROJECT | MemoryScope.SHARED:
            return True


def _matches_fields(access_filter: AccessFilter, memory: Memory | IndexDocument) -> bool:
    return (
        (access_filter.type is None or memory.type == access_filter.type)
        and (access_filter.source is None or memory.source == access_filter.source)
        and access_filter.tags.issubset(memory.tags)
        and (not access_filter.labels or access_filter.labels.issubset(memory.labels))
        and (access_filter.since is None or memory.created_at >= access_filter.since)
        and (access_filter.until is None or memory.created_at < access_filter.until)
        and (access_filter.min_confidence is None or memory.confidence >= access_filter.min_confidence)
    )
