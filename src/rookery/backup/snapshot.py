"""
A consistent snapshot of several SQLite files while others write them.

A process that writes two files in turn (a vector, then the record that marks it as indexed) may be between the two at any moment. A
crash leaves the same state, which is repaired at every start. But copies made one after the other could contain an older record with a
newer vector, which is worse. Therefore all files are locked for a moment, in which a read transaction begins on each. Its view stays the
same, however long the copies take.
"""

from __future__ import annotations

import contextlib
import sqlite3
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from rookery.kernel.errors import EngineUnavailable, StorageFull
from rookery.kernel.sqlite import connect

_LOCK_TIMEOUT_S = 60.0
_NEXT_LOCK_TIMEOUT_S = 0.05
"""Longest wait for a further file while the first ones are locked, so that writers do not notice."""

_LOCK_POLL_INTERVAL_S = 0.0005
_PAGES_PER_STEP = 2_000
_MAX_FAULTS = 3


@contextmanager
def open_snapshot(
    paths: Sequence[Path], *, while_locked: Callable[[], None], timeout_s: float = _LOCK_TIMEOUT_S
) -> Generator[Mapping[Path, sqlite3.Connection]]:
    """
    Yield a reader for each of *paths*. All readers show the same moment until the block ends.

    Args:
        paths: Existing SQLite files.
        while_locked: Called while all files are locked. It must be fast, because every writer waits.
        timeout_s: Longest wait for the locks.

    Raises:
        EngineUnavailable: A file cannot be read, or is locked by writers for *timeout_s*.
    """
    with contextlib.ExitStack() as stack:
        writers = [stack.enter_context(closing(_open(path))) for path in paths]
        readers = [stack.enter_context(closing(_open(path, read_only=True))) for path in paths]
        with _map_errors(paths[0].parent if paths else Path()):
            _lock(writers, time.monotonic() + timeout_s)
            try:
                for reader in readers:
                    reader.execute("BEGIN")
                    reader.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone()  # the first statement fixes the snapshot
                while_locked()
            finally:
                _unlock(writers)
        yield dict(zip(paths, readers, strict=True))


def copy_database(reader: sqlite3.Connection, target_path: Path, progress: Callable[[int], None]) -> None:
    """
    Copy the snapshot of *reader* to the new file *target_path*, and check its integrity.

    Args:
        progress: Called with the number of bytes written so far.

    Raises:
        EngineUnavailable: The store is damaged.
        StorageFull: The disk of *target_path* is full.
    """
    page_size = int(reader.execute("PRAGMA page_size").fetchone()[0])

    def report(_: int, left: int, total: int) -> None:
        progress((total - left) * page_size)

    with _map_errors(target_path):
        with closing(sqlite3.connect(target_path, isolation_level=None)) as target:
            target.execute("PRAGMA synchronous=OFF")  # an incomplete copy is never used
            reader.backup(target, pages=_PAGES_PER_STEP, progress=report)
        reader.execute("ROLLBACK")  # an open reader prevents the WAL from restarting
        with closing(_open_immutable(target_path)) as target:
            faults = [str(row[0]) for row in target.execute(f"PRAGMA quick_check({_MAX_FAULTS})")]
    if faults != ["ok"]:
        raise EngineUnavailable(target_path.name, f"the store is damaged: {'; '.join(faults)}")


def read_revision(path: Path) -> str | None:
    """Return the schema revision of a copied record store; None if it has none."""
    return _read_value(path, "SELECT version_num FROM alembic_version")


def read_sealing_key_id(path: Path) -> str | None:
    """Return the id of the secret key of a copied record store; None if nothing was encrypted."""
    return _read_value(path, "SELECT key_id FROM sealing")


def _read_value(path: Path, query: str) -> str | None:
    with _map_errors(path), closing(_open_immutable(path)) as connection:
        try:
            row = connection.execute(query).fetchone()
        except sqlite3.OperationalError:  # an old store without this table
            return None
    return None if row is None else str(row[0])


def _open_immutable(path: Path) -> sqlite3.Connection:
    """Open a file that nothing writes, without WAL, so that no files are created beside it."""
    return sqlite3.connect(f"{path.absolute().as_uri()}?immutable=1", uri=True)


def _open(path: Path, *, read_only: bool = False) -> sqlite3.Connection:
    with _map_errors(path):
        return connect(path, read_only=read_only)


def _lock(writers: Sequence[sqlite3.Connection], deadline: float) -> None:
    """Take the write lock of all files. If one is not available soon, release all and try again."""
    while True:
        try:
            for place, writer in enumerate(writers):
                # SQLite's busy timeout sleeps up to 100 ms at a time, but the gaps between writes of a busy server are much shorter.
                _begin(writer, deadline if place == 0 else min(deadline, time.monotonic() + _NEXT_LOCK_TIMEOUT_S))
        except sqlite3.OperationalError as error:
            _unlock(writers)
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() >= deadline:
                raise
            time.sleep(_NEXT_LOCK_TIMEOUT_S)
        else:
            return


def _begin(writer: sqlite3.Connection, deadline: float) -> None:
    writer.execute("PRAGMA busy_timeout=0")
    while True:
        try:
            writer.execute("BEGIN IMMEDIATE")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() >= deadline:
                raise
            time.sleep(_LOCK_POLL_INTERVAL_S)
        else:
            return


def _unlock(writers: Sequence[sqlite3.Connection]) -> None:
    for writer in writers:
        if writer.in_transaction:
            writer.execute("ROLLBACK")


@contextmanager
def _map_errors(path: Path) -> Generator[None]:
    """Convert errors of SQLite to errors of Rookery."""
    try:
        yield
    except sqlite3.Error as error:
        if getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_FULL:
            raise StorageFull(f"The disk of {path.parent} is full: free some space, or back up to another one.") from error
        raise EngineUnavailable(path.name, str(error)) from error
