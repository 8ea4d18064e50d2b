"""IVF search of a large workspace: inverted lists in a mapped file, and newer vectors beside it."""

from __future__ import annotations

import asyncio
import itertools
import tempfile
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from rookery.engines.vectors.embedded import EmbeddedVectorIndex
from rookery.engines.vectors.search import IndexLimits
from rookery.memory.models import AccessFilter, EmbeddedDocument, IndexDocument, Vector
from rookery.memory.visibility import build_vector_filter
from tests.conftest import eventually
from tests.engines.conftest import (
    CROSSES,
    EAST,
    NOW,
    access_filters,
    compute_similarities,
    cosine,
    documents,
    find_ids,
    make_embedded,
    make_filter,
    round_hits,
    search_exhaustively,
)
from tests.engines.ivf import OpenIndex, build_ivf_file, clustered_vectors, open_index

ALWAYS_LISTS = IndexLimits(min_visited=1, visited_divisor=1000, candidates_per_result=1, max_exhaustive=0, exhaustive_root_factor=0)
"""Limits that make a search use the lists, and only few of them, also in small workspaces."""


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    drawn_documents=documents,
    chunks=st.lists(st.lists(st.sampled_from(CROSSES), min_size=1, max_size=3).map(tuple), min_size=25, max_size=25),
    access_filter=access_filters,
    query=st.sampled_from(CROSSES),
    limit=st.sampled_from([1, 3, 100]),
    listed_count=st.integers(1, 25),
)
async def test_lists_and_newer_vectors_together_follow_the_visibility_rule(
    *,
    drawn_documents: list[IndexDocument],
    chunks: list[tuple[Vector, ...]],
    access_filter: AccessFilter,
    query: Vector,
    limit: int,
    listed_count: int,
) -> None:
    """Hits of both are sorted by exact cosine, then id."""
    items = [
        EmbeddedDocument(document=document, vectors=chunk_vectors) for document, chunk_vectors in zip(drawn_documents, chunks, strict=False)
    ]
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        index = open_index(folder)
        if items:
            await index.put(items[:listed_count])
            build_ivf_file(folder, workspace_id=items[0].document.workspace_id)
        await index.put(items[listed_count:])
        await index.close()
        index = open_index(folder)

        hits = await index.search(query, where=build_vector_filter(access_filter), limit=limit)

        await index.close()
    assert round_hits(hits) == search_exhaustively(items, query, access_filter, limit)


class Machine(RuleBasedStateMachine):
    """A state machine of writes and builds, compared with a dict; a second instance is opened at times."""

    def __init__(self) -> None:
        super().__init__()
        self.model: dict[str, EmbeddedDocument] = {}
        self.folder = tempfile.TemporaryDirectory()
        self.runner = asyncio.Runner()

    @initialize()
    def fill_and_build(self) -> None:
        """Store vectors and build the lists."""
        self.index = self.open_vectors()
        self.put([0, 1], [EAST], frozenset("a"))
        self.list_and_reopen()

    def open_vectors(self) -> EmbeddedVectorIndex:
        """Open the machine's index."""

        async def open_it() -> EmbeddedVectorIndex:
            return open_index(Path(self.folder.name))

        return self.runner.run(open_it())

    @rule(
        numbers=st.lists(st.integers(0, 9), min_size=1, max_size=6),
        chunks=st.lists(st.sampled_from(CROSSES), min_size=1, max_size=4),
        tags=st.sampled_from([frozenset[str](), frozenset("a"), frozenset("ab")]),
    )
    def put(self, numbers: list[int], chunks: list[Vector], tags: frozenset[str]) -> None:
        """Write new or listed memories."""
        items = [make_embedded(f"m{number}", *chunks, tags=tuple(sorted(tags)), org=f"org{number % 3}") for number in numbers]
        self.model |= {item.document.memory_id: item for item in items}
        self.runner.run(self.index.put(items))

    @rule(numbers=st.sets(st.integers(0, 10), max_size=5))
    def delete(self, numbers: set[int]) -> None:
        """Delete memories, known or not."""
        ids = [f"m{number}" for number in numbers]
        for memory_id in ids:
            self.model.pop(memory_id, None)
        self.runner.run(self.index.drop(1, ids))

    @rule()
    def list_and_reopen(self) -> None:
        """Build the lists from the previous lists and newer vectors, and reopen the index."""
        build_ivf_file(Path(self.folder.name))
        self.runner.run(self.index.close())
        self.index = self.open_vectors()

    @rule(
        query=st.sampled_from(CROSSES),
        limit=st.integers(1, 12),
        org=st.sampled_from([None, "org1"]),
        tags=st.sampled_from([frozenset[str](), frozenset("a")]),
    )
    def check_search(self, query: Vector, limit: int, **fields: object) -> None:
        """Search the running and a new instance."""
        access_filter = make_filter(1, **fields)
        expected = search_exhaustively(list(self.model.values()), query, access_filter, limit)
        fresh_index = self.open_vectors()
        for index in (self.index, fresh_index):
            assert round_hits(self.runner.run(index.search(query, where=build_vector_filter(access_filter), limit=limit))) == expected
            similarities = self.runner.run(compute_similarities(index, query, [f"m{number}" for number in range(11)]))
            all_hits = search_exhaustively(list(self.model.values()), query, make_filter(1), 100)
            assert {memory_id: round(score, 5) for memory_id, score in similarities.items()} == {
                hit.memory_id: hit.similarity for hit in all_hits
            }
        self.runner.run(fresh_index.close())

    def teardown(self) -> None:
        """Close the index and delete its folder."""
        self.runner.run(self.index.close())
        self.runner.close()
        self.folder.cleanup()


def test_any_order_of_writes_and_builds_equals_a_dict() -> None:
    """New lists are built from the previous ones."""
    run_state_machine_as_test(Machine, settings=settings(max_examples=8, stateful_step_count=15, deadline=None))


async def test_a_search_with_a_large_limit_returns_every_match_from_the_lists(tmp_path: Path) -> None:
    """A search returns as many hits as match, up to the limit, with every filter."""
    rows = clustered_vectors(600)
    items = [make_embedded(f"m{number:03}", row, org=f"org{number % 5}") for number, row in enumerate(rows)]
    index = open_index(tmp_path, dimension=16)
    await index.put(items)
    build_ivf_file(tmp_path, dimension=16)
    await index.close()
    index = open_index(tmp_path, dimension=16, limits=ALWAYS_LISTS)

    for access_filter, count in ((make_filter(), 600), (make_filter(org="org2"), 120), (make_filter(since=NOW + timedelta(1)), 0)):
        hits = await index.search(rows[0], where=build_vector_filter(access_filter), limit=1000)
        assert len(hits) == count
        assert [hit.similarity for hit in hits] == sorted((hit.similarity for hit in hits), reverse=True)
        for hit in hits[:50]:
            assert hit.similarity == pytest.approx(cosine(rows[0], rows[int(hit.memory_id[1:])]), abs=1e-6)
    await index.close()


async def test_deleted_vectors_of_the_lists_take_no_places(tmp_path: Path) -> None:
    """The lists keep deleted vectors until they are rebuilt, but a search returns as many others as without them."""
    rows = clustered_vectors(600)
    index = open_index(tmp_path, dimension=16)
    await index.put([make_embedded(f"m{number:03}", row, org=f"org{number % 2}") for number, row in enumerate(rows)])
    build_ivf_file(tmp_path, dimension=16)
    await index.close()
    index = open_index(tmp_path, dimension=16, limits=ALWAYS_LISTS)
    nearest = await find_ids(index, rows[0], limit=200)
    deleted, replaced = nearest[:100], nearest[100:150]
    await index.drop(1, deleted)
    await index.put([make_embedded(memory_id, rows[0], org="org0") for memory_id in replaced])

    found = await find_ids(index, rows[0], limit=300)
    found_in_org = await find_ids(index, rows[0], limit=300, access_filter=make_filter(org="org0"))

    assert found[:50] == sorted(replaced)
    assert len(found) == len(set(found)) == 300
    assert not set(deleted) & set(found)
    assert len(found_in_org) == len({f"m{n:03}" for n in range(0, 600, 2)} - set(deleted) | set(replaced))
    await index.close()


async def test_many_near_chunks_of_one_memory_do_not_displace_others_from_the_lists(tmp_path: Path) -> None:
    """The limit counts memories, also if one has more of the nearest vectors than are requested."""
    rows = clustered_vectors(400)
    index = open_index(tmp_path, dimension=16)
    await index.put([make_embedded(f"m{number:03}", row) for number, row in enumerate(rows)])
    await index.put([make_embedded("book", *[rows[0]] * 300)])
    build_ivf_file(tmp_path, dimension=16)
    await index.close()
    index = open_index(tmp_path, dimension=16, limits=ALWAYS_LISTS)

    assert (await find_ids(index, rows[0], limit=401))[:2] == ["book", "m000"]
    assert len(await find_ids(index, rows[0], limit=401)) == 401
    assert len(await find_ids(index, rows[0], limit=20)) == 20
    await index.close()


async def test_the_lists_find_most_of_the_nearest_without_scoring_all(tmp_path: Path) -> None:
    """recall@10 is at least 0.97 of the exact search, although only a tenth of the rows is scored."""
    limits = IndexLimits(min_visited=400, max_exhaustive=100, exhaustive_root_factor=0)
    rows = clustered_vectors(4000)
    items = [make_embedded(f"m{number:04}", row, org=f"org{number % 8}") for number, row in enumerate(rows)]
    index = open_index(tmp_path, dimension=16)
    await index.put(items)
    queries = clustered_vectors(60, seed=4)
    exact = [
        set(await find_ids(index, query, access_filter=access_filter))
        for query in queries
        for access_filter in (make_filter(), make_filter(org="org1"))
    ]
    build_ivf_file(tmp_path, dimension=16)
    await index.close()
    index = open_index(tmp_path, dimension=16, limits=limits)

    from_lists = [
        set(await find_ids(index, query, access_filter=access_filter))
        for query in queries
        for access_filter in (make_filter(), make_filter(org="org1"))
    ]

    await index.close()
    hits = sum(len(exact_ids & found_ids) for exact_ids, found_ids in zip(exact, from_lists, strict=True))
    assert hits >= 0.97 * 10 * len(exact)


async def test_a_growing_workspace_gets_lists_while_it_is_searched(
    open_vectors: OpenIndex,
) -> None:
    """A separate process builds the lists; newer vectors are found immediately, deleted ones are not."""
    index = open_vectors(IndexLimits(max_exact_floats=200 * 4))
    ids = [f"m{number:03}" for number in range(300)]
    await index.put([make_embedded(memory_id, EAST) for memory_id in ids])
    assert await find_ids(index, limit=400) == ids

    for number in itertools.count(300):
        await index.put([make_embedded(f"m{number:03}", EAST)])
        ids.append(f"m{number:03}")
        assert await find_ids(index, limit=10_000) == ids
        if index.listed_rows:
            break
        await asyncio.sleep(0.01)

    await index.drop(1, ids[:100])
    assert await find_ids(index, limit=10_000) == ids[100:]
    assert await find_ids(open_vectors(), limit=10_000) == ids[100:]


async def test_lists_are_rebuilt_when_there_are_many_newer_vectors(open_vectors: OpenIndex, tmp_path: Path) -> None:
    """The number of newer vectors stays limited, and the previous file is deleted."""
    index = open_vectors()
    await index.put([make_embedded(f"m{number:03}") for number in range(100)])
    first_file = build_ivf_file(tmp_path)
    await index.put([make_embedded(f"m{number:03}") for number in range(60, 200)])

    index = open_vectors(IndexLimits(max_new_floats=50 * 4))
    assert len(await find_ids(index, limit=500)) == 200

    await eventually(lambda: index.listed_rows == 200)
    assert not first_file.exists()
    assert await find_ids(index, limit=500) == [f"m{number:03}" for number in range(200)]
