"""Queries for session events. Rows are inserted and read, never updated."""

from __future__ import annotations

from sqlalchemy import and_, bindparam, select

from rookery.agents.models.sessions import SessionEvent, SessionEventType
from rookery.agents.store.tables import SESSION_EVENTS, session_events, sessions
from rookery.kernel.db import KeysetList, Tx, Value
from rookery.kernel.pages import ListPage, PageSlice

_c = session_events.c
_OF_SESSION = and_(_c.session_id == bindparam("session"), _c.workspace_id + 0 == bindparam("workspace"))
_EVENTS = select(session_events).where(_OF_SESSION, _c.seq > bindparam("after"))
_EVENTS_OF_TYPE = _EVENTS.where(_c.type == bindparam("kind"))
_LIST, _LIST_OF_TYPE = (KeysetList(events, _c.seq) for events in (_EVENTS, _EVENTS_OF_TYPE))
_AFTER = _EVENTS.order_by(_c.seq).limit(bindparam("most")).offset(bindparam("skip"))
_LAST_OF_TYPE = select(session_events).where(_OF_SESSION, _c.type == bindparam("kind")).order_by(_c.seq.desc()).limit(1)
_LAST_CHECKPOINT = select(session_events).where(_OF_SESSION, _c.state.is_not(None)).order_by(_c.seq.desc()).limit(1)
_LAST_PLAN_CHECKPOINT = (
    select(session_events)
    .select_from(sessions)
    .join(session_events, _c.session_id == sessions.c.id)
    .where(sessions.c.plan_id == bindparam("plan"), sessions.c.workspace_id + 0 == bindparam("workspace"), _c.state.is_not(None))
    .order_by(_c.created_at.desc(), _c.session_id.desc(), _c.seq.desc())
    .limit(1)
)


def list_after(tx: Tx, workspace_id: int, session_id: str, seq: int, *, limit: int, offset: int = 0) -> list[SessionEvent]:
    """Return at most *limit* events with a greater seq than *seq*, in order, skipping the first *offset*."""
    params: dict[str, Value] = {"workspace": workspace_id, "session": session_id, "after": seq, "most": limit, "skip": offset}
    return SESSION_EVENTS.fetch_all(tx, _AFTER, params)


def list_page(
    tx: Tx, workspace_id: int, session_id: str, seq: int, kind: SessionEventType | None, *, page: PageSlice
) -> ListPage[SessionEvent]:
    """Return a page of the events with a greater seq than *seq*, in order, and their total count. A *kind* of None matches all types."""
    params: dict[str, Value] = {"workspace": workspace_id, "session": session_id, "after": seq}
    if kind is not None:
        params["kind"] = kind.value
    return SESSION_EVENTS.fetch_page(tx, _LIST if kind is None else _LIST_OF_TYPE, page, params)


def find_last_checkpoint(tx: Tx, workspace_id: int, session_id: str) -> SessionEvent | None:
    """Return the last checkpoint of a session, or None."""
    return SESSION_EVENTS.fetch_one(tx, _LAST_CHECKPOINT, {"workspace": workspace_id, "session": session_id})


def find_last_of_type(tx: Tx, workspace_id: int, session_id: str, kind: SessionEventType) -> SessionEvent | None:
    """Return the last event of a type in a session, or None."""
    return SESSION_EVENTS.fetch_one(tx, _LAST_OF_TYPE, {"workspace": workspace_id, "session": session_id, "kind": kind.value})


def find_last_plan_checkpoint(tx: Tx, workspace_id: int, plan_id: str) -> SessionEvent | None:
    """Return the last checkpoint of all sessions on a plan, or None."""
    return SESSION_EVENTS.fetch_one(tx, _LAST_PLAN_CHECKPOINT, {"workspace": workspace_id, "plan": plan_id})
