"""The memories that an agent loads when it starts: its own, and those related to its task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TypeVar, cast

from rookery.access.models import Caller
from rookery.kernel.clock import Clock, from_micros, to_micros
from rookery.kernel.db import Database, Tx
from rookery.kernel.pages import InvalidCursor, ListPage, PageSlice, check_position, slice_sorted
from rookery.memory.access_filter import add_continued_sessions, build_access_filter
from rookery.memory.models import BootMemories, ConfidenceRow, Memory, MemoryFilter, MemoryScope
from rookery.memory.ports import SessionLookup
from rookery.memory.ranking import DEFAULT_HALF_LIFE_DAYS, HALF_LIVES_DAYS, decay_factor, select_distinct
from rookery.memory.store import queries, records

T = TypeVar("T")

_SERIES_OVERFETCH = 5
"""Memories that are read for each place of a start, to find others than those of one series."""

_MAX_SORTED = 100_000
"""Maximum number of an agent's own memories that are sorted by confidence. If there are more, the newest are taken."""


class AgentContext:
    """
    A loader of memories without a query.

    Args:
        half_lives_days: Half-lives by memory type; they override `ranking.HALF_LIVES_DAYS`.
    """

    def __init__(
        self, *, db: Database, sessions: SessionLookup, clock: Clock, half_lives_days: Mapping[str, int | None] | None = None
    ) -> None:
        self._db = db
        self._sessions = sessions
        self._clock = clock
        self._half_lives_days = {**HALF_LIVES_DAYS, **(half_lives_days or {})}

    async def list_agent_memories(self, caller: Caller, memory_filter: MemoryFilter, *, page: PageSlice) -> ListPage[Memory]:
        """
        Return one page of the filtered agent's own memories, highest effective confidence first, and their total number.

        Raises:
            PermissionDenied: The agent is not the key's own.
        """
        now = self._clock()
        access_filter = build_access_filter(caller, replace(memory_filter, scopes=frozenset({MemoryScope.AGENT})), at=now)
        # Confidence decays with time. All pages of a walk use the time of the first, so that the order stays.
        at, after = now, page.after
        if after is not None:
            first_us, *rest = check_position(after, (int, float, int, str))
            if not 0 <= cast("int", first_us) <= to_micros(now):
                raise InvalidCursor
            at, after = from_micros(cast("int", first_us)), tuple(rest)

        def read(tx: Tx) -> ListPage[Memory]:
            ranked = self._rank(queries.list_confidence_rows(tx, access_filter, limit=_MAX_SORTED), at)
            ranked_page = slice_sorted(ranked, replace(page, after=after), tuple[float, int, str], descending=True)
            by_id = {memory.id: memory for memory in _load_in_order(tx, caller, [memory_id for *_, memory_id in ranked_page.items])}
            return ranked_page.with_positions([(to_micros(at), *position) for position in ranked_page.positions]).with_items(
                [by_id[memory_id] for *_, memory_id in ranked_page.items]
            )

        return await self._db.read(read)

    async def boot(self, caller: Caller, memory_filter: MemoryFilter, *, limit: int) -> BootMemories:
        """
        Return at most *limit* memories for a new session.

        Agent and shared memories are sorted by effective confidence; project and session memories are sorted newest first. The four
        scopes get equal parts of the limit. A part that one scope does not fill goes to the others. Of a series, such as notes that differ
        by a date only, the first one takes a place before others get any; the further ones fill the room that is left.

        Raises:
            PermissionDenied: The agent is not the key's own.
        """
        memory_filter = await add_continued_sessions(self._sessions, caller.workspace_id, memory_filter)
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
                    rows = queries.list_confidence_rows(tx, access_filter, limit=_SERIES_OVERFETCH * limit)
                    ids[kind] = [row.memory_id for row in rows]
            parts = share_budget(list(ids.values()), limit)
            return {
                kind: select_distinct(_load_in_order(tx, caller, ids[kind][: _SERIES_OVERFETCH * len(part)]), len(part))
                for kind, part in zip(kinds, parts, strict=True)
            }

        memories_by_scope = await self._db.read(read)
        return BootMemories(
            agent=tuple(memories_by_scope.get(MemoryScope.AGENT, ())),
            shared=tuple(memories_by_scope[MemoryScope.SHARED]),
            project=tuple(memories_by_scope[MemoryScope.PROJECT]),
            session=tuple(memories_by_scope.get(MemoryScope.SESSION, ())),
        )

    def _sort_by_confidence(self, rows: Sequence[ConfidenceRow], at: datetime) -> list[str]:
        return [memory_id for *_, memory_id in self._rank(rows, at)]

    def _rank(self, rows: Sequence[ConfidenceRow], at: datetime) -> list[tuple[float, int, str]]:
        """Return effective confidence, time of creation and id of each memory, highest first, among equal confidences the newest."""

        def effective(row: ConfidenceRow) -> float:
            return row.confidence * decay_factor(at - row.content_at, self._half_lives_days.get(row.type, DEFAULT_HALF_LIFE_DAYS))

        return sorted(((effective(row), to_micros(row.created_at), row.memory_id) for row in rows), reverse=True)


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
