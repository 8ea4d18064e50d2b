"""Memories of a workspace compared with each other."""

from __future__ import annotations

import asyncio
import contextlib
import resource
import tempfile
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rookery.engines import vectors
from rookery.engines.similarity.comparison import ComparisonLimits, open_comparison
from rookery.engines.vectors import VectorEngine
from rookery.kernel.errors import EngineUnavailable
from rookery.memory.models import EmbeddedDocument, MemoryScope
from rookery.memory.ports import SpaceRow, VectorIndex
from tests.conftest import eventually
from tests.engines.conftest import CROSSES, EAST, cosine, make_embedded, vector

NORTH, NORTHEAST = vector(0, 1), vector(1, 1)
WIDTH = 384


@contextlib.asynccontextmanager
async def open_engine(folder: Path, *, dimension: int = 4, model: str = "small/1") -> AsyncGenerator[VectorEngine]:
    """Open an index and close it afterwards."""
    index = vectors.open("embedded:", data_dir=folder, model=model, dimension=dimension)
    try:
        yield index
    finally:
        await index.close()


async def list_spaces(items: Iterable[EmbeddedDocument]) -> AsyncGenerator[Sequence[SpaceRow]]:
    """Yield the memories of workspace 1 with their spaces, in batches."""
    for item in items:
        if item.document.workspace_id == 1:
            document = item.document
            space = (document.org, document.project, document.memory_scope, document.agent_id, document.session_id, document.type)
            yield [(document.memory_id, space)]


async def find_similar_ids(
    index: VectorIndex, items: Iterable[EmbeddedDocument], *ids: str, threshold: float = 0.9, limit: int = 32
) -> Mapping[str, Sequence[str]]:
    """Open a comparison of *items* and return the similar ids of each id."""
    async with open_comparison(index, 1, list_spaces(items)) as comparison:
        return await comparison.find_similar(ids, threshold=threshold, limit=limit)


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


async def test_similar_memories_are_returned_most_similar_first(tmp_path: Path) -> None:
    """Only similarities above the threshold count; memories without similar ones and unknown ids are left out."""
    items = [make_embedded("a", EAST), make_embedded("b", NORTHEAST), make_embedded("c", EAST), make_embedded("d", vector(0, 0, 1))]
    async with open_engine(tmp_path) as index:
        await index.put(items)

        assert await find_similar_ids(index, items, "a", "b", "d", "unknown", threshold=0.7) == {"a": ["c", "b"], "b": ["a", "c"]}
        assert await find_similar_ids(index, items, "a", "b", threshold=0.7, limit=1) == {"a": ["c"], "b": ["a"]}
        assert await find_similar_ids(index, items) == await find_similar_ids(index, [], "a") == {}


async def test_excluded_memories_are_not_returned(tmp_path: Path) -> None:
    """A run excludes the memories that it merged, so that others are returned."""
    items = [make_embedded(name, EAST) for name in "abc"]
    async with open_engine(tmp_path) as index:
        await index.put(items)
        async with open_comparison(index, 1, list_spaces(items)) as comparison:
            comparison.exclude(["b", "unknown"])
            assert await comparison.find_similar(["a", "b"], threshold=0.9, limit=9) == {"a": ["c"], "b": ["a", "c"]}


async def test_only_current_vectors_are_compared(tmp_path: Path) -> None:
    """Replaced and deleted vectors and those of another model are not compared."""
    items = [make_embedded(name, EAST) for name in "abcde"]
    async with open_engine(tmp_path) as index, open_engine(tmp_path, model="other/1") as other:
        await other.put([items[0], items[4]])
        await index.put(items[:4])
        await index.put([make_embedded("a", NORTH), make_embedded("d", NORTH)])
        await index.drop(1, ["c"])

        assert await find_similar_ids(index, items, *"abcde") == {"a": ["d"], "d": ["a"]}
        await other.put([items[0], items[4]])
        assert await find_similar_ids(other, items, *"abcde") == {"a": ["e"], "e": ["a"]}


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


_SMALL = ComparisonLimits(query_rows=3, block_rows=2, step_products=1, max_pairs=2)
_EXCLUDED_IDS = st.sets(st.integers(0, 30).map(lambda number: f"m{number:02}"))


@given(_ITEMS, st.tuples(st.sampled_from([-0.5, 0.0, 0.25, 0.5, 0.9, 1.0]), st.integers(1, 30)), _EXCLUDED_IDS, st.booleans())
@settings(max_examples=40, deadline=None)
def test_the_result_equals_the_comparison_of_every_pair(
    items: Sequence[EmbeddedDocument],
    bounds: tuple[float, int],
    excluded_ids: set[str],
    is_small: bool,
) -> None:
    """Only memories with an equal merge key are compared, and similarities at the threshold do not count."""
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

    limits = _SMALL if is_small else None  # many blocks, and more pairs than the limit

    async def find_similar() -> Mapping[str, Sequence[str]]:
        with tempfile.TemporaryDirectory() as folder:
            async with open_engine(Path(folder)) as index:
                await index.put(items)
                async with open_comparison(index, 1, list_spaces(items), limits=limits) as comparison:
                    comparison.exclude(excluded_ids)
                    return await comparison.find_similar([f"m{number:02}" for number in range(31)], threshold=threshold, limit=limit)

    assert asyncio.run(find_similar()) == expected


async def test_the_threshold_is_exact_to_the_last_bit(tmp_path: Path) -> None:
    """Products of matrices and of vectors are rounded differently; the result must not depend on it."""
    random_source = np.random.default_rng(3)
    rows = random_source.normal(size=(300, WIDTH)) * 0.3 + random_source.normal(size=WIDTH)
    unit = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype("<f4")
    exact = unit.astype(np.float64) @ unit.astype(np.float64).T
    items = [make_embedded(f"m{number:03}", row.tobytes()) for number, row in enumerate(unit)]
    async with open_engine(tmp_path, dimension=WIDTH) as index:
        await index.put(items)
        async with open_comparison(index, 1, list_spaces(items)) as comparison_session:
            for other in range(1, 40):
                for threshold, is_included in ((exact[0, other] - 1e-13, True), (exact[0, other] + 1e-13, False)):
                    results = await comparison_session.find_similar(["m000"], threshold=float(threshold), limit=300)
                    expected = {f"m{number:03}" for number in range(1, 300) if exact[0, number] > threshold}
                    assert set(results.get("m000", ())) == expected
                    assert (f"m{other:03}" in expected) is is_included


async def test_the_most_similar_of_very_many_are_returned(tmp_path: Path) -> None:
    """Pairs beyond the limit are dropped early, so that many equal notes need no more memory."""
    angles = [number / 1000 for number in range(200)]
    items = [make_embedded(f"m{number:03}", vector(np.cos(angle), np.sin(angle))) for number, angle in enumerate(angles)]
    async with open_engine(tmp_path) as index:
        await index.put(items)
        async with open_comparison(index, 1, list_spaces(items), limits=ComparisonLimits(max_pairs=100, block_rows=40)) as comparison:
            results = await comparison.find_similar([f"m{number:03}" for number in range(200)], threshold=0.9, limit=3)
        assert (len(results), results["m000"], results["m199"]) == (200, ["m001", "m002", "m003"], ["m198", "m197", "m196"])


async def test_a_comparison_can_be_cancelled_and_leaves_no_files(tmp_path: Path) -> None:
    """The temporary copy has no file name, so that a killed process leaves no file."""
    items = [make_embedded(f"m{number:03}", EAST) for number in range(300)]
    limits = ComparisonLimits(step_products=1, block_rows=1)
    async with open_engine(tmp_path) as index:
        await index.put(items)
        files_before = set(tmp_path.iterdir())
        async with open_comparison(index, 1, list_spaces(items), folder=tmp_path, limits=limits) as comparison:
            task = asyncio.create_task(comparison.find_similar([f"m{number:03}" for number in range(300)], threshold=0.9, limit=3))
            await eventually(lambda: not task.done())
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert set(tmp_path.iterdir()) == files_before
            assert await comparison.find_similar(["m001"], threshold=0.9, limit=1) == {"m001": ["m000"]}
        assert set(tmp_path.iterdir()) == files_before


async def test_a_full_disk_makes_the_engine_unavailable(tmp_path: Path) -> None:
    """A failure to write the copy is `EngineUnavailable` with its reason (house rules, errors)."""
    items = [make_embedded(name, EAST, memory_scope=MemoryScope.SHARED) for name in "ab"]
    async with open_engine(tmp_path) as index:
        await index.put(items)
        old_limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (16, old_limits[1]))
        try:
            with pytest.raises(EngineUnavailable, match="could not be copied"):
                await find_similar_ids(index, items, "a")
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, old_limits)
