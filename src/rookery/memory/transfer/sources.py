"""Import sources: a file, a folder or standard input. The reader is chosen by the name or by the first bytes."""

from __future__ import annotations

import gzip
import zipfile
import zlib
from collections.abc import Generator, Iterator
from contextlib import ExitStack, contextmanager
from io import BufferedReader, RawIOBase
from pathlib import Path
from typing import BinaryIO, cast

from rookery.memory.transfer import formats, jsonl, mem0
from rookery.memory.transfer.field_reader import field_error
from rookery.memory.transfer.import_source import NOTE_SUFFIXES, ImportSource, NoteSelection
from rookery.memory.transfer.items import ImportItem, RejectedItem
from rookery.memory.transfer.line_reader import BOM, ReadProgress, iter_lines

_HEAD_BYTES = 512
_GZIP_MAGIC = b"\x1f\x8b"
_ZIP_MAGIC = b"PK\x03\x04"
_OPENMEMORY_FILES = ("memories.jsonl.gz", "memories.json")
_READ_ERRORS = (EOFError, OSError, zlib.error, zipfile.BadZipFile)


class ImportStream:
    """An `ImportReader`. A read error becomes its last item."""

    def __init__(self, progress: ReadProgress, items: Iterator[ImportItem]) -> None:
        self._progress = progress
        self._items = items

    @property
    def done(self) -> int:
        """The number of lines, entries or files read."""
        return self._progress.done

    @property
    def total(self) -> int:
        """The number of lines, entries or files; 0 if unknown."""
        return self._progress.total

    def __iter__(self) -> Iterator[ImportItem]:
        try:
            yield from self._items
        except _READ_ERRORS as error:
            reason = f"reading failed: {error or type(error).__name__}"
            yield ImportItem(location=f"after {self._progress.done}", content=RejectedItem(reason=reason))


@contextmanager
def open_source(import_source: ImportSource) -> Generator[ImportStream]:
    """
    Open an import source.

    Raises:
        ValidationFailed: It does not exist, cannot be read, or has an unknown format.
    """
    with ExitStack() as open_files:
        try:
            progress = ReadProgress()
            if import_source.path is not None and import_source.path.is_dir():
                yield ImportStream(progress, _iter_folder(import_source, import_source.path, progress))
                return
            if import_source.path is not None and _is_note(import_source, import_source.path):
                selection = NoteSelection(
                    folder=import_source.path.parent,
                    file=import_source.path,
                    import_format=import_source.import_format,
                    split_by=import_source.split_by,
                )
                yield ImportStream(progress, formats.read_notes(selection, progress))
                return
            stream = (
                open_files.enter_context(import_source.path.open("rb"))
                if import_source.path
                else _to_buffered_reader(import_source.standard_input)
            )
            if import_source.path is None:
                open_files.callback(cast("BufferedReader", stream).detach)  # otherwise closing the reader would close standard input
            source = ImportStream(progress, _iter_stream(import_source, stream, progress, open_files))
        except _READ_ERRORS as error:
            raise field_error(
                "file", f"{import_source.path} cannot be read: {error.strerror if isinstance(error, OSError) else error}"
            ) from error
        yield source


def _is_note(source: ImportSource, path: Path) -> bool:
    return source.import_format in ("markdown", "agents-md") or (source.import_format == "auto" and path.suffix.lower() in NOTE_SUFFIXES)


def _iter_stream(source: ImportSource, stream: BinaryIO, progress: ReadProgress, open_files: ExitStack) -> Iterator[ImportItem]:
    if source.import_format in ("markdown", "agents-md"):
        raise field_error("format", f"{source.import_format} cannot be read from standard input; name a file or a folder")
    head = _peek(stream)
    is_plain = True
    if head.startswith(_ZIP_MAGIC):
        archive = open_files.enter_context(zipfile.ZipFile(stream))
        member = next(
            (name for file_name in _OPENMEMORY_FILES for name in archive.namelist() if name.rpartition("/")[2] == file_name), None
        )
        if member is None:
            raise field_error("file", f"the archive has no {' or '.join(_OPENMEMORY_FILES)}; unpack it and import its files")
        stream, is_plain = _to_buffered_reader(open_files.enter_context(archive.open(member))), False
        head = _peek(stream)
    if head.startswith(_GZIP_MAGIC):
        stream, is_plain = _to_buffered_reader(open_files.enter_context(gzip.GzipFile(fileobj=stream))), False
        head = _peek(stream)
    first = head.removeprefix(BOM).lstrip()
    if first and not first.startswith((b"{", b"[")):
        raise field_error("file", "the file is neither JSON nor JSON lines; notes need a name that ends in .md, or --format markdown")
    is_rookery_export = source.import_format == "jsonl" or (
        source.import_format == "auto" and f'"{jsonl.HEADER}"'.encode() in head.split(b"\n")[0]
    )
    if not is_rookery_export:
        return mem0.read_items(stream, progress, at=source.default_time)
    if is_plain and source.path is not None and source.path.is_file():
        progress.total = _count_lines(source.path)
    return jsonl.read_items(iter_lines(stream, progress))


def _peek(stream: BinaryIO) -> bytes:
    """Return the first bytes of *stream* without consuming them."""
    return cast("BufferedReader", stream).peek(_HEAD_BYTES)[:_HEAD_BYTES]


def _to_buffered_reader(raw: object) -> BinaryIO:
    return cast("BinaryIO", BufferedReader(cast("RawIOBase", raw)))


def _count_lines(path: Path) -> int:
    with path.open("rb") as file:
        return sum(piece.count(b"\n") for piece in iter(lambda: file.read(1024 * 1024), b""))


def _iter_folder(source: ImportSource, folder: Path, progress: ReadProgress) -> Iterator[ImportItem]:
    if source.import_format in ("jsonl", "mem0"):
        raise field_error("format", f"{source.import_format} needs a file, but {folder} is a folder")
    return formats.read_notes(NoteSelection(folder=folder, import_format=source.import_format, split_by=source.split_by), progress)
