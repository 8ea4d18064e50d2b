"""Recall, search and remember while an engine is down: what works, what is said, and how it heals."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from rookery.engines.texts.embedded import EmbeddedTextIndex
from rookery.kernel.db import Database
from rookery.kernel.errors import EngineUnavailable
from rookery.kernel.pages import PageSlice
from rookery.memory.events import MemoryRecalled
from rookery.memory.models import AccessFilter, IndexDocument, MemoryFilter, TextHit, TextQuery, Vector, VectorHit
from rookery.memory.recall_models import RecallRequest, RecallResult
from rookery.memory.visibility import VectorFilter
from tests.conftest import FakeClock
from tests.memory.makers import DIMENSION, MODEL, HookedVectors, Hooks, MemoryRig, build_rig, make_caller, make_draft

_OFF = "it is switched off"


class _SwitchableTexts(EmbeddedTextIndex):
    """The embedded full-text index, as if its server were reachable or not."""

    is_down = False
    search_count = 0
    early_write_count = 0

    async def search(self, query: TextQuery, *, access_filter: AccessFilter, limit: int, offset: int = 0) -> list[TextHit]:
        self.search_count += 1
        self._raise_if_down()
        return await super().search(query, access_filter=access_filter, limit=limit, offset=offset)

    async def put(self, documents: Sequence[IndexDocument], *, is_early: bool = False) -> None:
        self.early_write_count += is_early
        self._raise_if_down()
        await super().put(documents, is_early=is_early)

    def _raise_if_down(self) -> None:
        if self.is_down:
            raise EngineUnavailable("texts", _OFF)


class _SwitchableVectors(HookedVectors):
    """The embedded vector index, as if its server were reachable or not. *searches_left* makes later searches fail."""

    is_down = False
    searches_left: int | None = None

    async def search(self, vector: Vector, *, where: VectorFilter, limit: int) -> list[VectorHit]:
        if self.searches_left is not None:
            self.is_down = self.searches_left == 0
            self.searches_left -= 1
        if self.is_down:
            raise EngineUnavailable("vectors", _OFF)
        return await super().search(vector, where=where, limit=limit)


class _Platform:
    """A memory whose engines can be switched off."""

    def __init__(self, db: Database, folder: Path, clock: FakeClock) -> None:
        self.texts = _SwitchableTexts(folder / "texts.db")
        self.vectors = _SwitchableVectors(folder / "vectors.db", model=MODEL, dimension=DIMENSION, hooks=Hooks())
        self.rig: MemoryRig = build_rig(db, folder, clock, vectors=self.vectors, texts=self.texts)

    async def recall(self, mode: str = "hybrid", **fields: object) -> RecallResult:
        """Recall the heron."""
        request = RecallRequest(query="heron", mode=mode, **fields)  # pyright: ignore[reportArgumentType] - a mode of the test's table
        return await self.rig.services.recall.find(make_caller(), request)

    def switch(self, *engines: str) -> None:
        """Switch off *engines*, and switch on the others."""
        self.texts.is_down = "texts" in engines
        self.vectors.is_down = "vectors" in engines
        self.rig.embedder.is_down = "embedder" in engines


@pytest.fixture
async def platform(database: Database, data_dir: Path, clock: FakeClock) -> AsyncIterator[_Platform]:
    """Yield a platform with one memory, indexed."""
    platform = _Platform(database, data_dir, clock)
    await platform.rig.remember("a heron nests here")
    await platform.rig.run_jobs()
    yield platform
    await platform.rig.close()


_BY_WORDS = "Results are by keywords only: the {} is unavailable: it is switched off"
_BY_MEANING = "Results are by meaning only: the full-text index is unavailable: it is switched off"


@pytest.mark.parametrize(
    ("mode", "down", "used_mode", "notice"),
    [
        ("hybrid", ["texts"], "semantic", _BY_MEANING),
        ("hybrid", ["vectors"], "keyword", _BY_WORDS.format("vector index")),
        ("hybrid", ["embedder"], "keyword", _BY_WORDS.format("embedder")),
        ("semantic", ["texts"], "semantic", None),
        ("semantic", ["embedder"], "keyword", _BY_WORDS.format("embedder")),
        ("keyword", ["vectors", "embedder"], "keyword", None),
    ],
)
async def test_recall_uses_what_is_left(platform: _Platform, mode: str, down: list[str], used_mode: str, notice: str | None) -> None:
    """Recall without one index finds the memory by the other, with a notice. It is complete again when the index is back."""
    platform.switch(*down)
    result = await platform.recall(mode)
    event = [event for event in platform.rig.events if isinstance(event, MemoryRecalled)][-1]
    platform.switch()
    healed = await platform.recall(mode)

    assert ([hit.memory.content for hit in result.hits], result.notice) == (["a heron nests here"], notice)
    assert (event.mode, event.is_degraded) == (used_mode, notice is not None)
    assert (len(healed.hits), healed.notice) == (1, None)


@pytest.mark.parametrize(
    ("mode", "down", "engine"),
    [
        ("hybrid", ["texts", "vectors"], "texts"),
        ("hybrid", ["texts", "embedder"], "texts"),
        ("semantic", ["vectors"], "vectors"),
        ("semantic", ["embedder", "texts"], "texts"),
        ("keyword", ["texts"], "texts"),
    ],
)
async def test_recall_fails_if_nothing_is_left(platform: _Platform, mode: str, down: list[str], engine: str) -> None:
    """A recall without any index that it may use is an `engine_unavailable`, never an empty list."""
    platform.switch(*down)
    with pytest.raises(EngineUnavailable) as error:
        await platform.recall(mode)

    assert (error.value.engine, error.value.reason) == (engine, _OFF)


async def test_keywords_of_a_recall_by_meaning_may_be_missing(platform: _Platform) -> None:
    """The keywords of a semantic recall only add candidates, so it goes on without them, with a notice."""
    platform.switch("texts")
    result = await platform.recall("semantic", keywords=("nests",))

    assert ([hit.memory.content for hit in result.hits], result.notice) == (["a heron nests here"], _BY_MEANING)


async def test_an_index_that_fails_in_the_middle_of_a_recall_is_left_out(platform: _Platform) -> None:
    """The memory that only the words found needs a second search of the vectors, which fails."""
    drafts = [make_draft(f"heron {number}") for number in range(110)]
    await platform.rig.services.remember.store_many(make_caller(), [*drafts, make_draft("the oak fell")])
    await platform.rig.run_jobs()
    platform.vectors.searches_left = 1
    request = RecallRequest(query="heron oak", top_k=1)
    result = await platform.rig.services.recall.find(make_caller(), request)

    assert ([hit.memory.content for hit in result.hits], result.notice) == (["the oak fell"], _BY_WORDS.format("vector index"))
    assert platform.vectors.searches_left == -1


@pytest.mark.parametrize("mode", ["hybrid", "semantic"])
async def test_an_index_that_fails_during_an_explanation_costs_only_a_part_of_it(platform: _Platform, mode: str) -> None:
    """A second search follows if filters dropped hits. If it fails, the answer stays, and a notice names what is missing."""
    await platform.rig.services.remember.store_many(make_caller(), [make_draft(f"heron {number}", project="shop") for number in range(2)])
    await platform.rig.run_jobs()
    filters = MemoryFilter(project="shop")
    whole = await platform.recall(mode, filters=filters, top_k=1, explains=True)
    platform.vectors.searches_left = 1
    part = await platform.recall(mode, filters=filters, top_k=1, explains=True)

    assert whole.explanation is not None
    assert part.explanation is not None
    assert [memory.rule for memory in whole.explanation.dropped] == ["top_k", "filter"]
    assert [memory.rule for memory in part.explanation.dropped] == ["top_k"]
    assert (part.hits[0].memory.id, part.notice) == (
        whole.hits[0].memory.id,
        "The memories that filters dropped are not listed: an index failed during the explanation.",
    )


async def test_search_without_the_full_text_index_fails(platform: _Platform) -> None:
    """A search has no other index. The error says when to retry, also while the index is not asked."""
    platform.switch("texts")
    service = platform.rig.services.search
    for _ in range(5):
        with pytest.raises(EngineUnavailable) as error:
            await service.find(make_caller(), "heron", RecallRequest(query="heron").filters, page=PageSlice(5))
        assert int(error.value.headers["Retry-After"]) > 0


async def test_a_lost_index_is_not_asked_by_each_recall(platform: _Platform) -> None:
    """After three failures, recalls go on without the index at once."""
    platform.switch("texts")
    platform.texts.search_count = 0
    results = [await platform.recall() for _ in range(8)]

    assert platform.texts.search_count == 3
    assert {result.notice for result in results} == {_BY_MEANING}


async def test_remember_goes_on_without_the_full_text_index(platform: _Platform) -> None:
    """The record is stored; the index is not asked by each request; the job writes it when it is back."""
    platform.switch("texts")
    platform.texts.early_write_count = 0
    for number in range(8):
        await platform.rig.remember(f"heron {number}")
    writes_while_down = platform.texts.early_write_count
    assert await platform.rig.run_jobs() > 0, "they are paused"
    platform.switch()
    await platform.rig.run_jobs()
    hits = (await platform.recall("keyword", top_k=20)).hits

    assert writes_while_down == 3
    assert len(hits) == 9
