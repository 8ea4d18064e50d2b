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

from rookery.kernel.clock import iso
from rookery.kernel.errors import RookeryError
from rookery.memory.merging import Merge
from rookery.memory.models import Tombstone
from rookery.memory.store.transfer import Kept
from rookery.memory.transfer import fields, whole
from rookery.memory.transfer.fields import Fields, wrong
from rookery.memory.transfer.lines import shorter
from rookery.memory.transfer.parcels import UNPLACED, Arrived, Parcel, Refused

HEADER = "rookery-memories"
VERSION = 1

_MEMORY, _TOMBSTONE, _MERGE, _END = "memory", "tombstone", "merge", "end"
_COUNTED = (_MEMORY, _TOMBSTONE, _MERGE)
_SHOWN = 40


class Writer:
    """Writes lines, and counts them for the last one."""

    def __init__(self) -> None:
        self._counts = Counter[str]()

    def header(self, *, at: datetime) -> bytes:
        """Return the first line."""
        return _line({"kind": HEADER, "version": VERSION, "exported_at": iso(at)})

    def memory(self, kept: Kept) -> bytes:
        """Return a memory's line."""
        self._counts[_MEMORY] += 1
        return _line({"kind": _MEMORY, **whole.written(kept), "content": kept.memory.content})

    def tombstone(self, grave: Tombstone) -> bytes:
        """Return the line of what stayed of a memory."""
        self._counts[_TOMBSTONE] += 1
        return _line(
            {
                "kind": _TOMBSTONE,
                "id": grave.id,
                "supersedes_id": grave.supersedes_id,
                "superseded_by": grave.superseded_by,
                "created_at": iso(grave.created_at),
                "ended_at": iso(grave.ended_at),
            }
        )

    def merge(self, merge: Merge) -> bytes:
        """Return the line by which a merged memory can be taken apart again."""
        self._counts[_MERGE] += 1
        return _line(
            {
                "kind": _MERGE,
                "memory_id": merge.memory_id,
                "primary_id": merge.primary_id,
                "run": merge.run,
                "seen_at": iso(merge.seen_at),
                "length": merge.length,
                "digest": merge.digest,
                "tags": merge.tags,
                "is_done": merge.is_done,
            }
        )

    def end(self) -> bytes:
        """Return the last line."""
        return _line({"kind": _END, **{name: self._counts[name] for name in _COUNTED}})


def read(lines: Iterable[tuple[int, bytes | None]]) -> Iterator[Parcel]:
    """
    Return what the numbered *lines* hold, each judged by itself; None: one too long to be ours.

    The last parcel says so if lines are missing.
    """
    seen = Counter[str]()
    is_open = False
    for number, line in lines:
        where = f"line {number}"
        values = _object(line)
        if isinstance(values, Refused):
            yield Parcel(where=where, holds=values)
            continue
        kind = values.get("kind")
        if kind == HEADER:
            if values.get("version") != VERSION:
                version = shorter(repr(values.get("version")), _SHOWN)
                why = f"is of version {version}, and this Rookery reads {VERSION}: use the one that wrote it, or a newer"
                yield Parcel(where=where, holds=Refused(why=why))
                return
            is_open, seen = True, Counter[str]()
        elif kind == _END:
            is_open = False
            lost = sum(max(0, _whole(values.get(name)) - seen[name]) for name in _COUNTED)
            if lost:
                yield Parcel(where=where, holds=Refused(why=f"{lost:,} lines that were written are not in the file"))
        else:
            seen.update(name for name in _COUNTED if name == kind)
            yield Parcel(where=where, holds=_held(values))
    if is_open:
        yield Parcel(where="the end", holds=Refused(why="the file was cut off: its last line is missing; what came before it was read"))


def _held(values: Mapping[str, object]) -> Arrived | Tombstone | Merge | Refused:
    row = Fields(values)
    try:
        match values.get("kind"):
            case "memory":
                return whole.read(row, row.text("content"))
            case "tombstone":
                return _tombstone(row)
            case "merge":
                return _merge(row)
            case kind:
                return Refused(why=f"kind: {shorter(repr(kind), _SHOWN)} is none of memory, tombstone, merge")
    except RookeryError as error:
        name = values.get("id")
        return Refused(why=error.message, name=shorter(name, _SHOWN) if isinstance(name, str) else None)


def _tombstone(row: Fields) -> Tombstone:
    return Tombstone(
        id=row.uuid("id"),
        workspace_id=UNPLACED,
        supersedes_id=row.maybe_uuid("supersedes_id"),
        superseded_by=row.maybe_uuid("superseded_by"),
        created_at=row.moment("created_at"),
        ended_at=row.moment("ended_at"),
    )


def _merge(row: Fields) -> Merge:
    digest, tags = row.text("digest"), row.texts("tags")
    if not (digest.isascii() and digest.isalnum() and len(digest) == 32):
        raise wrong("digest", "is none of ours")
    return Merge(
        memory_id=row.uuid("memory_id"),
        workspace_id=UNPLACED,
        primary_id=row.uuid("primary_id"),
        run=fields.run(row.text("run")),
        seen_at=row.moment("seen_at"),
        length=row.count("length"),
        digest=digest,
        tags=tags,
        is_done=row.flag("is_done"),
    )


def _object(line: bytes | None) -> Mapping[str, object] | Refused:
    if line is None:
        return Refused(why="is longer than any memory")
    try:
        found: object = orjson.loads(line)
    except orjson.JSONDecodeError as error:
        return Refused(why=f"is no JSON: {error.msg} at character {error.colno}")
    return cast("dict[str, object]", found) if isinstance(found, dict) else Refused(why="is no JSON object")


def _line(values: Mapping[str, object]) -> bytes:
    return orjson.dumps(values, option=orjson.OPT_APPEND_NEWLINE)


def _whole(value: object) -> int:
    return value if isinstance(value, int) else 0
