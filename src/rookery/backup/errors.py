"""
What saving and restoring can meet, beyond the kernel's errors.

    RookeryError
    ├── ArchiveUnfit            422  archive_unfit
    └── Conflict
        ├── FolderTaken         409  folder_taken
        └── FileTaken           409  file_taken
"""

from __future__ import annotations

from rookery.kernel.errors import Conflict, RookeryError


class InvalidArchive(RookeryError):
    """The file is no backup, not whole, not what was saved, or of a newer Rookery; nothing was written."""

    status, code = 422, "archive_unfit"


class FolderNotEmpty(Conflict):
    """Something is in the folder already; a backup is restored into an empty one only."""

    code = "folder_taken"


class FileExists(Conflict):
    """A file of that name is there already; a backup is never written over one."""

    code = "file_taken"
