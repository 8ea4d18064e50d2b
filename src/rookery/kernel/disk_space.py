"""The free space that writes need on the disk of the data folder."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path

from rookery.kernel.errors import StorageFull

_CHECK_INTERVAL_S = 1.0
_MIB = 1024 * 1024


class DiskSpace:
    """
    A check of the free space on the disk of *folder*.

    Args:
        folder: The folder of the records. None: they are not on a disk of this host, so every check passes.
        monotonic: Seconds of a clock that never goes back; tests pass their own.
    """

    def __init__(self, folder: Path | None, *, min_free_bytes: int, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._folder = folder
        self._min_free_bytes = min_free_bytes
        self._monotonic = monotonic
        self._checked_at_s = float("-inf")
        self._is_full = False

    def require(self) -> None:
        """
        Return if a write may go on. The free space is read at most once per second.

        Raises:
            StorageFull: The disk has less free space than required.
        """
        if self._folder is None:
            return
        now_s = self._monotonic()
        if now_s - self._checked_at_s >= _CHECK_INTERVAL_S:
            self._checked_at_s = now_s
            self._is_full = shutil.disk_usage(self._folder).free < self._min_free_bytes
        if self._is_full:
            min_free_mib = self._min_free_bytes // _MIB
            raise StorageFull(
                f"Less than {min_free_mib:,} MiB are free on the disk, so writes are rejected. Reads and deletions work. Free some space."
            )
