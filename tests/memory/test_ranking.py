from __future__ import annotations

from datetime import UTC, datetime, timedelta
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rookery.memory.models import MemoryScope
from rookery.memory.ranking import (
    DEFAULT_HALF_LIFE_DAYS,
    HALF_LIVES_DAYS,
    Candidate,
    RankedMemory,
    boost_relevance,
    decay_factor,
    fuse_scores,
    memory_decay_factor,
    ranking_key,
    round_relevance,
)
from tests.conftest import FakeClock
from tests.memory.makers import make_memory

AT = datetime(2026, 11, 21, 9, 30, tzinfo=UTC)

ages = st.timedeltas(min_value=timedelta(days=-2), max_value=timedelta(days=20_000))
half_lives = st.none() | st.integers(1, 1000)
shares = st.floats(0, 1)


def make_ranked(memory_id: str = "a", **fields: object) -> RankedMemory:
    """Make a ranked memory of relevance 0.5."""
    relevance = fields.pop("relevance", 0.5)
    decayed = fields.pop("decay", 1.0)
    assert isinstance(relevance, float)
    assert isinstance(decayed, float)
    return RankedMemory(
        candidate=Candidate(memory_id=memory_id, relevance=relevance),
        memory=make_memory(FakeClock(AT), id=memory_id, **fields),
        relevance=relevance,
        matched_keywords=(),
        keyword_share=0.0,
        decay=decayed,
    )


rankeds = st.lists(
    st.builds(
        make_ranked,
        memory_id=st.integers(0, 999).map(lambda number: f"m{number:03}"),
        relevance=st.sampled_from([0.5, 0.504, 0.506, 0.9, -0.1]),
        memory_scope=st.sampled_from(MemoryScope),
        confidence=st.sampled_from([0.3, 0.8]),
        decay=st.sampled_from([1.0, 0.5]),
        created_at=st.sampled_from([AT, AT - timedelta(days=1)]),
    ),
    max_size=12,
    unique_by=lambda ranked: ranked.memory.id,
)


@given(ages, ages, half_lives)
def test_an_older_memory_is_never_trusted_more(a: timedelta, b: timedelta, half_life_days: int | None) -> None:
    """D-45: decay is monotone in age."""
    younger, older = sorted([a, b])

    assert decay_factor(older, half_life_days) <= decay_factor(younger, half_life_days)


@given(half_lives)
def test_a_half_life_is_a_half_life(half_life_days: int | None) -> None:
    """D-45 and spec 8: half after one half-life, a quarter after two; none never decays."""
    days = half_life_days or 30
    expected = (1.0, 1.0) if half_life_days is None else (0.5, 0.25)

    assert (decay_factor(timedelta(days=days), half_life_days), decay_factor(timedelta(days=2 * days), half_life_days)) == pytest.approx(
        expected
    )


def test_a_memory_from_the_future_is_fresh() -> None:
    """D-45: age is at least 0."""
    assert decay_factor(timedelta(days=-3), 30) == 1.0


def test_half_lives_are_those_of_the_spec_and_sixty_days_for_other_types() -> None:
    """Half-lives follow the table; other types have sixty days (spec 8; D-40)."""
    assert HALF_LIVES_DAYS == {
        "observation": 30,
        "context": 60,
        "decision": 180,
        "procedure": 365,
        "convention": None,
        "architecture": None,
    }
    assert DEFAULT_HALF_LIFE_DAYS == 60


def test_age_counts_from_when_the_content_was_last_changed() -> None:
    """D-45: content_at, not created_at or updated_at."""
    memory = make_memory(FakeClock(AT - timedelta(days=60)), type="observation", content_at=AT - timedelta(days=30), updated_at=AT)

    assert memory_decay_factor(memory, at=AT, half_lives_days=HALF_LIVES_DAYS) == pytest.approx(0.5)


@given(rankeds, st.randoms())
def test_the_order_does_not_depend_on_how_they_came(ranked: list[RankedMemory], chance: Random) -> None:
    """D-44: the order is total, down to the id."""
    shuffled = chance.sample(ranked, len(ranked))

    assert sorted(shuffled, key=ranking_key) == sorted(ranked, key=ranking_key)


@given(rankeds)
def test_relevance_then_scope_then_confidence_then_recency(ranked: list[RankedMemory]) -> None:
    """Spec 4.3 and D-44: each comes to bear only where all before it are equal."""
    priority = {MemoryScope.AGENT: 0, MemoryScope.PROJECT: 1, MemoryScope.SHARED: 2, MemoryScope.SESSION: 3}

    keys = [
        (
            -round_relevance(each.relevance),
            priority[each.memory.memory_scope],
            -each.effective_confidence,
            -each.memory.created_at.timestamp(),
            each.memory.id,
        )
        for each in sorted(ranked, key=ranking_key)
    ]
    assert keys == sorted(keys)


def test_an_agents_memory_outranks_the_projects_at_equal_relevance() -> None:
    """Spec 4.3; equal is equal to two decimals (D-44)."""
    project = make_ranked("a", relevance=0.504, confidence=1.0)
    agent = make_ranked("b", relevance=0.496, memory_scope=MemoryScope.AGENT, confidence=0.1)

    assert sorted([project, agent], key=ranking_key) == [agent, project]


def test_a_more_relevant_memory_comes_first_whatever_its_scope() -> None:
    """Recall ranks by relevance before scope (spec 4.3)."""
    project = make_ranked("a", relevance=0.52)
    agent = make_ranked("b", relevance=0.5, memory_scope=MemoryScope.AGENT)

    assert sorted([agent, project], key=ranking_key) == [project, agent]


@given(
    st.dictionaries(st.text("abc", min_size=1, max_size=2), st.floats(-1, 1)),
    st.dictionaries(st.text("abc", min_size=1, max_size=2), st.floats(0.01, 50)),
)
def test_a_hybrids_relevance_is_a_share_of_each_candidate_found_either_way(
    similarities: dict[str, float], scores: dict[str, float]
) -> None:
    """D-44: the union of both lists, each in 0..1."""
    fused = fuse_scores(similarities, scores)

    assert set(fused) == set(similarities) | set(scores)
    assert all(0 <= relevance <= 1 for relevance in fused.values())


@given(st.floats(-1, 1), st.floats(-1, 1), st.floats(0.01, 50), st.floats(0.01, 50))
def test_more_similar_or_better_matched_is_never_less_relevant(near: float, far: float, more: float, less: float) -> None:
    """D-44: a weighted sum of both scores."""
    low, high = sorted([near, far])
    few, many = sorted([more, less])

    assert fuse_scores({"a": high, "b": low}, {"c": 1.0})["a"] >= fuse_scores({"a": high, "b": low}, {"c": 1.0})["b"]
    assert fuse_scores({}, {"a": many, "b": few})["a"] >= fuse_scores({}, {"a": many, "b": few})["b"]


@given(st.floats(-1, 1), shares, shares)
def test_keywords_raise_relevance_by_their_share(relevance: float, share: float, boost: float) -> None:
    """D-44: relevance = similarity + boost times share; a hybrid's stays in 0..1."""
    assert boost_relevance(relevance, share=share, boost=boost, is_bounded=False) == relevance + boost * share
    assert 0 <= boost_relevance(abs(relevance), share=share, boost=boost, is_bounded=True) <= 1
