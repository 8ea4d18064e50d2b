"""What sessions did to plans, as the events of the plans tell."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import bindparam, func, select

from rookery.agents.store.tables import plan_events
from rookery.kernel.db import Tx

_e = plan_events.c
_COMPLETED_EVENT = "task.completed"
_COMPLETED_COUNTS = (
    select(_e.session_id, func.count().label("number"))
    .where(_e.session_id.in_(bindparam("ids", expanding=True)), _e.workspace_id + 0 == bindparam("workspace"), _e.type == _COMPLETED_EVENT)
    .group_by(_e.session_id)
)


def count_completed_tasks(tx: Tx, workspace_id: int, ids: Sequence[str]) -> dict[str, int]:
    """Return how many tasks were completed in those of *ids* in which any was."""
    found = tx.fetch_all(_COMPLETED_COUNTS, {"workspace": workspace_id, "ids": ids}) if ids else []
    return {row.text("session_id"): row.integer("number") for row in found}
