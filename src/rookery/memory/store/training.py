"""Training rows, and which workspaces keep them (D-57). Rows go with their memory: `records.bury` deletes them."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import cast

from sqlalchemy import and_, bindparam, delete, func, or_, select, update

from rookery.kernel.clock import from_micros, to_micros
from rookery.kernel.db import Row, Tx, upsert
from rookery.memory.past import Lesson, Schooling, Taught, TrainingRow
from rookery.memory.store.rows import to_memory
from rookery.memory.store.tables import memories, recalls, training_rows, training_workspaces

_MEMORY = [column for column in memories.c if column.name not in ("fingerprint", "recalled_at")]
_OWN = [training_rows.c[name] for name in ("recall_id", "verdict", "query", "mode", "place", "semantic_rank", "keyword_rank", "at")]

_AMONG = select(training_workspaces.c.workspace_id).where(training_workspaces.c.workspace_id.in_(bindparam("ids", expanding=True)))
_SINCE = select(training_workspaces.c.since).where(training_workspaces.c.workspace_id == bindparam("workspace"))
_COUNT = select(func.count().label("found")).select_from(training_rows).where(training_rows.c.workspace_id == bindparam("workspace"))
_BEGIN = upsert(training_workspaces, index_elements=["workspace_id"])
_END = delete(training_workspaces).where(training_workspaces.c.workspace_id == bindparam("workspace"))
_UNASK = update(recalls).where(recalls.c.workspace_id == bindparam("workspace"), recalls.c.asked.is_not(None)).values(asked=None)
_FORGET = delete(training_rows).where(training_rows.c.workspace_id == bindparam("workspace"))
_ADD = upsert(training_rows, index_elements=["memory_id", "recall_id"])
_PAGE = (
    select(*_MEMORY, *_OWN)
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


def among(tx: Tx, workspace_ids: Collection[int]) -> set[int]:
    """Return those of *workspace_ids* that keep training rows."""
    if not workspace_ids:
        return set()
    return {row.integer("workspace_id") for row in tx.all(_AMONG, {"ids": sorted(workspace_ids)})}


def schooling(tx: Tx, workspace_id: int) -> Schooling:
    """Return whether the workspace keeps rows, and how many it has."""
    began, count = tx.one(_SINCE, {"workspace": workspace_id}), tx.one(_COUNT, {"workspace": workspace_id})
    return Schooling(
        since=None if began is None else from_micros(began.integer("since")), rows=0 if count is None else count.integer("found")
    )


def begin(tx: Tx, workspace_id: int, *, at: datetime) -> None:
    """Keep rows from now on; a workspace that does already goes on as it is."""
    tx.run(_BEGIN, {"workspace_id": workspace_id, "since": to_micros(at)})


def end(tx: Tx, workspace_id: int) -> None:
    """Keep no more rows, and forget what recalls were asked; the rows that are there stay."""
    tx.run(_END, {"workspace": workspace_id})
    tx.run(_UNASK, {"workspace": workspace_id})


def forget(tx: Tx, workspace_id: int) -> int:
    """Delete the workspace's rows; return how many."""
    return tx.run(_FORGET, {"workspace": workspace_id})


def add(tx: Tx, row: TrainingRow) -> None:
    """Keep *row*, whose memory this transaction holds, so that it cannot outlive it; the first of a memory and a recall stays."""
    tx.run(
        _ADD,
        {
            "memory_id": row.memory_id,
            "recall_id": row.recall_id or "",
            "workspace_id": row.workspace_id,
            "verdict": row.lesson,
            "query": row.query,
            "mode": row.mode,
            "place": row.place,
            "semantic_rank": row.semantic_rank,
            "keyword_rank": row.keyword_rank,
            "at": to_micros(row.at),
        },
    )


def page(tx: Tx, workspace_id: int, *, after: tuple[str, str], limit: int) -> list[Taught]:
    """Return the next rows by memory and recall with their memories, archived ones too."""
    rows = tx.all(_PAGE, {"workspace": workspace_id, "memory": after[0], "recall": after[1], "most": limit})
    return [Taught(row=_to_row(row), memory=to_memory(row)) for row in rows]


def _to_row(row: Row) -> TrainingRow:
    return TrainingRow(
        memory_id=row.text("id"),
        recall_id=row.text("recall_id") or None,
        workspace_id=row.integer("workspace_id"),
        lesson=cast("Lesson", row.text("verdict")),
        query=row.maybe_text("query"),
        mode=row.maybe_text("mode"),
        place=row.maybe_integer("place"),
        semantic_rank=row.maybe_integer("semantic_rank"),
        keyword_rank=row.maybe_integer("keyword_rank"),
        at=from_micros(row.integer("at")),
    )
