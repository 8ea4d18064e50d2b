"""A file with what a long copy has written, so that it continues after a kill and finds what changed or was deleted since."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Generator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from rookery.kernel.errors import Conflict, EngineUnavailable, StorageFull
from rookery.kernel.sqlite import connect

_BEGUN = ""
"""The version of an item whose copy has begun and is not known to be complete."""

_BUSY_TIMEOUT_S = 1.0
_CREATE = """
CREATE TABLE IF NOT EXISTS goal (name TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS copied (id TEXT PRIMARY KEY, workspace_id INTEGER NOT NULL, version TEXT NOT NULL) WITHOUT ROWID;
"""


class CopyLog:
    """
    The items that a copy has written, each with the version it had. Methods block for milliseconds.

    Args:
        connection: A connection of which no other process has one.
        goal: The target of the copy. A file with the log of another goal counts as an empty log.
    """

    def __init__(self, connection: sqlite3.Connection, goal: str) -> None:
        self._connection = connection
        self._goal = goal
        connection.executescript(_CREATE)
        row = connection.execute("SELECT name FROM goal").fetchone()
        self._is_started = row is not None and row[0] == goal

    @property
    def is_new(self) -> bool:
        """True if no copy to this goal was started."""
        return not self._is_started

    def start(self) -> None:
        """Begin a new log, unless one of this goal exists. The log of another goal is deleted."""
        if self._is_started:
            return
        with self._transaction():
            self._connection.execute("DELETE FROM copied")
            self._connection.execute("DELETE FROM goal")
            self._connection.execute("INSERT INTO goal (name) VALUES (?)", (self._goal,))
        self._is_started = True

    def get_versions(self, ids: Collection[str]) -> Mapping[str, str]:
        """Return the versions in which *ids* were copied. Ids that were not are left out."""
        if self.is_new:
            return {}
        with _map_errors():
            marks = ", ".join("?" * len(ids))
            query = f"SELECT id, version FROM copied WHERE id IN ({marks}) AND version <> ?"  # noqa: S608 - question marks
            return dict(self._connection.execute(query, (*ids, _BEGUN)).fetchall())

    def begin(self, items: Sequence[tuple[int, str]]) -> None:
        """Record that the copies of *items*, pairs of workspace and id, begin, so that none is forgotten if the process is killed."""
        self.finish([(workspace_id, item_id, _BEGUN) for workspace_id, item_id in items])

    def finish(self, items: Sequence[tuple[int, str, str]]) -> None:
        """Record the copies of *items*: workspace, id and version."""
        with self._transaction():
            self._connection.executemany("INSERT OR REPLACE INTO copied (workspace_id, id, version) VALUES (?, ?, ?)", items)

    def delete(self, ids: Collection[str]) -> None:
        """Forget *ids*, which the target no longer has."""
        with self._transaction():
            self._connection.executemany("DELETE FROM copied WHERE id = ?", [(item_id,) for item_id in ids])

    def list_items(self, *, after: str, limit: int) -> list[tuple[int, str]]:
        """Return the next items by id, also those that were only begun, as pairs of workspace and id."""
        if self.is_new:
            return []
        with _map_errors():
            query = "SELECT workspace_id, id FROM copied WHERE id > ? ORDER BY id LIMIT ?"
            return [(int(workspace_id), str(item_id)) for workspace_id, item_id in self._connection.execute(query, (after, limit))]

    def count(self) -> Mapping[int, int]:
        """Return the number of complete copies by workspace."""
        if self.is_new:
            return {}
        with _map_errors():
            query = "SELECT workspace_id, count(*) FROM copied WHERE version <> ? GROUP BY workspace_id"
            return {int(workspace_id): int(number) for workspace_id, number in self._connection.execute(query, (_BEGUN,))}

    @contextmanager
    def _transaction(self) -> Generator[None]:
        with _map_errors():
            self._connection.execute("BEGIN IMMEDIATE")
            try:
                yield
            except BaseException:
                self._connection.execute("ROLLBACK")
                raise
            self._connection.execute("COMMIT")


@contextmanager
def open_copy_log(path: Path, goal: str) -> Generator[CopyLog]:
    """
    Yield the log in the file *path*, which is created if it is missing.

    Raises:
        Conflict: Another process uses the log.
        EngineUnavailable: The file cannot be used.
    """
    with _map_errors(), closing(_connect_alone(path)) as connection:
        yield CopyLog(connection, goal)


def _connect_alone(path: Path) -> sqlite3.Connection:
    """Return a connection beside which no other process can open the file."""
    try:
        connection = connect(path, synchronous="NORMAL", busy_timeout_s=_BUSY_TIMEOUT_S)
        try:
            connection.execute("PRAGMA locking_mode=EXCLUSIVE")
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("COMMIT")
        except BaseException:
            connection.close()
            raise
    except sqlite3.OperationalError as error:
        if error.sqlite_errorcode & 0xFF == sqlite3.SQLITE_BUSY:
            raise Conflict(f"Another process runs a move that uses {path}. Wait until it ends.") from error
        raise
    return connection


def delete_copy_log(path: Path) -> None:
    """Delete the file of a log that no process uses."""
    for suffix in ("", "-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)


@contextmanager
def _map_errors() -> Generator[None]:
    try:
        yield
    except sqlite3.Error as error:
        if getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_FULL:
            raise StorageFull("The disk of the data folder is full: free some space, then try again.") from error
        raise EngineUnavailable("copy log", str(error)) from error
