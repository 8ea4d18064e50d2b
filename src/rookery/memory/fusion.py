"""
The arithmetic of recall's scores: similarity and words, neighbours in a session, and the probability behind a score.

Pure functions. The constants were chosen on the development sets of `benchmarks.recall_quality`, which shows what a change of them does.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from rookery.memory.recall_models import RecallMode

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

STANDARD_SCORES_TO_FULL = 4.0
"""Standard deviations above the mean of a workspace from which on a similarity counts as full."""

PRIOR_WEIGHT = 10
"""The weight of the assumed standard deviation, in sampled memories."""

PRIOR_DEVIATION = 0.12
"""
The assumed standard deviation of cosines, as a share of the distance between their mean and 1.

Measured: 0.06 to 0.19 in eight workspaces of MiniLM, 0.11 to 0.15 in four of bge-small, whose means are 0.0 to 0.4 and 0.4 to 0.55.
"""

COMPARED_CANDIDATES = 20
"""The number of candidates whose mean relevance shows whether the best ones stand out. Missing ones count as 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SimilarityScale:
    """
    The cosines that count as no similarity and as full similarity.

    Attributes:
        is_measured: It is known for the model, and not estimated from a workspace.
    """

    zero: float
    full: float
    is_measured: bool = False

    def normalize(self, similarity: float) -> float:
        """Return *similarity* on this scale, in 0..1."""
        return min(max((similarity - self.zero) / (self.full - self.zero), 0.0), 1.0)

    def normalize_all(self, similarities: Mapping[str, float]) -> dict[str, float]:
        """Return each of *similarities* on this scale. A call of `normalize` for each of hundreds would take three times as long."""
        zero, width = self.zero, self.full - self.zero
        shares = {memory_id: (similarity - zero) / width for memory_id, similarity in similarities.items()}
        return {memory_id: 0.0 if share < 0.0 else min(share, 1.0) for memory_id, share in shares.items()}


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


def estimate_scale(similarities: Sequence[float], *, background: Sequence[float]) -> SimilarityScale:
    """
    Return the scale of one question's cosines, for a model whose scale is unknown.

    Args:
        similarities: Those of a sample of the workspace; may be empty.
        background: Those of texts that have nothing to do with the question. They matter only in a small workspace. Without any, the mean
            is that of the sample alone.
    """
    weight = PRIOR_WEIGHT / len(background) if background else 0.0
    weights = len(similarities) + weight * len(background)
    mean = (math.fsum(similarities) + weight * math.fsum(background)) / weights if weights else 0.0
    total = PRIOR_WEIGHT + len(similarities)
    prior = PRIOR_DEVIATION * max(1.0 - mean, 1e-6)
    spread = math.fsum((similarity - mean) ** 2 for similarity in similarities)
    deviation = math.sqrt((spread + PRIOR_WEIGHT * prior**2) / total)
    return SimilarityScale(zero=mean, full=mean + STANDARD_SCORES_TO_FULL * deviation)


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
