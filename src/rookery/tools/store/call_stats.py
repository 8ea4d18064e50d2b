"""Figures over call records: counts, exact percentiles and the latest failures."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any, Literal, TypeAlias, get_args

from sqlalchemy import ColumnElement, and_, case, func, or_, select

from rookery.kernel.clock import from_micros, to_micros
from rookery.kernel.db import KeysetList, Row, Tx, fetch_count
from rookery.kernel.pages import ListPage, PageSlice
from rookery.tools.models import CallRecord, FailureCode, ToolCallFilter
from rookery.tools.store.calls import CALLS, tool_calls

CallGroupBy: TypeAlias = Literal["tool", "server", "key", "session", "day"]

_c = tool_calls.c
_MICROS_PER_DAY = 86_400_000_000
_GROUP_COLUMNS: dict[CallGroupBy, tuple[ColumnElement[Any], ...]] = {
    "tool": (_c.server_id.label("server"), _c.tool.label("tool")),
    "server": (_c.server_id.label("server"),),
    "key": (_c.key_id.label("key_id"), _c.key_kind.label("key_kind")),
    "session": (_c.session_id.label("session_id"),),
    "day": ((_c.called_at // _MICROS_PER_DAY).label("day"),),
}
_IS_FAILED = and_(_c.success == 0, or_(_c.code.is_(None), _c.code != "input_required"))
_IS_TIMED = and_(_c.cached == 0, or_(_c.success == 1, _c.code.in_(get_args(FailureCode))))
"""Calls whose duration counts. Rejected calls and cached results would make the tool appear faster than it is."""
_PERCENTILES = (50, 95, 99)


@dataclass(frozen=True, slots=True, kw_only=True)
class CallStats:
    """
    Aggregated figures of a group of calls. The identifying fields are those of the group; None means all.

    Attributes:
        errors: Calls that failed or were rejected.
        cached: Calls that were answered from the cache.
        p50_ms: Median duration of the calls that reached their tool; None if none did. The other durations likewise.
    """

    server: str | None = None
    tool: str | None = None
    key_id: str | None = None
    key_kind: str | None = None
    session_id: str | None = None
    day: date | None = None
    calls: int = 0
    errors: int = 0
    cached: int = 0
    p50_ms: float | None = None
    p95_ms: float | None = None
    p99_ms: float | None = None
    max_ms: float | None = None
    last_called_at: datetime | None = None
    last_error: CallRecord | None = None

    @property
    def error_rate(self) -> float:
        """The share of errors among the calls, 0 to 1."""
        return self.errors / self.calls if self.calls else 0.0


def compute_stats(tx: Tx, filters: ToolCallFilter, group_by: CallGroupBy | None, *, limit: int = 1) -> list[CallStats]:
    """Return the figures of each group, most calls first, days in chronological order. Without *group_by*, one group of all calls."""
    groups = () if group_by is None else _GROUP_COLUMNS[group_by]
    conditions = _filter_conditions(filters)
    if group_by == "session":
        conditions.append(_c.session_id.is_not(None))
    counts = select(
        *groups,
        func.count().label("calls"),
        func.sum(case((_IS_FAILED, 1), else_=0)).label("errors"),
        func.sum(case((_c.cached == 1, 1), else_=0)).label("cached"),
        func.max(_c.called_at).label("last_called_at"),
        func.max(case((_IS_FAILED, _c.id))).label("last_failed"),
    ).where(*conditions)
    if groups:
        first = groups[0].desc() if group_by == "day" else func.count().desc()
        counts = counts.group_by(*groups).order_by(first, *groups).limit(limit)
    group_rows = [row for row in tx.fetch_all(counts) if row.integer("calls")]
    times = _compute_percentiles(tx, groups, conditions)
    failed = _find_by_ids(tx, [call_id for row in group_rows if (call_id := row.maybe_text("last_failed")) is not None])
    names = [group.name for group in groups]
    stats = [_to_stats(row, times.get(_get_group_key(row, names)), failed) for row in group_rows]
    return stats[::-1] if group_by == "day" else stats


def list_called_tools(tx: Tx, filters: ToolCallFilter) -> list[tuple[str, str]]:
    """Return the called tools as (server, tool) pairs."""
    rows = tx.fetch_all(select(_c.server_id, _c.tool).where(*_filter_conditions(filters)).distinct())
    return [(row.text("server_id"), row.text("tool")) for row in rows]


def list_calls(tx: Tx, filters: ToolCallFilter, *, page: PageSlice) -> ListPage[CallRecord]:
    """Return one page of calls, latest first, and the total number."""
    conditions = _filter_conditions(filters)
    return CALLS.fetch_page(tx, KeysetList(select(tool_calls).where(*conditions), _c.called_at.desc(), _c.id.desc()), page)


def count_groups(tx: Tx, filters: ToolCallFilter, group_by: CallGroupBy) -> int:
    """Return the number of groups."""
    groups, conditions = _GROUP_COLUMNS[group_by], _filter_conditions(filters)
    if group_by == "session":
        conditions.append(_c.session_id.is_not(None))
    subquery = select(*groups).where(*conditions).distinct().subquery()
    return fetch_count(tx, select(func.count()).select_from(subquery))


def _compute_percentiles(
    tx: Tx, groups: Sequence[ColumnElement[Any]], conditions: Sequence[ColumnElement[bool]]
) -> dict[tuple[object, ...], Row]:
    """Return p50, p95, p99 and max of each group: the smallest duration that at least that percentage does not exceed."""
    partition = groups or None
    ranked_calls = (
        select(
            *groups,
            _c.duration_ms.label("duration"),
            func.row_number().over(partition_by=partition, order_by=_c.duration_ms).label("position"),
            func.count().over(partition_by=partition).label("total"),
        )
        .where(*conditions, _IS_TIMED)
        .subquery()
    )
    group_columns = [ranked_calls.c[group.name] for group in groups]
    ranks = [
        func.max(case((ranked_calls.c.position == (ranked_calls.c.total * percent + 99) // 100, ranked_calls.c.duration))).label(
            f"p{percent}"
        )
        for percent in _PERCENTILES
    ]
    rows = tx.fetch_all(select(*group_columns, *ranks, func.max(ranked_calls.c.duration).label("longest")).group_by(*group_columns))
    return {_get_group_key(row, [group.name for group in groups]): row for row in rows}


def _find_by_ids(tx: Tx, ids: Sequence[str]) -> dict[str, CallRecord]:
    return {call.id: call for call in CALLS.fetch_all(tx, select(tool_calls).where(_c.id.in_(ids)))} if ids else {}


def _get_group_key(row: Row, names: Sequence[str]) -> tuple[object, ...]:
    return tuple(row.values[row.index[name]] for name in names)


def _to_stats(row: Row, times: Row | None, failed: dict[str, CallRecord]) -> CallStats:
    def text(name: str) -> str | None:
        return row.maybe_text(name) if name in row.index else None

    def duration(name: str) -> float | None:
        return None if times is None or times.values[times.index[name]] is None else times.number(name)

    return CallStats(
        server=text("server"),
        tool=text("tool"),
        key_id=text("key_id"),
        key_kind=text("key_kind"),
        session_id=text("session_id"),
        day=from_micros(row.integer("day") * _MICROS_PER_DAY).date() if "day" in row.index else None,
        calls=row.integer("calls"),
        errors=row.integer("errors"),
        cached=row.integer("cached"),
        p50_ms=duration("p50"),
        p95_ms=duration("p95"),
        p99_ms=duration("p99"),
        max_ms=duration("longest"),
        last_called_at=from_micros(row.integer("last_called_at")),
        last_error=failed.get(row.maybe_text("last_failed") or ""),
    )


def _filter_conditions(filters: ToolCallFilter) -> list[ColumnElement[bool]]:
    conditions: list[ColumnElement[bool]] = [_c.workspace_id == filters.workspace_id]
    if filters.since is not None:
        conditions.append(_c.called_at >= to_micros(filters.since))
    if filters.until is not None:
        conditions.append(_c.called_at < to_micros(filters.until))
    equal = (
        (_c.server_id, filters.server),
        (_c.tool, filters.tool),
        (_c.key_id, filters.key_id),
        (_c.session_id, filters.session_id),
        (_c.agent_id, filters.agent_id),
        (_c.code, filters.code),
        (_c.request_id, filters.request_id),
    )
    conditions += [column == value for column, value in equal if value is not None]
    if filters.success is not None:
        conditions.append(_c.success == int(filters.success))
    if filters.servers is not None:
        conditions.append(_c.server_id.in_(sorted(filters.servers)))
    if filters.names is not None:
        conditions.append((_c.server_id + "/" + _c.tool).in_(sorted(filters.names)))
    return conditions
