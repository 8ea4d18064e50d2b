"""The table of call records, one row per call (D-38)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from sqlalchemy import BigInteger, Column, Double, Index, Table, Text, bindparam, delete, func, select

from rookery.kernel.clock import from_micros, to_micros
from rookery.kernel.db import Row, Tx, Value, metadata, upsert
from rookery.tools.models import CallRecord

tool_calls = Table(
    "tool_calls",
    metadata,
    Column("id", Text, primary_key=True),
    Column("workspace_id", BigInteger, nullable=False),
    Column("server_id", Text, nullable=False),
    Column("tool", Text, nullable=False),
    Column("key_id", Text, nullable=False),
    Column("key_kind", Text, nullable=False),
    Column("agent_id", Text),
    Column("session_id", Text),
    Column("success", BigInteger, nullable=False),
    Column("code", Text),
    Column("duration_ms", Double, nullable=False),
    Column("arguments_bytes", BigInteger, nullable=False),
    Column("result_bytes", BigInteger, nullable=False),
    Column("request_id", Text, nullable=False),
    Column("called_at", BigInteger, nullable=False),
    Column("cached", BigInteger, nullable=False, server_default="0"),
    Column("error", Text),
    Column("arguments", Text),
    Index("ix_tool_calls_workspace_id_called_at", "workspace_id", "called_at"),
    Index("ix_tool_calls_workspace_id_server_id_tool_called_at", "workspace_id", "server_id", "tool", "called_at"),
    Index("ix_tool_calls_called_at", "called_at"),
)
_in_session = tool_calls.c.session_id.is_not(None)
Index("ix_tool_calls_session_id", tool_calls.c.session_id, sqlite_where=_in_session, postgresql_where=_in_session)

_ADD = upsert(tool_calls, index_elements=["id"])
"""Inserts are idempotent, so that a commit with a lost response can be repeated."""
_CALLS = (
    select(tool_calls)
    .where(tool_calls.c.workspace_id == bindparam("workspace_id"))
    .order_by(tool_calls.c.called_at.desc(), tool_calls.c.id.desc())
    .limit(bindparam("limit"))
)
_CALL = select(tool_calls).where(tool_calls.c.id == bindparam("id"), tool_calls.c.workspace_id == bindparam("workspace_id"))
_COUNTS_BY_SESSION = (
    select(tool_calls.c.session_id, func.count().label("number"))
    .where(tool_calls.c.session_id.in_(bindparam("ids", expanding=True)), tool_calls.c.workspace_id + 0 == bindparam("of_workspace"))
    .group_by(tool_calls.c.session_id)
)


def insert_calls(tx: Tx, rows: Sequence[CallRecord]) -> None:
    """Insert call records. Existing ids are left unchanged."""
    tx.execute_many(_ADD, [_to_row(row) for row in rows])


def list_latest_calls(tx: Tx, *, workspace_id: int, limit: int) -> list[CallRecord]:
    """Return at most *limit* calls of a workspace, latest first."""
    return [from_row(row) for row in tx.fetch_all(_CALLS, {"workspace_id": workspace_id, "limit": limit})]


def find_call(tx: Tx, workspace_id: int, call_id: str) -> CallRecord | None:
    """Return one call of a workspace, or None."""
    row = tx.fetch_one(_CALL, {"id": call_id, "workspace_id": workspace_id})
    return None if row is None else from_row(row)


def count_by_session(tx: Tx, workspace_id: int, ids: Sequence[str]) -> Mapping[str, int]:
    """Return the number of calls per agent session of *ids*. Sessions without calls are omitted."""
    rows = tx.fetch_all(_COUNTS_BY_SESSION, {"of_workspace": workspace_id, "ids": ids}) if ids else []
    return {row.text("session_id"): row.integer("number") for row in rows}


def from_row(row: Row) -> CallRecord:
    """Return the call record of a row."""
    return CallRecord(
        id=row.text("id"),
        workspace_id=row.integer("workspace_id"),
        server_id=row.text("server_id"),
        tool=row.text("tool"),
        key_id=row.text("key_id"),
        key_kind=row.text("key_kind"),
        agent_id=row.maybe_text("agent_id"),
        session_id=row.maybe_text("session_id"),
        success=row.flag("success"),
        code=row.maybe_text("code"),
        duration_ms=row.number("duration_ms"),
        arguments_bytes=row.integer("arguments_bytes"),
        result_bytes=row.integer("result_bytes"),
        request_id=row.text("request_id"),
        called_at=from_micros(row.integer("called_at")),
        cached=row.flag("cached"),
        error=row.maybe_text("error"),
        arguments=row.maybe_text("arguments"),
    )


def _to_row(row: CallRecord) -> dict[str, Value]:
    return {
        "id": row.id,
        "workspace_id": row.workspace_id,
        "server_id": row.server_id,
        "tool": row.tool,
        "key_id": row.key_id,
        "key_kind": row.key_kind,
        "agent_id": row.agent_id,
        "session_id": row.session_id,
        "success": int(row.success),
        "code": row.code,
        "duration_ms": row.duration_ms,
        "arguments_bytes": row.arguments_bytes,
        "result_bytes": row.result_bytes,
        "request_id": row.request_id,
        "called_at": to_micros(row.called_at),
        "cached": int(row.cached),
        "error": row.error,
        "arguments": row.arguments,
    }


_DELETE_BEFORE = delete(tool_calls).where(tool_calls.c.called_at < bindparam("before"))
_PURGE = delete(tool_calls).where(tool_calls.c.workspace_id == bindparam("of_workspace"))


def delete_calls(tx: Tx, *, called_before: datetime) -> int:
    """Delete the records of calls made before *called_before* (D-17); return the number."""
    return tx.execute(_DELETE_BEFORE, {"before": to_micros(called_before)})


def purge(tx: Tx, workspace_id: int) -> int:
    """Delete all records of a deleted workspace; return the number."""
    return tx.execute(_PURGE, {"of_workspace": workspace_id})
