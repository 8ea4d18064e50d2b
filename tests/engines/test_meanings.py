"""How near texts are to a question, by an embedder of the test's own that can be slow, or gone (D-37)."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncIterator, Sequence

import pytest

from rookery.engines import meanings
from rookery.engines.meanings import embedded
from rookery.engines.meanings.embedded import Nearness
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
async def nearness(letters: Letters) -> AsyncIterator[Nearness]:
    """The engine on it."""
    engine = meanings.open(letters)
    yield engine
    await engine.aclose()


async def test_texts_are_compared_with_the_question(nearness: Nearness) -> None:
    """D-37: the cosine of each, in their order; a text may be asked for twice."""
    texts = ["apple", "bread", "apple", *(f"b{number}" for number in range(200))]

    await nearness.learn(texts)

    assert await nearness.alike("an a", texts) == [1.0, 0.0, 1.0] + [0.0] * 200
    assert await nearness.alike("a", []) == []


async def test_a_text_is_embedded_once(nearness: Nearness, letters: Letters) -> None:
    """D-37: however often, and by however many at once, it is asked for."""
    texts = [f"a{number}" for number in range(50)]

    await asyncio.gather(*(nearness.learn(texts) for _ in range(5)), nearness.alike("a", texts))
    await nearness.alike("b", texts)

    assert sorted(letters.embedded) == sorted(texts)


async def test_a_question_does_not_wait_for_texts_that_take_long(nearness: Nearness, letters: Letters) -> None:
    """D-37: what is not embedded yet has no answer; the rest has, and later all have."""
    await nearness.learn(["apple"])
    letters.may_go_on.clear()

    async with asyncio.timeout(20):
        assert await nearness.alike("a", ["apple", "bread"]) == [1.0, None]
    letters.may_go_on.set()
    await nearness.learn(["bread"])

    assert await nearness.alike("a", ["apple", "bread"]) == [1.0, 0.0]


async def test_an_embedder_that_comes_back_is_asked_again(nearness: Nearness, letters: Letters) -> None:
    """D-37: while it is away it is told; nothing of the failure is kept."""
    letters.is_there = False
    with pytest.raises(EngineUnavailable):
        await nearness.learn(["apple"])
    with pytest.raises(EngineUnavailable):
        await nearness.alike("a", ["apple"])

    letters.is_there = True
    await nearness.learn(["apple"])

    assert await nearness.alike("a", ["apple"]) == [1.0]


async def test_texts_without_end_do_not_fill_the_memory(nearness: Nearness, letters: Letters, monkeypatch: pytest.MonkeyPatch) -> None:
    """D-37: beyond a bound the old ones are forgotten, and embedded again when they are asked for."""
    monkeypatch.setattr(embedded, "_MOST", 32)
    for first in range(0, 320, 16):
        await nearness.learn([f"a{number}" for number in range(first, first + 16)])

    await nearness.learn(["a0"])

    assert letters.embedded.count("a0") == 2
    assert await nearness.alike("a", ["a0", "a1"]) == [1.0, 1.0]


async def test_closing_ends_what_is_being_embedded(letters: Letters) -> None:
    """D-37: nothing is left running, and whoever waits goes on."""
    engine = meanings.open(letters)
    letters.may_go_on.clear()
    waiting = asyncio.create_task(engine.learn(["apple"]))
    await eventually(engine_is_busy)

    async with asyncio.timeout(20):
        await engine.aclose()
        await waiting


def engine_is_busy() -> bool:
    """Tell whether something is being embedded."""
    return any(task.get_name() == "tools-meanings" for task in asyncio.all_tasks())
