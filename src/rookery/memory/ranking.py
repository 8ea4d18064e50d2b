"""The ranking of recalled memories. Pure functions: no I/O, no clock, no settings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from rookery.memory.models import Memory, MemoryScope
from rookery.memory.series import REPEATED_SHARE, Series, find_repeated

HALF_LIVES_DAYS: Mapping[str, int | None] = {
    "observation": 30,
    "context": 60,
    "decision": 180,
    "procedure": 365,
    "convention": None,
    "architecture": None,
}
"""Half-lives of confidence by type. None: no decay."""

DEFAULT_HALF_LIFE_DAYS = 60
"""The half-life of all other types."""

SCOPE_PRIORITY: Mapping[MemoryScope, int] = {
    MemoryScope.AGENT: 0,
    MemoryScope.PROJECT: 1,
    MemoryScope.SHARED: 2,
    MemoryScope.SESSION: 3,
}
"""The order of scopes at equal relevance, lowest first."""

_CONFIDENCE_DECIMALS = 12
"""Decimals of a confidence after feedback, so that it becomes 0.82 and not 0.8200000000000001."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """
    A candidate for recall, before its record is read.

    Attributes:
        score: What it is ranked by, without the keyword boost.
        relevance: The probability that it answers the question, in 0..1.
        similarity: Its cosine similarity, where known. *normalized_similarity* is the same on the scale of its model, in 0..1.
        text_score: Its word score, in 0..1. *ranking_text_score* is what of it counts in a hybrid score.
        neighbour: The score of the best neighbour in its session before any gain; None without one.
        semantic_rank: Its rank among the hits by meaning, from 1. *keyword_rank* is the same for hits by words.
    """

    memory_id: str
    score: float
    relevance: float = 0.0
    similarity: float | None = None
    normalized_similarity: float | None = None
    text_score: float | None = None
    ranking_text_score: float | None = None
    neighbour: float | None = None
    semantic_rank: int | None = None
    keyword_rank: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class RankedMemory:
    """
    A candidate with its record.

    Attributes:
        score: Its score with the keyword boost.
        is_repeated: Whether a better one of its *series* is in the same ranking.
    """

    candidate: Candidate
    memory: Memory
    score: float
    matched_keywords: tuple[str, ...]
    keyword_share: float
    decay: float
    series: Series | None = None
    is_repeated: bool = False

    @property
    def ranking_score(self) -> float:
        """The rounded score that gives it its place; equal values count as ties."""
        score = round_for_ranking(self.score)
        return score - abs(score) * (1 - REPEATED_SHARE) if self.is_repeated else score

    @property
    def effective_confidence(self) -> float:
        """The confidence after decay."""
        return self.memory.confidence * self.decay


def decay_factor(age: timedelta, half_life_days: int | None) -> float:
    """
    Return the share of confidence left after *age*, in 0..1.

    `share = 0.5 ** (age / half_life)`. A negative age (clock skew) counts as zero.
    """
    if half_life_days is None:
        return 1.0
    days = max(age, timedelta()) / timedelta(days=1)
    return 0.5 ** (days / half_life_days)


def memory_decay_factor(memory: Memory, *, at: datetime, half_lives_days: Mapping[str, int | None]) -> float:
    """Return the `decay_factor` of *memory*. Its age counts from the last change of its content."""
    return decay_factor(at - memory.content_at, half_lives_days.get(memory.type, DEFAULT_HALF_LIFE_DAYS))


def adjust_confidence(confidence: float, *, base: float, is_used: bool) -> float:
    """
    Return *confidence* after one feedback: a tenth closer to 1, or a twentieth less, but at least half of *base*.

    Args:
        base: The confidence that the author gave.
    """
    if is_used:
        return max(confidence, round(confidence + 0.1 * (1 - confidence), _CONFIDENCE_DECIMALS))
    return min(confidence, max(round(confidence * 0.95, _CONFIDENCE_DECIMALS), base / 2))


def round_for_ranking(score: float) -> float:
    """Return *score* rounded to two decimals; equal values count as ties."""
    return round(score, 2)


def ranking_key(ranked_memory: RankedMemory) -> tuple[float, int, float, timedelta, str]:
    """Return the key that sorts best first: score, scope, effective confidence, newest, id."""
    memory = ranked_memory.memory
    return (
        -ranked_memory.ranking_score,
        SCOPE_PRIORITY[memory.memory_scope],
        -ranked_memory.effective_confidence,
        datetime.max.replace(tzinfo=memory.created_at.tzinfo) - memory.created_at,
        memory.id,
    )


def sort_memories(ranked_memories: Iterable[RankedMemory]) -> list[RankedMemory]:
    """Return *ranked_memories* best first. All but the best of a series get a lower place (`series`)."""
    ordered = sorted((replace(item, is_repeated=False) if item.is_repeated else item for item in ranked_memories), key=ranking_key)
    is_repeated = find_repeated(ordered, lambda item: item.series)
    if not any(is_repeated):
        return ordered
    return sorted(
        (replace(item, is_repeated=True) if repeated else item for item, repeated in zip(ordered, is_repeated, strict=True)),
        key=ranking_key,
    )


def boost_score(score: float, *, share: float, boost: float, is_bounded: bool) -> float:
    """
    Return *score* raised by the share of matching keywords.

    Args:
        is_bounded: Keep the result in 0..1, as for hybrid and keyword recall. *boost* is then the weight of the keywords.
    """
    raised = score + boost * share
    return raised / (1 + boost) if is_bounded else raised
