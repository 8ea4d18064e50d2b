"""Conversion between memories and rows."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from typing import cast

import orjson

from rookery.kernel.clock import from_micros, to_micros
from rookery.kernel.db import Row, Value
from rookery.memory.metadata import to_json
from rookery.memory.models import Memory, MemoryScope, RecallMode, Tombstone
from rookery.memory.recall_records import RecallQueryRecord, RecallRecord

SCOPES = {scope.value: scope for scope in MemoryScope}


def fingerprint(memory: Memory) -> str:
    """Return a digest that two memories share if they have the same content in the same space (spec 2.7, D-40)."""
    match memory.memory_scope:
        case MemoryScope.AGENT:
            owner = memory.agent_id
        case MemoryScope.SESSION:
            owner = memory.session_id
        case MemoryScope.PROJECT | MemoryScope.SHARED:
            owner = None
    space = (memory.workspace_id, memory.memory_scope.value, memory.org, memory.project, owner, memory.content)
    return blake2b(orjson.dumps(space), digest_size=16).hexdigest()


def memory_to_row(memory: Memory) -> dict[str, Value]:
    """Return the columns of *memory*."""
    expires_at, archived_at = memory.expires_at, memory.archived_at
    failed_at, indexed_at = memory.index_failed_at, memory.indexed_at
    return {
        "id": memory.id,
        "workspace_id": memory.workspace_id,
        "org": memory.org,
        "project": memory.project,
        "agent_id": memory.agent_id,
        "session_id": memory.session_id,
        "memory_scope": memory.memory_scope.value,
        "type": memory.type,
        "tags": orjson.dumps(memory.tags).decode(),
        "confidence": memory.confidence,
        "base_confidence": memory.base_confidence,
        "source": memory.source,
        "content": memory.content,
        "metadata": to_json(memory.metadata).decode() if memory.metadata else None,
        "fingerprint": fingerprint(memory),
        "supersedes_id": memory.supersedes_id,
        "expires_at": None if expires_at is None else to_micros(expires_at),
        "archived_at": None if archived_at is None else to_micros(archived_at),
        "index_failed_at": None if failed_at is None else to_micros(failed_at),
        "indexed_at": None if indexed_at is None else to_micros(indexed_at),
        "indexed_model": memory.indexed_model,
        "superseded_by": memory.superseded_by,
        "content_at": to_micros(memory.content_at),
        "created_at": to_micros(memory.created_at),
        "updated_at": to_micros(memory.updated_at),
    }


def memory_from_row(row: Row) -> Memory:
    """Return the memory of a row with all its columns."""
    expires_at, archived_at = row.maybe_integer("expires_at"), row.maybe_integer("archived_at")
    failed_at, indexed_at = row.maybe_integer("index_failed_at"), row.maybe_integer("indexed_at")
    return Memory(
        id=row.text("id"),
        workspace_id=row.integer("workspace_id"),
        org=row.maybe_text("org"),
        project=row.maybe_text("project"),
        agent_id=row.maybe_text("agent_id"),
        session_id=row.maybe_text("session_id"),
        memory_scope=SCOPES[row.text("memory_scope")],
        type=row.text("type"),
        tags=parse_texts(row.text("tags")),
        confidence=row.number("confidence"),
        base_confidence=row.number("base_confidence"),
        source=row.text("source"),
        content=row.text("content"),
        metadata={} if (metadata := row.maybe_text("metadata")) is None else cast("dict[str, object]", orjson.loads(metadata)),
        supersedes_id=row.maybe_text("supersedes_id"),
        expires_at=None if expires_at is None else from_micros(expires_at),
        archived_at=None if archived_at is None else from_micros(archived_at),
        index_failed_at=None if failed_at is None else from_micros(failed_at),
        indexed_at=None if indexed_at is None else from_micros(indexed_at),
        indexed_model=row.maybe_text("indexed_model"),
        superseded_by=row.maybe_text("superseded_by"),
        content_at=from_micros(row.integer("content_at")),
        created_at=from_micros(row.integer("created_at")),
        updated_at=from_micros(row.integer("updated_at")),
    )


def tombstone_from_row(row: Row) -> Tombstone:
    """Return the tombstone of a row."""
    return Tombstone(
        id=row.text("id"),
        workspace_id=row.integer("workspace_id"),
        supersedes_id=row.maybe_text("supersedes_id"),
        superseded_by=row.maybe_text("superseded_by"),
        created_at=from_micros(row.integer("created_at")),
        ended_at=from_micros(row.integer("ended_at")),
    )


def recall_from_row(row: Row) -> RecallRecord:
    """Return the recall of a row."""
    return RecallRecord(
        id=row.text("id"),
        workspace_id=row.integer("workspace_id"),
        key_id=row.text("key_id"),
        memory_ids=parse_texts(row.text("memory_ids")),
        created_at=from_micros(row.integer("created_at")),
        query_record=parse_query_record(row.maybe_text("asked")),
    )


def query_record_to_json(query_record: RecallQueryRecord) -> str:
    """Return *query_record* as JSON for its column."""
    return orjson.dumps((query_record.query, query_record.mode, query_record.semantic_ranks, query_record.keyword_ranks)).decode()


def parse_query_record(text: str | None) -> RecallQueryRecord | None:
    """Return the query record that `query_record_to_json` wrote."""
    if text is None:
        return None
    query, mode, semantic_ranks, keyword_ranks = cast("tuple[str, RecallMode, list[int | None], list[int | None]]", orjson.loads(text))
    return RecallQueryRecord(query=query, mode=mode, semantic_ranks=tuple(semantic_ranks), keyword_ranks=tuple(keyword_ranks))


def parse_texts(text: str) -> tuple[str, ...]:
    """Return the strings of a JSON column."""
    return tuple(cast("Sequence[str]", orjson.loads(text)))
