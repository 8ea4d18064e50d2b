"""Queries of the sign-ins that have ended, until the last cookie with them has expired."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime

from sqlalchemy import BigInteger, Column, Index, Table, Text, bindparam, delete, select

from rookery.kernel.clock import to_micros
from rookery.kernel.db import Tx, metadata, upsert

sign_outs = Table(
    "console_sign_outs",
    metadata,
    Column("sign_in_id", Text, primary_key=True),
    Column("expires_at", BigInteger, nullable=False),
    Index("ix_console_sign_outs_expires_at", "expires_at"),
    sqlite_with_rowid=False,
)
_INSERT = upsert(sign_outs, index_elements=["sign_in_id"])
_SELECT = select(sign_outs.c.sign_in_id).where(sign_outs.c.sign_in_id.in_(bindparam("ids", expanding=True)))
_DELETE_EXPIRED = delete(sign_outs).where(sign_outs.c.expires_at < bindparam("before"))


def insert_sign_out(tx: Tx, sign_in_id: str, *, expires_at: datetime) -> None:
    """Store that a sign-in has ended. No effect if that is stored already."""
    tx.execute(_INSERT, {"sign_in_id": sign_in_id, "expires_at": to_micros(expires_at)})


def list_ended(tx: Tx, sign_in_ids: Collection[str]) -> frozenset[str]:
    """Return those of *sign_in_ids* that have ended."""
    return frozenset(row.text("sign_in_id") for row in tx.fetch_all(_SELECT, {"ids": sorted(sign_in_ids)}))


def delete_expired(tx: Tx, *, now: datetime) -> None:
    """Delete the sign-outs whose cookies have expired."""
    tx.execute(_DELETE_EXPIRED, {"before": to_micros(now)})
