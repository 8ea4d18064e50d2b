"""
The sessions of coding agents by the ids of their clients, and what hooks have already done in them (D-93).

`migrations/versions/0031_agent_hooks.py` creates the same tables.
"""

from __future__ import annotations

from datetime import datetime
from typing import cast

from sqlalchemy import BigInteger, Column, ColumnElement, Index, Table, Text, bindparam, delete, func, select, update

from rookery.kernel.clock import to_micros
from rookery.kernel.db import Tx, fetch_count, metadata, upsert

client_sessions = Table(
    "agent_client_sessions",
    metadata,
    Column("workspace_id", BigInteger, primary_key=True, autoincrement=False),
    Column("client_session", Text, primary_key=True),
    Column("session_id", Text, nullable=False),
    Column("used_at", BigInteger, nullable=False),
    sqlite_with_rowid=False,
)
Index("ix_agent_client_sessions_used_at", client_sessions.c.used_at)

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
"""The kinds of marks: the source of a start, the turn of a prompt, the turn of a stop, and the id of a memory that was given."""

_s, _m = client_sessions.c, hook_marks.c
_OF_SESSION = (_s.workspace_id == bindparam("workspace"), _s.client_session == bindparam("client"))
_FIND = select(_s.session_id).where(*_OF_SESSION)
_LOCK = _FIND.with_for_update()
_ADD = upsert(client_sessions, index_elements=["workspace_id", "client_session"], returning=[cast("ColumnElement[object]", _s.session_id)])
_SET = update(client_sessions).where(*_OF_SESSION).values(session_id=bindparam("session"), used_at=bindparam("at"))
_ADD_MARK = upsert(
    hook_marks,
    index_elements=["workspace_id", "client_session", "kind", "mark"],
    returning=[cast("ColumnElement[object]", _m.mark)],
)
_OF_KIND = (_m.workspace_id == bindparam("workspace"), _m.client_session == bindparam("client"), _m.kind == bindparam("of_kind"))
_MARKS = select(_m.mark).where(*_OF_KIND)
_COUNT_MARKS = select(func.count().label("found")).select_from(hook_marks).where(*_OF_KIND)
_DELETE_UNUSED = delete(client_sessions).where(_s.used_at < bindparam("before"))
_DELETE_OLD_MARKS = delete(hook_marks).where(_m.created_at < bindparam("before"))


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


def add_mark(tx: Tx, workspace_id: int, client_session: str, kind: str, mark: str, *, at: datetime) -> bool:
    """Add a mark. Return False if it exists."""
    row = {"workspace_id": workspace_id, "client_session": client_session, "kind": kind, "mark": mark, "created_at": to_micros(at)}
    return tx.fetch_one(_ADD_MARK, row) is not None


def list_marks(tx: Tx, workspace_id: int, client_session: str, kind: str) -> set[str]:
    """Return the marks of a kind."""
    rows = tx.fetch_all(_MARKS, {"workspace": workspace_id, "client": client_session, "of_kind": kind})
    return {row.text("mark") for row in rows}


def count_marks(tx: Tx, workspace_id: int, client_session: str, kind: str) -> int:
    """Return the number of marks of a kind."""
    return fetch_count(tx, _COUNT_MARKS, {"workspace": workspace_id, "client": client_session, "of_kind": kind})


def delete_unused(tx: Tx, before: datetime) -> int:
    """Delete the client sessions of all workspaces that were last used before this time, and older marks. Return the number of rows."""
    params = {"before": to_micros(before)}
    return tx.execute(_DELETE_UNUSED, params) + tx.execute(_DELETE_OLD_MARKS, params)
