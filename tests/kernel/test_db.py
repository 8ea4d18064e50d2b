"""The record store, with the same behaviour on both dialects."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest
from sqlalchemy import Text, bindparam, cast, func, insert, literal_column, select, text, update

from rookery.kernel.clock import utc_now
from rookery.kernel.db import Database, Tx, dry_run, open_database, upsert
from rookery.kernel.db.sqlite import SqliteDatabase
from rookery.kernel.errors import Conflict, EngineUnavailable, WrongSettings
from rookery.kernel.ids import uuid7
from rookery.kernel.jobs import JobQueue, jobs
from tests.deadlines import HANG_S

_INSERT = insert(jobs)
_SELECT = select(jobs).where(jobs.c.id == bindparam("the_id"))
_COUNT = select(func.count().label("n")).select_from(jobs)
_SELECT_IN = select(jobs.c.id).where(jobs.c.id.in_(bindparam("ids", expanding=True)))
_SELECT_NOT_IN = select(jobs.c.id).where(jobs.c.id.not_in(bindparam("ids", expanding=True)))
_UPDATE = update(jobs).where(jobs.c.id == bindparam("the_id")).values(kind=bindparam("new_kind"))
_UPSERT_RETURNING = upsert(
    jobs, index_elements=["id"], set_=lambda new: {"attempts": jobs.c.attempts + new.attempts}, returning=[jobs.c.attempts]
)
_INSERT_OR_IGNORE = upsert(jobs, index_elements=["id"])
_UPSERT = upsert(jobs, index_elements=["id"], set_=lambda new: {"attempts": jobs.c.attempts + new.attempts})


def _row(name: str, **overrides: str | int | None) -> dict[str, str | int | None]:
    return {
        "id": name,
        "kind": "K",
        "workspace_id": 1,
        "payload": "{}",
        "attempts": 1,
        "run_at": 0,
        "owner": None,
        "created_at": 2**53 + 1,
        "failed_at": None,
        "last_error": None,
    } | overrides


async def _count(database: Database) -> int:
    row = await database.read(lambda tx: tx.fetch_one(_COUNT))
    return row.integer("n") if row else -1


async def test_an_index_hint_of_a_statement_reaches_sqlite(database: Database, database_url: str) -> None:
    """SQLite has no statistics and needs the hint, which SQLAlchemy alone would silently drop."""
    hinted = _COUNT.with_hint(jobs, "INDEXED BY no_such_index", "sqlite")

    if database_url.startswith("embedded"):
        with pytest.raises(EngineUnavailable, match="no_such_index"):
            await database.read(lambda tx: tx.fetch_one(hinted))
    else:
        assert await database.read(lambda tx: tx.fetch_one(hinted)) is not None


async def test_a_row_is_read_back_as_written(database: Database) -> None:
    """Both dialects return the same primitive values."""
    await database.write(lambda tx: tx.execute(_INSERT, _row("a", payload='{"é": "𝄞"}')))

    for read in (database.read, database.lookup):
        row = await read(lambda tx: tx.fetch_one(_SELECT, {"the_id": "a"}))
        assert row is not None
        assert (row.text("payload"), row.integer("created_at"), row.maybe_text("owner")) == ('{"é": "𝄞"}', 2**53 + 1, None)


async def test_an_exception_rolls_back_only_its_own_write(database: Database) -> None:
    """Writes share a commit, but each is rolled back alone."""

    def fail(tx: Tx) -> None:
        tx.execute(_INSERT, _row("rolled back"))
        raise LookupError

    results = await asyncio.gather(
        database.write(lambda tx: tx.execute(_INSERT, _row("stored"))),
        database.write(fail),
        database.write(lambda tx: tx.execute(_INSERT, _row("also stored"))),
        return_exceptions=True,
    )

    assert isinstance(results[1], LookupError)
    assert await _count(database) == 2


async def test_a_dry_run_changes_nothing_and_raises_what_its_work_raises(database: Database) -> None:
    """Its callbacks do not run either, because nothing is committed."""
    calls = list[str]()

    def work(tx: Tx) -> None:
        tx.execute(_INSERT, _row("a"))
        tx.after_commit(lambda: calls.append("committed"))

    await dry_run(database, work)
    assert (await _count(database), calls) == (0, [])

    await database.write(work)
    with pytest.raises(Conflict):
        await dry_run(database, work)


async def test_a_duplicate_id_is_a_conflict_in_both_dialects(database: Database) -> None:
    """Exceptions of engines are mapped to the same errors."""
    await database.write(lambda tx: tx.execute(_INSERT, _row("a")))

    with pytest.raises(Conflict):
        await database.write(lambda tx: tx.execute(_INSERT, _row("a")))


async def test_lists_of_values_may_be_empty(database: Database) -> None:
    """An empty IN list matches nothing, and an empty NOT IN list everything."""
    await database.write(lambda tx: tx.execute_many(_INSERT, [_row("a"), _row("b")]))

    spelt_out = select(jobs.c.id).where(jobs.c.id.in_(["a", "z"]), jobs.c.kind.not_in([])).limit(5)

    def read_counts(tx: Tx) -> list[int]:
        return [
            len(tx.fetch_all(spelt_out)),
            len(tx.fetch_all(_SELECT_IN, {"ids": ["a", "z"]})),
            len(tx.fetch_all(_SELECT_IN, {"ids": []})),
            len(tx.fetch_all(_SELECT_NOT_IN, {"ids": []})),
        ]

    assert await database.read(read_counts) == [1, 1, 0, 2]


@pytest.mark.parametrize("count", [1, 15, 16, 17, 33, 200, 1_100, 4_096, 4_097])
async def test_lists_of_values_may_have_any_length(database: Database, count: int) -> None:
    """Long lists are padded, so that most have the same SQL text. The values repeated for this change no result."""
    await database.write(lambda tx: tx.execute_many(_INSERT, [_row("a"), _row("b"), _row("c")]))
    listed = ["a", *(f"missing-{number}" for number in range(count - 1))]

    def read_ids(tx: Tx) -> list[set[str]]:
        return [{row.text("id") for row in tx.fetch_all(statement, {"ids": listed})} for statement in (_SELECT_IN, _SELECT_NOT_IN)]

    assert await database.read(read_ids) == [{"a"}, {"b", "c"}]


async def test_an_upsert_updates_or_ignores_an_existing_row(database: Database) -> None:
    """Upserts are the one construct that differs between the dialects."""

    def work(tx: Tx) -> tuple[int, int, int]:
        tx.execute(_INSERT_OR_IGNORE, _row("a", attempts=5))
        tx.execute(_INSERT_OR_IGNORE, _row("a", attempts=99))
        updated = tx.fetch_one(_UPSERT_RETURNING, _row("a", attempts=2))
        renamed = tx.execute(_UPDATE, {"the_id": "a", "new_kind": "L"})
        return (updated.integer("attempts") if updated else -1, renamed, tx.execute(_UPDATE, {"the_id": "z", "new_kind": "L"}))

    assert await database.write(work) == (7, 1, 0)


@pytest.mark.parametrize("row_count", [1, 2, 7, 8, 9, 100, 1337])
async def test_many_rows_are_written_unchanged(database: Database, row_count: int) -> None:
    """Many rows are split into few statements, invisibly for callers."""
    rows_to_write = [
        _row(f"r{number:05}", attempts=number, last_error=None if number % 2 else f"?, ({number}) 'é'") for number in range(row_count)
    ]

    written = await database.write(lambda tx: tx.execute_many(_INSERT, rows_to_write))

    stored_rows = await database.read(lambda tx: tx.fetch_all(select(jobs).order_by(jobs.c.id)))
    assert written == row_count
    assert [dict(zip(rows_to_write[0], row.values, strict=True)) for row in stored_rows] == rows_to_write


async def test_existing_rows_are_not_counted_and_a_conflict_rolls_back_all_rows(database: Database) -> None:
    """The error does not depend on which row was in conflict."""
    await database.write(lambda tx: tx.execute(_INSERT, _row("r5")))
    rows_to_write = [_row(f"r{number}") for number in range(9)]

    with pytest.raises(Conflict):
        await database.write(lambda tx: tx.execute_many(_INSERT, rows_to_write))
    assert await _count(database) == 1

    assert await database.write(lambda tx: tx.execute_many(_INSERT_OR_IGNORE, [*rows_to_write, _row("r0")])) == 8
    assert await database.write(lambda tx: tx.execute_many(_UPSERT, [_row("r1", attempts=4), _row("new"), _row("r1", attempts=5)])) == 3
    row = await database.lookup(lambda tx: tx.fetch_one(_SELECT, {"the_id": "r1"}))
    assert row is not None
    assert (row.integer("attempts"), await _count(database)) == (10, 10)


async def test_a_missing_parameter_is_an_error_not_a_null(database: Database) -> None:
    """A forgotten tenant must never become a query for NULL."""
    with pytest.raises(Exception, match="the_id"):
        await database.lookup(lambda tx: tx.fetch_one(_SELECT, {}))


async def test_after_commit_callbacks_run_only_after_a_commit(database: Database) -> None:
    """Events are sent only for committed changes."""
    calls = list[str]()

    def work(tx: Tx, *, fail: bool) -> None:
        tx.after_commit(lambda: calls.append("failed" if fail else "committed"))
        if fail:
            raise LookupError

    with pytest.raises(LookupError):
        await database.write(lambda tx: work(tx, fail=True))
    assert calls == []
    await database.write(lambda tx: work(tx, fail=False))
    assert calls == ["committed"]


async def test_before_commit_callbacks_are_part_of_the_transaction(database: Database) -> None:
    """They see all changes of the transaction, and their failure rolls it back."""
    calls = list[tuple[int, list[object]]]()

    def record_call(tx: Tx, items: list[object]) -> None:
        calls.append((tx.execute(_UPDATE, {"the_id": "b", "new_kind": "L"}), items))
        if "broken" in items:
            raise LookupError

    def work(tx: Tx, *items: str) -> None:
        for item in items:
            tx.before_commit(record_call, item)
        tx.execute(_INSERT, _row("b"))

    with pytest.raises(LookupError):
        await database.write(lambda tx: work(tx, "one", "broken"))
    assert (calls, await _count(database)) == ([(1, ["one", "broken"])], 0)
    await database.write(lambda tx: work(tx, "two", "three"))
    assert (calls[1:], await _count(database)) == ([(1, ["two", "three"])], 1)


async def test_a_write_may_skip_waiting_for_the_disk(database: Database, database_url: str) -> None:
    """A generation has two writes, and only the one before its answer waits."""
    if database_url == "embedded:":
        statement = select(cast(literal_column("synchronous"), Text).label("level")).select_from(text("pragma_synchronous"))
        unsynced_level, synced_level = "1", "2"
    else:
        statement = select(func.current_setting("synchronous_commit").label("level"))
        unsynced_level, synced_level = "off", None  # the server of the tests never waits

    def read_level(tx: Tx) -> str | None:
        row = tx.fetch_one(statement)
        return None if row is None else row.text("level")

    levels = [await database.write(read_level, is_synced=is_synced) for is_synced in (False, True, False)]

    assert levels[0] == levels[2] == unsynced_level
    assert synced_level in {None, levels[1]}


async def test_a_cancelled_caller_leaves_no_partial_transaction(database: Database) -> None:
    """Cancelling a request neither loses nor splits its write."""
    tasks = [
        asyncio.create_task(database.write(lambda tx, n=n: tx.execute_many(_INSERT, [_row(f"{n}a"), _row(f"{n}b")]))) for n in range(50)
    ]
    await asyncio.sleep(0)
    for task in tasks[::2]:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    await database.write(lambda tx: tx.execute(_INSERT, _row("last")))

    assert await _count(database) % 2 == 1


async def test_many_writers_lose_nothing(database: Database) -> None:
    """One writer commits groups of writes."""

    async def write(number: int) -> None:
        for turn in range(20):
            await database.write(lambda tx, turn=turn: tx.execute(_INSERT, _row(f"{number}-{turn}")))

    await asyncio.gather(*(write(number) for number in range(16)))

    assert await _count(database) == 320


async def test_jobs_and_rows_commit_together(database: Database) -> None:
    """A job exists only if its transaction commits (house rules)."""
    queue = JobQueue(database, utc_now, uuid7)

    def work(tx: Tx) -> None:
        queue.enqueue(tx, "Embed", workspace_id=1, payload={"n": 1})
        raise LookupError

    with pytest.raises(LookupError):
        await database.write(work)
    assert await queue.count_pending("Embed", 1) == 0


async def test_acknowledged_rows_survive_kill_9(data_dir: Path) -> None:
    """SQLite runs with synchronous FULL, so that kill -9 loses no acknowledged row."""
    program = textwrap.dedent("""
        import asyncio, pathlib, sys
        from sqlalchemy import insert
        from rookery.kernel.db import open_database
        from rookery.kernel.jobs import jobs
        async def main():
            db = open_database("embedded:", data_dir=pathlib.Path(sys.argv[1]))
            async def write(w):
                for n in range(100000):
                    row = dict(id=f"{w}-{n}", kind="K", workspace_id=1, payload="{}", attempts=0, run_at=0, owner=None, created_at=0,
                               failed_at=None, last_error=None)
                    await db.write(lambda tx: tx.execute(PUT, row))
                    print(row["id"], flush=True)
            PUT = insert(jobs)
            await asyncio.gather(*(write(w) for w in range(4)))
        asyncio.run(main())
    """)
    with subprocess.Popen([sys.executable, "-c", program, str(data_dir)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        acknowledged = [process.stdout.readline().strip() for _ in range(200)]
        process.kill()
        acknowledged += process.stdout.read().split("\n")[:-1]

    with sqlite3.connect(data_dir / "records.db") as connection:
        stored = {str(row[0]) for row in connection.execute("SELECT id FROM jobs")}
    assert set(acknowledged) <= stored


async def test_another_process_reads_a_commit_immediately(data_dir: Path) -> None:
    """Several processes may share the folder."""
    first, second = open_database("embedded:", data_dir=data_dir), open_database("embedded:", data_dir=data_dir)
    assert await second.lookup(lambda tx: tx.fetch_one(_SELECT, {"the_id": "a"})) is None
    await first.write(lambda tx: tx.execute(_INSERT, _row("a")))

    assert await second.lookup(lambda tx: tx.fetch_one(_SELECT, {"the_id": "a"})) is not None
    await asyncio.gather(first.close(), second.close())


async def test_a_store_that_cannot_be_opened_is_unavailable(tmp_path: Path) -> None:
    """The error is engine_unavailable, never an exception of a driver."""
    db = open_database("embedded:", data_dir=tmp_path / "missing")

    with pytest.raises(EngineUnavailable):
        await db.lookup(lambda tx: tx.fetch_one(_SELECT, {"the_id": "a"}))
    with pytest.raises(EngineUnavailable):
        await db.write(lambda tx: tx.execute(_INSERT, _row("a")))
    await db.close()


_ENDLESS = text("WITH RECURSIVE counts(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM counts) SELECT count(*) AS n FROM counts")


async def test_a_read_of_sqlite_that_takes_too_long_ends(tmp_path: Path) -> None:
    """
    The caller gets engine_unavailable, and the thread is free for the next read.

    Four endless reads once took all threads for good, and the server did not stop. A preview of 100,000 subscribers is such a read.
    """
    db = SqliteDatabase(tmp_path / "records.db", read_timeout_s=0.2)
    await db.write(lambda tx: tx.execute(text("CREATE TABLE empty (n INTEGER)")))
    for _ in range(5):
        with pytest.raises(EngineUnavailable, match="a read took longer than"):
            await db.read(lambda tx: tx.fetch_one(_ENDLESS))

    assert await db.read(lambda tx: tx.fetch_one(text("SELECT 1 AS n"))) is not None
    await db.close()


async def test_the_record_store_on_sqlite_closes_during_a_read(tmp_path: Path) -> None:
    """A read that nobody waits for any longer does not hold up the end of the server."""
    db = SqliteDatabase(tmp_path / "records.db")
    await db.write(lambda tx: tx.execute(text("CREATE TABLE empty (n INTEGER)")))
    has_begun = threading.Event()

    def read(tx: Tx) -> object:
        has_begun.set()
        return tx.fetch_one(_ENDLESS)

    reading = asyncio.ensure_future(db.read(read))
    await asyncio.to_thread(has_begun.wait, HANG_S)
    async with asyncio.timeout(HANG_S):
        await db.close()
        with pytest.raises(EngineUnavailable):
            await reading


def test_an_unknown_url_is_rejected(tmp_path: Path) -> None:
    """The error is one clear line without the secret."""
    with pytest.raises(WrongSettings) as error:
        open_database("mysql://root:hunter2@host/db", data_dir=tmp_path)

    assert "mysql" in error.value.message
    assert "hunter2" not in error.value.message
