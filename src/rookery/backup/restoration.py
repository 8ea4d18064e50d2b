"""
The restore of a backup into an empty folder.

    1 read the whole archive and compare it with its manifest, without writing
    2 unpack it into `.restoring` in the folder, and compare it again
    3 if the records belong into PostgreSQL, copy them there, in one transaction
    4 move the files to their places, then remove `.restoring`

While `.restoring` exists, Rookery does not use the folder, so an interrupted restore is never mistaken for a complete one. A second run
starts from the beginning. The database keeps a mark of the backup, so that a second run recognises records that the first one committed.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import shutil
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from rookery.backup import snapshot
from rookery.backup.archive import ProgressCallback, Sink, unpack
from rookery.backup.contents import DATABASE_FILES, PLAIN_FILES, RECORDS_FILE, SECRET_KEY_FILE, SQLITE_SUFFIXES
from rookery.backup.errors import FolderNotEmpty, InvalidArchive
from rookery.backup.manifest import Manifest, encode_manifest
from rookery.backup.postgres_records import import_records, read_mark
from rookery.kernel.data_folder import RESTORE_FOLDER
from rookery.kernel.errors import EngineUnavailable, RookeryError, StorageFull
from rookery.kernel.secret import Secret
from rookery.migrations import FIRST_COMMIT, FIRST_REVISION, HEAD_REVISION, migrate

_MIB = 1024 * 1024
_CHUNK_BYTES = 1024 * 1024
_RESTORE_FILES = frozenset({*DATABASE_FILES, *PLAIN_FILES, SECRET_KEY_FILE, RESTORE_FOLDER})


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreResult:
    """
    A restored or verified backup.

    Attributes:
        folder: None if it was only verified.
        is_in_database: The records were restored into PostgreSQL.
    """

    manifest: Manifest
    folder: Path | None
    is_in_database: bool = False


class _NullSink:
    """A sink that discards everything, for verification."""

    def write(self, piece: bytes, /) -> object:
        return len(piece)


def verify_backup(archive: Path, *, progress: ProgressCallback, sha256: str | None = None) -> RestoreResult:
    """
    Check the whole *archive* without writing.

    Args:
        archive: The backup file.
        progress: Called with the number of bytes read.
        sha256: The SHA-256 that was printed when the backup was created. Only this detects a forged file.

    Raises:
        InvalidArchive: The file is not a backup, is incomplete or damaged, or comes from a newer Rookery.
    """
    try:
        if sha256 is not None:
            _require_sha256(archive, sha256)
        manifest = unpack(archive, lambda _: contextlib.nullcontext(_NullSink()), progress)
    except OSError as error:
        raise RookeryError(f"{archive} cannot be read: {error.strerror or error}") from error
    _require_supported_revision(archive, manifest)
    return RestoreResult(manifest=manifest, folder=None)


def restore_backup(
    archive: Path, folder: Path, *, progress: ProgressCallback, sha256: str | None = None, database: Secret | None = None
) -> RestoreResult:
    """
    Restore *archive* into *folder*, which is created if it is missing.

    Args:
        archive: The backup file.
        folder: An empty folder, or one with the remains of an interrupted restore.
        progress: Called with the number of bytes read; the archive is read twice.
        sha256: As in `verify_backup`.
        database: The address of an empty PostgreSQL database for the records. None: they belong into the folder.

    Raises:
        InvalidArchive: As in `verify_backup`. Nothing was written.
        FolderNotEmpty: The folder is not empty, or another restore into it is running.
        DatabaseNotEmpty: The database has records.
        EngineUnavailable: The database is unavailable.
        StorageFull: The disk has too little space.
    """
    _require_empty_folder(folder)
    manifest = verify_backup(archive, progress=progress, sha256=sha256).manifest
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _folder_lock(folder):
            is_repeated = (folder / RESTORE_FOLDER).exists()
            _delete_leftovers(folder)
            free = shutil.disk_usage(folder).free
            if free < manifest.size:
                raise StorageFull(
                    f"{folder} needs {manifest.size // _MIB + 1:,} MiB for this backup, but its disk has {free // _MIB:,} MiB free."
                )
            import_into = (
                None if database is None or manifest.revision is None else partial(_import_records, database, manifest, is_repeated)
            )
            _unpack_into(archive, folder, manifest, lambda done: progress(manifest.size + done), import_into)
    except OSError as error:
        if error.errno in {errno.ENOSPC, errno.EDQUOT}:
            raise StorageFull(f"The disk of {folder} is full. The files written so far were deleted.") from error
        raise RookeryError(f"{folder} cannot be written: {error.strerror or error}") from error
    return RestoreResult(manifest=manifest, folder=folder, is_in_database=import_into is not None)


def _unpack_into(
    archive: Path, folder: Path, manifest: Manifest, progress: ProgressCallback, import_records_of: Callable[[Path], None] | None
) -> None:
    staging = folder / RESTORE_FOLDER
    staging.mkdir(mode=0o700)
    try:

        @contextmanager
        def open_target(name: str) -> Generator[Sink]:
            descriptor = os.open(staging / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())

        _require_unchanged(archive, manifest, unpack(archive, open_target, progress), staging)
        _sync_folder(staging)
        _sync_folder(folder)
        if import_records_of is not None:
            import_records_of(staging)
    except EngineUnavailable:
        raise  # it is unknown whether the records were committed; the next run finds out by the mark
    except BaseException:
        shutil.rmtree(staging, ignore_errors=True)
        raise
    for entry in manifest.files:
        if entry.name != RECORDS_FILE or import_records_of is None:
            (staging / entry.name).rename(folder / entry.name)
    _sync_folder(folder)
    staging.rmdir()
    _sync_folder(folder)


def _import_records(database: Secret, manifest: Manifest, is_repeated: bool, staging: Path) -> None:  # noqa: FBT001 - a private function
    """Move the records in *staging* into *database*, unless an interrupted restore of the same backup has done so."""
    url, path = database.reveal(), staging / RECORDS_FILE
    mark = f"restored from the backup {hashlib.sha256(encode_manifest(manifest)).hexdigest()}"
    if not (is_repeated and read_mark(url) == mark):
        migrate("embedded:", data_dir=staging)
        import_records(url, path, mark=mark, progress=_ignore_progress)
    for name in (RECORDS_FILE, *(f"{RECORDS_FILE}{suffix}" for suffix in SQLITE_SUFFIXES)):
        (staging / name).unlink(missing_ok=True)


def _ignore_progress(_: int) -> None:
    """Show nothing: the progress of a restore is in bytes of the archive."""


def _require_unchanged(archive: Path, checked_manifest: Manifest, unpacked: Manifest, staging: Path) -> None:
    if unpacked != checked_manifest:
        raise InvalidArchive(f"{archive} was changed while it was read.")
    if checked_manifest.revision is not None and snapshot.read_revision(staging / RECORDS_FILE) != checked_manifest.revision:
        raise InvalidArchive(f"{archive} is not a backup of Rookery: the revision of its records differs from its manifest.")


def _require_supported_revision(archive: Path, manifest: Manifest) -> None:
    if manifest.revision is not None and manifest.revision > HEAD_REVISION:
        raise InvalidArchive(
            f"The records in {archive} have revision {manifest.revision}, but this Rookery supports revisions up to {HEAD_REVISION}. "
            f"Use version {manifest.version} or a newer one."
        )
    if manifest.revision is not None and manifest.revision < FIRST_REVISION:
        raise InvalidArchive(
            f"The records in {archive} have revision {manifest.revision}, but this Rookery restores revisions from {FIRST_REVISION} on. "
            f"Restore it with commit {FIRST_COMMIT}, run `rookery migrate` of that commit, then use this version."
        )


def _require_sha256(archive: Path, sha256: str) -> None:
    with archive.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    if digest != sha256.lower():
        raise InvalidArchive(f"{archive} does not have the expected SHA-256; it has {digest}.")


def _require_empty_folder(folder: Path) -> None:
    """Check that *folder* is empty, or contains only the remains of an interrupted restore."""
    if not os.path.lexists(folder):
        return
    if not folder.is_dir():
        raise FolderNotEmpty(f"{folder} is not a folder.")
    names = {entry.name for entry in folder.iterdir()}
    if names - (_RESTORE_FILES if RESTORE_FOLDER in names else set()):
        raise FolderNotEmpty(f"{folder} is not empty. Name an empty folder with --data-dir; it may then replace the old one.")


def _delete_leftovers(folder: Path) -> None:
    """Delete the remains of an interrupted restore in *folder*, which must be locked."""
    _require_empty_folder(folder)
    for entry in list(folder.iterdir()):
        if entry.name != RESTORE_FOLDER:
            entry.unlink()
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(folder / RESTORE_FOLDER)


@contextmanager
def _folder_lock(folder: Path) -> Generator[None]:
    """Lock *folder* against other restores. The lock is released when a process exits."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        raise FolderNotEmpty(f"Another restore into {folder} is running. Wait until it ends, or restore into another folder.") from error
    try:
        yield
    finally:
        os.close(descriptor)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
