"""What an agent loads when it starts: its own memories, and those around its task (spec 4.3, D-48)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TypeVar

from rookery.access.models import Caller
from rookery.kernel.clock import Clock
from rookery.kernel.db import Database, Tx
from rookery.memory.models import Boot, Filters, Memory, MemoryScope, Standing
from rookery.memory.ranking import HALF_LIVES_DAYS, OTHER_HALF_LIFE_DAYS, decay
from rookery.memory.reach import within
from rookery.memory.store import queries, records

T = TypeVar("T")

_MOST = 100_000
"""So many of an agent's own memories are put in order; of more, the newest."""


class Context:
    """
    Loads memories without a question.

    Args:
        half_lives_days: By type, over `ranking.HALF_LIVES_DAYS`.
    """

    def __init__(self, *, db: Database, clock: Clock, half_lives_days: Mapping[str, int | None] | None = None) -> None:
        self._db = db
        self._clock = clock
        self._half_lives_days = {**HALF_LIVES_DAYS, **(half_lives_days or {})}

    async def of_agent(self, caller: Caller, filters: Filters, *, limit: int, offset: int) -> tuple[list[Memory], int]:
        """
        Return a stretch of the memories that are the filtered agent's own, the highest effective confidence first, and how many.

        Raises:
            PermissionDenied: It is another agent than the key's own.
        """
        at = self._clock()
        inside = within(caller, replace(filters, scopes=frozenset({MemoryScope.AGENT})), at=at)

        def read(tx: Tx) -> tuple[list[Memory], int]:
            ids = self._ordered(queries.standings(tx, inside, most=_MOST), at)
            return _in_order(tx, caller, ids[offset : offset + limit]), len(ids)

        return await self._db.read(read)

    async def boot(self, caller: Caller, filters: Filters, *, most: int) -> Boot:
        """
        Return at most *most* memories to begin with.

        The agent's own and the org's shared ones come by effective confidence, the project's and the session's newest first. Each
        kind has an equal part of the budget, and what one does not need is the others'.

        Raises:
            PermissionDenied: It is another agent than the key's own.
        """
        at = self._clock()
        owned = {MemoryScope.AGENT: filters.agent_id or caller.agent_id, MemoryScope.SESSION: filters.session_id}
        order = (MemoryScope.AGENT, MemoryScope.SHARED, MemoryScope.PROJECT, MemoryScope.SESSION)
        kinds = [kind for kind in order if kind not in owned or owned[kind] is not None]
        insides = {kind: within(caller, replace(filters, scopes=frozenset({kind})), at=at) for kind in kinds}

        def read(tx: Tx) -> dict[MemoryScope, list[Memory]]:
            ids: dict[MemoryScope, list[str]] = {}
            for kind, inside in insides.items():
                if kind in (MemoryScope.AGENT, MemoryScope.SHARED):
                    ids[kind] = self._ordered(queries.standings(tx, inside, most=_MOST), at)
                else:
                    ids[kind] = [each.memory_id for each in queries.standings(tx, inside, most=most)]
            return {kind: _in_order(tx, caller, part) for kind, part in zip(kinds, shared(list(ids.values()), most), strict=True)}

        found = await self._db.read(read)
        return Boot(
            agent=tuple(found.get(MemoryScope.AGENT, ())),
            shared=tuple(found[MemoryScope.SHARED]),
            project=tuple(found[MemoryScope.PROJECT]),
            session=tuple(found.get(MemoryScope.SESSION, ())),
        )

    def _ordered(self, standings: Sequence[Standing], at: datetime) -> list[str]:
        def effective(each: Standing) -> float:
            return each.confidence * decay(at - each.content_at, self._half_lives_days.get(each.type, OTHER_HALF_LIFE_DAYS))

        # Stable: of equal ones the newest, as they came.
        return [each.memory_id for each in sorted(standings, key=effective, reverse=True)]


def shared(lists: Sequence[Sequence[T]], budget: int) -> list[list[T]]:
    """Return the beginnings of *lists*, together at most *budget* long: equal parts, and what one leaves is shared by the others."""
    parts = [0] * len(lists)
    left = budget
    while left > 0 and any(part < len(each) for part, each in zip(parts, lists, strict=True)):
        for number, each in enumerate(lists):
            if left > 0 and parts[number] < len(each):
                parts[number] += 1
                left -= 1
    return [list(each[:part]) for part, each in zip(parts, lists, strict=True)]


def _in_order(tx: Tx, caller: Caller, ids: Sequence[str]) -> list[Memory]:
    found = {memory.id: memory for memory in records.by_ids(tx, caller.workspace_id, ids)}
    return [found[each] for each in ids if each in found]
