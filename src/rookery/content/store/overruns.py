"""Queries of the excess of the costs of calls over their estimates, by model."""

from __future__ import annotations

from datetime import datetime

from rookery.content.models import CostOverrun
from rookery.content.store.tables import OVERRUNS, overruns
from rookery.kernel.db import Tx, purge_tables


def find(tx: Tx, workspace_id: int, model: str, *, since: datetime) -> CostOverrun | None:
    """Return the overrun of a model; None without one at *since* or later."""
    overrun = OVERRUNS.find(tx, workspace_id, model=model)
    return overrun if overrun is not None and overrun.updated_at >= since else None


purge = purge_tables(overruns)
