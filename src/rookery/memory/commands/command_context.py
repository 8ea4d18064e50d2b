"""The platform, opened for one command on memory, and the workspace that it is about."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from typing import Annotated, NoReturn, Protocol, cast

import typer

from rookery.kernel.errors import NotFound
from rookery.memory.maintenance.operations import MaintenanceServices
from rookery.memory.maintenance.reindexing import Reindexer
from rookery.memory.training import Training
from rookery.memory.transfer.operations import TransferServices

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only tell what would be done, to which memories and why.")]
Resume = Annotated[bool, typer.Option("--resume", help="Go on where the same command was ended in the middle.")]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask.")]
Org = Annotated[str | None, typer.Option(help="Only memories of this org.", show_default=False)]
Project = Annotated[str | None, typer.Option(help="Only memories of this project.", show_default=False)]
WorkspaceOption = Annotated[
    str | None, typer.Option("--workspace", help="The workspace, by name or number; needed once there are several.", show_default=False)
]
AllWorkspacesOption = Annotated[
    str | None, typer.Option("--workspace", help="Only this workspace, by name or number; by default all.", show_default=False)
]


class MaintenancePlatform(Protocol):
    """The platform, opened for one command."""

    @property
    def reindexer(self) -> Reindexer:
        """The verbs of the indexes."""
        ...

    @property
    def maintenance(self) -> MaintenanceServices:
        """The verbs that change what is remembered."""
        ...

    @property
    def training(self) -> Training:
        """The verbs of training rows."""
        ...

    @property
    def transfer(self) -> TransferServices:
        """The verbs that move memories out of the store and into it."""
        ...

    async def workspaces(self) -> Mapping[int, str]:
        """Return the names of all workspaces by their numbers."""
        ...


class MaintenanceCommandContext(Protocol):
    """What the command line hands every command as `typer.Context.obj`."""

    def open(self) -> AbstractAsyncContextManager[MaintenancePlatform]:
        """Return the platform on its store, closed when the command is over."""
        ...


def get_platform(context: typer.Context) -> MaintenanceCommandContext:
    """Return what opens the platform."""
    return cast("MaintenanceCommandContext", context.obj)


async def resolve_workspace(command_context: MaintenancePlatform, where: str | None) -> int:
    """Return the number of the workspace named, or of the only one; exit code 2 if that is not clear (D-52)."""
    known = await command_context.workspaces()
    if where is not None:
        return _find_workspace(known, where)
    if len(known) != 1:
        fail_usage("Name the workspace with --workspace." if known else "There is no workspace yet: run `rookery init`.")
    return next(iter(known))


async def resolve_workspace_or_all(command_context: MaintenancePlatform, where: str | None) -> int | None:
    """Return the number of the workspace named; None: no name was given, so all."""
    return None if where is None else _find_workspace(await command_context.workspaces(), where)


def confirm(question: str, *, yes: bool) -> None:
    """Go on if the operator agrees; off a terminal only --yes agrees (D-04)."""
    if yes:
        return
    if not sys.stdin.isatty():
        fail_usage(f"{question} Add --yes to do it, or --dry-run to see what it would do.")
    typer.confirm(question, abort=True, err=True)


def fail_usage(message: str) -> NoReturn:
    """End with exit code 2, saying what was wrong with the command's options."""
    raise typer.BadParameter(message)


def _find_workspace(names: Mapping[int, str], where: str) -> int:
    found = [number for number, name in names.items() if where in {name, str(number)}]
    if len(found) > 1:
        fail_usage(f"One workspace is called {where!r} and another has that number: name the one by its number, the other by its name.")
    if not found:
        raise NotFound("workspace", where)
    return found[0]
