"""`rookery usage`: what keys, agents, models and tools used and cost, as a chart and a table, as lines, JSON or CSV."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterable, AsyncIterator, Callable, Collection, Sequence
from datetime import date, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Protocol, TextIO, cast

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from rookery.access.operator import resolve_workspace
from rookery.kernel.clock import utc_now
from rookery.kernel.money import format_money, to_amount
from rookery.kernel.pages import PageSlice
from rookery.kernel.safe_texts import csv_header, csv_lines
from rookery.terminal.context import run
from rookery.terminal.options import (
    JsonOption,
    OutputOption,
    WorkspaceOption,
    open_new_file,
    parse_day,
    raise_usage_error,
    split_names,
)
from rookery.terminal.output import Fields, format_value, is_terminal, print_notice, print_rows
from rookery.usage.errors import InvalidRange
from rookery.usage.models import DIMENSIONS, LedgerFilter, NamedUsage, UsageDimension, UsageGroup, UsageKind
from rookery.usage.ports import UsedBudget
from rookery.usage.ranges import DayRange, resolve_range
from rookery.usage.serializers import list_fields, serialize_group, to_csv_row

if TYPE_CHECKING:  # help texts are shown faster without it
    from rookery.access.build import AccessServices
    from rookery.usage.build import UsageServices
    from rookery.usage.reports import UsageReports

ToFields = Callable[[NamedUsage, Collection[UsageDimension]], Fields]

_ROWS_PER_WRITE = 1_000
_MAX_TABLE_ROWS = 1_000
_BAR_WIDTH = 40
_MAX_BARS = 62
_BUDGET_BAR_WIDTH = 20
_NEARLY_USED = 0.8
_DEFAULT_DIMENSIONS: tuple[UsageDimension, ...] = ("kind", "model")
_SUM_HEADERS = ("calls", "failed", "input", "output", "cost")
_THOUSAND, _MILLION = 1_000, 1_000_000

ByOption = Annotated[
    list[str] | None,
    typer.Option(help=f"Group by {', '.join(DIMENSIONS)}; by default {','.join(_DEFAULT_DIMENSIONS)}.", show_default=False),
]
SinceOption = Annotated[str | None, typer.Option(help="The first day, UTC: a date, or 7d for seven days ago.", show_default=False)]
UntilOption = Annotated[str | None, typer.Option(help="The last day, UTC, inclusive; by default today.", show_default=False)]
MonthOption = Annotated[
    str | None, typer.Option(help="A calendar month, such as 2026-11, or this or last, in place of days.", show_default=False)
]
KindOption = Annotated[list[str] | None, typer.Option(help=f"Only these kinds: {', '.join(UsageKind)}.", show_default=False)]
KeyOption = Annotated[str | None, typer.Option(help="Only the key with this id; empty: the command line.", show_default=False)]
AgentOption = Annotated[str | None, typer.Option(help="Only this agent.", show_default=False)]
ModelOption = Annotated[str | None, typer.Option(help="Only this model.", show_default=False)]
ToolOption = Annotated[str | None, typer.Option(help="Only this tool, as server/tool.", show_default=False)]
AllOption = Annotated[bool, typer.Option("--all-workspaces", help="Add up all workspaces, with their sandboxes and the server itself.")]
CsvOption = Annotated[bool, typer.Option("--csv", help="Print CSV; with --out, write it to the file.")]


class UsagePlatform(Protocol):
    """The platform, opened for one command."""

    @property
    def access(self) -> AccessServices: ...

    @property
    def usage(self) -> UsageServices: ...


def usage(
    context: typer.Context,
    *,
    by: ByOption = None,
    month: MonthOption = None,
    since: SinceOption = None,
    until: UntilOption = None,
    kind: KindOption = None,
    key: KeyOption = None,
    agent: AgentOption = None,
    model: ModelOption = None,
    tool: ToolOption = None,
    workspace: WorkspaceOption = None,
    all_workspaces: AllOption = False,
    out: OutputOption = None,
    csv: CsvOption = False,
    as_json: JsonOption = False,
) -> None:
    """
    Show what keys, agents, models and tools used, and what it cost.

    By default, the report covers the last 30 days. The tokens of the kind session are those that agents report. Everything else is counted
    by Rookery.
    """
    if all_workspaces and workspace is not None:
        raise_usage_error("Use either --workspace or --all-workspaces.")
    if as_json and (csv or out is not None):
        raise_usage_error("Use either --json or --csv.")
    days = _parse_range(since, until, month)
    dimensions = cast("tuple[UsageDimension, ...]", _parse_names("--by", by, DIMENSIONS) or _DEFAULT_DIMENSIONS)
    kinds = tuple(UsageKind(name) for name in _parse_names("--kind", kind, [*UsageKind]))

    async def work(platform: UsagePlatform) -> None:
        filters = LedgerFilter(
            tenants=None if all_workspaces else [(await resolve_workspace(platform.access, workspace)).id],
            since=days.since,
            until=days.until,
            kinds=kinds,
            key_id=key,
            agent_id=agent,
            model=model,
            tool=tool,
        )
        await _print_report(platform.usage.reports, filters, dimensions, out, as_csv=csv or out is not None, as_json=as_json)

    run(context, work)


def _parse_range(since: str | None, until: str | None, month: str | None) -> DayRange:
    try:
        return resolve_range(utc_now(), since=parse_day(since), until=parse_day(until), month=month)
    except InvalidRange as error:
        raise_usage_error(f"--{error.field} {error}.")


def _parse_names(option: str, values: Sequence[str] | None, allowed: Collection[str]) -> tuple[str, ...]:
    names = split_names(values)
    for name in names:
        if name not in allowed:
            raise_usage_error(f"{option} {name!r} is unknown. Use {', '.join(allowed)}.")
    return tuple(dict.fromkeys(names))


async def _print_report(
    reports: UsageReports, filters: LedgerFilter, by: Sequence[UsageDimension], out: Path | None, *, as_csv: bool, as_json: bool
) -> None:
    columns = list_fields(by)
    if as_csv:
        with open_new_file(out) as file:
            await _write_csv(_serialize(reports.iter_groups(filters, by), by, to_csv_row), columns, file or sys.stdout)
    elif as_json or not is_terminal():
        await print_rows(_serialize(reports.iter_groups(filters, by), by, serialize_group), columns, as_json=as_json)
    else:
        await _print_tables(reports, filters, by)


async def _serialize(groups: AsyncIterable[NamedUsage], by: Collection[UsageDimension], to_fields: ToFields) -> AsyncIterator[Fields]:
    async for group in groups:
        yield to_fields(group, by)


async def _write_csv(rows: AsyncIterable[Fields], columns: list[str], file: TextIO) -> None:
    file.write(csv_header(columns))
    pending_rows = list[Fields]()
    async for row in rows:
        pending_rows.append(row)
        if len(pending_rows) == _ROWS_PER_WRITE:
            file.write(csv_lines(pending_rows, columns))
            pending_rows.clear()
    file.write(csv_lines(pending_rows, columns))


async def _print_tables(reports: UsageReports, filters: LedgerFilter, by: Sequence[UsageDimension]) -> None:
    """Print the totals, a bar for each day, and the groups."""
    report = await reports.load(filters, by, page=PageSlice(_MAX_TABLE_ROWS))
    console = Console()
    if not report.totals:
        print_notice(f"No usage from {filters.since} to {filters.until}.")
        return
    for total in report.totals:
        console.print(_describe_total(total, filters), highlight=False)
    if "day" not in by:
        by_day = await reports.load(filters, ("day",), page=PageSlice(_MAX_TABLE_ROWS))
        console.print(_build_chart([usage.group for usage in by_day.groups.items]))
    console.print(_build_table(report.groups.items, by))
    if report.groups.total > len(report.groups.items):
        print_notice(f"These are the first {_MAX_TABLE_ROWS:,} of {report.groups.total:,} rows. Use a pipe, --csv or --json to get all.")
    budgets = [budget for tenant in filters.tenants or () for budget in await reports.list_budgets(tenant)]
    if budgets:
        console.print(_build_budget_table(budgets))
    if any(total.sums.unpriced_calls for total in report.totals):
        print_notice("Some calls have no price, so the cost lacks them. Set ROOKERY_GENERATION_PRICES or ROOKERY_EMBEDDING_PRICES.")


def _describe_total(total: UsageGroup, filters: LedgerFilter) -> Text:
    sums = total.sums
    text = Text(f"{filters.since} to {filters.until}  ").append(_format_cost(total), style="bold")
    tokens = f"{_format_count(sums.input_tokens)} input and {_format_count(sums.output_tokens)} output tokens"
    text.append(f"  {sums.calls:,} calls, {tokens}")
    if total.reported_nanos:
        text.append(f"; {format_money(to_amount(total.reported_nanos), total.currency)} of it as agents report")
    return text.append(", partly estimated" if sums.estimated_calls else "")


def _build_chart(groups: Sequence[UsageGroup]) -> Table:
    """Return a bar for each day: of its cost, or of its calls if nothing has a cost. At most 62 days, the last ones."""
    has_cost = any(group.sums.cost_nanos for group in groups)
    main_currency = max(groups, key=lambda group: group.sums.cost_nanos).currency
    values = {date.fromisoformat(group.day): group for group in groups if group.currency == main_currency or not has_cost}
    last = max(values)
    first = max(min(values), last - timedelta(days=_MAX_BARS - 1))
    highest = max(_measure(group, has_cost=has_cost) for group in values.values()) or 1
    grid = Table.grid(padding=(0, 1))
    for justify in ("left", "left", "right"):
        grid.add_column(justify=justify)
    for number in range((last - first).days + 1):
        day = first + timedelta(days=number)
        group = values.get(day)
        value = 0 if group is None else _measure(group, has_cost=has_cost)
        width = max(1, round(_BAR_WIDTH * value / highest)) if value else 0
        label = "" if group is None else _format_cost(group) if has_cost else f"{value:,}"
        grid.add_row(day.isoformat(), Text("█" * width, style="cyan"), Text(label))
    return grid


def _measure(group: UsageGroup, *, has_cost: bool) -> int:
    return group.sums.cost_nanos if has_cost else group.sums.calls


def _build_table(groups: Sequence[NamedUsage], by: Sequence[UsageDimension]) -> Table:
    names: list[UsageDimension] = [name for name in DIMENSIONS if name in by]
    table = Table()
    for name in names:
        table.add_column(Text(name), overflow="fold")
    for header in _SUM_HEADERS:
        table.add_column(Text(header), justify="right")
    for usage_group in groups:
        sums = usage_group.group.sums
        figures = (f"{sums.calls:,}", f"{sums.failed:,}", _format_count(sums.input_tokens), _format_count(sums.output_tokens))
        table.add_row(
            *[Text(format_value(_name_group(usage_group, name))) for name in names],
            *(Text(figure, style="red" if place == 1 and sums.failed else "") for place, figure in enumerate(figures)),
            Text(_format_cost(usage_group.group)),
        )
    return table


def _build_budget_table(budgets: Sequence[UsedBudget]) -> Table:
    """Return a bar for each budget: red if it is used up, yellow from four fifths on."""
    grid = Table.grid(padding=(0, 1))
    for budget in budgets:
        share = min(1.0, budget.used_nanos / budget.limit_nanos) if budget.limit_nanos else 1.0
        width = round(_BUDGET_BAR_WIDTH * share)
        color = "red" if share >= 1 else "yellow" if share >= _NEARLY_USED else "cyan"
        bar = Text("█" * width, style=color).append("░" * (_BUDGET_BAR_WIDTH - width), style="dim")
        used, limit = (format_money(to_amount(nanos), budget.currency) for nanos in (budget.used_nanos, budget.limit_nanos))
        grid.add_row(Text(format_value(f"Budget of {budget.name}")), bar, Text(f"{used} of {limit}, until {budget.resets_at:%Y-%m-%d}"))
    return grid


def _name_group(usage_group: NamedUsage, name: UsageDimension) -> str:
    group = usage_group.group
    if name == "key":
        return usage_group.key_name or group.key_id or "-"
    if name == "workspace":
        return usage_group.workspace_name or (str(group.tenant) if group.tenant else "the server")
    fields = {"day": group.day, "month": group.month, "kind": group.kind, "agent": group.agent_id, "model": group.model, "tool": group.tool}
    return fields[name] or "-"


def _format_cost(group: UsageGroup) -> str:
    text = format_money(to_amount(group.sums.cost_nanos), group.currency)
    return f"~{text}" if group.sums.estimated_calls else text


def _format_count(count: int) -> str:
    """Return a number of tokens as people read it, such as 1.2M."""
    if count < 10 * _THOUSAND:
        return f"{count:,}"
    return f"{count / _THOUSAND:,.0f}k" if count < _MILLION else f"{count / _MILLION:,.1f}M"
