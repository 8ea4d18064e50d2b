"""Recalls of the last 30 days, so that feedback can be held against them (D-17, D-47)."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

import orjson
from sqlalchemy import bindparam, delete, or_, select, update

from rookery.kernel.clock import to_micros
from rookery.kernel.db import Tx, upsert
from rookery.memory.past import PastRecall
from rookery.memory.store import training
from rookery.memory.store.rows import of_question, to_recall
from rookery.memory.store.tables import memories, recalls

_SEEN_AGAIN = timedelta(days=1)
"""`recalled_at` is written once a day and memory, not once a recall."""

_ADD = upsert(recalls, index_elements=["id"])
_BY_ID = select(recalls).where(recalls.c.workspace_id == bindparam("workspace"), recalls.c.id == bindparam("recall"))
_OLD = select(recalls.c.id).where(recalls.c.created_at < bindparam("before")).order_by(recalls.c.created_at).limit(bindparam("most"))
_FORGET = delete(recalls).where(recalls.c.id.in_(_OLD))
_SEEN = (
    update(memories)
    .where(
        memories.c.workspace_id == bindparam("workspace"),
        memories.c.id == bindparam("memory"),
        or_(memories.c.recalled_at.is_(None), memories.c.recalled_at < bindparam("day_ago")),
    )
    .values(recalled_at=bindparam("at"))
)


def add(tx: Tx, noted: Sequence[PastRecall]) -> None:
    """
    Keep *noted*, and when their memories were last recalled; twice the same does no harm.

    What was asked is kept only where the workspace keeps training rows (D-57).
    """
    taught = training.among(tx, {each.workspace_id for each in noted})
    tx.many(
        _ADD,
        [
            {
                "id": each.id,
                "workspace_id": each.workspace_id,
                "key_id": each.key_id,
                "memory_ids": orjson.dumps(each.memory_ids).decode(),
                "created_at": to_micros(each.created_at),
                "asked": of_question(each.asked) if each.asked is not None and each.workspace_id in taught else None,
            }
            for each in noted
        ],
    )
    last = {(each.workspace_id, memory_id): each.created_at for each in noted for memory_id in each.memory_ids}
    tx.many(
        _SEEN,
        [
            {"workspace": workspace_id, "memory": memory_id, "at": to_micros(at), "day_ago": to_micros(at - _SEEN_AGAIN)}
            for (workspace_id, memory_id), at in last.items()
        ],
    )


def by_id(tx: Tx, workspace_id: int, recall_id: str) -> PastRecall | None:
    """Return a recall of the workspace."""
    row = tx.one(_BY_ID, {"workspace": workspace_id, "recall": recall_id})
    return None if row is None else to_recall(row)


def drop_before(tx: Tx, before: datetime, *, limit: int) -> int:
    """Forget the oldest recalls from before that time, of any workspace; return how many."""
    return tx.run(_FORGET, {"before": to_micros(before), "most": limit})
