"""
Several SQLite files at one moment, while others write them.

Whoever writes two of them in turn (a vector, then the record that says it is there) may be between the two at any moment; that is
how a kill finds them too, and what they mend at every start. Files copied one after another would be worse than that: a record from
before, its vector from after. So for a moment nobody may write any of them, and in it a reader begins on each; what it reads stays
as it was, however long the copying takes.
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
"""While the first files are locked the others are waited for no longer, so that writers do not notice."""

_LOCK_POLL_INTERVAL_S = 0.0005
_PAGES_PER_STEP = 2_000
_MAX_FAULTS = 3


@contextmanager
def open_snapshot(
    paths: Sequence[Path], *, while_locked: Callable[[], None], timeout_s: float = _LOCK_TIMEOUT_S
) -> Generator[Mapping[Path, sqlite3.Connection]]:
    """
    Lend a reader of each of *paths*, all of which show the same moment until the block ends.

    Args:
        paths: SQLite files that are there.
        while_locked: Done in that moment; quick, since every writer waits for it.
        timeout_s: How long others may hold a file up.

    Raises:
        EngineUnavailable: One cannot be read, or is written without a pause for *timeout_s*.
    """
    with contextlib.ExitStack() as opened:
        writers = [opened.enter_context(closing(_open(path))) for path in paths]
        readers = [opened.enter_context(closing(_open(path, read_only=True))) for path in paths]
        with _map_errors(paths[0].parent if paths else Path()):
            _lock(writers, time.monotonic() + timeout_s)
            try:
                for reader in readers:
                    reader.execute("BEGIN")
                    reader.execute("SELECT 1 FROM sqlite_master LIMIT 1").fetchone()  # a transaction reads from its first statement on
                while_locked()
            finally:
                _unlock(writers)
        yield dict(zip(paths, readers, strict=True))


def copy_database(reader: sqlite3.Connection, to: Path, progress: Callable[[int], None]) -> None:
    """
    Write what *reader* sees into the new file *to*, and look whether that is a sound store.

    Args:
        progress: Told how many bytes are written so far.

    Raises:
        EngineUnavailable: The store is damaged. StorageFull: The disk of *to* is.
    """
    page = int(reader.execute("PRAGMA page_size").fetchone()[0])

    def moved(_: int, left: int, total: int) -> None:
        progress((total - left) * page)

    with _map_errors(to):
        with closing(sqlite3.connect(to, isolation_level=None)) as target:
            target.execute("PRAGMA synchronous=OFF")  # until it is whole nobody will use it
            reader.backup(target, pages=_PAGES_PER_STEP, progress=moved)
        reader.execute("ROLLBACK")  # a reader keeps the WAL from starting again
        with closing(_open_immutable(to)) as target:
            faults = [str(row[0]) for row in target.execute(f"PRAGMA quick_check({_MAX_FAULTS})")]
    if faults != ["ok"]:
        raise EngineUnavailable(to.name, f"the store is damaged: {'; '.join(faults)}")


def read_revision(path: Path) -> str | None:
    """Return the schema's revision of the record store in the copy *path*; None: it has none."""
    return _read_value(path, "SELECT version_num FROM alembic_version")


def read_sealing_key_id(path: Path) -> str | None:
    """Return the id of the key that seals in the record store in the copy *path*; None: nothing was sealed."""
    return _read_value(path, "SELECT key_id FROM sealing")


def _read_value(path: Path, query: str) -> str | None:
    with _map_errors(path), closing(_open_immutable(path)) as connection:
        try:
            row = connection.execute(query).fetchone()
        except sqlite3.OperationalError:  # from before there was such a table
            return None
    return None if row is None else str(row[0])


def _open_immutable(path: Path) -> sqlite3.Connection:
    """Open a file that nobody writes: without WAL, so that nothing is left beside it."""
    return sqlite3.connect(f"{path.absolute().as_uri()}?immutable=1", uri=True)


def _open(path: Path, *, read_only: bool = False) -> sqlite3.Connection:
    with _map_errors(path):
        return connect(path, read_only=read_only)


def _lock(writers: Sequence[sqlite3.Connection], deadline: float) -> None:
    """Take the write lock of all, or of none and try again."""
    while True:
        try:
            for place, writer in enumerate(writers):
                # SQLite's own waiting sleeps up to 100 ms at a time; a busy server leaves gaps that are much shorter.
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
    """Turn what SQLite complains of into our words."""
    try:
        yield
    except sqlite3.Error as error:
        if getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_FULL:
            raise StorageFull(f"The disk of {path.parent} is full: free some space, or back up to another one.") from error
        raise EngineUnavailable(path.name, str(error)) from error
