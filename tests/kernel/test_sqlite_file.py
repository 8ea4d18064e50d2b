"""SQLite files with derived data, which users may delete while they are in use."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest

from rookery.kernel.errors import EngineUnavailable
from rookery.kernel.sqlite import ReopenableFile, SqliteFile, map_file_error


def _create(connection: sqlite3.Connection) -> None:
    connection.execute("CREATE TABLE IF NOT EXISTS note (text TEXT)")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return the path of the file, in a folder that does not exist yet."""
    return tmp_path / "folder" / "notes.db"


@pytest.fixture
async def notes(path: Path) -> AsyncIterator[ReopenableFile[SqliteFile]]:
    """Yield a file with one table."""
    file = ReopenableFile(partial(SqliteFile, path, name="notes", create=_create), map_error=partial(map_file_error, "vectors", path))
    yield file
    await file.close()


async def _add(notes: ReopenableFile[SqliteFile], text: str) -> None:
    async with notes.use() as file:
        await file.writer.submit(lambda connection: connection.execute("INSERT INTO note VALUES (?)", (text,)))


async def _read(notes: ReopenableFile[SqliteFile]) -> list[str]:
    async with notes.use() as file:
        with file.reader() as connection:
            return [text for (text,) in connection.execute("SELECT text FROM note")]


def _delete(path: Path) -> None:
    for file in path.parent.iterdir():
        file.unlink()


async def test_a_deleted_file_is_created_again(notes: ReopenableFile[SqliteFile], path: Path) -> None:
    """No restart is needed."""
    await _add(notes, "heron")
    assert await _read(notes) == ["heron"]

    _delete(path)

    assert await _read(notes) == []
    await _add(notes, "otter")
    assert (await _read(notes), path.exists()) == (["otter"], True)


async def test_a_deleted_file_is_replaced_when_nothing_uses_it(notes: ReopenableFile[SqliteFile], path: Path) -> None:
    """SQLite must release the deleted file before it opens one of the same name."""
    await _add(notes, "heron")
    async with notes.use() as file:
        with file.reader() as connection:
            _delete(path)
            reading = asyncio.create_task(_read(notes))
            done, _ = await asyncio.wait({reading}, timeout=0.05)
            assert (done, connection.execute("SELECT text FROM note").fetchall()) == (set(), [("heron",)])

    assert await reading == []


async def test_calls_at_the_same_time_open_the_file_once(path: Path) -> None:
    """Each open file has a writer."""
    opened = list[SqliteFile]()

    def open_file() -> SqliteFile:
        opened.append(SqliteFile(path, name="notes", create=_create))
        return opened[-1]

    notes = ReopenableFile(open_file, map_error=partial(map_file_error, "vectors", path))
    await asyncio.gather(*(_add(notes, str(number)) for number in range(5)))

    assert (sorted(await _read(notes)), len(opened)) == (["0", "1", "2", "3", "4"], 1)
    await notes.close()


async def test_a_reader_that_fails_is_not_used_again(path: Path) -> None:
    """Its transaction may still be open."""
    file = SqliteFile(path, name="notes", create=_create)
    with file.reader() as first:
        pass
    with pytest.raises(sqlite3.OperationalError), file.reader() as failed:
        failed.execute("SELECT * FROM missing")
    with file.reader() as second:
        assert first is failed is not second
    file.close()
    for connection in (first, second):
        with pytest.raises(sqlite3.ProgrammingError):
            connection.execute("SELECT 1")


async def test_errors_have_the_name_of_the_engine_and_a_remedy(notes: ReopenableFile[SqliteFile], path: Path) -> None:
    """A damaged file is named with the command that rebuilds it. Other errors have none."""
    with pytest.raises(EngineUnavailable, match=r"notes\.db: no such table: missing"):
        async with notes.use() as file:
            await file.writer.submit(lambda connection: connection.execute("SELECT * FROM missing"))
    await notes.close()
    path.write_bytes(b"\xa5" * 10_000)
    with pytest.raises(EngineUnavailable, match=r"notes\.db is damaged .*delete it.*rookery brain:reindex"):
        await _add(notes, "heron")

    _delete(path)
    assert await _read(notes) == []
