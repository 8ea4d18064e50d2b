"""The table of call records, one row per call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from sqlalchemy import Index, bindparam, delete, func, select

from rookery.kernel.clock import to_micros
from rookery.kernel.db import Tx, map_table, purge_tables
from rookery.tools.models import CallRecord

tool_calls, CALLS = map_table(
    "tool_calls",
    CallRecord,
    Index("ix_tool_calls_workspace_id_called_at", "workspace_id", "called_at"),
    Index("ix_tool_calls_workspace_id_server_id_tool_called_at", "workspace_id", "server_id", "tool", "called_at"),
    Index("ix_tool_calls_called_at", "called_at"),
)
_in_session = tool_calls.c.session_id.is_not(None)
Index("ix_tool_calls_session_id", tool_calls.c.session_id, sqlite_where=_in_session)

_STORED_IDS = select(tool_calls.c.id).where(tool_calls.c.id.in_(bindparam("ids", expanding=True)))
_COUNTS_BY_SESSION = (
    select(tool_calls.c.session_id, func.count().label("number"))
    .where(tool_calls.c.session_id.in_(bindparam("ids", expanding=True)), tool_calls.c.workspace_id + 0 == bindparam("workspace_id"))
    .group_by(tool_calls.c.session_id)
)
_DELETE_BEFORE = delete(tool_calls).where(tool_calls.c.called_at < bindparam("before"))


def find_stored_ids(tx: Tx, ids: Sequence[str]) -> set[str]:
    """Return those of *ids* that are stored already."""
    return {row.text("id") for row in tx.fetch_all(_STORED_IDS, {"ids": list(ids)})}


def count_by_session(tx: Tx, workspace_id: int, ids: Sequence[str]) -> Mapping[str, int]:
    """Return the number of calls per agent session of *ids*. Sessions without calls are omitted."""
    rows = tx.fetch_all(_COUNTS_BY_SESSION, {"workspace_id": workspace_id, "ids": ids}) if ids else []
    return {row.text("session_id"): row.integer("number") for row in rows}


def delete_calls(tx: Tx, *, called_before: datetime) -> int:
    """Delete the records of calls made before *called_before*; return the number."""
    return tx.execute(_DELETE_BEFORE, {"before": to_micros(called_before)})


purge = purge_tables(tool_calls)
