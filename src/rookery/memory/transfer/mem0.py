"""
What mem0 writes of its memories: lists of the open-source library, its server and its platform, and OpenMemory's export.

Where a memory belongs follows from the narrowest of mem0's names: `run_id` makes it a session's, `agent_id` an agent's, else it
is the project's (`app_id`). The `user_id`, for which Rookery has no place, becomes a tag, `user:…`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import BinaryIO, cast

import orjson

from rookery.kernel.errors import RookeryError
from rookery.kernel.ids import is_uuid
from rookery.memory.models import Memory, MemoryScope
from rookery.memory.transfer.fields import LONGEST_TAG, TYPE, Fields, wrong
from rookery.memory.transfer.lines import BOM, Steps, numbered, shorter
from rookery.memory.transfer.parcels import UNPLACED, Arrived, Parcel, Refused

MAX_DOCUMENT = 64 * 1024 * 1024
"""Bytes of one JSON document, which has to be read whole and may need twenty times as much then; lines have no such bound."""

_LISTS = ("results", "memories", "data", "items")
_TEXTS = ("memory", "content", "data", "text")
_UNSEEN = {"archived", "paused"}
_CONFIDENCE = 0.8
_USER = "user:"


def read(stream: BinaryIO, steps: Steps, *, at: datetime) -> Iterator[Parcel]:
    """
    Return the memories of a JSON document, or of JSON lines.

    Args:
        at: When a memory was made that does not say so.
    """
    first = stream.readline(MAX_DOCUMENT + 1).removeprefix(BOM)
    while first and not first.strip():
        first = stream.readline(MAX_DOCUMENT + 1)
    # What is too long is not even tried: a small archive may unpack to any length.
    alone: object = None if len(first) > MAX_DOCUMENT else _parsed(first)
    if _is_entry(alone):
        yield from _of_lines([(1, first)], steps, at=at)
        yield from _of_lines(numbered(stream, steps, start=1), steps, at=at)
        return
    rest = stream.read(max(0, MAX_DOCUMENT + 1 - len(first)))
    if len(first) + len(rest) > MAX_DOCUMENT:
        why = f"is a JSON document of more than {MAX_DOCUMENT // (1024 * 1024)} MiB; JSON lines may be of any length"
        yield Parcel(where="the file", holds=Refused(why=why))
        return
    document: object = _parsed(first + rest) if rest.strip() or alone is None else alone
    entries = _listed(document)
    if entries is None:
        yield Parcel(where="the file", holds=Refused(why="is no JSON, or holds no list of memories that we know from mem0"))
        return
    steps.total = len(entries)
    yield from _of_entries(entries, steps, at=at)


def _of_lines(lines: Iterable[tuple[int, bytes | None]], steps: Steps, *, at: datetime) -> Iterator[Parcel]:
    for number, line in lines:
        entry = None if line is None else _parsed(line)
        steps.done = number
        yield from _parcel(f"line {number}", entry, at=at)


def _of_entries(entries: Sequence[object], steps: Steps, *, at: datetime) -> Iterator[Parcel]:
    for number, entry in enumerate(entries, start=1):
        steps.done = number
        yield from _parcel(f"entry {number}", entry, at=at)


def _parcel(where: str, entry: object, *, at: datetime) -> Iterator[Parcel]:
    """Return what an entry holds; nothing of one that was deleted there."""
    if not isinstance(entry, dict):
        yield Parcel(where=where, holds=Refused(why="is no JSON object"))
        return
    values = cast("dict[str, object]", entry)
    payload = values.get("payload")
    if isinstance(payload, dict):
        # As the vector store under mem0 has it.
        values = {**cast("dict[str, object]", payload), "id": values.get("id")}
    if values.get("state") == "deleted" or values.get("deleted_at"):
        return
    try:
        yield Parcel(where=where, holds=_arrived(values, at=at))
    except RookeryError as error:
        yield Parcel(where=where, holds=Refused(why=error.message))


def _arrived(values: Mapping[str, object], *, at: datetime) -> Arrived:
    row, metadata = Fields(values), _mapping(values.get("metadata"))
    content = next((value for name in _TEXTS if isinstance(value := values.get(name), str) and value.strip()), None)
    if content is None:
        raise wrong("memory", "is missing, and so are content, data and text")
    content_id = _name(values.get("id"))
    created_at = row.maybe_moment("created_at") or at
    updated_at = max(row.maybe_moment("updated_at") or created_at, created_at)
    agent_id, session_id = _name(values.get("agent_id")), _name(values.get("run_id"))
    scope = MemoryScope.PROJECT if agent_id is None else MemoryScope.AGENT
    has_id = content_id is not None and is_uuid(content_id.lower())
    is_archived = values.get("state") in _UNSEEN or bool(values.get("archived_at"))
    memory = Memory(
        id=content_id.lower() if content_id is not None and has_id else "",
        workspace_id=UNPLACED,
        org=None,
        project=_name(values.get("app_id")) or _name(values.get("app")),
        agent_id=agent_id,
        session_id=session_id,
        memory_scope=scope if session_id is None else MemoryScope.SESSION,
        type=_type(metadata),
        tags=_tags(values, metadata),
        confidence=_CONFIDENCE,
        base_confidence=_CONFIDENCE,
        source="mem0",
        content=content,
        metadata=metadata,
        expires_at=row.maybe_moment("expiration_date"),
        archived_at=(row.maybe_moment("archived_at") or updated_at) if is_archived else None,
        content_at=updated_at,
        created_at=created_at,
        updated_at=updated_at,
    )
    return Arrived(memory=memory, known_as=None if has_id else ("mem0", content_id or "", content))


def _type(metadata: Mapping[str, object]) -> str:
    said = metadata.get("type")
    if isinstance(said, str) and TYPE.fullmatch(said):
        return said
    return "procedure" if metadata.get("memory_type") == "procedural_memory" else "fact"


def _tags(values: Mapping[str, object], metadata: Mapping[str, object]) -> tuple[str, ...]:
    """Return the categories and tags, and whose it is; what is no tag of ours is left out."""
    user = _name(values.get("user_id"))
    named = [f"{_USER}{user}"] if user else []
    for found in (values.get("categories"), metadata.get("categories"), metadata.get("category"), metadata.get("tags")):
        items = cast("Sequence[object]", found) if isinstance(found, list) else [found]
        named += [item for item in items if isinstance(item, str)]
    return tuple(dict.fromkeys(tag for each in named if (tag := shorter(each.strip(), LONGEST_TAG))))


def _name(value: object) -> str | None:
    return value if isinstance(value, str) and value.strip() else None


def _mapping(value: object) -> Mapping[str, object]:
    return cast("dict[str, object]", value) if isinstance(value, dict) else {}


def _listed(document: object) -> Sequence[object] | None:
    """Return the list of memories of a document, whichever of mem0's it is."""
    if isinstance(document, dict):
        lists = cast("dict[str, object]", document)
        document = next((lists[name] for name in _LISTS if isinstance(lists.get(name), list)), None)
    return cast("list[object]", document) if isinstance(document, list) else None


def _is_entry(value: object) -> bool:
    return isinstance(value, dict) and _listed(cast("dict[str, object]", value)) is None


def _parsed(text: bytes) -> object:
    try:
        found: object = orjson.loads(text)
    except orjson.JSONDecodeError:
        return None
    return found
