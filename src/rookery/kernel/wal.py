"""
The erasure of deleted data from SQLite's write-ahead log.

Freed space in the database file is overwritten at once (`secure_delete`, see `sqlite.connect`). The log beside it still holds old pages
until it restarts and they happen to be overwritten.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import time
from dataclasses import dataclass
from pathlib import Path

from rookery.kernel.errors import EngineUnavailable
from rookery.kernel.sqlite import LOCK_POLL_MS, connect

_RETRY_DELAY_S = 0.005
_BUSY_TIMEOUT_S = 1.0


def truncate_wal(path: Path, *, timeout_s: float = 30.0) -> None:
    """
    Move everything from the log of *path* into the file and truncate the log, while others read and write. Blocks.

    Args:
        timeout_s: Longest wait for readers, which may need old pages.

    Raises:
        sqlite3.Error: A reader kept its snapshot for *timeout_s*, or the file cannot be opened.
    """
    deadline = time.monotonic() + timeout_s
    with contextlib.closing(connect(path, busy_timeout_s=_BUSY_TIMEOUT_S)) as connection:
        connection.execute(f"PRAGMA busy_timeout={LOCK_POLL_MS}")
        while True:
            try:
                (is_busy, _, _) = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode & 0xFF not in {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}:
                    raise
                is_busy = 1
            if not is_busy:
                return
            if time.monotonic() >= deadline:
                raise sqlite3.OperationalError(f"{path.name} is read without a pause, so its log still contains deleted data")
            time.sleep(_RETRY_DELAY_S)


@dataclass(frozen=True, slots=True)
class RecordStoreWal:
    """The write-ahead log of an embedded record store."""

    path: Path

    async def erase(self) -> None:
        """Truncate the log; raises `EngineUnavailable` if a reader prevents it."""
        try:
            await asyncio.to_thread(truncate_wal, self.path)
        except sqlite3.Error as error:
            raise EngineUnavailable("database", str(error)) from error
