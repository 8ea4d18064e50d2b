"""Similarity of texts to a query, with an embedder that can be slow or unavailable (D-37)."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Sequence

import pytest

from rookery.engines import similarity
from rookery.engines.similarity import cache
from rookery.engines.similarity.cache import SimilarityCache
from rookery.kernel.errors import EngineUnavailable
from rookery.memory.models import Passage, Vector
from tests.conftest import eventually


class Letters:
    """An embedder whose vectors tell which of two letters a text begins with."""

    model, dimension = "letters", 2

    def __init__(self) -> None:
        self.is_there = True
        self.may_go_on = asyncio.Event()
        self.may_go_on.set()
        self.embedded: list[str] = []

    async def embed_query(self, text: str) -> Vector:
        """Embed at once."""
        return self._vector(text)

    async def embed_passages(self, passages: Sequence[Passage]) -> list[tuple[Vector, ...]]:
        """Embed once that is allowed."""
        await self.may_go_on.wait()
        vectors = [(self._vector(passage.content),) for passage in passages]
        self.embedded += [passage.content for passage in passages]
        return vectors

    def _vector(self, text: str) -> Vector:
        if not self.is_there:
            raise EngineUnavailable("embedder", "it is away")
        return struct.pack("<2f", *((1.0, 0.0) if text.startswith("a") else (0.0, 1.0)))


@pytest.fixture
def letters() -> Letters:
    """The embedder."""
    return Letters()


@pytest.fixture
async def nearness(letters: Letters) -> AsyncIterator[SimilarityCache]:
    """The engine on it."""
    engine = similarity.open(letters)
    yield engine
    await engine.aclose()


async def test_texts_are_compared_with_the_question(nearness: SimilarityCache) -> None:
    """D-37: the cosine of each, in their order; a text may be asked for twice."""
    texts = ["apple", "bread", "apple", *(f"b{number}" for number in range(200))]

    await nearness.preload(texts)

    assert await nearness.compare("an a", texts) == [1.0, 0.0, 1.0] + [0.0] * 200
    assert await nearness.compare("a", []) == []


async def test_a_text_is_embedded_once(nearness: SimilarityCache, letters: Letters) -> None:
    """D-37: however often, and by however many at once, it is asked for."""
    texts = [f"a{number}" for number in range(50)]

    await asyncio.gather(*(nearness.preload(texts) for _ in range(5)), nearness.compare("a", texts))
    await nearness.compare("b", texts)

    assert sorted(letters.embedded) == sorted(texts)


async def test_a_question_does_not_wait_for_texts_that_take_long(nearness: SimilarityCache, letters: Letters) -> None:
    """D-37: what is not embedded yet has no answer; the rest has, and later all have."""
    await nearness.preload(["apple"])
    letters.may_go_on.clear()

    async with asyncio.timeout(20):
        assert await nearness.compare("a", ["apple", "bread"]) == [1.0, None]
    letters.may_go_on.set()
    await nearness.preload(["bread"])

    assert await nearness.compare("a", ["apple", "bread"]) == [1.0, 0.0]


async def test_an_embedder_that_comes_back_is_asked_again(nearness: SimilarityCache, letters: Letters) -> None:
    """D-37: while it is away it is told; nothing of the failure is kept."""
    letters.is_there = False
    with pytest.raises(EngineUnavailable):
        await nearness.preload(["apple"])
    with pytest.raises(EngineUnavailable):
        await nearness.compare("a", ["apple"])

    letters.is_there = True
    await nearness.preload(["apple"])

    assert await nearness.compare("a", ["apple"]) == [1.0]


async def test_texts_without_end_do_not_fill_the_memory(
    nearness: SimilarityCache, letters: Letters, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D-37: beyond a bound the old ones are forgotten, and embedded again when they are asked for."""
    monkeypatch.setattr(cache, "_MAX_TEXTS", 32)
    for first in range(0, 320, 16):
        await nearness.preload([f"a{number}" for number in range(first, first + 16)])

    await nearness.preload(["a0"])

    assert letters.embedded.count("a0") == 2
    assert await nearness.compare("a", ["a0", "a1"]) == [1.0, 1.0]


async def test_closing_ends_what_is_being_embedded(letters: Letters) -> None:
    """D-37: no task keeps running, and waiting callers continue."""
    engine = similarity.open(letters)
    letters.may_go_on.clear()
    waiting = asyncio.create_task(engine.preload(["apple"]))
    await eventually(engine_is_busy)

    async with asyncio.timeout(20):
        await engine.aclose()
        await waiting


def engine_is_busy() -> bool:
    """Tell whether something is being embedded."""
    return any(task.get_name() == "tools-meanings" for task in asyncio.all_tasks())
