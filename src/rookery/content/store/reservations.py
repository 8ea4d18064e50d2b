"""Queries of the reserved cost of calls that are no stored generations. A row exists while its call runs."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import bindparam, select

from rookery.content.models import CallReservation
from rookery.content.store.tables import RESERVATIONS, reservations
from rookery.kernel.clock import to_micros
from rookery.kernel.db import Tx, purge_tables
from rookery.kernel.db.leases import Leases

_LEASES = Leases(reservations, owner=reservations.c.owner, until=reservations.c.lease_until)
_SELECT_ANY = select(reservations.c.id).limit(1)
_SELECT_ABANDONED = (
    select(reservations)
    .where(reservations.c.lease_until <= bindparam("now"))
    .order_by(reservations.c.id)
    .limit(bindparam("limit"))
    .with_for_update(skip_locked=True)
)


def has_any(tx: Tx) -> bool:
    """Return whether any process makes such a call; only for the timer."""
    return tx.fetch_one(_SELECT_ANY) is not None


def end_orphaned_leases(tx: Tx, *, at: datetime) -> int:
    """End the leases of processes of this host that have exited; return the number."""
    return _LEASES.end_orphaned(tx, at=at)


def list_abandoned(tx: Tx, *, now: datetime, limit: int) -> list[CallReservation]:
    """Return reservations of all tenants whose lease is over; only for the timer. They are locked."""
    return RESERVATIONS.fetch_all(tx, _SELECT_ABANDONED, {"now": to_micros(now), "limit": limit})


purge = purge_tables(reservations)
