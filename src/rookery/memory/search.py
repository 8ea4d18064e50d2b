"""Full-text search of memories; hits are read from the records (D-46, D-49)."""

from __future__ import annotations

import time
from collections.abc import Callable

from rookery.access.models import Caller
from rookery.kernel.clock import Clock
from rookery.kernel.db import Database
from rookery.memory.access_filter import build_access_filter
from rookery.memory.concurrency import gather_pair
from rookery.memory.models import AccessFilter, MemoryFilter, SearchHit, SearchResult, TextQuery
from rookery.memory.ports import TextIndex
from rookery.memory.store import records
from rookery.memory.text_queries import highlight, parse_query
from rookery.memory.visibility import is_visible

_MAX_ROUNDS = 8
"""Maximum fetches if the records drop hits of a lagging index."""


class MemorySearch:
    """The full-text search service."""

    def __init__(self, *, db: Database, texts: TextIndex, clock: Clock, timer: Callable[[], float] = time.perf_counter) -> None:
        self._db = db
        self._texts = texts
        self._clock = clock
        self._timer = timer

    async def find(self, caller: Caller, query: str, memory_filter: MemoryFilter, *, limit: int, offset: int = 0) -> SearchResult:
        """
        Return at most *limit* memories that match *query*, after *offset*, best first. Invalid syntax is searched as text (D-49).

        Raises:
            PermissionDenied: *memory_filter* names an agent other than the key's own.
            EngineUnavailable: The full-text index is down.
        """
        started_s = self._timer()
        access = build_access_filter(caller, memory_filter, at=self._clock())
        words = parse_query(query)
        hits, total = list[SearchHit](), 0
        if words.any_of or words.phrases:
            # In a large store counting costs as much as searching, so both run concurrently.
            (hits, dropped_count), hit_count = await gather_pair(
                self._collect_hits(words, access, limit, offset), self._texts.count(access.workspace_id, query=words, access_filter=access)
            )
            total = max(hit_count - dropped_count, len(hits))
        return SearchResult(hits=tuple(hits), total=total, took_ms=(self._timer() - started_s) * 1000)

    async def _collect_hits(self, query: TextQuery, access_filter: AccessFilter, limit: int, offset: int) -> tuple[list[SearchHit], int]:
        hits, dropped_count = list[SearchHit](), 0
        for _ in range(_MAX_ROUNDS):
            text_hits = await self._texts.search(query, access_filter=access_filter, limit=limit - len(hits), offset=offset)
            ids = [hit.memory_id for hit in text_hits]
            memories_by_id = {
                memory.id: memory
                for memory in await self._db.lookup(lambda tx, ids=ids: records.get_memories(tx, access_filter.workspace_id, ids))
            }
            for hit in text_hits:
                memory = memories_by_id.get(hit.memory_id)
                if memory is None or memory.archived_at is not None or not is_visible(access_filter, memory):
                    dropped_count += 1
                else:
                    hits.append(SearchHit(memory=memory, score=hit.score, highlight=highlight(memory.content, query)))
            offset += len(text_hits)
            if len(hits) >= limit or not text_hits:
                break
        return hits, dropped_count
