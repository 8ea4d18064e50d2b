"""Queries for a sample of a workspace's memories, spread evenly over their times."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import BigInteger, and_, bindparam, func, select

from rookery.kernel.db import Tx, fetch_count
from rookery.memory.models import AccessFilter, MapGrouping
from rookery.memory.store.queries import visibility_condition
from rookery.memory.store.tables import MEMORIES, memories

_EXCERPT_CHARS = 240
_IN_WORKSPACE = memories.c.workspace_id == bindparam("workspace")
_FIRST = select(memories.c.id).where(_IN_WORKSPACE).order_by(memories.c.created_at, memories.c.id).limit(bindparam("most"))
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
    total = MEMORIES.count(tx, workspace_id)
    values = {"workspace": workspace_id, "size": min(size, total), "total": max(total, 1)}
    return [row.text("id") for row in tx.fetch_all(_SAMPLE, values)]


@dataclass(frozen=True, slots=True, kw_only=True)
class MapRow:
    """A memory on a map: its group, and the start of its content. *updated_at* and *indexed_at* are in microseconds."""

    id: str
    group: str | None
    excerpt: str
    updated_at: int
    indexed_at: int | None


def sample_map(tx: Tx, access_filter: AccessFilter, *, by: MapGrouping, size: int) -> tuple[int, list[MapRow]]:
    """
    Return the number of live memories that *access_filter* allows, and at most *size* of them.

    The sample is stratified: it takes memories at equal distances of a list by group and time, so that each group and each time has its
    share.
    """
    c = memories.c
    column = c.project if by == "project" else c.type
    condition = and_(visibility_condition(access_filter), c.archived_at.is_(None))
    total = fetch_count(tx, select(func.count()).select_from(memories).where(condition))
    numbered = select(c.id, func.row_number().over(order_by=(column, c.created_at, c.id)).label("number")).where(condition).subquery()
    number = numbered.c.number
    sampled_ids = select(numbered.c.id).where((number * size) // max(total, size) > ((number - 1) * size) // max(total, size))
    statement = (
        select(c.id, column.label("name"), func.substr(c.content, 1, _EXCERPT_CHARS).label("excerpt"), c.updated_at, c.indexed_at)
        .where(c.workspace_id == access_filter.workspace_id, c.id.in_(sampled_ids))
        .order_by(c.id)
        .limit(size)
    )
    rows = [
        MapRow(
            id=row.text("id"),
            group=row.maybe_text("name"),
            excerpt=row.text("excerpt"),
            updated_at=row.integer("updated_at"),
            indexed_at=row.maybe_integer("indexed_at"),
        )
        for row in tx.fetch_all(statement)
    ]
    return total, rows
