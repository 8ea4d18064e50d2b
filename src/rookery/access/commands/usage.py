"""`usage`: calls of keys as totals or single calls, with a chart, as lines, JSON or CSV."""

from __future__ import annotations

import sys
from collections.abc import AsyncGenerator, AsyncIterable
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from datetime import time as time_of_day
from typing import Annotated, TextIO, cast, get_args

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from rookery.access import serializers
from rookery.access.build import AccessServices
from rookery.access.keyring import Keyring
from rookery.access.models import CallFilter, KeyKind, UsageField, UsageFilter, UsageSum, Workspace
from rookery.access.operator import resolve_workspace
from rookery.access.usage_log import RETENTION
from rookery.kernel.clock import utc_now
from rookery.kernel.errors import NotFound
from rookery.kernel.safe_texts import csv_header, csv_lines
from rookery.kernel.sentences import format_count
from rookery.terminal.options import parse_day, raise_usage_error, split_names
from rookery.terminal.output import Fields, is_terminal, print_notice, print_rows

_ROWS_PER_WRITE = 1_000
_NO_LIMIT = 2**31 - 1
_GROUPING_FIELDS = get_args(UsageField)
_BAR_WIDTH = 40
_MAX_DAYS = 62

ByOption = Annotated[
    list[str] | None, typer.Option(help=f"Group by {', '.join(_GROUPING_FIELDS)}; by default day,status.", show_default=False)
]
SinceOption = Annotated[str, typer.Option(help="The first day, UTC: a date, or 7d for seven days ago.")]
UntilOption = Annotated[str | None, typer.Option(help="The last day, UTC, inclusive; by default today.", show_default=False)]
CallsOption = Annotated[bool, typer.Option("--calls", help="List the single calls of the key, newest first.")]
StatusOption = Annotated[int | None, typer.Option(help="With --calls: only calls with this status.", min=100, max=599, show_default=False)]
RouteOption = Annotated[
    str | None, typer.Option(help="With --calls: only calls of this route, written as in the list.", show_default=False)
]
CsvOption = Annotated[bool, typer.Option("--csv", help="Print CSV; with --out, write it to the file.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageQuery:
    """The parsed options; *by* None: list single calls."""

    key_id: str | None
    by: frozenset[UsageField] | None
    since: date
    until: date
    status: int | None = None
    route: str | None = None

    @property
    def day_filter(self) -> UsageFilter:
        """The filter of totals."""
        return UsageFilter(key_id=self.key_id, since=self.since, until=self.until)

    @property
    def call_filter(self) -> CallFilter:
        """The filter of single calls, from the start of the first day to the end of the last."""
        first, beyond = (_midnight(day) for day in (self.since, min(self.until, date.max - timedelta(days=1)) + timedelta(days=1)))
        return CallFilter(since=first, until=beyond, status=self.status, route=self.route)


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputFormat:
    """The output format; neither: a table on a terminal, lines in a pipe."""

    as_csv: bool
    as_json: bool


def parse_options(
    key_id: str | None, *, by: list[str] | None, since: str, until: str | None, calls: bool, status: int | None, route: str | None
) -> UsageQuery:
    """Parse and check the options."""
    first, last = parse_day(since) or date.min, parse_day(until) or utc_now().date()
    if first > last:
        raise_usage_error(f"--since {first} is after --until {last}.")
    if not calls and (status is not None or route is not None):
        raise_usage_error("--status and --route filter single calls. Use them with --calls.")
    names = split_names(by) or ("day", "status")
    unknown_names = [name for name in names if name not in _GROUPING_FIELDS]
    if unknown_names:
        raise_usage_error(f"Calls cannot be grouped by {unknown_names[0]!r}. The fields are {', '.join(_GROUPING_FIELDS)}.")
    if calls and key_id is None:
        raise_usage_error("--calls lists the calls of one key. Pass its id.")
    if calls and by:
        raise_usage_error("Single calls are not grouped. Use either --calls or --by.")
    fields = None if calls else frozenset(cast("tuple[UsageField, ...]", names))
    return UsageQuery(key_id=key_id, by=fields, since=first, until=last, status=status, route=route)


async def print_usage(
    services: AccessServices,
    keyring: Keyring,
    workspace: str | None,
    query: UsageQuery,
    *,
    output_format: OutputFormat,
    file: TextIO | None,
) -> None:
    """
    Print the requested usage while it is read.

    Raises:
        NotFound: The workspace never had this key.
    """
    owner = await resolve_workspace(services, workspace)
    if query.key_id is not None:
        await _require_known_key(services, keyring, owner, query.key_id)
    if query.by is None:
        columns, rows = serializers.call_columns(), _iter_calls(services, owner, query)
    else:
        columns, rows = serializers.usage_columns(query.by), _iter_sums(services, keyring.kind, owner, query, query.by)
    if output_format.as_csv:
        await _write_csv(rows, columns, file or sys.stdout)
        return
    if query.by is not None and is_terminal() and not output_format.as_json:
        await _print_chart(services, keyring.kind, owner, query)
    await print_rows(rows, columns, as_json=output_format.as_json)
    if query.by is None and query.since < (utc_now() - RETENTION).date():
        print_notice(f"Single calls are kept for {RETENTION.days} days. The totals by day are kept forever.")


async def _require_known_key(services: AccessServices, keyring: Keyring, owner: Workspace, key_id: str) -> None:
    """Raise NotFound unless the key exists or has usage from before its deletion."""
    try:
        await keyring.get(owner.id, key_id)
    except NotFound:
        ever = UsageFilter(key_id=key_id)
        if not await services.usage.list_sums(owner.id, keyring.kind, ever, frozenset({"key"}), limit=1):
            raise


async def _iter_calls(services: AccessServices, owner: Workspace, query: UsageQuery) -> AsyncGenerator[Fields]:
    async for call in services.usage.iter_calls(owner.id, query.key_id or "", query.call_filter):
        yield serializers.serialize_call(call)


async def _iter_sums(
    services: AccessServices, kind: KeyKind, owner: Workspace, query: UsageQuery, by: frozenset[UsageField]
) -> AsyncGenerator[Fields]:
    """Yield the totals in order. With days, read one day at a time, so that memory stays bounded by one day."""
    if "day" not in by:
        for usage_sum in await services.usage.list_sums(owner.id, kind, query.day_filter, by, limit=_NO_LIMIT):
            yield serializers.serialize_usage_sum(usage_sum, by)
        return
    for usage_sum in await services.usage.list_sums(owner.id, kind, query.day_filter, frozenset({"day"}), limit=_NO_LIMIT):
        day = date.fromisoformat(usage_sum.day or "")
        for part in await services.usage.list_sums(owner.id, kind, replace(query.day_filter, since=day, until=day), by, limit=_NO_LIMIT):
            yield serializers.serialize_usage_sum(part, by)


async def _write_csv(rows: AsyncIterable[Fields], columns: list[str], file: TextIO) -> None:
    file.write(csv_header(columns))
    pending_rows = list[Fields]()
    async for row in rows:
        pending_rows.append(row)
        if len(pending_rows) == _ROWS_PER_WRITE:
            file.write(csv_lines(pending_rows, columns))
            pending_rows.clear()
    file.write(csv_lines(pending_rows, columns))


async def _print_chart(services: AccessServices, kind: KeyKind, owner: Workspace, query: UsageQuery) -> None:
    """Print a bar for each day with errors in red, from the first day with calls; at most 62 days."""
    sums = await services.usage.list_sums(owner.id, kind, query.day_filter, frozenset({"day"}), limit=_NO_LIMIT)
    if not sums:
        print_notice("No calls.")
        return
    by_day = {date.fromisoformat(usage_sum.day or ""): usage_sum for usage_sum in sums}
    last = max(by_day)
    first = max(min(by_day), last - timedelta(days=_MAX_DAYS - 1))
    max_calls = max(usage_sum.calls for usage_sum in sums)
    grid = Table.grid(padding=(0, 1))
    grid.add_column()
    grid.add_column()
    grid.add_column(justify="right")
    for number in range((last - first).days + 1):
        day = first + timedelta(days=number)
        grid.add_row(day.isoformat(), *_chart_bar(by_day.get(day), max_calls))
    Console().print(grid)


def _chart_bar(day_sum: UsageSum | None, max_calls: int) -> tuple[Text, Text]:
    """Return a bar and its number. A day with errors has at least one red character."""
    if day_sum is None:
        return Text(""), Text("0", style="dim")
    width = max(1, round(_BAR_WIDTH * day_sum.calls / max_calls))
    red = min(width, max(1, round(width * day_sum.errors / day_sum.calls))) if day_sum.errors else 0
    bar = Text("█" * (width - red), style="cyan").append("█" * red, style="red")
    number = Text(f"{day_sum.calls:,}")
    return bar, number.append(f" ({format_count(day_sum.errors, 'error')})", style="red") if day_sum.errors else number


def _midnight(day: date) -> datetime:
    return datetime.combine(day, time_of_day(), tzinfo=UTC)
