"""The MCP client sessions that their clients have ended, until their ids expire."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import BigInteger, Column, Index, Table, Text, bindparam, delete, select

from rookery.kernel.clock import to_micros
from rookery.kernel.db import Tx, metadata, purge_tables, upsert

ended_client_sessions = Table(
    "tool_ended_client_sessions",
    metadata,
    Column("id", Text, primary_key=True),
    Column("workspace_id", BigInteger, nullable=False),
    Column("expires_at", BigInteger, nullable=False),
    Index("ix_tool_ended_client_sessions_expires_at", "expires_at"),
    Index("ix_tool_ended_client_sessions_workspace_id", "workspace_id"),
    sqlite_with_rowid=False,
)
_INSERT = upsert(ended_client_sessions, index_elements=["id"])
_FIND = select(ended_client_sessions.c.id).where(ended_client_sessions.c.id == bindparam("of_id"))
_DELETE_EXPIRED = delete(ended_client_sessions).where(ended_client_sessions.c.expires_at < bindparam("before"))


def insert_ended(tx: Tx, digest: str, *, workspace_id: int, expires_at: datetime) -> None:
    """Store that the session whose id has *digest* has ended. No effect if that is stored already."""
    tx.execute(_INSERT, {"id": digest, "workspace_id": workspace_id, "expires_at": to_micros(expires_at)})


def is_ended(tx: Tx, digest: str) -> bool:
    """Return whether the client has ended the session whose id has *digest*."""
    return bool(tx.fetch_all(_FIND, {"of_id": digest}))


def delete_expired(tx: Tx, *, now: datetime) -> int:
    """Delete the rows of sessions whose ids have expired; return the number."""
    return tx.execute(_DELETE_EXPIRED, {"before": to_micros(now)})


purge = purge_tables(ended_client_sessions)
