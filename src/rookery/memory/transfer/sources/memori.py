"""Facts of Memori: its SQLite file. A fact belongs to an entity, which is a user."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rookery.memory.transfer.items import ImportedMemory, ImportItem
from rookery.memory.transfer.lenient import require_text
from rookery.memory.transfer.sources.source import (
    USER_TAG_PREFIX,
    ForeignMemory,
    MemorySource,
    SourceContext,
    SourceEntry,
    new_foreign_memory,
    read_each,
    to_imported,
    track,
    with_id,
)
from rookery.memory.transfer.sqlite_files import ForeignDatabase

NAME = "memori"

_FACTS = """
SELECT f.id, f.uuid, f.content, f.num_times, f.date_created, f.date_updated, f.date_last_time, e.external_id
FROM memori_entity_fact f LEFT JOIN memori_entity e ON e.id = f.entity_id ORDER BY f.id
"""


def _is_database(database: ForeignDatabase) -> bool:
    return database.has("memori_entity_fact", "uuid", "entity_id", "content") and database.has("memori_entity", "id", "external_id")


def _read_database(database: ForeignDatabase, context: SourceContext) -> Iterator[ImportItem]:
    context.progress.total = database.count("memori_entity_fact")
    entries = track((SourceEntry(f"fact {row['id']}", row) for row in database.rows(_FACTS)), context)
    return read_each(entries, context, lambda _, values, location: [_parse(values, location, context)])


def _parse(values: Mapping[str, object], location: str, context: SourceContext) -> ImportedMemory:
    row = context.reader(values, location)
    fact_id, user = require_text(values.get("uuid"), "uuid"), row.name("external_id")
    created_at = row.maybe_moment("date_created") or context.default_time
    memory = new_foreign_memory(
        content=require_text(values.get("content"), "content"),
        type="fact",
        tags=(f"{USER_TAG_PREFIX}{user}",) if user else (),
        metadata=with_id({"num_times": values.get("num_times")}, "memori_id", fact_id),
        source=NAME,
        created_at=created_at,
        at=max(row.maybe_moment("date_updated") or created_at, created_at),
    )
    return to_imported(ForeignMemory(memory=memory, default_type="fact", identity=(fact_id,)), NAME, context.warn_at(location))


SOURCES = (MemorySource(name=NAME, title="the SQLite file of Memori", is_database=_is_database, read_database=_read_database),)
