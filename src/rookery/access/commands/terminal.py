"""What all commands of access share: opening the platform, choosing a workspace, printing, asking before destroying."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime, timedelta
from typing import Annotated, NoReturn, Protocol, TypeVar, cast

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from rookery.access.agent_keys import AgentKeys
from rookery.access.api_keys import ApiKeys
from rookery.access.models import Reach, Workspace
from rookery.access.workspaces import Workspaces
from rookery.kernel.clock import parse_iso, utc_now

T = TypeVar("T")

_DAYS = re.compile(r"([1-9]\d{0,4})d")

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only tell what would be done.")]
Where = Annotated[
    str | None, typer.Option("--workspace", help="The workspace, by name or number; needed once there are several.", show_default=False)
]
Expires = Annotated[
    str | None, typer.Option("--expires-at", help="When it expires: a time such as 2027-01-31, or 90d.", show_default=False)
]
Servers = Annotated[list[str] | None, typer.Option("--server", help="Only these tool servers; may be repeated.", show_default=False)]
Tools = Annotated[list[str] | None, typer.Option("--tool", help="Only tools that match these server/tool patterns.", show_default=False)]
Orgs = Annotated[list[str] | None, typer.Option("--org", help="Only memories of these orgs.", show_default=False)]
Projects = Annotated[list[str] | None, typer.Option("--project", help="Only memories of these projects.", show_default=False)]
ToolLimits = Annotated[list[str] | None, typer.Option("--tool-limit", help="Calls a minute by pattern: 'web/*=10'.", show_default=False)]


class Services(Protocol):
    """What the commands work with."""

    @property
    def workspaces(self) -> Workspaces: ...

    @property
    def api_keys(self) -> ApiKeys: ...

    @property
    def agent_keys(self) -> AgentKeys: ...


class Opened(Protocol):
    """The platform, opened for one command."""

    @property
    def access(self) -> Services: ...


class Context(Protocol):
    """What the command line hands every command as `typer.Context.obj`."""

    def open(self) -> AbstractAsyncContextManager[Opened]:
        """Open the platform on its store."""
        ...


def run(context: typer.Context, work: Callable[[Services], Awaitable[T]]) -> T:
    """Open the platform, do *work*, close it."""

    async def inside() -> T:
        async with cast("Context", context.obj).open() as opened:
            return await work(opened.access)

    return asyncio.run(inside())


async def workspace_of(services: Services, where: str | None) -> Workspace:
    """Return the workspace named, or the only one; exit code 2 if that is not clear."""
    known = await services.workspaces.list()
    if where is None:
        if len(known) == 1:
            return known[0]
        raise typer.BadParameter("Name the workspace with --workspace." if known else "There is no workspace yet: run `rookery init`.")
    for workspace in known:
        if where in {workspace.name, str(workspace.id)}:
            return workspace
    raise typer.BadParameter(f"There is no workspace {where!r}.")


def usage_error(message: str) -> NoReturn:
    """End the command with exit code 2."""
    raise typer.BadParameter(message)


def confirm(question: str, *, yes: bool) -> None:
    """Go on if the operator agrees; off a terminal only --yes agrees (D-04)."""
    if yes:
        return
    if not sys.stdin.isatty():
        usage_error(f"{question} Say --yes to do it.")
    typer.confirm(question, abort=True)


def read_expiry(text: str | None) -> datetime | None:
    """Read a time, or a number of days from now."""
    if text is None:
        return None
    days = _DAYS.fullmatch(text)
    if days is not None:
        return utc_now() + timedelta(days=int(days[1]))
    try:
        return parse_iso(text)
    except ValueError:
        usage_error(f"{text!r} is neither an ISO 8601 time nor a number of days such as 90d.")


def read_names(given: Sequence[str] | None) -> tuple[str, ...]:
    """Return names given one by one or with commas between."""
    return tuple(name.strip() for part in given or () for name in part.split(",") if name.strip())


def read_reach(
    *,
    servers: Sequence[str] | None,
    tools: Sequence[str] | None,
    orgs: Sequence[str] | None,
    projects: Sequence[str] | None,
    limits: Sequence[str] | None,
) -> Reach:
    """Read the allow-lists; what is not given is not restricted."""
    by_glob: dict[str, int] = {}
    for each in limits or ():
        glob, _, number = each.rpartition("=")
        if not glob or not (number.isascii() and number.isdigit()):
            usage_error(f"{each!r} is not of the form 'server/tool=calls a minute'.")
        by_glob[glob] = int(number)
    return Reach(
        servers=frozenset(read_names(servers)) if servers else None,
        tools=read_names(tools) if tools else None,
        orgs=frozenset(orgs) if orgs else None,
        projects=frozenset(projects) if projects else None,
        tool_limits=by_glob,
    )


def print_json(value: object) -> None:
    """Print one JSON document."""
    print(json.dumps(value, ensure_ascii=False))  # noqa: T201 - the command's answer


def print_one(fields: Mapping[str, object]) -> None:
    """Print one thing, a field a line."""
    width = max(map(len, fields))
    for name, value in fields.items():
        print(f"{name:{width}}  {_text(value)}")  # noqa: T201 - the command's answer


def print_many(rows: Sequence[Mapping[str, object]], columns: Sequence[str]) -> None:
    """Print a table on a terminal; in a pipe a line a row, tabs between."""
    console = Console()
    if not console.is_terminal:
        for row in rows:
            print("\t".join(_text(row[column]) for column in columns))  # noqa: T201 - the command's answer
        return
    table = Table(*columns)
    for row in rows:
        table.add_row(*(Text(_text(row[column])) for column in columns))
    console.print(table)


def _text(value: object) -> str:
    if value is None or value == []:
        return "-"
    if isinstance(value, list):
        return ", ".join(str(each) for each in cast("list[object]", value))
    if isinstance(value, dict):
        return ", ".join(f"{name}={each}" for name, each in cast("dict[str, object]", value).items()) or "-"
    return str(value)
