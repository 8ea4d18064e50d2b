"""
The records in PostgreSQL as the source and the target of backups and moves.

A backup has the records as a file of SQLite, wherever they are stored, so it can be restored onto each record store.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Generator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

import psycopg
from psycopg import IsolationLevel, sql
from psycopg.conninfo import make_conninfo

from rookery.backup.errors import DatabaseNotEmpty
from rookery.backup.record_copy import Postgres, PostgresSide, RecordTable, SqliteSide, TableCopy, copy_records
from rookery.kernel.errors import EngineUnavailable
from rookery.kernel.postgres_address import add_options, parse_postgres_address
from rookery.kernel.sqlite import connect
from rookery.migrations import begin_on_current_postgres, create_sqlite_store

_CONNECT_TIMEOUT_S = 10
_OPTIONS = "-c timezone=UTC -c statement_timeout=0 -c lock_timeout=60s"
_READ_REVISION = "SELECT version_num FROM alembic_version"
_COUNT_SESSIONS = """
SELECT count(*) FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid() AND leader_pid IS NULL AND usename IS NOT NULL
"""
_ESTIMATE_ROWS = """
SELECT coalesce(sum(n_live_tup), 0)::bigint FROM pg_stat_user_tables WHERE schemaname = current_schema() AND relname NOT LIKE 'rookery%'
"""
_READ_MARK = "SELECT obj_description(to_regclass('alembic_version'), 'pg_class')"


class RecordSnapshot:
    """The records of a database as of one moment, for a copy into a file."""

    def __init__(self, connection: Postgres) -> None:
        self._connection = connection
        self._revision = ""

    def begin(self) -> str:
        """
        Fix the moment. Return the revision of the store.

        Raises:
            EngineUnavailable: The database has no records of Rookery, or is unavailable.
        """
        with _map_errors():
            try:
                row = self._connection.execute(_READ_REVISION).fetchone()
            except psycopg.errors.UndefinedTable as error:
                raise EngineUnavailable("database", "it is not a record store of Rookery") from error
        if row is None:
            raise EngineUnavailable("database", "it is not a record store of Rookery")
        self._revision = str(row[0])
        return self._revision

    def count_other_sessions(self) -> int:
        """Return the number of other sessions on the database, such as those of a running server."""
        with _map_errors():
            self._connection.execute("SELECT pg_stat_clear_snapshot()")  # otherwise a transaction sees the sessions of its first look
            row = self._connection.execute(_COUNT_SESSIONS).fetchone()
        return int(str(row[0])) if row else 0

    def estimate_rows(self) -> int:
        """Return about the number of rows of all tables, by the statistics of the database."""
        with _map_errors():
            row = self._connection.execute(_ESTIMATE_ROWS).fetchone()
        return int(str(row[0])) if row else 0

    def export(self, path: Path, *, progress: Callable[[int], None]) -> tuple[TableCopy, ...]:
        """
        Copy the records into the new file *path*, and verify them.

        Raises:
            EngineUnavailable: The database is unavailable, or its tables are not those of its revision.
        """
        create_sqlite_store(path, self._revision)
        with _map_errors(), closing(connect(path, synchronous="OFF")) as raw:  # an incomplete copy is never used
            target, source = SqliteSide(raw), PostgresSide(self._connection)
            tables = target.list_tables()
            _require_same_columns(source, tables)
            raw.execute("BEGIN IMMEDIATE")
            copies = copy_records(source, target, tables, progress=progress)
            raw.execute("COMMIT")
            raw.execute("PRAGMA synchronous=FULL")
            raw.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return copies


@contextmanager
def open_record_snapshot(url: str, *, is_locked: bool = False) -> Generator[RecordSnapshot]:
    """
    Connect to the database *url*, and yield its records as of the moment when `RecordSnapshot.begin` is called.

    Args:
        url: The address of the database.
        is_locked: Writers wait until the end of the block.

    Raises:
        EngineUnavailable: The database is unavailable.
    """
    with _map_errors(), closing(_connect(url)) as connection:
        if is_locked:
            connection.read_only = False
            _lock_all(connection)
        yield RecordSnapshot(connection)


def import_records(url: str, path: Path, *, mark: str = "", progress: Callable[[int], None]) -> tuple[TableCopy, ...]:
    """
    Copy the records of the SQLite file *path*, which has the newest revision, into the empty database *url*.

    All of it is one transaction, which also creates missing tables: after a failure at any point, the database is as before.

    Args:
        url: The address of the database.
        path: A file that nothing writes.
        mark: A name of the source, which the database keeps: `read_mark` returns it.
        progress: Called with the number of rows copied so far.

    Raises:
        DatabaseNotEmpty: The database has records.
        EngineUnavailable: The database is unavailable.
        RookeryError: A row cannot be stored in PostgreSQL.
    """
    with closing(connect(path)) as raw:
        return fill_postgres(url, raw, mark=mark, progress=progress)


def fill_postgres(url: str, raw: sqlite3.Connection, *, mark: str = "", progress: Callable[[int], None]) -> tuple[TableCopy, ...]:
    """Copy the records of *raw*, which nothing else writes, into the empty database *url*, as `import_records` does."""
    source = SqliteSide(raw)
    tables = source.list_tables()
    with begin_on_current_postgres(url) as connection:
        target = PostgresSide(connection)
        _require_same_columns(target, tables)
        target.lock(tables, for_writing=True)
        _require_no_rows(target, tables)
        copies = copy_records(source, target, tables, progress=progress)
        if mark:
            connection.execute(sql.SQL("COMMENT ON TABLE alembic_version IS {}").format(sql.Literal(mark)))
        return copies


def require_empty(url: str, tables: Sequence[RecordTable]) -> None:
    """
    Check that the database *url* has no records, without writing.

    Raises:
        DatabaseNotEmpty: One of *tables* has rows.
        EngineUnavailable: The database is unavailable.
    """
    with _map_errors(), closing(_connect(url)) as connection:
        side = PostgresSide(connection)
        names = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = current_schema()").fetchall()
        existing = {str(name) for (name,) in names}
        _require_no_rows(side, [table for table in tables if table.name in existing])


def read_mark(url: str) -> str | None:
    """Return the mark of `import_records`; None if the database has none. Raises `EngineUnavailable` if it is unavailable."""
    with _map_errors(), closing(_connect(url)) as connection:
        row = connection.execute(_READ_MARK).fetchone()
    return None if row is None or row[0] is None else str(row[0])


def _connect(url: str) -> Postgres:
    parameters = parse_postgres_address(url, setting="ROOKERY_DATABASE_URL")
    connection = psycopg.connect(make_conninfo(**add_options(parameters, _OPTIONS)), connect_timeout=_CONNECT_TIMEOUT_S)
    connection.prepare_threshold = None  # a pooler may run each transaction in another session
    connection.isolation_level = IsolationLevel.REPEATABLE_READ
    connection.read_only = True
    return connection


def _lock_all(connection: Postgres) -> None:
    """Make writers of all tables wait. The snapshot begins with the first statement after the lock."""
    names = connection.execute("SELECT tablename FROM pg_tables WHERE schemaname = current_schema()").fetchall()
    connection.rollback()
    if names:
        tables = [RecordTable(name=str(name), columns=(), key=()) for (name,) in names]
        PostgresSide(connection).lock(tables, for_writing=False)


def _require_no_rows(side: PostgresSide, tables: Sequence[RecordTable]) -> None:
    filled = next((table.name for table in tables if side.count(table)), None)
    if filled is not None:
        raise DatabaseNotEmpty(f"The database holds records already: the table {filled} is not empty. Use a new database.")


def _require_same_columns(side: PostgresSide, tables: Sequence[RecordTable]) -> None:
    missing = side.list_missing(tables)
    if missing:
        raise EngineUnavailable("database", f"its tables are not those of its revision; the first difference is {missing[0]}")


@contextmanager
def _map_errors() -> Generator[None]:
    """Convert errors of the drivers to errors of Rookery."""
    try:
        yield
    except psycopg.Error as error:
        raise EngineUnavailable("database", (str(error).strip().splitlines() or [type(error).__name__])[0]) from error
    except sqlite3.Error as error:
        raise EngineUnavailable("database", str(error)) from error
