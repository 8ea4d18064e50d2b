"""Similarity of texts to a query, with an embedder that can be slow or unavailable."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Sequence

import pytest

from rookery.engines import similarity
from rookery.engines.similarity.cache import SimilarityCache, VectorMatrix
from rookery.kernel.errors import EngineUnavailable
from rookery.memory.models import Passage, Vector
from tests.conftest import eventually
from tests.deadlines import HANG_S


class LetterEmbedder:
    """An embedder whose vectors depend on the first letter of a text."""

    model, dimension, full_similarity = "letters", 2, None

    def __init__(self) -> None:
        self.is_up = True
        self.unblocked = asyncio.Event()
        self.unblocked.set()
        self.embedded: list[str] = []

    async def embed_query(self, text: str) -> Vector:
        """Embed without waiting."""
        return self._vector(text)

    async def embed_passages(self, passages: Sequence[Passage]) -> list[tuple[Vector, ...]]:
        """Embed when `unblocked` is set."""
        await self.unblocked.wait()
        vectors = [(self._vector(passage.content),) for passage in passages]
        self.embedded += [passage.content for passage in passages]
        return vectors

    def _vector(self, text: str) -> Vector:
        if not self.is_up:
            raise EngineUnavailable("embedder", "it is down")
        return struct.pack("<2f", *((1.0, 0.0) if text.startswith("a") else (0.0, 1.0)))


@pytest.fixture
def embedder() -> LetterEmbedder:
    """Return the embedder."""
    return LetterEmbedder()


@pytest.fixture
async def cached_similarity(embedder: LetterEmbedder) -> AsyncIterator[SimilarityCache]:
    """Yield the cache on the embedder."""
    engine = similarity.open(embedder)
    yield engine
    await engine.aclose()


async def test_texts_are_compared_with_the_query(cached_similarity: SimilarityCache) -> None:
    """The cosines are in the order of the texts, and a text may be repeated."""
    texts = ["apple", "bread", "apple", *(f"b{number}" for number in range(200))]

    await cached_similarity.preload(texts)

    assert await cached_similarity.compare("an a", texts) == [1.0, 0.0, 1.0] + [0.0] * 200
    assert await cached_similarity.compare("a", []) == []


async def test_a_text_is_embedded_once(cached_similarity: SimilarityCache, embedder: LetterEmbedder) -> None:
    """This also holds for concurrent calls."""
    texts = [f"a{number}" for number in range(50)]

    await asyncio.gather(*(cached_similarity.preload(texts) for _ in range(5)), cached_similarity.compare("a", texts))
    await cached_similarity.compare("b", texts)

    assert sorted(embedder.embedded) == sorted(texts)


async def test_a_query_does_not_wait_for_slow_texts(cached_similarity: SimilarityCache, embedder: LetterEmbedder) -> None:
    """A text that is not embedded yet has no similarity."""
    await cached_similarity.preload(["apple"])
    embedder.unblocked.clear()

    async with asyncio.timeout(HANG_S):
        assert await cached_similarity.compare("a", ["apple", "bread"]) == [1.0, None]
    embedder.unblocked.set()
    await cached_similarity.preload(["bread"])

    assert await cached_similarity.compare("a", ["apple", "bread"]) == [1.0, 0.0]


async def test_an_embedder_that_recovers_is_used_again(cached_similarity: SimilarityCache, embedder: LetterEmbedder) -> None:
    """Calls fail while it is down, and the failure is not cached."""
    embedder.is_up = False
    with pytest.raises(EngineUnavailable):
        await cached_similarity.preload(["apple"])
    with pytest.raises(EngineUnavailable):
        await cached_similarity.compare("a", ["apple"])

    embedder.is_up = True
    await cached_similarity.preload(["apple"])

    assert await cached_similarity.compare("a", ["apple"]) == [1.0]


async def test_the_number_of_cached_texts_is_limited(embedder: LetterEmbedder) -> None:
    """The oldest texts are removed, and embedded again when needed."""
    cached_similarity = SimilarityCache(embedder, lambda: VectorMatrix(embedder.dimension), max_texts=32)
    for first in range(0, 320, 16):
        await cached_similarity.preload([f"a{number}" for number in range(first, first + 16)])

    await cached_similarity.preload(["a0"])

    assert embedder.embedded.count("a0") == 2
    assert await cached_similarity.compare("a", ["a0", "a1"]) == [1.0, 1.0]
    await cached_similarity.aclose()


async def test_closing_ends_running_embeddings(embedder: LetterEmbedder) -> None:
    """No task keeps running, and waiting callers continue."""
    engine = similarity.open(embedder)
    embedder.unblocked.clear()
    task = asyncio.create_task(engine.preload(["apple"]))
    await eventually(engine_is_busy)

    async with asyncio.timeout(HANG_S):
        await engine.aclose()
        await task


def engine_is_busy() -> bool:
    """Return whether a text is being embedded."""
    return any(task.get_name() == "tools-meanings" for task in asyncio.all_tasks())
