"""What keys were used for: single calls, and their sums by day."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from sqlalchemy import (
    BigInteger,
    Column,
    ColumnElement,
    Double,
    Index,
    PrimaryKeyConstraint,
    Table,
    Text,
    bindparam,
    case,
    delete,
    distinct,
    func,
    insert,
    select,
    update,
)

from rookery.access.models import Call, Seen
from rookery.access.store.keys import keys
from rookery.access.store.workspaces import SERIAL, workspaces
from rookery.kernel.clock import from_micros
from rookery.kernel.db import Row, Tx, Value, metadata, upsert

calls = Table(
    "access_calls",
    metadata,
    Column("id", SERIAL, primary_key=True, autoincrement=True),
    Column("key_id", Text, nullable=False),
    Column("workspace_id", BigInteger, nullable=False),
    Column("at", BigInteger, nullable=False),
    Column("method", Text, nullable=False),
    Column("route", Text, nullable=False),
    Column("status", BigInteger, nullable=False),
    Column("duration_ms", Double, nullable=False),
    Column("address", Text, nullable=False),
    Column("request_id", Text, nullable=False),
)
Index("ix_access_calls_workspace_id_key_id_at", calls.c.workspace_id, calls.c.key_id, calls.c.at)
Index("ix_access_calls_at", calls.c.at)

days = Table(
    "access_days",
    metadata,
    Column("workspace_id", BigInteger, nullable=False),
    Column("key_id", Text, nullable=False),
    Column("day", Text, nullable=False),
    Column("method", Text, nullable=False),
    Column("route", Text, nullable=False),
    Column("status", BigInteger, nullable=False),
    Column("calls", BigInteger, nullable=False),
    Column("total_ms", Double, nullable=False),
    PrimaryKeyConstraint("workspace_id", "key_id", "day", "method", "route", "status"),
)
"""Calls added up by day (UTC), route and status; kept when the calls themselves are forgotten (D-17)."""

_EXISTING = (
    select(workspaces.c.id)
    .where(workspaces.c.id.in_(bindparam("ids", expanding=True)))
    .order_by(workspaces.c.id)
    .with_for_update(read=True, key_share=True)
)
"""Whoever deletes one of them waits for us, or we for them: nothing is written for a workspace that goes meanwhile."""

_LATER = keys.c.last_used_at.is_(None) | (keys.c.last_used_at <= bindparam("used_at"))
_ADD_USE = (
    update(keys)
    .where(keys.c.id == bindparam("key_id"))
    .values(
        call_count=keys.c.call_count + bindparam("calls"),
        last_used_at=case((_LATER, bindparam("used_at", type_=BigInteger())), else_=keys.c.last_used_at),
        last_used_ip=case((_LATER, bindparam("used_ip", type_=Text())), else_=keys.c.last_used_ip),
    )
)
_ADD_CALL = insert(calls)
_ADD_DAY = upsert(
    days,
    index_elements=["workspace_id", "key_id", "day", "method", "route", "status"],
    set_=lambda new: {
        "calls": cast("ColumnElement[object]", days.c.calls + new["calls"]),
        "total_ms": cast("ColumnElement[object]", days.c.total_ms + new["total_ms"]),
    },
)
_CALLS_OF = (
    select(calls)
    .where(calls.c.workspace_id == bindparam("workspace_id"), calls.c.key_id == bindparam("key_id"))
    .order_by(calls.c.at.desc(), calls.c.id.desc())
    .limit(bindparam("limit"))
    .offset(bindparam("offset"))
)
_COUNT_CALLS = (
    select(func.count().label("n"))
    .select_from(calls)
    .where(calls.c.workspace_id == bindparam("workspace_id"), calls.c.key_id == bindparam("key_id"))
)
_CALLS_IN = select(func.count().label("n")).select_from(calls).where(calls.c.workspace_id == bindparam("workspace_id"))
_DELETE_CALLS = delete(calls).where(calls.c.workspace_id == bindparam("workspace_id"))
_DELETE_DAYS = delete(days).where(days.c.workspace_id == bindparam("workspace_id"))
_FORGET_CALLS = delete(calls).where(calls.c.at < bindparam("before"))

_SEEN = select(
    func.count().label("calls"), func.count(distinct(calls.c.key_id)).label("keys"), func.min(calls.c.address).label("one"),
    func.count(distinct(calls.c.address)).label("addresses"),
)  # fmt: skip


def add_use(tx: Tx, uses: Sequence[Mapping[str, Value]], made: Sequence[Mapping[str, Value]], sums: Sequence[Mapping[str, Value]]) -> None:
    """
    Add to what is known of the use of keys, each by itself; calls of a workspace deleted meanwhile are dropped.

    Args:
        uses: `key_id`, `calls`, `used_at`, `used_ip` of each key used.
        made: The columns of `access_calls`; *sums*: those of `access_days`.
    """
    ids = {cast("int", each["workspace_id"]) for each in made}
    alive = {row.integer("id") for row in tx.all(_EXISTING, {"ids": sorted(ids)})} if ids else set[int]()
    tx.many(_ADD_USE, uses)  # after the workspaces: who deletes one locks it first, and its keys then
    tx.many(_ADD_CALL, [each for each in made if each["workspace_id"] in alive])
    tx.many(_ADD_DAY, [each for each in sums if each["workspace_id"] in alive])


def page_of_calls(tx: Tx, workspace_id: int, key_id: str, *, limit: int, offset: int) -> tuple[list[Call], int]:
    """Return the calls made with a key of the workspace, newest first, and how many there are in all."""
    which: dict[str, Value] = {"workspace_id": workspace_id, "key_id": key_id}
    rows = tx.all(_CALLS_OF, {**which, "limit": limit, "offset": offset})
    return [_call_of(row) for row in rows], _counted(tx.one(_COUNT_CALLS, which))


def count_calls(tx: Tx, workspace_id: int) -> int:
    """Return how many calls of the workspace are remembered."""
    return _counted(tx.one(_CALLS_IN, {"workspace_id": workspace_id}))


def forget_calls(tx: Tx, *, before: int) -> int:
    """Delete the calls made before that time; the days' sums stay."""
    return tx.run(_FORGET_CALLS, {"before": before})


def delete_calls(tx: Tx, workspace_id: int) -> None:
    """Delete all calls of the workspace, and their sums."""
    tx.run(_DELETE_CALLS, {"workspace_id": workspace_id})
    tx.run(_DELETE_DAYS, {"workspace_id": workspace_id})


def seen(tx: Tx) -> Seen:
    """Return from how many addresses how many keys called, of all calls remembered."""
    row = tx.one(_SEEN)
    if row is None:
        return Seen(calls=0, keys=0, addresses=0, one=None)
    return Seen(calls=row.integer("calls"), keys=row.integer("keys"), addresses=row.integer("addresses"), one=row.maybe_text("one"))


def _call_of(row: Row) -> Call:
    return Call(
        key_id=row.text("key_id"),
        workspace_id=row.integer("workspace_id"),
        at=from_micros(row.integer("at")),
        method=row.text("method"),
        route=row.text("route"),
        status=row.integer("status"),
        duration_ms=row.number("duration_ms"),
        address=row.text("address"),
        request_id=row.text("request_id"),
    )


def _counted(row: Row | None) -> int:
    return 0 if row is None else row.integer("n")
