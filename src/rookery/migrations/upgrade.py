"""Running the revisions, which takes alembic; loaded only when there is something to run."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from alembic import command
from alembic.config import Config
from sqlalchemy import create_engine, text
from sqlalchemy.engine import Connection
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.pool import NullPool

from rookery.kernel.db.postgresql import sqlalchemy_url
from rookery.kernel.errors import EngineUnavailable, WrongSettings

_LOCK = 8400_0001


def upgrade_sqlite(raw: sqlite3.Connection) -> None:
    """Run what is missing in the transaction that *raw* is in, commit, and close *raw*."""
    # The driver must neither begin nor commit by itself: the whole migration is the one transaction begun by the caller.
    engine = create_engine("sqlite://", creator=lambda: raw, poolclass=NullPool)
    with engine.connect() as connection:
        _upgrade(connection)
        connection.commit()


def upgrade_postgres(url: str, head: str) -> bool:
    """
    Run what is missing, whoever else wants to; return whether anything was.

    Raises:
        EngineUnavailable: The server cannot be reached, or refuses.
        WrongSettings: The address is none.
    """
    try:
        engine = create_engine(sqlalchemy_url(url), poolclass=NullPool, connect_args={"connect_timeout": 10})
        with engine.begin() as connection:
            connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _LOCK})
            known = connection.execute(text("SELECT to_regclass('alembic_version')")).scalar()
            version = connection.execute(text("SELECT version_num FROM alembic_version")).scalar() if known else None
            if version == head:
                return False
            _upgrade(connection)
            return True
    except DBAPIError as error:
        raise EngineUnavailable("database", str(error.orig).strip().splitlines()[0]) from error
    except SQLAlchemyError as error:
        raise WrongSettings(f"ROOKERY_DATABASE_URL: {error}") from error


def _upgrade(connection: Connection) -> None:
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent).replace("%", "%%"))
    config.attributes["connection"] = connection
    command.upgrade(config, "head")
