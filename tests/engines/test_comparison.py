"""Memories of a workspace compared with each other, in every engine of `Comparisons`."""

from __future__ import annotations

import asyncio
import contextlib
import os
import tempfile
from collections.abc import AsyncGenerator, Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rookery.engines import vectors
from rookery.engines.vectors import VectorEngine, comparison, temp_matrix
from rookery.kernel.errors import EngineUnavailable
from rookery.memory.models import EmbeddedDocument, MemoryScope
from tests.conftest import eventually
from tests.engines.conftest import CROSSES, EAST, cosine, vector, vectored

NORTH, NORTHEAST = vector(0, 1), vector(1, 1)
WIDTH = 384


@pytest.fixture(params=["embedded:"])
def url(request: pytest.FixtureRequest) -> str:
    """The address of each engine in turn."""
    return str(request.param)


@contextlib.asynccontextmanager
async def opened(url: str, folder: Path, *, dimension: int = 4, model: str = "small/1") -> AsyncGenerator[VectorEngine]:
    """Open an index for a while."""
    index = vectors.open(url, data_dir=folder, model=model, dimension=dimension)
    try:
        yield index
    finally:
        await index.close()


async def alike(
    index: VectorEngine,
    *ids: str,
    above: float = 0.9,
    most: int = 32,
    workspace_id: int = 1,
    org: str | None = None,
    project: str | None = None,
) -> dict[str, list[str]]:
    """Ask once."""
    async with index.open_comparison(workspace_id, org=org, project=project) as comparing_:
        return {each: list(others) for each, others in (await comparing_.find_similar(ids, threshold=above, limit=most)).items()}


def similarity(one: EmbeddedDocument, other: EmbeddedDocument) -> float:
    """Compare by the two most similar chunks."""
    return max(cosine(mine, theirs) for mine in one.vectors for theirs in other.vectors)


def space(item: EmbeddedDocument) -> tuple[object, ...]:
    """Return what memories that may become one have in common."""
    each = item.document
    return each.workspace_id, each.org, each.project, each.agent_id, each.session_id, each.memory_scope, each.type


async def test_those_alike_are_named_the_most_similar_first(url: str, tmp_path: Path) -> None:
    """D-52: whose similarity exceeds the threshold; one like no other is left out, and so is an unknown one."""
    async with opened(url, tmp_path) as index:
        await index.put([vectored("a", EAST), vectored("b", NORTHEAST), vectored("c", EAST), vectored("d", vector(0, 0, 1))])

        assert await alike(index, "a", "b", "d", "unknown", above=0.7) == {"a": ["c", "b"], "b": ["a", "c"]}
        assert await alike(index, "a", "b", above=0.7, most=1) == {"a": ["c"], "b": ["a"]}
        assert await alike(index) == await alike(index, "a", workspace_id=2) == {}


async def test_what_is_left_out_is_named_no_more(url: str, tmp_path: Path) -> None:
    """D-52: what a run has merged makes room for others."""
    async with opened(url, tmp_path) as index:
        await index.put([vectored(name, EAST) for name in "abc"])
        async with index.open_comparison(1) as comparing_:
            comparing_.exclude(["b", "unknown"])
            assert await comparing_.find_similar(["a", "b"], threshold=0.9, limit=9) == {"a": ["c"], "b": ["a", "c"]}


async def test_memories_are_compared_as_they_are_now(url: str, tmp_path: Path) -> None:
    """D-46, D-54: what was put again, dropped, or is of another model is not compared as it was."""
    async with opened(url, tmp_path) as index, opened(url, tmp_path, model="other/1") as other:
        await other.put([vectored("a", EAST), vectored("e", EAST)])
        await index.put([vectored("a", EAST, NORTH), vectored("b", EAST), vectored("c", EAST), vectored("d", EAST, project="web")])
        await index.put([vectored("a", NORTH), vectored("d", NORTH)])
        await index.delete(1, ["c"])

        assert await alike(index, *"abcde") == {"a": ["d"], "d": ["a"]}
        assert await alike(index, *"abcde", org="acme", project="api") == {"a": ["d"], "d": ["a"]}
        assert await alike(index, *"abcde", project="web") == await alike(index, *"abcde", org="Acme") == {}
        assert await alike(other, *"ae") == {"a": ["e"], "e": ["a"]}


_SPACES: list[dict[str, object]] = [
    {},
    {"org": None},
    {"project": None},
    {"agent_id": "kim"},
    {"session_id": "s"},
    {"memory_scope": MemoryScope.AGENT, "agent_id": "kim"},
    {"type": "decision"},
    {"workspace_id": 2},
]
_ITEMS = st.lists(
    st.tuples(
        st.integers(0, 30).map(lambda number: f"m{number:02}"),
        st.sampled_from([{}, {}, {}, {"type": "decision"}, *_SPACES]),
        st.lists(st.sampled_from(CROSSES), min_size=1, max_size=4),
    ),
    max_size=20,
    unique_by=lambda item: item[0],
).map(lambda items: [vectored(name, *chunks, **fields) for name, fields, chunks in items])


_OUT = st.sets(st.integers(0, 30).map(lambda number: f"m{number:02}"))


@given(_ITEMS, st.tuples(st.sampled_from([-0.5, 0.0, 0.25, 0.5, 0.9, 1.0]), st.integers(1, 30)), _OUT, st.booleans())
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_it_finds_what_looking_at_every_pair_finds(
    monkeypatch: pytest.MonkeyPatch,
    items: Sequence[EmbeddedDocument],
    bounds: tuple[float, int],
    left_out: set[str],
    is_small: bool,
) -> None:
    """D-52: only inside one space, also where something has no org or project; a similarity of just the threshold does not exceed it."""
    above, most = bounds
    expected = dict[str, list[str]]()
    for one in items:
        likes = {
            other.document.memory_id: round(similarity(one, other), 5) for other in items if other is not one and space(other) == space(one)
        }
        kept = sorted((-value, name) for name, value in likes.items() if value > above and name not in left_out)
        if kept and one.document.workspace_id == 1:
            expected[one.document.memory_id] = [name for _, name in kept][:most]

    async def ask() -> dict[str, list[str]]:
        with tempfile.TemporaryDirectory() as folder:
            async with opened("embedded:", Path(folder)) as index:
                await index.put(items)
                async with index.open_comparison(1) as comparing_:
                    comparing_.exclude(left_out)
                    found = await comparing_.find_similar([f"m{number:02}" for number in range(31)], threshold=above, limit=most)
        return {each: list(others) for each, others in found.items()}

    with monkeypatch.context() as patched:
        if is_small:  # many blocks, and more pairs than are kept
            patched.setattr(comparison, "_QUERY_BLOCK_ROWS", 3)
            patched.setattr(comparison, "_BLOCK_ROWS", 2)
            patched.setattr(comparison, "_MAX_PAIRS", 2)
            patched.setattr(comparison, "_PRODUCTS_PER_STEP", 1)
            patched.setattr(temp_matrix, "_ENTRIES_PER_READ", 3)
            patched.setattr(temp_matrix, "_VECTORS_PER_COPY", 2)
        assert asyncio.run(ask()) == expected


async def test_the_threshold_is_exact_to_the_last_bit(url: str, tmp_path: Path) -> None:
    """D-52: a product of matrices rounds otherwise than one of vectors; which memories are merged must not hang on that."""
    chance = np.random.default_rng(3)
    rows = chance.normal(size=(300, WIDTH)) * 0.3 + chance.normal(size=WIDTH)
    unit = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype("<f4")
    exact = unit.astype(np.float64) @ unit.astype(np.float64).T
    async with opened(url, tmp_path, dimension=WIDTH) as index:
        await index.put([vectored(f"m{number:03}", row.tobytes()) for number, row in enumerate(unit)])
        async with index.open_comparison(1) as comparing_:
            for other in range(1, 40):
                for above, is_there in ((exact[0, other] - 1e-13, True), (exact[0, other] + 1e-13, False)):
                    found = await comparing_.find_similar(["m000"], threshold=float(above), limit=300)
                    expected = {f"m{number:03}" for number in range(1, 300) if exact[0, number] > above}
                    assert set(found.get("m000", ())) == expected
                    assert (f"m{other:03}" in expected) is is_there


async def test_of_very_many_alike_those_most_so_are_named(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """D-52: a hundred thousand of the same note need no more memory than a few: pairs are cut down as they come."""
    monkeypatch.setattr(comparison, "_MAX_PAIRS", 100)
    monkeypatch.setattr(comparison, "_BLOCK_ROWS", 40)
    angles = [number / 1000 for number in range(200)]
    async with opened(url, tmp_path) as index:
        await index.put([vectored(f"m{number:03}", vector(np.cos(angle), np.sin(angle))) for number, angle in enumerate(angles)])

        found = await alike(index, *(f"m{number:03}" for number in range(200)), above=0.9, most=3)
        assert (len(found), found["m000"], found["m199"]) == (200, ["m001", "m002", "m003"], ["m198", "m197", "m196"])


async def test_nothing_of_it_stays_and_it_may_be_ended_at_any_time(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Issue: killed in the middle: the copy has no name that could be left behind, and an end is not waited for."""
    monkeypatch.setattr(comparison, "_PRODUCTS_PER_STEP", 1)
    monkeypatch.setattr(comparison, "_BLOCK_ROWS", 1)
    async with opened(url, tmp_path) as index:
        await index.put([vectored(f"m{number:03}", EAST) for number in range(300)])
        before = set(tmp_path.iterdir())
        async with index.open_comparison(1) as comparing_:
            task = asyncio.create_task(comparing_.find_similar([f"m{number:03}" for number in range(300)], threshold=0.9, limit=3))
            await eventually(lambda: not task.done())
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert set(tmp_path.iterdir()) == before
            assert await comparing_.find_similar(["m001"], threshold=0.9, limit=1) == {"m001": ["m000"]}
        assert set(tmp_path.iterdir()) == before


async def test_a_full_disk_is_told(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """House, errors: an engine's failure is `EngineUnavailable`, with its reason."""

    def nothing(*_: object) -> int:
        return 0

    monkeypatch.setattr(os, "pwrite", nothing)
    async with opened(url, tmp_path) as index:
        await index.put([vectored(name, EAST, memory_scope=MemoryScope.SHARED) for name in "ab"])
        with pytest.raises(EngineUnavailable, match="no disk space"):
            await alike(index, "a")
