"""What else the store knows of a memory that is to leave no trace but its place in a lineage."""

from __future__ import annotations

from sqlalchemy import bindparam, delete

from rookery.kernel.db import Tx
from rookery.memory.store.tables import recall_feedback

_DELETE_FEEDBACK = delete(recall_feedback).where(
    recall_feedback.c.memory_id == bindparam("memory"), recall_feedback.c.workspace_id == bindparam("workspace")
)


def delete_feedback(tx: Tx, workspace_id: int, memory_id: str) -> None:
    """Forget which recalls found the memory of use, and which did not."""
    tx.execute(_DELETE_FEEDBACK, {"workspace": workspace_id, "memory": memory_id})
