"""The sign-outs of the last hours, in the record store until the last cookie has expired, so that every process refuses a copy."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, timedelta

from sqlalchemy import BigInteger, Column, Index, Table, Text, bindparam, delete, select

from rookery.kernel.clock import Clock, to_micros
from rookery.kernel.db import Database, Tx, metadata, upsert

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


LIFETIME_S = 12 * 3600
"""The lifetime of a session cookie. A sign-out is stored for as long."""


class SignOuts:
    """The sign-ins that have ended, by their ids."""

    def __init__(self, db: Database, clock: Clock) -> None:
        self._db = db
        self._clock = clock

    async def add(self, sign_in_id: str) -> None:
        """
        Store that a sign-in has ended, and delete those whose cookies have expired.

        Raises:
            EngineUnavailable: The record store is down.
        """
        now = self._clock()

        def write(tx: Tx) -> None:
            delete_expired(tx, now=now)
            insert_sign_out(tx, sign_in_id, expires_at=now + timedelta(seconds=LIFETIME_S))

        await self._db.write(write)

    async def list_ended(self, sign_in_ids: Collection[str]) -> frozenset[str]:
        """
        Return those of *sign_in_ids* that have ended.

        Raises:
            EngineUnavailable: The record store is down.
        """
        return await self._db.lookup(lambda tx: list_ended(tx, sign_in_ids))
