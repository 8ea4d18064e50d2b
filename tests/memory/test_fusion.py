from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rookery.memory.models import RecallMode
from rookery.memory.ranking import (
    SECOND_NEIGHBOUR_FACTOR,
    SIMILARITY_WEIGHT,
    TEXT_WEIGHT,
    WEAK_COVERAGE,
    compute_competition,
    discount_weak_words,
    estimate_relevance,
    fuse,
    is_confident,
    lift,
    weigh_neighbour,
)
from rookery.memory.similarity_scales import SimilarityScale, estimate_scale

MODES: list[RecallMode] = ["semantic", "keyword", "hybrid"]
shares = st.floats(0, 1)
cosines = st.floats(-1, 1)
samples = st.lists(cosines, max_size=50)
backgrounds = st.lists(cosines, min_size=1, max_size=8)


@given(shares, shares, shares)
def test_a_better_similarity_word_score_or_neighbour_never_lowers_a_score(share: float, other_share: float, fixed: float) -> None:
    """Scores rise with each of their parts and stay from 0 to 1."""
    lower, higher = sorted([share, other_share])

    by_similarity = fuse(["lower", "higher"], {"lower": lower, "higher": higher}, {"lower": fixed, "higher": fixed})
    by_words = fuse(["lower", "higher"], {"lower": fixed, "higher": fixed}, {"lower": lower, "higher": higher})
    assert 0 <= by_similarity["lower"] <= by_similarity["higher"] <= 1
    assert 0 <= by_words["lower"] <= by_words["higher"] <= 1
    assert fixed <= lift(fixed, lower) <= lift(fixed, higher) <= 1
    assert lift(lower, fixed) <= lift(higher, fixed)


@given(shares, shares)
def test_a_missing_part_of_a_score_counts_as_zero(similarity: float, text_score: float) -> None:
    """A memory that one method found alone can rank first."""
    scores = fuse(["both", "meaning", "words", "none"], {"both": 0.0, "meaning": similarity}, {"both": text_score, "words": text_score})

    assert scores == {
        "both": TEXT_WEIGHT * text_score,
        "meaning": SIMILARITY_WEIGHT * similarity,
        "words": TEXT_WEIGHT * text_score,
        "none": 0,
    }


memory_ids = st.sampled_from("abcdef")


@given(st.dictionaries(memory_ids, shares), st.dictionaries(memory_ids, shares))
def test_only_weak_word_scores_of_dissimilar_memories_count_less(text_scores: dict[str, float], similarities: dict[str, float]) -> None:
    """The most similar memory, and one whose similarity is unknown, keep their word scores."""
    discounted = discount_weak_words(text_scores, similarities)

    assert discounted.keys() == text_scores.keys()
    assert all(0 <= discounted[memory_id] <= text_scores[memory_id] for memory_id in text_scores)
    most_similar = {memory_id for memory_id, similarity in similarities.items() if similarity == max(similarities.values())}
    kept = (
        text_scores.keys()
        if max(text_scores.values(), default=1.0) >= WEAK_COVERAGE
        else most_similar | (text_scores.keys() - similarities)
    )
    assert all(discounted[memory_id] == text_scores[memory_id] for memory_id in kept & text_scores.keys())


@given(shares, shares)
def test_the_more_similar_of_two_memories_keeps_more_of_a_weak_word_score(similarity: float, other_similarity: float) -> None:
    """The discount grows with the distance to the most similar memory."""
    lower, higher = sorted([similarity, other_similarity])
    discounted = discount_weak_words({"lower": 0.2, "higher": 0.2}, {"lower": lower, "higher": higher, "best": 1.0})

    assert 0 <= discounted["lower"] <= discounted["higher"] <= 0.2


@given(st.dictionaries(st.text(max_size=3), cosines), samples)
def test_all_similarities_of_a_question_are_normalized_as_each(similarities: dict[str, float], sample: list[float]) -> None:
    """Both ways give equal scores, so that ties stay ties."""
    scale = estimate_scale(sample, background=[0.0])

    assert scale.normalize_all(similarities) == {memory_id: scale.normalize(cosine) for memory_id, cosine in similarities.items()}


def test_a_memory_without_neighbours_keeps_its_score() -> None:
    """Only sessions have neighbours."""
    assert lift(0.4, 0.0) == 0.4


def test_the_second_neighbour_counts_less_on_either_side() -> None:
    """The relevance of the second memory before or after counts at 0.8."""
    assert [weigh_neighbour(distance, 0.5) for distance in (-2, -1, 1, 2)] == [0.4, 0.5, 0.5, 0.4]
    assert SECOND_NEIGHBOUR_FACTOR == 0.8


@given(samples, backgrounds, cosines, cosines)
def test_an_estimated_scale_keeps_the_order_of_similarities(
    similarities: list[float], background: list[float], cosine: float, other_cosine: float
) -> None:
    """Any sample, even an empty or constant one, gives a scale from 0 to 1."""
    scale = estimate_scale(similarities, background=background)
    lower, higher = sorted([cosine, other_cosine])

    assert 0 <= scale.normalize(lower) <= scale.normalize(higher) <= 1


@given(st.lists(st.floats(0, 0.5), min_size=30, max_size=60), st.floats(0.1, 0.45))
def test_a_model_whose_cosines_are_all_high_has_the_same_scale(similarities: list[float], offset: float) -> None:
    """The distance to the other memories counts, not the height of a cosine: e5's are all near 0.8."""
    low = estimate_scale(similarities, background=[0.0])
    high = estimate_scale([similarity + offset for similarity in similarities], background=[offset])

    assert high.zero == pytest.approx(low.zero + offset)
    assert high.normalize(high.zero) == low.normalize(low.zero) == 0


def test_similarities_beyond_the_scale_count_as_none_or_full() -> None:
    """The built-in model's scale is from 0 to 0.7."""
    scale = SimilarityScale(zero=0.0, full=0.7)

    assert [scale.normalize(similarity) for similarity in (-0.3, 0.0, 0.35, 0.7, 0.9)] == [0, 0, 0.5, 1, 1]


@pytest.mark.parametrize("mode", MODES)
def test_relevance_is_a_probability_that_rises_with_the_match_and_falls_with_the_competition(mode: RecallMode) -> None:
    """A match that stands out is more relevant than the same match among equals."""

    def relevance(match: float, competition: float) -> float:
        return estimate_relevance(mode, similarity=match, text_score=match, neighbour=0.0, competition=competition)

    assert 0 < relevance(0.2, 0.1) < relevance(0.8, 0.1) < 1
    assert relevance(0.8, 0.5) < relevance(0.8, 0.1)
    assert is_confident(mode, relevance(1.0, 0.05))
    assert not is_confident(mode, relevance(0.0, 0.2))


def test_missing_competitors_count_as_no_match() -> None:
    """In a workspace with few memories a match stands out more easily; the mean is over twenty."""
    assert compute_competition([0.5, 1.0]) == pytest.approx(1.5 / 20)
    assert compute_competition([0.5] * 30) == pytest.approx(0.5)
