"""
The errors of backup and restore, beyond those of the kernel.

    RookeryError
    ├── InvalidArchive          422  archive_unfit
    └── Conflict
        ├── FolderNotEmpty      409  folder_taken
        ├── DatabaseNotEmpty    409  database_taken
        ├── RecordsInUse        409  records_in_use
        └── FileExists          409  file_taken
"""

from __future__ import annotations

from rookery.kernel.errors import Conflict, RookeryError


class InvalidArchive(RookeryError):
    """The file is not a backup, is incomplete or damaged, or comes from a newer Rookery. Nothing was written."""

    status, code = 422, "archive_unfit"


class FolderNotEmpty(Conflict):
    """The folder is not empty. A backup is restored only into an empty folder."""

    code = "folder_taken"


class DatabaseNotEmpty(Conflict):
    """The database holds records. Records are restored or moved only into an empty database."""

    code = "database_taken"


class RecordsInUse(Conflict):
    """A server, a worker or a command uses the records. They are moved only while nothing uses them."""

    code = "records_in_use"


class FileExists(Conflict):
    """The file exists already. A backup never overwrites a file."""

    code = "file_taken"
