"""The merges of memories."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import bindparam, delete, select, update

from rookery.kernel.db import Tx, upsert
from rookery.memory.merging import Merge
from rookery.memory.store.tables import MERGES, merges

_IS_MEMORY = (merges.c.workspace_id == bindparam("workspace"), merges.c.memory_id == bindparam("memory"))
# A memory can be merged again after a restore by other means than `restore`; the newer merge counts.
_ADD = upsert(merges, index_elements=["memory_id"], set_=lambda new: {c.name: new[c.name] for c in merges.c if c.name != "memory_id"})
_GET = select(merges).where(*_IS_MEMORY)
_MERGED_INTO = (
    select(merges)
    .where(merges.c.workspace_id == bindparam("workspace"), merges.c.primary_id == bindparam("kept"))
    .order_by(merges.c.memory_id)
)
_UNFINISHED = (
    select(merges.c.primary_id)
    .where(merges.c.workspace_id == bindparam("workspace"), merges.c.is_done == 0)
    .distinct()
    .order_by(merges.c.primary_id)
    .limit(bindparam("most"))
)
_UNFINISHED_AFTER = _UNFINISHED.where(merges.c.primary_id > bindparam("after"))
_MARK_DONE = update(merges).where(*_IS_MEMORY).values(is_done=1)
_DELETE = delete(merges).where(*_IS_MEMORY)


def add(tx: Tx, planned_merges: Sequence[Merge]) -> None:
    """Store merges whose memories are yet to be archived."""
    tx.execute_many(_ADD, [MERGES.to_row(merge) for merge in planned_merges])


def get_merge(tx: Tx, workspace_id: int, memory_id: str) -> Merge | None:
    """Return the merge of the memory, if it was merged."""
    return MERGES.fetch_one(tx, _GET, {"workspace": workspace_id, "memory": memory_id})


def list_merged_into(tx: Tx, workspace_id: int, primary_id: str) -> list[Merge]:
    """Return the completed and pending merges into the memory, by id."""
    return MERGES.fetch_all(tx, _MERGED_INTO, {"workspace": workspace_id, "kept": primary_id})


def list_unfinished(tx: Tx, workspace_id: int, *, after: str, limit: int) -> list[str]:
    """Return the primaries, by id, of merges that are not completed."""
    return [row.text("primary_id") for row in tx.fetch_all(_UNFINISHED_AFTER, {"workspace": workspace_id, "after": after, "most": limit})]


def mark_done(tx: Tx, merge: Merge) -> None:
    """Mark the merge as completed: the merged memory is archived."""
    tx.execute(_MARK_DONE, {"workspace": merge.workspace_id, "memory": merge.memory_id})


def delete_merge(tx: Tx, merge: Merge) -> None:
    """Delete a merge that was reverted."""
    tx.execute(_DELETE, {"workspace": merge.workspace_id, "memory": merge.memory_id})
