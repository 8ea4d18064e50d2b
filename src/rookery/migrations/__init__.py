"""Schema history: forward only (D-08), the same on both dialects, run once whoever comes first."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from rookery.kernel.errors import EngineUnavailable
from rookery.kernel.sqlite import connect

HEAD = "0004"
"""The newest revision; a test compares it with `versions/`."""

_WAIT_S = 60


def migrate(url: str, *, data_dir: Path) -> bool:
    """
    Bring the record store at *url* to HEAD; return whether anything was to do.

    Two processes that start together wait for each other. Alembic (0.3 s of imports) is loaded only if it has work to do.

    Raises:
        WrongSettings: The address is none.
        EngineUnavailable: The store cannot be reached.
    """
    if url == "embedded:":
        return _migrate_sqlite(data_dir / "records.db")
    from rookery.migrations.upgrade import upgrade_postgres

    return upgrade_postgres(url, HEAD)


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
            from rookery.migrations.upgrade import upgrade_sqlite

            upgrade_sqlite(raw)
            return True
    except (sqlite3.Error, OSError) as error:
        raise EngineUnavailable("database", f"{path}: {error}") from error


def _version(raw: sqlite3.Connection) -> str | None:
    has_table = raw.execute("SELECT 1 FROM sqlite_master WHERE name = 'alembic_version'").fetchone()
    row = raw.execute("SELECT version_num FROM alembic_version").fetchone() if has_table else None
    return row[0] if row else None
