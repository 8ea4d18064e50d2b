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
    """The file is not a backup, incomplete, damaged, or from a newer Rookery. Only commands return this error."""

    status, code = 422, "archive_unfit"


class FolderNotEmpty(Conflict):
    """A backup is restored only into an empty folder. Only commands return this error."""

    code = "folder_taken"


class DatabaseNotEmpty(Conflict):
    """The database or `records.db` that should get the records has some already. Only commands return this error."""

    code = "database_taken"


class RecordsInUse(Conflict):
    """A server, a worker or another client uses the records that are to be moved. Only commands return this error."""

    code = "records_in_use"


class FileExists(Conflict):
    """A backup never overwrites a file. Only commands return this error."""

    code = "file_taken"
