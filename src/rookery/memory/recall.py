"""Recall: candidates from the indexes, records from the store, order from `ranking` (spec 4.3, D-42 to D-46)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from rookery.access.models import Caller
from rookery.kernel.clock import Clock
from rookery.kernel.db import Database
from rookery.kernel.errors import EngineUnavailable
from rookery.kernel.events import EventBus
from rookery.kernel.ids import IdFactory
from rookery.kernel.tracing import start_span
from rookery.memory.access_filter import build_access_filter
from rookery.memory.concurrency import gather_pair
from rookery.memory.embedding_migration import EmbeddingMigration, IndexVersion
from rookery.memory.events import MemoryRecalled
from rookery.memory.feedback import RecallBuffer
from rookery.memory.models import (
    SCORE_DECIMALS,
    AccessFilter,
    Memory,
    RankExplanation,
    RecallHit,
    RecallMode,
    RecallRequest,
    RecallResult,
    TextHit,
    TextQuery,
    Vector,
    VectorHit,
)
from rookery.memory.ports import TextIndex
from rookery.memory.ranking import (
    HALF_LIVES_DAYS,
    Candidate,
    RankedMemory,
    boost_relevance,
    fuse_scores,
    memory_decay_factor,
    ranking_key,
    round_relevance,
)
from rookery.memory.recall_records import RecallQueryRecord, RecallRecord
from rookery.memory.store import records
from rookery.memory.text_queries import match_keywords, parse_keywords, parse_question
from rookery.memory.vector_filter import build_vector_filter, filter_ids
from rookery.memory.visibility import is_visible

_MAX_ROUNDS = 4
_LIMIT_GROWTH = 4
"""Growth of the number of candidates per round if the result is not final; at most 64 times the first number."""

_MIN_HYBRID_CANDIDATES = 100
_BUDGET_OVERFETCH = 3
"""Over-fetch factor of top_k with a token budget, to choose memories that fit."""

_CHARS_PER_TOKEN = 4

_REBUILDING_NOTICE = "Results are by keywords only: the vectors of this workspace are being rebuilt and cannot be searched yet."
_NO_EMBEDDER_NOTICE = "Results are by keywords only: the embedder is unavailable: {reason}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidates:
    """
    The hits of the indexes for a query.

    Attributes:
        relevances: The relevance of each hit, without the keyword boost.
        is_complete: True if the indexes have no further hits.
        similarities: Cosine similarities, where known.
        text_scores: Word scores as shares of the best one, best first.
        max_unseen_relevance: The highest relevance, without keywords, that a memory outside the candidates can have.
    """

    relevances: Mapping[str, float]
    is_complete: bool
    max_unseen_relevance: float
    similarities: Mapping[str, float] = field(default_factory=dict[str, float])
    text_scores: Mapping[str, float] = field(default_factory=dict[str, float])
    semantic_ranks: Mapping[str, int] = field(default_factory=dict[str, int])
    keyword_ranks: Mapping[str, int] = field(default_factory=dict[str, int])

    def get_candidate(self, memory_id: str) -> Candidate:
        """Return the scores and ranks of one memory."""
        return Candidate(
            memory_id=memory_id,
            relevance=self.relevances[memory_id],
            similarity=self.similarities.get(memory_id),
            text_score=self.text_scores.get(memory_id),
            semantic_rank=self.semantic_ranks.get(memory_id),
            keyword_rank=self.keyword_ranks.get(memory_id),
        )


@dataclass(slots=True)
class _RecallState:
    """
    The state of a recall in progress: the request and the data read so far.

    Attributes:
        mode: The requested mode, or `keyword` if the vectors or the embedder are not available (D-54).
        index: The vector index in use; None if vectors are not searched.
        notice: The reason for a mode other than the requested one.
    """

    request: RecallRequest
    access_filter: AccessFilter
    mode: RecallMode
    index: IndexVersion | None = None
    vector: Vector | None = None
    notice: str | None = None
    memories: dict[str, Memory] = field(default_factory=dict[str, Memory])
    fetched_ids: set[str] = field(default_factory=set[str])


class Recall:
    """
    The recall service.

    Args:
        half_lives_days: Half-lives by type; they override `ranking.HALF_LIVES_DAYS` (settings, D-40).
        timer: A clock in seconds that never goes back; tests pass their own.
    """

    def __init__(
        self,
        *,
        db: Database,
        migration: EmbeddingMigration,
        texts: TextIndex,
        buffer: RecallBuffer,
        bus: EventBus,
        clock: Clock,
        ids: IdFactory,
        half_lives_days: Mapping[str, int | None] | None = None,
        timer: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._db = db
        self._migration = migration
        self._texts = texts
        self._buffer = buffer
        self._bus = bus
        self._clock = clock
        self._ids = ids
        self._half_lives_days = {**HALF_LIVES_DAYS, **(half_lives_days or {})}
        self._timer = timer

    async def find(self, caller: Caller, request: RecallRequest) -> RecallResult:
        """
        Return the memories that match *request* best, in order.

        Raises:
            PermissionDenied: The request names an agent other than the key's own.
            EngineUnavailable: An index that the mode needs is down. Without an embedder recall falls back to keywords, with a notice.
            NotEmbeddable: The embedder returns no vector for the query.
        """
        started_s = self._timer()
        at = self._clock()
        state = _RecallState(request, build_access_filter(caller, request.filters, at=at), request.mode)
        await self._select_index(state)
        ranked_memories = await self._rank(state)
        selection = _select_within_budget(ranked_memories, request)
        hits = tuple(_to_hit(memory, position) for position, memory in enumerate(selection, start=1))
        recall_id = self._ids()
        memory_ids = tuple(hit.memory.id for hit in hits)
        await self._buffer.add(
            RecallRecord(
                id=recall_id,
                workspace_id=caller.workspace_id,
                key_id=caller.key_id,
                memory_ids=memory_ids,
                created_at=at,
                query_record=RecallQueryRecord(
                    query=request.query,
                    mode=state.mode,
                    semantic_ranks=tuple(hit.explanation.semantic_rank for hit in hits),
                    keyword_ranks=tuple(hit.explanation.keyword_rank for hit in hits),
                ),
            )
        )
        took_ms = (self._timer() - started_s) * 1000
        self._bus.publish(
            MemoryRecalled(
                workspace_id=caller.workspace_id,
                recall_id=recall_id,
                query=request.query,
                results=memory_ids,
                duration_ms=took_ms,
                mode=state.mode,
            )
        )
        return RecallResult(recall_id=recall_id, hits=hits, took_ms=took_ms, notice=state.notice)

    async def _select_index(self, state: _RecallState) -> None:
        """Select the vector index: the current model's, or the previous one's until its vectors are rebuilt, or none if that is gone."""
        if state.mode == "keyword":
            return
        state.index = await self._migration.get_ready_index(state.access_filter.workspace_id)
        if state.index is not None and state.index.is_previous:
            try:
                with start_span("embedding"):
                    state.vector = await state.index.embedder.embed_query(state.request.query)
            except EngineUnavailable:
                state.index = None
        if state.index is None:
            state.mode, state.notice = "keyword", _REBUILDING_NOTICE

    async def _rank(self, state: _RecallState) -> list[RankedMemory]:
        """Return the best visible memories, in order. More candidates are fetched while the records drop too many (D-46)."""
        request = state.request
        needed_count = request.top_k * (_BUDGET_OVERFETCH if request.max_tokens is not None else 1)
        limit = max(_MIN_HYBRID_CANDIDATES, 10 * request.top_k) if state.mode == "hybrid" else 2 * needed_count + 20
        min_relevance = request.min_relevance
        ranked_memories = list[RankedMemory]()
        for _ in range(_MAX_ROUNDS):
            candidates = await self._search_with_fallback(state, limit)
            ranked_memories, is_settled = await self._rank_candidates(state, candidates, needed_count)
            if (
                is_settled
                or candidates.is_complete
                or (min_relevance is not None and self._max_boosted_relevance(state, candidates.max_unseen_relevance) < min_relevance)
            ):
                break
            limit *= _LIMIT_GROWTH
        return (
            ranked_memories
            if min_relevance is None
            else [memory for memory in ranked_memories if _round_score(memory.relevance) >= min_relevance]
        )

    async def _search_with_fallback(self, state: _RecallState, limit: int) -> Candidates:
        """Return the result of `_search_indexes`; switch to keywords from here on if the embedder is down."""
        try:
            return await self._search_indexes(state, limit)
        except EngineUnavailable as error:
            if error.engine != "embedder" or state.index is None:
                raise
            state.index, state.mode, state.notice = None, "keyword", _NO_EMBEDDER_NOTICE.format(reason=error.reason)
        return await self._search_indexes(state, limit)

    def _max_boosted_relevance(self, state: _RecallState, relevance: float) -> float:
        """Return the boosted relevance of a memory that contains all keywords."""
        request = state.request
        return boost_relevance(relevance, share=1.0, boost=request.boost if request.keywords else 0.0, is_bounded=state.mode != "semantic")

    async def _search_indexes(self, state: _RecallState, limit: int) -> Candidates:
        """Search the indexes that the mode needs, concurrently where the searches are independent (D-44)."""
        request, access = state.request, state.access_filter
        words = parse_keywords(request.keywords)
        index = state.index
        if index is None:
            text_hits, keyword_hits = await gather_pair(
                self._search_text(parse_question(request.query), access, limit), self._search_text(words, access, limit)
            )
            return _keyword_candidates(text_hits, keyword_hits, limit)
        if state.mode == "semantic":
            vector_hits, keyword_hits = await gather_pair(
                self._search_vectors(index, state, limit), self._search_text(words, access, limit)
            )
            similarities = await self._complete_similarities(index, state, vector_hits, keyword_hits)
            return _semantic_candidates(
                vector_hits, similarities, keyword_hits, is_complete=len(vector_hits) < limit and len(keyword_hits) < limit
            )
        (vector_hits, text_hits), keyword_hits = await gather_pair(
            gather_pair(self._search_vectors(index, state, limit), self._search_text(parse_question(request.query), access, limit)),
            self._search_text(words, access, limit),
        )
        similarities = await self._complete_similarities(index, state, vector_hits, [*text_hits, *keyword_hits])
        return _hybrid_candidates(
            vector_hits, similarities, text_hits, keyword_hits, is_complete=len(vector_hits) < limit and len(text_hits) < limit
        )

    async def _search_vectors(self, index: IndexVersion, state: _RecallState, limit: int) -> list[VectorHit]:
        if state.vector is None:
            with start_span("embedding"):
                state.vector = await index.embedder.embed_query(state.request.query)
        with start_span("vector search"):
            return await index.vectors.search(state.vector, where=build_vector_filter(state.access_filter), limit=limit)

    async def _search_text(self, query: TextQuery, access_filter: AccessFilter, limit: int) -> list[TextHit]:
        if not query.any_of:
            return []
        with start_span("text search"):
            return await self._texts.search(query, access_filter=access_filter, limit=limit)

    async def _complete_similarities(
        self, index: IndexVersion, state: _RecallState, vector_hits: Sequence[VectorHit], text_hits: Sequence[TextHit]
    ) -> dict[str, float]:
        """Return the similarities of *vector_hits*, and of *text_hits* where known."""
        similarities = {hit.memory_id: hit.similarity for hit in vector_hits}
        others = [hit.memory_id for hit in text_hits if hit.memory_id not in similarities]
        if others and state.vector is not None:
            where = filter_ids(state.access_filter.workspace_id, others)
            hits = await index.vectors.search(state.vector, where=where, limit=len(others))
            similarities |= {hit.memory_id: hit.similarity for hit in hits}
        return similarities

    async def _rank_candidates(self, state: _RecallState, candidate_set: Candidates, limit: int) -> tuple[list[RankedMemory], bool]:
        """
        Read records, best candidates first, until no unread one can be among the best *limit*.

        Return the ranked memories, and whether the result is final: further candidates could not change it.
        """
        request = state.request
        is_bounded = state.mode != "semantic"
        boost = request.boost if request.keywords else 0.0
        relevances = candidate_set.relevances
        candidates = sorted(relevances, key=lambda memory_id: (-relevances[memory_id], memory_id))
        ranked_memories = list[RankedMemory]()
        position, step = 0, limit + 5
        while position < len(candidates):
            batch = candidates[position : position + step]
            await self._load_records(state, batch)
            ranked_memories.extend(
                self._rank_one(state, candidate_set.get_candidate(memory_id), boost, is_bounded=is_bounded)
                for memory_id in batch
                if memory_id in state.memories
            )
            position += len(batch)
            ranked_memories.sort(key=ranking_key)
            del ranked_memories[limit:]  # thousands of ties are all read; sorting them in each round would take a second
            if len(ranked_memories) >= limit:
                following = relevances[candidates[min(position, len(candidates) - 1)]]
                ceiling = boost_relevance(following, share=1.0, boost=boost, is_bounded=is_bounded)
                if round_relevance(ranked_memories[limit - 1].relevance) > round_relevance(ceiling):
                    return ranked_memories, True
            await asyncio.sleep(0)  # the read may not yield to the event loop; let other requests run
        # Hybrid relevance is relative to the candidates, so further candidates have no upper bound to compare with.
        return ranked_memories, state.mode == "hybrid" and len(ranked_memories) >= limit

    async def _load_records(self, state: _RecallState, ids: Sequence[str]) -> None:
        """Read the records of *ids* that were not read yet, and keep those that are visible (D-46)."""
        unread = [memory_id for memory_id in ids if memory_id not in state.fetched_ids]
        if not unread:
            return
        state.fetched_ids.update(unread)
        access = state.access_filter
        for memory in await self._db.lookup(lambda tx: records.get_memories(tx, access.workspace_id, unread)):
            if memory.archived_at is None and is_visible(access, memory):
                state.memories[memory.id] = memory

    def _rank_one(self, state: _RecallState, candidate: Candidate, boost: float, *, is_bounded: bool) -> RankedMemory:
        memory, keywords = state.memories[candidate.memory_id], state.request.keywords
        matched_keywords = match_keywords(keywords, memory.content, *memory.tags) if keywords else ()
        share = len(matched_keywords) / len(keywords) if keywords else 0.0
        return RankedMemory(
            candidate=candidate,
            memory=memory,
            relevance=boost_relevance(candidate.relevance, share=share, boost=boost, is_bounded=is_bounded),
            matched_keywords=matched_keywords,
            keyword_share=share,
            decay=memory_decay_factor(memory, at=state.access_filter.at, half_lives_days=self._half_lives_days),
        )


def _semantic_candidates(
    vector_hits: Sequence[VectorHit], similarities: Mapping[str, float], keyword_hits: Sequence[TextHit], *, is_complete: bool
) -> Candidates:
    relevances = {hit.memory_id: 0.0 for hit in keyword_hits} | dict(similarities)
    ceiling = vector_hits[-1].similarity if vector_hits else 0.0
    return Candidates(
        relevances=relevances,
        similarities=similarities,
        semantic_ranks=_rank_hits(vector_hits),
        is_complete=is_complete,
        max_unseen_relevance=ceiling,
    )


def _keyword_candidates(text_hits: Sequence[TextHit], keyword_hits: Sequence[TextHit], limit: int) -> Candidates:
    shares = _normalize_scores(text_hits)
    return Candidates(
        relevances={hit.memory_id: 0.0 for hit in keyword_hits} | shares,
        text_scores=shares,
        keyword_ranks=_rank_hits(text_hits),
        is_complete=len(text_hits) < limit and len(keyword_hits) < limit,
        max_unseen_relevance=min(shares.values(), default=0.0),
    )


def _hybrid_candidates(
    vector_hits: Sequence[VectorHit],
    similarities: Mapping[str, float],
    text_hits: Sequence[TextHit],
    keyword_hits: Sequence[TextHit],
    *,
    is_complete: bool,
) -> Candidates:
    shares = _normalize_scores(text_hits)
    last = {"": min(shares.values(), default=0.0)}
    return Candidates(
        relevances={hit.memory_id: 0.0 for hit in keyword_hits}
        | fuse_scores(similarities, {hit.memory_id: hit.score for hit in text_hits}),
        max_unseen_relevance=fuse_scores({"": vector_hits[-1].similarity if vector_hits else 0.0}, last if last[""] > 0 else {}, best=1.0)[
            ""
        ],
        similarities=similarities,
        text_scores=shares,
        semantic_ranks=_rank_hits(vector_hits),
        keyword_ranks=_rank_hits(text_hits),
        is_complete=is_complete,
    )


def _round_score(relevance: float) -> float:
    """Return *relevance* as responses show it, so that `min_relevance` compares with the visible score."""
    return round(relevance, SCORE_DECIMALS)


def _rank_hits(hits: Sequence[VectorHit] | Sequence[TextHit]) -> dict[str, int]:
    return {hit.memory_id: rank for rank, hit in enumerate(hits, start=1)}


def _normalize_scores(text_hits: Sequence[TextHit]) -> dict[str, float]:
    best = max((hit.score for hit in text_hits), default=1.0)
    return {hit.memory_id: hit.score / best for hit in text_hits}


def count_tokens(memory: Memory) -> int:
    """Return the approximate number of tokens in the content of *memory*, at four characters per token."""
    return -(-len(memory.content) // _CHARS_PER_TOKEN)


def _select_within_budget(ranked_memories: Sequence[RankedMemory], request: RecallRequest) -> list[RankedMemory]:
    """Return the first `top_k` of *ranked_memories* that fit the budget. Memories that do not fit are skipped (D-42)."""
    if request.max_tokens is None:
        return list(ranked_memories[: request.top_k])
    remaining_tokens, selection = request.max_tokens, list[RankedMemory]()
    for candidate in ranked_memories:
        size = count_tokens(candidate.memory)
        if size <= remaining_tokens and len(selection) < request.top_k:
            selection.append(candidate)
            remaining_tokens -= size
    return selection


def _to_hit(ranked_memory: RankedMemory, position: int) -> RecallHit:
    candidate = ranked_memory.candidate
    return RecallHit(
        memory=ranked_memory.memory,
        score=ranked_memory.relevance,
        similarity=candidate.similarity,
        effective_confidence=ranked_memory.effective_confidence,
        explanation=RankExplanation(
            semantic_rank=candidate.semantic_rank,
            keyword_rank=candidate.keyword_rank,
            similarity=candidate.similarity,
            text_score=candidate.text_score,
            matched_keywords=ranked_memory.matched_keywords,
            keyword_share=ranked_memory.keyword_share,
            relevance=ranked_memory.relevance,
            decay=ranked_memory.decay,
            place=position,
        ),
    )
