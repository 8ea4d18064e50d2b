"""Files of other programs: JSON documents, JSON lines and SQLite files, recognised by their form."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import BinaryIO, cast

import orjson

from rookery.kernel.errors import RookeryError
from rookery.memory.transfer.items import BOM, ImportFormat, ImportItem, RejectedItem, field_error, iter_lines
from rookery.memory.transfer.sources.registry import find_database_source, find_document_source, find_line_source, require_readable
from rookery.memory.transfer.sources.source import MemorySource, SourceContext, SourceEntry, track
from rookery.memory.transfer.sqlite_files import ERRORS, ForeignDatabase

MAX_DOCUMENT_BYTES = 64 * 1024 * 1024
"""Maximum bytes of one JSON document. It is read as a whole and may need twenty times as much memory. JSON lines have no such limit."""

_KNOWN = (
    "it has no memories in a form that is known: a list of mem0, mcp-memory-service, Graphiti or Open WebUI, a graph of server-memory, "
    "items of LangGraph, or an agent file of Letta"
)


def read_json(stream: BinaryIO, context: SourceContext, import_format: ImportFormat) -> Iterator[ImportItem]:
    """Yield the memories of a JSON document, or of JSON lines."""
    first = stream.readline(MAX_DOCUMENT_BYTES + 1).removeprefix(BOM)
    while first and not first.strip():
        first = stream.readline(MAX_DOCUMENT_BYTES + 1)
    # A line that is too long is not parsed: a small archive may unpack to any length.
    first_value, _ = (None, "") if len(first) > MAX_DOCUMENT_BYTES else _parse_json(first)
    source = _find_line_source(first_value, import_format)
    if source is not None:
        require_readable(source, has_companion=context.companion is not None)
        yield from _read_lines(source, first, stream, context)
        return
    rest = stream.read(max(0, MAX_DOCUMENT_BYTES + 1 - len(first)))
    if len(first) + len(rest) > MAX_DOCUMENT_BYTES:
        yield _reject_file(
            f"the JSON document has more than {MAX_DOCUMENT_BYTES // (1024 * 1024)} MiB; use JSON lines, which have no limit"
        )
        return
    document, problem = _parse_json(first + rest) if rest.strip() or first_value is None else (first_value, "")
    if problem:
        yield _reject_file(f"the file is not valid JSON: {problem}")
        return
    # One object alone may be a single memory.
    match = find_document_source(document, import_format) or find_document_source([document], import_format)
    if match is None:
        yield _reject_file(_KNOWN)
        return
    source, entries = match
    try:
        require_readable(source, has_companion=context.companion is not None)
    except RookeryError as error:
        yield _reject_file(error.message.removeprefix("file: "))
        return
    context.progress.recognised, context.progress.total = source.title, len(entries)
    yield from _read(source, track(_number(entries), context), context)


def read_database(database: ForeignDatabase, context: SourceContext, import_format: ImportFormat) -> Iterator[ImportItem]:
    """
    Return an iterator over the memories of a SQLite file.

    Raises:
        ValidationFailed: It is of no known program, or of one whose memories are not in it.
    """
    source = find_database_source(database, import_format)
    require_readable(source, has_companion=context.companion is not None)
    if source.read_database is None:
        raise field_error("file", f"{source.title} cannot be read")
    context.progress.recognised = source.title
    return _guard(source.read_database(database, context))


def _guard(items: Iterator[ImportItem]) -> Iterator[ImportItem]:
    """Yield *items*; a damaged database becomes the last one."""
    try:
        yield from items
    except ERRORS as error:
        yield ImportItem(location="the file", content=RejectedItem(reason=f"reading the database failed: {error}"))


def _find_line_source(value: object, import_format: ImportFormat) -> MemorySource | None:
    """Return the importer of a first line that is an object by itself, and no document of an importer."""
    if not isinstance(value, dict):
        return None
    values = cast("dict[str, object]", value)
    return None if find_document_source(values, import_format) is not None else find_line_source(values, import_format)


def _read_lines(source: MemorySource, first: bytes, stream: BinaryIO, context: SourceContext) -> Iterator[ImportItem]:
    context.progress.recognised = f"{source.title}, as JSON lines"
    first_number = 1
    lines = iter_lines(stream, context.progress, start=first_number)
    yield from _read(source, _parse_lines(first, first_number, lines, context), context)


def _parse_lines(
    first: bytes, first_number: int, lines: Iterable[tuple[int, bytes | None]], context: SourceContext
) -> Iterator[SourceEntry]:
    context.progress.done = first_number
    yield SourceEntry(f"line {first_number}", _parse_json(first)[0])
    for number, line in lines:
        yield SourceEntry(f"line {number}", None if line is None else _parse_json(line)[0])


def _number(entries: Iterable[object]) -> Iterator[SourceEntry]:
    return (SourceEntry(f"entry {number}", entry) for number, entry in enumerate(entries, start=1))


def _read(source: MemorySource, entries: Iterable[SourceEntry], context: SourceContext) -> Iterator[ImportItem]:
    if source.read_entries is None:
        return iter([_reject_file(f"{source.title} cannot be read")])
    return source.read_entries(entries, context)


def _reject_file(reason: str) -> ImportItem:
    return ImportItem(location="the file", content=RejectedItem(reason=reason))


def _parse_json(text: bytes) -> tuple[object, str]:
    """
    Return the value, or None and what is wrong.

    Python writes NaN, and halves of letters beyond U+FFFF, which no other reader of JSON accepts. NaN is null here, and such a half is
    U+FFFD.
    """
    try:
        return cast("object", orjson.loads(text)), ""
    except orjson.JSONDecodeError as error:
        problem = f"{error.msg} at line {error.lineno}, character {error.colno}"
    try:
        document = cast("object", json.loads(text.decode(), parse_constant=lambda _: None))
        return _replace_half_letters(document), ""
    except (ValueError, RecursionError):
        return None, problem


def _replace_half_letters(value: object) -> object:
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, list):
        return [_replace_half_letters(item) for item in cast("list[object]", value)]
    if isinstance(value, dict):
        fields = cast("dict[str, object]", value)
        return {str(_replace_half_letters(name)): _replace_half_letters(item) for name, item in fields.items()}
    return value
