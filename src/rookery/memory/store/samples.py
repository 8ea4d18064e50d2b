"""Queries for a sample of a workspace's memories, spread evenly over their times."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import BigInteger, bindparam, func, select

from rookery.kernel.db import Tx, fetch_count
from rookery.memory.store.tables import memories

_IN_WORKSPACE = memories.c.workspace_id == bindparam("workspace")
_FIRST = select(memories.c.id).where(_IN_WORKSPACE).order_by(memories.c.created_at, memories.c.id).limit(bindparam("most"))
_COUNT = select(func.count()).select_from(memories).where(_IN_WORKSPACE)
_numbered = (
    select(memories.c.id, func.row_number().over(order_by=(memories.c.created_at, memories.c.id)).label("number"))
    .where(_IN_WORKSPACE)
    .subquery()
)
_size, _total = bindparam("size", type_=BigInteger), bindparam("total", type_=BigInteger)
_number = _numbered.c.number
# Of memory 1 to `total`, those at which number × size / total, rounded down, rises by one.
_SAMPLE = select(_numbered.c.id).where((_number * _size) // _total > ((_number - 1) * _size) // _total, _number <= _total)


def list_first_ids(tx: Tx, workspace_id: int, *, limit: int) -> Sequence[str]:
    """Return the ids of the oldest memories of the workspace, archived ones too."""
    return [row.text("id") for row in tx.fetch_all(_FIRST, {"workspace": workspace_id, "most": limit})]


def sample_ids(tx: Tx, workspace_id: int, *, size: int) -> Sequence[str]:
    """Return *size* ids of the workspace, or fewer if it has fewer, archived ones too. The same workspace gives the same ids."""
    total = fetch_count(tx, _COUNT, {"workspace": workspace_id})
    values = {"workspace": workspace_id, "size": min(size, total), "total": max(total, 1)}
    return [row.text("id") for row in tx.fetch_all(_SAMPLE, values)]
