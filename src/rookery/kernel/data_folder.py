"""The data folder: its permissions, the names and the reading of files in it, and the free space that writes need."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import time
from collections.abc import Callable, Collection
from pathlib import Path

from rookery.kernel.errors import StorageFull, WrongSettings

RESTORE_FOLDER = ".restoring"
"""The folder in which a restore prepares the new data. While it exists, the data folder must not be used."""

SERVER_FILE = "listening.json"
"""The file with the address and the process id of the running server."""

TOOL_HEALTH_FILE = "tool-servers.json"
"""The file with the health of the tool servers in the running server."""

SETTINGS_FILE = "rookery.toml"
"""The settings file that the server and all commands on this data folder read."""

JOURNAL_FOLDER = "sends"
"""The folder in which each process writes the notifications that it is sending."""

CALL_LOCKS_FOLDER = "call-locks"
"""The folder of the files by which server processes take turns in calls to tool servers."""

_OWNER_ONLY_MODE = 0o700
_FORBIDDEN_MODE_BITS = 0o027
"""Forbidden access of other users. A group may have read access, as PostgreSQL allows for its data folder."""
_PRIVATE_FILE_PATTERNS = ("*.db", "*.db-wal", "*.db-shm", "*.db-journal", "first-run.json")
_MARKER_FILES = ("records.db", "secret.key")
"""Files that occur only in a data folder of Rookery."""

_CHECK_INTERVAL_S = 1.0
_MIB = 1024 * 1024


def make_private(folder: Path, *, known_names: Collection[str] = ()) -> list[str]:
    """
    Create *folder* with mode 0700, or remove the access of other users; return one warning for each problem found.

    A folder that belongs to another user, or that holds files of other programs, keeps its mode and gets a warning.
    The databases in it are made private in any case.

    Args:
        folder: The data folder.
        known_names: Names of files and folders that Rookery or its operator keeps in a data folder.

    Raises:
        WrongSettings: The folder does not exist and cannot be created.
    """
    try:
        folder.mkdir(mode=_OWNER_ONLY_MODE, parents=True, exist_ok=True)
    except OSError as error:
        raise WrongSettings(f"ROOKERY_DATA_DIR: {folder} cannot be created: {error.strerror}") from error
    for pattern in _PRIVATE_FILE_PATTERNS:
        for path in folder.glob(pattern):
            _restrict_mode(path)
    exposed = describe_exposure(folder)
    if exposed is None:
        return []
    if _is_shared(folder, known_names):
        return [
            f"{exposed} It also holds files that are not Rookery's, so its mode is left as it is. Move the data to a folder of its own."
        ]
    mode = stat.S_IMODE(folder.stat().st_mode)
    if not _restrict_mode(folder):
        return [f"{exposed} Its mode cannot be changed by this user. Run `chmod 700 {folder}` as its owner."]
    return [f"The data folder {folder} had mode {mode:04o} and was open to other users of this host. Its mode is 0700 now."]


def describe_exposure(folder: Path) -> str | None:
    """Return a sentence on the access of other users to the data folder; None if they have no access."""
    mode = stat.S_IMODE(folder.stat().st_mode)
    if not mode & _FORBIDDEN_MODE_BITS:
        return None
    others = "change" if mode & 0o022 else "read"
    return f"The data folder {folder} has mode {mode:04o}: other users of this host may {others} what is in it."


def _is_shared(folder: Path, known_names: Collection[str]) -> bool:
    """Return whether the folder holds files of other programs. A sticky bit marks shared folders such as /tmp."""
    if folder.stat().st_mode & stat.S_ISVTX:
        return True
    names = {entry.name for entry in folder.iterdir()}
    return bool(names) and names.isdisjoint(_MARKER_FILES) and not names <= set(known_names)


def _restrict_mode(path: Path) -> bool:
    """
    Remove the access of other users; return whether the path is private now.

    A deleted file counts as private, because SQLite deletes the log of a database when the last process closes it.
    """
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
        if mode & _FORBIDDEN_MODE_BITS:
            path.chmod(mode & _OWNER_ONLY_MODE)
        return not path.stat().st_mode & _FORBIDDEN_MODE_BITS
    except FileNotFoundError:
        return True
    except OSError:
        return False


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


MAX_BYTES = 4 * 1024 * 1024


def read_config_file(path: Path, *, max_bytes: int = MAX_BYTES) -> bytes:
    """
    Return the content of a configuration file.

    Only regular files are read, because a FIFO, a socket or a device could block the reader or never end. Symbolic links are followed.

    Raises:
        OSError: The file is missing, cannot be read, is not a regular file, or is larger than *max_bytes*.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))
    with os.fdopen(descriptor, "rb") as file:
        content = file.read(max_bytes + 1)
    if len(content) > max_bytes:
        raise OSError(errno.EFBIG, f"it is larger than {max_bytes:,} bytes", str(path))
    return content
