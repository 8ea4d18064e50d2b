"""Queries on the memories of a session (scope session)."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import bindparam, select, update

from rookery.kernel.db import Tx
from rookery.memory.models import Memory
from rookery.memory.store.tables import IS_IN_WORKSPACE, IS_SESSION_SCOPE, MEMORIES, memories, memory_to_row

_IS_LIVE = (IS_IN_WORKSPACE, IS_SESSION_SCOPE, memories.c.session_id == bindparam("session"), memories.c.archived_at.is_(None))
_LOCK_LIVE = select(*MEMORIES.columns).where(*_IS_LIVE).order_by(memories.c.id).limit(bindparam("most")).with_for_update()
_LOCK_BY_ID = (
    select(*MEMORIES.columns)
    .where(*_IS_LIVE, memories.c.id.in_(bindparam("ids", expanding=True)))
    .order_by(memories.c.id)
    .with_for_update()
)
_MOVED_COLUMNS = ("org", "project", "memory_scope", "fingerprint", "updated_at", "updated_by")
_MOVE = (
    update(memories)
    .where(memories.c.workspace_id == bindparam("workspace"), memories.c.id == bindparam("memory"))
    .values({name: bindparam(f"new_{name}") for name in _MOVED_COLUMNS})
)


def lock_live(tx: Tx, workspace_id: int, session_id: str, *, limit: int) -> list[Memory]:
    """Return and lock at most *limit* memories of a session that are not archived."""
    return MEMORIES.fetch_all(tx, _LOCK_LIVE, {"workspace": workspace_id, "session": session_id, "most": limit})


def lock_by_ids(tx: Tx, workspace_id: int, session_id: str, ids: Sequence[str]) -> list[Memory]:
    """Return and lock those of *ids* that belong to the session and are not archived."""
    if not ids:
        return []
    return MEMORIES.fetch_all(tx, _LOCK_BY_ID, {"workspace": workspace_id, "session": session_id, "ids": ids})


def update_space(tx: Tx, memory: Memory) -> None:
    """Write the space and update time of *memory*, which this transaction has locked."""
    row = memory_to_row(memory)
    tx.execute(_MOVE, {**{f"new_{name}": row[name] for name in _MOVED_COLUMNS}, "workspace": memory.workspace_id, "memory": memory.id})
