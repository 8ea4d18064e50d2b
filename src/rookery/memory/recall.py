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
from rookery.kernel.events import EventBus, MemoryRecalled
from rookery.kernel.ids import IdFactory
from rookery.kernel.tracing import start_span
from rookery.memory.access_filter import build_access_filter
from rookery.memory.concurrency import gather_pair
from rookery.memory.embedding_migration import EmbeddingMigration, IndexVersion
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
from rookery.memory.recall_buffer import RecallBuffer
from rookery.memory.recall_records import RecallQueryRecord, RecallRecord
from rookery.memory.store import records
from rookery.memory.text_queries import match_keywords, parse_keywords, parse_question
from rookery.memory.visibility import is_visible

_MAX_ROUNDS = 4
_LIMIT_GROWTH = 4
"""A round that did not settle the answer is followed by one with four times the candidates: 64 times at most."""

_MIN_HYBRID_CANDIDATES = 100
_BUDGET_OVERFETCH = 3
"""With a budget of tokens, so many times top_k are ranked, to choose from what fits."""

_CHARS_PER_TOKEN = 4

_REBUILDING_NOTICE = "Found by words alone: the vectors of this workspace are being rebuilt, and cannot be searched until then."
_NO_EMBEDDER_NOTICE = "Found by words alone: the embedder is unavailable: {reason}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidates:
    """
    What the indexes found for a question.

    Attributes:
        relevances: Of all that was found, by memory; without keywords.
        is_complete: They have no more.
        similarities: As far as they are known.
        text_scores: Shares of the best word score, best first.
        max_unseen_relevance: The highest relevance, without keywords, that a memory which is not among them can have.
    """

    relevances: Mapping[str, float]
    is_complete: bool
    max_unseen_relevance: float
    similarities: Mapping[str, float] = field(default_factory=dict[str, float])
    text_scores: Mapping[str, float] = field(default_factory=dict[str, float])
    semantic_ranks: Mapping[str, int] = field(default_factory=dict[str, int])
    keyword_ranks: Mapping[str, int] = field(default_factory=dict[str, int])

    def get_candidate(self, memory_id: str) -> Candidate:
        """Return what is known of one of them."""
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
    A question on its way: what is asked, and what was read for it so far.

    Attributes:
        mode: As asked, or `keyword` while vectors cannot be searched, or the embedder cannot be asked (D-54).
        index: Who knows of meaning; None: nobody is asked.
        notice: Why the mode is not as asked.
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
    Answers questions from memory.

    Args:
        half_lives_days: By type, over `ranking.HALF_LIVES_DAYS` (settings, D-40).
        timer: Seconds of a clock that never goes back; tests pass their own.
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
        Return the memories that answer *request* best, in order.

        Raises:
            PermissionDenied: It names another agent than the key's own.
            EngineUnavailable: An index that its mode needs is down. Without an embedder it goes by words, and says so.
            NotEmbeddable: The embedder gives no vector for the question.
        """
        started_s = self._timer()
        at = self._clock()
        state = _RecallState(request, build_access_filter(caller, request.filters, at=at), request.mode)
        await self._select_index(state)
        ranked = await self._rank(state)
        chosen = _select_within_budget(ranked, request)
        hits = tuple(_to_hit(each, number) for number, each in enumerate(chosen, start=1))
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
        """Choose who is asked of meaning: the model of now, or the former one until its vectors are rebuilt, or, if it is gone, nobody."""
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
        """Return the best of what can be seen, in order; more candidates are fetched while records drop too many (D-46)."""
        question = state.request
        wanted = question.top_k * (_BUDGET_OVERFETCH if question.max_tokens is not None else 1)
        limit = max(_MIN_HYBRID_CANDIDATES, 10 * question.top_k) if state.mode == "hybrid" else 2 * wanted + 20
        least = question.min_relevance
        ranked = list[RankedMemory]()
        for _ in range(_MAX_ROUNDS):
            arms = await self._search_with_fallback(state, limit)
            ranked, is_settled = await self._rank_candidates(state, arms, wanted)
            if (
                is_settled
                or arms.is_complete
                or (least is not None and self._max_boosted_relevance(state, arms.max_unseen_relevance) < least)
            ):
                break
            limit *= _LIMIT_GROWTH
        return ranked if least is None else [each for each in ranked if _round_score(each.relevance) >= least]

    async def _search_with_fallback(self, state: _RecallState, limit: int) -> Candidates:
        """Do as `_search_indexes`; go by words alone, from here on, where there is no embedder."""
        try:
            return await self._search_indexes(state, limit)
        except EngineUnavailable as error:
            if error.engine != "embedder" or state.index is None:
                raise
            state.index, state.mode, state.notice = None, "keyword", _NO_EMBEDDER_NOTICE.format(reason=error.reason)
        return await self._search_indexes(state, limit)

    def _max_boosted_relevance(self, state: _RecallState, relevance: float) -> float:
        """Return the relevance of a memory with all of the keywords."""
        question = state.request
        return boost_relevance(
            relevance, share=1.0, boost=question.boost if question.keywords else 0.0, is_bounded=state.mode != "semantic"
        )

    async def _search_indexes(self, state: _RecallState, limit: int) -> Candidates:
        """Ask the indexes that the mode needs, at once where one does not need the other's answer (D-44)."""
        question, inside = state.request, state.access_filter
        words = parse_keywords(question.keywords)
        side = state.index
        if side is None:
            matched, extra = await gather_pair(
                self._search_text(parse_question(question.query), inside, limit), self._search_text(words, inside, limit)
            )
            return _keyword_candidates(matched, extra, limit)
        if state.mode == "semantic":
            near, extra = await gather_pair(self._search_vectors(side, state, limit), self._search_text(words, inside, limit))
            similarities = await self._complete_similarities(side, state, near, extra)
            return _semantic_candidates(near, similarities, extra, is_complete=len(near) < limit and len(extra) < limit)
        (near, matched), extra = await gather_pair(
            gather_pair(self._search_vectors(side, state, limit), self._search_text(parse_question(question.query), inside, limit)),
            self._search_text(words, inside, limit),
        )
        similarities = await self._complete_similarities(side, state, near, [*matched, *extra])
        return _hybrid_candidates(near, similarities, matched, extra, is_complete=len(near) < limit and len(matched) < limit)

    async def _search_vectors(self, index: IndexVersion, state: _RecallState, limit: int) -> list[VectorHit]:
        if state.vector is None:
            with start_span("embedding"):
                state.vector = await index.embedder.embed_query(state.request.query)
        with start_span("vector search"):
            return await index.vectors.search(state.vector, access_filter=state.access_filter, limit=limit)

    async def _search_text(self, query: TextQuery, access_filter: AccessFilter, limit: int) -> list[TextHit]:
        if not query.any_of:
            return []
        with start_span("text search"):
            return await self._texts.search(query, access_filter=access_filter, limit=limit)

    async def _complete_similarities(
        self, index: IndexVersion, state: _RecallState, vector_hits: Sequence[VectorHit], text_hits: Sequence[TextHit]
    ) -> dict[str, float]:
        """Return the similarities of *vector_hits*, and of what was found by words alone, as far as they are known."""
        similarities = {each.memory_id: each.similarity for each in vector_hits}
        others = [each.memory_id for each in text_hits if each.memory_id not in similarities]
        if others and state.vector is not None:
            similarities |= await index.vectors.compute_similarities(
                state.vector, workspace_id=state.access_filter.workspace_id, ids=others
            )
        return similarities

    async def _rank_candidates(self, state: _RecallState, candidate_set: Candidates, limit: int) -> tuple[list[RankedMemory], bool]:
        """
        Read records, best candidates first, until no unread one can be among the best *limit*.

        Returns the ranked, and whether candidates beyond these could not change the answer.
        """
        question = state.request
        is_bounded = state.mode != "semantic"
        boost = question.boost if question.keywords else 0.0
        relevances = candidate_set.relevances
        candidates = sorted(relevances, key=lambda memory_id: (-relevances[memory_id], memory_id))
        ranked = list[RankedMemory]()
        at, step = 0, limit + 5
        while at < len(candidates):
            batch = candidates[at : at + step]
            await self._load_records(state, batch)
            ranked.extend(
                self._rank_one(state, candidate_set.get_candidate(each), boost, is_bounded=is_bounded)
                for each in batch
                if each in state.memories
            )
            at += len(batch)
            ranked.sort(key=ranking_key)
            del ranked[limit:]  # of thousands that are as relevant, all are read: to sort them over and over would take a second
            if len(ranked) >= limit:
                following = relevances[candidates[min(at, len(candidates) - 1)]]
                ceiling = boost_relevance(following, share=1.0, boost=boost, is_bounded=is_bounded)
                if round_relevance(ranked[limit - 1].relevance) > round_relevance(ceiling):
                    return ranked, True
            await asyncio.sleep(0)  # reading does not wait, and others are to be answered in between
        # A hybrid's relevance is relative to its candidates, so that further ones have no ceiling to compare with.
        return ranked, state.mode == "hybrid" and len(ranked) >= limit

    async def _load_records(self, state: _RecallState, ids: Sequence[str]) -> None:
        """Read the records of *ids* that were not looked for yet, and keep those that the question may see now (D-46)."""
        unread = [each for each in ids if each not in state.fetched_ids]
        if not unread:
            return
        state.fetched_ids.update(unread)
        inside = state.access_filter
        for memory in await self._db.lookup(lambda tx: records.get_memories(tx, inside.workspace_id, unread)):
            if memory.archived_at is None and is_visible(inside, memory):
                state.memories[memory.id] = memory

    def _rank_one(self, state: _RecallState, candidate: Candidate, boost: float, *, is_bounded: bool) -> RankedMemory:
        memory, keywords = state.memories[candidate.memory_id], state.request.keywords
        matched = match_keywords(keywords, memory.content, *memory.tags) if keywords else ()
        share = len(matched) / len(keywords) if keywords else 0.0
        return RankedMemory(
            candidate=candidate,
            memory=memory,
            relevance=boost_relevance(candidate.relevance, share=share, boost=boost, is_bounded=is_bounded),
            matched_keywords=matched,
            keyword_share=share,
            decay=memory_decay_factor(memory, at=state.access_filter.at, half_lives_days=self._half_lives_days),
        )


def _semantic_candidates(
    vector_hits: Sequence[VectorHit], similarities: Mapping[str, float], keyword_hits: Sequence[TextHit], *, is_complete: bool
) -> Candidates:
    relevances = {each.memory_id: 0.0 for each in keyword_hits} | dict(similarities)
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
        relevances={each.memory_id: 0.0 for each in keyword_hits} | shares,
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
        relevances={each.memory_id: 0.0 for each in keyword_hits}
        | fuse_scores(similarities, {each.memory_id: each.score for each in text_hits}),
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
    """Return *relevance* as answers show it, so that what is left out is what would have been shown below the limit."""
    return round(relevance, SCORE_DECIMALS)


def _rank_hits(hits: Sequence[VectorHit] | Sequence[TextHit]) -> dict[str, int]:
    return {each.memory_id: rank for rank, each in enumerate(hits, start=1)}


def _normalize_scores(text_hits: Sequence[TextHit]) -> dict[str, float]:
    best = max((each.score for each in text_hits), default=1.0)
    return {each.memory_id: each.score / best for each in text_hits}


def count_tokens(memory: Memory) -> int:
    """Return about how many tokens the content of *memory* has, at four characters each."""
    return -(-len(memory.content) // _CHARS_PER_TOKEN)


def _select_within_budget(ranked: Sequence[RankedMemory], question: RecallRequest) -> list[RankedMemory]:
    """Return the first `top_k` of *ranked* that fit the budget; one that does not fit is skipped (D-42)."""
    if question.max_tokens is None:
        return list(ranked[: question.top_k])
    left, chosen = question.max_tokens, list[RankedMemory]()
    for each in ranked:
        size = count_tokens(each.memory)
        if size <= left and len(chosen) < question.top_k:
            chosen.append(each)
            left -= size
    return chosen


def _to_hit(ranked: RankedMemory, position: int) -> RecallHit:
    candidate = ranked.candidate
    return RecallHit(
        memory=ranked.memory,
        score=ranked.relevance,
        similarity=candidate.similarity,
        effective_confidence=ranked.effective_confidence,
        explanation=RankExplanation(
            semantic_rank=candidate.semantic_rank,
            keyword_rank=candidate.keyword_rank,
            similarity=candidate.similarity,
            text_score=candidate.text_score,
            matched_keywords=ranked.matched_keywords,
            keyword_share=ranked.keyword_share,
            relevance=ranked.relevance,
            decay=ranked.decay,
            place=position,
        ),
    )
