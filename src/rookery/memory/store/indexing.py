"""What indexing and upkeep write and look for, in one workspace or, for upkeep, in all of them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import BigInteger, bindparam, case, or_, select, update

from rookery.kernel.clock import to_micros
from rookery.kernel.db import Tx, Value
from rookery.memory.models import Memory
from rookery.memory.store.rows import to_memory
from rookery.memory.store.tables import THEIRS, memories

_KEPT = [column for column in memories.c if column.name not in ("fingerprint", "recalled_at")]
_THIS = (memories.c.workspace_id == bindparam("workspace"), memories.c.id == bindparam("memory"))
_LIVE = (memories.c.archived_at.is_(None), or_(memories.c.expires_at.is_(None), memories.c.expires_at > bindparam("at")))

# A clock that went back, or stands still in a test, must not make what was just indexed look stale.
_AT = bindparam("at", type_=BigInteger())
_NOT_BEFORE = case((memories.c.updated_at > _AT, memories.c.updated_at), else_=_AT)
_INDEXED = (
    update(memories)
    .where(*_THIS, *_LIVE, memories.c.updated_at == bindparam("embedded"))
    .values(indexed_at=_NOT_BEFORE, indexed_model=bindparam("model"), index_failed_at=None)
)
_ALIVE = select(memories.c.id).where(THEIRS, memories.c.id.in_(bindparam("ids", expanding=True)), *_LIVE)
_ALIVE_NOW = select(*_KEPT).where(THEIRS, memories.c.id.in_(bindparam("ids", expanding=True)), *_LIVE)
_FAILED = update(memories).where(*_THIS).values(index_failed_at=bindparam("at"))
_EXPIRED = (
    select(*_KEPT)
    .where(memories.c.expires_at.is_not(None), memories.c.expires_at <= bindparam("at"))
    .order_by(memories.c.expires_at, memories.c.id)
    .limit(bindparam("most"))
)


def mark_indexed(tx: Tx, embedded: Sequence[Memory], *, model: str, at: datetime) -> None:
    """Say that *embedded* are indexed as they were then; one that was changed meanwhile stays stale, one gone stays gone."""
    rows: list[dict[str, Value]] = [
        {"workspace": each.workspace_id, "memory": each.id, "embedded": to_micros(each.updated_at), "model": model, "at": to_micros(at)}
        for each in embedded
    ]
    tx.many(_INDEXED, rows)


def alive(tx: Tx, workspace_id: int, ids: Sequence[str], *, at: datetime) -> set[str]:
    """Return those of *ids* that indexes should hold: neither deleted nor archived nor expired."""
    if not ids:
        return set()
    return {row.text("id") for row in tx.all(_ALIVE, {"workspace": workspace_id, "ids": ids, "at": to_micros(at)})}


def those_alive(tx: Tx, workspace_id: int, ids: Sequence[str], *, at: datetime) -> list[Memory]:
    """Return those of *ids* that indexes should hold, as they are now, in no order."""
    return [to_memory(row) for row in tx.all(_ALIVE_NOW, {"workspace": workspace_id, "ids": ids, "at": to_micros(at)})]


def changed_since(tx: Tx, seen: Sequence[Memory], *, at: datetime) -> list[Memory]:
    """Return those of *seen* that were changed since, and that indexes should hold, as they are now."""
    known = {each.id: each.updated_at for each in seen}
    fresh = list[Memory]()
    for workspace_id in sorted({each.workspace_id for each in seen}):
        fresh += those_alive(tx, workspace_id, [each.id for each in seen if each.workspace_id == workspace_id], at=at)
    return [each for each in fresh if each.updated_at > known[each.id]]


def mark_failed(tx: Tx, workspace_id: int, memory_id: str, *, at: datetime) -> None:
    """Say that indexing the memory was tried for the last time."""
    tx.run(_FAILED, {"workspace": workspace_id, "memory": memory_id, "at": to_micros(at)})


def expired(tx: Tx, *, at: datetime, limit: int) -> list[Memory]:
    """Return memories, of any workspace, whose time is over, longest ago first."""
    return [to_memory(row) for row in tx.all(_EXPIRED, {"at": to_micros(at), "most": limit})]
