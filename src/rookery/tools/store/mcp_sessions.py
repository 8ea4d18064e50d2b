"""The protocol revision that each server negotiated last, and the MCP client sessions that have ended, until their ids expire."""

from __future__ import annotations

from datetime import datetime

import structlog
from sqlalchemy import BigInteger, Column, Index, Table, Text, bindparam, delete, select

from rookery.kernel.clock import Clock, to_micros, utc_now
from rookery.kernel.db import Database, Tx, metadata, purge_tables, upsert
from rookery.kernel.errors import RookeryError
from rookery.tools.fingerprints import fingerprint_program
from rookery.tools.models import NegotiatedProtocol, Server

tool_negotiated_protocols = Table(
    "tool_negotiated_protocols",
    metadata,
    Column("server_id", Text, primary_key=True),  # the server's key
    Column("fingerprint", Text, nullable=False),
    Column("version", Text, nullable=False),
    Column("software", Text, nullable=False),
    Column("negotiated_at", BigInteger, nullable=False),
)

_BY_KEY = tool_negotiated_protocols.c.server_id == bindparam("server_id")
_FIND = select(tool_negotiated_protocols).where(_BY_KEY)
_SAVE = upsert(
    tool_negotiated_protocols,
    index_elements=["server_id"],
    set_=lambda new: {name: new[name] for name in ("fingerprint", "version", "software", "negotiated_at")},
)
_DELETE = delete(tool_negotiated_protocols).where(_BY_KEY)
_PURGE = delete(tool_negotiated_protocols).where(tool_negotiated_protocols.c.server_id.like(bindparam("pattern")))


def find(tx: Tx, server_key: str, fingerprint: str) -> NegotiatedProtocol | None:
    """Return what a server negotiated last. None: unknown, or negotiated by another target."""
    row = tx.fetch_one(_FIND, {"server_id": server_key})
    if row is None or row.text("fingerprint") != fingerprint:
        return None
    return NegotiatedProtocol(version=row.text("version"), software=row.text("software"))


def save(tx: Tx, server_key: str, fingerprint: str, negotiated: NegotiatedProtocol, now: datetime) -> None:
    """Insert or replace what a server negotiated."""
    tx.execute(
        _SAVE,
        {
            "server_id": server_key,
            "fingerprint": fingerprint,
            "version": negotiated.version,
            "software": negotiated.software,
            "negotiated_at": to_micros(now),
        },
    )


def delete_negotiated(tx: Tx, workspace_id: int, server_key: str) -> int:
    """Delete what a server negotiated; return the number of rows."""
    del workspace_id  # the key contains it
    return tx.execute(_DELETE, {"server_id": server_key})


def purge(tx: Tx, workspace_id: int) -> int:
    """Delete what a deleted workspace's servers negotiated; return the number of rows."""
    return tx.execute(_PURGE, {"pattern": f"{workspace_id}/%"})


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
_FIND_ENDED = select(ended_client_sessions.c.id).where(ended_client_sessions.c.id == bindparam("id"))
_DELETE_EXPIRED = delete(ended_client_sessions).where(ended_client_sessions.c.expires_at < bindparam("before"))


def insert_ended(tx: Tx, digest: str, *, workspace_id: int, expires_at: datetime) -> None:
    """Store that the session whose id has *digest* has ended. No effect if that is stored already."""
    tx.execute(_INSERT, {"id": digest, "workspace_id": workspace_id, "expires_at": to_micros(expires_at)})


def is_ended(tx: Tx, digest: str) -> bool:
    """Return whether the client has ended the session whose id has *digest*."""
    return bool(tx.fetch_all(_FIND_ENDED, {"id": digest}))


def delete_expired(tx: Tx, *, now: datetime) -> int:
    """Delete the rows of sessions whose ids have expired; return the number."""
    return tx.execute(_DELETE_EXPIRED, {"before": to_micros(now)})


purge_ended = purge_tables(ended_client_sessions)


_log = structlog.stdlib.get_logger("rookery.tools")


class StoredProtocols:
    """A `NegotiatedProtocols` in the record store. While the store is unavailable, servers are negotiated with as if they were new."""

    def __init__(self, db: Database, *, clock: Clock = utc_now) -> None:
        self._db = db
        self._clock = clock

    async def find(self, server: Server) -> NegotiatedProtocol | None:
        """Return what *server* negotiated last; see `NegotiatedProtocols`."""
        target = fingerprint_program(server)
        try:
            return await self._db.lookup(lambda tx: find(tx, server.key, target))
        except RookeryError as error:
            _log.warning("tools.protocol_not_read", server=server.id, error=error.message)
            return None

    async def save(self, server: Server, negotiated: NegotiatedProtocol | None) -> None:
        """Store what *server* negotiated; see `NegotiatedProtocols`."""
        target, now = fingerprint_program(server), self._clock()
        try:
            if negotiated is None:
                await self._db.write(lambda tx: delete_negotiated(tx, 0, server.key))
            else:
                await self._db.write(lambda tx: save(tx, server.key, target, negotiated, now))
        except RookeryError as error:
            _log.warning("tools.protocol_not_stored", server=server.id, error=error.message)
