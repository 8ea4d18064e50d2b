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
from rookery.backup.archive import ENDINGS, Progress, Writer, writing
from rookery.backup.errors import FileTaken
from rookery.backup.manifest import Manifest
from rookery.backup.stores import RECORDS, Content, look
from rookery.kernel.clock import Clock, iso, utc_now
from rookery.kernel.data_folder import RESTORING
from rookery.kernel.errors import EngineUnavailable, RookeryError, StorageFull

_WORKROOM = ".rookery-backup-"
_OURS = re.compile(r"rookery-\d{8}T\d{6}Z\.tar(\.zst|\.gz)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
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

    def content(self) -> Content:
        """Look at what there is to save."""
        return look(self.folder, with_records=self.with_records, with_secret_key=self.with_secret_key)


@dataclass(frozen=True, slots=True, kw_only=True)
class Made:
    """
    A backup that was made.

    Attributes:
        sha256: Of the file as it is.
        dropped: Older files that were deleted.
    """

    path: Path
    size: int
    sha256: str
    manifest: Manifest
    content: Content
    dropped: tuple[Path, ...] = ()


def total(order: Order) -> int:
    """Return how many bytes there are to save, about: for a progress bar."""
    content = order.content()
    sizes = sum((order.folder / name).stat().st_size for name in (*content.databases, *content.plain))
    return 2 * sizes  # each is copied, then packed


def make(order: Order, *, progress: Progress, clock: Clock = utc_now) -> Made:
    """
    Save the data folder; whatever happens meanwhile, *out* is there whole or not at all.

    Args:
        order: What to save where.
        progress: Told how many bytes are copied and packed so far.
        clock: Names and dates the backup.

    Raises:
        FileTaken: There is such a file already.
        StorageFull: There is too little room for it, and for the largest store once more.
        EngineUnavailable: A store cannot be read, or is damaged.
        RookeryError: There is nothing to save, or *out* cannot be written.
    """
    if not order.folder.is_dir() or not order.content().databases:
        raise RookeryError(f"There is nothing to back up: {order.folder} is no data folder. Say which: rookery --data-dir FOLDER backup")
    if order.with_records and RECORDS not in order.content().databases:
        raise RookeryError(f"There are no records in {order.folder}: an embedded record store has them in {RECORDS}.")
    if (order.folder / RESTORING).exists():
        raise RookeryError(f"There is nothing to back up: a restore into {order.folder} was not finished.")
    at = clock().astimezone(UTC)
    path = order.out / f"rookery-{at:%Y%m%dT%H%M%SZ}{ENDINGS[0]}" if order.out.is_dir() else order.out
    if os.path.lexists(path):
        raise FileTaken(f"{path} is there already; a backup is never written over a file.")
    try:
        made = _make(order, path, at, progress)
        return made if order.keep is None else _with(made, _drop_old(path, order.keep))
    except OSError as error:
        if error.errno in {errno.ENOSPC, errno.EDQUOT}:
            raise StorageFull(f"The disk of {path.parent} is full: free some space, or back up to another one.") from error
        raise RookeryError(f"{path} cannot be made: {error.strerror or error}") from error


def _make(order: Order, path: Path, at: datetime, progress: Progress) -> Made:
    content = order.content()
    with _workroom(path.parent) as room:
        half = room / "half"
        with _new(half) as file, writing(file, ending(path), at) as (writer, digest):
            schema, key = _fill(writer, order.folder, content, room, progress)
            version = metadata.version("rookery")
            manifest = Manifest(made_at=iso(at), version=version, revision=schema, secret_key_id=key, files=writer.entries)
            writer.close(manifest)
        with half.open("rb") as file:
            os.fsync(file.fileno())
        try:
            path.hardlink_to(half)  # unlike a rename, never over a file that somebody made meanwhile
        except FileExistsError as error:
            raise FileTaken(f"{path} is there already; a backup is never written over a file.") from error
        except OSError:  # a file system without links
            half.rename(path)
        _sync(path.parent)
        return Made(path=path, size=path.stat().st_size, sha256=digest(), manifest=manifest, content=content)


def _fill(writer: Writer, folder: Path, content: Content, room: Path, progress: Progress) -> tuple[str | None, str | None]:
    """Write all files; return the revision of the records, and the key that seals in them."""
    done = 0

    def moved(here: int) -> None:
        progress(done + here)

    def plain() -> None:
        # With the stores locked: a change of the secret key goes from one to the next by turns in them and in its file.
        for name in content.plain:
            shutil.copyfile(folder / name, room / name)

    schema, key = None, None
    with snapshot.one_moment([folder / name for name in content.databases], meanwhile=plain) as readers:
        for name in content.databases:
            staged = room / name
            snapshot.copy(readers[folder / name], staged, moved)
            done += staged.stat().st_size
            if name == RECORDS:
                schema, key = snapshot.revision(staged), snapshot.sealing_key(staged)
                if schema is None:
                    raise EngineUnavailable(RECORDS, "it is no record store of Rookery")
            writer.add(name, staged, moved)
            done += staged.stat().st_size
            staged.unlink()
    for name in content.plain:
        writer.add(name, room / name, moved)
        done += 2 * (room / name).stat().st_size
    return schema, key


def ending(path: Path) -> str:
    """Return which of `ENDINGS` the name of *path* has; the last, which is no compression, if it has none."""
    return next((each for each in ENDINGS if path.name.endswith(each)), ENDINGS[-1])


def _new(path: Path) -> BinaryIO:
    return os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb")


@contextmanager
def _workroom(parent: Path) -> Generator[Path]:
    """
    Lend a folder for what is not whole yet, on the disk where it will be; it goes with the block.

    What somebody who was killed left behind goes now: a lock that dies with its process tells it from one in use.
    """
    for left in parent.glob(f"{_WORKROOM}*"):
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
    room, lock = _locked_room(parent)
    try:
        yield room
    finally:
        os.close(lock)
        shutil.rmtree(room, ignore_errors=True)


def _locked_room(parent: Path) -> tuple[Path, int]:
    while True:
        room = Path(tempfile.mkdtemp(prefix=_WORKROOM, dir=parent))  # for our eyes alone
        with contextlib.suppress(FileNotFoundError):  # another backup took it for left behind before we had locked it
            lock = os.open(room, os.O_RDONLY | os.O_DIRECTORY)
            fcntl.flock(lock, fcntl.LOCK_EX)
            if room.exists():
                return room, lock
            os.close(lock)


def _drop_old(path: Path, keep: int) -> tuple[Path, ...]:
    """Delete the oldest of the backups beside *path* that are named as we name them, until *keep* are left."""
    named = sorted((each for each in path.parent.iterdir() if _OURS.fullmatch(each.name) and each.is_file()), key=lambda each: each.name)
    old = tuple(each for each in named[: max(0, len(named) - keep)] if each != path)
    for each in old:
        each.unlink(missing_ok=True)
    return old


def _with(made: Made, dropped: tuple[Path, ...]) -> Made:
    return Made(path=made.path, size=made.size, sha256=made.sha256, manifest=made.manifest, content=made.content, dropped=dropped)


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
