"""
Our own form of moved memories: JSON, a line a thing, UTF-8.

First a line that says what it is, then each memory, what stayed of others, what was merged, and last a line with how many
there were: a file that was cut off is told from a whole one. Vectors and words are not in it: they are made anew.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import cast

import orjson

from rookery.kernel.clock import format_iso
from rookery.kernel.errors import RookeryError
from rookery.memory.merging import Merge
from rookery.memory.models import Tombstone
from rookery.memory.store.transfer import TransferRecord
from rookery.memory.transfer import field_reader, full_format
from rookery.memory.transfer.field_reader import FieldReader, field_error
from rookery.memory.transfer.items import NO_WORKSPACE_ID, ImportedMemory, ImportItem, RejectedItem
from rookery.memory.transfer.line_reader import truncate

HEADER = "rookery-memories"
VERSION = 1

_MEMORY, _TOMBSTONE, _MERGE, _END = "memory", "tombstone", "merge", "end"
_COUNTED_KINDS = (_MEMORY, _TOMBSTONE, _MERGE)
_MAX_SHOWN_CHARS = 40


class JsonlWriter:
    """Writes lines, and counts them for the last one."""

    def __init__(self) -> None:
        self._counts = Counter[str]()

    def header_line(self, *, at: datetime) -> bytes:
        """Return the first line."""
        return _to_line({"kind": HEADER, "version": VERSION, "exported_at": format_iso(at)})

    def memory_line(self, record: TransferRecord) -> bytes:
        """Return a memory's line."""
        self._counts[_MEMORY] += 1
        return _to_line({"kind": _MEMORY, **full_format.to_fields(record), "content": record.memory.content})

    def tombstone_line(self, tombstone: Tombstone) -> bytes:
        """Return the line of what stayed of a memory."""
        self._counts[_TOMBSTONE] += 1
        return _to_line(
            {
                "kind": _TOMBSTONE,
                "id": tombstone.id,
                "supersedes_id": tombstone.supersedes_id,
                "superseded_by": tombstone.superseded_by,
                "created_at": format_iso(tombstone.created_at),
                "ended_at": format_iso(tombstone.ended_at),
            }
        )

    def merge_line(self, merge: Merge) -> bytes:
        """Return the line by which a merged memory can be taken apart again."""
        self._counts[_MERGE] += 1
        return _to_line(
            {
                "kind": _MERGE,
                "memory_id": merge.memory_id,
                "primary_id": merge.primary_id,
                "run": merge.run,
                "seen_at": format_iso(merge.seen_at),
                "length": merge.length,
                "digest": merge.digest,
                "tags": merge.tags,
                "is_done": merge.is_done,
            }
        )

    def end_line(self) -> bytes:
        """Return the last line."""
        return _to_line({"kind": _END, **{name: self._counts[name] for name in _COUNTED_KINDS}})


def read_items(lines: Iterable[tuple[int, bytes | None]]) -> Iterator[ImportItem]:
    """
    Return what the numbered *lines* hold, each judged by itself; None: one too long to be ours.

    The last parcel says so if lines are missing.
    """
    seen = Counter[str]()
    is_open = False
    for number, line in lines:
        where = f"line {number}"
        values = _parse_object(line)
        if isinstance(values, RejectedItem):
            yield ImportItem(location=where, content=values)
            continue
        kind = values.get("kind")
        if kind == HEADER:
            if values.get("version") != VERSION:
                version = truncate(repr(values.get("version")), _MAX_SHOWN_CHARS)
                why = f"is of version {version}, and this Rookery reads {VERSION}: use the one that wrote it, or a newer"
                yield ImportItem(location=where, content=RejectedItem(reason=why))
                return
            is_open, seen = True, Counter[str]()
        elif kind == _END:
            is_open = False
            lost = sum(max(0, _to_count(values.get(name)) - seen[name]) for name in _COUNTED_KINDS)
            if lost:
                yield ImportItem(location=where, content=RejectedItem(reason=f"{lost:,} lines that were written are not in the file"))
        else:
            seen.update(name for name in _COUNTED_KINDS if name == kind)
            yield ImportItem(location=where, content=_parse_content(values))
    if is_open:
        yield ImportItem(
            location="the end", content=RejectedItem(reason="the file was cut off: its last line is missing; what came before it was read")
        )


def _parse_content(values: Mapping[str, object]) -> ImportedMemory | Tombstone | Merge | RejectedItem:
    row = FieldReader(values)
    try:
        match values.get("kind"):
            case "memory":
                return full_format.from_fields(row, row.text("content"))
            case "tombstone":
                return _parse_tombstone(row)
            case "merge":
                return _parse_merge(row)
            case kind:
                return RejectedItem(reason=f"kind: {truncate(repr(kind), _MAX_SHOWN_CHARS)} is none of memory, tombstone, merge")
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
        raise field_error("digest", "is none of ours")
    return Merge(
        memory_id=row.uuid("memory_id"),
        workspace_id=NO_WORKSPACE_ID,
        primary_id=row.uuid("primary_id"),
        run=field_reader.validate_run(row.text("run")),
        seen_at=row.moment("seen_at"),
        length=row.count("length"),
        digest=digest,
        tags=tags,
        is_done=row.flag("is_done"),
    )


def _parse_object(line: bytes | None) -> Mapping[str, object] | RejectedItem:
    if line is None:
        return RejectedItem(reason="is longer than any memory")
    try:
        found: object = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        return RejectedItem(reason=f"is no JSON: {error.msg} at character {error.colno}")
    return cast("dict[str, object]", found) if isinstance(found, dict) else RejectedItem(reason="is no JSON object")


def _to_line(values: Mapping[str, object]) -> bytes:
    return orjson.dumps(values, option=orjson.OPT_APPEND_NEWLINE)


def _to_count(value: object) -> int:
    return value if isinstance(value, int) else 0
