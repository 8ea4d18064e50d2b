"""
The score of a recalled memory, and the order of a result. Pure functions: no I/O, no clock, no settings.

A series is memories of the same words but for numbers and dates, such as "The deploy of 2026-11-21 went well."
The first of a series in a result takes its place by its own score, the others lower ones: five times the same note is no better an answer
than one, and hides the memory beside them that matters. Nothing is left out for it, as long as there is room.

The constants were chosen on the development sets of `benchmarks.recall_quality`, which shows what a change of them does.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import NamedTuple, TypeVar

from rookery.kernel.tokenization import fold_text
from rookery.memory.models import Memory, MemoryScope, RecallMode
from rookery.memory.statements import DATE_WORDS

T = TypeVar("T")

SIMILARITY_WEIGHT, TEXT_WEIGHT = 0.45, 0.55
"""The weights of similarity and words in hybrid recall."""

WEAK_COVERAGE = 0.35
"""
The word score of the best memory below which words are weak evidence: it has about a third of the question's words, or fewer.

English paraphrases whose answer came first: 50 % of 36 without the rule, 56 % with 0.35, 53 % with 0.3. With 0.45 the MRR of single turns
was 1 point lower (`benchmarks.recall_quality`).
"""

DISSIMILARITY_WEIGHT = 1.5
"""The discount of weak words: `text_score *= 1 - DISSIMILARITY_WEIGHT * (best_similarity - similarity)`."""

NEIGHBOUR_WEIGHT = 0.7
"""The gain from a neighbour: `score += NEIGHBOUR_WEIGHT * neighbour_score * (1 - score)`."""

SECOND_NEIGHBOUR_FACTOR = 0.8
"""The relevance of the second memory before or after, relative to that of the first."""

COMPARED_CANDIDATES = 20
"""The number of candidates whose mean relevance shows whether the best ones stand out. Missing ones count as 0."""

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

REPEATED_SHARE = 0.5
"""The share of its score by which a further memory of a series is ranked."""

_NUMBER = re.compile(r"\d+(?:[.,:/\-]\d+)*")
_CLOSING_MARKS = ".,;:!?)]"


class Series(NamedTuple):
    """
    The series of a memory in one result.

    Attributes:
        pattern: Its words without case, with a mark in place of each number, day and month.
        asked_values: The numbers and dates of the question that it has. A memory that has what was asked for repeats no other one.
    """

    pattern: str
    asked_values: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """
    The score of a memory for a question, and its parts.

    Hybrid recall, with the constants of this module:

        meaning = SIMILARITY_WEIGHT * normalized_similarity
        words   = TEXT_WEIGHT * ranking_text_score
        fused   = meaning + words
        base    = fused + NEIGHBOUR_WEIGHT * neighbour * (1 - fused)
        total   = (base + boost * keyword_share) / (1 + boost)

    Recall by meaning: `base = similarity`, and `total = base + boost * keyword_share`. Recall by words: `base = bm25 / best_bm25`, and
    *total* is that of hybrid recall. In all modes, with the weights of `_CALIBRATIONS` and the competition of `compute_competition`:

        logit     = intercept + a * normalized_similarity + b * text_score + c * neighbour + d * competition
        relevance = 1 / (1 + exp(-logit))

    A part that is not known is None and counts as 0. The properties `meaning`, `words`, `neighbours` and `keywords` are the parts as they
    are in *total*; with *reduction* they add up to it.

    Attributes:
        base: The score without the keyword boost, by which candidates are read.
        total: The score with the keyword boost.
        relevance: The probability that the memory answers the question, in 0..1.
        similarity: The cosine similarity. *normalized_similarity* is the same on the scale of its model, in 0..1.
        text_score: The word score, `coverage * bm25 / best_bm25`, in 0..1. *ranking_text_score* is the same after `discount_weak_words`.
        neighbour: The score of the best neighbour in the session before any gain, in 0..1.
        semantic_rank: The rank among the hits by meaning, from 1. *keyword_rank* is the same for hits by words.
        boost: The weight of the keywords of the request; 0 without any.
        matched_keywords: The keywords that the memory contains. *keyword_share* is their share, in 0..1.
        decay: The factor by which age reduces the confidence, `0.5 ** (age / half_life)`.
        reduction: The part that was taken from *total*, so that a repeated memory has no more than the one before it; 0 or less.
    """

    mode: RecallMode
    base: float
    total: float
    relevance: float = 0.0
    similarity: float | None = None
    normalized_similarity: float | None = None
    text_score: float | None = None
    ranking_text_score: float | None = None
    neighbour: float | None = None
    semantic_rank: int | None = None
    keyword_rank: int | None = None
    boost: float = 0.0
    matched_keywords: tuple[str, ...] = ()
    keyword_share: float = 0.0
    decay: float = 1.0
    reduction: float = 0.0

    @property
    def meaning(self) -> float:
        """The part of *total* for the similarity."""
        return self._base_meaning / self._divisor

    @property
    def words(self) -> float:
        """The part of *total* for the words of the question."""
        return self._base_words / self._divisor

    @property
    def neighbours(self) -> float:
        """The part of *total* for the neighbours in the session."""
        return max(0.0, self.base - self._base_meaning - self._base_words) / self._divisor

    @property
    def keywords(self) -> float:
        """The part of *total* for the keywords of the request."""
        return self.boost * self.keyword_share / self._divisor

    @property
    def _base_meaning(self) -> float:
        if self.mode == "hybrid":
            return SIMILARITY_WEIGHT * (self.normalized_similarity or 0.0)
        return self.base if self.mode == "semantic" else 0.0

    @property
    def _base_words(self) -> float:
        if self.mode == "hybrid":
            return TEXT_WEIGHT * (self.ranking_text_score or 0.0)
        return self.base if self.mode == "keyword" else 0.0

    @property
    def _divisor(self) -> float:
        return 1.0 if self.mode == "semantic" else 1.0 + self.boost


@dataclass(frozen=True, slots=True, kw_only=True)
class RecallContext:
    """The memories stored just before and after a recalled one in its session, in the order of time."""

    before: tuple[Memory, ...] = ()
    after: tuple[Memory, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RecallHit:
    """
    A memory that a recall compared, with its score.

    Attributes:
        series: The memories that it repeats or that repeat it.
        is_repeated: A better memory of its series is in the ranking.
        similar_count: The memories of its series that were compared and not returned.
        context: Its neighbours; None if the request did not ask for them.
        highlight: Its content as HTML, with the words of the question in `mark`; None if the request wants no explanations.
    """

    memory: Memory
    score: Score
    series: Series | None = None
    is_repeated: bool = False
    similar_count: int = 0
    context: RecallContext | None = None
    highlight: str | None = None

    @property
    def ranking(self) -> float:
        """
        The rounded score that gives the memory its place; equal values count as ties.

            place   = round(total, 2)
            ranking = place - |place| * (1 - REPEATED_SHARE) if it is repeated, else place
        """
        return self.get_ranking(is_repeated=self.is_repeated)

    def get_ranking(self, *, is_repeated: bool) -> float:
        """Return *ranking* as if the memory was, or was not, a repeated one."""
        ranking = round_for_ranking(self.score.total)
        return ranking - abs(ranking) * (1 - REPEATED_SHARE) if is_repeated else ranking

    @property
    def effective_confidence(self) -> float:
        """The confidence after decay."""
        return self.memory.confidence * self.score.decay


@dataclass(frozen=True, slots=True, kw_only=True)
class _Calibration:
    """
    The weights of a logistic regression, from the parts of a score to the probability that the memory answers the question.

    Attributes:
        confident: The relevance that the best memory of nine in ten answerable questions reaches.
    """

    intercept: float
    similarity: float = 0.0
    text: float = 0.0
    neighbour: float = 0.0
    competition: float
    confident: float


_CALIBRATIONS: Mapping[RecallMode, _Calibration] = {
    "hybrid": _Calibration(intercept=-4.8, similarity=6.5, text=4.5, neighbour=0.5, competition=-11.8, confident=0.06),
    "semantic": _Calibration(intercept=-5.0, similarity=9.4, competition=-8.1, confident=0.04),
    "keyword": _Calibration(intercept=-3.45, text=5.85, competition=-8.0, confident=0.05),
}
"""Fitted on the development sets with two embedders, half of the questions with their answers removed; all sets have the same weight."""


def fuse(ids: Iterable[str], similarities: Mapping[str, float], text_scores: Mapping[str, float]) -> dict[str, float]:
    """
    Return the hybrid relevance, in 0..1, of each of *ids* by its normalized similarity and its word score. A missing one counts as 0.

    A memory that only one method found can rank first.
    """
    find_similarity, find_text_score = similarities.get, text_scores.get
    return {
        memory_id: SIMILARITY_WEIGHT * find_similarity(memory_id, 0.0) + TEXT_WEIGHT * find_text_score(memory_id, 0.0) for memory_id in ids
    }


def discount_weak_words(text_scores: Mapping[str, float], similarities: Mapping[str, float]) -> Mapping[str, float]:
    """
    Return what *text_scores* count in a ranking: less for dissimilar memories if no memory has more than a few of the question's words.

    A paraphrase shares a common word with memories about something else. Its answer, which has none of its words, is more similar. The
    similarities are normalized by a measured scale; a memory whose similarity is unknown keeps its score.

    Relevance does not use the discount: with it, 43 instead of 52 % of the questions that agents' memories do not answer were recognised.
    Similarities on an estimated scale lie farther apart: with e5-small, frac@10 of agents' memories was 2.9 points lower with the discount.
    """
    if not similarities or max(text_scores.values(), default=1.0) >= WEAK_COVERAGE:
        return text_scores
    best = max(similarities.values())
    return {
        memory_id: text_score * max(0.0, 1.0 - DISSIMILARITY_WEIGHT * (best - similarities.get(memory_id, best)))
        for memory_id, text_score in text_scores.items()
    }


def weigh_neighbour(distance: int, relevance: float) -> float:
    """Return what the *relevance* of a neighbour counts at a distance of 1 or 2 memories, before or after."""
    return relevance if abs(distance) == 1 else SECOND_NEIGHBOUR_FACTOR * relevance


def lift(relevance: float, neighbour: float) -> float:
    """Return *relevance* raised by that of the best neighbour, weighed by `weigh_neighbour`, in 0..1. A neighbour of 0 changes nothing."""
    return relevance + NEIGHBOUR_WEIGHT * neighbour * (1.0 - relevance)


def compute_competition(relevances: Iterable[float]) -> float:
    """Return the mean relevance of the best `COMPARED_CANDIDATES` candidates. If many are as good as the best, it does not stand out."""
    return math.fsum(sorted(relevances, reverse=True)[:COMPARED_CANDIDATES]) / COMPARED_CANDIDATES


def estimate_relevance(
    mode: RecallMode, *, similarity: float | None, text_score: float | None, neighbour: float, competition: float
) -> float:
    """
    Return the probability that a memory answers the question, in 0..1.

    Of the memories with a relevance of 0.4, about 4 in 10 were an answer in the development sets, in which half of the questions had none.
    """
    weights = _CALIBRATIONS[mode]
    logit = (
        weights.intercept
        + weights.similarity * (similarity or 0.0)
        + weights.text * (text_score or 0.0)
        + weights.neighbour * neighbour
        + weights.competition * competition
    )
    return 1.0 / (1.0 + math.exp(-logit))


def get_confident_relevance(mode: RecallMode) -> float:
    """Return the relevance of the best memory from which on a recall of *mode* is confident."""
    return _CALIBRATIONS[mode].confident


def is_confident(mode: RecallMode, relevance: float) -> bool:
    """Return whether the best memory's *relevance* is one that nine in ten answerable questions of the development sets reach."""
    return relevance >= get_confident_relevance(mode)


def are_confident(hits: Sequence[RecallHit]) -> bool:
    """Return whether the most relevant of *hits* is confident."""
    return bool(hits) and is_confident(hits[0].score.mode, max(hit.score.relevance for hit in hits))


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


def ranking_key(hit: RecallHit, *, is_repeated: bool | None = None) -> tuple[float, int, float, timedelta, str]:
    """Return the key that sorts best first: score, scope, effective confidence, newest, id. *is_repeated*: instead of its own mark."""
    memory = hit.memory
    return (
        -hit.get_ranking(is_repeated=hit.is_repeated if is_repeated is None else is_repeated),
        SCOPE_PRIORITY[memory.memory_scope],
        -hit.effective_confidence,
        datetime.max.replace(tzinfo=memory.created_at.tzinfo) - memory.created_at,
        memory.id,
    )


def sort_hits(hits: Iterable[RecallHit]) -> list[RecallHit]:
    """Return *hits* best first. All but the best of a series get a lower place."""
    ordered = sorted(hits, key=lambda hit: ranking_key(hit, is_repeated=False))
    is_repeated = find_repeated(ordered, lambda hit: hit.series)
    # Only a hit whose mark changes is copied: copies would take longer than the rest of the ranking.
    marked = [_mark_repeated(hit, is_repeated=repeated) for hit, repeated in zip(ordered, is_repeated, strict=True)]
    return sorted(marked, key=ranking_key) if any(is_repeated) else marked


def _mark_repeated(hit: RecallHit, *, is_repeated: bool) -> RecallHit:
    return hit if hit.is_repeated == is_repeated else replace(hit, is_repeated=is_repeated)


def boost_score(score: float, *, share: float, boost: float, is_bounded: bool) -> float:
    """
    Return *score* raised by the share of matching keywords.

    Args:
        is_bounded: Keep the result in 0..1, as for hybrid and keyword recall. *boost* is then the weight of the keywords.
    """
    raised = score + boost * share
    return raised / (1 + boost) if is_bounded else raised


def find_values(text: str) -> frozenset[str]:
    """Return the numbers, days and months of *text*."""
    low_text = text.casefold()
    return frozenset(_NUMBER.findall(low_text)) | {word.strip(_CLOSING_MARKS) for word in low_text.split() if _is_date_word(word)}


def find_series(content: str, asked_values: frozenset[str]) -> Series:
    """Return the series of a memory with *content* in the result of a question with *asked_values*."""
    words = ("#" if _is_date_word(word) else word for word in _NUMBER.sub("#", content.casefold()).split())
    return Series(" ".join(words), asked_values & find_values(content) if asked_values else asked_values)


def find_repeated(items: Sequence[T], get_series: Callable[[T], Series | None]) -> list[bool]:
    """Return for each of *items*, best first, whether a better one is of the same series. Without a series, None, it is not."""
    better_series = set[Series]()
    is_repeated = list[bool]()
    for item in items:
        series = get_series(item)
        is_repeated.append(series in better_series)
        if series is not None:
            better_series.add(series)
    return is_repeated


def select_distinct(memories: Sequence[Memory], limit: int) -> list[Memory]:
    """Return *limit* of *memories* in their order: the first of each series before any further one."""
    is_repeated = find_repeated(memories, lambda memory: find_series(memory.content, frozenset()))
    order = sorted(range(len(memories)), key=lambda index: is_repeated[index])
    return [memories[index] for index in sorted(order[:limit])]


def _is_date_word(word: str) -> bool:
    """Return whether *word*, without case, is the name of a day or a month."""
    name = word.strip(_CLOSING_MARKS)
    return name in DATE_WORDS or (not name.isascii() and fold_text(name) in DATE_WORDS)
