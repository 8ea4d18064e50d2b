"""The record store: one behaviour on both dialects."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from sqlalchemy import bindparam, func, insert, select, update

from rookery.kernel.clock import utc_now
from rookery.kernel.db import Database, Tx, open_database, upsert
from rookery.kernel.errors import Conflict, EngineUnavailable, WrongSettings
from rookery.kernel.ids import uuid7
from rookery.kernel.jobs import JobQueue, jobs

_PUT = insert(jobs)
_GET = select(jobs).where(jobs.c.id == bindparam("the_id"))
_COUNT = select(func.count().label("n")).select_from(jobs)
_AMONG = select(jobs.c.id).where(jobs.c.id.in_(bindparam("ids", expanding=True)))
_NOT_AMONG = select(jobs.c.id).where(jobs.c.id.not_in(bindparam("ids", expanding=True)))
_RENAME = update(jobs).where(jobs.c.id == bindparam("the_id")).values(kind=bindparam("new_kind"))
_RAISE = upsert(jobs, index_elements=["id"], set_=lambda new: {"attempts": jobs.c.attempts + new.attempts}, returning=[jobs.c.attempts])
_KEEP = upsert(jobs, index_elements=["id"])
_ADD = upsert(jobs, index_elements=["id"], set_=lambda new: {"attempts": jobs.c.attempts + new.attempts})


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


async def test_an_index_that_a_statement_names_is_the_one_by_which_sqlite_reads(database: Database, database_url: str) -> None:
    """House 5.2, idea 2: SQLite has no statistics here and is told; SQLAlchemy alone would drop the hint without a word."""
    hinted = _COUNT.with_hint(jobs, "INDEXED BY no_such_index", "sqlite")

    if database_url.startswith("embedded"):
        with pytest.raises(EngineUnavailable, match="no_such_index"):
            await database.read(lambda tx: tx.fetch_one(hinted))
    else:
        assert await database.read(lambda tx: tx.fetch_one(hinted)) is not None


async def test_a_row_comes_back_as_it_was_written(database: Database) -> None:
    """House 5.2, idea 2: two dialects, one store; columns are primitive."""
    await database.write(lambda tx: tx.execute(_PUT, _row("a", payload='{"é": "𝄞"}')))

    for way in (database.read, database.lookup):
        row = await way(lambda tx: tx.fetch_one(_GET, {"the_id": "a"}))
        assert row is not None
        assert (row.text("payload"), row.integer("created_at"), row.maybe_text("owner")) == ('{"é": "𝄞"}', 2**53 + 1, None)


async def test_an_exception_undoes_all_of_its_transaction_and_nothing_else(database: Database) -> None:
    """Issue, kernel: writes share a commit, but each is undone alone."""

    def fail(tx: Tx) -> None:
        tx.execute(_PUT, _row("lost"))
        raise LookupError

    results = await asyncio.gather(
        database.write(lambda tx: tx.execute(_PUT, _row("kept"))),
        database.write(fail),
        database.write(lambda tx: tx.execute(_PUT, _row("kept too"))),
        return_exceptions=True,
    )

    assert isinstance(results[1], LookupError)
    assert await _count(database) == 2


async def test_a_name_that_exists_is_a_conflict_in_both_dialects(database: Database) -> None:
    """House 6, errors: engines' exceptions never leak, and are the same in every engine."""
    await database.write(lambda tx: tx.execute(_PUT, _row("a")))

    with pytest.raises(Conflict):
        await database.write(lambda tx: tx.execute(_PUT, _row("a")))


async def test_lists_of_values_may_be_empty(database: Database) -> None:
    """An empty IN list matches nothing, and an empty NOT IN list everything."""
    await database.write(lambda tx: tx.execute_many(_PUT, [_row("a"), _row("b")]))

    spelt_out = select(jobs.c.id).where(jobs.c.id.in_(["a", "z"]), jobs.c.kind.not_in([])).limit(5)

    def look(tx: Tx) -> list[int]:
        return [
            len(tx.fetch_all(spelt_out)),
            len(tx.fetch_all(_AMONG, {"ids": ["a", "z"]})),
            len(tx.fetch_all(_AMONG, {"ids": []})),
            len(tx.fetch_all(_NOT_AMONG, {"ids": []})),
        ]

    assert await database.read(look) == [1, 1, 0, 2]


async def test_upsert_sets_or_keeps(database: Database) -> None:
    """The one construct in which the dialects differ."""

    def work(tx: Tx) -> tuple[int, int, int]:
        tx.execute(_KEEP, _row("a", attempts=5))
        tx.execute(_KEEP, _row("a", attempts=99))
        raised = tx.fetch_one(_RAISE, _row("a", attempts=2))
        renamed = tx.execute(_RENAME, {"the_id": "a", "new_kind": "L"})
        return (raised.integer("attempts") if raised else -1, renamed, tx.execute(_RENAME, {"the_id": "z", "new_kind": "L"}))

    assert await database.write(work) == (7, 1, 0)


@pytest.mark.parametrize("rows", [1, 2, 7, 8, 9, 100, 1337])
async def test_many_are_written_each_as_it_was_given(database: Database, rows: int) -> None:
    """Notes on engines: few statements for many rows; callers do not see how the rows are split."""
    given = [_row(f"r{number:05}", attempts=number, last_error=None if number % 2 else f"?, ({number}) 'é'") for number in range(rows)]

    written = await database.write(lambda tx: tx.execute_many(_PUT, given))

    kept = await database.read(lambda tx: tx.fetch_all(select(jobs).order_by(jobs.c.id)))
    assert written == rows
    assert [dict(zip(given[0], row.values, strict=True)) for row in kept] == given


async def test_of_many_those_that_exist_are_not_counted_and_one_too_many_undoes_all(database: Database) -> None:
    """House 6: the same error, and nothing of the piece, whichever row it was."""
    await database.write(lambda tx: tx.execute(_PUT, _row("r5")))
    given = [_row(f"r{number}") for number in range(9)]

    with pytest.raises(Conflict):
        await database.write(lambda tx: tx.execute_many(_PUT, given))
    assert await _count(database) == 1

    assert await database.write(lambda tx: tx.execute_many(_KEEP, [*given, _row("r0")])) == 8
    assert await database.write(lambda tx: tx.execute_many(_ADD, [_row("r1", attempts=4), _row("new"), _row("r1", attempts=5)])) == 3
    row = await database.lookup(lambda tx: tx.fetch_one(_GET, {"the_id": "r1"}))
    assert row is not None
    assert (row.integer("attempts"), await _count(database)) == (10, 10)


async def test_a_missing_parameter_is_an_error_not_a_null(database: Database) -> None:
    """A forgotten tenant must never become a query for no tenant."""
    with pytest.raises(Exception, match="the_id"):
        await database.lookup(lambda tx: tx.fetch_one(_GET, {}))


async def test_callbacks_run_after_the_commit_and_only_then(database: Database) -> None:
    """D-41, D-64: events tell of what is committed."""
    heard = list[str]()

    def work(tx: Tx, *, fail: bool) -> None:
        tx.after_commit(lambda: heard.append("failed" if fail else "committed"))
        if fail:
            raise LookupError

    with pytest.raises(LookupError):
        await database.write(lambda tx: work(tx, fail=True))
    assert heard == []
    await database.write(lambda tx: work(tx, fail=False))
    assert heard == ["committed"]


async def test_what_is_done_last_sees_all_of_the_transaction_and_belongs_to_it(database: Database) -> None:
    """D-81: an event shows what the transaction leaves behind; one that cannot be written down undoes what it tells of."""
    seen = list[tuple[int, list[object]]]()

    def last(tx: Tx, items: list[object]) -> None:
        seen.append((tx.execute(_RENAME, {"the_id": "b", "new_kind": "L"}), items))
        if "broken" in items:
            raise LookupError

    def work(tx: Tx, *items: str) -> None:
        for item in items:
            tx.before_commit(last, item)
        tx.execute(_PUT, _row("b"))

    with pytest.raises(LookupError):
        await database.write(lambda tx: work(tx, "one", "broken"))
    assert (seen, await _count(database)) == ([(1, ["one", "broken"])], 0)
    await database.write(lambda tx: work(tx, "two", "three"))
    assert (seen[1:], await _count(database)) == ([(1, ["two", "three"])], 1)


async def test_a_caller_that_gives_up_leaves_no_half_transaction(database: Database) -> None:
    """House 6, async: cancelling a request neither loses nor splits what it had handed over."""
    writing = [
        asyncio.create_task(database.write(lambda tx, n=n: tx.execute_many(_PUT, [_row(f"{n}a"), _row(f"{n}b")]))) for n in range(50)
    ]
    await asyncio.sleep(0)
    for task in writing[::2]:
        task.cancel()
    await asyncio.gather(*writing, return_exceptions=True)
    await database.write(lambda tx: tx.execute(_PUT, _row("last")))

    assert await _count(database) % 2 == 1


async def test_many_writers_lose_nothing(database: Database) -> None:
    """Issue, kernel: one writer with group commit."""

    async def write(number: int) -> None:
        for turn in range(20):
            await database.write(lambda tx, turn=turn: tx.execute(_PUT, _row(f"{number}-{turn}")))

    await asyncio.gather(*(write(number) for number in range(16)))

    assert await _count(database) == 320


async def test_jobs_and_rows_commit_together(database: Database) -> None:
    """House, one request, one transaction: a job exists only if its transaction commits."""
    queue = JobQueue(database, utc_now, uuid7)

    def work(tx: Tx) -> None:
        queue.enqueue(tx, "Embed", workspace_id=1, payload={"n": 1})
        raise LookupError

    with pytest.raises(LookupError):
        await database.write(work)
    assert await queue.count_pending("Embed", 1) == 0


async def test_acknowledged_rows_survive_kill_9(data_dir: Path) -> None:
    """Issue, done when: kill -9 at any moment loses nothing acknowledged; SQLite, synchronous FULL."""
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


async def test_a_second_process_sees_a_commit_at_once(data_dir: Path) -> None:
    """D-01: any number of processes may share the folder."""
    first, second = open_database("embedded:", data_dir=data_dir), open_database("embedded:", data_dir=data_dir)
    assert await second.lookup(lambda tx: tx.fetch_one(_GET, {"the_id": "a"})) is None
    await first.write(lambda tx: tx.execute(_PUT, _row("a")))

    assert await second.lookup(lambda tx: tx.fetch_one(_GET, {"the_id": "a"})) is not None
    await asyncio.gather(first.close(), second.close())


async def test_a_store_that_cannot_be_opened_says_so(tmp_path: Path) -> None:
    """D-10: engine_unavailable, never a driver's own exception."""
    db = open_database("embedded:", data_dir=tmp_path / "missing")

    with pytest.raises(EngineUnavailable):
        await db.lookup(lambda tx: tx.fetch_one(_GET, {"the_id": "a"}))
    with pytest.raises(EngineUnavailable):
        await db.write(lambda tx: tx.execute(_PUT, _row("a")))
    await db.close()


def test_an_unknown_address_refuses_to_start(tmp_path: Path) -> None:
    """D-02: a wrong value refuses to start, in one clear line, without the secret in it."""
    with pytest.raises(WrongSettings) as refusal:
        open_database("mysql://root:hunter2@host/db", data_dir=tmp_path)

    assert "mysql" in refusal.value.message
    assert "hunter2" not in refusal.value.message
