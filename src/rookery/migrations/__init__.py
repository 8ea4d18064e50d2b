"""Schema migrations: forward only, the same in both dialects, run by the first process that needs them."""

from __future__ import annotations

import sqlite3
from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from rookery.kernel.errors import EngineUnavailable, WrongSettings
from rookery.kernel.sqlite import connect

if TYPE_CHECKING:  # the driver is loaded only with a store in PostgreSQL
    import psycopg

HEAD_REVISION = max(path.name[:4] for path in Path(__file__).with_name("versions").glob("[0-9]*.py"))
"""The newest revision."""

FIRST_REVISION = min(path.name[:4] for path in Path(__file__).with_name("versions").glob("[0-9]*.py"))
"""The oldest revision from which stores are upgraded."""

FIRST_COMMIT = "7bcf9942"
"""A commit that upgrades every older store to `FIRST_REVISION`."""

_LOCK_TIMEOUT_S = 600.0


def migrate(url: str, *, data_dir: Path, lock_timeout_s: float = _LOCK_TIMEOUT_S) -> bool:
    """
    Migrate the record store at *url* to `HEAD_REVISION`; return whether anything was done.

    Processes that start at the same time wait for the one that migrates. Alembic (0.3 s of imports) is loaded only if there is work.

    Args:
        lock_timeout_s: Longest wait for another process that migrates.

    Raises:
        WrongSettings: The URL is invalid, or the store is newer than this Rookery.
        EngineUnavailable: The store is unavailable, or another process has been migrating it for *lock_timeout_s*.
        MigrationFailed: A revision failed, and the schema is unchanged.
    """
    if url == "embedded:":
        return _migrate_sqlite(data_dir / "records.db", lock_timeout_s)
    from rookery.migrations.upgrade import upgrade_postgres

    return upgrade_postgres(url, is_current, HEAD_REVISION, lock_timeout_s=lock_timeout_s)


def create_sqlite_store(path: Path, revision: str) -> None:
    """
    Create a record store of *revision* without records in the new file *path*.

    Raises:
        EngineUnavailable: The file cannot be written.
        WrongSettings: `require_supported` rejects the revision.
    """
    from rookery.migrations.upgrade import create_sqlite

    require_supported(revision)
    try:
        create_sqlite(connect(path), revision)
    except (sqlite3.Error, OSError) as error:
        raise EngineUnavailable("database", f"{path}: {error}") from error


@contextmanager
def begin_on_current_postgres(url: str) -> Generator[psycopg.Connection[tuple[object, ...]]]:
    """
    Yield a connection of the driver in a transaction that begins with the missing revisions. It is committed after the block.

    Raises:
        EngineUnavailable: The server is unavailable, or rejects the connection or a statement.
        WrongSettings: The URL is invalid, or the store is newer than this Rookery.
    """
    from rookery.migrations import upgrade

    with upgrade.begin_on_current_postgres(url, is_current, HEAD_REVISION, lock_timeout_s=_LOCK_TIMEOUT_S) as connection:
        yield connection


def is_current(version: str | None) -> bool:
    """
    Return whether a store with this revision needs no migration. None: it has no tables.

    Raises:
        WrongSettings: `require_supported` rejects the revision.
    """
    if version is not None:
        require_supported(version)
    return version == HEAD_REVISION


def require_supported(version: str) -> None:
    """
    Reject a revision that cannot be read.

    Raises:
        WrongSettings: A newer Rookery created the store, or one before `FIRST_REVISION`. Downgrades are not supported.
    """
    if version > HEAD_REVISION:
        raise WrongSettings(
            f"The record store has revision {version}, but this Rookery supports revisions up to {HEAD_REVISION}. Use a newer version."
        )
    if version < FIRST_REVISION:
        raise WrongSettings(
            f"The record store has revision {version}, but this Rookery upgrades stores from revision {FIRST_REVISION} on. "
            f"Run `rookery migrate` of commit {FIRST_COMMIT} on it once, then use this version."
        )


def _migrate_sqlite(path: Path, lock_timeout_s: float) -> bool:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with closing(connect(path, busy_timeout_s=lock_timeout_s)) as raw:
            if is_current(_read_revision(raw)):
                return False
            from rookery.migrations.upgrade import upgrade_sqlite

            return upgrade_sqlite(raw, is_current, HEAD_REVISION)
    except (sqlite3.Error, OSError) as error:
        raise EngineUnavailable("database", f"{path}: {error}") from error


def _read_revision(raw: sqlite3.Connection) -> str | None:
    has_table = raw.execute("SELECT 1 FROM sqlite_master WHERE name = 'alembic_version'").fetchone()
    row = raw.execute("SELECT version_num FROM alembic_version").fetchone() if has_table else None
    return row[0] if row else None
