"""Schema history: forward only (D-08), the same on both dialects, run once whoever comes first."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from alembic import command
from alembic.config import Config
from sqlalchemy import create_engine, text
from sqlalchemy.engine import Connection
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.pool import NullPool

from rookery.kernel.db.postgresql import sqlalchemy_url
from rookery.kernel.errors import EngineUnavailable, WrongSettings
from rookery.kernel.sqlite import connect

HEAD = "0004"
"""The newest revision; a test compares it with `versions/`."""

_LOCK = 8400_0001
_WAIT_S = 60


def migrate(url: str, *, data_dir: Path) -> bool:
    """
    Bring the record store at *url* to HEAD; return whether anything was to do.

    Two processes that start together wait for each other.

    Raises:
        WrongSettings: The store is newer than this Rookery.
        EngineUnavailable: It cannot be reached.
    """
    if url == "embedded:":
        return _migrate_sqlite(data_dir / "records.db")
    return _migrate_postgres(url)


def _migrate_sqlite(path: Path) -> bool:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with closing(connect(path, busy_timeout_s=_WAIT_S)) as raw:
            if _version(raw) == HEAD:
                return False
            raw.execute("BEGIN IMMEDIATE")
            if _version(raw) == HEAD:
                raw.execute("ROLLBACK")
                return False
            # The driver must neither begin nor commit by itself: the whole migration is the one transaction begun above.
            engine = create_engine("sqlite://", creator=lambda: raw, poolclass=NullPool)
            with engine.connect() as connection:
                _upgrade(connection)
                connection.commit()
            return True
    except (sqlite3.Error, OSError) as error:
        raise EngineUnavailable("database", f"{path}: {error}") from error


def _version(raw: sqlite3.Connection) -> str | None:
    has_table = raw.execute("SELECT 1 FROM sqlite_master WHERE name = 'alembic_version'").fetchone()
    row = raw.execute("SELECT version_num FROM alembic_version").fetchone() if has_table else None
    return row[0] if row else None


def _migrate_postgres(url: str) -> bool:
    engine = create_engine(sqlalchemy_url(url), poolclass=NullPool)
    try:
        with engine.begin() as connection:
            connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _LOCK})
            known = connection.execute(text("SELECT to_regclass('alembic_version')")).scalar()
            version = connection.execute(text("SELECT version_num FROM alembic_version")).scalar() if known else None
            if version == HEAD:
                return False
            _upgrade(connection)
            return True
    except DBAPIError as error:
        raise EngineUnavailable("database", str(error.orig).strip().splitlines()[0]) from error
    except SQLAlchemyError as error:
        msg = f"ROOKERY_DATABASE_URL: {error}"
        raise WrongSettings(msg) from error


def _upgrade(connection: Connection) -> None:
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent).replace("%", "%%"))
    config.attributes["connection"] = connection
    command.upgrade(config, "head")
