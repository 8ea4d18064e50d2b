"""
Import of mem0's memories: lists of the open-source library, its server and its platform, and OpenMemory's export.

The scope follows from mem0's narrowest id: `run_id` gives scope session, `agent_id` scope agent, otherwise scope project (`app_id`).
The `user_id` has no field in Rookery and becomes a tag, `user:…`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import BinaryIO, cast

import orjson

from rookery.kernel.errors import RookeryError
from rookery.kernel.ids import is_uuid
from rookery.memory.models import MemoryScope
from rookery.memory.transfer.items import (
    BOM,
    MAX_TAG_CHARS,
    TYPE_PATTERN,
    FieldReader,
    ImportedMemory,
    ImportItem,
    ReadProgress,
    RejectedItem,
    field_error,
    iter_lines,
    new_memory,
    truncate,
)

MAX_DOCUMENT_BYTES = 64 * 1024 * 1024
"""Maximum bytes of one JSON document. It is read as a whole and may need twenty times as much memory. JSON lines have no such limit."""

_LIST_FIELDS = ("results", "memories", "data", "items")
_TEXT_FIELDS = ("memory", "content", "data", "text")
_ARCHIVED_STATES = {"archived", "paused"}
_CONFIDENCE = 0.8
_USER_TAG_PREFIX = "user:"


def read_items(stream: BinaryIO, progress: ReadProgress, *, at: datetime) -> Iterator[ImportItem]:
    """
    Yield the memories of a JSON document, or of JSON lines.

    Args:
        at: The creation time of memories that have none.
    """
    first = stream.readline(MAX_DOCUMENT_BYTES + 1).removeprefix(BOM)
    while first and not first.strip():
        first = stream.readline(MAX_DOCUMENT_BYTES + 1)
    # A line that is too long is not parsed: a small archive may unpack to any length.
    first_value: object = None if len(first) > MAX_DOCUMENT_BYTES else _parse_json(first)
    if _is_entry(first_value):
        yield from _iter_line_items([(1, first)], progress, at=at)
        yield from _iter_line_items(iter_lines(stream, progress, start=1), progress, at=at)
        return
    rest = stream.read(max(0, MAX_DOCUMENT_BYTES + 1 - len(first)))
    if len(first) + len(rest) > MAX_DOCUMENT_BYTES:
        reason = f"the JSON document has more than {MAX_DOCUMENT_BYTES // (1024 * 1024)} MiB; use JSON lines, which have no limit"
        yield ImportItem(location="the file", content=RejectedItem(reason=reason))
        return
    document: object = _parse_json(first + rest) if rest.strip() or first_value is None else first_value
    entries = _find_memories(document)
    if entries is None:
        yield ImportItem(
            location="the file", content=RejectedItem(reason="the file is not valid JSON, or has no list of memories in a format of mem0")
        )
        return
    progress.total = len(entries)
    for number, entry in enumerate(entries, start=1):
        progress.done = number
        yield from _iter_item(f"entry {number}", entry, at=at)


def _iter_line_items(lines: Iterable[tuple[int, bytes | None]], progress: ReadProgress, *, at: datetime) -> Iterator[ImportItem]:
    for number, line in lines:
        entry = None if line is None else _parse_json(line)
        progress.done = number
        yield from _iter_item(f"line {number}", entry, at=at)


def _iter_item(location: str, entry: object, *, at: datetime) -> Iterator[ImportItem]:
    """Yield the memory of an entry; nothing if it is marked as deleted."""
    if not isinstance(entry, dict):
        yield ImportItem(location=location, content=RejectedItem(reason="the entry is not a JSON object"))
        return
    values = cast("dict[str, object]", entry)
    payload = values.get("payload")
    if isinstance(payload, dict):
        # The form of mem0's vector store.
        values = {**cast("dict[str, object]", payload), "id": values.get("id")}
    if values.get("state") == "deleted" or values.get("deleted_at"):
        return
    try:
        yield ImportItem(location=location, content=_parse_memory(values, at=at))
    except RookeryError as error:
        yield ImportItem(location=location, content=RejectedItem(reason=error.message))


def _parse_memory(values: Mapping[str, object], *, at: datetime) -> ImportedMemory:
    row, metadata = FieldReader(values), _to_mapping(values.get("metadata"))
    content = next((value for name in _TEXT_FIELDS if isinstance(value := values.get(name), str) and value.strip()), None)
    if content is None:
        raise field_error("memory", "is missing; a memory needs one of memory, content, data or text")
    content_id = _to_name(values.get("id"))
    created_at = row.maybe_moment("created_at") or at
    updated_at = max(row.maybe_moment("updated_at") or created_at, created_at)
    agent_id, session_id = _to_name(values.get("agent_id")), _to_name(values.get("run_id"))
    scope = MemoryScope.PROJECT if agent_id is None else MemoryScope.AGENT
    has_id = content_id is not None and is_uuid(content_id.lower())
    is_archived = values.get("state") in _ARCHIVED_STATES or bool(values.get("archived_at"))
    memory = new_memory(
        id=content_id.lower() if content_id is not None and has_id else "",
        project=_to_name(values.get("app_id")) or _to_name(values.get("app")),
        agent_id=agent_id,
        session_id=session_id,
        memory_scope=scope if session_id is None else MemoryScope.SESSION,
        type=_parse_type(metadata),
        tags=_parse_tags(values, metadata),
        confidence=_CONFIDENCE,
        source="mem0",
        content=content,
        metadata=metadata,
        expires_at=row.maybe_moment("expiration_date"),
        archived_at=(row.maybe_moment("archived_at") or updated_at) if is_archived else None,
        at=updated_at,
        created_at=created_at,
    )
    return ImportedMemory(memory=memory, identity=None if has_id else ("mem0", content_id or "", content))


def _parse_type(metadata: Mapping[str, object]) -> str:
    type_name = metadata.get("type")
    if isinstance(type_name, str) and TYPE_PATTERN.fullmatch(type_name):
        return type_name
    return "procedure" if metadata.get("memory_type") == "procedural_memory" else "fact"


def _parse_tags(values: Mapping[str, object], metadata: Mapping[str, object]) -> tuple[str, ...]:
    """Return the categories, tags and user as tags. Values that are not strings are left out."""
    user = _to_name(values.get("user_id"))
    names = [f"{_USER_TAG_PREFIX}{user}"] if user else []
    for value in (values.get("categories"), metadata.get("categories"), metadata.get("category"), metadata.get("tags")):
        items = cast("Sequence[object]", value) if isinstance(value, list) else [value]
        names += [item for item in items if isinstance(item, str)]
    return tuple(dict.fromkeys(tag for name in names if (tag := truncate(name.strip(), MAX_TAG_CHARS))))


def _to_name(value: object) -> str | None:
    return value if isinstance(value, str) and value.strip() else None


def _to_mapping(value: object) -> Mapping[str, object]:
    return cast("dict[str, object]", value) if isinstance(value, dict) else {}


def _find_memories(document: object) -> Sequence[object] | None:
    """Return the list of memories of a document in one of mem0's formats."""
    if isinstance(document, dict):
        lists = cast("dict[str, object]", document)
        document = next((lists[name] for name in _LIST_FIELDS if isinstance(lists.get(name), list)), None)
    return cast("list[object]", document) if isinstance(document, list) else None


def _is_entry(value: object) -> bool:
    return isinstance(value, dict) and _find_memories(cast("dict[str, object]", value)) is None


def _parse_json(text: bytes) -> object:
    try:
        document: object = orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
    return document
