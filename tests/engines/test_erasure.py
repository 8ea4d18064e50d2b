"""Deleted documents leave no trace in an index's files after erasure (D-41, issue 5)."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from rookery.engines.texts import term_cache
from rookery.engines.texts.embedded import EmbeddedTextIndex
from rookery.kernel.sqlite import connect
from rookery.kernel.wal import truncate_wal
from rookery.memory.models import TextQuery
from tests.conftest import eventually
from tests.engines.conftest import EAST, everywhere, make_document, vectored
from tests.engines.ivf import build_ivf_file, open_index

_SECRET = b"quixotwaldheim"


def _files_containing(folder: Path, word: bytes = _SECRET) -> set[str]:
    """Return which files have *word*, in whichever letters."""
    return {path.name for path in folder.rglob("*") if path.is_file() and word in path.read_bytes().lower()}


@contextlib.asynccontextmanager
async def _texts(folder: Path) -> AsyncGenerator[EmbeddedTextIndex]:
    index = EmbeddedTextIndex(folder / "texts.db")
    try:
        yield index
    finally:
        await index.close()


async def _found(index: EmbeddedTextIndex, word: str) -> set[str]:
    words = TextQuery(any_of=(word,), is_question=True)
    return {each.memory_id for each in await index.search(words, access_filter=everywhere(), limit=50)}


async def test_no_word_of_what_was_taken_out_stays_in_the_full_text_index(tmp_path: Path) -> None:
    """D-41: many segments, long and short texts, changed and dropped ones; and another process writes meanwhile."""
    # Words of an index are written without what they have in common with the one before: so these begin otherwise.
    secrets = [f"{'abcdefghijklmnop'[number % 16]}{number}{_SECRET.decode()}" for number in range(60)]
    async with _texts(tmp_path) as index, _texts(tmp_path) as other:
        put = [make_document(f"m{number}", content=f"{'heron ' * (number * 7)}{secrets[number]} by the pond") for number in range(60)]
        await index.put([*put, *(make_document(f"n{number}", content=f"pelican{number} " * 40) for number in range(300))])
        await index.delete(1, [f"m{number}" for number in range(0, 60, 2)])
        await index.put([make_document(f"m{number}", content="pelican") for number in range(1, 60, 2)])
        assert _files_containing(tmp_path) != set()

        async with asyncio.TaskGroup() as group:
            group.create_task(index.erase())
            for number in range(60, 70):
                group.create_task(other.put([make_document(f"m{number}", content="heron")]))
        await index.erase()

        assert _files_containing(tmp_path) == set()
        assert await _found(index, "pelican") == {f"m{number}" for number in range(1, 60, 2)}
        assert await _found(other, "heron") == {f"m{number}" for number in range(60, 70)}
        assert [await _found(index, secret) for secret in secrets] == [set()] * 60


async def test_the_cache_of_a_large_store_is_built_anew_without_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """D-41: by the server that has it open, when a command in another process erased; a cache without anything gone stays."""
    for name, value in {
        "MIN_DOCUMENTS": 0,
        "_MIN_MATCHING_DOCUMENTS": -1,
        "_UPDATE_AFTER_ROWS": 1,
        "_POLL_INTERVAL_S": 0.005,
        "_RETRY_DELAY_S": 0.01,
    }.items():
        monkeypatch.setattr(term_cache, name, value)
    async with _texts(tmp_path) as server, _texts(tmp_path) as command:
        await server.start()
        await server.put([make_document(f"m{number}", content=f"heron number {number}") for number in range(9)])
        await eventually(server.is_cached)
        caches = tmp_path / "texts.cache"
        before = {path.name for path in caches.rglob("*.store")}
        await command.erase()
        kept = {path.name for path in caches.rglob("*.store")}

        await server.delete(1, ["m3"])
        await eventually(server.is_cached)
        await command.erase()
        await eventually(lambda: bool({path.name for path in caches.rglob("*.store")} - before))
        await eventually(server.is_cached)

        assert kept == before != set()
        assert not before & {path.name for path in caches.rglob("*.store")}
        assert await _found(server, "heron") == {f"m{number}" for number in range(9)} - {"m3"}


async def test_lists_that_have_a_vector_that_is_gone_are_deleted_and_no_others(tmp_path: Path) -> None:
    """D-41: of other workspaces they stay; the next search is exact, and finds what is left."""
    index = open_index(tmp_path)
    try:
        await index.put([vectored(f"m{number}", EAST) for number in range(4)])
        await index.put([vectored(f"n{number}", EAST, workspace_id=2) for number in range(4)])
        gone, kept = build_ivf_file(tmp_path), build_ivf_file(tmp_path, workspace_id=2)
        await index.delete(1, ["m1"])
        assert b"m1" in gone.read_bytes()

        await index.erase()

        assert (gone.exists(), kept.exists()) == (False, True)
        assert set(await index.compute_similarities(EAST, workspace_id=1, ids=["m0", "m1", "m2"])) == {"m0", "m2"}
    finally:
        await index.close()


def test_a_log_is_emptied_beside_others_unless_one_reads_on_and_on(tmp_path: Path) -> None:
    """Issue 5: the -wal has pages as they were before; who still reads that moment is waited for, and named after a while."""
    path = tmp_path / "some.db"
    with contextlib.closing(connect(path)) as writer, contextlib.closing(connect(path, read_only=True)) as reader:
        writer.execute("CREATE TABLE note (text TEXT)")
        writer.execute("INSERT INTO note VALUES ('quixotwaldheim')")
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM note").fetchall()
        writer.execute("DELETE FROM note")

        with pytest.raises(sqlite3.OperationalError, match="is read without a pause"):
            truncate_wal(path, timeout_s=0.1)
        reader.execute("ROLLBACK")
        truncate_wal(path)

        assert (_files_containing(tmp_path), writer.execute("SELECT count(*) FROM note").fetchone()) == (set(), (0,))
