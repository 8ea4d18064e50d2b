"""Locks by which the Rookery processes of a machine take turns in calls that change the state of a tool server."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import hashlib
import os
import time
from pathlib import Path

_POLL_INTERVAL_S = 0.005
_YIELD_S = 0.02
"""Pause before the lock is taken again while another process wants it: longer than its poll interval, so that both take turns."""
_CONTENTION_WINDOW_S = 5.0


class StateLock:
    """
    An advisory lock on a file or a folder. It leaves nothing behind, and ends with the process that holds it.

    One object serves one session. The sessions of one process exclude each other, too.
    """

    def __init__(self, path: str | Path) -> None:
        self._path = path
        self._contended_until = 0.0

    async def acquire(self, timeout_s: float) -> int | None:
        """
        Wait for the lock. Return a descriptor, which `release` takes; None if the path cannot be locked.

        Raises:
            TimeoutError: Others held it for that long.
        """
        if time.monotonic() < self._contended_until:
            await asyncio.sleep(_YIELD_S)
        try:
            descriptor = os.open(self._path, os.O_RDONLY)
        except OSError:
            return None  # a missing folder, which the server reports
        try:
            async with asyncio.timeout(timeout_s):
                while not self._try(descriptor):
                    self._contended_until = time.monotonic() + _CONTENTION_WINDOW_S
                    await asyncio.sleep(_POLL_INTERVAL_S)
        except BaseException as error:
            os.close(descriptor)
            if isinstance(error, OSError) and not isinstance(error, TimeoutError):
                return None  # a file system without locks
            raise
        return descriptor

    @staticmethod
    def _try(descriptor: int) -> bool:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    @staticmethod
    def release(descriptor: int) -> None:
        """Give the lock back."""
        os.close(descriptor)


class CallLocks:
    """
    Locks of the server processes that share a data folder, for programs that any of them starts.

    Each process has a session of its own with such a program. Two of them that rewrite one file would lose changes.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def create_lock(self, server_key: str, holder: str | None) -> StateLock:
        """Return the lock of the sessions of *holder* with a server in all processes. It is a file, which is created once."""
        name = hashlib.sha256(f"{server_key}\n{holder or ''}".encode()).hexdigest()[:32]
        path = self._folder / name
        with contextlib.suppress(OSError):  # a call goes on without a lock if there is no place for it
            self._folder.mkdir(mode=0o700, exist_ok=True)
            path.touch(mode=0o600)
        return StateLock(path)
