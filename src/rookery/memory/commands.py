"""Operators' commands on memory: `rookery brain reindex` (also `brain:reindex`) and `brain elastic-setup` (spec 4.4, D-52)."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from typing import Annotated, Protocol, cast

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from rookery.kernel.errors import NotFound
from rookery.memory.lifecycle import Lifecycle, Report, Wanted


class Opened(Protocol):
    """The platform, opened for one command."""

    @property
    def lifecycle(self) -> Lifecycle:
        """The verbs that these commands call."""
        ...

    async def workspace_id(self, name: str) -> int:
        """Return the number of the workspace of that name or number; raises NotFound."""
        ...


class Opens(Protocol):
    """What the command line hands every command as `typer.Context.obj`."""

    def open(self) -> AbstractAsyncContextManager[Opened]:
        """Return the platform on its store, closed when the command is over."""
        ...


def register(app: typer.Typer) -> None:
    """Add the group `brain` to the command line."""
    brain = typer.Typer(name="brain", help="Look after the shared memory.", no_args_is_help=True)
    brain.command("reindex")(reindex)
    brain.command("elastic-setup")(elastic_setup)
    app.add_typer(brain)


def reindex(
    context: typer.Context,
    org: Annotated[str | None, typer.Option(help="Only memories of this org.", show_default=False)] = None,
    project: Annotated[str | None, typer.Option(help="Only memories of this project.", show_default=False)] = None,
    workspace: Annotated[
        str | None, typer.Option(help="Only this workspace, by name or number; by default all.", show_default=False)
    ] = None,
    *,
    stale: Annotated[bool, typer.Option("--stale", help="Only memories that are not indexed as they are now.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only count what matches.")] = False,
    elastic_only: Annotated[bool, typer.Option("--elastic-only", help="Only the full-text index, without embedding.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print the report as JSON.")] = False,
) -> None:
    """Embed and index matching memories again; safe while the server runs."""
    wanted = Wanted(org=org, project=project, is_stale=stale, words_only=elastic_only)
    opens = cast("Opens", context.obj)
    if dry_run:
        _print_count(asyncio.run(_count(opens, wanted, workspace)), as_json=as_json)
        return
    report = asyncio.run(_reindex(opens, wanted, workspace))
    _print_report(report, as_json=as_json)
    if report.failures or report.stopped:
        raise typer.Exit(1)


def elastic_setup(
    context: typer.Context,
    workspace: Annotated[str | None, typer.Option(help="Taken for uniformity: one index serves all.", show_default=False)] = None,
    *,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Create the full-text index; done again it changes nothing."""
    del workspace
    asyncio.run(_setup(cast("Opens", context.obj)))
    _print(json.dumps({"ready": True}) if as_json else "The full-text index is ready.")


async def _count(opens: Opens, wanted: Wanted, workspace: str | None) -> int:
    async with opens.open() as opened:
        return await opened.lifecycle.count(await _inside(opened, wanted, workspace))


async def _inside(opened: Opened, wanted: Wanted, workspace: str | None) -> Wanted:
    if workspace is None:
        return wanted
    try:
        return replace(wanted, workspace_id=await opened.workspace_id(workspace))
    except NotFound:
        raise typer.BadParameter(f"There is no workspace {workspace!r}.") from None


async def _setup(opens: Opens) -> None:
    async with opens.open() as opened:
        await opened.lifecycle.setup_texts()


async def _reindex(opens: Opens, wanted: Wanted, workspace: str | None) -> Report:
    async with opens.open() as opened:
        wanted = await _inside(opened, wanted, workspace)
        if not (sys.stdout.isatty() and sys.stderr.isatty()):
            return await opened.lifecycle.reindex(wanted)
        columns = (TextColumn("Indexing"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        with Progress(*columns, console=Console(stderr=True)) as progress:
            return await opened.lifecycle.reindex(wanted, on_progress=_bar(progress))


def _bar(progress: Progress) -> Callable[[int, int], None]:
    task = progress.add_task("reindex", total=None)

    def show(done: int, total: int) -> None:
        progress.update(task, completed=done, total=total)

    return show


def _print_count(total: int, *, as_json: bool) -> None:
    _print(json.dumps({"total": total, "dry_run": True}) if as_json else f"{total} memories match; nothing was indexed.")


def _print_report(report: Report, *, as_json: bool) -> None:
    if as_json:
        shown = {
            "total": report.total,
            "successes": report.successes,
            "failures": report.failures,
            "duration_s": round(report.duration_s, 3),
            "stopped": report.stopped,
        }
        _print(json.dumps(shown))
        return
    _print(f"total {report.total}, successes {report.successes}, failures {report.failures}, duration {report.duration_s:.1f} s")
    if report.stopped:
        _print(f"stopped early: {report.stopped}")


def _print(line: str) -> None:
    print(line)  # noqa: T201 - the command's answer
