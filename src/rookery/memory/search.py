"""Full-text search of memories, and lists of memories, tags and scopes."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import cast

from rookery.access.models import Caller
from rookery.kernel.cancellation import gather_pair
from rookery.kernel.clock import Clock
from rookery.kernel.db import Database
from rookery.kernel.engine_breakers import EngineBreaker, EngineWrites
from rookery.kernel.pages import InvalidCursor, ListPage, PageSlice, Position, check_position
from rookery.kernel.workspace_shares import MAX_QUERY_HOLD_S, WorkspaceShares
from rookery.memory.access_filter import resolve_access_filter
from rookery.memory.candidates import describe_refusals
from rookery.memory.models import (
    AccessFilter,
    Memory,
    MemoryFilter,
    MemoryState,
    NameCount,
    OrgCount,
    SearchHit,
    SearchResult,
    TextHit,
    TextQuery,
)
from rookery.memory.ports import SessionLookup, TextIndex
from rookery.memory.store import queries, records
from rookery.memory.text_queries import highlight, parse_query
from rookery.memory.visibility import is_visible

_MAX_ROUNDS = 8
"""Maximum fetches if the records drop hits of a lagging index."""

MAX_SEARCH_RANK = 200_000
_LOOKUP_MARGINS = (200, 2_000, 10_000)
"""Ranks before and after that of a position among which its hit is looked for, one margin after the other."""


@dataclass(slots=True)
class _RankedHits:
    """Hits with their ranks in the index, from 1, and the number of ranks between that are no hits."""

    hits: list[SearchHit]
    ranks: list[int]
    dropped_count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MemorySearch:
    """
    The full-text search service.

    Attributes:
        breaker: The circuit breaker of the full-text index.
        writes: Knows whether the full-text index accepts only reads.
    """

    db: Database
    texts: TextIndex
    sessions: SessionLookup
    breaker: EngineBreaker
    writes: EngineWrites
    clock: Clock
    shares: WorkspaceShares
    timer: Callable[[], float] = time.perf_counter

    async def find(self, caller: Caller, query: str, memory_filter: MemoryFilter, *, page: PageSlice) -> SearchResult:
        """
        Return the memories of a page that match *query*, best first. Invalid syntax is searched as text.

        Raises:
            PermissionDenied: *memory_filter* names an agent other than the key's own.
            EngineUnavailable: The full-text index is down or does not answer in time.
            InvalidCursor: The position of the page is not one of a search.
        """
        async with self.shares.take(caller.workspace_id, max_hold_s=MAX_QUERY_HOLD_S):
            return await self._find(caller, query, memory_filter, page=page)

    async def _find(self, caller: Caller, query: str, memory_filter: MemoryFilter, *, page: PageSlice) -> SearchResult:
        started_s = self.timer()
        access = await resolve_access_filter(self.sessions, caller, memory_filter, at=self.clock())
        words = parse_query(query)
        ranked_hits, total = _RankedHits([], [], 0), 0
        if words.any_of or words.phrases:
            # In a large store counting costs as much as searching, so both run concurrently.
            ranked_hits, hit_count = await gather_pair(
                self._collect_hits(words, access, replace(page, limit=page.limit + 1)),
                self.breaker.call(lambda: self.texts.count(access.workspace_id, query=words, access_filter=access)),
            )
            total = max(hit_count - ranked_hits.dropped_count, len(ranked_hits.hits[: page.limit]))
        hits = ranked_hits.hits[: page.limit]
        ids = [*(hit.memory.id for hit in ranked_hits.hits), ""]
        return SearchResult(
            hits=tuple(hits),
            total=total,
            took_ms=(self.timer() - started_s) * 1000,
            positions=[(ids[number + 1], ids[number], ranked_hits.ranks[number]) for number in range(len(hits))],
            has_next=len(ranked_hits.hits) > page.limit,
            notice=describe_refusals(self.writes, ["texts"]),
        )

    async def _collect_hits(self, query: TextQuery, access_filter: AccessFilter, page: PageSlice) -> _RankedHits:
        ranked_hits = _RankedHits([], [], 0)
        offset = page.offset + (0 if page.after is None else await self._locate(query, access_filter, page.after))
        for _ in range(_MAX_ROUNDS):
            text_hits = await self._search(query, access_filter, limit=page.limit - len(ranked_hits.hits), offset=offset)
            ids = [hit.memory_id for hit in text_hits]
            memories_by_id = {
                memory.id: memory
                for memory in await self.db.lookup(lambda tx, ids=ids: records.get_memories(tx, access_filter.workspace_id, ids))
            }
            for rank, hit in enumerate(text_hits, start=offset + 1):
                memory = memories_by_id.get(hit.memory_id)
                if memory is None or memory.archived_at is not None or not is_visible(access_filter, memory):
                    ranked_hits.dropped_count += 1
                else:
                    ranked_hits.hits.append(SearchHit(memory=memory, score=hit.score, highlight=highlight(memory.content, query)))
                    ranked_hits.ranks.append(rank)
            offset += len(text_hits)
            if len(ranked_hits.hits) >= page.limit or not text_hits:
                break
        return ranked_hits

    async def _locate(self, query: TextQuery, access_filter: AccessFilter, after: Position) -> int:
        """
        Return the number of hits before the page after a position.

        Scores depend on all memories, so they change with each that is stored or deleted, and so do ranks. A position has the ids of the
        next hit and of its own, and its rank, around which both are looked for.
        """
        next_id, last_id, rank = cast("tuple[str, str, int]", check_position(after, (str, str, int)))
        if not 0 <= rank <= MAX_SEARCH_RANK:
            raise InvalidCursor
        for margin in _LOOKUP_MARGINS:
            start = max(0, rank - margin)
            ranks = {
                hit.memory_id: number
                for number, hit in enumerate(
                    await self._search(query, access_filter, limit=rank + margin - start, offset=start), start=start
                )
            }
            if next_id in ranks:
                return ranks[next_id]
            if last_id in ranks:
                return ranks[last_id] + 1
        return rank

    async def _search(self, query: TextQuery, access_filter: AccessFilter, *, limit: int, offset: int) -> list[TextHit]:
        return await self.breaker.call(lambda: self.texts.search(query, access_filter=access_filter, limit=limit, offset=offset))


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    """
    A reader of lists and counts of the memories that a caller may see.

    Attributes:
        model: The embedder's model. Memories indexed with another model are stale.
    """

    db: Database
    sessions: SessionLookup
    clock: Clock
    model: str

    async def list_page(
        self, caller: Caller, memory_filter: MemoryFilter, *, state: MemoryState | None, page: PageSlice
    ) -> ListPage[Memory]:
        """Return one page of memories, newest first, and their total number. With *state* None, all but archived ones."""
        access = await resolve_access_filter(self.sessions, caller, memory_filter, at=self.clock(), is_list=True)
        return await self.db.read_from_replica(lambda tx: queries.list_page(tx, access, state, model=self.model, page=page))

    async def count_tags(self, caller: Caller, memory_filter: MemoryFilter) -> list[NameCount]:
        """Return the tags with the number of memories that have them, most frequent first."""
        access = await resolve_access_filter(self.sessions, caller, memory_filter, at=self.clock(), is_list=True)
        return await self.db.read_from_replica(lambda tx: queries.count_tags(tx, access))

    async def count_scopes(self, caller: Caller, memory_filter: MemoryFilter) -> list[OrgCount]:
        """Return the orgs and their projects with the number of memories in each, largest first."""
        access = await resolve_access_filter(self.sessions, caller, memory_filter, at=self.clock(), is_list=True)
        return await self.db.read_from_replica(lambda tx: queries.count_scopes(tx, access))
