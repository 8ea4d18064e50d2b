"""Queries for hand-offs. A session has at most one, which is offered until another session takes it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import cast

import orjson
from sqlalchemy import bindparam, select, update

from rookery.agents.models.sessions import Handoff, HandoffOutcome, SessionNotes
from rookery.agents.store.session_tables import handoffs
from rookery.kernel.clock import from_micros, to_micros
from rookery.kernel.db import Row, Tx, Value, upsert

_c = handoffs.c
_CHANGEABLE_COLUMNS = ("plan_id", "agent_id", "notes", "written_at", "taken_by", "taken_at", "taken_how")
_SAVE = upsert(handoffs, index_elements=["session_id"], set_=lambda new: {name: new[name] for name in _CHANGEABLE_COLUMNS})
_BY_SESSION = select(handoffs).where(_c.workspace_id == bindparam("workspace"), _c.session_id == bindparam("session"))
_BY_SESSIONS = select(handoffs).where(_c.workspace_id + 0 == bindparam("workspace"), _c.session_id.in_(bindparam("ids", expanding=True)))
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
    row: dict[str, Value] = {
        "session_id": handoff.session_id,
        "workspace_id": handoff.workspace_id,
        "plan_id": handoff.plan_id,
        "agent_id": handoff.agent_id,
        "notes": orjson.dumps(_notes_to_json(handoff.notes)).decode(),
        "written_at": to_micros(handoff.written_at),
        "taken_by": handoff.taken_by,
        "taken_at": None if handoff.taken_at is None else to_micros(handoff.taken_at),
        "taken_how": None if handoff.taken_how is None else handoff.taken_how.value,
    }
    tx.execute(_SAVE, row)


def find_by_session(tx: Tx, workspace_id: int, session_id: str) -> Handoff | None:
    """Return the hand-off of a session, or None."""
    row = tx.fetch_one(_BY_SESSION, {"workspace": workspace_id, "session": session_id})
    return None if row is None else _from_row(row)


def find_by_sessions(tx: Tx, workspace_id: int, ids: Sequence[str]) -> dict[str, Handoff]:
    """Return the hand-offs of sessions by session id. Sessions without one are left out."""
    rows = tx.fetch_all(_BY_SESSIONS, {"workspace": workspace_id, "ids": ids}) if ids else []
    return {row.text("session_id"): _from_row(row) for row in rows}


def find_pending(tx: Tx, workspace_id: int, plan_id: str) -> Handoff | None:
    """Return the newest hand-off on a plan that no session has taken, or None."""
    row = tx.fetch_one(_PENDING, {"workspace": workspace_id, "plan": plan_id})
    return None if row is None else _from_row(row)


def mark_taken(tx: Tx, workspace_id: int, session_id: str, *, taken_by: str, outcome: HandoffOutcome, at: datetime) -> bool:
    """Mark the hand-off of *session_id* as taken by the session *taken_by*. Return False if it was already taken."""
    params: dict[str, Value] = {"workspace": workspace_id, "session": session_id, "by": taken_by, "at": to_micros(at), "how": outcome.value}
    return tx.execute(_TAKE, params) > 0


def _notes_to_json(notes: SessionNotes) -> dict[str, object]:
    return {
        "summary": notes.summary,
        "completed": notes.completed,
        "remaining": notes.remaining,
        "blockers": notes.blockers,
        "decisions": notes.decisions,
        "next_steps": notes.next_steps,
        "refs": notes.refs,
    }


def _from_row(row: Row) -> Handoff:
    taken_at, how = row.maybe_integer("taken_at"), row.maybe_text("taken_how")
    notes = cast("Mapping[str, object]", orjson.loads(row.text("notes")))

    def lines(name: str) -> tuple[str, ...]:
        return tuple(cast("Sequence[str]", notes[name]))

    return Handoff(
        session_id=row.text("session_id"),
        workspace_id=row.integer("workspace_id"),
        plan_id=row.maybe_text("plan_id"),
        agent_id=row.text("agent_id"),
        notes=SessionNotes(
            summary=cast("str | None", notes["summary"]),
            completed=lines("completed"),
            remaining=lines("remaining"),
            blockers=lines("blockers"),
            decisions=lines("decisions"),
            next_steps=lines("next_steps"),
            refs=cast("Mapping[str, object]", notes["refs"]),
        ),
        written_at=from_micros(row.integer("written_at")),
        taken_by=row.maybe_text("taken_by"),
        taken_at=None if taken_at is None else from_micros(taken_at),
        taken_how=None if how is None else HandoffOutcome(how),
    )
