"""Which memories a query may see: the one rule of D-43. Pure: no I/O, no clock, no settings."""

from __future__ import annotations

from rookery.memory.metadata import labels
from rookery.memory.models import Document, Memory, MemoryScope, Within

_ORGLESS = frozenset({MemoryScope.AGENT, MemoryScope.SESSION})
_PROJECTLESS = frozenset({MemoryScope.SHARED, MemoryScope.AGENT, MemoryScope.SESSION})


def sees(within: Within, memory: Memory | Document) -> bool:
    """Tell whether a query of *within* may return *memory*; archiving is the record store's to check (D-46)."""
    return (
        memory.workspace_id == within.workspace_id and _in_space(within, memory) and _is_theirs(within, memory) and _passes(within, memory)
    )


def _in_space(within: Within, memory: Memory | Document) -> bool:
    if memory.org is None:
        restricted = within.org is not None or within.orgs is not None
        if restricted and memory.memory_scope not in _ORGLESS:
            return False
    elif within.org not in (None, memory.org) or (within.orgs is not None and memory.org not in within.orgs):
        return False
    if memory.project is None:
        restricted = within.project is not None or within.projects is not None
        return not restricted or memory.memory_scope in _PROJECTLESS
    if within.project not in (None, memory.project):
        return False
    return within.projects is None or memory.project in within.projects


def _is_theirs(within: Within, memory: Memory | Document) -> bool:
    if within.scopes is not None and memory.memory_scope not in within.scopes:
        return False
    match memory.memory_scope:
        case MemoryScope.AGENT:
            return within.of_all_agents or (within.agent_id is not None and memory.agent_id == within.agent_id)
        case MemoryScope.SESSION:
            return within.session_id is not None and memory.session_id == within.session_id
        case MemoryScope.PROJECT | MemoryScope.SHARED:
            return True


def _passes(within: Within, memory: Memory | Document) -> bool:
    return (
        (memory.expires_at is None or memory.expires_at > within.at)
        and (within.type is None or memory.type == within.type)
        and (within.source is None or memory.source == within.source)
        and within.tags.issubset(memory.tags)
        and (not within.labels or within.labels.issubset(labels(memory.metadata) if isinstance(memory, Memory) else memory.labels))
        and (within.since is None or memory.created_at >= within.since)
        and (within.until is None or memory.created_at < within.until)
        and (within.min_confidence is None or memory.confidence >= within.min_confidence)
    )
