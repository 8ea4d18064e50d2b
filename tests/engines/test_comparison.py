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
from tests.engines.conftest import CROSSES, EAST, cosine, make_embedded, vector

NORTH, NORTHEAST = vector(0, 1), vector(1, 1)
WIDTH = 384


@pytest.fixture(params=["embedded:"])
def url(request: pytest.FixtureRequest) -> str:
    """Return the URL of each engine in turn."""
    return str(request.param)


@contextlib.asynccontextmanager
async def open_engine(url: str, folder: Path, *, dimension: int = 4, model: str = "small/1") -> AsyncGenerator[VectorEngine]:
    """Open an index and close it afterwards."""
    index = vectors.open(url, data_dir=folder, model=model, dimension=dimension)
    try:
        yield index
    finally:
        await index.close()


async def find_similar_ids(
    index: VectorEngine,
    *ids: str,
    threshold: float = 0.9,
    limit: int = 32,
    workspace_id: int = 1,
    org: str | None = None,
    project: str | None = None,
) -> dict[str, list[str]]:
    """Open a comparison and return the similar ids of each id."""
    async with index.open_comparison(workspace_id, org=org, project=project) as comparison_session:
        return {
            memory_id: list(similar_ids)
            for memory_id, similar_ids in (await comparison_session.find_similar(ids, threshold=threshold, limit=limit)).items()
        }


def similarity(one: EmbeddedDocument, other: EmbeddedDocument) -> float:
    """Return the similarity of the two most similar chunks."""
    return max(cosine(chunk, other_chunk) for chunk in one.vectors for other_chunk in other.vectors)


def merge_key(item: EmbeddedDocument) -> tuple[object, ...]:
    """Return the fields that must be equal for two memories to be merged."""
    document = item.document
    return (
        document.workspace_id,
        document.org,
        document.project,
        document.agent_id,
        document.session_id,
        document.memory_scope,
        document.type,
    )


async def test_similar_memories_are_returned_most_similar_first(url: str, tmp_path: Path) -> None:
    """Only similarities above the threshold count; memories without similar ones and unknown ids are left out (D-52)."""
    async with open_engine(url, tmp_path) as index:
        await index.put(
            [make_embedded("a", EAST), make_embedded("b", NORTHEAST), make_embedded("c", EAST), make_embedded("d", vector(0, 0, 1))]
        )

        assert await find_similar_ids(index, "a", "b", "d", "unknown", threshold=0.7) == {"a": ["c", "b"], "b": ["a", "c"]}
        assert await find_similar_ids(index, "a", "b", threshold=0.7, limit=1) == {"a": ["c"], "b": ["a"]}
        assert await find_similar_ids(index) == await find_similar_ids(index, "a", workspace_id=2) == {}


async def test_excluded_memories_are_not_returned(url: str, tmp_path: Path) -> None:
    """A run excludes the memories that it merged, so that others are returned (D-52)."""
    async with open_engine(url, tmp_path) as index:
        await index.put([make_embedded(name, EAST) for name in "abc"])
        async with index.open_comparison(1) as comparison_session:
            comparison_session.exclude(["b", "unknown"])
            assert await comparison_session.find_similar(["a", "b"], threshold=0.9, limit=9) == {"a": ["c"], "b": ["a", "c"]}


async def test_only_current_vectors_are_compared(url: str, tmp_path: Path) -> None:
    """Replaced and deleted vectors and those of another model are not compared (D-46, D-54)."""
    async with open_engine(url, tmp_path) as index, open_engine(url, tmp_path, model="other/1") as other:
        await other.put([make_embedded("a", EAST), make_embedded("e", EAST)])
        await index.put(
            [make_embedded("a", EAST, NORTH), make_embedded("b", EAST), make_embedded("c", EAST), make_embedded("d", EAST, project="web")]
        )
        await index.put([make_embedded("a", NORTH), make_embedded("d", NORTH)])
        await index.delete(1, ["c"])

        assert await find_similar_ids(index, *"abcde") == {"a": ["d"], "d": ["a"]}
        assert await find_similar_ids(index, *"abcde", org="acme", project="api") == {"a": ["d"], "d": ["a"]}
        assert await find_similar_ids(index, *"abcde", project="web") == await find_similar_ids(index, *"abcde", org="Acme") == {}
        assert await find_similar_ids(other, *"ae") == {"a": ["e"], "e": ["a"]}


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
).map(lambda items: [make_embedded(name, *chunks, **fields) for name, fields, chunks in items])


_EXCLUDED_IDS = st.sets(st.integers(0, 30).map(lambda number: f"m{number:02}"))


@given(_ITEMS, st.tuples(st.sampled_from([-0.5, 0.0, 0.25, 0.5, 0.9, 1.0]), st.integers(1, 30)), _EXCLUDED_IDS, st.booleans())
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_the_result_equals_the_comparison_of_every_pair(
    monkeypatch: pytest.MonkeyPatch,
    items: Sequence[EmbeddedDocument],
    bounds: tuple[float, int],
    excluded_ids: set[str],
    is_small: bool,
) -> None:
    """Only memories with an equal merge key are compared, and similarities at the threshold do not count (D-52)."""
    threshold, limit = bounds
    expected = dict[str, list[str]]()
    for one in items:
        similarities = {
            other.document.memory_id: round(similarity(one, other), 5)
            for other in items
            if other is not one and merge_key(other) == merge_key(one)
        }
        similar = sorted((-value, name) for name, value in similarities.items() if value > threshold and name not in excluded_ids)
        if similar and one.document.workspace_id == 1:
            expected[one.document.memory_id] = [name for _, name in similar][:limit]

    async def find_similar() -> dict[str, list[str]]:
        with tempfile.TemporaryDirectory() as folder:
            async with open_engine("embedded:", Path(folder)) as index:
                await index.put(items)
                async with index.open_comparison(1) as comparison_session:
                    comparison_session.exclude(excluded_ids)
                    results = await comparison_session.find_similar(
                        [f"m{number:02}" for number in range(31)], threshold=threshold, limit=limit
                    )
        return {memory_id: list(similar_ids) for memory_id, similar_ids in results.items()}

    with monkeypatch.context() as patch:
        if is_small:  # many blocks, and more pairs than the limit
            patch.setattr(comparison, "_QUERY_BLOCK_ROWS", 3)
            patch.setattr(comparison, "_BLOCK_ROWS", 2)
            patch.setattr(comparison, "_MAX_PAIRS", 2)
            patch.setattr(comparison, "_PRODUCTS_PER_STEP", 1)
            patch.setattr(temp_matrix, "_ENTRIES_PER_READ", 3)
            patch.setattr(temp_matrix, "_VECTORS_PER_COPY", 2)
        assert asyncio.run(find_similar()) == expected


async def test_the_threshold_is_exact_to_the_last_bit(url: str, tmp_path: Path) -> None:
    """Products of matrices and of vectors are rounded differently; the result must not depend on it (D-52)."""
    random_source = np.random.default_rng(3)
    rows = random_source.normal(size=(300, WIDTH)) * 0.3 + random_source.normal(size=WIDTH)
    unit = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype("<f4")
    exact = unit.astype(np.float64) @ unit.astype(np.float64).T
    async with open_engine(url, tmp_path, dimension=WIDTH) as index:
        await index.put([make_embedded(f"m{number:03}", row.tobytes()) for number, row in enumerate(unit)])
        async with index.open_comparison(1) as comparison_session:
            for other in range(1, 40):
                for threshold, is_included in ((exact[0, other] - 1e-13, True), (exact[0, other] + 1e-13, False)):
                    results = await comparison_session.find_similar(["m000"], threshold=float(threshold), limit=300)
                    expected = {f"m{number:03}" for number in range(1, 300) if exact[0, number] > threshold}
                    assert set(results.get("m000", ())) == expected
                    assert (f"m{other:03}" in expected) is is_included


async def test_the_most_similar_of_very_many_are_returned(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pairs beyond the limit are dropped early, so that many equal notes need no more memory (D-52)."""
    monkeypatch.setattr(comparison, "_MAX_PAIRS", 100)
    monkeypatch.setattr(comparison, "_BLOCK_ROWS", 40)
    angles = [number / 1000 for number in range(200)]
    async with open_engine(url, tmp_path) as index:
        await index.put([make_embedded(f"m{number:03}", vector(np.cos(angle), np.sin(angle))) for number, angle in enumerate(angles)])

        results = await find_similar_ids(index, *(f"m{number:03}" for number in range(200)), threshold=0.9, limit=3)
        assert (len(results), results["m000"], results["m199"]) == (200, ["m001", "m002", "m003"], ["m198", "m197", "m196"])


async def test_a_comparison_can_be_cancelled_and_leaves_no_files(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The temporary copy has no file name, so that a killed process leaves no file (issue)."""
    monkeypatch.setattr(comparison, "_PRODUCTS_PER_STEP", 1)
    monkeypatch.setattr(comparison, "_BLOCK_ROWS", 1)
    async with open_engine(url, tmp_path) as index:
        await index.put([make_embedded(f"m{number:03}", EAST) for number in range(300)])
        files_before = set(tmp_path.iterdir())
        async with index.open_comparison(1) as comparison_session:
            task = asyncio.create_task(comparison_session.find_similar([f"m{number:03}" for number in range(300)], threshold=0.9, limit=3))
            await eventually(lambda: not task.done())
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert set(tmp_path.iterdir()) == files_before
            assert await comparison_session.find_similar(["m001"], threshold=0.9, limit=1) == {"m001": ["m000"]}
        assert set(tmp_path.iterdir()) == files_before


async def test_a_full_disk_makes_the_engine_unavailable(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A failure of an engine is `EngineUnavailable` with its reason (house rules, errors)."""

    def write_nothing(*_: object) -> int:
        return 0

    monkeypatch.setattr(os, "pwrite", write_nothing)
    async with open_engine(url, tmp_path) as index:
        await index.put([make_embedded(name, EAST, memory_scope=MemoryScope.SHARED) for name in "ab"])
        with pytest.raises(EngineUnavailable, match="no disk space"):
            await find_similar_ids(index, "a")
