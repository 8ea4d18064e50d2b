"""Queries for the gaps of the server: the time at which a process was alive last, and leases that ended in a gap."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import BigInteger, Column, Integer, Table, bindparam, select, update

from rookery.agents.store.tables import tasks
from rookery.kernel.clock import from_micros, to_micros
from rookery.kernel.db import Tx, metadata, upsert

server_pulse = Table(
    "agent_server_pulse",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("alive_at", BigInteger, nullable=False),
)

_ROW_ID = 1
_c = tasks.c
_ALIVE_AT = select(server_pulse.c.alive_at).where(server_pulse.c.id == _ROW_ID).with_for_update()
_SAVE = upsert(server_pulse, index_elements=["id"], set_=lambda new: {"alive_at": new["alive_at"]})
_EXTEND = (
    update(tasks)
    .where(_c.claim_expires_at > bindparam("after"), _c.claim_expires_at < bindparam("until"))
    .values(claim_expires_at=bindparam("until"))
)


def lock_alive_at(tx: Tx) -> datetime | None:
    """Return the time at which a process was alive last, or None, and lock it until this transaction ends."""
    row = tx.fetch_one(_ALIVE_AT)
    return None if row is None else from_micros(row.integer("alive_at"))


def save_alive_at(tx: Tx, at: datetime) -> None:
    """Store the time at which a process was alive last."""
    tx.execute(_SAVE, {"id": _ROW_ID, "alive_at": to_micros(at)})


def extend_leases(tx: Tx, *, after: datetime, until: datetime) -> int:
    """Set the end of all leases that end between *after* and *until* to *until*. Return their number."""
    return tx.execute(_EXTEND, {"after": to_micros(after), "until": to_micros(until)})
