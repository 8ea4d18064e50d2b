"""The sessions that a session continues, whose memories it has too."""

from __future__ import annotations

from dataclasses import replace

from rookery.memory.models import MemoryFilter
from rookery.memory.ports import SessionLookup


async def add_continued_sessions(sessions: SessionLookup | None, workspace_id: int, memory_filter: MemoryFilter) -> MemoryFilter:
    """Return *memory_filter* with the sessions that its session continues; unchanged without a session, or if *sessions* is None."""
    if memory_filter.session_id is None or sessions is None:
        return memory_filter
    ids = await sessions.list_predecessors(workspace_id, memory_filter.session_id)
    return replace(memory_filter, continued_session_ids=frozenset(ids)) if ids else memory_filter
