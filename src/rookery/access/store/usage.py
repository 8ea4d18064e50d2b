"""The usage of keys: single calls, and totals by day."""

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

from rookery.access.models import AddressStats, CallFilter, KeyCall, KeyKind, UsageField, UsageFilter, UsageSum
from rookery.access.store.keys import former_keys, keys
from rookery.access.store.workspaces import SERIAL_TYPE, list_tenants
from rookery.kernel.clock import to_micros
from rookery.kernel.db import KeysetList, Row, Tx, Value, map_table, metadata, upsert
from rookery.kernel.pages import ListPage, PageSlice

calls, CALLS = map_table(
    "access_calls",
    KeyCall,
    Column("id", SERIAL_TYPE, primary_key=True, autoincrement=True),
)
Index("ix_access_calls_workspace_id_key_id_at", calls.c.workspace_id, calls.c.key_id, calls.c.at)
Index("ix_access_calls_at", calls.c.at)

daily_usage = Table(
    "access_days",
    metadata,
    Column("workspace_id", BigInteger, nullable=False),
    Column("key_id", Text, nullable=False),
    Column("day", Text, nullable=False),
    Column("method", Text, nullable=False),
    Column("route", Text, nullable=False),
    Column("status", BigInteger, nullable=False),
    Column("calls", BigInteger, nullable=False),
    Column("upstream_errors", BigInteger, nullable=False, server_default="0"),
    Column("total_ms", Double, nullable=False),
    PrimaryKeyConstraint("workspace_id", "key_id", "day", "method", "route", "status"),
)
"""Totals of calls by day (UTC), route and status. They are kept after the calls are deleted."""

_FIELDS: tuple[UsageField, ...] = ("day", "key", "method", "route", "status")
"""The fields in sort order."""

_FIRST_ERROR_STATUS = 400
_MAX_TIME_US = 2**62
_LAST_DAY = "9999-12-31"

_IS_LATER_USAGE = keys.c.last_used_at.is_(None) | (keys.c.last_used_at <= bindparam("used_at"))
_ADD_USAGE = (
    update(keys)
    .where(keys.c.id == bindparam("key_id"))
    .values(
        call_count=keys.c.call_count + bindparam("calls"),
        last_used_at=case((_IS_LATER_USAGE, bindparam("used_at", type_=BigInteger())), else_=keys.c.last_used_at),
        last_used_ip=case((_IS_LATER_USAGE, bindparam("used_ip", type_=Text())), else_=keys.c.last_used_ip),
    )
)
_ADD_CALL = insert(calls)
_ADD_DAY = upsert(
    daily_usage,
    index_elements=["workspace_id", "key_id", "day", "method", "route", "status"],
    set_=lambda new: {
        "calls": cast("ColumnElement[object]", daily_usage.c.calls + new["calls"]),
        "upstream_errors": cast("ColumnElement[object]", daily_usage.c.upstream_errors + new["upstream_errors"]),
        "total_ms": cast("ColumnElement[object]", daily_usage.c.total_ms + new["total_ms"]),
    },
)
_CALL_FILTERS = (
    calls.c.workspace_id == bindparam("workspace_id"),
    calls.c.key_id == bindparam("key_id"),
    calls.c.at >= bindparam("since"),
    calls.c.at < bindparam("until"),
    (bindparam("status", type_=BigInteger()) == 0) | (calls.c.status == bindparam("status")),
    (bindparam("route", type_=Text()) == "") | (calls.c.route == bindparam("route")),
)
_CALL_LIST = KeysetList(select(calls).where(*_CALL_FILTERS), calls.c.at.desc(), calls.c.id.desc())
_DELETE_DAYS = delete(daily_usage).where(daily_usage.c.workspace_id == bindparam("workspace_id"))
_DELETE_OLD_CALLS = delete(calls).where(calls.c.at < bindparam("before"))

_SELECT_ADDRESS_STATS = select(
    func.count().label("calls"), func.count(distinct(calls.c.key_id)).label("keys"), func.min(calls.c.address).label("one"),
    func.count(distinct(calls.c.address)).label("addresses"),
)  # fmt: skip


def add_usage(
    tx: Tx, usage_rows: Sequence[Mapping[str, Value]], call_rows: Sequence[Mapping[str, Value]], sums: Sequence[Mapping[str, Value]]
) -> None:
    """
    Add to the usage of keys. Calls of workspaces that were deleted meanwhile are dropped.

    Args:
        usage_rows: `key_id`, `calls`, `used_at` and `used_ip` of each key.
        call_rows: The columns of `access_calls`.
        sums: The columns of `access_days`.
    """
    ids = {cast("int", row["workspace_id"]) for row in call_rows}
    existing_ids = {workspace.id for workspace in list_tenants(tx, ids, lock=True)}
    tx.execute_many(_ADD_USAGE, usage_rows)  # After the workspaces: deleting a workspace locks in the same order.
    tx.execute_many(_ADD_CALL, [row for row in call_rows if row["workspace_id"] in existing_ids])
    tx.execute_many(_ADD_DAY, [row for row in sums if row["workspace_id"] in existing_ids])


def list_call_page(tx: Tx, workspace_id: int, key_id: str, filters: CallFilter, *, page: PageSlice) -> ListPage[KeyCall]:
    """Return a page of the calls of a key, newest first, and the total."""
    return CALLS.fetch_page(tx, _CALL_LIST, page, _call_params(workspace_id, key_id, filters))


def list_calls(tx: Tx, workspace_id: int, key_id: str, filters: CallFilter, *, page: PageSlice) -> ListPage[KeyCall]:
    """Return a page of the calls of a key, newest first, without the total."""
    return CALLS.fetch_page(tx, _CALL_LIST, page, _call_params(workspace_id, key_id, filters), total=0)


def list_sums(tx: Tx, workspace_id: int, kind: KeyKind, filters: UsageFilter, by: frozenset[UsageField], *, limit: int) -> list[UsageSum]:
    """Return the totals of the workspace's keys of a kind, grouped and sorted by *by*, deleted keys included."""
    params: dict[str, Value] = {
        "workspace_id": workspace_id,
        "kind": kind,
        "environment": filters.environment or "",
        "key_id": filters.key_id or "",
        "since": "" if filters.since is None else filters.since.isoformat(),
        "until": _LAST_DAY if filters.until is None else filters.until.isoformat(),
        "limit": limit,
    }
    return [_sum_from_row(row, by) for row in tx.fetch_all(_sums_by(by), params)]


@lru_cache(maxsize=32)
def _sums_by(by: frozenset[UsageField]) -> Executable:
    key_name = func.coalesce(keys.c.name, former_keys.c.name)
    columns_by_field = {
        "key": daily_usage.c.key_id,
        "day": daily_usage.c.day,
        "method": daily_usage.c.method,
        "route": daily_usage.c.route,
        "status": daily_usage.c.status,
    }
    columns = [columns_by_field[name] for name in _FIELDS if name in by]
    own_calls = daily_usage.c.calls - daily_usage.c.upstream_errors
    selected_columns = [*columns, func.max(key_name).label("key_name")] if "key" in by else columns
    return (
        select(
            *selected_columns,
            _integer_sum(daily_usage.c.calls).label("calls"),
            _integer_sum(case((daily_usage.c.status >= _FIRST_ERROR_STATUS, own_calls), else_=0)).label("errors"),
            _integer_sum(daily_usage.c.upstream_errors).label("upstream_errors"),
            func.coalesce(func.sum(daily_usage.c.total_ms), 0.0).label("total_ms"),
        )
        .select_from(
            daily_usage.outerjoin(keys, keys.c.id == daily_usage.c.key_id).outerjoin(former_keys, former_keys.c.id == daily_usage.c.key_id)
        )
        .where(
            daily_usage.c.workspace_id == bindparam("workspace_id"),
            daily_usage.c.day >= bindparam("since"),
            daily_usage.c.day <= bindparam("until"),
            (bindparam("key_id", type_=Text()) == "") | (daily_usage.c.key_id == bindparam("key_id")),
            func.coalesce(keys.c.kind, former_keys.c.kind) == bindparam("kind"),
            (bindparam("environment", type_=Text()) == "")
            | (func.coalesce(keys.c.environment, former_keys.c.environment) == bindparam("environment")),
        )
        .group_by(*columns)
        .order_by(*columns)
        .limit(bindparam("limit"))
    )


def delete_old_calls(tx: Tx, *, before: int) -> int:
    """Delete the calls before *before*; return the number. The totals stay."""
    return tx.execute(_DELETE_OLD_CALLS, {"before": before})


def delete_calls(tx: Tx, workspace_id: int) -> None:
    """Delete all calls and totals of the workspace."""
    CALLS.delete(tx, workspace_id)
    tx.execute(_DELETE_DAYS, {"workspace_id": workspace_id})


def get_address_stats(tx: Tx) -> AddressStats:
    """Return the numbers of calls, keys and addresses in the stored calls."""
    row = tx.fetch_one(_SELECT_ADDRESS_STATS)
    if row is None:
        return AddressStats(call_count=0, key_count=0, address_count=0, only_address=None)
    return AddressStats(
        call_count=row.integer("calls"),
        key_count=row.integer("keys"),
        address_count=row.integer("addresses"),
        only_address=row.maybe_text("one"),
    )


def _call_params(workspace_id: int, key_id: str, filters: CallFilter) -> dict[str, Value]:
    return {
        "workspace_id": workspace_id,
        "key_id": key_id,
        "since": 0 if filters.since is None else to_micros(filters.since),
        "until": _MAX_TIME_US if filters.until is None else to_micros(filters.until),
        "status": filters.status or 0,
        "route": filters.route or "",
    }


def _integer_sum(column: ColumnElement[int]) -> ColumnElement[int]:
    """Return the sum as an integer, 0 for no rows. PostgreSQL would return a decimal, and both databases null."""
    return as_type(func.coalesce(func.sum(column), 0), BigInteger())


def _sum_from_row(row: Row, by: frozenset[UsageField]) -> UsageSum:
    return UsageSum(
        key_id=row.text("key_id") if "key" in by else None,
        key_name=row.maybe_text("key_name") if "key" in by else None,
        day=row.text("day") if "day" in by else None,
        method=row.text("method") if "method" in by else None,
        route=row.text("route") if "route" in by else None,
        status=row.integer("status") if "status" in by else None,
        calls=row.integer("calls"),
        errors=row.integer("errors"),
        upstream_errors=row.integer("upstream_errors"),
        total_ms=row.number("total_ms"),
    )
