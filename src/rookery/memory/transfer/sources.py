"""What is read, and by whom: a file, a folder or the standard input, by its name or by how it begins."""

from __future__ import annotations

import gzip
import zipfile
import zlib
from collections.abc import Generator, Iterator
from contextlib import ExitStack, contextmanager
from io import BufferedReader, RawIOBase
from pathlib import Path
from typing import BinaryIO, cast

from rookery.memory.transfer import forms, jsonl, mem0
from rookery.memory.transfer.asked import NOTES, Asked, Wanted
from rookery.memory.transfer.fields import wrong
from rookery.memory.transfer.lines import BOM, Steps, numbered
from rookery.memory.transfer.parcels import Parcel, Refused

_HEAD = 512
_GZIP = b"\x1f\x8b"
_ZIP = b"PK\x03\x04"
_OPENMEMORY = ("memories.jsonl.gz", "memories.json")
_BROKEN = (EOFError, OSError, zlib.error, zipfile.BadZipFile)


class Source:
    """A `Reading`; what breaks on the way is its last parcel."""

    def __init__(self, steps: Steps, parcels: Iterator[Parcel]) -> None:
        self._steps = steps
        self._parcels = parcels

    @property
    def done(self) -> int:
        """How many lines, entries or files were read."""
        return self._steps.done

    @property
    def total(self) -> int:
        """How many there are; 0: that is not known."""
        return self._steps.total

    def __iter__(self) -> Iterator[Parcel]:
        try:
            yield from self._parcels
        except _BROKEN as error:
            why = f"cannot be read further: {error or type(error).__name__}"
            yield Parcel(where=f"after {self._steps.done}", holds=Refused(why=why))


@contextmanager
def reading(asked: Asked) -> Generator[Source]:
    """
    Open what is asked for.

    Raises:
        ValidationFailed: It is not there, cannot be read, or is of no form that we know.
    """
    with ExitStack() as open_files:
        try:
            steps = Steps()
            if asked.path is not None and asked.path.is_dir():
                yield Source(steps, _of_folder(asked, asked.path, steps))
                return
            if asked.path is not None and _is_note(asked, asked.path):
                wanted = Wanted(folder=asked.path.parent, file=asked.path, form=asked.form, by=asked.by)
                yield Source(steps, forms.notes(wanted, steps))
                return
            stream = open_files.enter_context(asked.path.open("rb")) if asked.path else _buffered(asked.standard_input)
            if asked.path is None:
                open_files.callback(cast("BufferedReader", stream).detach)  # or the end of the reading would close what was lent
            source = Source(steps, _of_stream(asked, stream, steps, open_files))
        except _BROKEN as error:
            raise wrong("file", f"{asked.path} cannot be read: {error.strerror if isinstance(error, OSError) else error}") from error
        yield source


def _is_note(asked: Asked, path: Path) -> bool:
    return asked.form in ("markdown", "agents-md") or (asked.form == "auto" and path.suffix.lower() in NOTES)


def _of_stream(asked: Asked, stream: BinaryIO, steps: Steps, open_files: ExitStack) -> Iterator[Parcel]:
    if asked.form in ("markdown", "agents-md"):
        raise wrong("format", f"{asked.form} is read from a file or a folder, not from the standard input")
    head = _head(stream)
    is_plain = True
    if head.startswith(_ZIP):
        archive = open_files.enter_context(zipfile.ZipFile(stream))
        member = next((name for wanted in _OPENMEMORY for name in archive.namelist() if name.rpartition("/")[2] == wanted), None)
        if member is None:
            raise wrong("file", f"is an archive without {' or '.join(_OPENMEMORY)}: unpack it, and import what is in it")
        stream, is_plain = _buffered(open_files.enter_context(archive.open(member))), False
        head = _head(stream)
    if head.startswith(_GZIP):
        stream, is_plain = _buffered(open_files.enter_context(gzip.GzipFile(fileobj=stream))), False
        head = _head(stream)
    first = head.removeprefix(BOM).lstrip()
    if first and not first.startswith((b"{", b"[")):
        raise wrong("file", "is neither JSON nor JSON lines; notes need a name that ends in .md, or --format markdown")
    is_ours = asked.form == "jsonl" or (asked.form == "auto" and f'"{jsonl.HEADER}"'.encode() in head.split(b"\n")[0])
    if not is_ours:
        return mem0.read(stream, steps, at=asked.at)
    if is_plain and asked.path is not None and asked.path.is_file():
        steps.total = _lines(asked.path)
    return jsonl.read(numbered(stream, steps))


def _head(stream: BinaryIO) -> bytes:
    """Return how *stream* begins, without reading on."""
    return cast("BufferedReader", stream).peek(_HEAD)[:_HEAD]


def _buffered(raw: object) -> BinaryIO:
    return cast("BinaryIO", BufferedReader(cast("RawIOBase", raw)))


def _lines(path: Path) -> int:
    with path.open("rb") as file:
        return sum(piece.count(b"\n") for piece in iter(lambda: file.read(1024 * 1024), b""))


def _of_folder(asked: Asked, folder: Path, steps: Steps) -> Iterator[Parcel]:
    if asked.form in ("jsonl", "mem0"):
        raise wrong("format", f"{asked.form} is a file, and {folder} is a folder")
    return forms.notes(Wanted(folder=folder, form=asked.form, by=asked.by), steps)
