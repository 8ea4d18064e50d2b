"""Recalls, kept for feedback and for the log of recalls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from sqlalchemy import bindparam, delete, or_, select, update

from rookery.kernel.clock import to_micros
from rookery.kernel.db import Tx, upsert
from rookery.memory.recall_models import RecallRecord
from rookery.memory.store import recall_log, training
from rookery.memory.store.tables import RECALLS, memories, recalls

_RECALLED_AT_INTERVAL = timedelta(days=1)
"""Minimum interval between two updates of a memory's `recalled_at`."""

_ADD = upsert(recalls, index_elements=["id"])
_EXPIRED = select(recalls.c.id).where(recalls.c.created_at < bindparam("before")).order_by(recalls.c.created_at).limit(bindparam("most"))
_DELETE = delete(recalls).where(recalls.c.id.in_(_EXPIRED))
_MARK_RECALLED = (
    update(memories)
    .where(
        memories.c.workspace_id == bindparam("workspace"),
        memories.c.id == bindparam("memory"),
        or_(memories.c.recalled_at.is_(None), memories.c.recalled_at < bindparam("day_ago")),
    )
    .values(recalled_at=bindparam("at"))
)


def add(tx: Tx, recalls_to_add: Sequence[RecallRecord]) -> None:
    """
    Store *recalls_to_add*, and the time of recall of their memories. Idempotent.

    The query is stored only if the workspace records training examples, and the request only if it keeps a log of recalls.
    """
    enabled = training.filter_enabled(tx, {recall.workspace_id for recall in recalls_to_add})
    excluded = recall_log.filter_excluded(tx, {recall.workspace_id for recall in recalls_to_add})
    rows = [recall if recall.workspace_id in enabled else replace(recall, query_record=None) for recall in recalls_to_add]
    tx.execute_many(_ADD, [RECALLS.to_row(_remove_request(recall) if recall.workspace_id in excluded else recall) for recall in rows])
    last = {(recall.workspace_id, memory_id): recall.created_at for recall in recalls_to_add for memory_id in recall.memory_ids}
    tx.execute_many(
        _MARK_RECALLED,
        [
            {"workspace": workspace_id, "memory": memory_id, "at": to_micros(at), "day_ago": to_micros(at - _RECALLED_AT_INTERVAL)}
            for (workspace_id, memory_id), at in last.items()
        ],
    )


def _remove_request(recall: RecallRecord) -> RecallRecord:
    return replace(recall, request=None, org=None, project=None, agent_id=None, session_id=None)


def delete_before(tx: Tx, before: datetime, *, limit: int) -> int:
    """Delete the oldest recalls from before that time, of any workspace. Return their number."""
    return tx.execute(_DELETE, {"before": to_micros(before), "most": limit})
