"""Reports over the ledger."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import fields
from typing import Any, cast

from sqlalchemy import BigInteger, ColumnElement, Select, case, func, literal, select
from sqlalchemy import cast as as_type

from rookery.kernel.db import KeysetList, Row, Tx, fetch_count
from rookery.kernel.pages import ListPage, PageSlice
from rookery.usage.models import DIMENSIONS, LedgerFilter, UsageDimension, UsageGroup, UsageKind, UsageSums
from rookery.usage.store.ledger import SUMS, usage_days

_c = usage_days.c
_MONTH_CHARS = 7
_COLUMNS: Mapping[UsageDimension, ColumnElement[Any]] = {
    "day": _c.day,
    "month": func.substr(_c.day, 1, _MONTH_CHARS).label("month"),
    "workspace": _c.workspace_id,
    "kind": _c.kind,
    "key": _c.key_id,
    "agent": _c.agent_id,
    "model": _c.model,
    "tool": _c.tool,
}
_TEXT_FIELDS: Mapping[UsageDimension, str] = {
    "day": "day",
    "month": "month",
    "kind": "kind",
    "key": "key_id",
    "agent": "agent_id",
    "model": "model",
    "tool": "tool",
}
"""The fields of a group, by the dimensions that are texts."""

_TIMES: Collection[UsageDimension] = ("day", "month")
_REPORTED_NANOS = case((_c.kind == UsageKind.SESSION.value, _c.cost_nanos), else_=0)


def list_groups(tx: Tx, filters: LedgerFilter, by: Collection[UsageDimension], *, currency: str, page: PageSlice) -> ListPage[UsageGroup]:
    """
    Return a page of the groups and their number: newest day or month first, then the highest cost, then the most calls.

    Args:
        by: The fields to group by. Amounts of several currencies are always apart.
        currency: The currency of rows without one.
    """
    groups = _select_groups(filters, by, currency).subquery()
    columns = groups.c
    names = [str(_COLUMNS[name].name) for name in DIMENSIONS if name in by]
    times = [columns[name].desc() for name in names if name in _TIMES]
    others = [columns[name] for name in names if name not in _TIMES]
    rows = KeysetList(select(groups), *times, columns.cost_nanos.desc(), columns.calls.desc(), *others, columns.currency)
    keys = _select_keys(filters, by, currency).distinct().subquery()
    total = fetch_count(tx, select(func.count().label("n")).select_from(keys))
    return rows.fetch(tx, page, {}, lambda row: _to_group(row, by), total=total)


def list_totals(tx: Tx, filters: LedgerFilter, *, currency: str) -> list[UsageGroup]:
    """Return the sums of all entries that match, one for each currency, the highest cost first."""
    return sorted(
        (_to_group(row, ()) for row in tx.fetch_all(_select_groups(filters, (), currency))),
        key=lambda group: (-group.sums.cost_nanos, group.currency),
    )


def list_tools(tx: Tx, filters: LedgerFilter) -> list[str]:
    """Return the tools that were called, as `server/tool`."""
    statement = select(_c.tool).where(*_build_conditions(filters), _c.tool != "").distinct()
    return [row.text("tool") for row in tx.fetch_all(statement)]


def _select_keys(filters: LedgerFilter, by: Collection[UsageDimension], currency: str) -> Select[Any]:
    """Return what tells the groups apart. Counting it takes a fraction of adding up all sums."""
    return select(*(_COLUMNS[name] for name in DIMENSIONS if name in by), _select_currency(currency)).where(*_build_conditions(filters))


def _select_currency(currency: str) -> ColumnElement[str]:
    return case((_c.currency == "", literal(currency)), else_=_c.currency).label("currency")


def _select_groups(filters: LedgerFilter, by: Collection[UsageDimension], currency: str) -> Select[Any]:
    groups = [_COLUMNS[name] for name in DIMENSIONS if name in by]
    currency_column = _select_currency(currency)
    return (
        select(
            *groups,
            currency_column,
            func.min(_c.workspace_id).label("tenant"),
            _sum(_REPORTED_NANOS).label("reported_nanos"),
            *(_sum(_c[column.name]).label(column.name) for column in fields(UsageSums)),
        )
        .where(*_build_conditions(filters))
        .group_by(*groups, currency_column)
    )


def _sum(column: ColumnElement[Any]) -> ColumnElement[int]:
    """Return the sum as an integer. PostgreSQL would return a decimal."""
    return as_type(func.sum(column), BigInteger())


def _build_conditions(filters: LedgerFilter) -> list[ColumnElement[bool]]:
    conditions = [_c.day >= filters.since.isoformat(), _c.day <= filters.until.isoformat()]
    if filters.tenants is not None:
        conditions.append(_c.workspace_id.in_(list(filters.tenants)))
    if filters.kinds:
        conditions.append(_c.kind.in_([kind.value for kind in filters.kinds]))
    if filters.tools is not None:
        conditions.append((_c.tool == "") | _c.tool.in_(sorted(filters.tools)))
    equal = ((_c.key_id, filters.key_id), (_c.agent_id, filters.agent_id), (_c.model, filters.model), (_c.tool, filters.tool))
    return conditions + [column == value for column, value in equal if value is not None]


def _to_group(row: Row, by: Collection[UsageDimension]) -> UsageGroup:
    return UsageGroup(
        currency=row.text("currency"),
        sums=SUMS.from_row(row),
        reported_nanos=row.integer("reported_nanos"),
        tenant=row.integer("tenant"),
        **cast("dict[str, Any]", {_TEXT_FIELDS[name]: row.text(_TEXT_FIELDS[name]) for name in by if name in _TEXT_FIELDS}),
    )
