"""The creation of a backup while servers run: one consistent snapshot of all stores of the data folder in one file."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import BinaryIO

from rookery.backup import snapshot
from rookery.backup.archive import FILE_SUFFIXES, ArchiveWriter, ProgressCallback, open_archive_writer
from rookery.backup.contents import RECORDS_FILE, FolderContent, list_content
from rookery.backup.errors import FileExists
from rookery.backup.manifest import Manifest
from rookery.backup.postgres_records import RecordSnapshot, open_record_snapshot
from rookery.kernel.clock import Clock, format_iso, utc_now
from rookery.kernel.data_folder import RESTORE_FOLDER
from rookery.kernel.errors import EngineUnavailable, RookeryError, StorageFull
from rookery.kernel.secret import Secret

_WORK_FOLDER_PREFIX = ".rookery-backup-"
_BACKUP_FILE_NAME = re.compile(r"rookery-\d{8}T\d{6}Z\.tar(\.zst|\.gz)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class BackupRequest:
    """
    The source, target and options of a backup.

    Attributes:
        folder: The data folder.
        out: A file that does not exist, or a folder in which the file is named after the time.
        with_records: False to leave the records out.
        database: The address of the PostgreSQL that has the records. None: they are in the folder.
        unused_indexes: The index files whose data is in a server. They are left out.
        keep: Number of backups to keep in the folder, the newest ones. None: keep all.
    """

    folder: Path
    out: Path
    with_records: bool = True
    database: Secret | None = None
    unused_indexes: frozenset[str] = frozenset()
    with_secret_key: bool = False
    keep: int | None = None

    def list_content(self) -> FolderContent:
        """Return the files of the folder to save."""
        is_in_folder = self.with_records and self.database is None
        unused_files = self.unused_indexes | (frozenset[str]() if is_in_folder else {RECORDS_FILE})
        return list_content(self.folder, unused_files=unused_files, with_secret_key=self.with_secret_key)


@dataclass(frozen=True, slots=True, kw_only=True)
class BackupResult:
    """
    The result of a backup.

    Attributes:
        sha256: The SHA-256 of the whole file.
        deleted_files: Older backups that were deleted.
    """

    path: Path
    size: int
    sha256: str
    manifest: Manifest
    content: FolderContent
    deleted_files: tuple[Path, ...] = ()


def estimate_bytes(request: BackupRequest) -> int:
    """Return the approximate number of bytes to process, for a progress bar."""
    content = request.list_content()
    sizes = sum((request.folder / name).stat().st_size for name in (*content.databases, *content.plain_files))
    return 2 * sizes  # each file is copied, then packed


def create_backup(request: BackupRequest, *, progress: ProgressCallback, clock: Clock = utc_now) -> BackupResult:
    """
    Save the data folder. After a failure at any point, the target file either is complete or does not exist.

    Args:
        request: The source, target and options.
        progress: Called with the total number of bytes copied and packed so far.
        clock: The time for the name and the manifest of the backup.

    Raises:
        FileExists: The target file exists already.
        StorageFull: The disk has too little space for the backup and a copy of the largest store.
        EngineUnavailable: A store cannot be read or is damaged.
        RookeryError: There is nothing to save, or the target cannot be written.
    """
    exports_records = request.with_records and request.database is not None
    if not exports_records and not request.list_content().databases:
        raise RookeryError(
            f"There is nothing to back up: {request.folder} is not a data folder. Name the folder: rookery --data-dir FOLDER backup"
        )
    if request.with_records and not exports_records and RECORDS_FILE not in request.list_content().databases:
        raise RookeryError(
            f"There are no records in {request.folder}: the file {RECORDS_FILE} is missing. "
            "If the records are in PostgreSQL, set ROOKERY_DATABASE_URL."
        )
    if (request.folder / RESTORE_FOLDER).exists():
        raise RookeryError(f"There is nothing to back up: a restore into {request.folder} is incomplete. Run the restore again first.")
    at = clock().astimezone(UTC)
    path = request.out / f"rookery-{at:%Y%m%dT%H%M%SZ}{FILE_SUFFIXES[0]}" if request.out.is_dir() else request.out
    if os.path.lexists(path):
        raise FileExists(f"{path} exists already. A backup never overwrites a file.")
    try:
        result = _create_in(request, path, at, progress)
        return result if request.keep is None else _with_deleted_files(result, _delete_old_backups(path, request.keep))
    except OSError as error:
        if error.errno in {errno.ENOSPC, errno.EDQUOT}:
            raise StorageFull(f"The disk of {path.parent} is full: free some space, or back up to another one.") from error
        raise RookeryError(f"{path} cannot be written: {error.strerror or error}") from error


def _create_in(request: BackupRequest, path: Path, at: datetime, progress: ProgressCallback) -> BackupResult:
    content = request.list_content()
    with open_work_folder(path.parent) as work_folder:
        partial = work_folder / "half"
        with _create_file(partial) as file, open_archive_writer(file, get_suffix(path), at) as (writer, digest):
            revision, key = _write_files(writer, request, content, work_folder, progress)
            version = metadata.version("rookery")
            manifest = Manifest(made_at=format_iso(at), version=version, revision=revision, secret_key_id=key, files=writer.entries)
            writer.close(manifest)
        with partial.open("rb") as file:
            os.fsync(file.fileno())
        try:
            path.hardlink_to(partial)  # unlike a rename, this never replaces a file that another process has created
        except FileExistsError as error:
            raise FileExists(f"{path} exists already. A backup never overwrites a file.") from error
        except OSError:  # the file system does not support hard links
            partial.rename(path)
        _sync_folder(path.parent)
        return BackupResult(path=path, size=path.stat().st_size, sha256=digest(), manifest=manifest, content=content)


def _write_files(
    writer: ArchiveWriter, request: BackupRequest, content: FolderContent, work_folder: Path, progress: ProgressCallback
) -> tuple[str | None, str | None]:
    """Write all files; return the revision of the records and the id of their secret key."""
    done = 0

    def report(file_bytes: int) -> None:
        progress(done + file_bytes)

    revision, key = None, None
    with _open_stores(request, content, work_folder) as stores:
        for name, copy in stores.items():
            staged = work_folder / name
            copy(staged, report)
            done += staged.stat().st_size
            if name == RECORDS_FILE:
                revision, key = snapshot.read_revision(staged), snapshot.read_sealing_key_id(staged)
                if revision is None:
                    raise EngineUnavailable(RECORDS_FILE, "it is not a record store of Rookery")
            writer.add(name, staged, report)
            done += staged.stat().st_size
            staged.unlink()
    for name in content.plain_files:
        writer.add(name, work_folder / name, report)
        done += 2 * (work_folder / name).stat().st_size
    return revision, key


CopyStore = Callable[[Path, ProgressCallback], None]
"""Copies a store into a new file, and calls its second argument with the number of bytes written so far."""


@contextmanager
def _open_stores(request: BackupRequest, content: FolderContent, work_folder: Path) -> Generator[Mapping[str, CopyStore]]:
    """
    Yield a function for each store that copies it, all as of the same moment, by the name of the file in the backup.

    A database of PostgreSQL takes its snapshot while the files of the folder are locked, so it is of the same moment.
    """
    folder = request.folder
    with contextlib.ExitStack() as stack:
        records = None
        if request.with_records and request.database is not None:
            records = stack.enter_context(open_record_snapshot(request.database.reveal()))

        def begin() -> None:
            # The stores are locked, because a rotation of the secret key changes the stores and secret.key by turns.
            for name in content.plain_files:
                shutil.copyfile(folder / name, work_folder / name)
            if records is not None:
                records.begin()

        readers = stack.enter_context(snapshot.open_snapshot([folder / name for name in content.databases], while_locked=begin))
        copies = {name: partial(snapshot.copy_database, readers[folder / name]) for name in content.databases}
        yield copies if records is None else {RECORDS_FILE: partial(_export_records, records), **copies}


def _export_records(records: RecordSnapshot, path: Path, progress: ProgressCallback) -> None:
    records.export(path, progress=lambda _: progress(path.stat().st_size))
    progress(path.stat().st_size)


def get_suffix(path: Path) -> str:
    """Return the ending of *path* among `FILE_SUFFIXES`; if it has none, the last one, which means no compression."""
    return next((suffix for suffix in FILE_SUFFIXES if path.name.endswith(suffix)), FILE_SUFFIXES[-1])


def _create_file(path: Path) -> BinaryIO:
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")


@contextmanager
def open_work_folder(parent: Path) -> Generator[Path]:
    """
    Yield a folder for incomplete files, on the disk of the target. It is deleted after the block.

    Folders that killed processes left behind are deleted first. They are recognised by their lock, which ends with its process.
    """
    for leftover in parent.glob(f"{_WORK_FOLDER_PREFIX}*"):
        try:
            lock = os.open(leftover, os.O_RDONLY | os.O_DIRECTORY)
        except OSError:
            continue  # it has been deleted, or belongs to another user of a shared folder
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(leftover, ignore_errors=True)
        except OSError:
            continue
        finally:
            os.close(lock)
    folder, lock = _create_locked_folder(parent)
    try:
        yield folder
    finally:
        os.close(lock)
        shutil.rmtree(folder, ignore_errors=True)


def _create_locked_folder(parent: Path) -> tuple[Path, int]:
    while True:
        folder = Path(tempfile.mkdtemp(prefix=_WORK_FOLDER_PREFIX, dir=parent))  # with mode 0700
        with contextlib.suppress(FileNotFoundError):  # another backup may delete it as a leftover before it is locked
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
            fcntl.flock(lock, fcntl.LOCK_EX)
            if folder.exists():
                return folder, lock
            os.close(lock)


def _delete_old_backups(path: Path, keep: int) -> tuple[Path, ...]:
    """Delete the oldest backups with generated names beside *path* until *keep* are left; return the deleted files."""
    backups = sorted(
        (file for file in path.parent.iterdir() if _BACKUP_FILE_NAME.fullmatch(file.name) and file.is_file()), key=lambda file: file.name
    )
    old = tuple(file for file in backups[: max(0, len(backups) - keep)] if file != path)
    for file in old:
        file.unlink(missing_ok=True)
    return old


def _with_deleted_files(result: BackupResult, deleted_files: tuple[Path, ...]) -> BackupResult:
    return BackupResult(
        path=result.path,
        size=result.size,
        sha256=result.sha256,
        manifest=result.manifest,
        content=result.content,
        deleted_files=deleted_files,
    )


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
