"""The settings of SQLite connections, and the writer thread."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from rookery.kernel.sqlite import SqliteWriter, connect
from tests.conftest import eventually


def test_connections_have_durable_commits_and_a_busy_timeout(tmp_path: Path) -> None:
    """Connections use WAL, synchronous FULL (2), a busy timeout and foreign keys."""
    with closing(connect(tmp_path / "a.db")) as connection:
        pragmas = {
            name: connection.execute(f"PRAGMA {name}").fetchone()[0]
            for name in ("journal_mode", "synchronous", "busy_timeout", "foreign_keys")
        }

    assert pragmas == {"journal_mode": "wal", "synchronous": 2, "busy_timeout": 10_000, "foreign_keys": 1}


async def test_concurrent_writes_share_a_commit_and_fail_alone(tmp_path: Path) -> None:
    """An exception rolls back only its own write."""
    statements, is_busy, continued = list[str](), threading.Event(), threading.Event()

    def open_connection() -> sqlite3.Connection:
        connection = connect(tmp_path / "a.db")
        connection.execute("CREATE TABLE numbers (number INTEGER PRIMARY KEY)")
        connection.set_trace_callback(statements.append)
        return connection

    def block_writer(_: sqlite3.Connection) -> None:
        is_busy.set()
        assert continued.wait(10)

    def submit_number(number: int) -> asyncio.Task[None]:
        async def submit_insert() -> None:
            await writer.submit(lambda connection: connection.execute("INSERT INTO numbers VALUES (?)", [number]).close())

        return asyncio.create_task(submit_insert())

    writer = SqliteWriter(open_connection, name="numbers")
    first = asyncio.create_task(writer.submit(block_writer))
    await asyncio.to_thread(is_busy.wait, 10)
    tasks = [submit_number(number) for number in (*range(50), 7)]
    await asyncio.sleep(0)
    continued.set()
    await first
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    count = await writer.submit(lambda connection: connection.execute("SELECT count(*) FROM numbers").fetchone()[0])
    writer.close()

    assert [type(outcome) for outcome in outcomes] == [type(None)] * 50 + [sqlite3.IntegrityError]
    assert (count, statements.count("COMMIT")) == (50, 3)


async def test_a_single_write_is_rolled_back_when_it_raises(tmp_path: Path) -> None:
    """An exception rolls back the whole write."""
    writer = SqliteWriter(lambda: connect(tmp_path / "a.db"), name="a")
    await writer.submit(lambda connection: connection.execute("CREATE TABLE numbers (number)").close())

    def put_and_fail(connection: sqlite3.Connection) -> None:
        connection.execute("INSERT INTO numbers VALUES (1)")
        raise LookupError

    with pytest.raises(LookupError):
        await writer.submit(put_and_fail)
    count = await writer.submit(lambda connection: connection.execute("SELECT count(*) FROM numbers").fetchone()[0])
    await asyncio.to_thread(writer.close)

    assert count == 0


async def test_a_write_waits_for_the_writer_of_another_process(tmp_path: Path) -> None:
    """It asks for the lock again and again, so that it is soon the next. SQLite's own waits grow to a tenth of a second."""
    attempts = list[str]()

    def open_connection() -> sqlite3.Connection:
        connection = connect(tmp_path / "a.db")
        connection.set_trace_callback(attempts.append)
        return connection

    writer = SqliteWriter(open_connection, name="a")
    with closing(connect(tmp_path / "a.db")) as other:
        other.execute("BEGIN IMMEDIATE")
        other.execute("CREATE TABLE numbers (number)")
        writing = asyncio.create_task(writer.submit(lambda connection: connection.execute("INSERT INTO numbers VALUES (1)").rowcount))
        await eventually(lambda: attempts.count("BEGIN IMMEDIATE") >= 20)
        other.execute("COMMIT")
        assert await writing == 1
    await asyncio.to_thread(writer.close)


async def test_a_synced_read_syncs_an_earlier_unsynced_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job that finds its work done must be sure that it survives a power failure."""
    synced_files, sync = list[str](), os.fsync

    def fsync(descriptor: int) -> None:
        synced_files.append(Path(f"/proc/self/fd/{descriptor}").readlink().name)
        sync(descriptor)

    def count_rows(connection: sqlite3.Connection) -> int:
        return int(connection.execute("SELECT count(*) FROM numbers").fetchone()[0])

    def insert_row(connection: sqlite3.Connection) -> None:
        connection.execute("INSERT INTO numbers VALUES (1)")

    writer = SqliteWriter(lambda: connect(tmp_path / "a.db"), name="a")
    await writer.submit(lambda connection: connection.execute("CREATE TABLE numbers (number)").close())
    monkeypatch.setattr(os, "fsync", fsync)  # only a power failure would show from outside which files were synced
    await writer.submit(insert_row, is_synced=False)
    await writer.submit(count_rows, is_synced=False)
    synced_before = list(synced_files)
    row_count = await writer.submit(count_rows)
    synced_after = list(synced_files)
    await writer.submit(insert_row)
    await asyncio.to_thread(writer.close)

    assert (row_count, synced_before, synced_after, synced_files) == (1, [], ["a.db-wal"], ["a.db-wal"])


async def test_synced_and_unsynced_writes_may_come_in_any_order(tmp_path: Path) -> None:
    """An unsynced write does not affect other writes."""
    levels = list[int]()

    def record_level(connection: sqlite3.Connection) -> None:
        levels.append(int(connection.execute("PRAGMA synchronous").fetchone()[0]))

    writer = SqliteWriter(lambda: connect(tmp_path / "a.db"), name="a")
    for is_synced in (True, False, False, True, True, False):
        await writer.submit(record_level, is_synced=is_synced)
    await asyncio.to_thread(writer.close)

    assert levels == [2, 1, 1, 2, 2, 1]


async def test_a_commit_that_fails_on_a_full_disk_fails_all_its_writes(tmp_path: Path) -> None:
    """SQLite rolls back the whole transaction, so all of its writes get the error."""
    entered, released = threading.Event(), threading.Event()
    writer = SqliteWriter(lambda: connect(tmp_path / "a.db"), name="a")

    def block_writer(_: sqlite3.Connection) -> None:
        entered.set()
        released.wait(10)

    def fill(connection: sqlite3.Connection) -> None:
        connection.execute("ROLLBACK")
        raise sqlite3.OperationalError("database or disk is full")

    def do_nothing(_: sqlite3.Connection) -> None:
        return

    blocking_task = asyncio.create_task(writer.submit(block_writer))
    await asyncio.to_thread(entered.wait, 10)
    shared_writes = asyncio.gather(*(writer.submit(work) for work in (do_nothing, fill, do_nothing)), return_exceptions=True)
    await asyncio.sleep(0)
    released.set()
    await blocking_task

    assert [str(error) for error in await shared_writes] == ["database or disk is full"] * 3
    assert await writer.submit(lambda connection: connection.execute("SELECT 1").fetchone()) == (1,)
    await asyncio.to_thread(writer.close)


def test_concurrent_opens_of_a_new_file_wait_for_each_other(tmp_path: Path) -> None:
    """SQLite itself does not wait for the switch to WAL when processes start together."""
    for number in range(40):
        path, barrier = tmp_path / f"{number}.db", threading.Barrier(6)

        def open_it(path: Path = path, barrier: threading.Barrier = barrier) -> None:
            barrier.wait(10)
            connect(path).close()

        with ThreadPoolExecutor(6) as threads:
            for future in [threads.submit(open_it) for _ in range(6)]:
                future.result(30)
