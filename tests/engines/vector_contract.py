"""The contract of `VectorIndex`: the test of an engine inherits `VectorContract` and says how to open the engine."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path
from typing import Protocol

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import rule

from rookery.memory.models import AccessFilter, EmbeddedDocument, IndexDocument, MemoryScope, Vector, VectorHit
from rookery.memory.ports import ModelVersion, VectorIndex
from rookery.memory.visibility import AllOf, AnyOf, Condition, Conditions, Range, VectorFilter, build_vector_filter
from tests.conftest import eventually
from tests.engines.conftest import (
    CROSSES,
    EAST,
    NOW,
    CloseAtEnd,
    access_filters,
    compute_similarities,
    documents,
    find_ids,
    make_document,
    make_embedded,
    make_filter,
    round_hits,
    search_exhaustively,
    vector,
)
from tests.engines.engine_contracts import EngineContract
from tests.engines.index_contract import IndexMachine, run_machine

NORTH, UP = vector(0, 1), vector(0, 0, 1)
NORTHEAST = vector(1, 1)


class OpenIndex(Protocol):
    """Opens an instance of the engine, which is closed at the end of the test."""

    def __call__(self, *, model: str = "small/1", dimension: int = 4) -> VectorIndex: ...


class VectorContract(EngineContract):
    """The tests of every engine. A subclass overrides `open_engine`; pytest then runs all tests on its engine."""

    port = "VectorIndex"

    def open_engine(self, folder: Path, *, model: str, dimension: int) -> VectorIndex:
        """Return another instance of the index that belongs to *folder*, as a separate process or a restart would open."""
        raise AssertionError("override this method")

    @pytest.fixture
    def open_index(self, tmp_path: Path, close_at_end: CloseAtEnd) -> OpenIndex:
        """Return a function that opens another instance of the same index."""
        return lambda *, model="small/1", dimension=4: close_at_end(self.open_engine(tmp_path, model=model, dimension=dimension))

    @pytest.fixture
    def raw_index(self, open_index: OpenIndex) -> VectorIndex:
        """Return an empty index of four dimensions."""
        return open_index()

    async def test_the_most_similar_memory_comes_first(self, raw_index: VectorIndex) -> None:
        """Relevance is the similarity of vectors."""
        await raw_index.put([make_embedded("north", NORTH), make_embedded("east", EAST), make_embedded("between", NORTHEAST)])

        hits = await raw_index.search(EAST, where=build_vector_filter(make_filter()), limit=2)

        assert round_hits(hits) == [
            VectorHit(memory_id="east", similarity=1.0),
            VectorHit(memory_id="between", similarity=round(0.5**0.5, 5)),
        ]

    async def test_equally_similar_memories_are_sorted_by_id(self, raw_index: VectorIndex) -> None:
        """The order is total, with the id as last criterion."""
        ids = [f"m{number:03}" for number in range(40)]
        await raw_index.put([make_embedded(memory_id, EAST) for memory_id in reversed(ids)])

        assert await find_ids(raw_index, limit=7) == ids[:7]

    async def test_a_memory_has_the_similarity_of_its_best_chunk_and_is_returned_once(self, raw_index: VectorIndex) -> None:
        """Long content has several vectors."""
        await raw_index.put([make_embedded("long", NORTH, EAST, EAST, UP), make_embedded("short", NORTHEAST)])

        assert await find_ids(raw_index, limit=2) == ["long", "short"]
        assert await raw_index.count(1) == 2

    async def test_chunks_of_one_memory_do_not_displace_other_memories(self, raw_index: VectorIndex) -> None:
        """The limit counts memories, not chunks."""
        await raw_index.put([make_embedded("many chunks", *[EAST] * 50), make_embedded("b", NORTHEAST), make_embedded("c", NORTH)])

        assert await find_ids(raw_index, limit=3) == ["many chunks", "b", "c"]

    async def test_putting_again_replaces_all_vectors(self, raw_index: VectorIndex) -> None:
        """The index has only the current vectors."""
        await raw_index.put([make_embedded("a", EAST, NORTH)])
        await raw_index.put([make_embedded("a", UP)])

        assert await raw_index.search(EAST, where=build_vector_filter(make_filter()), limit=5) == [VectorHit(memory_id="a", similarity=0.0)]
        assert await compute_similarities(raw_index, UP, ["a"]) == {"a": 1.0}

    async def test_putting_repeatedly_changes_nothing(self, raw_index: VectorIndex) -> None:
        """A finished job may run again."""
        for _ in range(3):
            await raw_index.put([make_embedded("a", EAST, NORTH), make_embedded("b", NORTH)])

        assert await raw_index.count(1) == 2
        assert await find_ids(raw_index) == ["a", "b"]

    async def test_the_last_of_two_documents_of_one_memory_counts(self, raw_index: VectorIndex) -> None:
        """A batch may contain a memory twice."""
        await raw_index.put([make_embedded("a", EAST), make_embedded("a", NORTH)])

        assert await compute_similarities(raw_index, EAST, ["a"]) == {"a": 0.0}

    async def test_a_deleted_memory_is_not_found_and_unknown_ids_are_ignored(self, raw_index: VectorIndex) -> None:
        """A deletion may be repeated."""
        await raw_index.put([make_embedded("a"), make_embedded("b")])

        for _ in range(2):
            await raw_index.drop(1, ["a", "never seen"])

        assert await find_ids(raw_index) == ["b"]
        assert await raw_index.count(1) == 1
        await raw_index.put([make_embedded("a")])
        assert await find_ids(raw_index) == ["a", "b"]

    async def test_workspaces_never_mix(self, raw_index: VectorIndex) -> None:
        """The workspace is a strict boundary, also for memories with the same id."""
        await raw_index.put(
            [make_embedded("a", EAST), make_embedded("a", NORTH, workspace_id=2), make_embedded("b", NORTH, workspace_id=2)]
        )
        await raw_index.drop(1, ["b"])

        assert await raw_index.search(EAST, where=build_vector_filter(make_filter(1)), limit=9) == [
            VectorHit(memory_id="a", similarity=1.0)
        ]
        assert await raw_index.search(NORTH, where=build_vector_filter(make_filter(2)), limit=1) == [
            VectorHit(memory_id="a", similarity=1.0)
        ]
        assert await compute_similarities(raw_index, EAST, ["a", "b"]) == {"a": 1.0}
        assert [await raw_index.count(workspace_id) for workspace_id in (1, 2, 3)] == [1, 2, 0]
        assert await find_ids(raw_index, access_filter=make_filter(3)) == []

    async def test_similarities_of_unknown_memories_are_left_out(self, raw_index: VectorIndex) -> None:
        """A memory found by keyword gets its similarity, if it has vectors."""
        await raw_index.put([make_embedded("a", NORTH, EAST)])

        assert await compute_similarities(raw_index, EAST, ["a", "b"]) == {"a": 1.0}
        assert await compute_similarities(raw_index, EAST, []) == {}

    @pytest.mark.parametrize(
        "invalid_vector",
        [np.array([np.nan, 0, 0, 0], "<f4").tobytes(), np.array([0, np.inf, 0, 0], "<f4").tobytes(), vector(1, width=5), b"", b"abc"],
        ids=["nan", "inf", "wide", "empty", "torn"],
    )
    async def test_an_invalid_vector_rejects_the_whole_batch(self, raw_index: VectorIndex, invalid_vector: Vector) -> None:
        """Vectors that cannot be compared must not be stored."""
        with pytest.raises(ValueError, match="vector"):
            await raw_index.put([make_embedded("good"), make_embedded("bad", EAST, invalid_vector)])
        with pytest.raises(ValueError, match="vector"):
            await raw_index.search(invalid_vector, where=build_vector_filter(make_filter()), limit=1)

        assert await raw_index.count(1) == 0

    async def test_a_document_without_vectors_is_rejected(self, raw_index: VectorIndex) -> None:
        """A document has at least one chunk."""
        with pytest.raises(ValueError, match="at least one"):
            await raw_index.put([EmbeddedDocument(document=make_document(), vectors=())])

    async def test_vectors_of_another_model_are_not_searched(self, open_index: OpenIndex) -> None:
        """Vectors of different models or dimensions are never mixed."""
        await open_index(model="small/1").put([make_embedded("old"), make_embedded("kept")])
        other_model = open_index(model="small/2")
        await other_model.put([make_embedded("old", NORTH)])

        assert await find_ids(other_model) == ["old"]
        assert await other_model.count(1) == 1
        assert await compute_similarities(other_model, EAST, ["old", "kept"]) == {"old": 0.0}
        assert await find_ids(open_index(model="small/1")) == ["kept", "old"]
        assert await find_ids(open_index(model="small/1", dimension=5), vector(1, width=5)) == []

    async def test_the_next_query_finds_what_another_instance_committed(self, open_index: OpenIndex) -> None:
        """Several processes share the data folder; snapshots follow its change counter."""
        first_index, second_index = open_index(), open_index()
        for number in range(5):
            await first_index.put([make_embedded(f"m{number}", EAST)])
            assert await find_ids(second_index) == [f"m{number}"]
            await second_index.put([make_embedded(f"n{number}", EAST)])
            assert await find_ids(first_index) == [f"m{number}", f"n{number}"]
            await first_index.drop(1, [f"n{number}"])
            await second_index.drop(1, [f"m{number}"])
            assert await find_ids(first_index) == await find_ids(second_index) == []

    async def test_concurrent_queries_find_either_the_old_or_the_new_vectors(self, raw_index: VectorIndex) -> None:
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

    async def test_an_index_can_be_closed_while_it_loads(self, open_index: OpenIndex) -> None:
        """An interrupted start leaves no task."""
        await open_index().put([make_embedded(f"m{number:03}", EAST) for number in range(100)])
        index = open_index()
        await index.start()
        await index.close()

    async def test_a_cancelled_query_does_not_stop_the_others(self, raw_index: VectorIndex) -> None:
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
        self,
        raw_index: VectorIndex,
        *,
        drawn_documents: list[IndexDocument],
        chunks: list[tuple[Vector, ...]],
        access_filter: AccessFilter,
        query: Vector,
        limit: int,
    ) -> None:
        """Every engine applies the same rule; hits are sorted by exact cosine, then id."""
        for workspace_id in (1, 2):
            await raw_index.drop(workspace_id, [f"m{number:02}" for number in range(31)])
        items = [
            EmbeddedDocument(document=document, vectors=chunk_vectors)
            for document, chunk_vectors in zip(drawn_documents, chunks, strict=False)
        ]
        await raw_index.put(items)

        assert round_hits(await raw_index.search(query, where=build_vector_filter(access_filter), limit=limit)) == search_exhaustively(
            items, query, access_filter, limit
        )

    async def test_vectors_are_fetched_in_the_order_of_their_chunks(self, raw_index: VectorIndex) -> None:
        """Consolidation compares chunks; unknown ids are left out."""
        await raw_index.put([make_embedded("a", EAST, NORTH, EAST), make_embedded("b", UP), make_embedded("a", UP, workspace_id=2)])

        assert await raw_index.fetch(1, ["a", "unknown"]) == {"a": (EAST, NORTH, EAST)}
        assert await raw_index.fetch(1, []) == {}

    async def test_a_memory_is_dropped_with_the_vectors_of_every_model(self, open_index: OpenIndex) -> None:
        """A deleted memory leaves no vectors of an earlier model."""
        old, new = open_index(model="small/1"), open_index(model="small/2")
        await old.put([make_embedded("a"), make_embedded("b")])
        await new.put([make_embedded("a")])
        await new.drop(1, ["a"])

        assert (await find_ids(old), await find_ids(new)) == (["b"], [])

    async def test_vectors_of_one_version_are_dropped(self, open_index: OpenIndex) -> None:
        """The vectors of a retired model are deleted, and those of other models, dimensions and workspaces stay."""
        old, new, other = open_index(model="small/1"), open_index(model="small/2"), open_index(model="small/1", dimension=5)
        ids = [f"m{number:04}" for number in range(600)]
        await old.put([make_embedded(memory_id) for memory_id in ids] + [make_embedded("elsewhere", workspace_id=2)])
        await new.put([make_embedded(memory_id) for memory_id in ids])
        await other.put([make_embedded("a", vector(1, width=5))])
        for _ in range(2):
            await new.drop_version(1, ModelVersion(model="small/1", dimension=4))

        assert [await index.count(1) for index in (old, new, other)] == [0, 600, 1]
        assert (await find_ids(new, limit=600), await find_ids(open_index(model="small/1"))) == (ids, [])
        assert await old.count(2) == 1

    async def test_a_dropped_version_can_be_written_again(self, open_index: OpenIndex) -> None:
        """After a change back, only the new vectors are found."""
        index = open_index()
        await index.put([make_embedded("a"), make_embedded("b", NORTH)])
        assert await find_ids(index) == ["a", "b"]
        await index.drop_version(1, ModelVersion(model="small/1", dimension=4))
        assert await find_ids(index) == []
        await index.put([make_embedded("b")])

        assert await find_ids(index) == await find_ids(open_index()) == ["b"]
        assert await compute_similarities(index, EAST, ["a", "b"]) == {"b": 1.0}

    async def test_vectors_written_while_a_version_is_dropped_stay(self, open_index: OpenIndex) -> None:
        """Another process may use the version again."""
        index, other_process = open_index(), open_index()
        await index.put([make_embedded(f"m{number:04}", *[NORTH] * 3) for number in range(1200)])

        async def has_begun() -> bool:
            return dropping.done() or await other_process.count(1) < 1200

        async with asyncio.TaskGroup() as tasks:
            dropping = tasks.create_task(index.drop_version(1, ModelVersion(model="small/1", dimension=4)))
            await eventually(has_begun)
            for number in range(20):
                await other_process.put([make_embedded(f"n{number:02}", EAST)])

        assert await find_ids(open_index(), limit=100) == [f"n{number:02}" for number in range(20)]

    @pytest.mark.parametrize(
        ("required", "expected"),
        [
            ({"memory_id": AnyOf(frozenset({"a", "c"}))}, ["a", "c"]),
            ({"memory_id": AnyOf(frozenset({"a", "c"})), "type": AnyOf(frozenset({"fact"}))}, ["c"]),
            ({"org": AnyOf(frozenset({None, "zoo"}))}, ["b", "c"]),
            ({"org": AnyOf(frozenset())}, []),
            ({"facets": AllOf(frozenset({"x", "y"}))}, ["b"]),
            ({"confidence": Range(minimum=0.4, end=0.9)}, ["b", "c"]),
            ({"expires_at": Range(minimum=1)}, ["c"]),
            ({"expires_at": Range(minimum=1, or_missing=True)}, ["a", "b", "c"]),
        ],
    )
    async def test_a_search_meets_every_condition(
        self, raw_index: VectorIndex, required: dict[str, Condition], expected: list[str]
    ) -> None:
        """Filters are data: conditions by column."""
        await raw_index.put(
            [
                make_embedded("a", EAST, type="decision", confidence=0.9),
                make_embedded("b", EAST, org=None, tags=("x", "y"), confidence=0.5),
                make_embedded("c", EAST, org="zoo", type="fact", tags=("x",), confidence=0.4, expires_at=NOW),
            ]
        )
        where = VectorFilter(workspace_id=1, required=required)

        assert [hit.memory_id for hit in await raw_index.search(EAST, where=where, limit=9)] == expected

    async def test_one_of_the_alternatives_is_enough(self, raw_index: VectorIndex) -> None:
        """The access filter has an alternative for each scope."""
        await raw_index.put(
            [make_embedded("a", EAST), make_embedded("b", EAST, org="zoo"), make_embedded("c", EAST, org="zoo", project="p")]
        )
        zoo, api = AnyOf(frozenset({"zoo"})), AnyOf(frozenset({"api"}))

        cases: tuple[tuple[tuple[Conditions, ...] | None, list[str]], ...] = (
            (({"org": zoo, "project": api}, {"org": AnyOf(frozenset({"acme"}))}), ["a", "b"]),
            (({},), ["a", "b", "c"]),
            ((), []),
            (None, ["a", "b", "c"]),
        )
        for alternatives, expected in cases:
            where = VectorFilter(workspace_id=1, alternatives=alternatives)
            assert [hit.memory_id for hit in await raw_index.search(EAST, where=where, limit=9)] == expected

    def test_any_order_of_writes_equals_a_dict(self) -> None:
        """The state machine compares every search with a dict."""
        contract = self

        class EngineMachine(_Machine):
            def open_engine(self, folder: Path) -> VectorIndex:
                return contract.open_engine(folder, model="small/1", dimension=4)

        run_machine(EngineMachine)


class _Machine(IndexMachine[VectorIndex, EmbeddedDocument]):
    """The writes and searches of a vector index."""

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
            assert round_hits(self.runner.run(index.search(query, where=build_vector_filter(access_filter), limit=limit))) == expected
