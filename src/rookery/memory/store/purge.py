"""Deletion of all memory rows of a workspace."""

from __future__ import annotations

from sqlalchemy import bindparam, select

from rookery.kernel.db import Tx, purge_tables
from rookery.memory.store.tables import (
    active_models,
    memories,
    memory_labels,
    memory_tags,
    merges,
    recall_feedback,
    recall_log_exclusions,
    recalls,
    runs,
    tombstones,
    training_rows,
    training_workspaces,
    vector_sets,
)

_IDS = select(memories.c.id).where(memories.c.workspace_id == bindparam("of_workspace"))
_delete_rows = purge_tables(
    memory_tags,
    memory_labels,
    tombstones,
    recall_feedback,
    recalls,
    recall_log_exclusions,
    merges,
    runs,
    training_rows,
    training_workspaces,
    active_models,
    vector_sets,
    memories,
)


def purge_workspace(tx: Tx, workspace_id: int) -> tuple[list[str], int]:
    """Delete every row of *workspace_id*. Return the ids of its memories, which the indexes still hold, and the number of rows."""
    ids = [row.text("id") for row in tx.fetch_all(_IDS, {"of_workspace": workspace_id})]
    return ids, _delete_rows(tx, workspace_id)
