"""The engines of `VectorIndex`, by their contract, and the properties of the embedded one."""

from __future__ import annotations

import contextlib
import math
import random
import signal
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest

from rookery.engines import vectors
from rookery.engines.vectors import VectorEngine
from rookery.engines.vectors.embedded import EmbeddedVectorIndex
from rookery.engines.vectors.search import IndexLimits, Segment, rank
from rookery.engines.vectors.vector_file import Point
from rookery.kernel.errors import EngineUnavailable, WrongSettings
from rookery.memory.models import Vector, VectorHit
from rookery.memory.ports import VectorIndex
from rookery.memory.visibility import build_vector_filter
from tests.conftest import eventually
from tests.engines.conftest import EAST, damage, find_ids, make_embedded, make_filter, remove, vector
from tests.engines.index_contract import run_writer
from tests.engines.ivf import OpenIndex
from tests.engines.numpy_index import Entries, NumpyVectorIndex
from tests.engines.vector_contract import NORTH, VectorContract

MANY_ROWS = 8192
"""More rows than one thread scores at a time."""


class TestEmbeddedIndex(VectorContract):
    """The embedded engine meets the contract."""

    engine = "`embedded:`"
    lacks = EmbeddedVectorIndex.lacks

    def open_engine(self, folder: Path, *, model: str, dimension: int) -> VectorIndex:
        """Open the file of *folder*."""
        return vectors.open("embedded:", data_dir=folder, model=model, dimension=dimension)


class TestNumpyIndex(VectorContract):
    """The contract needs no engine of this package: a page of numpy meets it."""

    folders: ClassVar[dict[Path, Entries]] = {}

    def open_engine(self, folder: Path, *, model: str, dimension: int) -> VectorIndex:
        """Open the entries of *folder*."""
        return NumpyVectorIndex(self.folders.setdefault(folder, {}), model=model, dimension=dimension)


_WRITE = """
import asyncio, sys
from pathlib import Path
from rookery.engines import vectors
from tests.engines.conftest import make_embedded

async def main():
    index = vectors.open("embedded:", data_dir=Path(sys.argv[1]), model="small/1", dimension=4)
    await index.put([make_embedded("a"), make_embedded("b")])
    await index.drop(1, ["b"])
    print("stored", flush=True)
    await asyncio.sleep(60)

asyncio.run(main())
"""


async def test_stored_vectors_survive_a_kill(open_vectors: OpenIndex, tmp_path: Path) -> None:
    """indexed_at is set when `put` returns, so the vectors must be durable then."""
    with run_writer(_WRITE, str(tmp_path)) as process:
        process.send_signal(signal.SIGKILL)
        process.wait(10)

    assert await find_ids(open_vectors()) == ["a"]


async def test_the_next_query_finds_what_another_process_committed(open_vectors: OpenIndex, tmp_path: Path) -> None:
    """This includes commits of commands."""
    index = open_vectors()
    await index.put([make_embedded("mine")])
    assert await find_ids(index) == ["mine"]

    with run_writer(_WRITE, str(tmp_path)):
        assert await find_ids(index) == ["a", "mine"]


async def test_equal_filters_find_spaces_that_are_stored_later(open_vectors: OpenIndex) -> None:
    """A query with the conditions of the one before it also finds memories of a new project."""
    index = open_vectors()
    for number in range(3):
        await index.put([make_embedded(f"acme{number}", org="acme", project=f"p{number}")])
        await index.put([make_embedded(f"other{number}", org="other", project=f"p{number}")])
        for org in ("acme", "other"):
            assert await find_ids(index, access_filter=make_filter(org=org)) == [f"{org}{one}" for one in range(number + 1)]
        in_project = make_filter(org="acme", project="p0")
        assert await find_ids(index, access_filter=in_project) == await find_ids(index, access_filter=in_project) == ["acme0"]


async def test_existing_vectors_are_loaded_at_the_start(open_vectors: OpenIndex) -> None:
    """The first search of a large workspace after a start does not wait."""
    await open_vectors().put([make_embedded(f"m{number:03}", EAST) for number in range(100)])
    index = open_vectors()
    await index.start()
    await index.start()

    await eventually(lambda: index.loaded_rows == 100)

    assert len(await find_ids(index, limit=100)) == 100


def test_an_unknown_engine_is_rejected(tmp_path: Path) -> None:
    """The error is one line without the URL, which may contain a password."""
    with pytest.raises(WrongSettings) as error:
        vectors.open("nothing://user:secret@host", data_dir=tmp_path, model="small/1", dimension=4)

    assert "secret" not in error.value.message


class TestTheEmbeddedEngine:
    """Properties of an engine with its own file."""

    @pytest.fixture
    def path(self, tmp_path: Path) -> Path:
        """Return the path of the engine's file."""
        return tmp_path / "vectors.db"

    @pytest.fixture
    async def open_engine(self, tmp_path: Path) -> AsyncIterator[Callable[[], VectorEngine]]:
        """Yield a function that opens another instance."""
        async with contextlib.AsyncExitStack() as stack:

            def open_it() -> VectorEngine:
                index = vectors.open("embedded:", data_dir=tmp_path, model="small/1", dimension=4)
                stack.push_async_callback(index.close)
                return index

            yield open_it

    @pytest.mark.parametrize("with_journal", [True, False])
    @pytest.mark.parametrize("while_in_use", [True, False])
    async def test_a_deleted_file_is_an_empty_index_that_can_be_filled(
        self, open_engine: Callable[[], VectorEngine], path: Path, while_in_use: bool, with_journal: bool
    ) -> None:
        """Derived stores may be deleted and rebuilt by brain:reindex."""
        index = open_engine()
        await index.put([make_embedded("a")])
        assert await find_ids(index) == ["a"]
        if not while_in_use:
            await index.close()
            index = open_engine()

        remove(path, with_journal=with_journal)

        assert await find_ids(index) == []
        await index.put([make_embedded("b")])
        assert await find_ids(index) == ["b"]
        assert await find_ids(open_engine()) == ["b"]

    async def test_a_damaged_file_is_reported_with_a_remedy(self, open_engine: Callable[[], VectorEngine], path: Path) -> None:
        """The remedy is to rebuild the index, and it needs no restart."""
        damage(path, at=0)
        index = open_engine()

        for call in (
            index.count(1),
            index.put([make_embedded()]),
            index.search(EAST, where=build_vector_filter(make_filter()), limit=1),
            index.start(),
        ):
            with pytest.raises(EngineUnavailable, match=r"vectors\.db .*delete it.*rookery brain:reindex"):
                await call

        remove(path)
        await index.put([make_embedded("a")])
        assert await find_ids(index) == ["a"]

    async def test_an_unusable_folder_makes_the_engine_unavailable(self, path: Path) -> None:
        """Errors of the engine are mapped to the error of the port."""
        (path.parent / "taken").touch()
        index = vectors.open("embedded:", data_dir=path.parent / "taken", model="small/1", dimension=4)

        with pytest.raises(EngineUnavailable, match="taken"):
            await index.start()
        await index.close()

    async def test_damage_inside_the_file_is_reported_with_the_same_remedy(
        self, open_engine: Callable[[], VectorEngine], path: Path
    ) -> None:
        """Such a file opens without an error."""
        index = open_engine()
        await index.put([make_embedded(f"m{number}", *[EAST] * 20) for number in range(100)])
        await index.close()
        damage(path, at=4096)

        with pytest.raises(EngineUnavailable, match=r"vectors\.db .*delete it.*rookery brain:reindex"):
            await find_ids(open_engine())

    async def test_an_instance_that_missed_too_many_deletions_reloads_the_index(self, open_vectors: OpenIndex) -> None:
        """Tombstones are kept for a limited time; instances that missed them must not return deleted memories."""
        index, second_index = (open_vectors(IndexLimits(max_tombstones=3)) for _ in range(2))
        ids = [f"m{number}" for number in range(10)]
        await index.put([make_embedded(memory_id) for memory_id in ids])
        assert await find_ids(second_index) == ids

        for memory_id in ids[:8]:
            await index.drop(1, [memory_id])

        assert await find_ids(second_index) == ids[8:]
        await index.drop(1, ids[8:9])
        assert await find_ids(second_index) == await find_ids(index) == ids[9:]

    async def test_rows_of_deleted_sessions_are_removed(self, open_engine: Callable[[], VectorEngine]) -> None:
        """Each session adds an entry to the dictionaries; the segment is reloaded when most entries are unused."""
        index = open_engine()
        ids = [f"m{number:04}" for number in range(1100)]
        await index.put([make_embedded(memory_id, session_id=memory_id) for memory_id in ids])
        assert await find_ids(index, limit=1) == ids[:1]
        await index.drop(1, ids[1:])
        assert await find_ids(index) == ids[:1]

        await index.put([make_embedded("new")])

        assert await find_ids(index) == [ids[0], "new"]

    async def test_a_large_workspace_is_scored_in_parts(self, open_engine: Callable[[], VectorEngine]) -> None:
        """There are more rows than a part has, with distinct similarities, and no hit is lost between parts."""
        rows = 2 * MANY_ROWS + 100
        angles = [math.pi * row / rows for row in range(rows)]
        order = random.Random(5).sample(range(rows), rows)
        await open_engine().put(
            [make_embedded(f"m{number:05}", vector(math.cos(angles[number]), math.sin(angles[number]))) for number in order]
        )

        assert await find_ids(open_engine(), limit=100) == [f"m{number:05}" for number in range(100)]

    async def test_unused_rows_are_compacted(self, open_vectors: OpenIndex) -> None:
        """A memory that is written often must not grow the segment; at most a quarter of its rows is unused."""
        index = open_vectors()
        ids = [f"m{number:03}" for number in range(400)]
        await index.put([make_embedded(memory_id) for memory_id in ids])
        for turn in range(20):
            await index.put([make_embedded(memory_id, *[EAST] * (1 + turn % 2)) for memory_id in ids[::3]])
            assert len(await find_ids(index, limit=1000)) == 400
            assert index.loaded_rows <= 800
        await index.drop(1, ids[100:])

        assert await find_ids(index, limit=1000) == ids[:100]
        await index.drop(1, ids)
        assert await find_ids(index) == []
        assert index.loaded_rows == 0

    async def test_a_memory_may_have_more_chunks_than_the_segment_had_room_for(self, open_vectors: OpenIndex) -> None:
        """The chunks of a memory are adjacent."""
        index = open_vectors()
        await index.put([make_embedded("a"), make_embedded("book", *[NORTH] * MANY_ROWS, EAST), make_embedded("b")])

        assert await find_ids(index, limit=3) == ["a", "b", "book"]


def make_point(memory_id: str, *vectors_: Vector, org: str | None = None) -> Point:
    """Return the data of a memory in a segment."""
    space = (org, None, None, None, "shared", "observation", "manual")
    return Point(
        change=1, memory_id=memory_id, space=space, tags=(), confidence=0.5, created_at=0, expires_at=None, vectors=vectors_ or (EAST,)
    )


def test_a_snapshot_does_not_change() -> None:
    """A query reads without a lock while other tasks write."""
    segment = Segment(4)
    ids = [f"m{number:03}" for number in range(300)]
    segment.add([make_point(memory_id) for memory_id in ids])
    rows = segment.take_snapshot(build_vector_filter(make_filter()))
    segment.delete([memory_id.encode() for memory_id in ids])
    segment.add([make_point(memory_id, NORTH) for memory_id in ids[1::2]])

    hits = rank(rows.score_all(np.frombuffer(EAST, "<f4"), helpers=None), 1000)

    assert hits == [VectorHit(memory_id=memory_id, similarity=1.0) for memory_id in ids]


def test_helper_threads_score_the_same_rows() -> None:
    """A query among many rows is shared with idle threads."""
    segment = Segment(4)
    segment.add([make_point(f"m{row:05}", vector(math.cos(row / MANY_ROWS), math.sin(row / MANY_ROWS))) for row in range(2 * MANY_ROWS)])
    rows, query = segment.take_snapshot(build_vector_filter(make_filter())), np.frombuffer(EAST, "<f4")

    with ThreadPoolExecutor(2) as helpers:
        hits = rank(rows.score_all(query, helpers=helpers), 2 * MANY_ROWS)

    assert len(hits) == 2 * MANY_ROWS
    assert hits == rank(rows.score_all(query, helpers=None), 2 * MANY_ROWS)


def test_a_growing_segment_keeps_all_chunks_of_its_memories() -> None:
    """Rows move to larger arrays as a workspace grows, and a search by ids finds each chunk in them."""
    segment = Segment(4)
    for number in range(900):
        chunks = [NORTH, EAST] if number % 3 == 0 else [NORTH]
        segment.delete([b"m%03d" % (number - 5)] if number % 10 == 5 else [])
        segment.add([make_point(f"m{number:03}", *chunks)])
    remaining_ids = [f"m{number:03}" for number in range(900) if number % 10 != 0]
    query, rows = np.frombuffer(EAST, "<f4"), segment.take_snapshot(build_vector_filter(make_filter()))

    for scored in (
        rows.score_all(query, helpers=None),
        [rows.score_rows(rows.find_rows([memory_id.encode() for memory_id in remaining_ids]), query)],
    ):
        best = [hit.memory_id for hit in rank(scored, 1000) if hit.similarity == 1.0]
        assert best == [memory_id for memory_id in remaining_ids if int(memory_id[1:]) % 3 == 0]
        assert len(rank(scored, 1000)) == len(remaining_ids)


def test_unused_dictionary_entries_are_detected() -> None:
    """Each session adds an entry, and most sessions have ended."""
    segment = Segment(4)
    for number in range(1100):
        segment.delete([b"a"])
        segment.add([make_point("a", org=f"org {number}")])

    assert segment.has_stale_dictionaries
