"""A large store of texts: answered from a cache, and never otherwise than SQLite would."""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given, settings
from structlog.testing import capture_logs

from rookery.engines.texts import term_cache
from rookery.engines.texts.embedded import EmbeddedTextIndex
from rookery.engines.texts.fts_query import FtsQuery
from rookery.memory.models import AccessFilter, IndexDocument, MemoryScope, TextQuery
from rookery.memory.visibility import is_visible
from tests.conftest import eventually
from tests.engines.conftest import NOW, documents, everywhere, make_document, withins

Open = Callable[[], EmbeddedTextIndex]


class Answers:
    """Counts of queries answered by the cache and by SQLite."""

    def __init__(self) -> None:
        self.cached = 0
        self.others = 0


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Answers:
    """Make every store a large one, brought up to date at once, and count who answers."""
    counted, match = Answers(), term_cache.TermCache.search

    def counting(
        self: term_cache.TermCache, connection: sqlite3.Connection, asked: FtsQuery, within: AccessFilter, wanted: int
    ) -> list[tuple[float, str]] | None:
        best = match(self, connection, asked, within, wanted)
        counted.cached += best is not None
        counted.others += best is None
        return best

    for name, value in {
        "MIN_DOCUMENTS": 0,
        "_MIN_MATCHING_DOCUMENTS": -1,
        "_UPDATE_AFTER_ROWS": 1,
        "_POLL_INTERVAL_S": 0.005,
        "_RETRY_DELAY_S": 0.01,
    }.items():
        monkeypatch.setattr(term_cache, name, value)
    monkeypatch.setattr(term_cache.TermCache, "search", counting)
    return counted


@pytest.fixture
async def open_index(tmp_path: Path) -> AsyncIterator[Open]:
    """Open the same index, as often as asked: as another process would, or as this one after a restart."""
    async with contextlib.AsyncExitStack() as stack:

        def open_it() -> EmbeddedTextIndex:
            index = EmbeddedTextIndex(tmp_path / "texts.db")
            stack.push_async_callback(index.close)
            return index

        yield open_it


def question(*words: str) -> TextQuery:
    """Ask as recall does."""
    return TextQuery(any_of=words, is_question=True)


async def cached(index: EmbeddedTextIndex, *put: IndexDocument) -> None:
    """Put documents, and wait until the cache has them."""
    await index.start()
    await index.put(put)
    await eventually(index.is_cached)


async def found(index: EmbeddedTextIndex, words: TextQuery, *, within: AccessFilter | None = None, limit: int) -> list[str]:
    """Return the ids that match, best first."""
    return [each.memory_id for each in await index.search(words, access_filter=within or everywhere(), limit=limit)]


def some(number: int) -> list[IndexDocument]:
    """Make documents of which the first have the word more often."""
    return [make_document(f"m{each}", content=f"heron {'heron ' * (number - each)}number {each}") for each in range(number)]


async def test_a_large_store_is_answered_from_its_cache_in_the_same_order(open_index: Open, answers: Answers) -> None:
    """Issue 5: full text at a million memories."""
    index = open_index()
    await cached(index, *some(8), make_document("other", content="pelican"))
    plain = await found(index, TextQuery(any_of=("heron",)), limit=8)

    assert await found(index, question("heron"), limit=8) == plain
    assert (answers.cached, answers.others) == (1, 0)


@settings(max_examples=15)
@given(drawn=documents, within=withins)
async def test_the_cache_sees_what_the_rule_of_visibility_says(
    tmp_path_factory: pytest.TempPathFactory, drawn: list[IndexDocument], within: AccessFilter
) -> None:
    """The cache and SQLite apply the same visibility rule (spec 2.8, D-43)."""
    put = [replace(each, content="heron on the roof") for each in drawn]
    expected = sorted(each.memory_id for each in put if is_visible(within, each))
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {"MIN_DOCUMENTS": 0, "_MIN_MATCHING_DOCUMENTS": -1, "_UPDATE_AFTER_ROWS": 1, "_POLL_INTERVAL_S": 0.005}.items():
            patch.setattr(term_cache, name, value)
        index = EmbeddedTextIndex(tmp_path_factory.mktemp("texts") / "texts.db")
        try:
            await cached(index, *put)
            got = await found(index, question("heron"), within=within, limit=max(1, len(expected)))
        finally:
            await index.close()

    assert sorted(got) == expected


async def test_a_question_to_the_whole_workspace_finds_nobody_elses_own(open_index: Open, answers: Answers) -> None:
    """D-43: where nearly all may be seen, all is looked through, and then who may see what was found."""
    index = open_index()
    secret = make_document("lee's", memory_scope=MemoryScope.AGENT, agent_id="lee", content="heron heron heron")
    expired = make_document("old", content="heron heron heron", expires_at=NOW)
    await cached(index, *some(6), secret, expired, make_document("theirs", workspace_id=2, content="heron"))

    assert sorted(await found(index, question("heron"), within=everywhere(agent_id="kim"), limit=6)) == [f"m{each}" for each in range(6)]
    assert "lee's" in await found(index, question("heron"), within=everywhere(agent_id="lee"), limit=6)
    assert (answers.cached, answers.others) == (2, 0)


async def test_what_came_since_is_found_with_the_rest(open_index: Open, answers: Answers, monkeypatch: pytest.MonkeyPatch) -> None:
    """`TextIndex`: a query sees every write that returned before it."""
    index = open_index()
    await cached(index, *some(4))
    monkeypatch.setattr(term_cache, "_UPDATE_AFTER_ROWS", 10_000)
    await index.put([make_document("new", content="a heron just came"), make_document("m0", content="nothing of the kind")])
    await index.delete(1, ["m1"])

    assert sorted(await found(index, question("heron"), limit=3)) == ["m2", "m3", "new"]
    assert answers.cached == 1


async def test_words_side_by_side_are_better_there_too(open_index: Open, answers: Answers) -> None:
    """The order equals SQLite's."""
    index = open_index()
    apart = [make_document(f"apart{each}", content=f"the heron by the river slept all night {each}") for each in range(5)]
    await cached(index, *apart, make_document("beside", content="the night heron by the river slept all week"))

    assert (await found(index, question("night", "heron"), limit=6))[0] == "beside"
    assert answers.cached == 1


async def test_what_the_cache_cannot_give_enough_of_is_asked_of_sqlite(open_index: Open, answers: Answers) -> None:
    """`Words.is_question`: never at the price of results."""
    index = open_index()
    await cached(index, *some(3))

    assert len(await found(index, question("heron"), limit=50)) == 3
    assert (answers.cached, answers.others) == (0, 1)


async def test_what_is_dropped_leaves_the_cache_too(open_index: Open, answers: Answers) -> None:
    """Spec 3.4: deleted is removed from all stores."""
    index = open_index()
    await cached(index, *some(6))
    await index.delete(1, ["m0", "m1"])
    await index.put([make_document("m2", content="a pelican now")])
    await eventually(index.is_cached)

    assert sorted(await found(index, question("heron"), limit=3)) == ["m3", "m4", "m5"]
    assert await found(index, question("pelican"), limit=1) == ["m2"]
    assert answers.cached == 2


async def test_after_a_restart_the_cache_is_read_and_not_built(open_index: Open, answers: Answers, tmp_path: Path) -> None:
    """Issue 5: start-up time does not grow with the store."""
    first = open_index()
    await cached(first, *some(5))
    await first.close()
    files = {path: path.stat().st_mtime_ns for path in (tmp_path / "texts.cache").rglob("*.term")}
    second = open_index()
    await second.start()
    await eventually(second.is_cached)

    assert len(await found(second, question("heron"), limit=4)) == 4
    assert answers.cached == 1
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "texts.cache").rglob("*.term")} == files


async def test_the_first_question_after_a_restart_is_answered_from_the_cache(
    open_index: Open, answers: Answers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Issue 5: at a million memories SQLite took seconds for it, or longer than a question may take."""
    first = open_index()
    await cached(first, *some(5))
    await first.close()
    monkeypatch.setattr(term_cache, "_POLL_INTERVAL_S", 60.0)
    second = open_index()
    await second.start()

    assert len(await found(second, question("heron"), limit=4)) == 4
    assert answers.cached == 1


@pytest.mark.parametrize("most", [2, 1])
async def test_few_of_many_are_found_in_the_cache_as_by_sqlite(
    open_index: Open, answers: Answers, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    """Issue 5: of common words SQLite looks at every document that has one, however few of them may be seen."""
    monkeypatch.setattr(term_cache, "_MIN_MATCHING_DOCUMENTS", 20)
    index = open_index()
    theirs = [make_document(f"t{each}", content="heron heron", project="theirs") for each in range(30)]
    ours = [make_document(f"o{each}", content=f"heron {'roof ' * each}", project="ours") for each in range(3)]
    await cached(index, *theirs, *ours)
    inside = everywhere(project="ours")
    plain = await found(index, TextQuery(any_of=("heron",)), within=inside, limit=most)

    assert await found(index, question("heron"), within=inside, limit=most) == plain
    assert (answers.cached, answers.others) == (1, 0)


async def test_two_processes_share_one_cache(open_index: Open, answers: Answers) -> None:
    """One adds to it, both read it, and neither misses what the other wrote."""
    one, two = open_index(), open_index()
    await cached(one, *some(4))
    await cached(two, make_document("of two", content="heron"))
    await one.put([make_document("of one", content="heron")])

    assert {"of one", "of two"} < set(await found(two, question("heron"), limit=6))
    assert {"of one", "of two"} < set(await found(one, question("heron"), limit=6))
    assert answers.others == 0


@pytest.mark.parametrize("damage", ["torn", "gone"])
async def test_a_damaged_cache_is_built_anew(open_index: Open, answers: Answers, tmp_path: Path, damage: str) -> None:
    """It is a cache: nothing is asked of the operator."""
    first = open_index()
    await cached(first, *some(5))
    await first.close()
    folder = tmp_path / "texts.cache"
    if damage == "gone":
        shutil.rmtree(folder)
    else:
        for path in folder.rglob("meta.json"):
            path.write_text("{", encoding="utf-8")
    second = open_index()
    await second.start()
    assert len(await found(second, question("heron"), limit=5)) == 5

    await eventually(second.is_cached)
    answers.cached = 0
    assert len(await found(second, question("heron"), limit=4)) == 4
    assert answers.cached == 1


async def test_a_question_that_meets_damage_is_answered_and_has_the_cache_built_anew(
    open_index: Open, answers: Answers, tmp_path: Path
) -> None:
    """It opens as if it were whole: only what is asked for later is not there."""
    first = open_index()
    await cached(first, *some(5))
    await first.close()
    for path in tmp_path.rglob("*.pos"):
        path.unlink()
    second = open_index()
    await second.start()
    await eventually(second.is_cached)

    assert len(await found(second, question("heron"), limit=4)) == 4
    assert answers.cached == 0
    await eventually(partial(_is_answered_from_the_cache, second, answers))


async def test_a_disk_that_is_nearly_full_is_not_filled_by_the_cache(
    open_index: Open, answers: Answers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D-17: below half a gigabyte of free space no memory can be stored; the cache waits."""
    monkeypatch.setattr(term_cache, "_MIN_FREE_BYTES", 2**62)
    index = open_index()
    with capture_logs() as logs:
        await index.start()
        await index.put(some(5))
        await eventually(lambda: any(each["event"] == "texts.cache_waits" for each in logs))

    assert len(await found(index, question("heron"), limit=4)) == 4
    assert answers.cached == 0
    monkeypatch.setattr(term_cache, "_MIN_FREE_BYTES", 0)
    await eventually(partial(_is_answered_from_the_cache, index, answers))


async def _is_answered_from_the_cache(index: EmbeddedTextIndex, answers: Answers) -> bool:
    assert len(await found(index, question("heron"), limit=4)) == 4
    return answers.cached > 0


async def test_a_cache_of_another_store_is_thrown_away(open_index: Open, answers: Answers, tmp_path: Path) -> None:
    """Deleting texts.db begins anew: rows count from one again, and must not be taken for the old ones."""
    first = open_index()
    await cached(first, *some(5))
    await first.close()
    for path in tmp_path.glob("texts.db*"):
        path.unlink()
    second = open_index()
    await cached(second, *(make_document(f"new{each}", content="pelican") for each in range(5)))

    assert await found(second, question("heron"), limit=1) == []
    assert len(await found(second, question("pelican"), limit=3)) == 3
    assert len(list((tmp_path / "texts.cache").iterdir())) == 1
    assert answers.cached == 1


async def test_a_store_put_back_as_it_once_was_is_not_answered_from_a_newer_cache(
    open_index: Open, answers: Answers, tmp_path: Path
) -> None:
    """Rows are given again then, to other texts."""
    first = open_index()
    await first.put(some(3))
    await first.close()
    shutil.copy(tmp_path / "texts.db", tmp_path / "kept")
    second = open_index()
    await cached(second, *(make_document(f"later{each}", content="heron") for each in range(5)))
    await second.close()
    shutil.move(tmp_path / "kept", tmp_path / "texts.db")
    third = open_index()
    await cached(third, make_document("new", content="heron by the pelican"))

    assert sorted(await found(third, question("heron"), limit=4)) == ["m0", "m1", "m2", "new"]
    assert answers.cached == 1


async def test_a_store_of_the_format_before_is_taken_over(open_index: Open, answers: Answers, tmp_path: Path) -> None:
    """Format 1 had no cache; nothing is lost by it."""
    first = open_index()
    await first.put(some(5))
    await first.close()
    with contextlib.closing(sqlite3.connect(tmp_path / "texts.db")) as connection:
        connection.executescript("DROP TABLE counter; DROP TABLE gone; PRAGMA user_version = 1;")
    second = open_index()
    await cached(second, make_document("new", content="heron", updated_at=NOW))

    assert len(await found(second, question("heron"), limit=6)) == 6
    assert answers.cached == 1
