"""Queries of the excess of the costs of calls over their estimates, by model."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import bindparam, select

from rookery.content.models import CostOverrun
from rookery.content.store.tables import OVERRUNS, overruns
from rookery.kernel.clock import to_micros
from rookery.kernel.db import Tx, purge_tables, upsert

_SELECT = select(overruns).where(
    overruns.c.workspace_id == bindparam("of_workspace"),
    overruns.c.model == bindparam("of_model"),
    overruns.c.updated_at >= bindparam("since"),
)
_SET = upsert(
    overruns,
    index_elements=["workspace_id", "model"],
    set_=lambda new: {name: new[name] for name in ("factor_millis", "extra_nanos", "updated_at")},
)


def find(tx: Tx, workspace_id: int, model: str, *, since: datetime) -> CostOverrun | None:
    """Return the overrun of a model; None without one at *since* or later."""
    return OVERRUNS.fetch_one(tx, _SELECT, {"of_workspace": workspace_id, "of_model": model, "since": to_micros(since)})


def put(tx: Tx, overrun: CostOverrun) -> None:
    """Store the overrun of a model."""
    tx.execute(_SET, OVERRUNS.to_row(overrun))


purge = purge_tables(overruns)
