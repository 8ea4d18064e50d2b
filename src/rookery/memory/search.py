"""Full-text search of memories, and lists of memories, tags and scopes (D-43, D-46, D-49)."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from rookery.access.models import Caller
from rookery.kernel.clock import Clock
from rookery.kernel.db import Database
from rookery.kernel.engine_breakers import EngineBreaker
from rookery.memory.access_filter import build_access_filter
from rookery.memory.concurrency import gather_pair
from rookery.memory.models import AccessFilter, Memory, MemoryFilter, MemoryState, NameCount, OrgCount, SearchHit, SearchResult, TextQuery
from rookery.memory.ports import TextIndex
from rookery.memory.store import queries, records
from rookery.memory.text_queries import highlight, parse_query
from rookery.memory.visibility import is_visible

_MAX_ROUNDS = 8
"""Maximum fetches if the records drop hits of a lagging index."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemorySearch:
    """
    The full-text search service.

    Attributes:
        breaker: The circuit breaker of the full-text index.
    """

    db: Database
    texts: TextIndex
    breaker: EngineBreaker
    clock: Clock
    timer: Callable[[], float] = time.perf_counter

    async def find(self, caller: Caller, query: str, memory_filter: MemoryFilter, *, limit: int, offset: int = 0) -> SearchResult:
        """
        Return at most *limit* memories that match *query*, after *offset*, best first. Invalid syntax is searched as text (D-49).

        Raises:
            PermissionDenied: *memory_filter* names an agent other than the key's own.
            EngineUnavailable: The full-text index is down or does not answer in time.
        """
        started_s = self.timer()
        access = build_access_filter(caller, memory_filter, at=self.clock())
        words = parse_query(query)
        hits, total = list[SearchHit](), 0
        if words.any_of or words.phrases:
            # In a large store counting costs as much as searching, so both run concurrently.
            (hits, dropped_count), hit_count = await gather_pair(
                self._collect_hits(words, access, limit, offset),
                self.breaker.call(lambda: self.texts.count(access.workspace_id, query=words, access_filter=access)),
            )
            total = max(hit_count - dropped_count, len(hits))
        return SearchResult(hits=tuple(hits), total=total, took_ms=(self.timer() - started_s) * 1000)

    async def _collect_hits(self, query: TextQuery, access_filter: AccessFilter, limit: int, offset: int) -> tuple[list[SearchHit], int]:
        hits, dropped_count = list[SearchHit](), 0
        for _ in range(_MAX_ROUNDS):
            missing_count, skipped_count = limit - len(hits), offset
            text_hits = await self.breaker.call(
                lambda limit=missing_count, offset=skipped_count: self.texts.search(
                    query, access_filter=access_filter, limit=limit, offset=offset
                )
            )
            ids = [hit.memory_id for hit in text_hits]
            memories_by_id = {
                memory.id: memory
                for memory in await self.db.lookup(lambda tx, ids=ids: records.get_memories(tx, access_filter.workspace_id, ids))
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """
    A reader of lists and counts of the memories that a caller may see.

    Attributes:
        model: The embedder's model. Memories indexed with another model are stale (D-54).
    """

    db: Database
    clock: Clock
    model: str

    async def list_page(
        self, caller: Caller, memory_filter: MemoryFilter, *, state: MemoryState | None, limit: int, offset: int
    ) -> tuple[list[Memory], int]:
        """Return one page of memories, newest first, and their total number. With *state* None, all but archived ones."""
        access = build_access_filter(caller, memory_filter, at=self.clock(), is_list=True)
        return await self.db.read_from_replica(
            lambda tx: queries.list_page(tx, access, state, model=self.model, limit=limit, offset=offset)
        )

    async def count_tags(self, caller: Caller, memory_filter: MemoryFilter) -> list[NameCount]:
        """Return the tags with the number of memories that have them, most frequent first."""
        access = build_access_filter(caller, memory_filter, at=self.clock(), is_list=True)
        return await self.db.read_from_replica(lambda tx: queries.count_tags(tx, access))

    async def count_scopes(self, caller: Caller, memory_filter: MemoryFilter) -> list[OrgCount]:
        """Return the orgs and their projects with the number of memories in each, largest first."""
        access = build_access_filter(caller, memory_filter, at=self.clock(), is_list=True)
        return await self.db.read_from_replica(lambda tx: queries.count_scopes(tx, access))
