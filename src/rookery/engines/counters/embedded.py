"""
Counters in a SQLite file that the processes of one host share.

A call takes about 10 µs (measured), so it runs on the event loop without a thread. With `synchronous=OFF`, a power failure can lose the
counts of the last moments, and nothing of other files.
"""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path

from rookery.access.ports import CounterFeature, WindowCount
from rookery.kernel.errors import EngineUnavailable
from rookery.kernel.sqlite import connect

_BUSY_TIMEOUT_S = 1.0
"""Timeout of a locked file. The longest measured wait is 33 ms (two processes, one key). After a timeout the caller counts locally and no
longer exactly."""

_ROW_RETENTION_MICROS = 48 * 3600 * 1_000_000
"""Retention in microseconds, longer than any window. Rows that are unchanged for longer are deleted when the file is opened."""

_TABLE = "CREATE TABLE IF NOT EXISTS counts (name TEXT PRIMARY KEY, started_at INTEGER NOT NULL, used INTEGER NOT NULL) WITHOUT ROWID"
_DELETE_OLD = "DELETE FROM counts WHERE started_at < ?"
_SPEND = """
INSERT INTO counts (name, started_at, used) VALUES (?1, ?2, 1)
ON CONFLICT (name) DO UPDATE SET
    used = CASE WHEN abs(?2 - started_at) >= ?3 THEN 1 WHEN used > ?4 THEN used ELSE used + 1 END,
    started_at = CASE WHEN abs(?2 - started_at) >= ?3 THEN ?2 ELSE started_at END
RETURNING used, started_at
"""
_REFUND = "UPDATE counts SET used = min(used, ?3) - 1 WHERE name = ?1 AND started_at = ?2 AND used > 0"
_PEEK = "SELECT used, started_at FROM counts WHERE name = ?1 AND abs(?2 - started_at) < ?3"


class EmbeddedCounter:
    """A `RateLimitCounter` on a file. The file is opened at first use, so a process that forks before that shares no connection."""

    lacks = frozenset({CounterFeature.SHARED_BY_HOSTS})

    def __init__(self, path: Path) -> None:
        self._path = path
        self._connection: sqlite3.Connection | None = None

    async def spend(self, key: str, *, limit: int, window_us: int, now_us: int) -> WindowCount:
        try:
            # Fetch all rows: an unfinished statement holds its lock.
            ((used, started_at),) = (self._connection or self._open()).execute(_SPEND, (key, now_us, window_us, limit)).fetchall()
        except sqlite3.Error as error:
            raise self._map_error(error) from error
        return WindowCount(used, started_at)

    async def refund(self, key: str, *, limit: int, started_at_us: int) -> None:
        try:
            (self._connection or self._open()).execute(_REFUND, (key, started_at_us, limit))
        except sqlite3.Error as error:
            raise self._map_error(error) from error

    async def peek(self, key: str, *, window_us: int, now_us: int) -> WindowCount:
        try:
            rows = (self._connection or self._open()).execute(_PEEK, (key, now_us, window_us)).fetchall()
        except sqlite3.Error as error:
            raise self._map_error(error) from error
        return WindowCount(*rows[0]) if rows else WindowCount(0, now_us)

    async def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _open(self) -> sqlite3.Connection:
        connection = connect(self._path, synchronous="OFF", busy_timeout_s=_BUSY_TIMEOUT_S)
        try:
            connection.execute(_TABLE)
            connection.execute(_DELETE_OLD, (time.time_ns() // 1000 - _ROW_RETENTION_MICROS,))
        except sqlite3.Error:
            connection.close()
            raise
        self._connection = connection
        return connection

    def _map_error(self, error: sqlite3.Error) -> EngineUnavailable:
        """Convert *error*. Close the connection unless the file is only busy, so that a damaged or deleted file is opened again."""
        is_busy = getattr(error, "sqlite_errorcode", None) in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
        if not is_busy and self._connection is not None:
            self._connection.close()
            self._connection = None
        return EngineUnavailable("counters", str(error), retry_after_s=1)
