"""The sessions of coding agents by the ids of their clients, and what hooks have already done in them."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple, cast

from sqlalchemy import BigInteger, Column, ColumnElement, Index, Table, Text, and_, bindparam, case, delete, select, update

from rookery.agents.models.sessions import AgentSession
from rookery.agents.store.tables import SESSIONS, sessions
from rookery.kernel.clock import from_micros, to_micros
from rookery.kernel.db import Tx, metadata, upsert

client_sessions = Table(
    "agent_client_sessions",
    metadata,
    Column("workspace_id", BigInteger, primary_key=True, autoincrement=False),
    Column("client_session", Text, primary_key=True),
    Column("session_id", Text, nullable=False),
    Column("used_at", BigInteger, nullable=False),
    Column("holder", Text),
    Column("turn_started_at", BigInteger),
    sqlite_with_rowid=False,
)
Index("ix_agent_client_sessions_used_at", client_sessions.c.used_at)
Index("ix_agent_client_sessions_holder", client_sessions.c.workspace_id, client_sessions.c.holder, client_sessions.c.used_at)

hook_marks = Table(
    "agent_hook_marks",
    metadata,
    Column("workspace_id", BigInteger, primary_key=True, autoincrement=False),
    Column("client_session", Text, primary_key=True),
    Column("kind", Text, primary_key=True),
    Column("mark", Text, primary_key=True),
    Column("created_at", BigInteger, nullable=False),
    sqlite_with_rowid=False,
)
Index("ix_agent_hook_marks_created_at", hook_marks.c.created_at)

START, PROMPT, STOP, MEMORY = "start", "prompt", "stop", "memory"
"""The kinds of marks: the source and client of a start, the turn of a prompt, the turn of a stop, and the id of a memory that was given."""

EVENT_KINDS = (START, PROMPT, STOP)
"""The kinds of marks that stand for events. Their time is that of the last such event."""

_s, _m = client_sessions.c, hook_marks.c
_OF_SESSION = (_s.workspace_id == bindparam("workspace"), _s.client_session == bindparam("client"))
_FIND = select(_s.session_id).where(*_OF_SESSION)
_LOCK = _FIND.with_for_update()
_ADD = upsert(client_sessions, index_elements=["workspace_id", "client_session"], returning=[cast("ColumnElement[object]", _s.session_id)])
_SET = update(client_sessions).where(*_OF_SESSION).values(session_id=bindparam("session"), used_at=bindparam("at"))
_RECORD_EVENT = (
    update(client_sessions)
    .where(*_OF_SESSION)
    .values(holder=bindparam("by"), used_at=bindparam("at"), turn_started_at=bindparam("turn_at", type_=BigInteger()))
)
_HAS_TURN = _s.turn_started_at.is_not(None)
_FIND_ACTIVE = (
    select(*sessions.c)
    .join(client_sessions, and_(_s.session_id == sessions.c.id, _s.workspace_id == sessions.c.workspace_id))
    .where(_s.workspace_id == bindparam("workspace"), _s.holder == bindparam("by"), sessions.c.ended_at.is_(None))
    .order_by(case((_HAS_TURN, 0), else_=1), case((_HAS_TURN, _s.turn_started_at), else_=_s.used_at).desc(), _s.session_id.desc())
    .limit(1)
)
_MARK_KEY = ["workspace_id", "client_session", "kind", "mark"]
_SAVE_MARK = upsert(hook_marks, index_elements=_MARK_KEY, set_=lambda new: {"created_at": new["created_at"]})
_OF_KIND = (_m.workspace_id == bindparam("workspace"), _m.client_session == bindparam("client"), _m.kind == bindparam("of_kind"))
_MARKS = select(_m.mark).where(*_OF_KIND)
_EVENTS_SINCE = select(_m.kind, _m.mark, _m.created_at).where(
    _m.workspace_id == bindparam("workspace"),
    _m.client_session == bindparam("client"),
    _m.kind.in_(EVENT_KINDS),
    _m.created_at > bindparam("after"),
)
_DELETE_MARKS = delete(hook_marks).where(*_OF_KIND)
_DELETE_UNUSED = delete(client_sessions).where(_s.used_at < bindparam("before"))
_DELETE_OLD_MARKS = delete(hook_marks).where(_m.created_at < bindparam("before"))


class HookEventMark(NamedTuple):
    """An event of a client's session, and the time of the last one with this mark."""

    kind: str
    mark: str
    at: datetime


def find_session_id(tx: Tx, workspace_id: int, client_session: str, *, lock: bool = False) -> str | None:
    """Return the id of the agent session of a client's session, or None. *lock* keeps others waiting until this transaction ends."""
    row = tx.fetch_one(_LOCK if lock else _FIND, {"workspace": workspace_id, "client": client_session})
    return None if row is None else row.text("session_id")


def add_client_session(tx: Tx, workspace_id: int, client_session: str, *, at: datetime) -> bool:
    """Add a client's session that has no agent session yet, and lock it. Return False if it exists; a concurrent one is waited for."""
    row = {"workspace_id": workspace_id, "client_session": client_session, "session_id": "", "used_at": to_micros(at)}
    return tx.fetch_one(_ADD, row) is not None


def set_session_id(tx: Tx, workspace_id: int, client_session: str, session_id: str, *, at: datetime) -> None:
    """Store the agent session of a client's session, and the time of its last use."""
    tx.execute(_SET, {"workspace": workspace_id, "client": client_session, "session": session_id, "at": to_micros(at)})


def record_event(tx: Tx, workspace_id: int, client_session: str, holder: str, *, has_turn: bool, at: datetime) -> None:
    """
    Store the time of the last event of a client's session.

    Args:
        holder: The agent or the key that works in it.
        has_turn: The agent works on a prompt from now on.
    """
    now = to_micros(at)
    params = {"workspace": workspace_id, "client": client_session, "by": holder, "at": now, "turn_at": now if has_turn else None}
    tx.execute(_RECORD_EVENT, params)


def find_active_session(tx: Tx, workspace_id: int, holder: str) -> AgentSession | None:
    """Return the open session in which *holder* works on the newest prompt, or else the one with the newest event, or None."""
    return SESSIONS.fetch_one(tx, _FIND_ACTIVE, {"workspace": workspace_id, "by": holder})


def save_mark(tx: Tx, workspace_id: int, client_session: str, kind: str, mark: str, *, at: datetime) -> None:
    """Store a mark, or the time *at* if it exists."""
    row = {"workspace_id": workspace_id, "client_session": client_session, "kind": kind, "mark": mark, "created_at": to_micros(at)}
    tx.execute(_SAVE_MARK, row)


def list_marks(tx: Tx, workspace_id: int, client_session: str, kind: str) -> set[str]:
    rows = tx.fetch_all(_MARKS, {"workspace": workspace_id, "client": client_session, "of_kind": kind})
    return {row.text("mark") for row in rows}


def list_events(tx: Tx, workspace_id: int, client_session: str, *, after: datetime) -> list[HookEventMark]:
    """Return the marks of the events later than *after*."""
    rows = tx.fetch_all(_EVENTS_SINCE, {"workspace": workspace_id, "client": client_session, "after": to_micros(after)})
    return [HookEventMark(row.text("kind"), row.text("mark"), from_micros(row.integer("created_at"))) for row in rows]


def delete_marks(tx: Tx, workspace_id: int, client_session: str, kind: str) -> None:
    tx.execute(_DELETE_MARKS, {"workspace": workspace_id, "client": client_session, "of_kind": kind})


def delete_unused(tx: Tx, before: datetime) -> int:
    """Delete the client sessions of all workspaces that were last used before this time, and older marks. Return the number of rows."""
    params = {"before": to_micros(before)}
    return tx.execute(_DELETE_UNUSED, params) + tx.execute(_DELETE_OLD_MARKS, params)
