"""
Memories of mcp-memory-service: its SQLite file, or its JSON export.

The file is better: the export has no version numbers and no confidence. Deleted memories keep their text in the file and are skipped. An
older version of a memory is archived, and is in the history of the newer one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import cast

import orjson

from rookery.memory.transfer.items import ImportedMemory, ImportItem
from rookery.memory.transfer.lenient import LenientReader, require_text
from rookery.memory.transfer.sources.source import (
    CONFIDENCE,
    ForeignMemory,
    MemorySource,
    SourceContext,
    SourceEntry,
    has_keys,
    new_foreign_memory,
    read_each,
    to_imported,
    to_mapping,
    to_objects,
    track,
    with_id,
)
from rookery.memory.transfer.sqlite_files import ForeignDatabase

NAME = "mcp-memory-service"

_DEFAULT_TYPE = "observation"
_DEFAULT_STORE = "default"
_COLUMNS = (
    *("id", "content_hash", "content", "tags", "memory_type", "metadata", "created_at", "updated_at", "deleted_at", "store", "parent_id"),
    *("version", "confidence", "superseded_by"),
)

_Versions = Mapping[str, str]
"""The hash of the version before each newer version."""


def _find_entries(document: object) -> Sequence[object] | None:
    if not has_keys(document, "export_metadata", "memories"):
        return None
    return to_objects(cast("dict[str, object]", document)["memories"])


def _is_database(database: ForeignDatabase) -> bool:
    return database.has("memories", "content_hash", "content", "memory_type", "created_at")


def _read_entries(entries: Iterable[SourceEntry], context: SourceContext) -> Iterator[ImportItem]:
    all_entries = list(entries)
    rows = [to_mapping(entry.value) for entry in all_entries]
    agents = {str(row.get("content_hash")): _get_agent(to_mapping(row.get("metadata"))) for row in rows}
    previous = dict[str, str]()
    for row in rows:
        newer, older = _get_newer_hash(row), str(row.get("content_hash"))
        if newer in agents and agents[newer] == agents[older] and not _has_version(previous, older, newer):
            previous[newer] = older
    return read_each(track(all_entries, context), context, lambda row, values, location: [_parse(row, values, location, context, previous)])


def _read_database(database: ForeignDatabase, context: SourceContext) -> Iterator[ImportItem]:
    deleted = " WHERE deleted_at IS NULL" if "deleted_at" in database.tables["memories"] else ""
    query = f"SELECT {database.columns('memories', _COLUMNS)} FROM memories{deleted} ORDER BY id"  # noqa: S608 - names of this module
    context.progress.total = database.count("memories")
    entries = [
        SourceEntry(f"row {row['id']} of memories", {**row, "metadata": _parse_metadata(row["metadata"])}) for row in database.rows(query)
    ]
    return _read_entries(entries, context)


def _parse(row: LenientReader, values: Mapping[str, object], location: str, context: SourceContext, previous: _Versions) -> ImportedMemory:
    warn = context.warn_at(location)
    content = require_text(values.get("content"), "content")
    content_hash = row.name("content_hash")
    metadata = row.maybe_object("metadata")
    store, confidence, version = row.name("store"), row.maybe_number("confidence"), values.get("version")
    created_at = row.maybe_moment("created_at") or row.maybe_moment("created_at_iso") or context.default_time
    updated_at = max(row.maybe_moment("updated_at") or created_at, created_at)
    others = {
        **({"store": store} if store and store != _DEFAULT_STORE else {}),
        **({"version": version} if isinstance(version, int) and version > 1 else {}),
    }
    agent_id = _get_agent(metadata)
    memory = new_foreign_memory(
        content=content,
        type=row.name("memory_type") or _DEFAULT_TYPE,
        tags=row.names("tags"),
        agent_id=agent_id,
        # The service writes 1 for every memory that it knows nothing about.
        confidence=CONFIDENCE if confidence is None or confidence >= 1 else confidence,
        metadata=with_id({**metadata, **others}, "mcp_memory_service_id", content_hash),
        source=NAME,
        archived_at=updated_at if _get_newer_hash(values) else None,
        at=updated_at,
        created_at=created_at,
    )
    older = None if content_hash is None else previous.get(content_hash)
    return to_imported(
        ForeignMemory(
            memory=memory,
            default_type=_DEFAULT_TYPE,
            identity=(content_hash or content,),
            supersedes=None if older is None or older == content_hash else (older,),
        ),
        NAME,
        warn,
    )


def _has_version(previous: _Versions, newest: str, version: str) -> bool:
    """Return whether *version* is *newest* or one before it. A damaged file may name each of two as the newer one."""
    current: str | None = newest
    while current is not None and current != version:
        current = previous.get(current)
    return current == version


def _get_newer_hash(values: Mapping[str, object]) -> str | None:
    """Return the hash of the version that replaced a memory. The export has it in the metadata alone."""
    newer = values.get("superseded_by") or to_mapping(values.get("metadata")).get("superseded_by")
    return newer if isinstance(newer, str) and newer else None


def _get_agent(metadata: Mapping[str, object]) -> str | None:
    agent_id = metadata.get("agent_id")
    return agent_id if isinstance(agent_id, str) and agent_id.strip() else None


def _parse_metadata(text: object) -> object:
    """Return the metadata of a row. Text that is not JSON is returned as it is, and the reader reports it."""
    if not isinstance(text, str) or not text:
        return None
    try:
        return cast("object", orjson.loads(text))
    except orjson.JSONDecodeError:
        return text


SOURCES = (
    MemorySource(name=NAME, title="a JSON export of mcp-memory-service", find_entries=_find_entries, read_entries=_read_entries),
    MemorySource(name=NAME, title="the SQLite file of mcp-memory-service", is_database=_is_database, read_database=_read_database),
)
