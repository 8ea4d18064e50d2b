"""Queries of indexing and retention, for one workspace or, for retention, for all of them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import BigInteger, bindparam, case, or_, select, update

from rookery.kernel.clock import to_micros
from rookery.kernel.db import Tx, Value
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
