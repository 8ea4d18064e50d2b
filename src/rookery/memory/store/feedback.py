"""Feedback on recalled memories, by key and day; kept as long as recalls are."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import and_, bindparam, delete, or_, select

from rookery.kernel.clock import to_micros
from rookery.kernel.db import Tx
from rookery.memory.recall_models import FeedbackVerdict, RecallRecord
from rookery.memory.store.tables import FEEDBACK, StoredFeedback, recall_feedback

_DAY_MICROS = 86_400 * 1_000_000

_EXISTING = (
    select(recall_feedback.c.memory_id)
    .where(
        recall_feedback.c.workspace_id == bindparam("workspace"),
        recall_feedback.c.memory_id == bindparam("memory"),
        or_(
            recall_feedback.c.recall_id == bindparam("recall"),
            and_(recall_feedback.c.key_id == bindparam("key"), recall_feedback.c.day == bindparam("day")),
        ),
    )
    .limit(1)
)
_EXPIRED = (
    select(recall_feedback.c.recall_id, recall_feedback.c.memory_id)
    .where(recall_feedback.c.day < bindparam("before"))
    .limit(bindparam("most"))
)
_DELETE = delete(recall_feedback).where(
    recall_feedback.c.recall_id == bindparam("of_recall"), recall_feedback.c.memory_id == bindparam("of_memory")
)


def add(tx: Tx, recall: RecallRecord, memory_id: str, verdict: FeedbackVerdict, *, key_id: str, at: datetime) -> bool:
    """
    Store feedback. Return whether it counts: the first for the recall and memory, and the first for the key, memory and UTC day.

    The caller must hold the row lock of the memory, so that two transactions cannot both be the first.
    """
    day = to_micros(at) // _DAY_MICROS
    values = {"workspace": recall.workspace_id, "memory": memory_id, "recall": recall.id, "key": key_id, "day": day}
    if tx.fetch_one(_EXISTING, values) is not None:
        return False
    is_used = verdict is FeedbackVerdict.USED
    FEEDBACK.insert(
        tx,
        StoredFeedback(recall_id=recall.id, memory_id=memory_id, workspace_id=recall.workspace_id, key_id=key_id, day=day, used=is_used),
    )
    return True


def delete_before(tx: Tx, before: datetime, *, limit: int) -> int:
    """Delete feedback of days before *before*, of any workspace, at most *limit* rows. Return their number."""
    expired = tx.fetch_all(_EXPIRED, {"before": to_micros(before) // _DAY_MICROS, "most": limit})
    tx.execute_many(_DELETE, [{"of_recall": row.text("recall_id"), "of_memory": row.text("memory_id")} for row in expired])
    return len(expired)
