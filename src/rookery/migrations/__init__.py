"""Schema history: forward only (D-08), the same on both dialects, run once whoever comes first."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from rookery.kernel.errors import EngineUnavailable, WrongSettings
from rookery.kernel.sqlite import connect

HEAD_REVISION = "0020"
"""The newest revision; a test compares it with `versions/`."""

_LOCK_TIMEOUT_S = 60


def migrate(url: str, *, data_dir: Path) -> bool:
    """
    Bring the record store at *url* to HEAD; return whether anything was to do.

    Two processes that start together wait for each other. Alembic (0.3 s of imports) is loaded only if it has work to do.

    Raises:
        WrongSettings: The address is none, or the store is newer than this Rookery.
        EngineUnavailable: The store cannot be reached.
    """
    if url == "embedded:":
        return _migrate_sqlite(data_dir / "records.db")
    from rookery.migrations.upgrade import upgrade_postgres

    return upgrade_postgres(url, is_current)


def is_current(version: str | None) -> bool:
    """
    Tell whether a store of *version* has nothing to be done to it.

    Raises:
        WrongSettings: It was made by a newer Rookery; there is no way back (D-08).
    """
    if version is not None and version > HEAD_REVISION:
        raise WrongSettings(
            f"The record store has revision {version}, this Rookery knows up to {HEAD_REVISION}: use the newer Rookery that made it."
        )
    return version == HEAD_REVISION


def _migrate_sqlite(path: Path) -> bool:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with closing(connect(path, busy_timeout_s=_LOCK_TIMEOUT_S)) as raw:
            if is_current(_read_revision(raw)):
                return False
            from rookery.migrations.upgrade import upgrade_sqlite

            return upgrade_sqlite(raw, is_current)
    except (sqlite3.Error, OSError) as error:
        raise EngineUnavailable("database", f"{path}: {error}") from error


def _read_revision(raw: sqlite3.Connection) -> str | None:
    has_table = raw.execute("SELECT 1 FROM sqlite_master WHERE name = 'alembic_version'").fetchone()
    row = raw.execute("SELECT version_num FROM alembic_version").fetchone() if has_table else None
    return row[0] if row else None
