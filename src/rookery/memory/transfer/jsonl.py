"""
Rookery's export format: JSON lines in UTF-8.

The first line is a header. Then follow memories, tombstones and merges. The last line has their counts, so that a truncated file is
detected. Vectors and full-text data are not included; an import builds them again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import fields
from datetime import datetime
from typing import BinaryIO, cast

import orjson

from rookery.kernel.clock import Clock, format_iso
from rookery.kernel.errors import RookeryError
from rookery.kernel.sentences import format_count
from rookery.memory.merging import Merge
from rookery.memory.models import EXPORTED_FIELDS, Tombstone, read_fields
from rookery.memory.store.transfer import TransferRecord
from rookery.memory.transfer.items import (
    NO_WORKSPACE_ID,
    FieldReader,
    ImportedMemory,
    ImportItem,
    RejectedItem,
    field_error,
    from_fields,
    truncate,
    validate_run,
)

HEADER = "rookery-memories"
VERSION = 1

_MEMORY, _TOMBSTONE, _MERGE, _END = "memory", "tombstone", "merge", "end"
_COUNTED_KINDS = (_MEMORY, _TOMBSTONE, _MERGE)
_MAX_SHOWN_CHARS = 40
_TOMBSTONE_FIELDS, _MERGE_FIELDS = (
    [column.name for column in fields(model) if column.name != "workspace_id"] for model in (Tombstone, Merge)
)


class JsonlDestination:
    """An `ExportDestination` that writes JSON lines to a stream, and counts them for the last line."""

    def __init__(self, stream: BinaryIO, clock: Clock) -> None:
        self._stream = stream
        self._clock = clock
        self._counts = Counter[str]()

    def write_header(self) -> None:
        self._write(HEADER, {"version": VERSION, "exported_at": format_iso(self._clock())})

    def write_memory(self, record: TransferRecord) -> None:
        values = read_fields(record.memory, EXPORTED_FIELDS)
        self._write(_MEMORY, {**values, "recalled_at": record.recalled_at, "content": record.memory.content})

    def write_tombstone(self, tombstone: Tombstone) -> None:
        self._write(_TOMBSTONE, read_fields(tombstone, _TOMBSTONE_FIELDS))

    def write_merge(self, merge: Merge) -> None:
        """Write a merge, by which the merge can be reverted."""
        self._write(_MERGE, read_fields(merge, _MERGE_FIELDS))

    def write_end(self) -> None:
        self._write(_END, {name: self._counts[name] for name in _COUNTED_KINDS})

    def _write(self, kind: str, values: Mapping[str, object]) -> None:
        self._counts[kind] += 1
        options = orjson.OPT_APPEND_NEWLINE | orjson.OPT_PASSTHROUGH_DATETIME
        self._stream.write(orjson.dumps({"kind": kind, **values}, default=_to_text, option=options))


def _to_text(value: object) -> str:
    if isinstance(value, datetime):
        return format_iso(value)
    raise TypeError(type(value).__name__)


def read_items(lines: Iterable[tuple[int, bytes | None]]) -> Iterator[ImportItem]:
    """
    Yield the items of the numbered *lines*; None stands for a line that was too long. Each line is checked on its own.

    If lines are missing, the last item reports it.
    """
    read_counts = Counter[str]()
    is_open = False
    for number, line in lines:
        location = f"line {number}"
        values = _parse_object(line)
        if isinstance(values, RejectedItem):
            yield ImportItem(location=location, content=values)
            continue
        kind = values.get("kind")
        if kind == HEADER:
            if values.get("version") != VERSION:
                version = truncate(repr(values.get("version")), _MAX_SHOWN_CHARS)
                reason = (
                    f"the file has format version {version}, and this Rookery reads {VERSION}; use the Rookery that wrote it or a newer one"
                )
                yield ImportItem(location=location, content=RejectedItem(reason=reason))
                return
            is_open, read_counts = True, Counter[str]()
        elif kind == _END:
            is_open = False
            missing = sum(max(0, _to_count(values.get(name)) - read_counts[name]) for name in _COUNTED_KINDS)
            if missing:
                yield ImportItem(
                    location=location, content=RejectedItem(reason=f"{format_count(missing, 'line is', 'lines are')} missing from the file")
                )
        else:
            read_counts.update(name for name in _COUNTED_KINDS if name == kind)
            yield ImportItem(location=location, content=_parse_content(values))
    if is_open:
        yield ImportItem(
            location="the end",
            content=RejectedItem(reason="the file is truncated: its last line is missing; the lines before it were read"),
        )


def _parse_content(values: Mapping[str, object]) -> ImportedMemory | Tombstone | Merge | RejectedItem:
    row = FieldReader(values)
    try:
        match values.get("kind"):
            case "memory":
                return from_fields(row, row.text("content"))
            case "tombstone":
                return _parse_tombstone(row)
            case "merge":
                return _parse_merge(row)
            case kind:
                return RejectedItem(reason=f"kind: {truncate(repr(kind), _MAX_SHOWN_CHARS)} is invalid; use memory, tombstone or merge")
    except RookeryError as error:
        name = values.get("id")
        return RejectedItem(reason=error.message, name=truncate(name, _MAX_SHOWN_CHARS) if isinstance(name, str) else None)


def _parse_tombstone(row: FieldReader) -> Tombstone:
    return Tombstone(
        id=row.uuid("id"),
        workspace_id=NO_WORKSPACE_ID,
        supersedes_id=row.maybe_uuid("supersedes_id"),
        superseded_by=row.maybe_uuid("superseded_by"),
        created_at=row.moment("created_at"),
        ended_at=row.moment("ended_at"),
    )


def _parse_merge(row: FieldReader) -> Merge:
    digest, tags = row.text("digest"), row.texts("tags")
    if not (digest.isascii() and digest.isalnum() and len(digest) == 32):
        raise field_error("digest", "must have 32 hexadecimal digits")
    return Merge(
        memory_id=row.uuid("memory_id"),
        workspace_id=NO_WORKSPACE_ID,
        primary_id=row.uuid("primary_id"),
        run=validate_run(row.text("run")),
        seen_at=row.moment("seen_at"),
        length=row.count("length"),
        digest=digest,
        tags=tags,
        is_done=row.flag("is_done"),
    )


def _parse_object(line: bytes | None) -> Mapping[str, object] | RejectedItem:
    if line is None:
        return RejectedItem(reason="the line is too long for a memory")
    try:
        value: object = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        return RejectedItem(reason=f"invalid JSON: {error.msg} at character {error.colno}")
    return cast("dict[str, object]", value) if isinstance(value, dict) else RejectedItem(reason="the line is not a JSON object")


def _to_count(value: object) -> int:
    return value if isinstance(value, int) else 0
