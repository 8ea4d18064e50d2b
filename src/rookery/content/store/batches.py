"""Queries of batches."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Text, bindparam, delete, or_, select, update

from rookery.content.models import BatchStatus, GenerationBatch
from rookery.content.store.tables import BATCHES, batches
from rookery.kernel.clock import to_micros
from rookery.kernel.db import KeysetList, Tx, purge_tables
from rookery.kernel.pages import ListPage, PageSlice

_OF_WORKSPACE = batches.c.workspace_id == bindparam("workspace_id")
_IS_ONE = (batches.c.id == bindparam("of_id"), batches.c.workspace_id == bindparam("of_workspace_id"))
_STATUS = bindparam("status", type_=Text())
_HAS_STATUS = or_(
    _STATUS == "", (_STATUS == "running") & batches.c.ended_at.is_(None), (_STATUS == "finished") & batches.c.ended_at.is_not(None)
)
_LIST = KeysetList(select(batches).where(_OF_WORKSPACE, _HAS_STATUS), batches.c.created_at.desc(), batches.c.id.desc())
_CLOSE_SOME = update(batches).where(*_IS_ONE).values(open_count=batches.c.open_count - bindparam("closed"))
_END = update(batches).where(*_IS_ONE, batches.c.open_count <= 0, batches.c.ended_at.is_(None)).values(ended_at=bindparam("at"))
_SELECT_OLD = select(batches.c.id).where(batches.c.ended_at < bindparam("before")).order_by(batches.c.ended_at).limit(bindparam("limit"))
_DELETE = delete(batches).where(batches.c.id.in_(bindparam("ids", expanding=True)))


def list_page(tx: Tx, workspace_id: int, *, page: PageSlice, status: BatchStatus | None = None) -> ListPage[GenerationBatch]:
    """Return a page of a workspace's batches, newest first, and the total; *status* None: no filter."""
    params = {"workspace_id": workspace_id, "status": status or ""}
    return BATCHES.fetch_page(tx, _LIST, page, params)


def close_generations(tx: Tx, workspace_id: int, batch_id: str, count: int, *, at: datetime) -> bool:
    """Count generations of a batch that became final; return True if they were the last ones."""
    params = {"of_id": batch_id, "of_workspace_id": workspace_id}
    tx.execute(_CLOSE_SOME, {**params, "closed": count})
    return tx.execute(_END, {**params, "at": to_micros(at)}) == 1


def delete_old(tx: Tx, *, before: datetime, limit: int) -> int:
    """Delete at most *limit* batches that ended before *before*, oldest first; return the number."""
    ids = [row.text("id") for row in tx.fetch_all(_SELECT_OLD, {"before": to_micros(before), "limit": limit})]
    return tx.execute(_DELETE, {"ids": ids}) if ids else 0


purge = purge_tables(batches)
