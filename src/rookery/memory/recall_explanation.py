"""The explanation of a recall: the parts of each score, and the memories that a rule dropped. Pure functions."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from dataclasses import fields, replace

from rookery.kernel.questions import extract_question
from rookery.memory.fusion import SIMILARITY_WEIGHT, TEXT_WEIGHT
from rookery.memory.models import SCORE_DECIMALS, AccessFilter, Memory, MemoryFilter
from rookery.memory.ranking import Candidate, RankedMemory, round_for_ranking
from rookery.memory.recall_models import DroppedMemory, DropRule, RankExplanation, RecallMode, RecallRequest, ScoreParts
from rookery.memory.text_queries import highlight, parse_question
from rookery.memory.visibility import is_visible

MAX_DROPPED = 20
"""Dropped memories in an explanation, best first. At most half of them were dropped by filters."""

_NO_FILTERS = {
    column.name: getattr(MemoryFilter(), column.name) for column in fields(MemoryFilter) if column.name not in {"agent_id", "session_id"}
}
"""The filters of a request that an explanation ignores to find what they drop. Owners and the lists of the key are not among them."""


def explain_rank(mode: RecallMode, ranked_memory: RankedMemory, request: RecallRequest, *, position: int, score: float) -> RankExplanation:
    """
    Return the explanation of the place of *ranked_memory*. The words of the question are marked if the request wants explanations.

    Args:
        score: The score that is shown; it is lower than its own if it is a repeated memory of a series.
    """
    candidate = ranked_memory.candidate
    return RankExplanation(
        semantic_rank=candidate.semantic_rank,
        keyword_rank=candidate.keyword_rank,
        similarity=candidate.similarity,
        text_score=candidate.text_score,
        neighbour=candidate.neighbour,
        matched_keywords=ranked_memory.matched_keywords,
        keyword_share=ranked_memory.keyword_share,
        relevance=candidate.relevance,
        decay=ranked_memory.decay,
        place=position,
        is_repeated=ranked_memory.is_repeated,
        parts=replace(
            split_score(mode, candidate, share=ranked_memory.keyword_share, boost=request.boost if request.keywords else 0.0),
            repeated=score - ranked_memory.score,
        ),
        highlight=highlight(ranked_memory.memory.content, parse_question(extract_question(request.query))) if request.explains else None,
    )


def split_score(mode: RecallMode, candidate: Candidate, *, share: float, boost: float) -> ScoreParts:
    """Return the parts of the score of *candidate*; they add up to the score with the keyword boost (`ranking.boost_score`)."""
    if mode == "hybrid":
        meaning = SIMILARITY_WEIGHT * (candidate.normalized_similarity or 0.0)
        words = TEXT_WEIGHT * (candidate.ranking_text_score or 0.0)
        neighbours = max(0.0, candidate.score - meaning - words)
    elif mode == "semantic":
        meaning, words, neighbours = candidate.score, 0.0, 0.0
    else:
        meaning, words, neighbours = 0.0, candidate.score, 0.0
    divisor = 1.0 if mode == "semantic" else 1.0 + boost
    return ScoreParts(meaning=meaning / divisor, words=words / divisor, neighbours=neighbours / divisor, keywords=boost * share / divisor)


def remove_filters(access_filter: AccessFilter) -> AccessFilter:
    """Return *access_filter* without the filters by field. The rights of the key, and the agent and session of the request, stay."""
    return replace(access_filter, **_NO_FILTERS)


def has_filters(access_filter: AccessFilter) -> bool:
    """Return whether *access_filter* has a filter that `remove_filters` removes."""
    return remove_filters(access_filter) != access_filter


def find_failed_filters(access_filter: AccessFilter, memory: Memory) -> tuple[str, ...]:
    """Return the names of the filters that reject *memory*, as requests name them."""
    failed = list[str]()
    for name, empty in _NO_FILTERS.items():
        value = getattr(access_filter, name)
        if value != empty and not is_visible(replace(remove_filters(access_filter), **{name: value}), memory):
            failed.append({"labels": "metadata", "scopes": "include_scopes"}.get(name, name))
    return tuple(failed)


def list_dropped(
    ranked_memories: Iterable[RankedMemory],
    *,
    request: RecallRequest,
    returned_ids: Collection[str],
    skipped_ids: Collection[str],
    limit: int,
) -> list[DroppedMemory]:
    """
    Return those of *ranked_memories*, best first, that the recall did not return, with the rule that dropped each.

    Args:
        skipped_ids: Memories that did not fit the token budget.
    """
    dropped = list[DroppedMemory]()
    ordered = list(ranked_memories)
    last_score = min((item.ranking_score for item in ordered if item.memory.id in returned_ids), default=math.inf)
    for ranked_memory in ordered:
        memory = ranked_memory.memory
        if len(dropped) == limit:
            break
        if memory.id not in returned_ids:
            is_outranked = ranked_memory.is_repeated and round_for_ranking(ranked_memory.score) > last_score
            rule: DropRule = "similar" if is_outranked else "top_k"
            if memory.id in skipped_ids:
                rule = "max_tokens"
            elif request.min_relevance is not None and round(ranked_memory.candidate.relevance, SCORE_DECIMALS) < request.min_relevance:
                rule = "min_relevance"
            dropped.append(_to_dropped(ranked_memory, rule, ()))
    return dropped


def list_filtered(ranked_memories: Iterable[RankedMemory], access_filter: AccessFilter, *, limit: int) -> list[DroppedMemory]:
    """Return those of *ranked_memories*, best first, that *access_filter* rejects, with the names of the filters."""
    filtered = ((ranked_memory, find_failed_filters(access_filter, ranked_memory.memory)) for ranked_memory in ranked_memories)
    return [_to_dropped(ranked_memory, "filter", names) for ranked_memory, names in filtered if names][:limit]


def _to_dropped(ranked_memory: RankedMemory, rule: DropRule, filters: tuple[str, ...]) -> DroppedMemory:
    candidate = ranked_memory.candidate
    return DroppedMemory(
        memory=ranked_memory.memory,
        rule=rule,
        filters=filters,
        score=ranked_memory.score,
        relevance=candidate.relevance,
        similarity=candidate.similarity,
        text_score=candidate.text_score,
    )
