"""The file that a backup is: a tar, as it is or compressed. It is written and read in one go, a piece at a time."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import io
import tarfile
import zlib
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import IO, BinaryIO, Protocol, Self, cast

import zstandard

from rookery.backup.errors import ArchiveUnfit
from rookery.backup.manifest import LONGEST, NAME, Entry, Manifest, read, write
from rookery.backup.stores import DATABASES, PLAIN, SECRET_KEY

ENDINGS = (".tar.zst", ".tar.gz", ".tar")
"""By its name a backup is compressed; by its first bytes it is read."""

_PIECE = 1024 * 1024
_LEVEL = 3
_GZIP_LEVEL = 1  # the vectors, most of a backup, cannot be made smaller by any level
_ZSTD, _GZIP = b"\x28\xb5\x2f\xfd", b"\x1f\x8b"
_MODE = 0o600
_NAMES = frozenset({*DATABASES, *PLAIN, SECRET_KEY})
_BROKEN = (tarfile.TarError, zstandard.ZstdError, zlib.error, gzip.BadGzipFile, EOFError, ValueError, OverflowError)

Progress = Callable[[int], None]
"""Told how many bytes are done so far."""


class Sink(Protocol):
    """Where the bytes of a saved file go."""

    def write(self, piece: bytes, /) -> object:
        """Take a piece."""
        ...


class _Digesting(io.RawIOBase):
    """Writes to a file and adds up the SHA-256 of what was written."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._hash = hashlib.sha256()

    def writable(self) -> bool:
        return True

    def write(self, piece: object, /) -> int:
        data = bytes(cast("memoryview", piece))
        self._hash.update(data)
        return self._file.write(data)

    def digest(self) -> str:
        return self._hash.hexdigest()


class _Member(tarfile.TarInfo):
    """A header of an archive; what stands before one, a long name or more fields, is read into memory, so it must be small."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        found = super().frombuf(buf, encoding, errors)
        if found.size < 0 or (not found.isreg() and found.size > LONGEST):
            raise ArchiveUnfit(f"This is no backup of Rookery: a header of {found.size:,} bytes is in it.")
        return found


class Writer:
    """Takes files one by one."""

    def __init__(self, tar: tarfile.TarFile, at: datetime) -> None:
        self._tar = tar
        self._at = at
        self._entries = list[Entry]()

    @property
    def entries(self) -> tuple[Entry, ...]:
        """What was added so far."""
        return tuple(self._entries)

    def add(self, name: str, path: Path, progress: Progress) -> None:
        """Add the file *path*, which nobody writes, as *name*."""
        with path.open("rb") as file:
            size = path.stat().st_size
            source = _Watched(file, size, progress)
            self._tar.addfile(_member(name, size, self._at), cast("IO[bytes]", source))
        self._entries.append(Entry(name=name, size=size, sha256=source.digest()))

    def close(self, manifest: Manifest) -> None:
        """Add what the backup says of itself."""
        text = write(manifest)
        self._tar.addfile(_member(NAME, len(text), self._at), io.BytesIO(text))


class _Watched:
    """Reads exactly so many bytes of a file, digests them and tells of them."""

    def __init__(self, file: BinaryIO, size: int, progress: Progress) -> None:
        self._file = file
        self._left = size
        self._done = 0
        self._progress = progress
        self._hash = hashlib.sha256()

    def read(self, most: int) -> bytes:
        piece = self._file.read(min(most, self._left))
        self._left -= len(piece)
        self._done += len(piece)
        self._hash.update(piece)
        self._progress(self._done)
        return piece

    def digest(self) -> str:
        return self._hash.hexdigest()


@contextmanager
def writing(file: BinaryIO, ending: str, at: datetime) -> Generator[tuple[Writer, Callable[[], str]]]:
    """
    Lend what writes an archive into *file*, and, for when the block is over, what tells the SHA-256 of all that was written.

    Args:
        file: Empty, and ours.
        ending: One of `ENDINGS`.
        at: The time that its files have.
    """
    digesting = _Digesting(file)
    with _compressed(digesting, ending) as out, tarfile.open(fileobj=out, mode="w|", format=tarfile.PAX_FORMAT) as tar:
        yield Writer(tar, at), digesting.digest


@contextmanager
def _compressed(file: io.RawIOBase, ending: str) -> Generator[IO[bytes]]:
    match ending:
        case ".tar.zst":
            compressor = zstandard.ZstdCompressor(level=_LEVEL, write_checksum=True)
            with compressor.stream_writer(cast("IO[bytes]", file), closefd=False) as out:
                yield cast("IO[bytes]", out)
        case ".tar.gz":
            with gzip.GzipFile(filename="", fileobj=file, mode="wb", compresslevel=_GZIP_LEVEL, mtime=0) as out:
                yield cast("IO[bytes]", out)
        case _:
            yield cast("IO[bytes]", file)


def unpack(path: Path, into: Callable[[str], contextlib.AbstractContextManager[Sink]], progress: Progress) -> Manifest:
    """
    Read the archive *path* from end to end, hand each file in it to what *into* lends by its name, and return what it says of itself.

    Args:
        into: Given only names that a backup may have, each once.
        progress: Told how many bytes of all files are read so far.

    Raises:
        ArchiveUnfit: It is no backup, or not whole, or not what was saved.
    """
    found = dict[str, Entry]()
    manifest: Manifest | None = None
    done = 0
    try:
        with _tar(path) as tar:
            for member in tar:
                if manifest is not None:
                    raise ArchiveUnfit(f"{path} is no backup of Rookery: something comes after its {NAME}.")
                _must_be_ours(path, member, found)
                file = tar.extractfile(member)
                if file is None:
                    raise ArchiveUnfit(f"{path} is no backup of Rookery: {member.name!a} is no file.")
                if member.name == NAME:
                    manifest = read(file.read())
                    continue
                digest = hashlib.sha256()
                with into(member.name) as sink:
                    for piece in _pieces(file):
                        digest.update(piece)
                        sink.write(piece)
                        done += len(piece)
                        progress(done)
                found[member.name] = Entry(name=member.name, size=member.size, sha256=digest.hexdigest())
    except _BROKEN as error:
        raise ArchiveUnfit(f"{path} is no backup of Rookery, or it was cut short or damaged: {error}") from error
    if manifest is None:
        raise ArchiveUnfit(f"{path} is no backup of Rookery, or it was cut short: there is no {NAME} at its end.")
    _must_agree(path, manifest, found)
    return manifest


def _must_be_ours(path: Path, member: tarfile.TarInfo, found: dict[str, Entry]) -> None:
    """Do nothing if *member* is what a backup has: a plain file of a known name; so nothing can be put anywhere else."""
    name = ascii(member.name)[:200]
    if not member.isreg() or member.issparse() or member.name not in {*_NAMES, NAME}:
        raise ArchiveUnfit(f"{path} is no backup of Rookery: {name} is in it.")
    if member.name in found:
        raise ArchiveUnfit(f"{path} is no backup of Rookery: {name} is in it twice.")
    if member.name == NAME and member.size > LONGEST:
        raise ArchiveUnfit(f"{path} is no backup of Rookery: its {NAME} has {member.size:,} bytes.")


def _must_agree(path: Path, manifest: Manifest, found: dict[str, Entry]) -> None:
    for entry in manifest.files:
        there = found.pop(entry.name, None)
        if there is None:
            raise ArchiveUnfit(f"{path} was damaged: {entry.name} is missing.")
        if there != entry:
            raise ArchiveUnfit(
                f"{path} was damaged or changed: {entry.name} has SHA-256 {there.sha256}, and was saved with {entry.sha256}."
            )
    if found:
        raise ArchiveUnfit(f"{path} was changed: its {NAME} does not name {', '.join(sorted(found))}.")


@contextmanager
def _tar(path: Path) -> Generator[tarfile.TarFile]:
    with path.open("rb") as file:
        first = file.read(len(_ZSTD))
        file.seek(0)
        if first == _ZSTD:
            source = cast("IO[bytes]", zstandard.ZstdDecompressor().stream_reader(file, closefd=False))
        elif first.startswith(_GZIP):
            source = cast("IO[bytes]", gzip.GzipFile(fileobj=file, mode="rb"))
        else:
            source = cast("IO[bytes]", file)
        with tarfile.open(fileobj=source, mode="r|", errorlevel=2, tarinfo=_Member) as tar:
            yield tar


def _pieces(file: IO[bytes]) -> Iterator[bytes]:
    while piece := file.read(_PIECE):
        yield piece


def _member(name: str, size: int, at: datetime) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.size, member.mode, member.mtime = size, _MODE, int(at.timestamp())
    return member
