"""Search: full text, not meaning; hits are read from the records (D-46, D-49)."""

from __future__ import annotations

import time
from collections.abc import Callable

from rookery.access.models import Caller
from rookery.kernel.clock import Clock
from rookery.kernel.db import Database
from rookery.memory.both import both
from rookery.memory.models import Filters, Searched, SearchHit, Within, Words
from rookery.memory.ports import TextIndex
from rookery.memory.reach import within
from rookery.memory.store import records
from rookery.memory.visibility import sees
from rookery.memory.words import highlighted, parsed

_ROUNDS = 8
"""So many times more is fetched where records drop what a lagging index found."""


class Search:
    """Finds memories by their words."""

    def __init__(self, *, db: Database, texts: TextIndex, clock: Clock, timer: Callable[[], float] = time.perf_counter) -> None:
        self._db = db
        self._texts = texts
        self._clock = clock
        self._timer = timer

    async def find(self, caller: Caller, query: str, filters: Filters, *, limit: int, offset: int = 0) -> Searched:
        """
        Return at most *limit* memories that *query* finds, after *offset*, best first; query text is data (D-49).

        Raises:
            PermissionDenied: *filters* name another agent than the key's own.
            EngineUnavailable: The full-text index is down.
        """
        started_s = self._timer()
        inside = within(caller, filters, at=self._clock())
        words = parsed(query)
        hits, total = list[SearchHit](), 0
        if words.any_of or words.phrases:
            # In a large store counting costs as much as finding, and neither needs the other.
            (hits, dropped), counted = await both(self._hits(words, inside, limit, offset), self._texts.total(words, within=inside))
            total = max(counted - dropped, len(hits))
        return Searched(hits=tuple(hits), total=total, took_ms=(self._timer() - started_s) * 1000)

    async def _hits(self, words: Words, inside: Within, limit: int, offset: int) -> tuple[list[SearchHit], int]:
        hits, dropped = list[SearchHit](), 0
        for _ in range(_ROUNDS):
            matched = await self._texts.match(words, within=inside, limit=limit - len(hits), offset=offset)
            ids = [each.memory_id for each in matched]
            read = {memory.id: memory for memory in await self._db.quick(lambda tx, ids=ids: records.by_ids(tx, inside.workspace_id, ids))}
            for each in matched:
                memory = read.get(each.memory_id)
                if memory is None or memory.archived_at is not None or not sees(inside, memory):
                    dropped += 1
                else:
                    hits.append(SearchHit(memory=memory, score=each.score, highlight=highlighted(memory.content, words)))
            offset += len(matched)
            if len(hits) >= limit or not matched:
                break
        return hits, dropped
