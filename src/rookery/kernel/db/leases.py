"""
Leases: rows that a worker holds until it releases them, their time is over, or its process has exited; and the ids of workers.

A worker renews its leases while it works, and stores a result only while it holds the row, so that a worker that was taken over changes
nothing.

The id of a worker has the form `host:pid:boot-start.namespace:unique`. The start time distinguishes a process from an earlier one with the
same pid: a server in a container has the same pid after each restart. The boot of the machine and the PID namespace distinguish it from a
process of another machine or container with the same host name and pid.
"""

from __future__ import annotations

import functools
import os
import socket
import uuid
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from sqlalchemy import Column, Table, and_, bindparam, func, select, update
from sqlalchemy.sql import ColumnElement

from rookery.kernel.clock import from_micros, to_micros
from rookery.kernel.db.statements import Row, Value
from rookery.kernel.db.transaction import Tx

_BOOT_ID_FILE = Path("/proc/sys/kernel/random/boot_id")
_PID_NAMESPACE_FILE = Path("/proc/self/ns/pid")
_STAT_FIELD_START_TIME = 22
_STAT_FIELDS_TO_NAME = 2  # the name may contain spaces and parentheses, so fields are counted after it


class Leases:
    """
    The leases in two columns of *table*, whose rows have an `id`.

    Args:
        owner: The column of the worker that holds the row, null if it was released. After the lease is over, it holds the last owner.
        until: The column of the end of the lease in microseconds. The table may use it for other times while nobody holds the row.
        on_acquire: Further columns to set when a row is acquired.
    """

    def __init__(
        self, table: Table, *, owner: Column[Any], until: Column[Any], on_acquire: Mapping[str, ColumnElement[Any] | str] | None = None
    ) -> None:
        self._owner_name, self._until_name = owner.name, until.name
        is_row, is_owner = table.c.id.in_(bindparam("held_ids", expanding=True)), owner == bindparam("holder")
        self.is_held = and_(is_row, is_owner)
        """The condition of statements that need the lease. Its parameters are `held_ids` and `holder`."""
        lease: dict[str, Any] = {owner.name: bindparam("holder"), until.name: bindparam("ends_at")}
        self._acquire = update(table).where(is_row).values({**lease, **(on_acquire or {})})
        self._renew = update(table).where(self.is_held).values({until.name: bindparam("ends_at")})
        self._renew_all = update(table).where(is_owner).values({until.name: bindparam("ends_at")})
        self._release = update(table).where(self.is_held).values({owner.name: bindparam("next_owner"), until.name: bindparam("ends_at")})
        self._select_owners = select(owner).where(owner.is_not(None)).distinct()
        self._end = update(table).where(owner.in_(bindparam("holders", expanding=True))).values({until.name: bindparam("ends_at")})

    def acquire(self, tx: Tx, ids: Sequence[str], holder: str, *, until: datetime, params: Mapping[str, Value] | None = None) -> None:
        """Lease rows that this transaction has locked and found free to the worker *holder*, with the parameters of `on_acquire`."""
        tx.execute(self._acquire, {"held_ids": ids, "holder": holder, "ends_at": to_micros(until), **(params or {})})

    def renew(self, tx: Tx, holder: str, *, until: datetime, ids: Sequence[str] | None = None) -> int:
        """Extend the leases of *holder*, or those of *ids*. Return the number of rows that it still holds."""
        if ids is None:
            return tx.execute(self._renew_all, {"holder": holder, "ends_at": to_micros(until)})
        return tx.execute(self._renew, {"held_ids": ids, "holder": holder, "ends_at": to_micros(until)})

    def release(self, tx: Tx, ids: Sequence[str], holder: str, *, at: datetime | None, mark: str | None = None) -> int:
        """
        Release rows that *holder* still holds, free from *at* on. Return their number.

        Args:
            at: None: the column of the end becomes null.
            mark: What the owner's column has from then on.
        """
        ends_at = None if at is None else to_micros(at)
        return tx.execute(self._release, {"held_ids": ids, "holder": holder, "ends_at": ends_at, "next_owner": mark})

    def end(self, tx: Tx, holders: Sequence[str], *, at: datetime) -> int:
        """End all leases of the workers *holders*. Return their number."""
        return tx.execute(self._end, {"holders": holders, "ends_at": to_micros(at)}) if holders else 0

    def end_orphaned(self, tx: Tx, *, at: datetime) -> int:
        """End the leases of workers of this host whose process has exited. Return their number."""
        owners = [row.text(self._owner_name) for row in tx.fetch_all(self._select_owners)]
        return self.end(tx, find_dead_workers(tx, owners), at=at)

    def is_over(self, tx: Tx, row: Row, *, now: datetime) -> bool:
        """Return whether the lease of *row* has expired or its worker is dead. Only the former counts for a row without an owner."""
        owner = row.maybe_text(self._owner_name)
        return row.integer(self._until_name) <= to_micros(now) or (owner is not None and bool(find_dead_workers(tx, [owner])))


class DeliveryLeases(Leases):
    """
    The leases of claimed deliveries, and the queries that are the same for all tables of deliveries.

    The state of a claimed delivery is `sending`, and its `next_at` is the end of the lease. Otherwise `next_at` is the time when it is due,
    or null if it is not open.
    """

    def __init__(self, table: Table, *, on_claim: Mapping[str, ColumnElement[Any]] | None = None) -> None:
        columns = table.c
        on_acquire = {"state": "sending", "attempts": columns.attempts + 1, **(on_claim or {})}
        super().__init__(table, owner=columns.owner, until=columns.next_at, on_acquire=on_acquire)
        self.is_claimed = and_(columns.id == bindparam("of_id"), columns.owner == bindparam("me"), columns.state == "sending")
        """The condition of statements about one claim. Its parameters are `of_id` and `me`."""
        self._unclaim = (
            update(table)
            .where(self.is_claimed)
            .values(owner=None, state=bindparam("new_state"), next_at=bindparam("new_next_at"), attempts=columns.attempts - 1)
        )
        self._select_stats = select(func.count().label("n"), func.min(columns.created_at).label("oldest")).where(
            columns.next_at.is_not(None)
        )

    def release_unsent(self, tx: Tx, claims: Iterable[tuple[str, str, datetime | None]], holder: str) -> None:
        """Release claims of which nothing was sent: their ids, each with the new state and the time when it is due."""
        tx.execute_many(
            self._unclaim,
            [
                {"of_id": claim_id, "me": holder, "new_state": state, "new_next_at": None if due_at is None else to_micros(due_at)}
                for claim_id, state, due_at in claims
            ],
        )

    def get_open_stats(self, tx: Tx) -> tuple[int, datetime | None]:
        """Return the number of open deliveries, and the creation time of the oldest."""
        row = tx.fetch_one(self._select_stats)
        oldest = None if row is None else row.maybe_integer("oldest")
        return 0 if row is None else row.integer("n"), None if oldest is None else from_micros(oldest)


def make_worker_id(unique: str) -> str:
    """Return the id of a worker of this process. *unique* distinguishes it from the others of the process."""
    pid = os.getpid()
    return f"{socket.gethostname()}:{pid}:{_get_own_start(pid)}.{_read_namespace() or 0}:{unique}"


def find_dead_workers(tx: Tx, worker_ids: Iterable[str]) -> list[str]:
    """
    Return the workers whose process ran on this host and has exited. All others expire only by their leases.

    All processes of a SQLite store run on one machine. Those of another store may run on a machine or in a container of the same name,
    whose processes are unknown here. So only processes of this boot and PID namespace are looked up for it.
    """
    prefix = f"{socket.gethostname()}:"
    is_shared = tx.dialect != "sqlite"
    return [
        worker_id
        for worker_id in worker_ids
        if worker_id.startswith(prefix) and not (is_shared and not _is_visible(worker_id)) and not _is_alive(worker_id)
    ]


def _is_visible(worker_id: str) -> bool:
    """Return whether the process was started since the last boot of this machine, in the PID namespace of this process."""
    start, _, namespace = worker_id.split(":")[2].partition(".")
    return start.rpartition("-")[0] == _read_boot() and namespace == _read_namespace()


def is_from_this_boot(worker_id: str) -> bool:
    """Return whether the process of a worker of this host started since the last boot of the machine; False if that is unknown."""
    start = worker_id.split(":")[2].partition(".")[0]
    return _read_boot() is not None and start.rpartition("-")[0] == _read_boot()


def _is_alive(worker_id: str) -> bool:
    _, pid, process, _ = worker_id.split(":")
    start = process.partition(".")[0]
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass
    current = _get_own_start(int(pid)) if int(pid) == os.getpid() else _read_start(int(pid))
    return current is None or current == start


@functools.cache
def _get_own_start(pid: int) -> str:
    """Return the start of this process. *pid* is its id, which changes when it forks. Without /proc, the start is a random value."""
    return _read_start(pid) or uuid.uuid4().hex


def _read_start(pid: int) -> str | None:
    """Return the boot of the system and the start time of a process in clock ticks since then, or `None` if they are unavailable."""
    boot = _read_boot()
    try:
        fields = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()
        return None if boot is None else f"{boot}-{int(fields[_STAT_FIELD_START_TIME - _STAT_FIELDS_TO_NAME - 1])}"
    except (OSError, ValueError, IndexError):
        return None


@functools.cache
def _read_boot() -> str | None:
    """Return the id of the present boot of the machine, or `None` if it is unavailable."""
    try:
        return _BOOT_ID_FILE.read_text(encoding="ascii").strip()
    except OSError:
        return None


@functools.cache
def _read_namespace() -> str | None:
    """Return the number of the PID namespace of this process, which is that of its container, or `None` if it is unavailable."""
    try:
        return str(_PID_NAMESPACE_FILE.stat().st_ino)
    except OSError:
        return None
