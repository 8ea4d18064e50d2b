"""
Drawers of MemPalace: the file chroma.sqlite3 in the palace's folder.

A long text is cut into chunks, which are joined again. Times are the local ones of the machine that wrote them, without a zone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from rookery.kernel.errors import RookeryError
from rookery.memory.transfer.items import ImportedMemory, ImportItem, RejectedItem
from rookery.memory.transfer.lenient import require_text
from rookery.memory.transfer.sources.source import (
    ForeignMemory,
    MemorySource,
    SourceContext,
    new_foreign_memory,
    to_imported,
    with_id,
)
from rookery.memory.transfer.sqlite_files import ForeignDatabase

NAME = "mempalace"

EXPORT_REFUSAL = (
    "it is an export of MemPalace as Markdown, which cuts long texts into pieces and merges the others; import the file chroma.sqlite3 "
    "of the palace's folder instead"
)

_EXPORT_TITLE = b"# Palace Export"
_ROOM_START = re.compile(r"# [^\n]+ / [^\n]+\s+## drawer_")
_OWN_FIELDS = frozenset(
    [
        "wing",
        "room",
        "added_by",
        "source_file",
        "chunk_index",
        "parent_drawer_id",
        "filed_at",
        "last_modified",
        "id_recipe",
        "chroma:document",
    ]
)
_COLLECTION = """
SELECT e.id, e.embedding_id, m.key, coalesce(m.string_value, m.int_value, m.float_value, m.bool_value) AS value
FROM embeddings e JOIN embedding_metadata m ON m.id = e.id
JOIN segments s ON s.id = e.segment_id AND s.collection IN (
    SELECT DISTINCT s2.collection FROM embedding_metadata w JOIN embeddings e2 ON e2.id = w.id JOIN segments s2 ON s2.id = e2.segment_id
    WHERE w.key = 'wing'
)
ORDER BY e.id
"""


def is_markdown_export(folder: Path) -> bool:
    """Return whether a folder is an export of MemPalace as Markdown."""
    try:
        with (folder / "index.md").open("rb") as file:
            return file.read(len(_EXPORT_TITLE)) == _EXPORT_TITLE
    except OSError:
        return False


def is_markdown_room(text: str) -> bool:
    """Return whether a note is one of such an export: a room with its drawers."""
    return _ROOM_START.match(text) is not None


def _is_chroma(database: ForeignDatabase) -> bool:
    return database.has("embeddings", "id", "segment_id", "embedding_id") and database.has(
        "embedding_metadata", "id", "key", "string_value"
    )


def _is_palace(database: ForeignDatabase) -> bool:
    return _is_chroma(database) and any(database.rows("SELECT 1 AS found FROM embedding_metadata WHERE key = 'wing' LIMIT 1"))


def _read_database(database: ForeignDatabase, context: SourceContext) -> Iterator[ImportItem]:
    drawers = dict[str, list[dict[str, object]]]()
    for values in _iter_rows(database):
        drawers.setdefault(str(values.get("parent_drawer_id") or values["id"]), []).append(values)
    context.progress.total = len(drawers)
    if context.timezone is None and drawers:
        context.progress.warn(
            context.file_name,
            "its times have no zone and were read in the zone of this machine; name another with --timezone, such as Asia/Tokyo",
        )
    for number, (drawer_id, chunks) in enumerate(drawers.items(), start=1):
        context.progress.done = number
        try:
            yield ImportItem(location=f"drawer {drawer_id}", content=_parse(drawer_id, chunks, context))
        except RookeryError as error:
            yield ImportItem(location=f"drawer {drawer_id}", content=RejectedItem(reason=error.message))


def _iter_rows(database: ForeignDatabase) -> Iterator[dict[str, object]]:
    """Yield the metadata of each row of the palace's collections, with its text and id."""
    current: object = None
    values = dict[str, object]()
    for row in database.rows(_COLLECTION):
        if row["id"] != current and values:
            yield values
            values = {}
        current = row["id"]
        values |= {"id": row["embedding_id"], str(row["key"]): row["value"]}
    if values:
        yield values


def _parse(drawer_id: str, chunks: Sequence[Mapping[str, object]], context: SourceContext) -> ImportedMemory:
    location = f"drawer {drawer_id}"
    chunks = sorted(chunks, key=_get_chunk_index)
    _check_chunks(chunks, location, context)
    row, warn = context.reader(chunks[0], location, zone=None), context.warn_at(location)
    content = require_text("".join(str(chunk.get("chroma:document") or "") for chunk in chunks), "text")
    filed_at = row.maybe_moment("filed_at") or context.default_time
    updated_at = max(row.maybe_moment("last_modified") or filed_at, filed_at)
    room, added_by = row.name("room"), row.name("added_by")
    memory = new_foreign_memory(
        content=content,
        type="documentation",
        project=row.name("wing"),
        tags=(*([room] if room else []), *([f"added-by:{added_by}"] if added_by else [])),
        metadata=with_id({name: value for name, value in chunks[0].items() if name not in {*_OWN_FIELDS, "id"}}, "mempalace_id", drawer_id),
        source=(row.name("source_file") or NAME)[-100:],
        created_at=filed_at,
        at=updated_at,
    )
    return to_imported(ForeignMemory(memory=memory, default_type="documentation", identity=(drawer_id,)), NAME, warn)


def _get_chunk_index(chunk: Mapping[str, object]) -> int:
    index = chunk.get("chunk_index")
    return index if isinstance(index, int) else 0


def _check_chunks(chunks: Sequence[Mapping[str, object]], location: str, context: SourceContext) -> None:
    indexes = [_get_chunk_index(chunk) for chunk in chunks]
    if len(chunks) > 1 and indexes != list(range(len(chunks))):
        context.warn_at(location)("chunk_index", f"pieces are missing or doubled: the store has {', '.join(map(str, indexes[:20]))}")


SOURCES = (
    MemorySource(name=NAME, title="a palace of MemPalace (Chroma)", is_database=_is_palace, read_database=_read_database),
    MemorySource(
        name=None,
        title="a Chroma database",
        is_database=_is_chroma,
        refusal="it has no drawers of MemPalace; export its memories with the program that wrote it",
    ),
)
