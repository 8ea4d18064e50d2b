"""The term cache of a large full-text store, which returns the same results as SQLite."""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Protocol

import pytest
from hypothesis import given, settings
from structlog.testing import capture_logs

from rookery.engines.texts.embedded import EmbeddedTextIndex, QuestionCounts
from rookery.memory.models import AccessFilter, IndexDocument, MemoryScope, TextQuery
from rookery.memory.visibility import is_visible
from tests.conftest import eventually
from tests.engines.conftest import NOW, SMALL_CACHE, CloseAtEnd, access_filters, documents, make_document, make_filter


class OpenIndex(Protocol):
    """Opens another instance of the same index, as a separate process or a restart would."""

    def __call__(self, **cache_limits: float) -> EmbeddedTextIndex: ...


@pytest.fixture
def open_index(tmp_path: Path, close_at_end: CloseAtEnd) -> OpenIndex:
    """Return a function that opens an index with a cache for few documents; *cache_limits* differ from `SMALL_CACHE`."""

    def open_it(**cache_limits: float) -> EmbeddedTextIndex:
        limits = replace(SMALL_CACHE, cache=replace(SMALL_CACHE.cache, **cache_limits))
        return close_at_end(EmbeddedTextIndex(tmp_path / "texts.db", limits=limits))

    return open_it


def make_question(*words: str) -> TextQuery:
    """Return a query as recall sends it."""
    return TextQuery(any_of=words, is_question=True)


async def put_and_cache(index: EmbeddedTextIndex, *documents: IndexDocument) -> None:
    """Store documents and wait until the cache has them."""
    await index.start()
    await index.put(documents)
    await eventually(index.is_cached)


async def find_ids(index: EmbeddedTextIndex, query: TextQuery, *, access_filter: AccessFilter | None = None, limit: int) -> list[str]:
    """Return the ids that match, best first."""
    return [hit.memory_id for hit in await index.search(query, access_filter=access_filter or make_filter(), limit=limit)]


def make_documents(number: int) -> list[IndexDocument]:
    """Return documents of which the first ones contain the word more often."""
    return [make_document(f"m{index}", content=f"heron {'heron ' * (number - index)}number {index}") for index in range(number)]


async def test_the_cache_returns_the_same_order_as_sqlite(open_index: OpenIndex) -> None:
    """The cache is for stores with up to a million memories."""
    index = open_index()
    await put_and_cache(index, *make_documents(8), make_document("other", content="pelican"))
    from_sqlite = await find_ids(index, TextQuery(any_of=("heron",)), limit=8)

    assert await find_ids(index, make_question("heron"), limit=8) == from_sqlite
    assert index.question_counts == QuestionCounts(from_cache=1)


@settings(max_examples=15)
@given(drawn_documents=documents, access_filter=access_filters)
async def test_the_cache_follows_the_visibility_rule(
    tmp_path_factory: pytest.TempPathFactory, drawn_documents: list[IndexDocument], access_filter: AccessFilter
) -> None:
    """The cache and SQLite apply the same visibility rule."""
    stored = [replace(document, content="heron on the roof") for document in drawn_documents]
    expected = sorted(document.memory_id for document in stored if is_visible(access_filter, document))
    index = EmbeddedTextIndex(tmp_path_factory.mktemp("texts") / "texts.db", limits=SMALL_CACHE)
    try:
        await put_and_cache(index, *stored)
        ids = await find_ids(index, make_question("heron"), access_filter=access_filter, limit=max(1, len(expected)))
    finally:
        await index.close()

    assert sorted(ids) == expected


async def test_a_question_does_not_find_own_memories_of_other_agents(open_index: OpenIndex) -> None:
    """If nearly all documents are visible, the cache searches all and filters the hits."""
    index = open_index()
    secret = make_document("lee's", memory_scope=MemoryScope.AGENT, agent_id="lee", content="heron heron heron")
    expired = make_document("old", content="heron heron heron", expires_at=NOW)
    await put_and_cache(index, *make_documents(6), secret, expired, make_document("theirs", workspace_id=2, content="heron"))

    assert sorted(await find_ids(index, make_question("heron"), access_filter=make_filter(agent_id="kim"), limit=6)) == [
        f"m{number}" for number in range(6)
    ]
    assert "lee's" in await find_ids(index, make_question("heron"), access_filter=make_filter(agent_id="lee"), limit=6)
    assert index.question_counts == QuestionCounts(from_cache=2)


async def test_documents_newer_than_the_cache_are_found(open_index: OpenIndex) -> None:
    """A query finds every write that returned before it."""
    first = open_index()
    await put_and_cache(first, *make_documents(4))
    await first.close()
    index = open_index(update_after_rows=10_000)
    await index.start()
    await index.put([make_document("new", content="a heron just came"), make_document("m0", content="nothing of the kind")])
    await index.drop(1, ["m1"])

    assert sorted(await find_ids(index, make_question("heron"), limit=3)) == ["m2", "m3", "new"]
    assert index.question_counts.from_cache == 1


async def test_adjacent_words_have_a_higher_score_in_the_cache(open_index: OpenIndex) -> None:
    """The order is that of SQLite."""
    index = open_index()
    distant = [make_document(f"apart{number}", content=f"the heron by the river slept all night {number}") for number in range(5)]
    await put_and_cache(index, *distant, make_document("beside", content="the night heron by the river slept all week"))

    assert (await find_ids(index, make_question("night", "heron"), limit=6))[0] == "beside"
    assert index.question_counts.from_cache == 1


async def test_sqlite_is_used_if_the_cache_finds_too_few(open_index: OpenIndex) -> None:
    """The cache must not reduce the results of a question."""
    index = open_index()
    await put_and_cache(index, *make_documents(3))

    assert len(await find_ids(index, make_question("heron"), limit=50)) == 3
    assert index.question_counts == QuestionCounts(from_sqlite=1)


async def test_deleted_documents_are_removed_from_the_cache(open_index: OpenIndex) -> None:
    """Deleted memories are removed from all stores."""
    index = open_index()
    await put_and_cache(index, *make_documents(6))
    await index.drop(1, ["m0", "m1"])
    await index.put([make_document("m2", content="a pelican now")])
    await eventually(index.is_cached)

    assert sorted(await find_ids(index, make_question("heron"), limit=3)) == ["m3", "m4", "m5"]
    assert await find_ids(index, make_question("pelican"), limit=1) == ["m2"]
    assert index.question_counts.from_cache == 2


async def test_the_cache_is_not_rebuilt_after_a_restart(open_index: OpenIndex, tmp_path: Path) -> None:
    """The time of a start does not grow with the store."""
    first = open_index()
    await put_and_cache(first, *make_documents(5))
    await first.close()
    files = {path: path.stat().st_mtime_ns for path in (tmp_path / "texts.cache").rglob("*.term")}
    second = open_index()
    await second.start()
    await eventually(second.is_cached)

    assert len(await find_ids(second, make_question("heron"), limit=4)) == 4
    assert second.question_counts.from_cache == 1
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "texts.cache").rglob("*.term")} == files


async def test_the_first_question_after_a_restart_uses_the_cache(open_index: OpenIndex) -> None:
    """With a million memories SQLite took seconds, or longer than the time limit."""
    first = open_index()
    await put_and_cache(first, *make_documents(5))
    await first.close()
    second = open_index(poll_interval_s=60.0)
    await second.start()

    assert len(await find_ids(second, make_question("heron"), limit=4)) == 4
    assert second.question_counts.from_cache == 1


@pytest.mark.parametrize("limit", [2, 1])
async def test_the_cache_finds_few_visible_documents_among_many(open_index: OpenIndex, limit: int) -> None:
    """SQLite reads every document with a frequent word, even if few are visible."""
    index = open_index(min_matching_documents=20)
    other_documents = [make_document(f"t{number}", content="heron heron", project="theirs") for number in range(30)]
    own_documents = [make_document(f"o{number}", content=f"heron {'roof ' * number}", project="ours") for number in range(3)]
    await put_and_cache(index, *other_documents, *own_documents)
    own_filter = make_filter(project="ours")
    from_sqlite = await find_ids(index, TextQuery(any_of=("heron",)), access_filter=own_filter, limit=limit)

    assert await find_ids(index, make_question("heron"), access_filter=own_filter, limit=limit) == from_sqlite
    assert index.question_counts == QuestionCounts(from_cache=1)


async def test_two_processes_share_one_cache(open_index: OpenIndex) -> None:
    """Each process finds the documents of the other one."""
    one, two = open_index(), open_index()
    await put_and_cache(one, *make_documents(4))
    await put_and_cache(two, make_document("of two", content="heron"))
    await one.put([make_document("of one", content="heron")])

    assert {"of one", "of two"} < set(await find_ids(two, make_question("heron"), limit=6))
    assert {"of one", "of two"} < set(await find_ids(one, make_question("heron"), limit=6))
    assert one.question_counts == two.question_counts == QuestionCounts(from_cache=1)


@pytest.mark.parametrize("damage", ["torn", "gone"])
async def test_a_damaged_cache_is_rebuilt(open_index: OpenIndex, tmp_path: Path, damage: str) -> None:
    """The operator need not do anything."""
    first = open_index()
    await put_and_cache(first, *make_documents(5))
    await first.close()
    folder = tmp_path / "texts.cache"
    if damage == "gone":
        shutil.rmtree(folder)
    else:
        for path in folder.rglob("meta.json"):
            path.write_text("{", encoding="utf-8")
    second = open_index()
    await second.start()
    assert len(await find_ids(second, make_question("heron"), limit=5)) == 5

    await eventually(second.is_cached)
    from_cache_before = second.question_counts.from_cache
    assert len(await find_ids(second, make_question("heron"), limit=4)) == 4
    assert second.question_counts.from_cache == from_cache_before + 1


async def test_a_question_that_finds_damage_succeeds_and_triggers_a_rebuild(open_index: OpenIndex, tmp_path: Path) -> None:
    """The damaged cache opens without an error, but a file that a search needs is missing."""
    first = open_index()
    await put_and_cache(first, *make_documents(5))
    await first.close()
    for path in tmp_path.rglob("*.pos"):
        path.unlink()
    second = open_index()
    await second.start()
    await eventually(second.is_cached)

    assert len(await find_ids(second, make_question("heron"), limit=4)) == 4
    assert second.question_counts.from_cache == 0
    await eventually(partial(_is_answered_from_the_cache, second))


async def test_the_cache_is_not_written_to_a_nearly_full_disk(
    open_index: OpenIndex, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cache waits for free space, because memories need it first."""
    usage = shutil.disk_usage(tmp_path)._replace(free=1024**3 - 1)

    def nearly_full(_: Path) -> object:
        return usage

    index = open_index()
    with monkeypatch.context() as patch, capture_logs() as logs:
        # A full disk needs a file system of its own, which only root can mount.
        patch.setattr(shutil, "disk_usage", nearly_full)
        await index.start()
        await index.put(make_documents(5))
        await eventually(lambda: any(entry["event"] == "texts.cache_waits" for entry in logs))

        assert len(await find_ids(index, make_question("heron"), limit=4)) == 4
        assert index.question_counts.from_cache == 0

    await eventually(partial(_is_answered_from_the_cache, index))


async def _is_answered_from_the_cache(index: EmbeddedTextIndex) -> bool:
    assert len(await find_ids(index, make_question("heron"), limit=4)) == 4
    return index.question_counts.from_cache > 0


async def test_the_cache_of_a_deleted_store_is_deleted(open_index: OpenIndex, tmp_path: Path) -> None:
    """A new texts.db numbers its rows from one again, so that old row numbers have another meaning."""
    first = open_index()
    await put_and_cache(first, *make_documents(5))
    await first.close()
    for path in tmp_path.glob("texts.db*"):
        path.unlink()
    second = open_index()
    await put_and_cache(second, *(make_document(f"new{number}", content="pelican") for number in range(5)))

    assert await find_ids(second, make_question("heron"), limit=1) == []
    assert len(await find_ids(second, make_question("pelican"), limit=3)) == 3
    assert len(list((tmp_path / "texts.cache").iterdir())) == 1
    assert second.question_counts.from_cache == 1


async def test_a_restored_store_does_not_use_a_newer_cache(open_index: OpenIndex, tmp_path: Path) -> None:
    """After a restore, other texts get the row numbers of the cache."""
    first = open_index()
    await first.put(make_documents(3))
    await first.close()
    shutil.copy(tmp_path / "texts.db", tmp_path / "backup.db")
    second = open_index()
    await put_and_cache(second, *(make_document(f"later{number}", content="heron") for number in range(5)))
    await second.close()
    shutil.move(tmp_path / "backup.db", tmp_path / "texts.db")
    third = open_index()
    await put_and_cache(third, make_document("new", content="heron by the pelican"))

    assert sorted(await find_ids(third, make_question("heron"), limit=4)) == ["m0", "m1", "m2", "new"]
    assert third.question_counts.from_cache == 1


@pytest.mark.parametrize("is_cached", [True, False])
async def test_memories_of_other_workspaces_change_no_score(open_index: OpenIndex, is_cached: bool) -> None:
    """A score shows nothing of other workspaces, neither their number of memories nor how many of them have a word."""
    index = open_index() if is_cached else open_index(min_documents=1_000)
    await put_and_cache(index, *make_documents(6), make_document("other", content="pelican by the river and the lake"))
    queries = [TextQuery(any_of=("heron",)), TextQuery(any_of=("pelican", "heron")), make_question("heron", "river")]
    before = [await index.search(query, access_filter=make_filter(), limit=5) for query in queries]

    await put_and_cache(index, *(make_document(f"t{number}", workspace_id=2, content="pelican heron " * number) for number in range(1, 40)))

    assert [await index.search(query, access_filter=make_filter(), limit=5) for query in queries] == before
    assert index.question_counts.from_cache == (2 if is_cached else 0)


async def test_workspaces_beyond_the_limit_share_a_table(open_index: OpenIndex, tmp_path: Path) -> None:
    """SQLite opens a file with very many full-text tables slowly. Workspaces that share one see nothing of each other's memories."""
    await open_index().put([])
    index = EmbeddedTextIndex(tmp_path / "texts.db", limits=replace(SMALL_CACHE, max_tables=1))
    try:
        await index.put([make_document("a", workspace_id=number, content=f"heron of {number}") for number in range(1, 4)])
        await index.drop(3, ["a"])
        await index.erase()
        await index.put([make_document("b", workspace_id=3, content="heron again")])
        found = [
            await find_ids(index, TextQuery(any_of=("heron",)), access_filter=make_filter(workspace_id=number), limit=9)
            for number in range(1, 5)
        ]

        assert found == [["a"], ["a"], ["b"], []]
        with contextlib.closing(sqlite3.connect(tmp_path / "texts.db")) as connection:
            assert connection.execute("SELECT table_name FROM workspace ORDER BY id").fetchall() == [
                ("fts_1",),
                ("fts_shared",),
                ("fts_shared",),
            ]
    finally:
        await index.close()


async def test_the_table_of_an_emptied_workspace_is_dropped(open_index: OpenIndex, tmp_path: Path) -> None:
    """An erasure leaves no table of a workspace without memories. The workspace can be used again, also by another process."""
    index, other = open_index(), open_index()
    await put_and_cache(index, *make_documents(4))
    assert len(await find_ids(other, TextQuery(any_of=("heron",)), limit=9)) == 4
    await index.drop(1, [f"m{number}" for number in range(4)])
    await index.erase()

    with contextlib.closing(sqlite3.connect(tmp_path / "texts.db")) as connection:
        assert connection.execute("SELECT count(*) FROM sqlite_master WHERE name LIKE 'fts_1%'").fetchone() == (0,)
    assert (await find_ids(other, TextQuery(any_of=("heron",)), limit=9), await index.count(1)) == ([], 0)
    await other.put([make_document("new", content="heron")])
    assert await find_ids(index, make_question("heron"), limit=9) == ["new"]


async def test_the_tables_of_many_emptied_workspaces_are_dropped(open_index: OpenIndex, tmp_path: Path) -> None:
    """An erasure drops a few tables at a time, so that other writers run in between, and leaves none."""
    index = open_index(min_documents=1_000)
    await index.put([make_document("a", workspace_id=number, content="heron") for number in range(1, 41)])
    for number in range(2, 41):
        await index.drop(number, ["a"])
    await index.erase()

    with contextlib.closing(sqlite3.connect(tmp_path / "texts.db")) as connection:
        assert connection.execute("SELECT id FROM workspace").fetchall() == [(1,)]
        assert connection.execute("SELECT name FROM sqlite_master WHERE sql LIKE 'CREATE VIRTUAL%'").fetchall() == [("fts_1",)]


async def test_nothing_is_left_of_the_cache_of_an_emptied_workspace(open_index: OpenIndex, tmp_path: Path) -> None:
    """Its folder is deleted, and so are the records of its deleted rows, which no cache would ever use."""
    first, second = open_index(), open_index()
    await put_and_cache(first, *make_documents(8))
    await first.close()
    await second.drop(1, [f"m{number}" for number in range(8)])
    await second.erase()

    assert list((tmp_path / "texts.cache").iterdir()) == []
    with contextlib.closing(sqlite3.connect(tmp_path / "texts.db")) as connection:
        assert connection.execute("SELECT count(*) FROM gone").fetchone() == (0,)
    await put_and_cache(second, *make_documents(8))
    assert len(await find_ids(second, make_question("heron"), limit=8)) == 8


async def test_a_start_deletes_the_caches_of_earlier_files(open_index: OpenIndex, tmp_path: Path) -> None:
    """An upgrade to tables per workspace leaves a cache of all workspaces. It is deleted also if no workspace is large now."""
    (tmp_path / "texts.cache" / "feed").mkdir(parents=True)
    await open_index(min_documents=1_000).start()

    assert list((tmp_path / "texts.cache").iterdir()) == []
