"""
A backup is unpacked into an empty folder.

    1 the whole archive is read and compared with what it says of itself: nothing is written yet
    2 it is unpacked into `.restoring`, in the folder, and compared again
    3 the files are moved to their places, then `.restoring` goes

While `.restoring` is there nothing of Rookery uses the folder, so a restore that is killed at any moment has left nothing that could
be taken for whole; done again, it begins from the beginning.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import shutil
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rookery.backup import snapshot
from rookery.backup.archive import ProgressCallback, Sink, unpack
from rookery.backup.contents import DATABASE_FILES, PLAIN_FILES, RECORDS_FILE, SECRET_KEY_FILE
from rookery.backup.errors import FolderNotEmpty, InvalidArchive
from rookery.backup.manifest import Manifest
from rookery.kernel.data_folder import RESTORE_FOLDER
from rookery.kernel.errors import RookeryError, StorageFull
from rookery.migrations import HEAD_REVISION

_MIB = 1024 * 1024
_CHUNK_BYTES = 1024 * 1024
_RESTORE_FILES = frozenset({*DATABASE_FILES, *PLAIN_FILES, SECRET_KEY_FILE, RESTORE_FOLDER})


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoreResult:
    """A backup that was restored into *folder*, or, without one, only looked through."""

    manifest: Manifest
    folder: Path | None


class _NullSink:
    """Takes what is only to be compared."""

    def write(self, piece: bytes, /) -> object:
        return len(piece)


def verify_backup(archive: Path, *, progress: ProgressCallback, sha256: str | None = None) -> RestoreResult:
    """
    Read *archive* from end to end and write nothing.

    Args:
        archive: The backup.
        progress: Told how many bytes were read.
        sha256: What the backup said its file had when it was made; only this tells a forged one.

    Raises:
        ArchiveUnfit: It is no backup, or not whole, or not what was saved, or of a newer Rookery.
    """
    try:
        if sha256 is not None:
            _require_sha256(archive, sha256)
        manifest = unpack(archive, lambda _: contextlib.nullcontext(_NullSink()), progress)
    except OSError as error:
        raise RookeryError(f"{archive} cannot be read: {error.strerror or error}") from error
    _require_supported_revision(archive, manifest)
    return RestoreResult(manifest=manifest, folder=None)


def restore_backup(archive: Path, folder: Path, *, progress: ProgressCallback, sha256: str | None = None) -> RestoreResult:
    """
    Put what is in *archive* into *folder*, which is made if it must be.

    Args:
        archive: The backup.
        folder: Where nothing is yet, but for what a restore left that was killed.
        progress: Told how many bytes were read, twice those that are in it.
        sha256: As for `verify_backup`.

    Raises:
        ArchiveUnfit: As for `verify_backup`; nothing was written.
        FolderTaken: There is something in *folder*, or another restore is at work there.
        StorageFull: There is too little room.
    """
    _require_empty_folder(folder)
    manifest = verify_backup(archive, progress=progress, sha256=sha256).manifest
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _folder_lock(folder):
            _delete_leftovers(folder)
            free = shutil.disk_usage(folder).free
            if free < manifest.size:
                raise StorageFull(
                    f"{folder} needs {manifest.size // _MIB + 1:,} MiB for this backup, and its disk has {free // _MIB:,} MiB free."
                )
            _unpack_into(archive, folder, manifest, lambda done: progress(manifest.size + done))
    except OSError as error:
        if error.errno in {errno.ENOSPC, errno.EDQUOT}:
            raise StorageFull(f"The disk of {folder} is full; what was written is gone again.") from error
        raise RookeryError(f"{folder} cannot be written: {error.strerror or error}") from error
    return RestoreResult(manifest=manifest, folder=folder)


def _unpack_into(archive: Path, folder: Path, manifest: Manifest, progress: ProgressCallback) -> None:
    room = folder / RESTORE_FOLDER
    room.mkdir(mode=0o700)
    try:

        @contextmanager
        def into(name: str) -> Generator[Sink]:
            descriptor = os.open(room / name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())

        _require_unchanged(archive, manifest, unpack(archive, into, progress), room)
    except BaseException:
        shutil.rmtree(room, ignore_errors=True)
        raise
    _sync_folder(room)
    _sync_folder(folder)
    for entry in manifest.files:
        (room / entry.name).rename(folder / entry.name)
    _sync_folder(folder)
    room.rmdir()
    _sync_folder(folder)


def _require_unchanged(archive: Path, checked: Manifest, unpacked: Manifest, room: Path) -> None:
    if unpacked != checked:
        raise InvalidArchive(f"{archive} was changed while it was read.")
    if checked.revision is not None and snapshot.read_revision(room / RECORDS_FILE) != checked.revision:
        raise InvalidArchive(f"{archive} is no backup of Rookery: its records have another revision than it says.")


def _require_supported_revision(archive: Path, manifest: Manifest) -> None:
    if manifest.revision is not None and manifest.revision > HEAD_REVISION:
        raise InvalidArchive(
            f"The records in {archive} have revision {manifest.revision}, this Rookery knows up to {HEAD_REVISION}: "
            f"use the Rookery that made it ({manifest.version}), or a newer one."
        )


def _require_sha256(archive: Path, sha256: str) -> None:
    with archive.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != sha256.lower():
        raise InvalidArchive(f"{archive} is not the file that you mean: it has SHA-256 {found}.")


def _require_empty_folder(folder: Path) -> None:
    """Do nothing if nothing is in *folder*, or only what a killed restore may have left."""
    if not os.path.lexists(folder):
        return
    if not folder.is_dir():
        raise FolderNotEmpty(f"{folder} is no folder.")
    there = {entry.name for entry in folder.iterdir()}
    if there - (_RESTORE_FILES if RESTORE_FOLDER in there else set()):
        raise FolderNotEmpty(f"{folder} is not empty: a backup is restored into an empty folder, which may take the old one's place then.")


def _delete_leftovers(folder: Path) -> None:
    """Delete what a killed restore left in *folder*, which is ours alone at this moment."""
    _require_empty_folder(folder)
    for entry in list(folder.iterdir()):
        if entry.name != RESTORE_FOLDER:
            entry.unlink()
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(folder / RESTORE_FOLDER)


@contextmanager
def _folder_lock(folder: Path) -> Generator[None]:
    """Keep others from restoring into *folder*; a process that dies lets go."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        raise FolderNotEmpty(f"Another restore into {folder} is at work.") from error
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
