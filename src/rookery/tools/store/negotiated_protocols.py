"""The protocol revision that each server negotiated last."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import BigInteger, Column, Table, Text, bindparam, delete, select

from rookery.kernel.clock import to_micros
from rookery.kernel.db import Tx, metadata, upsert
from rookery.tools.models import NegotiatedProtocol

tool_negotiated_protocols = Table(
    "tool_negotiated_protocols",
    metadata,
    Column("server_id", Text, primary_key=True),  # the server's key
    Column("fingerprint", Text, nullable=False),
    Column("version", Text, nullable=False),
    Column("software", Text, nullable=False),
    Column("negotiated_at", BigInteger, nullable=False),
)

_BY_KEY = tool_negotiated_protocols.c.server_id == bindparam("of_key")
_FIND = select(tool_negotiated_protocols).where(_BY_KEY)
_SAVE = upsert(
    tool_negotiated_protocols,
    index_elements=["server_id"],
    set_=lambda new: {name: new[name] for name in ("fingerprint", "version", "software", "negotiated_at")},
)
_DELETE = delete(tool_negotiated_protocols).where(_BY_KEY)
_PURGE = delete(tool_negotiated_protocols).where(tool_negotiated_protocols.c.server_id.like(bindparam("of_keys")))


def find(tx: Tx, server_key: str, fingerprint: str) -> NegotiatedProtocol | None:
    """Return what a server negotiated last. None: unknown, or negotiated by another target."""
    row = tx.fetch_one(_FIND, {"of_key": server_key})
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
    return tx.execute(_DELETE, {"of_key": server_key})


def purge(tx: Tx, workspace_id: int) -> int:
    """Delete what a deleted workspace's servers negotiated; return the number of rows."""
    return tx.execute(_PURGE, {"of_keys": f"{workspace_id}/%"})
