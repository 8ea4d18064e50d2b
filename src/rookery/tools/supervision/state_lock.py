"""A lock on the file in which a tool server keeps its state, among all sessions and all Rookery processes of a machine (D-34)."""

from __future__ import annotations

import asyncio
import fcntl
import os
import time

_POLL_INTERVAL_S = 0.005
_YIELD_S = 0.02
"""Pause before the lock is taken again while another process wants it: longer than its poll interval, so that both take turns."""
_CONTENTION_WINDOW_S = 5.0


class StateLock:
    """
    An advisory lock on the folder of the file. It leaves nothing behind, and ends with the process that holds it.

    One object serves one session. The sessions of one process exclude each other, too.
    """

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._contended_until = 0.0

    async def acquire(self, timeout_s: float) -> int | None:
        """
        Wait for the lock. Return a descriptor, which `release` takes; None if the folder cannot be locked.

        Raises:
            TimeoutError: Others held it for that long.
        """
        if time.monotonic() < self._contended_until:
            await asyncio.sleep(_YIELD_S)
        try:
            descriptor = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY)
        except OSError:
            return None  # the server reports that it cannot use the folder
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
