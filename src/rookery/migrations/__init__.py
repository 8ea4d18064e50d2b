"""Schema migrations: forward only (D-08), the same in both dialects, run by the first process that needs them."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from rookery.kernel.errors import EngineUnavailable, WrongSettings
from rookery.kernel.sqlite import connect

HEAD_REVISION = max(path.name[:4] for path in Path(__file__).with_name("versions").glob("[0-9]*.py"))
"""The newest revision."""

_LOCK_TIMEOUT_S = 60


def migrate(url: str, *, data_dir: Path) -> bool:
    """
    Migrate the record store at *url* to `HEAD_REVISION`; return whether anything was done.

    Processes that start at the same time wait for each other. Alembic (0.3 s of imports) is loaded only if there is work.

    Raises:
        WrongSettings: The URL is invalid, or the store is newer than this Rookery.
        EngineUnavailable: The store is unavailable.
    """
    if url == "embedded:":
        return _migrate_sqlite(data_dir / "records.db")
    from rookery.migrations.upgrade import upgrade_postgres

    return upgrade_postgres(url, is_current)


def is_current(version: str | None) -> bool:
    """
    Return whether a store with this revision needs no migration.

    Raises:
        WrongSettings: A newer Rookery created the store. Downgrades are not supported (D-08).
    """
    if version is not None and version > HEAD_REVISION:
        raise WrongSettings(
            f"The record store has revision {version}, but this Rookery supports revisions up to {HEAD_REVISION}. Use a newer version."
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
