"""Queries for hand-offs. A session has at most one, which is offered until another session takes it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import bindparam, select, update

from rookery.agents.models.sessions import Handoff, HandoffOutcome
from rookery.agents.store.tables import HANDOFFS, handoffs
from rookery.kernel.clock import to_micros
from rookery.kernel.db import Tx, Value, upsert

_c = handoffs.c
_CHANGEABLE_COLUMNS = ("plan_id", "agent_id", "notes", "written_at", "taken_by", "taken_at", "taken_how")
_SAVE = upsert(handoffs, index_elements=["session_id"], set_=lambda new: {name: new[name] for name in _CHANGEABLE_COLUMNS})
_PENDING = (
    select(handoffs)
    .where(_c.workspace_id + 0 == bindparam("workspace"), _c.plan_id == bindparam("plan"), _c.taken_by.is_(None))
    .order_by(_c.written_at.desc(), _c.session_id.desc())
    .limit(1)
)
_TAKE = (
    update(handoffs)
    .where(_c.workspace_id == bindparam("workspace"), _c.session_id == bindparam("session"), _c.taken_by.is_(None))
    .values(taken_by=bindparam("by"), taken_at=bindparam("at"), taken_how=bindparam("how"))
)


def save(tx: Tx, handoff: Handoff) -> None:
    """Store *handoff*, replacing an earlier one of its session."""
    tx.execute(_SAVE, HANDOFFS.to_row(handoff))


def find_by_sessions(tx: Tx, workspace_id: int, ids: Sequence[str]) -> dict[str, Handoff]:
    """Return the hand-offs of sessions by session id. Sessions without one are left out."""
    if not ids:
        return {}
    return {handoff.session_id: handoff for handoff in HANDOFFS.find_all(tx, workspace_id, session_id=ids)}


def find_pending(tx: Tx, workspace_id: int, plan_id: str) -> Handoff | None:
    """Return the newest hand-off on a plan that no session has taken, or None."""
    return HANDOFFS.fetch_one(tx, _PENDING, {"workspace": workspace_id, "plan": plan_id})


def mark_taken(tx: Tx, workspace_id: int, session_id: str, *, taken_by: str, outcome: HandoffOutcome, at: datetime) -> bool:
    """Mark the hand-off of *session_id* as taken by the session *taken_by*. Return False if it was already taken."""
    params: dict[str, Value] = {"workspace": workspace_id, "session": session_id, "by": taken_by, "at": to_micros(at), "how": outcome.value}
    return tx.execute(_TAKE, params) > 0
