"""
What SQLite keeps of what was deleted, and how it goes.

Freed space in the file itself is written over at once (`secure_delete`, see `sqlite.connect`). The log beside it has pages as they
were before, until it is begun anew and they happen to be overwritten.
"""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
import time
from dataclasses import dataclass
from pathlib import Path

from rookery.kernel.errors import EngineUnavailable
from rookery.kernel.sqlite import connect

_RETRY_DELAY_S = 0.05
_BUSY_TIMEOUT_S = 1.0


def truncate_wal(path: Path, *, timeout_s: float = 30.0) -> None:
    """
    Bring everything from the log of *path* into the file and cut the log to nothing, beside readers and writers; blocks.

    Args:
        timeout_s: How long is waited for readers, who need the pages of their moment.

    Raises:
        sqlite3.Error: Somebody read one and the same moment for *timeout_s*; or the file cannot be opened.
    """
    deadline = time.monotonic() + timeout_s
    with contextlib.closing(connect(path, busy_timeout_s=_BUSY_TIMEOUT_S)) as connection:
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
                raise sqlite3.OperationalError(f"{path.name} is being read without a pause, so its log still has what was deleted")
            time.sleep(_RETRY_DELAY_S)


@dataclass(frozen=True, slots=True)
class RecordStoreWal:
    """The log of an embedded record store."""

    path: Path

    async def erase(self) -> None:
        """Leave nothing in it; raises `EngineUnavailable` if somebody keeps it from that."""
        try:
            await asyncio.to_thread(truncate_wal, self.path)
        except sqlite3.Error as error:
            raise EngineUnavailable("database", str(error)) from error
