from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

import pytest

from rookery.access.models import Caller
from rookery.kernel.errors import NotInAllowList, PermissionDenied
from rookery.kernel.events import MemoryRecalled
from rookery.memory.models import MemoryFilter, MemoryScope, RecallHit, RecallMode, RecallRequest
from rookery.memory.store import records
from tests.memory.makers import MemoryRig, make_agent, make_caller, make_memory


async def _ask(
    rig: MemoryRig, query: str, by: Caller | None = None, filters: MemoryFilter | None = None, **fields: object
) -> Sequence[RecallHit]:
    question = replace(RecallRequest(query=query, filters=filters or MemoryFilter()), **fields)
    return (await rig.services.recall.find(by or make_caller(), question)).hits


def _contents(hits: Sequence[RecallHit]) -> list[str]:
    return [hit.memory.content for hit in hits]


MODES: list[RecallMode] = ["semantic", "keyword", "hybrid"]


@pytest.mark.parametrize("mode", MODES)
async def test_the_memory_that_answers_best_comes_first(rig: MemoryRig, mode: RecallMode) -> None:
    """Recall returns the most relevant memory first in every mode (spec 4.3; D-44)."""
    for content in ("deploy on tuesday", "deploy the roof", "herons nest"):
        await rig.remember(content)
    await rig.run_jobs()

    assert _contents(await _ask(rig, "deploy tuesday", mode=mode))[0] == "deploy on tuesday"


async def test_semantic_scores_are_similarities_unrounded(rig: MemoryRig) -> None:
    """Spec 4.3 and D-44: score = relevance, here the cosine."""
    await rig.remember("deploy tuesday")
    await rig.run_jobs()

    (hit,) = await _ask(rig, "tuesday deploy")
    assert hit.score == hit.similarity == pytest.approx(1.0, abs=1e-3)


async def test_a_memory_found_by_words_alone_can_win_a_hybrid_recall(rig: MemoryRig) -> None:
    """D-44: the union of both candidate lists."""
    for number in range(120):
        await rig.remember(f"alpha beta gamma delta epsilon zeta eta theta iota kappa {number}")
    rare = await rig.remember("zx81 " + " ".join(f"noise{n}" for n in range(40)))
    await rig.run_jobs()

    hits = await _ask(rig, "alpha zx81", mode="hybrid", top_k=3)
    near = await _ask(rig, "alpha zx81", mode="semantic", top_k=100)
    assert rare.content not in _contents(near)
    assert rare.content in _contents(hits)


async def test_a_memory_found_by_keyword_alone_joins(rig: MemoryRig) -> None:
    """D-44: keywords bring in what meaning did not find, with its own similarity."""
    for number in range(60):
        await rig.remember(f"alpha beta {number}")
    rare = await rig.remember("unrelated text about zx81")
    await rig.run_jobs()

    hits = await _ask(rig, "alpha beta", keywords=("zx81",), boost=1.0, top_k=5)
    (joined,) = [hit for hit in hits if hit.memory.id == rare.id]
    assert joined.similarity is not None
    assert joined.score == pytest.approx(joined.similarity + 1.0)
    assert (joined.explanation.matched_keywords, joined.explanation.keyword_share) == (("zx81",), 1.0)


async def test_relevance_rises_with_the_share_of_keywords_found(rig: MemoryRig) -> None:
    """D-44: similarity + boost_keywords times share, stemmed."""
    await rig.remember("deploying on tuesday", tags=("Release Day",))
    await rig.run_jobs()

    (hit,) = await _ask(rig, "tuesday", keywords=("deploy", "release days", "friday"), boost=0.3)
    assert hit.similarity is not None
    assert hit.score == pytest.approx(hit.similarity + 0.3 * 2 / 3)


async def test_an_agents_own_memory_outranks_the_projects_at_equal_relevance(rig: MemoryRig) -> None:
    """Spec 4.3: agent, project, shared, session."""
    kim = make_agent("kim")
    spaces = [(MemoryScope.SESSION, 1.0), (MemoryScope.SHARED, 0.9), (MemoryScope.PROJECT, 0.8), (MemoryScope.AGENT, 0.1)]
    for scope, confidence in spaces:
        await rig.remember("deploy on tuesday", kim, memory_scope=scope, session_id="s1", confidence=confidence)
    await rig.run_jobs()

    hits = await _ask(rig, "deploy tuesday", kim, MemoryFilter(agent_id="kim", session_id="s1"))
    assert [hit.memory.memory_scope for hit in hits] == [MemoryScope.AGENT, MemoryScope.PROJECT, MemoryScope.SHARED, MemoryScope.SESSION]


async def test_among_equals_the_surer_then_the_newer_comes_first(rig: MemoryRig) -> None:
    """D-44: effective confidence, then newest."""
    old = await rig.remember("deploy on tuesday", type="observation", confidence=0.9)
    rig.clock.advance(days=30)
    sure = await rig.remember("deploy on tuesday", type="convention", confidence=0.5)
    rig.clock.advance(days=1)
    newer = await rig.remember("deploy on tuesday", type="convention", confidence=0.5)
    await rig.run_jobs()

    hits = await _ask(rig, "deploy tuesday")
    assert [hit.memory.id for hit in hits] == [newer.id, sure.id, old.id]
    assert hits[2].effective_confidence == pytest.approx(0.9 * 0.5 ** (31 / 30))


async def test_the_band_of_equals_is_complete_however_large(rig: MemoryRig) -> None:
    """D-44: a memory of higher scope is not lost behind many that are equally near."""
    for number in range(80):
        await rig.remember("deploy on tuesday", source=f"s{number}")
    own = await rig.remember("deploy on tuesday", make_agent("kim"), memory_scope=MemoryScope.AGENT)
    await rig.run_jobs()

    hits = await _ask(rig, "deploy tuesday", make_agent("kim"), MemoryFilter(agent_id="kim"), top_k=1)
    assert [hit.memory.id for hit in hits] == [own.id]


async def test_an_agent_sees_its_own_memories_without_naming_itself(rig: MemoryRig) -> None:
    """Issue 14; D-43: agent_id names whose own memories count; by default those of the key's agent."""
    kim = make_agent("kim")
    await rig.remember("kim knows", kim, memory_scope=MemoryScope.AGENT)
    await rig.remember("all know", kim)
    await rig.run_jobs()

    assert set(_contents(await _ask(rig, "know", kim))) == {"all know", "kim knows"}
    assert _contents(await _ask(rig, "know", make_agent("lee"))) == ["all know"]
    assert _contents(await _ask(rig, "know", make_caller())) == ["all know"]
    assert set(_contents(await _ask(rig, "know", kim, MemoryFilter(agent_id="kim")))) == {"all know", "kim knows"}
    assert _contents(await _ask(rig, "know", kim, MemoryFilter(scopes=frozenset({MemoryScope.AGENT})))) == ["kim knows"]
    assert _contents(await _ask(rig, "know", make_caller(), MemoryFilter(agent_id="kim", scopes=frozenset({MemoryScope.AGENT})))) == [
        "kim knows"
    ]
    with pytest.raises(PermissionDenied):
        await _ask(rig, "know", make_agent("lee"), MemoryFilter(agent_id="kim"))


@pytest.mark.parametrize("mode", MODES)
async def test_no_filter_is_widened(rig: MemoryRig, mode: RecallMode) -> None:
    """Spec 2.8, D-23, D-42 and D-43: each filter, and the key's allow-lists, hold for every result."""
    await rig.remember("heron one", type="decision", tags=("a", "b"), confidence=0.9, source="chat")
    rig.clock.advance(hours=1)
    await rig.remember("heron two", org="zoo", project="ark", tags=("a",), confidence=0.2)
    await rig.remember("heron foreign", make_caller(workspace_id=2))
    await rig.run_jobs()
    now = rig.clock()

    async def two(by: Caller | None = None, **fields: object) -> list[str]:
        return sorted(_contents(await _ask(rig, "heron", by, replace(MemoryFilter(), **fields), mode=mode)))

    both = ["heron one", "heron two"]
    assert await two() == both
    assert await two(org="zoo") == await two(project="ark") == await two(since=now) == ["heron two"]
    assert await two(type="decision") == await two(source="chat") == await two(tags=frozenset({"a", "b"})) == ["heron one"]
    assert await two(until=now) == await two(min_confidence=0.9) == ["heron one"]
    assert await two(org="nowhere") == []
    assert await two(make_caller(orgs=frozenset({"zoo"}))) == ["heron two"]
    with pytest.raises(NotInAllowList, match="'acme' is not one of them"):
        await two(make_caller(orgs=frozenset({"zoo"})), org="acme")
    assert await two(make_caller(workspace_id=2)) == ["heron foreign"]


@pytest.mark.parametrize("mode", MODES)
async def test_a_lagging_index_never_shows_what_is_gone(rig: MemoryRig, mode: RecallMode) -> None:
    """D-46: hits are candidates; when records drop some, more are fetched until top_k."""
    stored = [await rig.remember(f"heron {n}", expires_in_h=1 if n % 4 == 0 else None) for n in range(160)]
    await rig.run_jobs()
    for number, memory in enumerate(stored):
        if number % 4 == 1:
            await rig.services.records.archive(make_caller(), memory.id)
        if number % 4 == 2:
            await rig.services.records.delete(make_caller(), memory.id)
    rig.clock.advance(hours=1)

    hits = await _ask(rig, "heron", mode=mode, top_k=30)
    assert len(hits) == 30
    assert all(int(content.split()[1]) % 4 == 3 for content in _contents(hits))


async def test_an_index_that_is_wrong_about_a_record_is_not_believed(rig: MemoryRig) -> None:
    """D-46: a memory that changed its org is not shown in the old one."""
    memory = await rig.remember("heron")
    await rig.run_jobs()
    moved = replace(memory, org="zoo")
    await rig.db.write(lambda tx: records.update_memory(tx, memory, moved))

    assert await _ask(rig, "heron", filters=MemoryFilter(org="acme")) == ()


async def test_every_place_is_explained(rig: MemoryRig) -> None:
    """D-42, explain: ranks, similarity, matched keywords, decay, scope, final place."""
    await rig.remember("deploy on tuesday", type="observation")
    rig.clock.advance(days=30)
    await rig.remember("deploy the roof", type="convention")
    await rig.run_jobs()

    first, second = await _ask(rig, "deploy tuesday", mode="hybrid", keywords=("tuesdays",))
    assert (first.explanation.place, first.explanation.semantic_rank, first.explanation.keyword_rank, first.explanation.text_score) == (
        1,
        1,
        1,
        1.0,
    )
    assert (first.explanation.matched_keywords, first.explanation.keyword_share, second.explanation.keyword_share) == (
        ("tuesdays",),
        1.0,
        0.0,
    )
    assert (first.explanation.decay, second.explanation.decay, second.explanation.place) == (pytest.approx(0.5), 1.0, 2)
    assert (first.explanation.similarity, first.explanation.relevance) == (first.similarity, first.score)


async def test_a_token_budget_is_filled_in_order_skipping_what_does_not_fit(rig: MemoryRig) -> None:
    """`max_tokens` is filled in rank order; memories that do not fit are skipped (D-42)."""
    await rig.remember("heron " * 100)
    await rig.remember("heron nest")
    await rig.remember("heron roof tile")
    await rig.run_jobs()

    assert _contents(await _ask(rig, "heron", max_tokens=7)) == ["heron nest", "heron roof tile"]
    assert _contents(await _ask(rig, "heron", max_tokens=4)) == ["heron nest"]
    assert _contents(await _ask(rig, "heron", max_tokens=1)) == []


async def test_a_recall_is_announced_and_kept_for_feedback(rig: MemoryRig) -> None:
    """Spec 6.1, MemoryRecalled; D-47: found before and after it is written, in its workspace alone."""
    memory = await rig.remember()
    await rig.run_jobs()
    recalled = await rig.services.recall.find(make_caller(), RecallRequest(query="heron"))
    (event,) = [event for event in rig.events if isinstance(event, MemoryRecalled)]
    journal = rig.services.recall_buffer

    held = await journal.find(1, recalled.recall_id)
    foreign = await journal.find(2, recalled.recall_id)
    await journal.flush()
    await journal.flush()

    assert (event.query, event.results, event.recall_id, event.mode) == ("heron", (memory.id,), recalled.recall_id, "semantic")
    assert event.duration_ms > 0
    assert held is not None
    assert (held.memory_ids, foreign) == ((memory.id,), None)
    assert await journal.find(1, recalled.recall_id) == replace(held, query_record=None), (
        "what was asked is written for training alone (D-57)"
    )


async def test_an_empty_memory_answers_with_nothing(rig: MemoryRig) -> None:
    """Recall in an empty workspace returns an empty list and no error (spec 4.3)."""
    assert [await _ask(rig, "heron", mode=mode) for mode in MODES] == [(), (), ()]


async def test_words_alone_need_no_embedder(rig: MemoryRig) -> None:
    """Issue 14: without its embedder recall goes by words, and its notice says why; D-44, mode keyword."""
    await rig.remember("heron")
    await rig.run_jobs()
    rig.embedder.is_down = True

    assert _contents(await _ask(rig, "heron", mode="keyword")) == ["heron"]
    for mode in ("semantic", "hybrid"):
        recalled = await rig.services.recall.find(make_caller(), RecallRequest(query="heron", mode=mode))
        assert ([hit.memory.content for hit in recalled.hits], [hit.similarity for hit in recalled.hits]) == (["heron"], [None])
        assert recalled.notice == "Results are by keywords only: the embedder is unavailable: it is switched off"


async def test_recalls_run_beside_each_other(rig: MemoryRig) -> None:
    """Spec 4.3: many readers, one answer."""
    await rig.remember("heron")
    await rig.run_jobs()

    answers = await asyncio.gather(*(_ask(rig, "heron", mode="hybrid") for _ in range(20)))
    assert {tuple(_contents(hits)) for hits in answers} == {("heron",)}


async def test_confidence_decays_from_when_the_content_was_last_changed(rig: MemoryRig) -> None:
    """Confidence decays from the last change of the content (D-45)."""
    memory = make_memory(rig.clock, content="heron", type="observation", content_at=rig.clock() - timedelta(days=30))
    await rig.db.write(lambda tx: records.add(tx, memory))
    await rig.services.indexer.index([memory])

    (hit,) = await _ask(rig, "heron")
    assert hit.effective_confidence == pytest.approx(0.4)
