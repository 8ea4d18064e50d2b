"""Deleted documents leave no trace in an index's files after erasure."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest

from rookery.engines.texts.embedded import EmbeddedTextIndex, TextIndexLimits
from rookery.kernel.sqlite import connect, truncate_wal
from rookery.memory.models import TextQuery
from tests.conftest import eventually
from tests.engines.conftest import EAST, SMALL_CACHE, compute_similarities, make_document, make_embedded, make_filter, vector
from tests.engines.ivf import build_ivf_file, open_index

_SECRET = b"quixotwaldheim"


def _files_containing(folder: Path, word: bytes = _SECRET) -> set[str]:
    """Return the names of the files that contain *word*, ignoring case."""
    return {path.name for path in folder.rglob("*") if path.is_file() and word in path.read_bytes().lower()}


@contextlib.asynccontextmanager
async def _open_index(folder: Path, limits: TextIndexLimits | None = None) -> AsyncGenerator[EmbeddedTextIndex]:
    index = EmbeddedTextIndex(folder / "texts.db", limits=limits)
    try:
        yield index
    finally:
        await index.close()


async def _find_ids(index: EmbeddedTextIndex, word: str) -> set[str]:
    query = TextQuery(any_of=(word,), is_question=True)
    return {hit.memory_id for hit in await index.search(query, access_filter=make_filter(), limit=50)}


async def test_no_word_of_a_deleted_document_stays_in_the_full_text_index(tmp_path: Path) -> None:
    """The index has many segments, long, short, changed and deleted texts, and another process writes."""
    # The index stores words without the prefix of the previous word, so these words have different beginnings.
    secrets = [f"{'abcdefghijklmnop'[number % 16]}{number}{_SECRET.decode()}" for number in range(60)]
    async with _open_index(tmp_path) as index, _open_index(tmp_path) as other:
        documents = [make_document(f"m{number}", content=f"{'heron ' * (number * 7)}{secrets[number]} by the pond") for number in range(60)]
        await index.put([*documents, *(make_document(f"n{number}", content=f"pelican{number} " * 40) for number in range(300))])
        await index.drop(1, [f"m{number}" for number in range(0, 60, 2)])
        await index.put([make_document(f"m{number}", content="pelican") for number in range(1, 60, 2)])
        assert _files_containing(tmp_path) != set()

        async with asyncio.TaskGroup() as group:
            group.create_task(index.erase())
            for number in range(60, 70):
                group.create_task(other.put([make_document(f"m{number}", content="heron")]))
        await index.erase()

        assert _files_containing(tmp_path) == set()
        assert await _find_ids(index, "pelican") == {f"m{number}" for number in range(1, 60, 2)}
        assert await _find_ids(other, "heron") == {f"m{number}" for number in range(60, 70)}
        assert [await _find_ids(index, secret) for secret in secrets] == [set()] * 60


async def test_the_cache_of_a_large_store_is_rebuilt_after_an_erasure(tmp_path: Path) -> None:
    """The server rebuilds it after the erasure of another process, but only if documents were deleted."""
    async with _open_index(tmp_path, SMALL_CACHE) as server, _open_index(tmp_path, SMALL_CACHE) as command:
        await server.start()
        await server.put([make_document(f"m{number}", content=f"heron number {number}") for number in range(9)])
        await eventually(server.is_cached)
        caches = tmp_path / "texts.cache"
        files_before = {path.name for path in caches.rglob("*.store")}
        await command.erase()
        files_after = {path.name for path in caches.rglob("*.store")}

        await server.drop(1, ["m3"])
        await eventually(server.is_cached)
        await command.erase()
        await eventually(lambda: bool({path.name for path in caches.rglob("*.store")} - files_before))
        await eventually(server.is_cached)

        assert files_after == files_before != set()
        assert not files_before & {path.name for path in caches.rglob("*.store")}
        assert await _find_ids(server, "heron") == {f"m{number}" for number in range(9)} - {"m3"}


async def test_only_ivf_files_with_deleted_vectors_are_deleted(tmp_path: Path) -> None:
    """Files of other workspaces stay; the next search is exact."""
    index = open_index(tmp_path)
    try:
        await index.put([make_embedded(f"m{number}", EAST) for number in range(4)])
        await index.put([make_embedded(f"n{number}", EAST, workspace_id=2) for number in range(4)])
        outdated_file, current_file = build_ivf_file(tmp_path), build_ivf_file(tmp_path, workspace_id=2)
        await index.drop(1, ["m1"])
        assert b"m1" in (outdated_file / "ids.npy").read_bytes()

        await index.erase()

        assert (outdated_file.exists(), current_file.exists()) == (False, True)
        assert set(await compute_similarities(index, EAST, ["m0", "m1", "m2"])) == {"m0", "m2"}
    finally:
        await index.close()


async def test_a_memory_that_is_erased_during_a_change_of_the_model_is_in_no_file(tmp_path: Path) -> None:
    """It has vectors of both models, in the database, its log and the IVF files."""
    old, new = open_index(tmp_path, model="small/1"), open_index(tmp_path, model="small/2")
    secret = vector(0.123, 0.456, 0.789, 0.321)
    try:
        for index in (old, new):
            await index.put([make_embedded(_SECRET.decode(), secret), *(make_embedded(f"m{number}", EAST) for number in range(4))])
        files = [build_ivf_file(tmp_path, model=model) for model in ("small/1", "small/2")]
        assert [await compute_similarities(index, EAST, ["m1"]) for index in (old, new)] == [{"m1": 1.0}] * 2
        assert {path.name for path in tmp_path.rglob("*") if path.is_file() and secret in path.read_bytes()} >= {"vectors.npy"}

        await new.drop(1, [_SECRET.decode()])
        await new.erase()

        # A tombstone keeps the id for other processes, and no part of the content.
        assert _files_containing(tmp_path) <= {"vectors.db"}
        assert [path for path in tmp_path.rglob("*") if path.is_file() and secret in path.read_bytes()] == []
        assert [file.exists() for file in files] == [False, False]
        assert [await compute_similarities(index, EAST, ["m1", _SECRET.decode()]) for index in (old, new)] == [{"m1": 1.0}] * 2
    finally:
        await old.close()
        await new.close()


def test_the_wal_is_truncated_unless_a_reader_does_not_end(tmp_path: Path) -> None:
    """The WAL contains old pages; truncation waits for readers of them and then fails."""
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
