"""The candidates of a recall: hits of the indexes, and the relevance that each has before its record is read."""

from __future__ import annotations

from collections.abc import Awaitable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

from rookery.kernel.cancellation import gather_pair
from rookery.kernel.db import Database
from rookery.kernel.engine_breakers import EngineBreakers, EngineWrites
from rookery.kernel.errors import EngineUnavailable
from rookery.kernel.questions import extract_question
from rookery.kernel.tracing import start_span
from rookery.memory.embedding_migration import EmbeddingMigration, IndexVersion
from rookery.memory.errors import NotEmbeddable
from rookery.memory.models import AccessFilter, RecallMode, TextHit, TextQuery, Vector, VectorHit
from rookery.memory.ports import TextIndex
from rookery.memory.ranking import (
    Score,
    boost_score,
    compute_competition,
    discount_weak_words,
    estimate_relevance,
    fuse,
    lift,
    weigh_neighbour,
)
from rookery.memory.recall_models import RecallRequest
from rookery.memory.similarity_scales import SimilarityScale, SimilarityScales
from rookery.memory.store.neighbours import Neighbour, find_neighbours
from rookery.memory.text_queries import parse_keywords, parse_question
from rookery.memory.visibility import build_vector_filter, filter_ids

MAX_NEIGHBOUR_SOURCES = 24
"""
Candidates that lift their neighbours, best first. Each costs 20 µs. With 40 instead, frac@10 of single turns was 0.7 points higher (95 %
interval -0.5 to 2.0), that of agents' memories 2.5 points lower (0.8 to 4.6).

A neighbour that no index returned joins the candidates. Without that, recall of single turns was 3 points lower.
"""

_LACKING_NOTICES = {
    "texts": "New memories are found by meaning only: the full-text index {state}",
    "vectors": "New memories are found by words only: the vector index {state}",
}
"""The notice for each index that accepts only reads."""

T = TypeVar("T")

_NOTHING: Mapping[str, float] = {}

_ENGINE_NAMES = {"embedder": "embedder", "vectors": "vector index", "texts": "full-text index"}
_VECTOR_ENGINES = frozenset({"embedder", "vectors"})
_NO_VECTORS_NOTICE = "Results are by keywords only: the {engine} is unavailable: {reason}"
_NOT_EMBEDDABLE_NOTICE = "Results are by keywords only: the embedder works, but returns no vector for this question."
_REBUILDING_NOTICE = "Results are by keywords only: the vectors of this workspace are being rebuilt and cannot be searched yet."
_NO_TEXTS_NOTICE = "Results are by meaning only: the {engine} is unavailable: {reason}"


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchPlan:
    """
    The indexes that a recall searches, and why it does not search the others. An index that fails leads to a new plan without it.

    Attributes:
        mode: The requested mode, or that of the indexes that are available: `keyword` or `semantic`.
        index: The vector index; None if vectors are not searched.
        has_texts: The full-text index is searched.
        vector: The vector of the question; None until it is embedded. *scale* is that of its similarities.
        notice: What the results lack, and why.
    """

    request: RecallRequest
    access_filter: AccessFilter
    mode: RecallMode
    index: IndexVersion | None = None
    has_texts: bool = True
    vector: Vector | None = None
    scale: SimilarityScale | None = None
    notice: str | None = None

    @property
    def question(self) -> str:
        """The text that is searched for: of a long query, the part that asks."""
        return extract_question(self.request.query)

    def by_keywords(self, notice: str) -> SearchPlan:
        """Return the plan that searches the words alone."""
        return replace(self, index=None, mode="keyword", notice=notice)

    def without_vectors(self, error: EngineUnavailable | NotEmbeddable) -> SearchPlan:
        """
        Return the plan that searches the words alone because of *error*.

        Raises:
            EngineUnavailable: The request is for the vectors alone, the full-text index is down too, or *error* is of another engine.
            NotEmbeddable: The request is by meaning alone, or the full-text index is down.
        """
        if isinstance(error, NotEmbeddable):
            if self.request.mode == "semantic" or not self.has_texts:
                raise error
            return self.by_keywords(_NOT_EMBEDDABLE_NOTICE)
        # A question without its vector may be searched by words in each mode.
        is_required = self.request.mode == "semantic" and error.engine == "vectors"
        if is_required or not self.has_texts or error.engine not in _VECTOR_ENGINES:
            raise error
        return self.by_keywords(_NO_VECTORS_NOTICE.format(engine=_ENGINE_NAMES[error.engine], reason=error.reason))

    def without_texts(self, error: EngineUnavailable) -> SearchPlan:
        """Return the plan that searches the vectors alone because of *error*."""
        notice = _NO_TEXTS_NOTICE.format(engine=_ENGINE_NAMES[error.engine], reason=error.reason)
        return replace(self, has_texts=False, mode="semantic", notice=notice)

    def describe_refusals(self, writes: EngineWrites) -> str | None:
        """Return which of the searched indexes accept only reads, and so lack new memories, or None."""
        texts = ["texts"] if self.has_texts and self.mode != "semantic" else []
        return describe_refusals(writes, texts if self.index is None else [*texts, "vectors"])


def describe_refusals(writes: EngineWrites, engines: Sequence[str]) -> str | None:
    """Return which of the searched *engines* accept only reads, and so lack new memories, or None."""
    states = ((engine, writes.describe(engine)) for engine in engines)
    return " ".join(_LACKING_NOTICES[engine].format(state=state) for engine, state in states if state is not None) or None


class ScoreLookup(Protocol):
    """Returns the score of a hit, with what its record adds: see `Score`."""

    def __call__(
        self, memory_id: str, *, boost: float = 0.0, matched_keywords: tuple[str, ...] = (), keyword_share: float = 0.0, decay: float = 1.0
    ) -> Score: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidates:
    """
    The hits of the indexes for a query.

    Attributes:
        plan: The plan that was carried out. It lacks an index that failed.
        bases: The score of each hit without the keyword boost (`Score.base`). It decides the order.
        is_complete: True if the indexes have no further hits.
        get_score: Returns the score of a hit. It takes some µs, so only the hits whose records are read get one.
    """

    plan: SearchPlan
    bases: Mapping[str, float]
    is_complete: bool
    get_score: ScoreLookup


@dataclass(frozen=True, slots=True, kw_only=True)
class _Hits:
    """The hits of each index. *keywords* are those of the request's keywords, *limit* the number requested of each index."""

    vectors: Sequence[VectorHit] = ()
    texts: Sequence[TextHit] = ()
    keywords: Sequence[TextHit] = ()
    limit: int

    @property
    def are_complete(self) -> bool:
        return max(len(self.vectors), len(self.texts), len(self.keywords)) < self.limit


class CandidateSearch:
    """The search for candidates in the indexes. An index that fails, or does not answer in time, is left out if the mode allows it."""

    def __init__(
        self, *, db: Database, migration: EmbeddingMigration, texts: TextIndex, scales: SimilarityScales, breakers: EngineBreakers
    ) -> None:
        self._db = db
        self._migration = migration
        self._texts = texts
        self._scales = scales
        self._breakers = breakers

    async def plan_search(self, request: RecallRequest, access_filter: AccessFilter) -> SearchPlan:
        """
        Return the plan of *request*.

        Its vectors are those of the current model, or of the previous one until they are rebuilt, or none if that is gone.

        Raises:
            EngineUnavailable: The record store is down, or the vectors are and the mode is `semantic`.
            NotEmbeddable: The previous embedder returns no vector for the question, and the mode is `semantic`.
        """
        plan = SearchPlan(request=request, access_filter=access_filter, mode=request.mode)
        if plan.mode == "keyword":
            return plan
        try:
            index, vector = await self._find_ready_index(access_filter.workspace_id, plan.question)
        except (EngineUnavailable, NotEmbeddable) as error:
            return plan.without_vectors(error)
        return plan.by_keywords(_REBUILDING_NOTICE) if index is None else replace(plan, index=index, vector=vector)

    async def _find_ready_index(self, workspace_id: int, question: str) -> tuple[IndexVersion | None, Vector | None]:
        """
        Return the active index, with the vector of *question* if it is the previous one.

        None while it loads, so that no request waits for minutes, and if the previous embedder is down.
        """
        index = await self._migration.get_active_index(workspace_id)
        if index is None or not await self._breakers.vectors.call(lambda: index.vectors.is_ready(workspace_id)):
            return None, None
        if not index.is_previous:
            return index, None
        with suppress(EngineUnavailable), start_span("embedding"):
            return index, await self._breakers.previous_embedder.call(lambda: index.embedder.embed_query(question))
        return None, None

    async def find(self, plan: SearchPlan, limit: int) -> Candidates:
        """
        Return the candidates of *plan*, at most *limit* of each index. The searches are concurrent where they are independent.

        Raises:
            EngineUnavailable: An index that the mode needs is down, or all are.
            NotEmbeddable: The embedder returns no vector for the question, and the mode is `semantic`.
        """
        index = plan.index
        if index is None:
            return _keyword_candidates(plan, await self._search_texts(plan, limit), limit)
        vector_result, text_result = await gather_pair(
            _catch_failure(self._search_vectors(index, plan, limit)), _catch_outage(self._search_texts(plan, limit))
        )
        if isinstance(text_result, EngineUnavailable):
            if isinstance(vector_result, EngineUnavailable | NotEmbeddable):
                raise text_result
            vector_result = vector_result[0].without_texts(text_result), vector_result[1]
            text_result = list[TextHit](), list[TextHit]()
        if not isinstance(vector_result, EngineUnavailable | NotEmbeddable):
            plan, vector_hits = vector_result
            hits = _Hits(vectors=vector_hits, texts=text_result[0], keywords=text_result[1], limit=limit)
            try:
                if plan.mode == "semantic":
                    return _semantic_candidates(plan, hits, await self._complete_similarities(index, plan, hits))
                return await self._hybrid_candidates(index, plan, hits)
            except EngineUnavailable as error:
                vector_result = error
        by_words = plan.without_vectors(vector_result)
        if plan.mode == "semantic":
            text_result = await self._search_texts(by_words, limit)
        return _keyword_candidates(by_words, text_result, limit)

    async def _search_vectors(self, index: IndexVersion, plan: SearchPlan, limit: int) -> tuple[SearchPlan, list[VectorHit]]:
        """Return the hits by meaning, and the plan with the vector of the question and the scale of its similarities."""
        where = build_vector_filter(plan.access_filter)  # before the wait for the vector
        vector, scale = plan.vector, plan.scale
        if vector is None:
            with start_span("embedding"):
                vector = await self._breakers.embedder.call(lambda: index.embedder.embed_query(plan.question))
        if scale is None:
            scale = await self._scales.get_scale(index, plan.access_filter, vector)
            plan = replace(plan, vector=vector, scale=scale)
        with start_span("vector search"):
            return plan, await self._breakers.vectors.call(lambda: index.vectors.search(vector, where=where, limit=limit))

    async def _search_texts(self, plan: SearchPlan, limit: int) -> tuple[list[TextHit], list[TextHit]]:
        """Return the hits of the question, unless the mode is by meaning alone, and those of the keywords."""
        if not plan.has_texts:
            return [], []
        request, access = plan.request, plan.access_filter
        keywords = parse_keywords(request.keywords)
        if plan.mode == "semantic":
            return [], await self._search_text(keywords, access, limit)
        searching = self._search_text(parse_question(plan.question), access, limit)
        if not keywords.any_of:
            return await searching, []
        return await gather_pair(searching, self._search_text(keywords, access, limit))

    async def _search_text(self, text_query: TextQuery, access_filter: AccessFilter, limit: int) -> list[TextHit]:
        if not text_query.any_of:
            return []
        with start_span("text search"):
            return await self._breakers.texts.call(lambda: self._texts.search(text_query, access_filter=access_filter, limit=limit))

    async def _hybrid_candidates(self, index: IndexVersion, plan: SearchPlan, hits: _Hits) -> Candidates:
        similarities = dict(hits.vectors)
        text_scores = _normalize_text_scores(hits.texts)
        ids = dict.fromkeys([*similarities, *text_scores, *(hit.memory_id for hit in hits.keywords)])
        # A hit by words that is not among the hits by meaning is at most as similar as the last of these. That suffices to choose the
        # candidates whose neighbours are read, so that one search completes all similarities.
        unseen_ids = ids.keys() - similarities.keys() if len(hits.vectors) == hits.limit else set[str]()
        normalized = _normalize(similarities, plan.scale)
        ceiling = normalized.get(hits.vectors[-1].memory_id, 0.0) if unseen_ids else 0.0
        estimated = {**normalized, **dict.fromkeys(unseen_ids, ceiling)}
        estimates = fuse(ids, estimated, _discount_weak_words(text_scores, estimated, plan.scale))
        neighbours = await self._find_neighbours(plan, estimates)
        joined_ids = {neighbour.memory_id for pairs in neighbours.values() for neighbour in pairs} - ids.keys()
        completed = await self._look_up_similarities(index, plan, unseen_ids | joined_ids)
        similarities |= completed
        normalized |= _normalize(completed, plan.scale)
        relevances = fuse(ids, normalized, text_scores)
        competition = compute_competition(relevances.values())
        ranking_text_scores = _discount_weak_words(text_scores, normalized, plan.scale)
        if ranking_text_scores is not text_scores:
            relevances = fuse(ids, normalized, ranking_text_scores)
        relevances |= fuse(joined_ids & completed.keys(), normalized, ranking_text_scores)
        weights = _weigh_neighbours(neighbours, relevances)
        lifted = {memory_id: lift(relevances[memory_id], weights[memory_id]) for memory_id in weights.keys() & relevances.keys()}
        return _build_candidates(
            plan,
            hits,
            relevances | lifted,
            similarities=similarities,
            normalized=normalized,
            text_scores=text_scores,
            ranking_text_scores=ranking_text_scores,
            neighbours=weights,
            competition=competition,
        )

    async def _find_neighbours(self, plan: SearchPlan, relevances: Mapping[str, float]) -> Mapping[str, tuple[Neighbour, ...]]:
        """Return the neighbours of the best candidates."""
        order = sorted((-relevance, memory_id) for memory_id, relevance in relevances.items())
        best = [memory_id for _, memory_id in order[:MAX_NEIGHBOUR_SOURCES]]
        with start_span("neighbours"):
            return await self._db.lookup(lambda tx: find_neighbours(tx, plan.access_filter, best))

    async def _look_up_similarities(self, index: IndexVersion, plan: SearchPlan, ids: Collection[str]) -> dict[str, float]:
        """Return the similarities of *ids*, where known."""
        vector = plan.vector
        if not ids or vector is None:
            return {}
        where = filter_ids(plan.access_filter.workspace_id, ids)
        return dict(await self._breakers.vectors.call(lambda: index.vectors.search(vector, where=where, limit=len(ids))))

    async def _complete_similarities(self, index: IndexVersion, plan: SearchPlan, hits: _Hits) -> dict[str, float]:
        """Return the similarities of the hits by meaning, and of those by words where known."""
        similarities = dict(hits.vectors)
        others = {hit.memory_id for hit in (*hits.texts, *hits.keywords)} - similarities.keys()
        return similarities | await self._look_up_similarities(index, plan, others)


async def _catch_failure(searching: Awaitable[T]) -> T | EngineUnavailable | NotEmbeddable:
    """Return the result of *searching*, or why the vectors are left out."""
    try:
        return await _catch_outage(searching)
    except NotEmbeddable as error:
        return error


async def _catch_outage(searching: Awaitable[T]) -> T | EngineUnavailable:
    """Return the result of *searching*, or the error of an engine that can be left out."""
    try:
        return await searching
    except EngineUnavailable as error:
        if error.engine not in _ENGINE_NAMES:
            raise
        return error


def _weigh_neighbours(neighbours: Mapping[str, Sequence[Neighbour]], relevances: Mapping[str, float]) -> dict[str, float]:
    """Return for each memory beside one of *neighbours* the relevance of the best one beside it (`ranking.weigh_neighbour`)."""
    weights = dict[str, float]()
    for memory_id, pairs in neighbours.items():
        relevance = relevances[memory_id]
        for distance, neighbour_id in pairs:
            weight = weigh_neighbour(distance, relevance)
            if weight >= weights.get(neighbour_id, 0.0):
                weights[neighbour_id] = weight
    return weights


def _semantic_candidates(plan: SearchPlan, hits: _Hits, similarities: Mapping[str, float]) -> Candidates:
    bases = {hit.memory_id: 0.0 for hit in hits.keywords} | dict(similarities)
    normalized = _normalize(similarities, plan.scale)
    competition = compute_competition(normalized.values())
    return _build_candidates(plan, hits, bases, similarities=similarities, normalized=normalized, competition=competition)


def _keyword_candidates(plan: SearchPlan, text_hits: tuple[Sequence[TextHit], Sequence[TextHit]], limit: int) -> Candidates:
    hits = _Hits(texts=text_hits[0], keywords=text_hits[1], limit=limit)
    text_scores = _normalize_text_scores(hits.texts)
    # Of the best one, not of its coverage: with smaller scores, more of them would be equal at two decimals.
    best = max((hit.score for hit in hits.texts), default=1.0)
    bases = {hit.memory_id: 0.0 for hit in hits.keywords} | {hit.memory_id: hit.score / best for hit in hits.texts}
    return _build_candidates(plan, hits, bases, text_scores=text_scores, competition=compute_competition(text_scores.values()))


def _build_candidates(
    plan: SearchPlan,
    hits: _Hits,
    bases: Mapping[str, float],
    *,
    similarities: Mapping[str, float] = _NOTHING,
    normalized: Mapping[str, float] = _NOTHING,
    text_scores: Mapping[str, float] = _NOTHING,
    ranking_text_scores: Mapping[str, float] = _NOTHING,
    neighbours: Mapping[str, float] = _NOTHING,
    competition: float,
) -> Candidates:
    """Return the candidates with *bases*. The parts of their scores are those of `Score`, by id."""
    semantic_ranks, keyword_ranks = _rank_hits(hits.vectors), _rank_hits(hits.texts)

    def get_score(
        memory_id: str, *, boost: float = 0.0, matched_keywords: tuple[str, ...] = (), keyword_share: float = 0.0, decay: float = 1.0
    ) -> Score:
        base, similarity, text_score = bases[memory_id], normalized.get(memory_id), text_scores.get(memory_id)
        neighbour = neighbours.get(memory_id)
        return Score(
            mode=plan.mode,
            base=base,
            total=boost_score(base, share=keyword_share, boost=boost, is_bounded=plan.mode != "semantic"),
            relevance=estimate_relevance(
                plan.mode, similarity=similarity, text_score=text_score, neighbour=neighbour or 0.0, competition=competition
            ),
            similarity=similarities.get(memory_id),
            normalized_similarity=similarity,
            text_score=text_score,
            ranking_text_score=ranking_text_scores.get(memory_id),
            neighbour=neighbour,
            semantic_rank=semantic_ranks.get(memory_id),
            keyword_rank=keyword_ranks.get(memory_id),
            boost=boost,
            matched_keywords=matched_keywords,
            keyword_share=keyword_share,
            decay=decay,
        )

    return Candidates(plan=plan, bases=bases, is_complete=hits.are_complete, get_score=get_score)


def _normalize(similarities: Mapping[str, float], scale: SimilarityScale | None) -> dict[str, float]:
    return {} if scale is None else scale.normalize_all(similarities)


def _discount_weak_words(
    text_scores: Mapping[str, float], similarities: Mapping[str, float], scale: SimilarityScale | None
) -> Mapping[str, float]:
    return discount_weak_words(text_scores, similarities) if scale is not None and scale.is_measured else text_scores


def _normalize_text_scores(text_hits: Sequence[TextHit]) -> dict[str, float]:
    """
    Return the word scores in 0..1. The best hit's is its coverage, so that one common word of a question does not count as a full match.

    An engine that computes no coverage gives the best hit 1.
    """
    if not text_hits:
        return {}
    best = max(text_hits, key=lambda hit: hit.score)
    coverage = 1.0 if best.coverage is None else best.coverage
    return {hit.memory_id: coverage * hit.score / best.score for hit in text_hits}


def _rank_hits(hits: Sequence[VectorHit] | Sequence[TextHit]) -> dict[str, int]:
    return {hit.memory_id: rank for rank, hit in enumerate(hits, start=1)}
