"""
The hosts that got messages under a rate per host, with the time until which they are paid for.

The rows belong to no workspace: all workspaces share the rate of a host.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime

from sqlalchemy import BigInteger, BindParameter, bindparam, delete, func, select

from rookery.kernel.clock import to_micros
from rookery.kernel.db import Tx, upsert
from rookery.notifications.pacing import HostRate
from rookery.notifications.store.tables import hosts

_NAMES: BindParameter[str] = bindparam("names", expanding=True)
_ADVISORY_LOCK = select(func.pg_advisory_xact_lock(bindparam("number", type_=BigInteger())))
_LOCK_NUMBER = 0x6E6F7466 << 32
"""The advisory lock of the rates, which PostgreSQL identifies by number."""

_SELECT = select(hosts).where(hosts.c.host.in_(_NAMES))
_SET = upsert(hosts, index_elements=["host"], set_=lambda new: {"paid_until": new["paid_until"]})
_DELETE_OLD = delete(hosts).where(hosts.c.paid_until < bindparam("before"))


def load_room(tx: Tx, names: Collection[str], rate: HostRate, now: datetime) -> dict[str, int]:
    """
    Return the number of messages that each host may get now.

    No other process changes a rate until the transaction ends. On SQLite, one writes at a time. On PostgreSQL, a lock of all hosts together
    is taken, because rounds with several campaigns would lock single rows in different orders.
    """
    if tx.dialect == "postgresql":
        tx.fetch_one(_ADVISORY_LOCK, {"number": _LOCK_NUMBER})
    paid, now_us = _load_paid(tx, names), to_micros(now)
    return {name: rate.count_room(paid.get(name), now_us) for name in names}


def take(tx: Tx, counts: Mapping[str, int], rate: HostRate, now: datetime) -> None:
    """Count messages that are going to be sent, by host. Call `load_room` before, in the same transaction."""
    paid, now_us = _load_paid(tx, counts), to_micros(now)
    tx.execute_many(_SET, [{"host": name, "paid_until": rate.pay(paid.get(name), now_us, count)} for name, count in sorted(counts.items())])


def delete_old(tx: Tx, *, before: datetime) -> int:
    """Delete the hosts that are paid for until *before*; return their number. A host without a row has its full rate."""
    return tx.execute(_DELETE_OLD, {"before": to_micros(before)})


def _load_paid(tx: Tx, names: Collection[str]) -> dict[str, int]:
    if not names:
        return {}
    return {row.text("host"): row.integer("paid_until") for row in tx.fetch_all(_SELECT, {"names": sorted(names)})}
