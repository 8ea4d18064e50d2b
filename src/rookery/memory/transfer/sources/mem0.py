"""
Memories of mem0: lists of the open-source library, its server and its platform, rows of its vector stores, and OpenMemory's export.

The scope follows from mem0's narrowest id: `run_id` gives scope session, `agent_id` scope agent, otherwise scope project (`app_id`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import cast

from rookery.kernel.ids import is_uuid
from rookery.memory.models import MemoryScope
from rookery.memory.transfer.items import TYPE_PATTERN, ImportedMemory, ImportItem, field_error
from rookery.memory.transfer.lenient import LenientReader
from rookery.memory.transfer.sources.source import (
    USER_TAG_PREFIX,
    ForeignMemory,
    MemorySource,
    SourceContext,
    SourceEntry,
    new_foreign_memory,
    read_each,
    to_imported,
    to_mapping,
    to_objects,
    with_id,
)
from rookery.memory.transfer.sqlite_files import ForeignDatabase, open_companion

NAME = "mem0"

GET_ALL = 'get_all(filters={"user_id": USER}, top_k=1000000, show_expired=True)'
"""The call that returns all memories of a user. Without `top_k` it returns 20, and older versions 100."""

_LIST_FIELDS = ("results", "memories", "data", "items")
_TEXT_FIELDS = ("memory", "content", "data", "text")
_ARCHIVED_STATES = {"archived", "paused"}
_DEFAULT_LIMITS = (20, 100)

_OWN_PAYLOAD_FIELDS = frozenset(
    "data hash created_at updated_at user_id agent_id run_id app_id actor_id role expiration_date text_lemmatized memory_type id memory "
    "metadata categories state".split()
)
"""The fields of a vector store's payload that are mem0's own. All others are the author's metadata."""


def _find_entries(document: object) -> Sequence[object] | None:
    """Return the list of memories of a document in one of mem0's formats."""
    if isinstance(document, dict):
        values = cast("dict[str, object]", document)
        document = next((values[name] for name in _LIST_FIELDS if isinstance(values.get(name), list)), None)
        points = to_mapping(values.get("result")).get("points")
        document = points if document is None else document
    items = to_objects(document)
    return items if items is not None and (not items or any(_is_memory(item) for item in items)) else None


def _is_line(values: Mapping[str, object]) -> bool:
    return _find_entries(values) is None and _is_memory(values)


def _is_memory(value: object) -> bool:
    values = to_mapping(value)
    return isinstance(values.get("payload"), dict) or any(name in values for name in _TEXT_FIELDS)


def _read_entries(entries: Iterable[SourceEntry], context: SourceContext) -> Iterator[ImportItem]:
    versions = _read_versions(context)

    def parse(_: LenientReader, values: Mapping[str, object], location: str) -> Iterable[ImportedMemory]:
        return _parse(_flatten(values), context, location, versions)

    count = 0
    for count, entry in enumerate(entries, start=1):  # noqa: B007 - counted for the warning after the loop
        yield from read_each([entry], context, parse)
    if count in _DEFAULT_LIMITS:
        context.progress.warn(
            context.file_name,
            f"it has exactly {count} memories, the number that mem0's get_all returns by default; to get all, call {GET_ALL}",
        )


def _flatten(values: Mapping[str, object]) -> Mapping[str, object]:
    """Return a row of a vector store in the form of `get_all`: there, the author's metadata stands beside mem0's own fields."""
    payload = values.get("payload")
    if not isinstance(payload, dict):
        return values
    fields = cast("dict[str, object]", payload)
    own = {name: value for name, value in fields.items() if name in _OWN_PAYLOAD_FIELDS}
    others = {name: value for name, value in fields.items() if name not in _OWN_PAYLOAD_FIELDS}
    memory_type = {"memory_type": fields["memory_type"]} if fields.get("memory_type") else {}
    return {**own, "id": values.get("id"), "metadata": {**to_mapping(fields.get("metadata")), **others, **memory_type}}


def _parse(values: Mapping[str, object], context: SourceContext, location: str, versions: _Versions) -> Iterator[ImportedMemory]:
    """Yield the older versions of a memory, and the memory. Yield nothing if it is marked as deleted."""
    if values.get("state") == "deleted" or values.get("deleted_at"):
        return
    row, warn = context.reader(values, location), context.warn_at(location)
    content = next((value for name in _TEXT_FIELDS if isinstance(value := values.get(name), str) and value.strip()), None)
    if content is None:
        raise field_error("memory", "is missing; a memory needs one of memory, content, data or text")
    metadata = row.maybe_object("metadata")
    foreign_id = row.name("id")
    changed_at = row.maybe_moment("updated_at")
    created_at = row.maybe_moment("created_at") or changed_at or context.default_time
    updated_at = max(changed_at or created_at, created_at)
    agent_id, session_id = row.name("agent_id"), row.name("run_id")
    scope = MemoryScope.PROJECT if agent_id is None else MemoryScope.AGENT
    is_archived = values.get("state") in _ARCHIVED_STATES or bool(values.get("archived_at"))
    memory = new_foreign_memory(
        id=foreign_id.lower() if foreign_id is not None and is_uuid(foreign_id.lower()) else "",
        project=row.name("app_id") or row.name("app"),
        agent_id=agent_id,
        session_id=session_id,
        memory_scope=scope if session_id is None else MemoryScope.SESSION,
        type=_read_type(metadata),
        tags=_read_tags(row, metadata, context, location),
        source=NAME,
        content=content,
        metadata=with_id({**metadata, **_read_role(row)}, "mem0_id", foreign_id),
        expires_at=_read_expiry(row),
        archived_at=(row.maybe_moment("archived_at") or updated_at) if is_archived else None,
        at=updated_at,
        created_at=created_at,
    )
    previous: tuple[str, ...] | None = None
    for number, (text, written_at, ended_at) in enumerate(versions.get(foreign_id or "", ())):
        identity = ("version", foreign_id or "", str(number), text)
        old = replace(
            memory,
            id="",
            content=text,
            created_at=written_at,
            updated_at=written_at,
            content_at=written_at,
            archived_at=ended_at,
            expires_at=None,
        )
        yield to_imported(ForeignMemory(memory=old, default_type="fact", identity=identity, supersedes=previous), NAME, warn)
        previous = identity
    identity = (foreign_id or "", content)
    yield to_imported(ForeignMemory(memory=memory, default_type="fact", identity=identity, supersedes=previous), NAME, warn)


def _read_expiry(row: LenientReader) -> datetime | None:
    """Return the time of expiry. A date without a time is the last day, in UTC."""
    moment = row.maybe_moment("expiration_date")
    text = str(row.value("expiration_date") or "").strip()
    return moment + timedelta(days=1) if moment is not None and len(text) == len("2026-01-31") and text.count("-") == 2 else moment


def _read_role(row: LenientReader) -> Mapping[str, object]:
    """Return the role as metadata, if the memory is not a user's."""
    role = row.name("role")
    return {"role": role} if role and role != "user" else {}


def _read_type(metadata: Mapping[str, object]) -> str:
    type_name = metadata.get("type")
    if isinstance(type_name, str) and TYPE_PATTERN.fullmatch(type_name.lower()):
        return type_name.lower()
    return "procedure" if metadata.get("memory_type") == "procedural_memory" else "fact"


def _read_tags(row: LenientReader, metadata: Mapping[str, object], context: SourceContext, location: str) -> tuple[str, ...]:
    """Return the user, the categories and the tags."""
    fields = context.reader(metadata, location)
    user = row.name("user_id")
    return (
        *([f"{USER_TAG_PREFIX}{user}"] if user else []),
        *row.names("categories"),
        *fields.names("categories"),
        *fields.names("category"),
        *fields.names("tags"),
    )


_Versions = Mapping[str, Sequence[tuple[str, datetime, datetime]]]
"""The older texts of each memory, oldest first, each with the times at which it was written and replaced."""


def _read_versions(context: SourceContext) -> _Versions:
    """Return the older versions that history.db has. Memories that it marks as deleted have none: they stay deleted."""
    if context.companion is None:
        return {}
    versions = dict[str, list[tuple[str, datetime, datetime]]]()
    deleted = set[str]()
    with open_companion(context.companion) as database:
        if not is_history(database):
            raise field_error("with", f"{context.companion} is not mem0's history.db")
        query = "SELECT memory_id, old_memory, event, created_at, updated_at, is_deleted FROM history ORDER BY updated_at, rowid"
        for number, values in enumerate(database.rows(query), start=1):
            row = LenientReader(values, context.warn_at(f"{context.companion.name}, row {number}"))
            memory_id, text = row.name("memory_id") or "", values.get("old_memory")
            if values.get("is_deleted") or values.get("event") == "DELETE":
                deleted.add(memory_id)
            if values.get("event") != "UPDATE" or not isinstance(text, str) or not text.strip():
                continue
            older = versions.setdefault(memory_id, [])
            written_at = older[-1][2] if older else row.maybe_moment("created_at") or context.default_time
            older.append((text, written_at, max(row.maybe_moment("updated_at") or written_at, written_at)))
    return {memory_id: older for memory_id, older in versions.items() if memory_id not in deleted}


def is_history(database: ForeignDatabase) -> bool:
    """Return whether a SQLite file is mem0's history.db."""
    return database.has("history", "memory_id", "old_memory", "new_memory", "event")


def _is_qdrant_folder(database: ForeignDatabase) -> bool:
    return database.has("points", "id", "point")


SOURCES = (
    MemorySource(
        name=NAME, title="memories of mem0", find_entries=_find_entries, is_line=_is_line, read_entries=_read_entries, takes_companion=True
    ),
    MemorySource(
        name=NAME,
        title="mem0's history.db",
        is_database=is_history,
        refusal=f"it has the changes of memories, but not their users: import the result of {GET_ALL}, and add --with history.db",
    ),
    MemorySource(
        name=NAME,
        title="mem0's local Qdrant store",
        is_database=_is_qdrant_folder,
        refusal=f"its rows are Python pickles, which can run code and are not read: import the result of {GET_ALL}",
    ),
)
