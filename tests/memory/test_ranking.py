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
    RecallHit,
    Score,
    boost_score,
    decay_factor,
    memory_decay_factor,
    ranking_key,
    round_for_ranking,
)
from tests.conftest import FakeClock
from tests.memory.makers import make_memory

AT = datetime(2026, 11, 21, 9, 30, tzinfo=UTC)

ages = st.timedeltas(min_value=timedelta(days=-2), max_value=timedelta(days=20_000))
half_lives = st.none() | st.integers(1, 1000)
shares = st.floats(0, 1)


def make_ranked(memory_id: str = "a", **fields: object) -> RecallHit:
    """Return a ranked memory with a score of 0.5."""
    score = fields.pop("score", 0.5)
    decay = fields.pop("decay", 1.0)
    assert isinstance(score, float)
    assert isinstance(decay, float)
    return RecallHit(
        memory=make_memory(FakeClock(AT), id=memory_id, **fields), score=Score(mode="semantic", base=score, total=score, decay=decay)
    )


ranked_lists = st.lists(
    st.builds(
        make_ranked,
        memory_id=st.integers(0, 999).map(lambda number: f"m{number:03}"),
        score=st.sampled_from([0.5, 0.504, 0.506, 0.9, -0.1]),
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
    """The decay factor never rises with age."""
    younger, older = sorted([a, b])

    assert decay_factor(older, half_life_days) <= decay_factor(younger, half_life_days)


@given(half_lives)
def test_trust_halves_with_each_half_life(half_life_days: int | None) -> None:
    """Trust is a half after one half-life and a quarter after two; types without a half-life do not decay."""
    days = half_life_days or 30
    expected = (1.0, 1.0) if half_life_days is None else (0.5, 0.25)

    assert (decay_factor(timedelta(days=days), half_life_days), decay_factor(timedelta(days=2 * days), half_life_days)) == pytest.approx(
        expected
    )


def test_a_memory_from_the_future_is_fresh() -> None:
    """The age is at least 0."""
    assert decay_factor(timedelta(days=-3), 30) == 1.0


def test_half_lives_are_those_of_the_spec_and_sixty_days_for_other_types() -> None:
    """Half-lives follow the table; other types have sixty days."""
    assert HALF_LIVES_DAYS == {
        "observation": 30,
        "context": 60,
        "decision": 180,
        "procedure": 365,
        "convention": None,
        "architecture": None,
    }
    assert DEFAULT_HALF_LIFE_DAYS == 60


def test_age_begins_with_the_last_change_of_the_content() -> None:
    """Age is counted from content_at, not from created_at or updated_at."""
    memory = make_memory(FakeClock(AT - timedelta(days=60)), type="observation", content_at=AT - timedelta(days=30), updated_at=AT)

    assert memory_decay_factor(memory, at=AT, half_lives_days=HALF_LIVES_DAYS) == pytest.approx(0.5)


@given(ranked_lists, st.randoms())
def test_the_ranking_does_not_depend_on_the_input_order(ranked: list[RecallHit], random_source: Random) -> None:
    """The order is total; the id is the last criterion."""
    shuffled = random_source.sample(ranked, len(ranked))

    assert sorted(shuffled, key=ranking_key) == sorted(ranked, key=ranking_key)


@given(ranked_lists)
def test_memories_are_ranked_by_score_scope_confidence_and_recency(ranked: list[RecallHit]) -> None:
    """Each criterion decides only if all before it are equal."""
    priority = {MemoryScope.AGENT: 0, MemoryScope.PROJECT: 1, MemoryScope.SHARED: 2, MemoryScope.SESSION: 3}

    keys = [
        (
            -round_for_ranking(ranked_memory.score.total),
            priority[ranked_memory.memory.memory_scope],
            -ranked_memory.effective_confidence,
            -ranked_memory.memory.created_at.timestamp(),
            ranked_memory.memory.id,
        )
        for ranked_memory in sorted(ranked, key=ranking_key)
    ]
    assert keys == sorted(keys)


def test_an_agents_memory_outranks_the_projects_at_equal_relevance() -> None:
    """Scores are compared with two decimals."""
    project = make_ranked("a", score=0.504, confidence=1.0)
    agent = make_ranked("b", score=0.496, memory_scope=MemoryScope.AGENT, confidence=0.1)

    assert sorted([project, agent], key=ranking_key) == [agent, project]


def test_a_more_relevant_memory_comes_first_whatever_its_scope() -> None:
    """Recall ranks by relevance before scope."""
    project = make_ranked("a", score=0.52)
    agent = make_ranked("b", score=0.5, memory_scope=MemoryScope.AGENT)

    assert sorted([agent, project], key=ranking_key) == [project, agent]


@given(st.floats(-1, 1), shares, shares)
def test_keywords_raise_the_score_by_their_share(score: float, share: float, boost: float) -> None:
    """The score is raised by boost times share; in hybrid mode it stays from 0 to 1."""
    assert boost_score(score, share=share, boost=boost, is_bounded=False) == score + boost * share
    assert 0 <= boost_score(abs(score), share=share, boost=boost, is_bounded=True) <= 1
