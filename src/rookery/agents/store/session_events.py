"""Queries for session events. Rows are inserted and read, never updated."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import orjson
from sqlalchemy import and_, bindparam, func, insert, select

from rookery.agents.models.sessions import SessionEvent, SessionEventType
from rookery.agents.store.session_tables import session_events, sessions
from rookery.kernel.clock import from_micros, to_micros
from rookery.kernel.db import Row, Tx, Value

_c = session_events.c
_ADD = insert(session_events)
_OF_SESSION = and_(_c.session_id == bindparam("session"), _c.workspace_id + 0 == bindparam("workspace"))
_AFTER = (
    select(session_events)
    .where(_OF_SESSION, _c.seq > bindparam("after"))
    .order_by(_c.seq)
    .limit(bindparam("most"))
    .offset(bindparam("skip"))
)
_COUNT = select(func.count().label("found")).select_from(session_events).where(_OF_SESSION, _c.seq > bindparam("after"))
_AFTER_OF_TYPE = (
    select(session_events)
    .where(_OF_SESSION, _c.seq > bindparam("after"), _c.type == bindparam("kind"))
    .order_by(_c.seq)
    .limit(bindparam("most"))
    .offset(bindparam("skip"))
)
_COUNT_OF_TYPE = (
    select(func.count().label("found"))
    .select_from(session_events)
    .where(_OF_SESSION, _c.seq > bindparam("after"), _c.type == bindparam("kind"))
)
_LAST_CHECKPOINT = select(session_events).where(_OF_SESSION, _c.state.is_not(None)).order_by(_c.seq.desc()).limit(1)
_LAST_PLAN_CHECKPOINT = (
    select(session_events)
    .select_from(sessions)
    .join(session_events, _c.session_id == sessions.c.id)
    .where(sessions.c.plan_id == bindparam("plan"), sessions.c.workspace_id + 0 == bindparam("workspace"), _c.state.is_not(None))
    .order_by(_c.created_at.desc(), _c.session_id.desc(), _c.seq.desc())
    .limit(1)
)


def add(tx: Tx, event: SessionEvent) -> None:
    """Store *event*. Its seq must come from `sessions.reserve_event` in this transaction."""
    row: dict[str, Value] = {
        "session_id": event.session_id,
        "workspace_id": event.workspace_id,
        "seq": event.seq,
        "type": event.type.value,
        "message": event.message,
        "data": orjson.dumps(event.data).decode(),
        "state": None if event.state is None else orjson.dumps(event.state).decode(),
        "task_id": event.task_id,
        "tokens_in": event.tokens_in,
        "tokens_out": event.tokens_out,
        "created_at": to_micros(event.created_at),
    }
    tx.execute(_ADD, row)


def list_after(tx: Tx, workspace_id: int, session_id: str, seq: int, *, limit: int, offset: int = 0) -> list[SessionEvent]:
    """Return at most *limit* events with a greater seq than *seq*, in order, skipping the first *offset*."""
    params: dict[str, Value] = {"workspace": workspace_id, "session": session_id, "after": seq, "most": limit, "skip": offset}
    return [from_row(row) for row in tx.fetch_all(_AFTER, params)]


def list_page(
    tx: Tx, workspace_id: int, session_id: str, seq: int, kind: SessionEventType | None, *, limit: int, offset: int
) -> tuple[list[SessionEvent], int]:
    """Return a page of the events with a greater seq than *seq*, in order, and their total count. A *kind* of None matches all types."""
    params: dict[str, Value] = {"workspace": workspace_id, "session": session_id, "after": seq}
    if kind is not None:
        params["kind"] = kind.value
    rows = tx.fetch_all(_AFTER if kind is None else _AFTER_OF_TYPE, {**params, "most": limit, "skip": offset})
    total = tx.fetch_one(_COUNT if kind is None else _COUNT_OF_TYPE, params)
    return [from_row(row) for row in rows], 0 if total is None else total.integer("found")


def find_last_checkpoint(tx: Tx, workspace_id: int, session_id: str) -> SessionEvent | None:
    """Return the last checkpoint of a session, or None."""
    row = tx.fetch_one(_LAST_CHECKPOINT, {"workspace": workspace_id, "session": session_id})
    return None if row is None else from_row(row)


def find_last_plan_checkpoint(tx: Tx, workspace_id: int, plan_id: str) -> SessionEvent | None:
    """Return the last checkpoint of all sessions on a plan, or None."""
    row = tx.fetch_one(_LAST_PLAN_CHECKPOINT, {"workspace": workspace_id, "plan": plan_id})
    return None if row is None else from_row(row)


def from_row(row: Row) -> SessionEvent:
    """Return the event of a complete row."""
    state = row.maybe_text("state")
    return SessionEvent(
        session_id=row.text("session_id"),
        workspace_id=row.integer("workspace_id"),
        seq=row.integer("seq"),
        type=SessionEventType(row.text("type")),
        message=row.text("message"),
        data=_parse_json_object(row.text("data")),
        state=None if state is None else _parse_json_object(state),
        task_id=row.maybe_text("task_id"),
        tokens_in=row.integer("tokens_in"),
        tokens_out=row.integer("tokens_out"),
        created_at=from_micros(row.integer("created_at")),
    )


def _parse_json_object(text: str) -> Mapping[str, object]:
    return cast("Mapping[str, object]", orjson.loads(text))
