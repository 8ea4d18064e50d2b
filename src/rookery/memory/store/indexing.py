"""Queries of indexing and retention: what the indexes should hold, of one workspace or of all of them."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import BigInteger, bindparam, case, func, or_, select, update

from rookery.kernel.clock import to_micros
from rookery.kernel.db import Row, Tx, Value, fetch_count
from rookery.memory.models import Memory
from rookery.memory.store.tables import IS_IN_WORKSPACE, MEMORIES, memories

_IS_MEMORY = (memories.c.workspace_id == bindparam("workspace"), memories.c.id == bindparam("memory"))
_IS_LIVE = (memories.c.archived_at.is_(None), or_(memories.c.expires_at.is_(None), memories.c.expires_at > bindparam("at")))

# A clock that goes back, or stands still in a test, must not make a memory stale that was just indexed.
_AT_MICROS = bindparam("at", type_=BigInteger())
_INDEXED_AT = case((memories.c.updated_at > _AT_MICROS, memories.c.updated_at), else_=_AT_MICROS)
_MARK_INDEXED = (
    update(memories)
    .where(*_IS_MEMORY, *_IS_LIVE, memories.c.updated_at == bindparam("embedded"))
    .values(indexed_at=_INDEXED_AT, indexed_model=bindparam("model"), index_failed_at=None)
)
_LIVE_IDS = select(memories.c.id).where(IS_IN_WORKSPACE, memories.c.id.in_(bindparam("ids", expanding=True)), *_IS_LIVE)
_LIVE_MEMORIES = select(*MEMORIES.columns).where(IS_IN_WORKSPACE, memories.c.id.in_(bindparam("ids", expanding=True)), *_IS_LIVE)
_MARK_FAILED = update(memories).where(*_IS_MEMORY).values(index_failed_at=bindparam("at"))
_EXPIRED = (
    select(*MEMORIES.columns)
    .where(memories.c.expires_at.is_not(None), memories.c.expires_at <= bindparam("at"))
    .order_by(memories.c.expires_at, memories.c.id)
    .limit(bindparam("most"))
)
_STATES = select(
    memories.c.id, memories.c.workspace_id, memories.c.updated_at, memories.c.indexed_at, memories.c.indexed_model, memories.c.confidence
)
_SCAN_STATES = _STATES.where(*_IS_LIVE, memories.c.id > bindparam("after")).order_by(memories.c.id).limit(bindparam("most"))
_GET_STATES = _STATES.where(*_IS_LIVE, memories.c.id.in_(bindparam("ids", expanding=True)))
_COUNT_LIVE = select(func.count()).select_from(memories).where(*_IS_LIVE)
_WORKSPACES = select(memories.c.workspace_id).distinct().order_by(memories.c.workspace_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexState:
    """
    The state of a live memory for an index.

    Attributes:
        text_version: Changes whenever its document changes.
        vector_version: Changes also whenever it is embedded.
        is_indexed: The vectors of its current version are in the index of the server.
    """

    id: str
    workspace_id: int
    text_version: str
    vector_version: str
    is_indexed: bool


def scan_states(tx: Tx, *, after: str, limit: int, at: datetime, model: str) -> list[IndexState]:
    """Return the next live memories by id, of all workspaces."""
    rows = tx.fetch_all(_SCAN_STATES, {"after": after, "most": limit, "at": to_micros(at)})
    return [_read_state(row, model) for row in rows]


def get_states(tx: Tx, ids: Collection[str], *, at: datetime, model: str) -> dict[str, IndexState]:
    """Return the states of those of *ids* that are live, of any workspace."""
    rows = tx.fetch_all(_GET_STATES, {"ids": list(ids), "at": to_micros(at)})
    return {row.text("id"): _read_state(row, model) for row in rows}


def count_live(tx: Tx, *, at: datetime) -> int:
    """Return the number of live memories of all workspaces."""
    return fetch_count(tx, _COUNT_LIVE, {"at": to_micros(at)})


def list_workspaces(tx: Tx) -> list[int]:
    """Return the workspaces that have memories."""
    return [row.integer("workspace_id") for row in tx.fetch_all(_WORKSPACES)]


def _read_state(row: Row, model: str) -> IndexState:
    updated_at, indexed_at, indexed_model = row.integer("updated_at"), row.maybe_integer("indexed_at"), row.maybe_text("indexed_model")
    text_version = f"{updated_at} {row.number('confidence')!r}"
    return IndexState(
        id=row.text("id"),
        workspace_id=row.integer("workspace_id"),
        text_version=text_version,
        vector_version=f"{text_version} {indexed_at} {model}",
        is_indexed=indexed_at is not None and indexed_at >= updated_at and indexed_model in {model, None},
    )


def mark_indexed(tx: Tx, memories: Sequence[Memory], *, model: str, at: datetime) -> None:
    """Mark *memories* as indexed in the given version. Memories that changed meanwhile stay stale; deleted ones are skipped."""
    rows: list[dict[str, Value]] = [
        {
            "workspace": memory.workspace_id,
            "memory": memory.id,
            "embedded": to_micros(memory.updated_at),
            "model": model,
            "at": to_micros(at),
        }
        for memory in memories
    ]
    tx.execute_many(_MARK_INDEXED, rows)


def filter_live(tx: Tx, workspace_id: int, ids: Sequence[str], *, at: datetime) -> set[str]:
    """Return those of *ids* that the indexes should hold: neither deleted nor archived nor expired."""
    if not ids:
        return set()
    return {row.text("id") for row in tx.fetch_all(_LIVE_IDS, {"workspace": workspace_id, "ids": ids, "at": to_micros(at)})}


def get_live(tx: Tx, workspace_id: int, ids: Sequence[str], *, at: datetime) -> list[Memory]:
    """Return those of *ids* that the indexes should hold, in their current state, in no order."""
    return MEMORIES.fetch_all(tx, _LIVE_MEMORIES, {"workspace": workspace_id, "ids": ids, "at": to_micros(at)})


def get_changed(tx: Tx, memories: Sequence[Memory], *, at: datetime) -> list[Memory]:
    """Return those of *memories* that changed since and that the indexes should hold, in their current state."""
    seen_at = {memory.id: memory.updated_at for memory in memories}
    current = list[Memory]()
    for workspace_id in sorted({memory.workspace_id for memory in memories}):
        current += get_live(tx, workspace_id, [memory.id for memory in memories if memory.workspace_id == workspace_id], at=at)
    return [memory for memory in current if memory.updated_at > seen_at[memory.id]]


def mark_failed(tx: Tx, workspace_id: int, memory_id: str, *, at: datetime) -> None:
    """Mark the memory as failed, after the last attempt to index it."""
    tx.execute(_MARK_FAILED, {"workspace": workspace_id, "memory": memory_id, "at": to_micros(at)})


def list_expired(tx: Tx, *, at: datetime, limit: int) -> list[Memory]:
    """Return expired memories, of any workspace, longest expired first."""
    return MEMORIES.fetch_all(tx, _EXPIRED, {"at": to_micros(at), "most": limit})
