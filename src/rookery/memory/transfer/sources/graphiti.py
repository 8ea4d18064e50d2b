"""
Facts of Graphiti: its EntityEdge as JSON, one object, a list, or lines.

A fact that became invalid or expired is archived. With its Kuzu driver, times have no zone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import cast

from rookery.memory.transfer.items import ImportedMemory, ImportItem
from rookery.memory.transfer.lenient import require_text
from rookery.memory.transfer.sources.source import (
    ForeignMemory,
    MemorySource,
    SourceContext,
    SourceEntry,
    has_keys,
    is_list_of,
    new_foreign_memory,
    read_each,
    to_imported,
    to_objects,
    with_id,
)

NAME = "graphiti"

_KEYS = ("uuid", "fact", "valid_at")
_LINKS = ("source_node_uuid", "target_node_uuid", "valid_at", "invalid_at", "expired_at")


def _find_entries(document: object) -> Sequence[object] | None:
    if has_keys(document, "edges") and is_list_of(cast("dict[str, object]", document)["edges"], *_KEYS):
        document = cast("dict[str, object]", document)["edges"]
    return to_objects(document) if is_list_of(document, *_KEYS) else None


def _is_line(values: Mapping[str, object]) -> bool:
    return all(name in values for name in _KEYS)


def _read_entries(entries: Iterable[SourceEntry], context: SourceContext) -> Iterator[ImportItem]:
    return read_each(entries, context, lambda _, values, location: [_parse(values, location, context)])


def _parse(values: Mapping[str, object], location: str, context: SourceContext) -> ImportedMemory:
    row, warn = context.reader(values, location), context.warn_at(location)
    edge_id = require_text(values.get("uuid"), "uuid")
    created_at = row.maybe_moment("created_at") or context.default_time
    ended_at = row.maybe_moment("invalid_at") or row.maybe_moment("expired_at")
    has_ended = values.get("invalid_at") is not None or values.get("expired_at") is not None
    group, name = row.name("group_id"), row.name("name")
    memory = new_foreign_memory(
        content=require_text(values.get("fact"), "fact"),
        type="fact",
        tags=(*([f"group:{group}"] if group else []), *([name] if name else [])),
        metadata=with_id(
            {**row.maybe_object("attributes"), **{key: values[key] for key in _LINKS if values.get(key)}}, "graphiti_id", edge_id
        ),
        source=NAME,
        archived_at=max(ended_at or created_at, created_at) if has_ended else None,
        at=created_at,
    )
    return to_imported(ForeignMemory(memory=memory, default_type="fact", identity=(edge_id,)), NAME, warn)


SOURCES = (MemorySource(name=NAME, title="facts of Graphiti", find_entries=_find_entries, is_line=_is_line, read_entries=_read_entries),)
