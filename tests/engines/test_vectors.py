"""One suite for every engine of `VectorIndex`."""

from __future__ import annotations

import asyncio
import contextlib
import math
import random
import signal
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Generator
from datetime import timedelta
from pathlib import Path
from typing import Protocol

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test

from rookery.engines import vectors
from rookery.engines.vectors import VectorEngine
from rookery.engines.vectors.blocks import Point
from rookery.engines.vectors.embedded import EmbeddedVectorIndex
from rookery.engines.vectors.filter_mask import ColumnDict
from rookery.engines.vectors.segment import MAX_BLOCK_ROWS, Segment
from rookery.kernel.errors import EngineUnavailable, WrongSettings
from rookery.memory.models import AccessFilter, EmbeddedDocument, IndexDocument, MemoryScope, Vector, VectorHit
from tests.conftest import eventually
from tests.engines.conftest import (
    CROSSES,
    EAST,
    NOW,
    access_filters,
    damage,
    documents,
    find_ids,
    make_document,
    make_embedded,
    make_filter,
    remove,
    round_hits,
    search_exhaustively,
    vector,
)

NORTH, UP = vector(0, 1), vector(0, 0, 1)
NORTHEAST = vector(1, 1)


class OpenIndex(Protocol):
    """Opens an instance of the engine, which is closed at the end of the test."""

    def __call__(self, *, model: str = "small/1", dimension: int = 4) -> VectorEngine: ...


@pytest.fixture(params=["embedded:"])
def url(request: pytest.FixtureRequest) -> str:
    """Return the URL of each engine in turn."""
    return str(request.param)


@pytest.fixture
async def open_index(url: str, tmp_path: Path) -> AsyncIterator[OpenIndex]:
    """Yield a function that opens another instance of the same index, as a separate process or a restart would."""
    async with contextlib.AsyncExitStack() as stack:

        def open_it(*, model: str = "small/1", dimension: int = 4) -> VectorEngine:
            index = vectors.open(url, data_dir=tmp_path, model=model, dimension=dimension)
            stack.push_async_callback(index.close)
            return index

        yield open_it


@pytest.fixture
def raw_index(open_index: OpenIndex) -> VectorEngine:
    """Return an empty index of four dimensions."""
    return open_index()


async def test_the_most_similar_memory_comes_first(raw_index: VectorEngine) -> None:
    """Relevance is the similarity of vectors (spec 4.3)."""
    await raw_index.put([make_embedded("north", NORTH), make_embedded("east", EAST), make_embedded("between", NORTHEAST)])

    hits = await raw_index.search(EAST, access_filter=make_filter(), limit=2)

    assert round_hits(hits) == [VectorHit(memory_id="east", similarity=1.0), VectorHit(memory_id="between", similarity=round(0.5**0.5, 5))]


async def test_equally_similar_memories_are_sorted_by_id(raw_index: VectorEngine) -> None:
    """The order is total, with the id as last criterion (D-44)."""
    ids = [f"m{number:03}" for number in range(40)]
    await raw_index.put([make_embedded(memory_id, EAST) for memory_id in reversed(ids)])

    assert await find_ids(raw_index, limit=7) == ids[:7]


async def test_a_memory_has_the_similarity_of_its_best_chunk_and_is_returned_once(raw_index: VectorEngine) -> None:
    """Long content has several vectors (D-55)."""
    await raw_index.put([make_embedded("long", NORTH, EAST, EAST, UP), make_embedded("short", NORTHEAST)])

    assert await find_ids(raw_index, limit=2) == ["long", "short"]
    assert await raw_index.count(1) == 2


async def test_chunks_of_one_memory_do_not_displace_other_memories(raw_index: VectorEngine) -> None:
    """The limit counts memories, not chunks (D-55)."""
    await raw_index.put([make_embedded("many chunks", *[EAST] * 50), make_embedded("b", NORTHEAST), make_embedded("c", NORTH)])

    assert await find_ids(raw_index, limit=3) == ["many chunks", "b", "c"]


async def test_putting_again_replaces_all_vectors(raw_index: VectorEngine) -> None:
    """The index has only the current vectors (D-46)."""
    await raw_index.put([make_embedded("a", EAST, NORTH)])
    await raw_index.put([make_embedded("a", UP)])

    assert await raw_index.search(EAST, access_filter=make_filter(), limit=5) == [VectorHit(memory_id="a", similarity=0.0)]
    assert await raw_index.compute_similarities(UP, workspace_id=1, ids=["a"]) == {"a": 1.0}


async def test_putting_repeatedly_changes_nothing(raw_index: VectorEngine) -> None:
    """A finished job may run again (D-51)."""
    for _ in range(3):
        await raw_index.put([make_embedded("a", EAST, NORTH), make_embedded("b", NORTH)])

    assert await raw_index.count(1) == 2
    assert await find_ids(raw_index) == ["a", "b"]


async def test_the_last_of_two_documents_of_one_memory_counts(raw_index: VectorEngine) -> None:
    """A batch may contain a memory twice (D-51)."""
    await raw_index.put([make_embedded("a", EAST), make_embedded("a", NORTH)])

    assert await raw_index.compute_similarities(EAST, workspace_id=1, ids=["a"]) == {"a": 0.0}


async def test_a_deleted_memory_is_not_found_and_unknown_ids_are_ignored(raw_index: VectorEngine) -> None:
    """A deletion may be repeated (spec 3.4; D-51)."""
    await raw_index.put([make_embedded("a"), make_embedded("b")])

    for _ in range(2):
        await raw_index.delete(1, ["a", "never seen"])

    assert await find_ids(raw_index) == ["b"]
    assert await raw_index.count(1) == 1
    await raw_index.put([make_embedded("a")])
    assert await find_ids(raw_index) == ["a", "b"]


async def test_workspaces_never_mix(raw_index: VectorEngine) -> None:
    """The workspace is a strict boundary, also for memories with the same id (spec 2.8)."""
    await raw_index.put([make_embedded("a", EAST), make_embedded("a", NORTH, workspace_id=2), make_embedded("b", NORTH, workspace_id=2)])
    await raw_index.delete(1, ["b"])

    assert await raw_index.search(EAST, access_filter=make_filter(1), limit=9) == [VectorHit(memory_id="a", similarity=1.0)]
    assert await raw_index.search(NORTH, access_filter=make_filter(2), limit=1) == [VectorHit(memory_id="a", similarity=1.0)]
    assert await raw_index.compute_similarities(EAST, workspace_id=1, ids=["a", "b"]) == {"a": 1.0}
    assert [await raw_index.count(workspace_id) for workspace_id in (1, 2, 3)] == [1, 2, 0]
    assert await find_ids(raw_index, access_filter=make_filter(3)) == []


async def test_similarities_of_unknown_memories_are_left_out(raw_index: VectorEngine) -> None:
    """A memory found by keyword gets its similarity, if it has vectors (D-44)."""
    await raw_index.put([make_embedded("a", NORTH, EAST)])

    assert await raw_index.compute_similarities(EAST, workspace_id=1, ids=["a", "b"]) == {"a": 1.0}
    assert await raw_index.compute_similarities(EAST, workspace_id=1, ids=[]) == {}


@pytest.mark.parametrize(
    "invalid_vector",
    [np.array([np.nan, 0, 0, 0], "<f4").tobytes(), np.array([0, np.inf, 0, 0], "<f4").tobytes(), vector(1, width=5), b"", b"abc"],
    ids=["nan", "inf", "wide", "empty", "torn"],
)
async def test_an_invalid_vector_rejects_the_whole_batch(raw_index: VectorEngine, invalid_vector: Vector) -> None:
    """Vectors that cannot be compared must not be stored (D-54)."""
    with pytest.raises(ValueError, match="vector"):
        await raw_index.put([make_embedded("good"), make_embedded("bad", EAST, invalid_vector)])
    with pytest.raises(ValueError, match="vector"):
        await raw_index.search(invalid_vector, access_filter=make_filter(), limit=1)

    assert await raw_index.count(1) == 0


async def test_a_document_without_vectors_is_rejected(raw_index: VectorEngine) -> None:
    """A document has at least one chunk (D-55)."""
    with pytest.raises(ValueError, match="at least one"):
        await raw_index.put([EmbeddedDocument(document=make_document(), vectors=())])


async def test_vectors_of_another_model_are_not_searched(open_index: OpenIndex) -> None:
    """Vectors of different models or dimensions are never mixed (D-54)."""
    await open_index(model="small/1").put([make_embedded("old"), make_embedded("kept")])
    other_model = open_index(model="small/2")
    await other_model.put([make_embedded("old", NORTH)])

    assert await find_ids(other_model) == ["old"]
    assert await other_model.count(1) == 1
    assert await other_model.compute_similarities(EAST, workspace_id=1, ids=["old", "kept"]) == {"old": 0.0}
    assert await find_ids(open_index(model="small/1")) == ["kept", "old"]
    assert await find_ids(open_index(model="small/1", dimension=5), vector(1, width=5)) == []


async def test_the_next_query_finds_what_another_instance_committed(open_index: OpenIndex) -> None:
    """Several processes share the data folder; snapshots follow its change counter (D-01)."""
    first_index, second_index = open_index(), open_index()
    for number in range(5):
        await first_index.put([make_embedded(f"m{number}", EAST)])
        assert await find_ids(second_index) == [f"m{number}"]
        await second_index.put([make_embedded(f"n{number}", EAST)])
        assert await find_ids(first_index) == [f"m{number}", f"n{number}"]
        await first_index.delete(1, [f"n{number}"])
        await second_index.delete(1, [f"m{number}"])
        assert await find_ids(first_index) == await find_ids(second_index) == []


_WRITE = """
import asyncio, sys
from pathlib import Path
from rookery.engines import vectors
from tests.engines.conftest import make_embedded

async def main():
    index = vectors.open(sys.argv[1], data_dir=Path(sys.argv[2]), model="small/1", dimension=4)
    await index.put([make_embedded("a"), make_embedded("b")])
    await index.delete(1, ["b"])
    print("stored", flush=True)
    await asyncio.sleep(60)

asyncio.run(main())
"""


@contextlib.contextmanager
def another_process(url: str, data_dir: Path) -> Generator[subprocess.Popen[str]]:
    """Run a process that has written vectors and then sleeps."""
    command = [sys.executable, "-c", _WRITE, url, str(data_dir)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "stored\n"
            yield process
        finally:
            process.kill()


async def test_stored_vectors_survive_a_kill(open_index: OpenIndex, url: str, tmp_path: Path) -> None:
    """indexed_at is set when `put` returns, so the vectors must be durable then (D-51)."""
    with another_process(url, tmp_path) as process:
        process.send_signal(signal.SIGKILL)
        process.wait(10)

    assert await find_ids(open_index()) == ["a"]


async def test_the_next_query_finds_what_another_process_committed(open_index: OpenIndex, url: str, tmp_path: Path) -> None:
    """This includes commits of commands (D-01)."""
    index = open_index()
    await index.put([make_embedded("mine")])
    assert await find_ids(index) == ["mine"]

    with another_process(url, tmp_path):
        assert await find_ids(index) == ["a", "mine"]


async def test_concurrent_queries_find_either_the_old_or_the_new_vectors(raw_index: VectorEngine) -> None:
    """While `put` replaces the vectors of a memory, a query never finds neither version."""
    ids = [f"m{number:02}" for number in range(20)]
    await raw_index.put([make_embedded(memory_id, EAST) for memory_id in ids])

    async def rewrite() -> None:
        for turn in range(30):
            await raw_index.put([make_embedded(memory_id, *[EAST] * (1 + turn % 3)) for memory_id in ids])

    async def query() -> None:
        for _ in range(60):
            assert await find_ids(raw_index, limit=50) == ids

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(rewrite())
        for _ in range(4):
            tasks.create_task(query())


async def test_existing_vectors_are_loaded_at_the_start(open_index: OpenIndex) -> None:
    """The first search of a large workspace after a start does not wait (issue 2)."""
    await open_index().put([make_embedded(f"m{number:03}", EAST) for number in range(100)])
    index = open_index()
    await index.start()
    await index.start()
    assert isinstance(index, EmbeddedVectorIndex)

    await eventually(lambda: index.loaded_rows == 100)

    assert len(await find_ids(index, limit=100)) == 100


async def test_an_index_can_be_closed_while_it_loads(open_index: OpenIndex) -> None:
    """An interrupted start leaves no task (issue 2)."""
    await open_index().put([make_embedded(f"m{number:03}", EAST) for number in range(100)])
    index = open_index()
    await index.start()
    await index.close()


async def test_a_cancelled_query_does_not_stop_the_others(raw_index: VectorEngine) -> None:
    """One query reads the file for all waiting queries."""
    await raw_index.put([make_embedded(f"m{number:03}") for number in range(300)])
    searches = [asyncio.create_task(find_ids(raw_index, limit=1)) for _ in range(5)]
    await asyncio.sleep(0)
    searches[0].cancel()

    assert await asyncio.gather(*searches[1:]) == [["m000"]] * 4


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    drawn_documents=documents,
    chunks=st.lists(st.lists(st.sampled_from(CROSSES), min_size=1, max_size=3).map(tuple), min_size=25, max_size=25),
    access_filter=access_filters,
    query=st.sampled_from(CROSSES),
    limit=st.sampled_from([1, 3, 100]),
)
async def test_a_search_follows_the_visibility_rule(
    raw_index: VectorEngine,
    *,
    drawn_documents: list[IndexDocument],
    chunks: list[tuple[Vector, ...]],
    access_filter: AccessFilter,
    query: Vector,
    limit: int,
) -> None:
    """Every engine applies the same rule; hits are sorted by exact cosine, then id (D-43)."""
    for workspace_id in (1, 2):
        await raw_index.delete(workspace_id, [f"m{number:02}" for number in range(31)])
    items = [
        EmbeddedDocument(document=document, vectors=chunk_vectors) for document, chunk_vectors in zip(drawn_documents, chunks, strict=False)
    ]
    await raw_index.put(items)

    assert round_hits(await raw_index.search(query, access_filter=access_filter, limit=limit)) == search_exhaustively(
        items, query, access_filter, limit
    )


class Machine(RuleBasedStateMachine):
    """A state machine of writes, compared with a dict; a second instance only reads, and one is reopened at times."""

    url: str = "embedded:"

    def __init__(self) -> None:
        super().__init__()
        self.model: dict[tuple[int, str], EmbeddedDocument] = {}
        self.folder = tempfile.TemporaryDirectory()
        self.runner = asyncio.Runner()
        self.index, self.second_index = self.open_index(), self.open_index()

    def open_index(self) -> VectorEngine:
        """Open the machine's index."""

        async def open_it() -> VectorEngine:
            return vectors.open(self.url, data_dir=Path(self.folder.name), model="small/1", dimension=4)

        return self.runner.run(open_it())

    @rule(
        memory_ids=st.lists(st.integers(0, 9), min_size=1, max_size=6),
        workspace_id=st.sampled_from([1, 2]),
        chunks=st.lists(st.sampled_from(CROSSES), min_size=1, max_size=4),
        scope=st.sampled_from([MemoryScope.PROJECT, MemoryScope.AGENT]),
        tags=st.sampled_from([(), ("a",), ("a", "b")]),
        expires_at=st.sampled_from([None, NOW, NOW + timedelta(days=1)]),
    )
    def put(self, memory_ids: list[int], chunks: list[Vector], workspace_id: int, scope: MemoryScope, **fields: object) -> None:
        """Write some memories."""
        fields |= {"workspace_id": workspace_id, "memory_scope": scope, "agent_id": "kim"}
        items = [make_embedded(f"m{number}", *chunks, **fields) for number in memory_ids]
        self.model |= {(workspace_id, item.document.memory_id): item for item in items}
        self.runner.run(self.index.put(items))

    @rule(memory_ids=st.sets(st.integers(0, 10), max_size=5), workspace_id=st.sampled_from([1, 2]))
    def delete(self, memory_ids: set[int], workspace_id: int) -> None:
        """Delete memories, known or not."""
        ids = [f"m{number}" for number in memory_ids]
        for memory_id in ids:
            self.model.pop((workspace_id, memory_id), None)
        self.runner.run(self.index.delete(workspace_id, ids))

    @rule()
    def reopen(self) -> None:
        """Close and open the index."""
        self.runner.run(self.index.close())
        self.index = self.open_index()

    @rule(
        query=st.sampled_from(CROSSES),
        limit=st.integers(1, 12),
        agent_id=st.sampled_from([None, "kim"]),
        tags=st.sampled_from([frozenset[str](), frozenset("a")]),
        workspace_id=st.sampled_from([1, 2]),
    )
    def check_search(self, query: Vector, limit: int, workspace_id: int, **fields: object) -> None:
        """Search both instances."""
        access_filter = make_filter(workspace_id, **fields)
        expected = search_exhaustively(list(self.model.values()), query, access_filter, limit)
        for index in (self.index, self.second_index):
            assert round_hits(self.runner.run(index.search(query, access_filter=access_filter, limit=limit))) == expected

    @invariant()
    def check_counts(self) -> None:
        """Compare the number of memories."""
        for workspace_id in (1, 2):
            expected_count = sum(1 for owner, _ in self.model if owner == workspace_id)
            assert self.runner.run(self.index.count(workspace_id)) == expected_count

    def teardown(self) -> None:
        """Close the instances and delete their folder."""
        for index in (self.index, self.second_index):
            self.runner.run(index.close())
        self.runner.close()
        self.folder.cleanup()


def test_any_order_of_writes_equals_a_dict(url: str) -> None:
    """The state machine compares every search with a dict."""

    class EngineMachine(Machine):
        pass

    EngineMachine.url = url
    run_state_machine_as_test(EngineMachine, settings=settings(max_examples=15, stateful_step_count=15, deadline=None))


def test_an_unknown_engine_is_rejected(tmp_path: Path) -> None:
    """The error is one line without the URL, which may contain a password (D-02)."""
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
        """Derived stores may be deleted and rebuilt by brain:reindex (spec 4.4)."""
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
        """The remedy is to rebuild the index, and it needs no restart (D-46)."""
        damage(path, at=0)
        index = open_engine()

        for call in (index.count(1), index.put([make_embedded()]), index.search(EAST, access_filter=make_filter(), limit=1), index.start()):
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
        """Such a file opens without an error (D-46)."""
        index = open_engine()
        await index.put([make_embedded(f"m{number}", *[EAST] * 20) for number in range(100)])
        await index.close()
        damage(path, at=4096)

        with pytest.raises(EngineUnavailable, match=r"vectors\.db .*delete it.*rookery brain:reindex"):
            await find_ids(open_engine())

    async def test_an_instance_that_missed_too_many_deletions_reloads_the_index(
        self, open_engine: Callable[[], VectorEngine], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Tombstones are kept for a limited time; instances that missed them must not return deleted memories."""
        monkeypatch.setattr("rookery.engines.vectors.vector_file._MAX_TOMBSTONES", 3)
        index, second_index = open_engine(), open_engine()
        ids = [f"m{number}" for number in range(10)]
        await index.put([make_embedded(memory_id) for memory_id in ids])
        assert await find_ids(second_index) == ids

        for memory_id in ids[:8]:
            await index.delete(1, [memory_id])

        assert await find_ids(second_index) == ids[8:]
        await index.delete(1, ids[8:9])
        assert await find_ids(second_index) == await find_ids(index) == ids[9:]

    async def test_rows_of_deleted_sessions_are_removed(self, open_engine: Callable[[], VectorEngine]) -> None:
        """Each session adds an entry to the dictionaries; the segment is reloaded when most entries are unused."""
        index = open_engine()
        ids = [f"m{number:04}" for number in range(1100)]
        await index.put([make_embedded(memory_id, session_id=memory_id) for memory_id in ids])
        assert await find_ids(index, limit=1) == ids[:1]
        await index.delete(1, ids[1:])
        assert await find_ids(index) == ids[:1]

        await index.put([make_embedded("new")])

        assert await find_ids(index) == [ids[0], "new"]

    async def test_a_large_workspace_is_scored_by_several_threads(self, open_engine: Callable[[], VectorEngine]) -> None:
        """There are more rows than a block has, with distinct similarities, and no hit is lost between threads."""
        rows = 2 * MAX_BLOCK_ROWS + 100
        angles = [math.pi * row / rows for row in range(rows)]
        order = random.Random(5).sample(range(rows), rows)
        await open_engine().put(
            [make_embedded(f"m{number:05}", vector(math.cos(angles[number]), math.sin(angles[number]))) for number in order]
        )

        assert await find_ids(open_engine(), limit=100) == [f"m{number:05}" for number in range(100)]


def make_point(memory_id: str, *vectors_: Vector, org: str | None = None) -> Point:
    """Return the data of a memory in a segment."""
    space = (org, None, None, None, MemoryScope.SHARED.value, "observation", "manual")
    return Point(
        change=1, memory_id=memory_id, space=space, tags=(), confidence=0.5, created_at=0, expires_at=None, vectors=vectors_ or (EAST,)
    )


def find_nearest_ids(segment: Segment, limit: int = 1000) -> list[str]:
    """Return the ids nearest to the vector EAST."""
    hits = segment.take_snapshot(make_filter()).find_nearest(np.frombuffer(EAST, "<f4"), limit=limit, helpers=None)
    return [hit.memory_id for hit in hits]


def test_unused_rows_are_compacted() -> None:
    """A memory that is written often must not grow the segment; at most a quarter of a block is unused."""
    segment = Segment(4)
    ids = [f"m{number:03}" for number in range(400)]
    segment.apply(deleted_ids=[], points=[make_point(memory_id) for memory_id in ids])
    for turn in range(20):
        segment.apply(deleted_ids=[], points=[make_point(memory_id, *[EAST] * (1 + turn % 2)) for memory_id in ids[::3]])
        assert segment.row_count <= 800
    segment.apply(deleted_ids=ids[100:], points=[])

    assert find_nearest_ids(segment) == ids[:100]
    assert segment.compute_similarities(np.frombuffer(EAST, "<f4"), ids) == dict.fromkeys(ids[:100], 1.0)
    segment.apply(deleted_ids=ids, points=[])
    assert segment.row_count == 0
    assert find_nearest_ids(segment) == []


def test_a_snapshot_does_not_change() -> None:
    """A query reads without a lock while other tasks write."""
    segment = Segment(4)
    ids = [f"m{number:03}" for number in range(300)]
    segment.apply(deleted_ids=[], points=[make_point(memory_id) for memory_id in ids])
    snapshot = segment.take_snapshot(make_filter())
    segment.apply(deleted_ids=ids[::2], points=[make_point(memory_id, NORTH) for memory_id in ids[1::2]])

    hits = snapshot.find_nearest(np.frombuffer(EAST, "<f4"), limit=1000, helpers=None)

    assert hits == [VectorHit(memory_id=memory_id, similarity=1.0) for memory_id in ids]


def test_a_memory_with_more_chunks_than_a_block_gets_its_own_block() -> None:
    """The chunks of a memory are adjacent."""
    segment = Segment(4)
    segment.apply(deleted_ids=[], points=[make_point("a"), make_point("book", *[NORTH] * MAX_BLOCK_ROWS, EAST), make_point("b")])

    assert find_nearest_ids(segment, 3) == ["a", "b", "book"]


def test_unused_dictionary_entries_are_detected() -> None:
    """Each session adds an entry, and most sessions have ended."""
    segment = Segment(4)
    for number in range(1100):
        segment.apply(deleted_ids=["a"], points=[make_point("a", org=f"org {number}")])

    assert segment.has_stale_dictionaries
    assert ColumnDict().entry_count < 10
