from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

import pytest

from rookery.access.models import Caller
from rookery.kernel.errors import NotInAllowList, PermissionDenied
from rookery.memory.events import MemoryRecalled
from rookery.memory.models import MemoryFilter, MemoryScope, RecallMode
from rookery.memory.ranking import RecallHit
from rookery.memory.recall_models import RecallRequest
from rookery.memory.store import records
from tests.memory.makers import MemoryRig, make_agent, make_caller, make_memory


async def _recall(
    rig: MemoryRig, query: str, by: Caller | None = None, filters: MemoryFilter | None = None, **fields: object
) -> Sequence[RecallHit]:
    request = replace(RecallRequest(query=query, filters=filters or MemoryFilter(), mode="semantic"), **fields)
    return (await rig.services.recall.find(by or make_caller(), request)).hits


def _contents(hits: Sequence[RecallHit]) -> list[str]:
    return [hit.memory.content for hit in hits]


MODES: list[RecallMode] = ["semantic", "keyword", "hybrid"]


@pytest.mark.parametrize("mode", MODES)
async def test_the_most_relevant_memory_comes_first(rig: MemoryRig, mode: RecallMode) -> None:
    """Recall returns the most relevant memory first in every mode."""
    for content in ("deploy on tuesday", "deploy the roof", "herons nest"):
        await rig.remember(content)
    await rig.run_jobs()

    assert _contents(await _recall(rig, "deploy tuesday", mode=mode))[0] == "deploy on tuesday"


async def test_semantic_scores_are_similarities_unrounded(rig: MemoryRig) -> None:
    """In semantic mode the score is the cosine similarity."""
    await rig.remember("deploy tuesday")
    await rig.run_jobs()

    (hit,) = await _recall(rig, "tuesday deploy")
    assert hit.score.total == hit.score.similarity == pytest.approx(1.0, abs=1e-3)


async def test_a_memory_found_by_words_alone_can_win_a_hybrid_recall(rig: MemoryRig) -> None:
    """Hybrid recall ranks the union of both candidate lists."""
    for number in range(120):
        await rig.remember(f"alpha beta gamma delta epsilon zeta eta theta iota kappa {number}")
    rare = await rig.remember("zx81 " + " ".join(f"noise{n}" for n in range(40)))
    await rig.run_jobs()

    hits = await _recall(rig, "alpha zx81", mode="hybrid", top_k=3)
    semantic_hits = await _recall(rig, "alpha zx81", mode="semantic", top_k=100)
    assert rare.content not in _contents(semantic_hits)
    assert rare.content in _contents(hits)


async def test_a_memory_found_by_keyword_alone_is_included(rig: MemoryRig) -> None:
    """Keywords add memories that semantic search did not find, with their own similarity."""
    for number in range(60):
        await rig.remember(f"alpha beta {number}")
    rare = await rig.remember("unrelated text about zx81")
    await rig.run_jobs()

    hits = await _recall(rig, "alpha beta", keywords=("zx81",), boost=1.0, top_k=5)
    (keyword_hit,) = [hit for hit in hits if hit.memory.id == rare.id]
    assert keyword_hit.score.similarity is not None
    assert keyword_hit.score.total == pytest.approx(keyword_hit.score.similarity + 1.0)
    assert (keyword_hit.score.matched_keywords, keyword_hit.score.keyword_share) == (("zx81",), 1.0)


async def test_relevance_rises_with_the_share_of_keywords_found(rig: MemoryRig) -> None:
    """The score is similarity plus boost times the share of matched stems."""
    await rig.remember("deploying on tuesday", tags=("Release Day",))
    await rig.run_jobs()

    (hit,) = await _recall(rig, "tuesday", keywords=("deploy", "release days", "friday"), boost=0.3)
    assert hit.score.similarity is not None
    assert hit.score.total == pytest.approx(hit.score.similarity + 0.3 * 2 / 3)


async def test_an_agents_own_memory_outranks_the_projects_at_equal_relevance(rig: MemoryRig) -> None:
    """The order of scopes is agent, project, shared, session."""
    kim = make_agent("kim")
    scopes = [(MemoryScope.SESSION, 1.0), (MemoryScope.SHARED, 0.9), (MemoryScope.PROJECT, 0.8), (MemoryScope.AGENT, 0.1)]
    for scope, confidence in scopes:
        await rig.remember("deploy on tuesday", kim, memory_scope=scope, session_id="s1", confidence=confidence)
    await rig.run_jobs()

    hits = await _recall(rig, "deploy tuesday", kim, MemoryFilter(agent_id="kim", session_id="s1"))
    assert [hit.memory.memory_scope for hit in hits] == [MemoryScope.AGENT, MemoryScope.PROJECT, MemoryScope.SHARED, MemoryScope.SESSION]


async def test_equal_relevances_are_ranked_by_confidence_then_recency(rig: MemoryRig) -> None:
    """The effective confidence decides, then the newest comes first."""
    old = await rig.remember("deploy on tuesday", type="observation", confidence=0.9)
    rig.clock.advance(days=30)
    newer_observation = await rig.remember("deploy on tuesday", type="convention", confidence=0.5)
    rig.clock.advance(days=1)
    newer = await rig.remember("deploy on tuesday", type="convention", confidence=0.5)
    await rig.run_jobs()

    hits = await _recall(rig, "deploy tuesday")
    assert [hit.memory.id for hit in hits] == [newer.id, newer_observation.id, old.id]
    assert hits[2].effective_confidence == pytest.approx(0.9 * 0.5 ** (31 / 30))


async def test_all_memories_of_equal_relevance_are_ranked(rig: MemoryRig) -> None:
    """A memory of a higher scope is found among many of the same similarity."""
    for number in range(80):
        await rig.remember("deploy on tuesday", source=f"s{number}")
    own = await rig.remember("deploy on tuesday", make_agent("kim"), memory_scope=MemoryScope.AGENT)
    await rig.run_jobs()

    hits = await _recall(rig, "deploy tuesday", make_agent("kim"), MemoryFilter(agent_id="kim"), top_k=1)
    assert [hit.memory.id for hit in hits] == [own.id]


async def test_an_agent_recalls_its_own_memories_without_an_agent_id(rig: MemoryRig) -> None:
    """agent_id selects the agent whose own memories are included; the default is the key's agent."""
    kim = make_agent("kim")
    await rig.remember("kim knows", kim, memory_scope=MemoryScope.AGENT)
    await rig.remember("all know", kim)
    await rig.run_jobs()

    assert set(_contents(await _recall(rig, "know", kim))) == {"all know", "kim knows"}
    assert _contents(await _recall(rig, "know", make_agent("lee"))) == ["all know"]
    assert _contents(await _recall(rig, "know", make_caller())) == ["all know"]
    assert set(_contents(await _recall(rig, "know", kim, MemoryFilter(agent_id="kim")))) == {"all know", "kim knows"}
    assert _contents(await _recall(rig, "know", kim, MemoryFilter(scopes=frozenset({MemoryScope.AGENT})))) == ["kim knows"]
    assert _contents(await _recall(rig, "know", make_caller(), MemoryFilter(agent_id="kim", scopes=frozenset({MemoryScope.AGENT})))) == [
        "kim knows"
    ]
    with pytest.raises(PermissionDenied):
        await _recall(rig, "know", make_agent("lee"), MemoryFilter(agent_id="kim"))


@pytest.mark.parametrize("mode", MODES)
async def test_every_result_matches_all_filters(rig: MemoryRig, mode: RecallMode) -> None:
    """Each filter and the key's allow-lists apply to every result."""
    await rig.remember("heron one", type="decision", tags=("a", "b"), confidence=0.9, source="chat")
    rig.clock.advance(hours=1)
    await rig.remember("heron two", org="zoo", project="ark", tags=("a",), confidence=0.2)
    await rig.remember("heron foreign", make_caller(workspace_id=2))
    await rig.run_jobs()
    now = rig.clock()

    async def find(by: Caller | None = None, **fields: object) -> list[str]:
        return sorted(_contents(await _recall(rig, "heron", by, replace(MemoryFilter(), **fields), mode=mode)))

    both_contents = ["heron one", "heron two"]
    assert await find() == both_contents
    assert await find(org="zoo") == await find(project="ark") == await find(since=now) == ["heron two"]
    assert await find(type="decision") == await find(source="chat") == await find(tags=frozenset({"a", "b"})) == ["heron one"]
    assert await find(until=now) == await find(min_confidence=0.9) == ["heron one"]
    assert await find(org="nowhere") == []
    assert await find(make_caller(orgs=frozenset({"zoo"}))) == ["heron two"]
    with pytest.raises(NotInAllowList, match="'acme' is not one of them"):
        await find(make_caller(orgs=frozenset({"zoo"})), org="acme")
    assert await find(make_caller(workspace_id=2)) == ["heron foreign"]


@pytest.mark.parametrize("mode", MODES)
async def test_outdated_index_entries_are_not_returned(rig: MemoryRig, mode: RecallMode) -> None:
    """Hits without a live record are dropped, and more are fetched until top_k is reached."""
    stored = [await rig.remember(f"heron {n}", expires_in=1 if n % 4 == 0 else None) for n in range(160)]
    await rig.run_jobs()
    for number, memory in enumerate(stored):
        if number % 4 == 1:
            await rig.services.records.archive(make_caller(), memory.id)
        if number % 4 == 2:
            await rig.services.records.delete(make_caller(), memory.id)
    rig.clock.advance(hours=1)

    hits = await _recall(rig, "heron", mode=mode, top_k=30)
    assert len(hits) == 30
    assert all(int(content.split()[1]) % 4 == 3 for content in _contents(hits))


async def test_filters_apply_to_the_record_not_to_the_index_entry(rig: MemoryRig) -> None:
    """A memory that changed its org is not returned for the old one."""
    memory = await rig.remember("heron")
    await rig.run_jobs()
    changed = replace(memory, org="zoo")
    await rig.db.write(lambda tx: records.update_memory(tx, memory, changed))

    assert await _recall(rig, "heron", filters=MemoryFilter(org="acme")) == ()


async def test_explain_returns_how_each_hit_was_ranked(rig: MemoryRig) -> None:
    """The explanation has ranks, similarity, matched keywords, decay and scope."""
    await rig.remember("deploy on tuesday", type="observation")
    rig.clock.advance(days=30)
    await rig.remember("deploy the roof", type="convention")
    await rig.run_jobs()

    first, second = await _recall(rig, "deploy tuesday", mode="hybrid", keywords=("tuesdays",))
    assert (first.score.semantic_rank, first.score.keyword_rank, first.score.text_score) == (1, 1, 1.0), "it has all words of the question"
    assert (first.score.matched_keywords, first.score.keyword_share, second.score.keyword_share) == (
        ("tuesdays",),
        1.0,
        0.0,
    )
    assert (first.score.decay, second.score.decay) == (pytest.approx(0.5), 1.0)
    assert first.score.neighbour is None


async def test_a_token_budget_is_filled_in_order_skipping_what_does_not_fit(rig: MemoryRig) -> None:
    """`max_tokens` is filled in rank order; memories that do not fit are skipped."""
    await rig.remember("heron " * 100)
    await rig.remember("heron nest")
    await rig.remember("heron roof tile")
    await rig.run_jobs()

    assert _contents(await _recall(rig, "heron", max_tokens=7)) == ["heron nest", "heron roof tile"]
    assert _contents(await _recall(rig, "heron", max_tokens=4)) == ["heron nest"]
    assert _contents(await _recall(rig, "heron", max_tokens=1)) == []


async def test_a_recall_sends_an_event_and_is_stored_for_feedback(rig: MemoryRig) -> None:
    """The recall is found before and after it is written, only in its workspace."""
    memory = await rig.remember()
    await rig.run_jobs()
    result = await rig.services.recall.find(make_caller(), RecallRequest(query="heron"))
    (event,) = [event for event in rig.events if isinstance(event, MemoryRecalled)]
    buffer = rig.services.recall_buffer

    recall = await buffer.find(1, result.recall_id)
    foreign_recall = await buffer.find(2, result.recall_id)
    await buffer.flush()
    await buffer.flush()

    assert (event.query, event.results, event.recall_id, event.mode) == ("heron", (memory.id,), result.recall_id, "hybrid")
    assert event.duration_ms > 0
    assert recall is not None
    assert (recall.memory_ids, foreign_recall) == ((memory.id,), None)
    assert await buffer.find(1, result.recall_id) == replace(recall, query_record=None), "queries are stored only for training"


async def test_recall_in_an_empty_workspace_returns_no_hits(rig: MemoryRig) -> None:
    """Recall in an empty workspace returns an empty list and no error."""
    assert [await _recall(rig, "heron", mode=mode) for mode in MODES] == [(), (), ()]


async def test_recall_without_its_embedder_uses_full_text(rig: MemoryRig) -> None:
    """The notice gives the reason; keyword mode needs no embedder at all."""
    await rig.remember("heron")
    await rig.run_jobs()
    rig.embedder.is_down = True

    assert _contents(await _recall(rig, "heron", mode="keyword")) == ["heron"]
    for mode in ("semantic", "hybrid"):
        result = await rig.services.recall.find(make_caller(), RecallRequest(query="heron", mode=mode))
        assert ([hit.memory.content for hit in result.hits], [hit.score.similarity for hit in result.hits]) == (["heron"], [None])
        assert result.notice == "Results are by keywords only: the embedder is unavailable: it is switched off"


async def test_concurrent_recalls_return_the_same_hits(rig: MemoryRig) -> None:
    """Concurrent readers do not affect each other."""
    await rig.remember("heron")
    await rig.run_jobs()

    results = await asyncio.gather(*(_recall(rig, "heron", mode="hybrid") for _ in range(20)))
    assert {tuple(_contents(hits)) for hits in results} == {("heron",)}


async def test_confidence_decays_from_when_the_content_was_last_changed(rig: MemoryRig) -> None:
    """Confidence decays from the last change of the content."""
    memory = make_memory(rig.clock, content="heron", type="observation", content_at=rig.clock() - timedelta(days=30))
    await rig.db.write(lambda tx: records.add(tx, memory))
    await rig.services.indexer.index([memory])

    (hit,) = await _recall(rig, "heron")
    assert hit.effective_confidence == pytest.approx(0.4)


@pytest.mark.parametrize("full_similarity", [0.7, None])
async def test_hybrid_recall_uses_meaning_whatever_the_scale_of_the_model(rig: MemoryRig, full_similarity: float | None) -> None:
    """A model whose cosines are all above 0.7 still ranks by meaning: its scale is taken from the workspace."""
    rig.embedder.full_similarity = full_similarity
    rig.embedder.offset = 0.0 if full_similarity else 3.0
    for number in range(30):
        await rig.remember(f"lorem ipsum {number} dolor {number + 100}")
    # The word "nest" is in both; only the second has the words of the question in other forms beside it.
    words_alone = await rig.remember("nest of tables, oak, polished twice")
    answer = await rig.remember("herons nesting on boathouse roofs")
    await rig.run_jobs()

    hits = await _recall(rig, "heron nest boathouse roof", mode="hybrid", top_k=40)
    by_id = {hit.memory.id: hit for hit in hits}
    assert hits[0].memory.id == answer.id
    assert all(hit.score.similarity is not None and (full_similarity or hit.score.similarity > 0.7) for hit in hits)
    spread = by_id[answer.id].score.total - by_id[words_alone.id].score.total
    assert spread > 0.25, "not by words alone"


async def test_a_lone_memory_of_an_unknown_model_is_found(rig: MemoryRig) -> None:
    """In a workspace of one memory there is nothing to compare with but the built-in background texts."""
    rig.embedder.full_similarity = None
    await rig.remember("herons nest on the roof")
    await rig.run_jobs()

    (hit,) = await _recall(rig, "where herons nest", mode="hybrid")
    (other_hit,) = await _recall(rig, "ladder price", mode="hybrid")
    assert hit.score.total > 0.5 > other_hit.score.total


async def test_an_answer_says_whether_it_is_confident(rig: MemoryRig) -> None:
    """`is_confident` tells a question that the workspace answers from one that it does not."""
    for number in range(25):
        await rig.remember(f"herons {number} nest")
    await rig.remember("the spare key hangs behind the boathouse door")
    await rig.run_jobs()

    def request(query: str) -> RecallRequest:
        return RecallRequest(query=query)

    answered = await rig.services.recall.find(make_caller(), request("where does the spare boathouse key hang"))
    unanswered = await rig.services.recall.find(make_caller(), request("price of bread in 1923"))
    assert (answered.is_confident, unanswered.is_confident) == (True, False)
    assert answered.hits[0].score.relevance > 0.5 > unanswered.hits[0].score.relevance


async def test_a_minimum_relevance_selects_before_the_number_of_results(rig: MemoryRig) -> None:
    """A memory that only its keywords raise to the top takes no place from one that is relevant."""
    await rig.remember("ladder")
    answer = await rig.remember("the herons nest on the roof of the boathouse")
    await rig.run_jobs()

    request = RecallRequest(query="where do the herons nest on the boathouse", keywords=("ladder",), boost=1.0, top_k=1)
    (first,) = (await rig.services.recall.find(make_caller(), request)).hits
    assert first.memory.id != answer.id
    (hit,) = (await rig.services.recall.find(make_caller(), replace(request, min_relevance=0.5))).hits
    assert hit.memory.id == answer.id
