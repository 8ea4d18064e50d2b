"""
The knowledge graph of server-memory, the reference memory of MCP: its file memory.jsonl, or the result of its tool `read_graph`.

Each observation of an entity becomes a memory, and each relation. The file has no times, so they are those of its last change.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import cast

from rookery.memory.models import Memory
from rookery.memory.transfer.items import ImportedMemory, ImportItem, field_error
from rookery.memory.transfer.lenient import LenientReader, require_text
from rookery.memory.transfer.sources.source import (
    ForeignMemory,
    MemorySource,
    SourceContext,
    SourceEntry,
    has_keys,
    new_foreign_memory,
    read_each,
    to_imported,
    to_objects,
    with_id,
)

NAME = "server-memory"


def _find_entries(document: object) -> Sequence[object] | None:
    """Return the entities and relations of a graph."""
    if not has_keys(document, "entities", "relations"):
        return None
    graph = cast("dict[str, object]", document)
    entities, relations = to_objects(graph["entities"]), to_objects(graph["relations"])
    return None if entities is None or relations is None else [*entities, *relations]


def _is_line(values: Mapping[str, object]) -> bool:
    return (values.get("type") == "entity" and "observations" in values) or (values.get("type") == "relation" and "relationType" in values)


def _read_entries(entries: Iterable[SourceEntry], context: SourceContext) -> Iterator[ImportItem]:
    def parse(row: LenientReader, values: Mapping[str, object], location: str) -> Iterator[ImportedMemory]:
        memories = _parse_relation(row, values, context) if "relationType" in values else _parse_entity(row, values, context)
        for memory, identity in memories:
            yield to_imported(ForeignMemory(memory=memory, default_type="fact", identity=identity), NAME, context.warn_at(location))

    return read_each(entries, context, parse)


def _parse_entity(row: LenientReader, values: Mapping[str, object], context: SourceContext) -> Iterator[tuple[Memory, tuple[str, ...]]]:
    name, kind = require_text(values.get("name"), "name"), row.name("entityType")
    observations = to_objects(values.get("observations"))
    if observations is None:
        raise field_error("observations", "must be a list of strings")
    texts = [text for text in observations if isinstance(text, str) and text.strip()]
    if len(texts) < len(observations):
        context.progress.warn(context.file_name, f"entity {name!r} has observations that are no text; they were left out")
    for text in texts:
        metadata = with_id({"entity": name, **({"entity_type": kind} if kind else {})}, "server_memory_id", name)
        tags = (name, *([kind] if kind else []))
        yield _new_memory(f"{name}: {text}", tags, metadata, context), ("observation", name, text)


def _parse_relation(row: LenientReader, values: Mapping[str, object], context: SourceContext) -> Iterator[tuple[Memory, tuple[str, ...]]]:
    start, end = require_text(values.get("from"), "from"), require_text(values.get("to"), "to")
    kind = row.name("relationType") or "relates to"
    metadata = {"relation": kind, "from": start, "to": end}
    yield _new_memory(f"{start} {kind} {end}", (start, end), metadata, context), ("relation", start, kind, end)


def _new_memory(content: str, tags: tuple[str, ...], metadata: Mapping[str, object], context: SourceContext) -> Memory:
    return new_foreign_memory(content=content, type="fact", tags=tags, metadata=metadata, source=NAME, at=context.default_time)


SOURCES = (
    MemorySource(name=NAME, title="a graph of server-memory", find_entries=_find_entries, is_line=_is_line, read_entries=_read_entries),
)
