"""The scale of a model's similarities, where it has to be estimated from the workspace."""

from __future__ import annotations

import asyncio

import pytest

from rookery.access.models import Caller
from rookery.kernel.config import Settings
from rookery.kernel.engine_breakers import EngineBreakers
from rookery.memory.embedding_migration import IndexVersion
from rookery.memory.errors import NotEmbeddable
from rookery.memory.models import AccessFilter, MemoryScope
from rookery.memory.ranking import RecallHit
from rookery.memory.recall_models import RecallRequest
from rookery.memory.similarity_scales import SimilarityScales
from rookery.memory.store.samples import sample_ids
from tests.memory.makers import MemoryRig, make_agent, make_caller

QUESTION = "where do the herons nest"


async def _recall(rig: MemoryRig, by: Caller) -> list[RecallHit]:
    request = RecallRequest(query=QUESTION, top_k=20)
    return list((await rig.services.recall.find(by, request)).hits)


async def _recall_relevances(rig: MemoryRig, by: Caller) -> dict[str, float]:
    request = RecallRequest(query=QUESTION, mode="semantic", top_k=20)
    return {hit.memory.id: hit.score.relevance for hit in (await rig.services.recall.find(by, request)).hits}


async def test_hidden_memories_do_not_change_scores_of_a_model_without_a_scale(rig: MemoryRig) -> None:
    """The scale is that of the memories that the caller may read, so no score shows how similar a hidden one is."""
    rig.embedder.full_similarity = None
    kim, acme = make_agent("kim"), make_caller(orgs=frozenset({"acme"}))
    for number in range(3):
        await rig.remember(f"lorem ipsum {number} heron", kim)
    await rig.run_jobs()
    before = [await _recall_relevances(rig, by) for by in (kim, acme)]

    for number in range(5):
        await rig.remember(f"the herons nest on roof {number}", make_agent("lee"), memory_scope=MemoryScope.AGENT, org="other")
        await rig.remember(f"herons of session {number} nest", session_id="secret", memory_scope=MemoryScope.SESSION, org="other")
    await rig.run_jobs()
    assert [await _recall_relevances(rig, by) for by in (kim, acme)] == before


async def test_a_text_that_the_embedder_rejects_fails_no_question(rig: MemoryRig) -> None:
    """The background texts of a scale are the product's own: a question does not fail for them."""
    rig.embedder.full_similarity = None
    answer = await rig.remember("the herons nest on the roof")
    await rig.remember("lorem ipsum")
    await rig.run_jobs()

    async def reject() -> None:
        raise NotEmbeddable

    rig.embedder.before_embedding = reject
    hits = await _recall(rig, make_caller())
    assert hits[0].memory.id == answer.id
    assert all(hit.score.similarity is not None for hit in hits)


async def test_questions_do_not_wait_for_a_service_that_is_busy_with_passages(rig: MemoryRig) -> None:
    """Background texts are requested once for all questions, and used as soon as they are there."""
    rig.embedder.full_similarity = None
    await rig.remember("the herons nest on the roof")
    await rig.run_jobs()
    is_free, attempt_count = asyncio.Event(), 0

    async def wait() -> None:
        nonlocal attempt_count
        attempt_count += 1
        await is_free.wait()

    rig.embedder.before_embedding = wait
    scales = SimilarityScales(db=rig.db, breaker=EngineBreakers(Settings()).vectors, max_background_wait_s=0.01)
    index = IndexVersion(embedder=rig.embedder, vectors=rig.vectors)
    access_filter = AccessFilter(workspace_id=1, at=rig.clock())
    vector = await rig.embedder.embed_query(QUESTION)

    rough_scales = await asyncio.wait_for(asyncio.gather(*(scales.get_scale(index, access_filter, vector) for _ in range(5))), timeout=10)
    is_free.set()
    await scales.get_scale(index, access_filter, vector)  # reads in threads, in which time the attempt ends
    scale = await scales.get_scale(index, access_filter, vector)
    assert scale.zero < rough_scales[0].zero, "the background is less similar than the answer"
    assert attempt_count == 1


@pytest.mark.parametrize("count", [1, 9, 10, 11, 19, 25])
async def test_a_sample_is_spread_over_all_memories(rig: MemoryRig, count: int) -> None:
    """A sample has the requested size and no gaps, whatever the number of memories."""
    ids = [(await rig.remember(f"turn {number}")).id for number in range(count)]
    await rig.remember("of another workspace", make_caller(workspace_id=2))

    sample = await rig.db.read(lambda tx: sample_ids(tx, 1, size=10))
    positions = sorted(ids.index(memory_id) for memory_id in sample)
    assert len(positions) == min(10, count)
    assert all(gap <= -(-count // 10) for gap in map(int.__sub__, [*positions, count], [-1, *positions]))
