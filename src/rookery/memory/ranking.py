"""The ranking of recalled memories (spec 4.3, D-44, D-45). Pure functions: no I/O, no clock, no settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from rookery.memory.models import Memory, MemoryScope

HALF_LIVES_DAYS: Mapping[str, int | None] = {
    "observation": 30,
    "context": 60,
    "decision": 180,
    "procedure": 365,
    "convention": None,
    "architecture": None,
}
"""Half-lives of confidence by type (spec 8). None: no decay."""

DEFAULT_HALF_LIFE_DAYS = 60
"""The half-life of types that the spec does not list (D-40)."""

SCOPE_PRIORITY: Mapping[MemoryScope, int] = {
    MemoryScope.AGENT: 0,
    MemoryScope.PROJECT: 1,
    MemoryScope.SHARED: 2,
    MemoryScope.SESSION: 3,
}
"""The order of scopes at equal relevance, lowest first (spec 4.3)."""

SIMILARITY_WEIGHT, TEXT_WEIGHT = 0.55, 0.45
"""The weights of hybrid recall, measured on the development half of LoCoMo and on SciFact."""

FULL_SIMILARITY = 0.7
"""The cosine similarity that counts as 1. Between a question and its answer it is seldom higher."""

_CONFIDENCE_DECIMALS = 12
"""Decimals of a confidence after feedback, so that it becomes 0.82 and not 0.8200000000000001."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """
    A candidate for recall, before its record is read.

    Attributes:
        relevance: Without the keyword boost.
        semantic_rank: Its rank among the hits by meaning, from 1. *keyword_rank* is the same for hits by words.
        text_score: Its word score as a share of the best one.
    """

    memory_id: str
    relevance: float
    similarity: float | None = None
    text_score: float | None = None
    semantic_rank: int | None = None
    keyword_rank: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RankedMemory:
    """A candidate with its record; *relevance* includes the keyword boost."""

    candidate: Candidate
    memory: Memory
    relevance: float
    matched_keywords: tuple[str, ...]
    keyword_share: float
    decay: float

    @property
    def effective_confidence(self) -> float:
        """The confidence after decay (D-45)."""
        return self.memory.confidence * self.decay


def decay_factor(age: timedelta, half_life_days: int | None) -> float:
    """
    Return the share of confidence left after *age*, in 0..1.

    The spec gives half-lives but no formula (8, "not shown"); D-45 uses exponential decay. A negative age (clock skew) counts as zero.
    """
    if half_life_days is None:
        return 1.0
    days = max(age, timedelta()) / timedelta(days=1)
    return 0.5 ** (days / half_life_days)


def memory_decay_factor(memory: Memory, *, at: datetime, half_lives_days: Mapping[str, int | None]) -> float:
    """Return the `decay_factor` of *memory*. Its age counts from the last change of its content (D-45)."""
    return decay_factor(at - memory.content_at, half_lives_days.get(memory.type, DEFAULT_HALF_LIFE_DAYS))


def adjust_confidence(confidence: float, *, base: float, is_used: bool) -> float:
    """
    Return *confidence* after one feedback: a tenth closer to 1, or a twentieth less, but at least half of *base* (D-47).

    Args:
        base: The confidence that the author gave.
    """
    if is_used:
        return max(confidence, round(confidence + 0.1 * (1 - confidence), _CONFIDENCE_DECIMALS))
    return min(confidence, max(round(confidence * 0.95, _CONFIDENCE_DECIMALS), base / 2))


def round_relevance(relevance: float) -> float:
    """Return *relevance* rounded to two decimals; equal values count as ties (D-44)."""
    return round(relevance, 2)


def ranking_key(ranked_memory: RankedMemory) -> tuple[float, int, float, timedelta, str]:
    """Return the key that sorts best first: relevance, scope, effective confidence, newest, id (D-44)."""
    memory = ranked_memory.memory
    return (
        -round_relevance(ranked_memory.relevance),
        SCOPE_PRIORITY[memory.memory_scope],
        -ranked_memory.effective_confidence,
        datetime.max.replace(tzinfo=memory.created_at.tzinfo) - memory.created_at,
        memory.id,
    )


def boost_relevance(relevance: float, *, share: float, boost: float, is_bounded: bool) -> float:
    """
    Return *relevance* raised by the share of matching keywords (D-44).

    Args:
        is_bounded: Keep the result in 0..1, as for hybrid and keyword recall. *boost* is then the weight of the keywords.
    """
    raised = relevance + boost * share
    return raised / (1 + boost) if is_bounded else raised


def fuse_scores(similarities: Mapping[str, float], scores: Mapping[str, float], *, best: float | None = None) -> dict[str, float]:
    """
    Return the relevance, in 0..1, of each memory found by meaning or by words (D-44, hybrid).

    It is the weighted sum of two parts: the similarity as a share of `FULL_SIMILARITY`, which does not depend on the other hits, and
    the word score as a share of the best. A memory found by only one method can rank first.

    Args:
        similarities: Cosine similarities, where known, of all hits.
        scores: Scores above 0 of the hits by words.
        best: The best score; None for the highest of *scores*.
    """
    best = max(scores.values(), default=1.0) if best is None else best
    relevances = {
        memory_id: SIMILARITY_WEIGHT * min(max(similarity / FULL_SIMILARITY, 0.0), 1.0) for memory_id, similarity in similarities.items()
    }
    for memory_id, score in scores.items():
        relevances[memory_id] = relevances.get(memory_id, 0.0) + TEXT_WEIGHT * score / best
    return relevances
