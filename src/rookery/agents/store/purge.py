"""Deletion of all plans and sessions of a workspace."""

from __future__ import annotations

from sqlalchemy import bindparam, delete, select

from rookery.agents.store.hooks import client_sessions, hook_marks
from rookery.agents.store.repositories import project_names, repositories
from rookery.agents.store.tables import checkpoints, dependencies, handoffs, phases, plan_events, plans, session_events, sessions, tasks
from rookery.kernel.db import Tx

_PLAN_IDS = select(plans.c.id).where(plans.c.workspace_id == bindparam("of_workspace"))
_DELETES = [
    *(delete(table).where(table.c.plan_id.in_(_PLAN_IDS)) for table in (plan_events, checkpoints, dependencies, tasks, phases)),
    *(
        delete(table).where(table.c.workspace_id == bindparam("of_workspace"))
        for table in (plans, session_events, handoffs, sessions, client_sessions, hook_marks, repositories, project_names)
    ),
]


def purge(tx: Tx, workspace_id: int) -> int:
    """Delete all plans and sessions of the workspace with their contents. Return the number of deleted rows."""
    return sum(tx.execute(statement, {"of_workspace": workspace_id}) for statement in _DELETES)
