"""
The formats of imports and exports. The reader of a file, a folder or standard input is chosen by the name or by the first bytes.

The libraries of notes take a sixth of a second to import, so they are imported on first use.
"""

from __future__ import annotations

import gzip
import zipfile
import zlib
from collections.abc import Generator, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from io import BufferedReader, BytesIO, RawIOBase
from pathlib import Path
from typing import BinaryIO, cast

from rookery.memory.transfer import jsonl
from rookery.memory.transfer.exporting import ExportDestination
from rookery.memory.transfer.foreign_files import MAX_DOCUMENT_BYTES, read_database, read_json
from rookery.memory.transfer.items import (
    BOM,
    UTF_16_MARKS,
    ImportFormat,
    ImportItem,
    NoteSplit,
    ReadProgress,
    RejectedItem,
    field_error,
    iter_lines,
)
from rookery.memory.transfer.sources.source import SourceContext
from rookery.memory.transfer.sqlite_files import ERRORS as SQLITE_ERRORS
from rookery.memory.transfer.sqlite_files import MAGIC as SQLITE_MAGIC
from rookery.memory.transfer.sqlite_files import open_sqlite

_NOTE_FORMATS = ("markdown", "agents-md", "claude-code", "basic-memory")
_NOTE_SUFFIXES = (".md", ".markdown")
_HEAD_BYTES = 512
_GZIP_MAGIC = b"\x1f\x8b"
_ZIP_MAGIC = b"PK\x03\x04"
_OPENMEMORY_FILES = ("memories.jsonl.gz", "memories.json")
_READ_ERRORS = (EOFError, OSError, zlib.error, zipfile.BadZipFile)


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportSource:
    """
    The source of an import.

    Attributes:
        path: A file or a folder; None for *standard_input*.
        split_by: One memory per note, or one per section.
        default_time: The creation time of memories of standard input that have none. In a file, it is the file's last change.
        timezone: The zone of times that have none; None for the one that the program is known to write.
        companion: A second file of the same program, with what the first one lacks.
    """

    path: Path | None
    standard_input: BinaryIO
    import_format: ImportFormat = "auto"
    split_by: NoteSplit = "note"
    default_time: datetime
    timezone: tzinfo | None = None
    companion: Path | None = None


@dataclass(frozen=True, slots=True)
class ImportStream:
    """An `ImportReader`. A read error becomes its last item."""

    progress: ReadProgress
    items: Iterator[ImportItem]

    def __iter__(self) -> Iterator[ImportItem]:
        try:
            yield from self.items
        except _READ_ERRORS as error:
            reason = f"reading failed: {error or type(error).__name__}"
            yield ImportItem(location=f"after {self.progress.done}", content=RejectedItem(reason=reason))


def create_note_folder(path: Path) -> ExportDestination:
    """Return an export destination that writes notes into a new folder."""
    from rookery.memory.transfer import notes

    return notes.NoteFolder(path)


def _read_notes(source: ImportSource, folder: Path, progress: ReadProgress, *, file: Path | None = None) -> Iterator[ImportItem]:
    from rookery.memory.transfer import notes

    selection = notes.NoteSelection(
        folder=folder,
        file=file,
        import_format=source.import_format,
        split_by=source.split_by,
        timezone=source.timezone,
        companion=source.companion,
    )
    return notes.read_items(selection, progress)


@contextmanager
def open_source(import_source: ImportSource) -> Generator[ImportStream]:
    """
    Open an import source.

    Raises:
        ValidationFailed: It does not exist, cannot be read, or has an unknown format.
    """
    path = import_source.path
    with ExitStack() as open_files:
        try:
            progress = ReadProgress()
            if path is not None and path.is_dir():
                items = _iter_folder(import_source, path, progress)
            elif path is not None and _is_note(import_source, path):
                items = _read_notes(import_source, path.parent, progress, file=path)
            elif path is not None and _is_sqlite(path):
                database = open_files.enter_context(open_sqlite(path))
                items = read_database(database, _build_context(import_source, progress), import_source.import_format)
            elif path is not None:
                items = _iter_stream(import_source, open_files.enter_context(path.open("rb")), progress, open_files)
            else:
                stream = _to_buffered_reader(import_source.standard_input)
                open_files.callback(cast("BufferedReader", stream).detach)  # otherwise closing the reader would close standard input
                items = _iter_stream(import_source, stream, progress, open_files)
        except _READ_ERRORS as error:
            raise field_error("file", f"{path} cannot be read: {error.strerror if isinstance(error, OSError) else error}") from error
        except SQLITE_ERRORS as error:
            raise field_error("file", f"{path} cannot be read as a SQLite file: {error}") from error
        yield ImportStream(progress, items)


def _is_note(source: ImportSource, path: Path) -> bool:
    return source.import_format in _NOTE_FORMATS or (source.import_format == "auto" and path.suffix.lower() in _NOTE_SUFFIXES)


def _is_sqlite(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(len(SQLITE_MAGIC)) == SQLITE_MAGIC


def _build_context(source: ImportSource, progress: ReadProgress) -> SourceContext:
    path = source.path
    is_file = path is not None and path.is_file()
    return SourceContext(
        progress=progress,
        file_name="standard input" if path is None else path.name,
        default_time=datetime.fromtimestamp(path.stat().st_mtime, tz=UTC) if path is not None and is_file else source.default_time,
        timezone=source.timezone,
        companion=source.companion,
    )


def _iter_stream(source: ImportSource, stream: BinaryIO, progress: ReadProgress, open_files: ExitStack) -> Iterator[ImportItem]:
    if source.import_format in _NOTE_FORMATS:
        raise field_error("from", f"{source.import_format} cannot be read from standard input; name a file or a folder")
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
    if head.startswith(UTF_16_MARKS):
        stream, is_plain = _decode_utf_16(stream), False
        head = _peek(stream)
    first = head.removeprefix(BOM).lstrip()
    if first and not first.startswith((b"{", b"[")):
        if head.startswith(SQLITE_MAGIC):
            raise field_error("file", "a SQLite file cannot be read from standard input or an archive; name the unpacked file")
        raise field_error(
            "file", "the file is neither JSON, JSON lines nor a SQLite file; notes need a name that ends in .md, or --from markdown"
        )
    is_rookery_export = source.import_format == "jsonl" or (
        source.import_format == "auto" and f'"{jsonl.HEADER}"'.encode() in head.split(b"\n")[0]
    )
    if not is_rookery_export:
        return read_json(stream, _build_context(source, progress), source.import_format)
    if is_plain and source.path is not None and source.path.is_file():
        progress.total = _count_lines(source.path)
    return jsonl.read_items(iter_lines(stream, progress))


def _peek(stream: BinaryIO) -> bytes:
    """Return the first bytes of *stream* without consuming them."""
    return cast("BufferedReader", stream).peek(_HEAD_BYTES)[:_HEAD_BYTES]


def _decode_utf_16(stream: BinaryIO) -> BinaryIO:
    """Return a document in UTF-16, which a redirection of Windows PowerShell writes, in UTF-8."""
    content = stream.read(MAX_DOCUMENT_BYTES + 1)
    if len(content) > MAX_DOCUMENT_BYTES:
        raise field_error("file", f"it is in UTF-16 and has more than {MAX_DOCUMENT_BYTES // (1024 * 1024)} MiB; convert it to UTF-8")
    return _to_buffered_reader(BytesIO(content.decode("utf-16", errors="replace").encode(errors="replace")))


def _to_buffered_reader(raw: object) -> BinaryIO:
    return cast("BinaryIO", BufferedReader(cast("RawIOBase", raw)))


def _count_lines(path: Path) -> int:
    with path.open("rb") as file:
        return sum(piece.count(b"\n") for piece in iter(lambda: file.read(1024 * 1024), b""))


def _iter_folder(source: ImportSource, folder: Path, progress: ReadProgress) -> Iterator[ImportItem]:
    if source.import_format not in ("auto", *_NOTE_FORMATS):
        raise field_error("from", f"{source.import_format} needs a file, but {folder} is a folder")
    return _read_notes(source, folder, progress)
