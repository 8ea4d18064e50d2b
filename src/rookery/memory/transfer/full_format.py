"""The complete fields of a memory for export, and their parsing. The content is written by the caller."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from rookery.kernel.clock import format_iso
from rookery.memory.models import Memory
from rookery.memory.store.transfer import TransferRecord
from rookery.memory.transfer.field_reader import FieldReader, validate_memory
from rookery.memory.transfer.items import NO_WORKSPACE_ID, ImportedMemory


def to_fields(record: TransferRecord) -> Mapping[str, object]:
    """Return all fields of a memory except its content, its workspace and its indexing state, which is not exported."""
    memory = record.memory
    return {
        "id": memory.id,
        "type": memory.type,
        "tags": list(memory.tags),
        "org": memory.org,
        "project": memory.project,
        "agent_id": memory.agent_id,
        "session_id": memory.session_id,
        "memory_scope": memory.memory_scope.value,
        "confidence": memory.confidence,
        "base_confidence": memory.base_confidence,
        "source": memory.source,
        "metadata": memory.metadata,
        "supersedes_id": memory.supersedes_id,
        "superseded_by": memory.superseded_by,
        "created_at": format_iso(memory.created_at),
        "updated_at": format_iso(memory.updated_at),
        "content_at": format_iso(memory.content_at),
        "expires_at": _optional_iso(memory.expires_at),
        "archived_at": _optional_iso(memory.archived_at),
        "recalled_at": _optional_iso(record.recalled_at),
    }


def from_fields(row: FieldReader, content: str) -> ImportedMemory:
    """
    Return the memory of the fields that `to_fields` returned.

    Raises:
        ValidationFailed: A field is missing or invalid.
    """
    memory = Memory(
        id=row.uuid("id"),
        workspace_id=NO_WORKSPACE_ID,
        org=row.maybe_text("org"),
        project=row.maybe_text("project"),
        agent_id=row.maybe_text("agent_id"),
        session_id=row.maybe_text("session_id"),
        memory_scope=row.scope("memory_scope"),
        type=row.text("type"),
        tags=row.texts("tags"),
        confidence=row.number("confidence"),
        base_confidence=row.number("base_confidence"),
        source=row.text("source"),
        content=content,
        metadata=row.maybe_object("metadata"),
        supersedes_id=row.maybe_uuid("supersedes_id"),
        superseded_by=row.maybe_uuid("superseded_by"),
        expires_at=row.maybe_moment("expires_at"),
        archived_at=row.maybe_moment("archived_at"),
        content_at=row.moment("content_at"),
        created_at=row.moment("created_at"),
        updated_at=row.moment("updated_at"),
    )
    validate_memory(memory)
    return ImportedMemory(memory=memory, recalled_at=row.maybe_moment("recalled_at"), is_exact=True)


def _optional_iso(moment: datetime | None) -> str | None:
    return None if moment is None else format_iso(moment)
