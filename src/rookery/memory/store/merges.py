"""The merges of memories."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import bindparam, select

from rookery.kernel.db import Tx, upsert
from rookery.memory.merging import Merge
from rookery.memory.store.tables import MERGES, merges

# A memory can be merged again after a restore by other means than `restore`; the newer merge counts.
_ADD = upsert(merges, index_elements=["memory_id"], set_=lambda new: {c.name: new[c.name] for c in merges.c if c.name != "memory_id"})
_UNFINISHED = (
    select(merges.c.primary_id)
    .where(merges.c.workspace_id == bindparam("workspace"), merges.c.is_done == 0, merges.c.primary_id > bindparam("after"))
    .distinct()
    .order_by(merges.c.primary_id)
    .limit(bindparam("most"))
)


def add(tx: Tx, planned_merges: Sequence[Merge]) -> None:
    """Store merges whose memories are yet to be archived."""
    tx.execute_many(_ADD, [MERGES.to_row(merge) for merge in planned_merges])


def list_unfinished(tx: Tx, workspace_id: int, *, after: str, limit: int) -> list[str]:
    """Return the primaries, by id, of merges that are not completed."""
    return [row.text("primary_id") for row in tx.fetch_all(_UNFINISHED, {"workspace": workspace_id, "after": after, "most": limit})]
