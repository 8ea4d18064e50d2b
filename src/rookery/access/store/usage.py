"""What keys were used for: single calls, and their sums by day."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import cast

from sqlalchemy import (
    BigInteger,
    Column,
    ColumnElement,
    Double,
    Executable,
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
from sqlalchemy import cast as as_type

from rookery.access.models import Call, CallFilter, KeyKind, Seen, UsageField, UsageFilter, UsageSum
from rookery.access.store.keys import former, keys
from rookery.access.store.workspaces import SERIAL, workspaces
from rookery.kernel.clock import from_micros, to_micros
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

_FIELDS: tuple[UsageField, ...] = ("day", "key", "method", "route", "status")
"""In the order in which sums are sorted."""

_ERROR = 400
_NEVER = 2**62
_LAST_DAY = "9999-12-31"

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
_OF_KEY = (
    calls.c.workspace_id == bindparam("workspace_id"),
    calls.c.key_id == bindparam("key_id"),
    calls.c.at >= bindparam("since"),
    calls.c.at < bindparam("until"),
    (bindparam("status", type_=BigInteger()) == 0) | (calls.c.status == bindparam("status")),
    (bindparam("route", type_=Text()) == "") | (calls.c.route == bindparam("route")),
)
_CALLS_OF = (
    select(calls).where(*_OF_KEY).order_by(calls.c.at.desc(), calls.c.id.desc()).limit(bindparam("limit")).offset(bindparam("offset"))
)
_COUNT_CALLS = select(func.count().label("n")).select_from(calls).where(*_OF_KEY)
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


def page_of_calls(tx: Tx, workspace_id: int, key_id: str, which: CallFilter, *, limit: int, offset: int) -> tuple[list[Call], int]:
    """Return the calls made with a key of the workspace, newest first, and how many there are in all."""
    params = _which_calls(workspace_id, key_id, which)
    return _calls(tx, params, limit, offset), _counted(tx.one(_COUNT_CALLS, params))


def calls_of(tx: Tx, workspace_id: int, key_id: str, which: CallFilter, *, limit: int, offset: int) -> list[Call]:
    """Return such calls without counting them all."""
    return _calls(tx, _which_calls(workspace_id, key_id, which), limit, offset)


def sums(tx: Tx, workspace_id: int, kind: KeyKind, which: UsageFilter, by: frozenset[UsageField], *, limit: int) -> list[UsageSum]:
    """Return the calls of the workspace's keys of that kind added up *by* those fields, in their order; deleted keys' too."""
    params: dict[str, Value] = {
        "workspace_id": workspace_id,
        "kind": kind,
        "environment": which.environment or "",
        "key_id": which.key_id or "",
        "since": "" if which.since is None else which.since.isoformat(),
        "until": _LAST_DAY if which.until is None else which.until.isoformat(),
        "limit": limit,
    }
    return [_sum_of(row, by) for row in tx.all(_sums_by(by), params)]


@lru_cache(maxsize=32)
def _sums_by(by: frozenset[UsageField]) -> Executable:
    named = func.coalesce(keys.c.name, former.c.name)
    known = {"key": days.c.key_id, "day": days.c.day, "method": days.c.method, "route": days.c.route, "status": days.c.status}
    columns = [known[name] for name in _FIELDS if name in by]
    shown = [*columns, func.max(named).label("key_name")] if "key" in by else columns
    return (
        select(
            *shown,
            _whole(days.c.calls).label("calls"),
            _whole(case((days.c.status >= _ERROR, days.c.calls), else_=0)).label("errors"),
            func.coalesce(func.sum(days.c.total_ms), 0.0).label("total_ms"),
        )
        .select_from(days.outerjoin(keys, keys.c.id == days.c.key_id).outerjoin(former, former.c.id == days.c.key_id))
        .where(
            days.c.workspace_id == bindparam("workspace_id"),
            days.c.day >= bindparam("since"),
            days.c.day <= bindparam("until"),
            (bindparam("key_id", type_=Text()) == "") | (days.c.key_id == bindparam("key_id")),
            func.coalesce(keys.c.kind, former.c.kind) == bindparam("kind"),
            (bindparam("environment", type_=Text()) == "")
            | (func.coalesce(keys.c.environment, former.c.environment) == bindparam("environment")),
        )
        .group_by(*columns)
        .order_by(*columns)
        .limit(bindparam("limit"))
    )


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


def _which_calls(workspace_id: int, key_id: str, which: CallFilter) -> dict[str, Value]:
    return {
        "workspace_id": workspace_id,
        "key_id": key_id,
        "since": 0 if which.since is None else to_micros(which.since),
        "until": _NEVER if which.until is None else to_micros(which.until),
        "status": which.status or 0,
        "route": which.route or "",
    }


def _calls(tx: Tx, params: Mapping[str, Value], limit: int, offset: int) -> list[Call]:
    return [_call_of(row) for row in tx.all(_CALLS_OF, {**params, "limit": limit, "offset": offset})]


def _whole(column: ColumnElement[int]) -> ColumnElement[int]:
    """Add up: PostgreSQL makes a decimal of it, and both nothing of nothing."""
    return as_type(func.coalesce(func.sum(column), 0), BigInteger())


def _sum_of(row: Row, by: frozenset[UsageField]) -> UsageSum:
    return UsageSum(
        key_id=row.text("key_id") if "key" in by else None,
        key_name=row.maybe_text("key_name") if "key" in by else None,
        day=row.text("day") if "day" in by else None,
        method=row.text("method") if "method" in by else None,
        route=row.text("route") if "route" in by else None,
        status=row.integer("status") if "status" in by else None,
        calls=row.integer("calls"),
        errors=row.integer("errors"),
        total_ms=row.number("total_ms"),
    )


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
