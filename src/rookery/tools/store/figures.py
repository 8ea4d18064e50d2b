"""Figures over the rows of calls: counts, exact percentiles, the latest failures (D-38)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, TypeAlias, get_args

from sqlalchemy import ColumnElement, and_, case, func, or_, select

from rookery.kernel.clock import from_micros, to_micros
from rookery.kernel.db import Row, Tx
from rookery.tools.models import CallRow, FailureCode
from rookery.tools.past_calls import CallFigures, Selection
from rookery.tools.store.calls import call_of, tool_calls

By: TypeAlias = Literal["tool", "server", "key", "session", "day"]

_c = tool_calls.c
_DAY = 86_400_000_000
_GROUPS: dict[By, tuple[ColumnElement[Any], ...]] = {
    "tool": (_c.server_id.label("server_id"), _c.tool.label("tool")),
    "server": (_c.server_id.label("server_id"),),
    "key": (_c.key_id.label("key_id"), _c.key_kind.label("key_kind")),
    "session": (_c.session_id.label("session_id"),),
    "day": ((_c.called_at // _DAY).label("day"),),
}
_FAILED = and_(_c.success == 0, or_(_c.code.is_(None), _c.code != "input_required"))
_TIMED = and_(_c.cached == 0, or_(_c.success == 1, _c.code.in_(get_args(FailureCode))))
"""Calls that took as long as their tool does: a refusal, or a result that was kept, would flatter it."""
_PERCENTS = (50, 95, 99)


def figures(tx: Tx, chosen: Selection, by: By | None, *, limit: int = 1) -> list[CallFigures]:
    """Return the figures of each group, those of the most calls first, days in their order; without *by* one of all."""
    groups = () if by is None else _GROUPS[by]
    where = _where(chosen)
    if by == "session":
        where.append(_c.session_id.is_not(None))
    counts = select(
        *groups,
        func.count().label("calls"),
        func.sum(case((_FAILED, 1), else_=0)).label("errors"),
        func.sum(case((_c.cached == 1, 1), else_=0)).label("cached"),
        func.max(_c.called_at).label("last_called_at"),
        func.max(case((_FAILED, _c.id))).label("last_failed"),
    ).where(*where)
    if groups:
        first = groups[0].desc() if by == "day" else func.count().desc()
        counts = counts.group_by(*groups).order_by(first, *groups).limit(limit)
    counted = [row for row in tx.all(counts) if row.integer("calls")]
    times = _times(tx, groups, where)
    failed = _by_id(tx, [each for row in counted if (each := row.maybe_text("last_failed")) is not None])
    names = [group.name for group in groups]
    found = [_figures(row, times.get(_group(row, names)), failed) for row in counted]
    return found[::-1] if by == "day" else found


def names(tx: Tx, chosen: Selection) -> list[tuple[str, str]]:
    """Return which tools were called: server and tool."""
    rows = tx.all(select(_c.server_id, _c.tool).where(*_where(chosen)).distinct())
    return [(row.text("server_id"), row.text("tool")) for row in rows]


def calls_page(tx: Tx, chosen: Selection, *, limit: int, offset: int) -> tuple[list[CallRow], int]:
    """Return one page of calls, the latest first, and how many there are in all."""
    where = _where(chosen)
    counted = tx.one(select(func.count().label("calls")).where(*where))
    rows = tx.all(select(tool_calls).where(*where).order_by(_c.called_at.desc(), _c.id.desc()).limit(limit).offset(offset))
    return [call_of(row) for row in rows], 0 if counted is None else counted.integer("calls")


def group_count(tx: Tx, chosen: Selection, by: By) -> int:
    """Return how many groups there are."""
    groups, where = _GROUPS[by], _where(chosen)
    if by == "session":
        where.append(_c.session_id.is_not(None))
    inner = select(*groups).where(*where).distinct().subquery()
    row = tx.one(select(func.count().label("groups")).select_from(inner))
    return 0 if row is None else row.integer("groups")


def _times(tx: Tx, groups: Sequence[ColumnElement[Any]], where: Sequence[ColumnElement[bool]]) -> dict[tuple[object, ...], Row]:
    """Return p50, p95, p99 and max of each group: the smallest duration that at least so many percent do not exceed."""
    partition = groups or None
    placed = (
        select(
            *groups,
            _c.duration_ms.label("took"),
            func.row_number().over(partition_by=partition, order_by=_c.duration_ms).label("place"),
            func.count().over(partition_by=partition).label("many"),
        )
        .where(*where, _TIMED)
        .subquery()
    )
    own = [placed.c[group.name] for group in groups]
    ranks = [
        func.max(case((placed.c.place == (placed.c.many * percent + 99) // 100, placed.c.took))).label(f"p{percent}")
        for percent in _PERCENTS
    ]
    rows = tx.all(select(*own, *ranks, func.max(placed.c.took).label("most")).group_by(*own))
    return {_group(row, [group.name for group in groups]): row for row in rows}


def _by_id(tx: Tx, ids: Sequence[str]) -> dict[str, CallRow]:
    if not ids:
        return {}
    rows = tx.all(select(tool_calls).where(_c.id.in_(ids)))
    return {row.text("id"): call_of(row) for row in rows}


def _group(row: Row, names: Sequence[str]) -> tuple[object, ...]:
    return tuple(row.values[row.index[name]] for name in names)


def _figures(row: Row, times: Row | None, failed: dict[str, CallRow]) -> CallFigures:
    def named(name: str) -> str | None:
        return row.maybe_text(name) if name in row.index else None

    def took(name: str) -> float | None:
        return None if times is None or times.values[times.index[name]] is None else times.number(name)

    failure = failed.get(row.maybe_text("last_failed") or "")
    return CallFigures(
        server_id=named("server_id"),
        tool=named("tool"),
        key_id=named("key_id"),
        key_kind=named("key_kind"),
        session_id=named("session_id"),
        day=from_micros(row.integer("day") * _DAY).date() if "day" in row.index else None,
        calls=row.integer("calls"),
        errors=row.integer("errors"),
        cached=row.integer("cached"),
        p50_ms=took("p50"),
        p95_ms=took("p95"),
        p99_ms=took("p99"),
        max_ms=took("most"),
        last_called_at=from_micros(row.integer("last_called_at")),
        last_failure=failure,
    )


def _where(chosen: Selection) -> list[ColumnElement[bool]]:
    where: list[ColumnElement[bool]] = [_c.workspace_id == chosen.workspace_id]
    if chosen.since is not None:
        where.append(_c.called_at >= to_micros(chosen.since))
    if chosen.until is not None:
        where.append(_c.called_at < to_micros(chosen.until))
    equal = (
        (_c.server_id, chosen.server),
        (_c.tool, chosen.tool),
        (_c.key_id, chosen.key_id),
        (_c.session_id, chosen.session_id),
        (_c.agent_id, chosen.agent_id),
        (_c.code, chosen.code),
    )
    where += [column == value for column, value in equal if value is not None]
    if chosen.success is not None:
        where.append(_c.success == int(chosen.success))
    if chosen.servers is not None:
        where.append(_c.server_id.in_(sorted(chosen.servers)))
    if chosen.names is not None:
        where.append((_c.server_id + "/" + _c.tool).in_(sorted(chosen.names)))
    return where
