"""The archive of a backup: a tar, uncompressed or compressed. It is written and read as a stream."""

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

from rookery.backup.contents import DATABASE_FILES, PLAIN_FILES, SECRET_KEY_FILE
from rookery.backup.errors import InvalidArchive
from rookery.backup.manifest import MANIFEST_NAME, MAX_MANIFEST_BYTES, BackupFile, Manifest, encode_manifest, parse_manifest

FILE_SUFFIXES = (".tar.zst", ".tar.gz", ".tar")
"""File name endings. The ending selects the compression when writing; the first bytes select it when reading."""

_CHUNK_BYTES = 1024 * 1024
_ZSTD_LEVEL = 3
_GZIP_LEVEL = 1  # no level makes the vectors, most of a backup, smaller
_ZSTD_MAGIC, _GZIP_MAGIC = b"\x28\xb5\x2f\xfd", b"\x1f\x8b"
_MEMBER_MODE = 0o600
_ALLOWED_NAMES = frozenset({*DATABASE_FILES, *PLAIN_FILES, SECRET_KEY_FILE})
_ARCHIVE_ERRORS = (tarfile.TarError, zstandard.ZstdError, zlib.error, gzip.BadGzipFile, EOFError, ValueError, OverflowError)

ProgressCallback = Callable[[int], None]
"""Called with the total number of bytes processed so far."""


class Sink(Protocol):
    """The target of the bytes of one file."""

    def write(self, piece: bytes, /) -> object: ...


class _DigestWriter(io.RawIOBase):
    """A writer that computes the SHA-256 of everything written."""

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


class _TarMember(tarfile.TarInfo):
    """A tar header with a size limit, because tarfile reads long names and extra fields into memory."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Self:
        member = super().frombuf(buf, encoding, errors)
        if member.size < 0 or (not member.isreg() and member.size > MAX_MANIFEST_BYTES):
            raise InvalidArchive(f"This is not a backup of Rookery: it contains a header of {member.size:,} bytes.")
        return member


class ArchiveWriter:
    """A writer that adds files to an archive one by one."""

    def __init__(self, tar: tarfile.TarFile, at: datetime) -> None:
        self._tar = tar
        self._at = at
        self._entries = list[BackupFile]()

    @property
    def entries(self) -> tuple[BackupFile, ...]:
        """The entries added so far."""
        return tuple(self._entries)

    def add(self, name: str, path: Path, progress: ProgressCallback) -> None:
        """Add the file *path* as *name*. Nothing may write to the file meanwhile."""
        with path.open("rb") as file:
            size = path.stat().st_size
            source = _DigestReader(file, size, progress)
            self._tar.addfile(_build_member(name, size, self._at), cast("IO[bytes]", source))
        self._entries.append(BackupFile(name=name, size=size, sha256=source.digest()))

    def close(self, manifest: Manifest) -> None:
        """Add the manifest, which is the last file."""
        text = encode_manifest(manifest)
        self._tar.addfile(_build_member(MANIFEST_NAME, len(text), self._at), io.BytesIO(text))


class _DigestReader:
    """A reader of exactly *size* bytes that computes their SHA-256 and reports progress."""

    def __init__(self, file: BinaryIO, size: int, progress: ProgressCallback) -> None:
        self._file = file
        self._left = size
        self._done = 0
        self._progress = progress
        self._hash = hashlib.sha256()

    def read(self, size: int) -> bytes:
        piece = self._file.read(min(size, self._left))
        self._left -= len(piece)
        self._done += len(piece)
        self._hash.update(piece)
        self._progress(self._done)
        return piece

    def digest(self) -> str:
        return self._hash.hexdigest()


@contextmanager
def open_archive_writer(file: BinaryIO, suffix: str, at: datetime) -> Generator[tuple[ArchiveWriter, Callable[[], str]]]:
    """
    Yield a writer of an archive into *file*, and a function that returns the SHA-256 of the file after the block.

    Args:
        file: An empty file.
        suffix: One of `FILE_SUFFIXES`.
        at: The modification time of the files in the archive.
    """
    digesting = _DigestWriter(file)
    with _open_compressor(digesting, suffix) as out, tarfile.open(fileobj=out, mode="w|", format=tarfile.PAX_FORMAT) as tar:
        yield ArchiveWriter(tar, at), digesting.digest


@contextmanager
def _open_compressor(file: io.RawIOBase, suffix: str) -> Generator[IO[bytes]]:
    match suffix:
        case ".tar.zst":
            compressor = zstandard.ZstdCompressor(level=_ZSTD_LEVEL, write_checksum=True)
            with compressor.stream_writer(cast("IO[bytes]", file), closefd=False) as out:
                yield cast("IO[bytes]", out)
        case ".tar.gz":
            with gzip.GzipFile(filename="", fileobj=file, mode="wb", compresslevel=_GZIP_LEVEL, mtime=0) as out:
                yield cast("IO[bytes]", out)
        case _:
            yield cast("IO[bytes]", file)


def unpack(path: Path, open_target: Callable[[str], contextlib.AbstractContextManager[Sink]], progress: ProgressCallback) -> Manifest:
    """
    Copy each file in the archive *path* to the target that *open_target* opens for its name; return the manifest.

    Args:
        open_target: Called once for each file, only with names that a backup may contain.
        progress: Called with the total number of bytes read so far.

    Raises:
        InvalidArchive: The file is not a backup, is incomplete, or does not match its manifest.
    """
    files = dict[str, BackupFile]()
    manifest: Manifest | None = None
    done = 0
    try:
        with _open_tar(path) as tar:
            for member in tar:
                if manifest is not None:
                    raise InvalidArchive(f"{path} is not a backup of Rookery: {MANIFEST_NAME} is not its last file.")
                _require_known_member(path, member, files)
                file = tar.extractfile(member)
                if file is None:
                    raise InvalidArchive(f"{path} is not a backup of Rookery: {member.name!a} is not a regular file.")
                if member.name == MANIFEST_NAME:
                    manifest = parse_manifest(file.read())
                    continue
                digest = hashlib.sha256()
                with open_target(member.name) as sink:
                    for piece in _iter_chunks(file):
                        digest.update(piece)
                        sink.write(piece)
                        done += len(piece)
                        progress(done)
                files[member.name] = BackupFile(name=member.name, size=member.size, sha256=digest.hexdigest())
    except _ARCHIVE_ERRORS as error:
        raise InvalidArchive(f"{path} is not a backup of Rookery, or it is incomplete or damaged: {error}") from error
    if manifest is None:
        raise InvalidArchive(f"{path} is not a backup of Rookery, or it is incomplete: {MANIFEST_NAME} is missing at its end.")
    _require_matching_manifest(path, manifest, files)
    return manifest


def _require_known_member(path: Path, member: tarfile.TarInfo, files: dict[str, BackupFile]) -> None:
    """Check that *member* is a regular file with a known name, so that nothing is written elsewhere."""
    name = ascii(member.name)[:200]
    if not member.isreg() or member.issparse() or member.name not in {*_ALLOWED_NAMES, MANIFEST_NAME}:
        raise InvalidArchive(f"{path} is not a backup of Rookery: it contains {name}.")
    if member.name in files:
        raise InvalidArchive(f"{path} is not a backup of Rookery: it contains {name} twice.")
    if member.name == MANIFEST_NAME and member.size > MAX_MANIFEST_BYTES:
        raise InvalidArchive(f"{path} is not a backup of Rookery: its {MANIFEST_NAME} has {member.size:,} bytes.")


def _require_matching_manifest(path: Path, manifest: Manifest, files: dict[str, BackupFile]) -> None:
    for entry in manifest.files:
        actual = files.pop(entry.name, None)
        if actual is None:
            raise InvalidArchive(f"{path} is damaged: {entry.name} is missing.")
        if actual != entry:
            raise InvalidArchive(
                f"{path} is damaged or was changed: {entry.name} has SHA-256 {actual.sha256}, but was saved with {entry.sha256}."
            )
    if files:
        raise InvalidArchive(f"{path} was changed: its {MANIFEST_NAME} does not list {', '.join(sorted(files))}.")


@contextmanager
def _open_tar(path: Path) -> Generator[tarfile.TarFile]:
    with path.open("rb") as file:
        first = file.read(len(_ZSTD_MAGIC))
        file.seek(0)
        if first == _ZSTD_MAGIC:
            source = cast("IO[bytes]", zstandard.ZstdDecompressor().stream_reader(file, closefd=False))
        elif first.startswith(_GZIP_MAGIC):
            source = cast("IO[bytes]", gzip.GzipFile(fileobj=file, mode="rb"))
        else:
            source = cast("IO[bytes]", file)
        with tarfile.open(fileobj=source, mode="r|", errorlevel=2, tarinfo=_TarMember) as tar:
            yield tar


def _iter_chunks(file: IO[bytes]) -> Iterator[bytes]:
    while piece := file.read(_CHUNK_BYTES):
        yield piece


def _build_member(name: str, size: int, at: datetime) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.size, member.mode, member.mtime = size, _MEMBER_MODE, int(at.timestamp())
    return member
