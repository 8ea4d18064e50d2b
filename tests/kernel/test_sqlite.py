"""SQLite as we open it, and the one thread that writes."""

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


def test_a_commit_is_on_the_disk_and_a_lock_is_waited_for(tmp_path: Path) -> None:
    """Issue, kernel: WAL, synchronous FULL (2), a busy timeout; foreign keys hold."""
    with closing(connect(tmp_path / "a.db")) as connection:
        found = {
            name: connection.execute(f"PRAGMA {name}").fetchone()[0]
            for name in ("journal_mode", "synchronous", "busy_timeout", "foreign_keys")
        }

    assert found == {"journal_mode": "wal", "synchronous": 2, "busy_timeout": 10_000, "foreign_keys": 1}


async def test_writes_that_come_at_once_share_a_commit_and_fail_alone(tmp_path: Path) -> None:
    """Issue, kernel: one writer with group commit; what one piece raises undoes that piece and no other."""
    said, is_busy, go_on = list[str](), threading.Event(), threading.Event()

    def opened() -> sqlite3.Connection:
        connection = connect(tmp_path / "a.db")
        connection.execute("CREATE TABLE numbers (number INTEGER PRIMARY KEY)")
        connection.set_trace_callback(said.append)
        return connection

    def hold(_: sqlite3.Connection) -> None:
        is_busy.set()
        assert go_on.wait(10)

    def put(number: int) -> asyncio.Task[None]:
        async def submit() -> None:
            await writer.submit(lambda connection: connection.execute("INSERT INTO numbers VALUES (?)", [number]).close())

        return asyncio.create_task(submit())

    writer = SqliteWriter(opened, name="numbers")
    first = asyncio.create_task(writer.submit(hold))
    await asyncio.to_thread(is_busy.wait, 10)
    others = [put(number) for number in (*range(50), 7)]
    await asyncio.sleep(0)
    go_on.set()
    await first
    outcomes = await asyncio.gather(*others, return_exceptions=True)
    count = await writer.submit(lambda connection: connection.execute("SELECT count(*) FROM numbers").fetchone()[0])
    writer.close()

    assert [type(outcome) for outcome in outcomes] == [type(None)] * 50 + [sqlite3.IntegrityError]
    assert (count, said.count("COMMIT")) == (50, 3)


async def test_one_that_is_alone_is_undone_when_it_raises(tmp_path: Path) -> None:
    """Issue, kernel: an exception undoes all of it."""
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


async def test_who_finds_his_work_done_by_a_commit_that_waited_for_no_disk_waits_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D-51: a job that finds the words of a memory there ends, so they must be there after a power failure, too."""
    synced, sync = list[str](), os.fsync

    def fsync(descriptor: int) -> None:
        synced.append(Path(f"/proc/self/fd/{descriptor}").readlink().name)
        sync(descriptor)

    def look(connection: sqlite3.Connection) -> int:
        return int(connection.execute("SELECT count(*) FROM numbers").fetchone()[0])

    def put(connection: sqlite3.Connection) -> None:
        connection.execute("INSERT INTO numbers VALUES (1)")

    writer = SqliteWriter(lambda: connect(tmp_path / "a.db"), name="a")
    await writer.submit(lambda connection: connection.execute("CREATE TABLE numbers (number)").close())
    monkeypatch.setattr(os, "fsync", fsync)
    await writer.submit(put, is_synced=False)
    await writer.submit(look, is_synced=False)
    before = list(synced)
    found = await writer.submit(look)
    after = list(synced)
    await writer.submit(put)
    await asyncio.to_thread(writer.close)

    assert (found, before, after, synced) == (1, [], ["a.db-wal"], ["a.db-wal"])


async def test_what_is_and_what_is_not_waited_for_may_come_in_any_order(tmp_path: Path) -> None:
    """House 5.2: who says that his work may be lost changes nothing for others."""
    levels = list[int]()

    def note(connection: sqlite3.Connection) -> None:
        levels.append(int(connection.execute("PRAGMA synchronous").fetchone()[0]))

    writer = SqliteWriter(lambda: connect(tmp_path / "a.db"), name="a")
    for is_synced in (True, False, False, True, True, False):
        await writer.submit(note, is_synced=is_synced)
    await asyncio.to_thread(writer.close)

    assert levels == [2, 1, 1, 2, 2, 1]


async def test_a_commit_undone_by_a_full_disk_tells_each_who_shared_it_why(tmp_path: Path) -> None:
    """D-17: 507 for all of them; SQLite itself rolls the whole transaction back when there is no room."""
    entered, let_go = threading.Event(), threading.Event()
    writer = SqliteWriter(lambda: connect(tmp_path / "a.db"), name="a")

    def hold(_: sqlite3.Connection) -> None:
        entered.set()
        let_go.wait(10)

    def fill(connection: sqlite3.Connection) -> None:
        connection.execute("ROLLBACK")
        raise sqlite3.OperationalError("database or disk is full")

    def do_nothing(_: sqlite3.Connection) -> None:
        return

    holding = asyncio.create_task(writer.submit(hold))
    await asyncio.to_thread(entered.wait, 10)
    sharing = asyncio.gather(*(writer.submit(work) for work in (do_nothing, fill, do_nothing)), return_exceptions=True)
    await asyncio.sleep(0)
    let_go.set()
    await holding

    assert [str(error) for error in await sharing] == ["database or disk is full"] * 3
    assert await writer.submit(lambda connection: connection.execute("SELECT 1").fetchone()) == (1,)
    await asyncio.to_thread(writer.close)


def test_several_that_open_a_new_file_at_once_wait_for_each_other(tmp_path: Path) -> None:
    """D-01: processes that start together on an empty folder; SQLite itself does not wait for the switch to WAL."""
    for number in range(40):
        path, together = tmp_path / f"{number}.db", threading.Barrier(6)

        def open_it(path: Path = path, together: threading.Barrier = together) -> None:
            together.wait(10)
            connect(path).close()

        with ThreadPoolExecutor(6) as threads:
            for done in [threads.submit(open_it) for _ in range(6)]:
                done.result(30)
