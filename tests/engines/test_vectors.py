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
    damage,
    documents,
    everywhere,
    found,
    make_document,
    naive,
    remove,
    rounded,
    vector,
    vectored,
    withins,
)

NORTH, UP = vector(0, 1), vector(0, 0, 1)
NORTHEAST = vector(1, 1)


class Open(Protocol):
    """Opens the engine of this run; closed when the test ends."""

    def __call__(self, *, model: str = "small/1", dimension: int = 4) -> VectorEngine: ...


@pytest.fixture(params=["embedded:"])
def url(request: pytest.FixtureRequest) -> str:
    """The address of each engine in turn."""
    return str(request.param)


@pytest.fixture
async def open_index(url: str, tmp_path: Path) -> AsyncIterator[Open]:
    """Open the same index, as often as asked: as another process would, or as this one after a restart."""
    async with contextlib.AsyncExitStack() as stack:

        def open_it(*, model: str = "small/1", dimension: int = 4) -> VectorEngine:
            index = vectors.open(url, data_dir=tmp_path, model=model, dimension=dimension)
            stack.push_async_callback(index.close)
            return index

        yield open_it


@pytest.fixture
def raw_index(open_index: Open) -> VectorEngine:
    """An empty index of four dimensions."""
    return open_index()


async def test_the_most_similar_memory_comes_first(raw_index: VectorEngine) -> None:
    """Spec 4.3 (recall): relevance is vector similarity."""
    await raw_index.put([vectored("north", NORTH), vectored("east", EAST), vectored("between", NORTHEAST)])

    near = await raw_index.search(EAST, access_filter=everywhere(), limit=2)

    assert rounded(near) == [VectorHit(memory_id="east", similarity=1.0), VectorHit(memory_id="between", similarity=round(0.5**0.5, 5))]


async def test_equally_similar_memories_come_in_the_order_of_their_ids(raw_index: VectorEngine) -> None:
    """D-44 ends in the id, so an index must not choose among equals by chance."""
    ids = [f"m{number:03}" for number in range(40)]
    await raw_index.put([vectored(memory_id, EAST) for memory_id in reversed(ids)])

    assert await found(raw_index, limit=7) == ids[:7]


async def test_a_memory_is_as_similar_as_its_best_chunk_and_appears_once(raw_index: VectorEngine) -> None:
    """D-55: content longer than the window is several points of one memory."""
    await raw_index.put([vectored("long", NORTH, EAST, EAST, UP), vectored("short", NORTHEAST)])

    assert await found(raw_index, limit=2) == ["long", "short"]
    assert await raw_index.count(1) == 2


async def test_chunks_of_one_memory_do_not_crowd_out_the_others(raw_index: VectorEngine) -> None:
    """D-55: a limit counts memories, not chunks."""
    await raw_index.put([vectored("crowd", *[EAST] * 50), vectored("b", NORTHEAST), vectored("c", NORTH)])

    assert await found(raw_index, limit=3) == ["crowd", "b", "c"]


async def test_putting_again_replaces_all_points(raw_index: VectorEngine) -> None:
    """D-46: an index holds a memory as it is now."""
    await raw_index.put([vectored("a", EAST, NORTH)])
    await raw_index.put([vectored("a", UP)])

    assert await raw_index.search(EAST, access_filter=everywhere(), limit=5) == [VectorHit(memory_id="a", similarity=0.0)]
    assert await raw_index.compute_similarities(UP, workspace_id=1, ids=["a"]) == {"a": 1.0}


async def test_putting_twice_does_no_harm(raw_index: VectorEngine) -> None:
    """D-51: a job may run again after it was done."""
    for _ in range(3):
        await raw_index.put([vectored("a", EAST, NORTH), vectored("b", NORTH)])

    assert await raw_index.count(1) == 2
    assert await found(raw_index) == ["a", "b"]


async def test_the_last_of_two_documents_of_one_memory_counts(raw_index: VectorEngine) -> None:
    """D-51: a batch may hold a memory twice."""
    await raw_index.put([vectored("a", EAST), vectored("a", NORTH)])

    assert await raw_index.compute_similarities(EAST, workspace_id=1, ids=["a"]) == {"a": 0.0}


async def test_what_is_dropped_is_gone_and_what_is_unknown_is_ignored(raw_index: VectorEngine) -> None:
    """Spec 3.4: a deleted memory leaves all stores; D-51: the job that does it may run again."""
    await raw_index.put([vectored("a"), vectored("b")])

    for _ in range(2):
        await raw_index.delete(1, ["a", "never seen"])

    assert await found(raw_index) == ["b"]
    assert await raw_index.count(1) == 1
    await raw_index.put([vectored("a")])
    assert await found(raw_index) == ["a", "b"]


async def test_workspaces_never_mix(raw_index: VectorEngine) -> None:
    """Spec 2.8: workspace_id is a hard boundary, for memories of one id too."""
    await raw_index.put([vectored("a", EAST), vectored("a", NORTH, workspace_id=2), vectored("b", NORTH, workspace_id=2)])
    await raw_index.delete(1, ["b"])

    assert await raw_index.search(EAST, access_filter=everywhere(1), limit=9) == [VectorHit(memory_id="a", similarity=1.0)]
    assert await raw_index.search(NORTH, access_filter=everywhere(2), limit=1) == [VectorHit(memory_id="a", similarity=1.0)]
    assert await raw_index.compute_similarities(EAST, workspace_id=1, ids=["a", "b"]) == {"a": 1.0}
    assert [await raw_index.count(workspace_id) for workspace_id in (1, 2, 3)] == [1, 2, 0]
    assert await found(raw_index, within=everywhere(3)) == []


async def test_similarities_of_unknown_memories_are_left_out(raw_index: VectorEngine) -> None:
    """D-44: a memory found by keyword gets its similarity, if it has one."""
    await raw_index.put([vectored("a", NORTH, EAST)])

    assert await raw_index.compute_similarities(EAST, workspace_id=1, ids=["a", "b"]) == {"a": 1.0}
    assert await raw_index.compute_similarities(EAST, workspace_id=1, ids=[]) == {}


@pytest.mark.parametrize(
    "wrong",
    [np.array([np.nan, 0, 0, 0], "<f4").tobytes(), np.array([0, np.inf, 0, 0], "<f4").tobytes(), vector(1, width=5), b"", b"abc"],
    ids=["nan", "inf", "wide", "empty", "torn"],
)
async def test_a_vector_that_is_none_is_refused_whole(raw_index: VectorEngine, wrong: Vector) -> None:
    """D-54: what cannot be compared must not get in, and a batch that has it stores nothing."""
    with pytest.raises(ValueError, match="vector"):
        await raw_index.put([vectored("good"), vectored("bad", EAST, wrong)])
    with pytest.raises(ValueError, match="vector"):
        await raw_index.search(wrong, access_filter=everywhere(), limit=1)

    assert await raw_index.count(1) == 0


async def test_a_document_without_vectors_is_refused(raw_index: VectorEngine) -> None:
    """D-55: at least one chunk."""
    with pytest.raises(ValueError, match="at least one"):
        await raw_index.put([EmbeddedDocument(document=make_document(), vectors=())])


async def test_vectors_of_another_model_take_no_part(open_index: Open) -> None:
    """D-54: never mixed vectors, in width or in model."""
    await open_index(model="small/1").put([vectored("old"), vectored("kept")])
    other = open_index(model="small/2")
    await other.put([vectored("old", NORTH)])

    assert await found(other) == ["old"]
    assert await other.count(1) == 1
    assert await other.compute_similarities(EAST, workspace_id=1, ids=["old", "kept"]) == {"old": 0.0}
    assert await found(open_index(model="small/1")) == ["kept", "old"]
    assert await found(open_index(model="small/1", dimension=5), vector(1, width=5)) == []


async def test_what_another_instance_commits_is_seen_by_the_next_query(open_index: Open) -> None:
    """D-01: any number of processes share the data folder; views follow its change counter."""
    one, other = open_index(), open_index()
    for number in range(5):
        await one.put([vectored(f"m{number}", EAST)])
        assert await found(other) == [f"m{number}"]
        await other.put([vectored(f"n{number}", EAST)])
        assert await found(one) == [f"m{number}", f"n{number}"]
        await one.delete(1, [f"n{number}"])
        await other.delete(1, [f"m{number}"])
        assert await found(one) == await found(other) == []


_WRITE = """
import asyncio, sys
from pathlib import Path
from rookery.engines import vectors
from tests.engines.conftest import vectored

async def main():
    index = vectors.open(sys.argv[1], data_dir=Path(sys.argv[2]), model="small/1", dimension=4)
    await index.put([vectored("a"), vectored("b")])
    await index.delete(1, ["b"])
    print("stored", flush=True)
    await asyncio.sleep(60)

asyncio.run(main())
"""


@contextlib.contextmanager
def another_process(url: str, data_dir: Path) -> Generator[subprocess.Popen[str]]:
    """Run a process that has written, and hangs."""
    command = [sys.executable, "-c", _WRITE, url, str(data_dir)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "stored\n"
            yield process
        finally:
            process.kill()


async def test_what_was_put_survives_a_kill(open_index: Open, url: str, tmp_path: Path) -> None:
    """D-51: indexed_at is set when put returns, so it must be true then."""
    with another_process(url, tmp_path) as process:
        process.send_signal(signal.SIGKILL)
        process.wait(10)

    assert await found(open_index()) == ["a"]


async def test_what_another_process_commits_is_seen_by_the_next_query(open_index: Open, url: str, tmp_path: Path) -> None:
    """D-01: a commit by a command too is seen by the next recall."""
    index = open_index()
    await index.put([vectored("mine")])
    assert await found(index) == ["mine"]

    with another_process(url, tmp_path):
        assert await found(index) == ["a", "mine"]


async def test_queries_and_writes_at_once_see_whole_memories(raw_index: VectorEngine) -> None:
    """The port: put replaces all points, so a query meets the old ones or the new ones, never neither."""
    ids = [f"m{number:02}" for number in range(20)]
    await raw_index.put([vectored(memory_id, EAST) for memory_id in ids])

    async def rewrite() -> None:
        for turn in range(30):
            await raw_index.put([vectored(memory_id, *[EAST] * (1 + turn % 3)) for memory_id in ids])

    async def query() -> None:
        for _ in range(60):
            assert await found(raw_index, limit=50) == ids

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(rewrite())
        for _ in range(4):
            tasks.create_task(query())


async def test_what_was_there_at_the_start_is_read_before_it_is_asked_for(open_index: Open) -> None:
    """Issue 2: the first question to a large workspace after a start waits for nothing."""
    await open_index().put([vectored(f"m{number:03}", EAST) for number in range(100)])
    index = open_index()
    await index.start()
    await index.start()
    assert isinstance(index, EmbeddedVectorIndex)

    await eventually(lambda: index.loaded_rows == 100)

    assert len(await found(index, limit=100)) == 100


async def test_an_index_may_be_closed_while_it_reads_ahead(open_index: Open) -> None:
    """Issue 2: a start that is broken off leaves nothing behind."""
    await open_index().put([vectored(f"m{number:03}", EAST) for number in range(100)])
    index = open_index()
    await index.start()
    await index.close()


async def test_a_query_that_is_given_up_does_not_stop_the_others(raw_index: VectorEngine) -> None:
    """One reads the file for all who wait."""
    await raw_index.put([vectored(f"m{number:03}") for number in range(300)])
    waiting = [asyncio.create_task(found(raw_index, limit=1)) for _ in range(5)]
    await asyncio.sleep(0)
    waiting[0].cancel()

    assert await asyncio.gather(*waiting[1:]) == [["m000"]] * 4


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    drawn=documents,
    chunks=st.lists(st.lists(st.sampled_from(CROSSES), min_size=1, max_size=3).map(tuple), min_size=25, max_size=25),
    within=withins,
    query=st.sampled_from(CROSSES),
    limit=st.sampled_from([1, 3, 100]),
)
async def test_a_query_sees_what_the_rule_of_visibility_says(
    raw_index: VectorEngine,
    *,
    drawn: list[IndexDocument],
    chunks: list[tuple[Vector, ...]],
    within: AccessFilter,
    query: Vector,
    limit: int,
) -> None:
    """D-43: one rule, whatever the engine; the order is by exact cosine, then id."""
    for workspace_id in (1, 2):
        await raw_index.delete(workspace_id, [f"m{number:02}" for number in range(31)])
    items = [EmbeddedDocument(document=document, vectors=own) for document, own in zip(drawn, chunks, strict=False)]
    await raw_index.put(items)

    assert rounded(await raw_index.search(query, access_filter=within, limit=limit)) == naive(items, query, within, limit)


class Machine(RuleBasedStateMachine):
    """Any order of writes, against a dict; a second instance looks on, and both are reopened at times."""

    url: str = "embedded:"

    def __init__(self) -> None:
        super().__init__()
        self.model: dict[tuple[int, str], EmbeddedDocument] = {}
        self.folder = tempfile.TemporaryDirectory()
        self.runner = asyncio.Runner()
        self.index, self.onlooker = self.opened(), self.opened()

    def opened(self) -> VectorEngine:
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
        items = [vectored(f"m{number}", *chunks, **fields) for number in memory_ids]
        self.model |= {(workspace_id, item.document.memory_id): item for item in items}
        self.runner.run(self.index.put(items))

    @rule(memory_ids=st.sets(st.integers(0, 10), max_size=5), workspace_id=st.sampled_from([1, 2]))
    def drop(self, memory_ids: set[int], workspace_id: int) -> None:
        """Forget some, known or not."""
        ids = [f"m{number}" for number in memory_ids]
        for memory_id in ids:
            self.model.pop((workspace_id, memory_id), None)
        self.runner.run(self.index.delete(workspace_id, ids))

    @rule()
    def reopen(self) -> None:
        """Restart."""
        self.runner.run(self.index.close())
        self.index = self.opened()

    @rule(
        query=st.sampled_from(CROSSES),
        limit=st.integers(1, 12),
        agent_id=st.sampled_from([None, "kim"]),
        tags=st.sampled_from([frozenset[str](), frozenset("a")]),
        workspace_id=st.sampled_from([1, 2]),
    )
    def near(self, query: Vector, limit: int, workspace_id: int, **fields: object) -> None:
        """Ask both."""
        within = everywhere(workspace_id, **fields)
        expected = naive(list(self.model.values()), query, within, limit)
        for index in (self.index, self.onlooker):
            assert rounded(self.runner.run(index.search(query, access_filter=within, limit=limit))) == expected

    @invariant()
    def counts(self) -> None:
        """Hold as many as were put and not dropped."""
        for workspace_id in (1, 2):
            mine = sum(1 for owner, _ in self.model if owner == workspace_id)
            assert self.runner.run(self.index.count(workspace_id)) == mine

    def teardown(self) -> None:
        """Let go of everything."""
        for index in (self.index, self.onlooker):
            self.runner.run(index.close())
        self.runner.close()
        self.folder.cleanup()


def test_any_order_of_writes_leaves_what_a_dict_would_hold(url: str) -> None:
    """The port, as a state machine."""

    class OfEngine(Machine):
        pass

    OfEngine.url = url
    run_state_machine_as_test(OfEngine, settings=settings(max_examples=15, stateful_step_count=15, deadline=None))


def test_an_engine_that_does_not_exist_refuses_to_start(tmp_path: Path) -> None:
    """D-02: a setting that cannot work is refused in one line, without what may be a password in it."""
    with pytest.raises(WrongSettings) as refusal:
        vectors.open("nothing://user:secret@host", data_dir=tmp_path, model="small/1", dimension=4)

    assert "secret" not in refusal.value.message


class TestTheEmbeddedEngine:
    """Properties of an engine with its own file."""

    @pytest.fixture
    def path(self, tmp_path: Path) -> Path:
        """The path of the engine's file."""
        return tmp_path / "vectors.db"

    @pytest.fixture
    async def opened(self, tmp_path: Path) -> AsyncIterator[Callable[[], VectorEngine]]:
        """Open it, as often as asked."""
        async with contextlib.AsyncExitStack() as stack:

            def open_it() -> VectorEngine:
                index = vectors.open("embedded:", data_dir=tmp_path, model="small/1", dimension=4)
                stack.push_async_callback(index.close)
                return index

            yield open_it

    @pytest.mark.parametrize("with_journal", [True, False])
    @pytest.mark.parametrize("while_in_use", [True, False])
    async def test_a_deleted_file_is_an_empty_index_to_fill_again(
        self, opened: Callable[[], VectorEngine], path: Path, while_in_use: bool, with_journal: bool
    ) -> None:
        """Derived stores may be deleted and rebuilt by brain:reindex (spec 4.4)."""
        index = opened()
        await index.put([vectored("a")])
        assert await found(index) == ["a"]
        if not while_in_use:
            await index.close()
            index = opened()

        remove(path, with_journal=with_journal)

        assert await found(index) == []
        await index.put([vectored("b")])
        assert await found(index) == ["b"]
        assert await found(opened()) == ["b"]

    async def test_a_damaged_file_says_what_to_do(self, opened: Callable[[], VectorEngine], path: Path) -> None:
        """D-46: the index is derived, so the way out is to build it anew; and then it works without a restart."""
        damage(path, at=0)
        index = opened()

        for call in (index.count(1), index.put([vectored()]), index.search(EAST, access_filter=everywhere(), limit=1), index.start()):
            with pytest.raises(EngineUnavailable, match=r"vectors\.db .*delete it.*rookery brain:reindex"):
                await call

        remove(path)
        await index.put([vectored("a")])
        assert await found(index) == ["a"]

    async def test_a_folder_that_cannot_be_is_an_engine_that_is_not_there(self, path: Path) -> None:
        """The port: one error, whatever the engine's own was."""
        (path.parent / "taken").touch()
        index = vectors.open("embedded:", data_dir=path.parent / "taken", model="small/1", dimension=4)

        with pytest.raises(EngineUnavailable, match="taken"):
            await index.start()
        await index.close()

    async def test_damage_within_the_file_is_told_in_the_same_words(self, opened: Callable[[], VectorEngine], path: Path) -> None:
        """D-46, for a file that opens well."""
        index = opened()
        await index.put([vectored(f"m{number}", *[EAST] * 20) for number in range(100)])
        await index.close()
        damage(path, at=4096)

        with pytest.raises(EngineUnavailable, match=r"vectors\.db .*delete it.*rookery brain:reindex"):
            await found(opened())

    async def test_whoever_missed_too_many_drops_reads_anew(
        self, opened: Callable[[], VectorEngine], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Word of a drop is kept for a while only; who has not heard it by then must not show the memory for ever."""
        monkeypatch.setattr("rookery.engines.vectors.vector_file._MAX_TOMBSTONES", 3)
        index, onlooker = opened(), opened()
        ids = [f"m{number}" for number in range(10)]
        await index.put([vectored(memory_id) for memory_id in ids])
        assert await found(onlooker) == ids

        for memory_id in ids[:8]:
            await index.delete(1, [memory_id])

        assert await found(onlooker) == ids[8:]
        await index.delete(1, ids[8:9])
        assert await found(onlooker) == await found(index) == ids[9:]

    async def test_what_sessions_leave_behind_is_cleared_away(self, opened: Callable[[], VectorEngine]) -> None:
        """Each session is a space of its own, and most of them are over; the slab is read anew when they outnumber the rest."""
        index = opened()
        ids = [f"m{number:04}" for number in range(1100)]
        await index.put([vectored(memory_id, session_id=memory_id) for memory_id in ids])
        assert await found(index, limit=1) == ids[:1]
        await index.delete(1, ids[1:])
        assert await found(index) == ids[:1]

        await index.put([vectored("new")])

        assert await found(index) == [ids[0], "new"]

    async def test_a_large_workspace_is_scored_by_several_threads(self, opened: Callable[[], VectorEngine]) -> None:
        """More rows than a block holds, of exact and distinct similarity: nothing is lost between threads."""
        rows = 2 * MAX_BLOCK_ROWS + 100
        angles = [math.pi * row / rows for row in range(rows)]
        order = random.Random(5).sample(range(rows), rows)
        await opened().put([vectored(f"m{number:05}", vector(math.cos(angles[number]), math.sin(angles[number]))) for number in order])

        assert await found(opened(), limit=100) == [f"m{number:05}" for number in range(100)]


def make_point(memory_id: str, *vectors_: Vector, org: str | None = None) -> Point:
    """Make what a slab holds of a memory."""
    space = (org, None, None, None, MemoryScope.SHARED.value, "observation", "manual")
    return Point(
        change=1, memory_id=memory_id, space=space, tags=(), confidence=0.5, created_at=0, expires_at=None, vectors=vectors_ or (EAST,)
    )


def nearest(slab: Segment, limit: int = 1000) -> list[str]:
    """Return what is near to the east."""
    found_ = slab.take_snapshot(everywhere()).find_nearest(np.frombuffer(EAST, "<f4"), limit=limit, helpers=None)
    return [near.memory_id for near in found_]


def test_dead_rows_are_compacted_before_they_are_many() -> None:
    """A memory that is put often must not grow the slab: at most a quarter of a block is dead."""
    slab = Segment(4)
    ids = [f"m{number:03}" for number in range(400)]
    slab.apply(deleted_ids=[], points=[make_point(memory_id) for memory_id in ids])
    for turn in range(20):
        slab.apply(deleted_ids=[], points=[make_point(memory_id, *[EAST] * (1 + turn % 2)) for memory_id in ids[::3]])
        assert slab.row_count <= 800
    slab.apply(deleted_ids=ids[100:], points=[])

    assert nearest(slab) == ids[:100]
    assert slab.compute_similarities(np.frombuffer(EAST, "<f4"), ids) == dict.fromkeys(ids[:100], 1.0)
    slab.apply(deleted_ids=ids, points=[])
    assert slab.row_count == 0
    assert nearest(slab) == []


def test_a_view_goes_on_seeing_what_it_saw() -> None:
    """A query reads without a lock while others write, so what it reads must not change under it."""
    slab = Segment(4)
    ids = [f"m{number:03}" for number in range(300)]
    slab.apply(deleted_ids=[], points=[make_point(memory_id) for memory_id in ids])
    view = slab.take_snapshot(everywhere())
    slab.apply(deleted_ids=ids[::2], points=[make_point(memory_id, NORTH) for memory_id in ids[1::2]])

    seen = view.find_nearest(np.frombuffer(EAST, "<f4"), limit=1000, helpers=None)

    assert seen == [VectorHit(memory_id=memory_id, similarity=1.0) for memory_id in ids]


def test_a_memory_of_more_chunks_than_a_block_has_one_of_its_own() -> None:
    """Chunks of a memory lie side by side."""
    slab = Segment(4)
    slab.apply(deleted_ids=[], points=[make_point("a"), make_point("book", *[NORTH] * MAX_BLOCK_ROWS, EAST), make_point("b")])

    assert nearest(slab, 3) == ["a", "b", "book"]


def test_dictionaries_of_what_is_gone_are_noticed() -> None:
    """Each session is a space of its own, and most of them are over."""
    slab = Segment(4)
    for number in range(1100):
        slab.apply(deleted_ids=["a"], points=[make_point("a", org=f"org {number}")])

    assert slab.has_stale_dictionaries
    assert ColumnDict().entry_count < 10
