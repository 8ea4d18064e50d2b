"""All importers of other programs' files, and the choice of one by the form of a file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rookery.memory.transfer.items import ImportFormat, field_error
from rookery.memory.transfer.sources import (
    conversations,
    graphiti,
    langgraph,
    letta,
    mcp_memory_service,
    mem0,
    memori,
    mempalace,
    open_webui,
    server_memory,
)
from rookery.memory.transfer.sources.source import MemorySource
from rookery.memory.transfer.sqlite_files import ForeignDatabase

SOURCES: Sequence[MemorySource] = (
    *mcp_memory_service.SOURCES,
    *server_memory.SOURCES,
    *letta.SOURCES,
    *conversations.SOURCES,
    *langgraph.SOURCES,
    *graphiti.SOURCES,
    *open_webui.SOURCES,
    *memori.SOURCES,
    *mempalace.SOURCES,
    *mem0.SOURCES,
)
"""In the order of recognition: mem0 is last, because any list of objects may be a list of mem0."""

_ROOKERY_TABLES = {"memories", "tombstones", "memory_tags"}


def select_sources(import_format: ImportFormat) -> Sequence[MemorySource]:
    """Return the importers of a program, or all for `auto`."""
    return [source for source in SOURCES if import_format in ("auto", source.name)]


def find_document_source(document: object, import_format: ImportFormat) -> tuple[MemorySource, Sequence[object]] | None:
    """Return the importer of a JSON document, with its entries."""
    for source in select_sources(import_format):
        entries = source.find_entries(document)
        if entries is not None:
            return source, entries
    return None


def find_line_source(values: Mapping[str, object], import_format: ImportFormat) -> MemorySource | None:
    """Return the importer of JSON lines that begin with an object."""
    return next((source for source in select_sources(import_format) if source.is_line(values)), None)


def find_database_source(database: ForeignDatabase, import_format: ImportFormat) -> MemorySource:
    """
    Return the importer of a SQLite file.

    Raises:
        ValidationFailed: No importer has such tables.
    """
    source = next((source for source in select_sources(import_format) if source.is_database(database)), None)
    if source is not None:
        return source
    if database.tables.keys() >= _ROOKERY_TABLES:
        raise field_error("file", f"{database.path} is a database of Rookery; export it with `rookery export` and import that file")
    names = ", ".join(sorted(database.tables)[:10]) or "none"
    raise field_error("file", f"{database.path} is a SQLite file of no program that can be imported; its tables are {names}")


def require_readable(source: MemorySource, *, has_companion: bool) -> None:
    """
    Check that the memories of a recognised form can be imported, with a companion if there is one.

    Raises:
        ValidationFailed: They cannot.
    """
    if source.refusal is not None:
        raise field_error("file", f"this is {source.title}: {source.refusal}")
    if has_companion and not source.takes_companion:
        raise field_error("with", f"{source.title} needs no second file; only mem0 and basic-memory have one")
