"""Memories of Open WebUI: the table `memory` of webui.db, or the same as a JSON list. Their times are seconds or milliseconds."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from rookery.memory.transfer.items import ImportedMemory, ImportItem
from rookery.memory.transfer.lenient import LenientReader, require_text
from rookery.memory.transfer.sources.source import (
    USER_TAG_PREFIX,
    ForeignMemory,
    MemorySource,
    SourceContext,
    SourceEntry,
    is_list_of,
    new_foreign_memory,
    read_each,
    to_imported,
    to_mapping,
    to_objects,
    track,
    with_id,
)
from rookery.memory.transfer.sqlite_files import ForeignDatabase

NAME = "open-webui"

_COLUMNS = ("id", "user_id", "content", "updated_at", "created_at")


def _find_entries(document: object) -> Sequence[object] | None:
    items = to_objects(document)
    if items is None or not is_list_of(items, *_COLUMNS):
        return None
    return items if isinstance(to_mapping(items[0])["created_at"], int) else None


def _is_database(database: ForeignDatabase) -> bool:
    return database.has("memory", *_COLUMNS)


def _read_entries(entries: Iterable[SourceEntry], context: SourceContext) -> Iterator[ImportItem]:
    return read_each(entries, context, lambda row, values, location: [_parse(row, values, location, context)])


def _read_database(database: ForeignDatabase, context: SourceContext) -> Iterator[ImportItem]:
    context.progress.total = database.count("memory")
    query = f"SELECT {database.columns('memory', _COLUMNS)} FROM memory ORDER BY created_at, id"  # noqa: S608 - names of this module
    return _read_entries(track((SourceEntry(f"memory {row['id']}", row) for row in database.rows(query)), context), context)


def _parse(row: LenientReader, values: Mapping[str, object], location: str, context: SourceContext) -> ImportedMemory:
    memory_id, user = require_text(values.get("id"), "id"), row.name("user_id")
    created_at = row.maybe_moment("created_at") or context.default_time
    memory = new_foreign_memory(
        content=require_text(values.get("content"), "content"),
        type="fact",
        tags=(f"{USER_TAG_PREFIX}{user}",) if user else (),
        metadata=with_id({}, "open_webui_id", memory_id),
        source=NAME,
        created_at=created_at,
        at=max(row.maybe_moment("updated_at") or created_at, created_at),
    )
    return to_imported(ForeignMemory(memory=memory, default_type="fact", identity=(memory_id,)), NAME, context.warn_at(location))


SOURCES = (
    MemorySource(name=NAME, title="memories of Open WebUI", find_entries=_find_entries, read_entries=_read_entries),
    MemorySource(name=NAME, title="the database of Open WebUI", is_database=_is_database, read_database=_read_database),
)
