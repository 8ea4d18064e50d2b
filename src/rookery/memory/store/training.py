"""Training examples, and the workspaces that record them. `records.delete_memory` deletes the examples of a memory."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

from sqlalchemy import and_, bindparam, or_, select, update

from rookery.kernel.clock import to_micros
from rookery.kernel.db import Tx, upsert
from rookery.memory.recall_models import LabelledMemory, TrainingExample, TrainingStatus
from rookery.memory.store.tables import (
    MEMORIES,
    TRAINING_EXAMPLES,
    TRAINING_WORKSPACES,
    memories,
    recalls,
    training_rows,
    training_workspaces,
)

_ENABLED = select(training_workspaces.c.workspace_id).where(training_workspaces.c.workspace_id.in_(bindparam("ids", expanding=True)))
_ENABLE = upsert(training_workspaces, index_elements=["workspace_id"])
_CLEAR_QUERIES = update(recalls).where(recalls.c.workspace_id == bindparam("workspace"), recalls.c.asked.is_not(None)).values(asked=None)
_ADD = upsert(training_rows, index_elements=["memory_id", "recall_id"])
_PAGE = (
    select(*MEMORIES.columns, *TRAINING_EXAMPLES.columns)
    .select_from(
        training_rows.join(
            memories, and_(memories.c.id == training_rows.c.memory_id, memories.c.workspace_id == training_rows.c.workspace_id)
        )
    )
    .where(
        training_rows.c.workspace_id == bindparam("workspace"),
        or_(
            training_rows.c.memory_id > bindparam("memory"),
            and_(training_rows.c.memory_id == bindparam("memory"), training_rows.c.recall_id > bindparam("recall")),
        ),
    )
    .order_by(training_rows.c.memory_id, training_rows.c.recall_id)
    .limit(bindparam("most"))
)


def filter_enabled(tx: Tx, workspace_ids: Collection[int]) -> set[int]:
    """Return those of *workspace_ids* that record training examples."""
    if not workspace_ids:
        return set()
    return {row.integer("workspace_id") for row in tx.fetch_all(_ENABLED, {"ids": sorted(workspace_ids)})}


def get_status(tx: Tx, workspace_id: int) -> TrainingStatus:
    """Return the training settings of the workspace and its number of examples."""
    setting = TRAINING_WORKSPACES.find(tx, workspace_id)
    return TrainingStatus(enabled_since=None if setting is None else setting.since, example_count=TRAINING_EXAMPLES.count(tx, workspace_id))


def enable(tx: Tx, workspace_id: int, *, at: datetime) -> None:
    """Start recording examples. Idempotent: the first start time stays."""
    tx.execute(_ENABLE, {"workspace_id": workspace_id, "since": to_micros(at)})


def disable(tx: Tx, workspace_id: int) -> None:
    """Stop recording examples, and delete the queries of stored recalls. Existing examples stay."""
    TRAINING_WORKSPACES.delete(tx, workspace_id)
    tx.execute(_CLEAR_QUERIES, {"workspace": workspace_id})


def add(tx: Tx, example: TrainingExample) -> None:
    """Store *example* unless the memory and recall have one. The caller must hold the row lock of the memory."""
    tx.execute(_ADD, TRAINING_EXAMPLES.to_row(example))


def list_examples(tx: Tx, workspace_id: int, *, after: tuple[str, str], limit: int) -> list[LabelledMemory]:
    """Return the next examples by memory and recall, with their memories, archived ones too."""
    rows = tx.fetch_all(_PAGE, {"workspace": workspace_id, "memory": after[0], "recall": after[1], "most": limit})
    return [LabelledMemory(example=TRAINING_EXAMPLES.from_row(row), memory=MEMORIES.from_row(row)) for row in rows]
