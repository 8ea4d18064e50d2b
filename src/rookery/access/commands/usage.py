"""`usage`: the calls of keys, added up or one by one, as a table and bars, lines, JSON or CSV (D-29)."""

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

from rookery.access import sheets, shown
from rookery.access.commands.printing import Fields, is_terminal, print_rows, say
from rookery.access.commands.reading import read_day, read_names, usage_error
from rookery.access.commands.terminal import Services, workspace_of
from rookery.access.keyring import Keyring
from rookery.access.models import CallFilter, KeyKind, UsageField, UsageFilter, UsageSum, Workspace
from rookery.access.usage import RETENTION
from rookery.kernel.clock import utc_now
from rookery.kernel.errors import NotFound

_BATCH = 1_000
_ALL = 2**31 - 1
_FIELDS = get_args(UsageField)
_BAR = 40
_DAYS_SHOWN = 62

By = Annotated[
    list[str] | None, typer.Option(help=f"What to keep apart, of {', '.join(_FIELDS)}; day,status by default.", show_default=False)
]
Since = Annotated[str, typer.Option(help="The first day, UTC: a date, or 7d for seven days ago.")]
Until = Annotated[str | None, typer.Option(help="The last day, UTC, itself included; today by default.", show_default=False)]
Calls = Annotated[bool, typer.Option("--calls", help="List the single calls of the key, newest first.")]
Status = Annotated[int | None, typer.Option(help="Of single calls, those answered with this status.", min=100, max=599, show_default=False)]
Route = Annotated[str | None, typer.Option(help="Of single calls, those to this route, as it is shown.", show_default=False)]
Csv = Annotated[bool, typer.Option("--csv", help="Print CSV; with --out it goes into a file.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What is asked for: *by* None means the single calls."""

    key_id: str | None
    by: frozenset[UsageField] | None
    since: date
    until: date
    status: int | None = None
    route: str | None = None

    @property
    def days(self) -> UsageFilter:
        """Return which sums are asked for."""
        return UsageFilter(key_id=self.key_id, since=self.since, until=self.until)

    @property
    def calls(self) -> CallFilter:
        """Return which calls are asked for: from the first day's beginning to the last one's end."""
        first, beyond = (_midnight(day) for day in (self.since, min(self.until, date.max - timedelta(days=1)) + timedelta(days=1)))
        return CallFilter(since=first, until=beyond, status=self.status, route=self.route)


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """How it is to be printed; neither: for people, or for a pipe."""

    as_csv: bool
    as_json: bool


def read(
    key_id: str | None, *, by: list[str] | None, since: str, until: str | None, calls: bool, status: int | None, route: str | None
) -> Asked:
    """Read the options."""
    first, last = read_day(since) or date.min, read_day(until) or utc_now().date()
    if first > last:
        usage_error(f"--since {first} comes after --until {last}.")
    if not calls and (status is not None or route is not None):
        usage_error("--status and --route choose among single calls: say --calls too.")
    names = read_names(by) or ("day", "status")
    unknown = [name for name in names if name not in _FIELDS]
    if unknown:
        usage_error(f"Calls cannot be added up by {unknown[0]!r}, only by {', '.join(_FIELDS)}.")
    if calls and key_id is None:
        usage_error("--calls lists the calls of one key: name it.")
    if calls and by:
        usage_error("Single calls are not added up: say either --calls or --by.")
    fields = None if calls else frozenset(cast("tuple[UsageField, ...]", names))
    return Asked(key_id=key_id, by=fields, since=first, until=last, status=status, route=route)


async def show(services: Services, keyring: Keyring, workspace: str | None, asked: Asked, *, form: Form, file: TextIO | None) -> None:
    """
    Print what is asked for, while it is read.

    Raises:
        NotFound: The key named never was, or is another workspace's.
    """
    owner = await workspace_of(services, workspace)
    if asked.key_id is not None:
        await _must_be_known(services, keyring, owner, asked.key_id)
    if asked.by is None:
        columns, rows = sheets.call_columns(), _calls(services, owner, asked)
    else:
        columns, rows = sheets.sum_columns(asked.by), _sums(services, keyring.kind, owner, asked, asked.by)
    if form.as_csv:
        await _write(rows, columns, file or sys.stdout)
        return
    if asked.by is not None and is_terminal() and not form.as_json:
        await _plot(services, keyring.kind, owner, asked)
    await print_rows(rows, columns, as_json=form.as_json)
    if asked.by is None and asked.since < (utc_now() - RETENTION).date():
        say(f"Single calls are kept for {RETENTION.days} days; their sums by day, for ever.")


async def _must_be_known(services: Services, keyring: Keyring, owner: Workspace, key_id: str) -> None:
    """Raise NotFound for a key that there is not, unless there was one: calls outlive their key."""
    try:
        await keyring.get(owner.id, key_id)
    except NotFound:
        ever = UsageFilter(key_id=key_id)
        if not await services.usage.sums(owner.id, keyring.kind, ever, frozenset({"key"}), limit=1):
            raise


async def _calls(services: Services, owner: Workspace, asked: Asked) -> AsyncGenerator[Fields]:
    async for call in services.usage.calls(owner.id, asked.key_id or "", asked.calls):
        yield shown.call(call)


async def _sums(services: Services, kind: KeyKind, owner: Workspace, asked: Asked, by: frozenset[UsageField]) -> AsyncGenerator[Fields]:
    """Yield the sums in their order; day by day if days are kept apart, so that 100,000 keys and a year need one day's memory."""
    if "day" not in by:
        for each in await services.usage.sums(owner.id, kind, asked.days, by, limit=_ALL):
            yield shown.usage_sum(each, by)
        return
    for each in await services.usage.sums(owner.id, kind, asked.days, frozenset({"day"}), limit=_ALL):
        day = date.fromisoformat(each.day or "")
        for part in await services.usage.sums(owner.id, kind, replace(asked.days, since=day, until=day), by, limit=_ALL):
            yield shown.usage_sum(part, by)


async def _write(rows: AsyncIterable[Fields], columns: list[str], file: TextIO) -> None:
    file.write(sheets.head(columns))
    waiting = list[Fields]()
    async for row in rows:
        waiting.append(row)
        if len(waiting) == _BATCH:
            file.write(sheets.lines(waiting, columns))
            waiting.clear()
    file.write(sheets.lines(waiting, columns))


async def _plot(services: Services, kind: KeyKind, owner: Workspace, asked: Asked) -> None:
    """Draw a bar for each day from the first with calls, errors in red; the last two months of them."""
    sums = await services.usage.sums(owner.id, kind, asked.days, frozenset({"day"}), limit=_ALL)
    if not sums:
        say("No calls.")
        return
    by_day = {date.fromisoformat(each.day or ""): each for each in sums}
    last = max(by_day)
    first = max(min(by_day), last - timedelta(days=_DAYS_SHOWN - 1))
    most = max(each.calls for each in sums)
    grid = Table.grid(padding=(0, 1))
    grid.add_column()
    grid.add_column()
    grid.add_column(justify="right")
    for number in range((last - first).days + 1):
        day = first + timedelta(days=number)
        grid.add_row(day.isoformat(), *_bar(by_day.get(day), most))
    Console().print(grid)


def _bar(of_day: UsageSum | None, most: int) -> tuple[Text, Text]:
    """Return a bar and its number; a day with errors shows at least a spot of red."""
    if of_day is None:
        return Text(""), Text("0", style="dim")
    width = max(1, round(_BAR * of_day.calls / most))
    red = min(width, max(1, round(width * of_day.errors / of_day.calls))) if of_day.errors else 0
    bar = Text("█" * (width - red), style="cyan").append("█" * red, style="red")
    number = Text(f"{of_day.calls:,}")
    return bar, number.append(f" ({of_day.errors:,} errors)", style="red") if of_day.errors else number


def _midnight(day: date) -> datetime:
    return datetime.combine(day, time_of_day(), tzinfo=UTC)
