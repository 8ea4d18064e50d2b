"""
Items of LangGraph's stores: the SQLite file of its SqliteStore, and items as JSON (lines), as `search` returns them.

The namespace becomes a tag `ns:a.b`. SqliteStore replaces the creation time at each `put`, so it is the time of the last one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import cast

import orjson

from rookery.memory.transfer.items import TYPE_PATTERN, ImportedMemory, ImportItem, RejectedItem, field_error
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
    to_mapping,
    to_objects,
    with_id,
)
from rookery.memory.transfer.sqlite_files import ForeignDatabase

NAME = "langgraph"

_TEXT_FIELDS = ("content", "text", "memory", "data")
_TYPE_FIELDS = ("kind", "type")
_KEYS = ("namespace", "key", "value")


def _find_entries(document: object) -> Sequence[object] | None:
    if has_keys(document, "items") and not has_keys(document, "key"):
        document = cast("dict[str, object]", document)["items"]
    return to_objects(document) if is_list_of(document, *_KEYS) else None


def _is_line(values: Mapping[str, object]) -> bool:
    return all(name in values for name in _KEYS)


def _is_database(database: ForeignDatabase) -> bool:
    return database.has("store", "prefix", "key", "value")


def _read_entries(entries: Iterable[SourceEntry], context: SourceContext) -> Iterator[ImportItem]:
    return read_each(entries, context, lambda _, values, location: [_parse(values, location, context)])


def _read_database(database: ForeignDatabase, context: SourceContext) -> Iterator[ImportItem]:
    context.progress.total = database.count("store")
    columns = database.columns("store", ("prefix", "key", "value", "created_at", "updated_at", "expires_at"))
    query = f"SELECT {columns} FROM store ORDER BY created_at, prefix, key"  # noqa: S608 - names of this module
    for number, row in enumerate(database.rows(query), start=1):
        location = f"item {row['prefix']}/{row['key']}"
        raw = row["value"]
        try:
            value: object = orjson.loads(raw if isinstance(raw, bytes | str) else b"")
        except orjson.JSONDecodeError:
            yield ImportItem(location=location, content=RejectedItem(reason="value: is not JSON"))
            continue
        context.progress.done = number
        yield from _read_entries([SourceEntry(location, {**row, "namespace": str(row["prefix"]).split("."), "value": value})], context)


def _parse(values: Mapping[str, object], location: str, context: SourceContext) -> ImportedMemory:
    row = context.reader(values, location)
    labels, key = row.names("namespace"), require_text(values.get("key"), "key")
    prefix = ".".join(labels)
    value = values.get("value")
    fields = to_mapping(value)
    text_field = next((name for name in _TEXT_FIELDS if isinstance(text := fields.get(name), str) and text.strip()), None)
    if text_field is not None:
        content = cast("str", fields[text_field])
    elif value in (None, {}, "", []):
        raise field_error("value", "is empty")
    else:
        content = value if isinstance(value, str) else orjson.dumps(value).decode()
    inner = context.reader(fields, location)
    kind_field = next((name for name in _TYPE_FIELDS if isinstance(kind := fields.get(name), str) and TYPE_PATTERN.fullmatch(kind)), None)
    used = {text_field, kind_field, "tags"} if text_field is not None else {*fields}
    updated_at = row.maybe_moment("updated_at") or row.maybe_moment("created_at") or context.default_time
    memory = new_foreign_memory(
        content=content,
        type=cast("str", fields[kind_field]) if kind_field is not None else "fact",
        tags=(*([f"ns:{prefix}"] if prefix else []), *inner.names("tags")),
        metadata=with_id({name: item for name, item in fields.items() if name not in used}, "langgraph_id", f"{prefix}/{key}"),
        source=NAME,
        created_at=min(row.maybe_moment("created_at") or updated_at, updated_at),
        expires_at=row.maybe_moment("expires_at"),
        at=updated_at,
    )
    return to_imported(ForeignMemory(memory=memory, default_type="fact", identity=(prefix, key)), NAME, context.warn_at(location))


SOURCES = (
    MemorySource(name=NAME, title="items of a LangGraph store", find_entries=_find_entries, is_line=_is_line, read_entries=_read_entries),
    MemorySource(name=NAME, title="LangGraph's SqliteStore", is_database=_is_database, read_database=_read_database),
)
