"""The execution of migrations by alembic. Imported only when there is something to run."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import psycopg
from alembic import command
from alembic.config import Config
from sqlalchemy import create_engine, event, text
from sqlalchemy.engine import Connection
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.pool import NullPool

from rookery.kernel.db.postgresql import sqlalchemy_url
from rookery.kernel.errors import EngineUnavailable, WrongSettings

_ADVISORY_LOCK_ID = 8400_0001
_LOCK_TIMEOUT_S = 60


def upgrade_sqlite(raw: sqlite3.Connection, is_current: Callable[[str | None], bool]) -> bool:
    """Run the missing revisions in one transaction, safely beside other processes, and close *raw*; return whether any ran."""
    engine = create_engine("sqlite://", creator=lambda: raw, poolclass=NullPool)
    # The driver begins no transaction (`kernel.sqlite.connect`). The write lock is taken before the revision is read.
    event.listen(engine, "begin", _begin_immediate)
    with engine.begin() as connection:
        if is_current(_read_revision(connection, "SELECT name FROM sqlite_master WHERE name = 'alembic_version'")):
            return False
        _run_revisions(connection)
        return True


def _begin_immediate(connection: Connection) -> None:
    connection.exec_driver_sql("BEGIN IMMEDIATE")


def _read_revision(connection: Connection, table_query: str) -> str | None:
    if connection.execute(text(table_query)).scalar() is None:
        return None
    return connection.execute(text("SELECT version_num FROM alembic_version")).scalar()


def upgrade_postgres(url: str, is_current: Callable[[str | None], bool]) -> bool:
    """
    Run the missing revisions, safely beside other processes; return whether any ran.

    Raises:
        EngineUnavailable: The server is unavailable, or rejects the connection.
        WrongSettings: The URL is invalid, or the store is too new for *is_current*.
    """
    with _begin_postgres(url) as connection:
        return _upgrade_connection(connection, is_current)


@contextmanager
def begin_on_current_postgres(url: str, is_current: Callable[[str | None], bool]) -> Generator[psycopg.Connection[tuple[object, ...]]]:
    """
    Yield a connection of the driver in a transaction that begins with the missing revisions. It is committed after the block.

    Other processes that migrate wait until then. A statement waits at most a minute for a lock.

    Raises:
        EngineUnavailable: The server is unavailable, or rejects the connection or a statement.
        WrongSettings: The URL is invalid, or the store is too new for *is_current*.
    """
    with _begin_postgres(url) as connection:
        connection.exec_driver_sql(f"SET LOCAL lock_timeout = '{_LOCK_TIMEOUT_S}s'")
        connection.exec_driver_sql("SET LOCAL statement_timeout = 0")
        _upgrade_connection(connection, is_current)
        try:
            yield cast("psycopg.Connection[tuple[object, ...]]", connection.connection.driver_connection)
        except psycopg.Error as error:
            raise EngineUnavailable("database", str(error).strip().splitlines()[0]) from error


def create_sqlite(raw: sqlite3.Connection, revision: str) -> None:
    """Create the tables of *revision* in an empty file, and close *raw*."""
    engine = create_engine("sqlite://", creator=lambda: raw, poolclass=NullPool)
    with engine.begin() as connection:
        _run_revisions(connection, revision)


@contextmanager
def _begin_postgres(url: str) -> Generator[Connection]:
    try:
        engine = create_engine(sqlalchemy_url(url), poolclass=NullPool, connect_args={"connect_timeout": 10})
        with engine.begin() as connection:
            connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _ADVISORY_LOCK_ID})
            yield connection
    except DBAPIError as error:
        raise EngineUnavailable("database", str(error.orig).strip().splitlines()[0]) from error
    except SQLAlchemyError as error:
        raise WrongSettings(f"ROOKERY_DATABASE_URL: {error}") from error


def _upgrade_connection(connection: Connection, is_current: Callable[[str | None], bool]) -> bool:
    if is_current(_read_revision(connection, "SELECT to_regclass('alembic_version')")):
        return False
    _run_revisions(connection)
    return True


def _run_revisions(connection: Connection, revision: str = "head") -> None:
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent).replace("%", "%%"))
    config.attributes["connection"] = connection
    command.upgrade(config, revision)
