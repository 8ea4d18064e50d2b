"""The execution of migrations by alembic. Imported only when there is something to run."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import psycopg
import structlog
from alembic import command
from alembic.config import Config
from sqlalchemy import create_engine, event, text
from sqlalchemy.engine import Connection
from sqlalchemy.exc import DBAPIError, OperationalError, SQLAlchemyError
from sqlalchemy.pool import NullPool

from rookery.kernel.errors import EngineUnavailable, WrongSettings
from rookery.kernel.postgres_address import parse_postgres_address
from rookery.migrations.errors import MigrationFailed

ENGINE_URL = "postgresql+psycopg://"
"""The URL of SQLAlchemy's engines. `connect_args` have the address."""

_ADVISORY_LOCK_ID = 8400_0001
_LOCK_NOT_AVAILABLE = "55P03"
_TABLE_LOCK_TIMEOUT_S = 60
"""Longest wait of a revision for a table that other transactions use. All later transactions on the table wait behind it."""

_SQLITE_TABLE_QUERY = "SELECT name FROM sqlite_master WHERE name = 'alembic_version'"
_POSTGRES_TABLE_QUERY = "SELECT tablename FROM pg_tables WHERE tablename = 'alembic_version' AND schemaname = ANY(current_schemas(false))"
"""
Reads the rows of the catalogue. `to_regclass` may answer from a cache that is older than the end of another migration: measured, the second
of two connections that waits for a lock still finds no table that the first has created.
"""

_log = structlog.stdlib.get_logger("rookery.migrations")


def upgrade_sqlite(raw: sqlite3.Connection, is_current: Callable[[str | None], bool], head: str) -> bool:
    """
    Run the missing revisions in one transaction, safely beside other processes, and close *raw*; return whether any ran.

    Raises:
        EngineUnavailable: Another process kept the write lock for longer than the timeout of *raw*.
        MigrationFailed: A revision failed.
    """
    engine = create_engine("sqlite://", creator=lambda: raw, poolclass=NullPool)
    # The driver begins no transaction (`kernel.sqlite.connect`). The write lock is taken before the revision is read.
    event.listen(engine, "begin", _begin_immediate)
    try:
        with engine.begin() as connection:
            version = _read_revision(connection, _SQLITE_TABLE_QUERY)
            if is_current(version):
                return False
            _run_revisions(connection, version, head)
            return True
    except DBAPIError as error:
        raise EngineUnavailable("database", _first_line(error)) from error


def _begin_immediate(connection: Connection) -> None:
    connection.exec_driver_sql("BEGIN IMMEDIATE")


def _read_revision(connection: Connection, table_query: str) -> str | None:
    if connection.execute(text(table_query)).scalar() is None:
        return None
    return connection.execute(text("SELECT version_num FROM alembic_version")).scalar()


def upgrade_postgres(url: str, is_current: Callable[[str | None], bool], head: str, *, lock_timeout_s: float) -> bool:
    """
    Run the missing revisions in one transaction, safely beside other processes; return whether any ran.

    Raises:
        EngineUnavailable: The server is unavailable or rejects the connection, or another process migrates for longer than
            *lock_timeout_s*.
        WrongSettings: The URL is invalid, or the store is too new for *is_current*.
        MigrationFailed: A revision failed.
    """
    with _begin_postgres(url) as connection:
        # Processes that have nothing to migrate do not wait for the lock.
        if is_current(_read_revision(connection, _POSTGRES_TABLE_QUERY)):
            return False
        _wait_for_lock(connection, lock_timeout_s)
        return _upgrade_connection(connection, is_current, head)


@contextmanager
def begin_on_current_postgres(
    url: str, is_current: Callable[[str | None], bool], head: str, *, lock_timeout_s: float
) -> Generator[psycopg.Connection[tuple[object, ...]]]:
    """
    Yield a connection of the driver in a transaction that begins with the missing revisions. It is committed after the block.

    Other processes that migrate wait until then. A statement waits at most a minute for a lock.

    Raises:
        EngineUnavailable: The server is unavailable, or rejects the connection or a statement, or another process migrates for longer
            than *lock_timeout_s*.
        WrongSettings: The URL is invalid, or the store is too new for *is_current*.
        MigrationFailed: A revision failed.
    """
    with _begin_postgres(url) as connection:
        _wait_for_lock(connection, lock_timeout_s)
        _upgrade_connection(connection, is_current, head)
        try:
            yield cast("psycopg.Connection[tuple[object, ...]]", connection.connection.driver_connection)
        except psycopg.Error as error:
            raise EngineUnavailable("database", str(error).strip().splitlines()[0]) from error


def create_sqlite(raw: sqlite3.Connection, revision: str) -> None:
    """Create the tables of *revision* in an empty file, and close *raw*."""
    engine = create_engine("sqlite://", creator=lambda: raw, poolclass=NullPool)
    with engine.begin() as connection:
        _run_revisions(connection, None, revision)


@contextmanager
def _begin_postgres(url: str) -> Generator[Connection]:
    # No statement is prepared: a pooler may run each transaction in another session.
    address = parse_postgres_address(url, setting="ROOKERY_DATABASE_URL")
    parameters = {**address, "connect_timeout": "10", "prepare_threshold": None}
    try:
        engine = create_engine(
            ENGINE_URL, poolclass=NullPool, isolation_level="READ COMMITTED", connect_args=parameters, hide_parameters=True
        )
        with engine.begin() as connection:
            yield connection
    except DBAPIError as error:
        raise EngineUnavailable("database", _first_line(error)) from error
    except SQLAlchemyError as error:
        raise WrongSettings(f"ROOKERY_DATABASE_URL: {error}") from error


def _upgrade_connection(connection: Connection, is_current: Callable[[str | None], bool], head: str) -> bool:
    """Run the missing revisions while the lock of migrations is held; return whether any ran."""
    _set_timeout(connection, "statement_timeout", 0)  # A revision of a large table may take longer than statements usually may.
    _set_timeout(connection, "lock_timeout", _TABLE_LOCK_TIMEOUT_S)
    version = _read_revision(connection, _POSTGRES_TABLE_QUERY)
    if is_current(version):
        return False
    _run_revisions(connection, version, head)
    return True


def _wait_for_lock(connection: Connection, timeout_s: float) -> None:
    """Take the lock of migrations, which ends with the transaction."""
    lock = {"lock": _ADVISORY_LOCK_ID}
    if connection.execute(text("SELECT pg_try_advisory_xact_lock(:lock)"), lock).scalar():
        return
    _log.info("migrations.waiting", reason="another process migrates the record store", timeout_s=timeout_s)
    _set_timeout(connection, "statement_timeout", 0)
    _set_timeout(connection, "lock_timeout", timeout_s)
    try:
        connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), lock)
    except OperationalError as error:
        if getattr(error.orig, "sqlstate", None) != _LOCK_NOT_AVAILABLE:
            raise
        reason = f"another process has been migrating the record store for longer than {timeout_s:g} s"
        raise EngineUnavailable("database", reason) from error


def _set_timeout(connection: Connection, name: str, timeout_s: float) -> None:
    """Set a timeout of this transaction; 0: no limit."""
    connection.execute(text("SELECT set_config(:name, :value, true)"), {"name": name, "value": f"{timeout_s * 1000:.0f}ms"})


def _run_revisions(connection: Connection, version: str | None, head: str) -> None:
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent).replace("%", "%%"))
    config.attributes["connection"] = connection
    try:
        command.upgrade(config, head)
    except DBAPIError as error:
        if error.connection_invalidated:
            raise
        raise MigrationFailed(version, head, _first_line(error)) from error


def _first_line(error: DBAPIError) -> str:
    return str(error.orig).strip().partition("\n")[0].rstrip(".")
