"""Which memory was merged into which (D-52)."""

from __future__ import annotations

from collections.abc import Sequence

import orjson
from sqlalchemy import bindparam, delete, select, update

from rookery.kernel.clock import from_micros, to_micros
from rookery.kernel.db import Row, Tx, upsert
from rookery.memory.merging import Merge
from rookery.memory.store.rows import texts
from rookery.memory.store.tables import merges

_THIS = (merges.c.workspace_id == bindparam("workspace"), merges.c.memory_id == bindparam("memory"))
# One that was merged, restored by other means than `restore`, and merged again: the newer says where its words are.
_ADD = upsert(merges, index_elements=["memory_id"], set_=lambda new: {c.name: new[c.name] for c in merges.c if c.name != "memory_id"})
_OF = select(merges).where(*_THIS)
_INTO = (
    select(merges)
    .where(merges.c.workspace_id == bindparam("workspace"), merges.c.primary_id == bindparam("kept"))
    .order_by(merges.c.memory_id)
)
_OPEN = (
    select(merges.c.primary_id)
    .where(merges.c.workspace_id == bindparam("workspace"), merges.c.is_done == 0)
    .distinct()
    .order_by(merges.c.primary_id)
    .limit(bindparam("most"))
)
_OPEN_AFTER = _OPEN.where(merges.c.primary_id > bindparam("after"))
_DONE = update(merges).where(*_THIS).values(is_done=1)
_DROP = delete(merges).where(*_THIS)


def add(tx: Tx, planned: Sequence[Merge]) -> None:
    """Keep that the merged memories are about to be archived."""
    tx.many(
        _ADD,
        [
            {
                "memory_id": each.memory_id,
                "workspace_id": each.workspace_id,
                "primary_id": each.primary_id,
                "run": each.run,
                "seen_at": to_micros(each.seen_at),
                "length": each.length,
                "digest": each.digest,
                "tags": orjson.dumps(each.tags).decode(),
                "is_done": int(each.is_done),
            }
            for each in planned
        ],
    )


def of(tx: Tx, workspace_id: int, memory_id: str) -> Merge | None:
    """Return into what the memory was merged."""
    row = tx.one(_OF, {"workspace": workspace_id, "memory": memory_id})
    return None if row is None else _to_merge(row)


def into(tx: Tx, workspace_id: int, primary_id: str) -> list[Merge]:
    """Return what was, or is about to be, merged into the memory, by id."""
    return [_to_merge(row) for row in tx.all(_INTO, {"workspace": workspace_id, "kept": primary_id})]


def unfinished(tx: Tx, workspace_id: int, *, after: str, limit: int) -> list[str]:
    """Return primaries, by id, of merges that were begun and not ended."""
    return [row.text("primary_id") for row in tx.all(_OPEN_AFTER, {"workspace": workspace_id, "after": after, "most": limit})]


def finish(tx: Tx, merge: Merge) -> None:
    """Say that the merged memory is archived."""
    tx.run(_DONE, {"workspace": merge.workspace_id, "memory": merge.memory_id})


def drop(tx: Tx, merge: Merge) -> None:
    """Forget a merge that was undone."""
    tx.run(_DROP, {"workspace": merge.workspace_id, "memory": merge.memory_id})


def _to_merge(row: Row) -> Merge:
    return Merge(
        memory_id=row.text("memory_id"),
        workspace_id=row.integer("workspace_id"),
        primary_id=row.text("primary_id"),
        run=row.text("run"),
        seen_at=from_micros(row.integer("seen_at")),
        length=row.integer("length"),
        digest=row.text("digest"),
        tags=texts(row.text("tags")),
        is_done=row.integer("is_done") == 1,
    )
