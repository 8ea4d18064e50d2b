"""The memories of sessions (scope session), found by their session."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import bindparam, select, update

from rookery.kernel.db import Tx
from rookery.memory.models import Memory
from rookery.memory.store.rows import to_memory, to_row
from rookery.memory.store.tables import OF_SESSIONS, THEIRS, memories

_KEPT = [column for column in memories.c if column.name not in ("fingerprint", "recalled_at")]
_LIVE = (THEIRS, OF_SESSIONS, memories.c.session_id == bindparam("session"), memories.c.archived_at.is_(None))
_SOME = select(*_KEPT).where(*_LIVE).order_by(memories.c.id).limit(bindparam("most")).with_for_update()
_NAMED = select(*_KEPT).where(*_LIVE, memories.c.id.in_(bindparam("ids", expanding=True))).order_by(memories.c.id).with_for_update()
_MOVED = ("org", "project", "memory_scope", "fingerprint", "updated_at")
_MOVE = (
    update(memories)
    .where(memories.c.workspace_id == bindparam("workspace"), memories.c.id == bindparam("memory"))
    .values({name: bindparam(f"new_{name}") for name in _MOVED})
)


def live(tx: Tx, workspace_id: int, session_id: str, *, limit: int) -> list[Memory]:
    """Return at most *limit* of a session's own memories that are not archived, and let nobody else change them."""
    return [to_memory(row) for row in tx.all(_SOME, {"workspace": workspace_id, "session": session_id, "most": limit})]


def named(tx: Tx, workspace_id: int, session_id: str, ids: Sequence[str]) -> list[Memory]:
    """Return those of *ids* that are the session's own and not archived, and let nobody else change them."""
    if not ids:
        return []
    return [to_memory(row) for row in tx.all(_NAMED, {"workspace": workspace_id, "session": session_id, "ids": ids})]


def move(tx: Tx, now: Memory) -> None:
    """Write the space of *now*, which one of the above returned in this transaction, and that it was changed."""
    row = to_row(now)
    tx.run(_MOVE, {**{f"new_{name}": row[name] for name in _MOVED}, "workspace": now.workspace_id, "memory": now.id})
