"""Questions and memories for which a working embedder returns no vector, over the public surface."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from dataclasses import replace

import pytest

from rookery.kernel.config import Settings
from rookery.kernel.secret import Secret
from tests.conftest import Instance, eventually, run_instance
from tests.embedding_service import EmbeddingService, run_embedding_service

_QUESTION = "Which arsenic gulls nest near pier nine?"
_ANSWER = "The gulls nest near pier nine, behind the shed."


@pytest.fixture
def service() -> Iterator[EmbeddingService]:
    """Run an embedding service that fails with one word, as Ollama does with a text for which its model computes NaN."""
    with run_embedding_service(EmbeddingService(poison={"arsenic": 500})) as running:
        yield running


@pytest.fixture
async def instance(settings: Settings, service: EmbeddingService) -> AsyncIterator[Instance]:
    """Run a server with that embedder."""
    async with run_instance(replace(settings, embedder=Secret(service.ollama_url()), vector_dimension=service.width)) as running:
        yield running


async def test_a_question_without_a_vector_is_answered_by_words(instance: Instance) -> None:
    """Hybrid recall is an answer with a notice; recall by meaning cannot answer, and recall by words needs no vector."""
    memory = await instance.admin.remember(_ANSWER)
    hybrid = await instance.admin.post("/v1/brain/recall", {"query": _QUESTION, "mode": "hybrid", "explain": True})
    semantic = await instance.admin.post("/v1/brain/recall", {"query": _QUESTION, "mode": "semantic"})
    keyword = await instance.admin.post("/v1/brain/recall", {"query": _QUESTION, "mode": "keyword"})

    assert (hybrid.status_code, [found["id"] for found in hybrid.json()["memories"]]) == (200, [memory["id"]])
    assert hybrid.json()["notice"] == "Results are by keywords only: the embedder works, but returns no vector for this question."
    assert (semantic.status_code, semantic.json()["error"]) == (422, "not_embeddable")
    assert (keyword.status_code, keyword.json().get("notice")) == (200, None)


async def test_a_prompt_without_a_vector_gets_its_memories(instance: Instance) -> None:
    """The hook finds by words too."""
    await instance.admin.remember(_ANSWER, project="web")
    await instance.admin.post("/api/agent/hooks/claude-code/session-start?project=web", {"session_id": "s"})
    prompt = await instance.admin.post("/api/agent/hooks/claude-code/prompt?project=web", {"session_id": "s", "prompt": _QUESTION})

    assert _ANSWER in prompt.text


async def test_a_memory_without_a_vector_delays_no_others(instance: Instance, service: EmbeddingService) -> None:
    """The other 63 of a batch are indexed, after few requests; the one is found by its words."""
    contents = [f"Note {number} about shed {number}." if number != 30 else "A note about arsenic." for number in range(64)]
    await instance.admin.post("/v1/brain/remember/batch", {"memories": [{"content": content} for content in contents]})

    async def are_others_indexed() -> bool:
        page = (await instance.admin.get("/v1/brain/memories?per_page=100")).json()["data"]
        return sorted(memory["content"] for memory in page if memory["indexed"]) == sorted(set(contents) - {"A note about arsenic."})

    assert await eventually(are_others_indexed)
    assert len(service.requests) < 50
    found = await instance.admin.post("/v1/brain/recall", {"query": "arsenic", "mode": "keyword"})
    assert [memory["content"] for memory in found.json()["memories"]] == ["A note about arsenic."]
