"""Usage: what keys, agents, models and tools used and cost, by day and by group, beside the budgets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Literal, TypedDict, cast
from urllib.parse import urlencode

from starlette.responses import Response

from rookery.console.day_charts import DayChart, build_day_chart
from rookery.console.visit import PER_PAGE, PageLinks, View, Visit, open_call_group
from rookery_client.calls import UNSET, Unset
from rookery_client.generated import models

READ = "usage:read"

Dimension = Literal["day", "month", "workspace", "kind", "key", "agent", "model", "tool"]
Kind = Literal["generation", "judge", "embedding", "session", "tool_call"]

_PERIODS = {"this": "This month", "last": "Last month", "7d": "Last 7 days", "30d": "Last 30 days", "90d": "Last 90 days"}
_DEFAULT_PERIOD = "this"
_GROUPINGS: Mapping[str, tuple[str, tuple[Dimension, ...]]] = {
    "model": ("Kind and model", ("kind", "model")),
    "key": ("Key", ("key",)),
    "agent": ("Agent", ("agent",)),
    "key-model": ("Key and model", ("key", "model")),
    "agent-model": ("Agent and model", ("agent", "model")),
    "tool": ("Tool", ("tool",)),
    "kind": ("Kind", ("kind",)),
    "day": ("Day", ("day",)),
    "month": ("Month", ("month",)),
}
_KINDS: Mapping[str, str] = {
    "generation": "Generations",
    "judge": "Judge calls",
    "embedding": "Embeddings",
    "session": "Sessions, as agents report",
    "tool_call": "Tool calls",
}
_TITLES: Mapping[Dimension, str] = {
    "day": "Day",
    "month": "Month",
    "kind": "Kind",
    "key": "Key",
    "agent": "Agent",
    "model": "Model",
    "tool": "Tool",
}
_ROWS_PER_CALL, _MAX_CALLS = 100, 40
_BUDGETS_SHOWN = 5


class _Selection(TypedDict):
    """The parameters of the report that the filters of the page set."""

    since: date | str | Unset
    until: date | str | Unset
    month: str | Unset
    last: str | Unset
    kind: Sequence[Kind] | Unset
    key_id: str | Unset
    agent_id: str | Unset
    model: str | Unset


@dataclass(frozen=True, slots=True)
class UsageRow:
    """A group of the table: its names with the links that narrow the report to it, and its share of the cost of the page's currency."""

    names: tuple[tuple[str, str], ...]
    group: models.UsageGroup
    share: float


async def show_usage(visit: Visit) -> Response:
    """Show the cost of a period: its sum, its days, its groups, and how much of the budgets is used."""
    filters = _read_filters(visit)
    selection, by = _to_selection(filters), _GROUPINGS[filters["by"]][1]
    usage = visit.client.usage
    async with open_call_group() as group:
        start = group.create_task
        totals = start(usage.get_usage(**selection, by=["workspace"], per_page=_ROWS_PER_CALL))
        days = start(_list_days(visit, selection))
        groups = start(usage.get_usage(**selection, by=by, page=visit.page_number, per_page=PER_PAGE))
        budgets = start(_list_budgets(visit))
    page, sums = groups.result(), totals.result().items
    highest = sums[0].cost if sums else 0.0
    rows = [_make_row(item, by, highest, filters) for item in page.items]
    return visit.render(
        "usage/usage.html",
        rows=rows,
        titles=[_TITLES[name] for name in by],
        has_times=any(row.group.mean_ms is not None for row in rows),
        links=PageLinks.of(visit, page),
        totals=sums,
        charts=_build_charts(days.result()),
        budgets=budgets.result(),
        filters=filters,
        periods=tuple(_PERIODS.items()),
        groupings=[(name, title) for name, (title, _) in _GROUPINGS.items()],
        kinds=tuple(_KINDS.items()),
    )


async def export_usage(visit: Visit) -> Response:
    """Return all groups of the report as a CSV file."""
    filters = _read_filters(visit)
    text = await visit.client.usage.get_usage_csv(**_to_selection(filters), by=_GROUPINGS[filters["by"]][1])
    headers = {"Content-Disposition": 'attachment; filename="usage.csv"', "X-Content-Type-Options": "nosniff"}
    return Response(text, headers=headers, media_type="text/csv; charset=utf-8")


def _read_filters(visit: Visit) -> dict[str, str]:
    names = ("since", "until", "kind", "key_id", "agent_id", "model")
    filters = {name: visit.query(name) for name in names}
    filters["period"] = visit.query("period") if visit.query("period") in _PERIODS else _DEFAULT_PERIOD
    filters["by"] = visit.query("by") if visit.query("by") in _GROUPINGS else "model"
    if filters["kind"] not in _KINDS:
        filters["kind"] = ""
    return filters


def _to_selection(filters: Mapping[str, str]) -> _Selection:
    has_days = bool(filters["since"] or filters["until"])
    period = "" if has_days else filters["period"]
    is_month = period in {"this", "last"}
    return _Selection(
        since=filters["since"] or UNSET,
        until=filters["until"] or UNSET,
        month=period if is_month else UNSET,
        last=period if period and not is_month else UNSET,
        kind=[cast("Kind", filters["kind"])] if filters["kind"] else UNSET,
        key_id=filters["key_id"] or UNSET,
        agent_id=filters["agent_id"] or UNSET,
        model=filters["model"] or UNSET,
    )


async def _list_days(visit: Visit, selection: _Selection) -> list[models.UsageGroup]:
    page = await visit.client.usage.get_usage(**selection, by=["day"], per_page=_ROWS_PER_CALL)
    days = [*page.items]
    for _ in range(_MAX_CALLS - 1):
        if (following := await page.next()) is None:
            break
        page = following
        days += page.items
    return days


async def _list_budgets(visit: Visit) -> Sequence[models.Budget]:
    """Return the first budgets with a limit, if the key may read them."""
    if not visit.can("content.read"):
        return []
    page = await visit.client.content.list_content_budgets(per_page=_ROWS_PER_CALL)
    return [budget for budget in page.items if budget.daily is not None or budget.monthly is not None][:_BUDGETS_SHOWN]


def _make_row(group: models.UsageGroup, by: Sequence[Dimension], highest: float, filters: Mapping[str, str]) -> UsageRow:
    names = tuple((_name(group, dimension), _narrow(group, dimension, filters)) for dimension in by)
    return UsageRow(names, group, group.cost / highest if highest else 0.0)


def _name(group: models.UsageGroup, dimension: Dimension) -> str:
    if dimension == "key":
        return group.key_name or group.key_id or "the command line"
    if dimension == "kind":
        return _KINDS.get(group.kind or "", "–")
    names = {"day": group.day, "month": group.month, "agent": group.agent_id, "model": group.model, "tool": group.tool}
    return str(names.get(dimension) or "–")


def _narrow(group: models.UsageGroup, dimension: Dimension, filters: Mapping[str, str]) -> str:
    """Return the query of the page for this name alone; empty if no filter selects it."""
    values = {"key": ("key_id", group.key_id), "agent": ("agent_id", group.agent_id), "model": ("model", group.model)}
    name, value = values.get(dimension, ("kind", group.kind if dimension == "kind" else None))
    if not value or filters[name] == value:
        return ""
    grouping = "key" if dimension in {"kind", "model"} else "model"
    return urlencode({**{key: text for key, text in filters.items() if text}, "by": grouping, name: value})


def _build_charts(days: Sequence[models.UsageGroup]) -> list[tuple[str, DayChart]]:
    """Return the chart of the cost in the currency of the highest cost, and that of the calls."""
    if not days:
        return []
    dates = [group.day or datetime.now(UTC).date() for group in days]
    first, count = min(dates), (max(dates) - min(dates)).days + 1
    currency = max(days, key=lambda group: group.cost).currency
    costs = {str(group.day): group.cost for group in days if group.currency == currency}
    reported = {str(group.day): group.reported_cost for group in days if group.currency == currency}
    calls = dict[str, float]()
    failed = dict[str, float]()
    for group in days:
        day = str(group.day)
        calls[day] = calls.get(day, 0) + group.calls
        failed[day] = failed.get(day, 0) + group.failed
    charts = [("Calls by day", build_day_chart(first, count, [("calls", "accent", calls), ("failed", "bad", failed)]))]
    if any(costs.values()):
        series = build_day_chart(first, count, [(currency, "accent", costs), ("as agents report", "busy", reported)])
        charts.insert(0, ("Cost by day", series))
    return charts


VIEWS = (
    View("GET", "/usage", show_usage, READ),
    View("GET", "/usage/export", export_usage, READ),
)
