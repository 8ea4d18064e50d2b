"""A backup is made, beside servers at work: what every store of the data folder was at one moment, in one file."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import shutil
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import BinaryIO

from rookery.backup import snapshot
from rookery.backup.archive import FILE_SUFFIXES, ArchiveWriter, ProgressCallback, open_archive_writer
from rookery.backup.contents import RECORDS_FILE, FolderContent, list_content
from rookery.backup.errors import FileExists
from rookery.backup.manifest import Manifest
from rookery.kernel.clock import Clock, format_iso, utc_now
from rookery.kernel.data_folder import RESTORE_FOLDER
from rookery.kernel.errors import EngineUnavailable, RookeryError, StorageFull

_WORK_FOLDER_PREFIX = ".rookery-backup-"
_BACKUP_FILE_NAME = re.compile(r"rookery-\d{8}T\d{6}Z\.tar(\.zst|\.gz)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class BackupRequest:
    """
    What to save where.

    Attributes:
        folder: The data folder.
        out: A file that is not there yet; or a folder, in which the file is named after the moment.
        with_records: False: they are on a PostgreSQL, which has its own ways.
        keep: Of the files so named in that folder, the newest so many stay.
    """

    folder: Path
    out: Path
    with_records: bool = True
    with_secret_key: bool = False
    keep: int | None = None

    def list_content(self) -> FolderContent:
        """Look at what there is to save."""
        return list_content(self.folder, with_records=self.with_records, with_secret_key=self.with_secret_key)


@dataclass(frozen=True, slots=True, kw_only=True)
class BackupResult:
    """
    A backup that was made.

    Attributes:
        sha256: Of the file as it is.
        deleted_files: Older files that were deleted.
    """

    path: Path
    size: int
    sha256: str
    manifest: Manifest
    content: FolderContent
    deleted_files: tuple[Path, ...] = ()


def estimate_bytes(request: BackupRequest) -> int:
    """Return how many bytes there are to save, about: for a progress bar."""
    content = request.list_content()
    sizes = sum((request.folder / name).stat().st_size for name in (*content.databases, *content.plain_files))
    return 2 * sizes  # each is copied, then packed


def create_backup(request: BackupRequest, *, progress: ProgressCallback, clock: Clock = utc_now) -> BackupResult:
    """
    Save the data folder; whatever happens meanwhile, *out* is there whole or not at all.

    Args:
        request: What to save where.
        progress: Told how many bytes are copied and packed so far.
        clock: Names and dates the backup.

    Raises:
        FileTaken: There is such a file already.
        StorageFull: There is too little room for it, and for the largest store once more.
        EngineUnavailable: A store cannot be read, or is damaged.
        RookeryError: There is nothing to save, or *out* cannot be written.
    """
    if not request.folder.is_dir() or not request.list_content().databases:
        raise RookeryError(f"There is nothing to back up: {request.folder} is no data folder. Say which: rookery --data-dir FOLDER backup")
    if request.with_records and RECORDS_FILE not in request.list_content().databases:
        raise RookeryError(f"There are no records in {request.folder}: an embedded record store has them in {RECORDS_FILE}.")
    if (request.folder / RESTORE_FOLDER).exists():
        raise RookeryError(f"There is nothing to back up: a restore into {request.folder} was not finished.")
    at = clock().astimezone(UTC)
    path = request.out / f"rookery-{at:%Y%m%dT%H%M%SZ}{FILE_SUFFIXES[0]}" if request.out.is_dir() else request.out
    if os.path.lexists(path):
        raise FileExists(f"{path} is there already; a backup is never written over a file.")
    try:
        made = _create_in(request, path, at, progress)
        return made if request.keep is None else _with_deleted_files(made, _delete_old_backups(path, request.keep))
    except OSError as error:
        if error.errno in {errno.ENOSPC, errno.EDQUOT}:
            raise StorageFull(f"The disk of {path.parent} is full: free some space, or back up to another one.") from error
        raise RookeryError(f"{path} cannot be made: {error.strerror or error}") from error


def _create_in(request: BackupRequest, path: Path, at: datetime, progress: ProgressCallback) -> BackupResult:
    content = request.list_content()
    with _work_folder(path.parent) as room:
        half = room / "half"
        with _create_file(half) as file, open_archive_writer(file, get_suffix(path), at) as (writer, digest):
            schema, key = _write_files(writer, request.folder, content, room, progress)
            version = metadata.version("rookery")
            manifest = Manifest(made_at=format_iso(at), version=version, revision=schema, secret_key_id=key, files=writer.entries)
            writer.close(manifest)
        with half.open("rb") as file:
            os.fsync(file.fileno())
        try:
            path.hardlink_to(half)  # unlike a rename, never over a file that somebody made meanwhile
        except FileExistsError as error:
            raise FileExists(f"{path} is there already; a backup is never written over a file.") from error
        except OSError:  # a file system without links
            half.rename(path)
        _sync_folder(path.parent)
        return BackupResult(path=path, size=path.stat().st_size, sha256=digest(), manifest=manifest, content=content)


def _write_files(
    writer: ArchiveWriter, folder: Path, content: FolderContent, room: Path, progress: ProgressCallback
) -> tuple[str | None, str | None]:
    """Write all files; return the revision of the records, and the key that seals in them."""
    done = 0

    def moved(here: int) -> None:
        progress(done + here)

    def plain() -> None:
        # With the stores locked: a change of the secret key goes from one to the next by turns in them and in its file.
        for name in content.plain_files:
            shutil.copyfile(folder / name, room / name)

    schema, key = None, None
    with snapshot.open_snapshot([folder / name for name in content.databases], while_locked=plain) as readers:
        for name in content.databases:
            staged = room / name
            snapshot.copy_database(readers[folder / name], staged, moved)
            done += staged.stat().st_size
            if name == RECORDS_FILE:
                schema, key = snapshot.read_revision(staged), snapshot.read_sealing_key_id(staged)
                if schema is None:
                    raise EngineUnavailable(RECORDS_FILE, "it is no record store of Rookery")
            writer.add(name, staged, moved)
            done += staged.stat().st_size
            staged.unlink()
    for name in content.plain_files:
        writer.add(name, room / name, moved)
        done += 2 * (room / name).stat().st_size
    return schema, key


def get_suffix(path: Path) -> str:
    """Return which of `FILE_SUFFIXES` the name of *path* has; the last, which is no compression, if it has none."""
    return next((each for each in FILE_SUFFIXES if path.name.endswith(each)), FILE_SUFFIXES[-1])


def _create_file(path: Path) -> BinaryIO:
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")


@contextmanager
def _work_folder(parent: Path) -> Generator[Path]:
    """
    Lend a folder for what is not whole yet, on the disk where it will be; it goes with the block.

    What somebody who was killed left behind goes now: a lock that dies with its process tells it from one in use.
    """
    for left in parent.glob(f"{_WORK_FOLDER_PREFIX}*"):
        try:
            lock = os.open(left, os.O_RDONLY | os.O_DIRECTORY)
        except OSError:
            continue  # it went since, or is not ours: in a folder that others use too anything may have such a name
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(left, ignore_errors=True)
        except OSError:
            continue
        finally:
            os.close(lock)
    room, lock = _create_locked_folder(parent)
    try:
        yield room
    finally:
        os.close(lock)
        shutil.rmtree(room, ignore_errors=True)


def _create_locked_folder(parent: Path) -> tuple[Path, int]:
    while True:
        room = Path(tempfile.mkdtemp(prefix=_WORK_FOLDER_PREFIX, dir=parent))  # for our eyes alone
        with contextlib.suppress(FileNotFoundError):  # another backup took it for left behind before we had locked it
            lock = os.open(room, os.O_RDONLY | os.O_DIRECTORY)
            fcntl.flock(lock, fcntl.LOCK_EX)
            if room.exists():
                return room, lock
            os.close(lock)


def _delete_old_backups(path: Path, keep: int) -> tuple[Path, ...]:
    """Delete the oldest of the backups beside *path* that are named as we name them, until *keep* are left."""
    named = sorted(
        (each for each in path.parent.iterdir() if _BACKUP_FILE_NAME.fullmatch(each.name) and each.is_file()), key=lambda each: each.name
    )
    old = tuple(each for each in named[: max(0, len(named) - keep)] if each != path)
    for each in old:
        each.unlink(missing_ok=True)
    return old


def _with_deleted_files(made: BackupResult, dropped: tuple[Path, ...]) -> BackupResult:
    return BackupResult(
        path=made.path, size=made.size, sha256=made.sha256, manifest=made.manifest, content=made.content, deleted_files=dropped
    )


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
