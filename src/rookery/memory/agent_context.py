"""The memories that an agent loads when it starts: its own, and those related to its task (spec 4.3, D-48)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TypeVar

from rookery.access.models import Caller
from rookery.kernel.clock import Clock
from rookery.kernel.db import Database, Tx
from rookery.memory.access_filter import build_access_filter
from rookery.memory.models import BootMemories, ConfidenceRow, Memory, MemoryFilter, MemoryScope
from rookery.memory.ranking import DEFAULT_HALF_LIFE_DAYS, HALF_LIVES_DAYS, decay_factor
from rookery.memory.store import queries, records

T = TypeVar("T")

_MAX_SORTED = 100_000
"""Maximum number of an agent's own memories that are sorted by confidence. If there are more, the newest are taken."""


class AgentContext:
    """
    A loader of memories without a query.

    Args:
        half_lives_days: Half-lives by memory type; they override `ranking.HALF_LIVES_DAYS`.
    """

    def __init__(self, *, db: Database, clock: Clock, half_lives_days: Mapping[str, int | None] | None = None) -> None:
        self._db = db
        self._clock = clock
        self._half_lives_days = {**HALF_LIVES_DAYS, **(half_lives_days or {})}

    async def list_agent_memories(
        self, caller: Caller, memory_filter: MemoryFilter, *, limit: int, offset: int
    ) -> tuple[list[Memory], int]:
        """
        Return one page of the filtered agent's own memories, highest effective confidence first, and their total number.

        Raises:
            PermissionDenied: The agent is not the key's own.
        """
        at = self._clock()
        access_filter = build_access_filter(caller, replace(memory_filter, scopes=frozenset({MemoryScope.AGENT})), at=at)

        def read(tx: Tx) -> tuple[list[Memory], int]:
            ids = self._sort_by_confidence(queries.list_confidence_rows(tx, access_filter, limit=_MAX_SORTED), at)
            return _load_in_order(tx, caller, ids[offset : offset + limit]), len(ids)

        return await self._db.read(read)

    async def boot(self, caller: Caller, memory_filter: MemoryFilter, *, limit: int) -> BootMemories:
        """
        Return at most *limit* memories for a new session.

        Agent and shared memories are sorted by effective confidence; project and session memories are sorted newest first. The four
        scopes get equal parts of the limit. A part that one scope does not fill goes to the others.

        Raises:
            PermissionDenied: The agent is not the key's own.
        """
        at = self._clock()
        owner_ids = {MemoryScope.AGENT: memory_filter.agent_id or caller.agent_id, MemoryScope.SESSION: memory_filter.session_id}
        order = (MemoryScope.AGENT, MemoryScope.SHARED, MemoryScope.PROJECT, MemoryScope.SESSION)
        kinds = [kind for kind in order if kind not in owner_ids or owner_ids[kind] is not None]
        insides = {kind: build_access_filter(caller, replace(memory_filter, scopes=frozenset({kind})), at=at) for kind in kinds}

        def read(tx: Tx) -> dict[MemoryScope, list[Memory]]:
            ids: dict[MemoryScope, list[str]] = {}
            for kind, access_filter in insides.items():
                if kind in (MemoryScope.AGENT, MemoryScope.SHARED):
                    ids[kind] = self._sort_by_confidence(queries.list_confidence_rows(tx, access_filter, limit=_MAX_SORTED), at)
                else:
                    ids[kind] = [row.memory_id for row in queries.list_confidence_rows(tx, access_filter, limit=limit)]
            return {
                kind: _load_in_order(tx, caller, part) for kind, part in zip(kinds, share_budget(list(ids.values()), limit), strict=True)
            }

        memories_by_scope = await self._db.read(read)
        return BootMemories(
            agent=tuple(memories_by_scope.get(MemoryScope.AGENT, ())),
            shared=tuple(memories_by_scope[MemoryScope.SHARED]),
            project=tuple(memories_by_scope[MemoryScope.PROJECT]),
            session=tuple(memories_by_scope.get(MemoryScope.SESSION, ())),
        )

    def _sort_by_confidence(self, rows: Sequence[ConfidenceRow], at: datetime) -> list[str]:
        def effective(row: ConfidenceRow) -> float:
            return row.confidence * decay_factor(at - row.content_at, self._half_lives_days.get(row.type, DEFAULT_HALF_LIFE_DAYS))

        # The sort is stable: among equal confidences the newest memory stays first.
        return [row.memory_id for row in sorted(rows, key=effective, reverse=True)]


def share_budget(lists: Sequence[Sequence[T]], budget: int) -> list[list[T]]:
    """Return prefixes of *lists* with at most *budget* items in total. The parts are equal; unused room is shared by the other lists."""
    parts = [0] * len(lists)
    remaining = budget
    while remaining > 0 and any(part < len(items) for part, items in zip(parts, lists, strict=True)):
        for number, items in enumerate(lists):
            if remaining > 0 and parts[number] < len(items):
                parts[number] += 1
                remaining -= 1
    return [list(items[:part]) for part, items in zip(parts, lists, strict=True)]


def _load_in_order(tx: Tx, caller: Caller, ids: Sequence[str]) -> list[Memory]:
    memories_by_id = {memory.id: memory for memory in records.get_memories(tx, caller.workspace_id, ids)}
    return [memories_by_id[memory_id] for memory_id in ids if memory_id in memories_by_id]
