"""The platform and the workspace that a command on memory runs against."""

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
from rookery.memory.transfer.importing import TransferServices

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="List what would be done and why, and change nothing.")]
Resume = Annotated[bool, typer.Option("--resume", help="Continue an interrupted run of the same command.")]
Yes = Annotated[bool, typer.Option("--yes", help="Skip the confirmation.")]
Org = Annotated[str | None, typer.Option(help="Only memories of this org.", show_default=False)]
Project = Annotated[str | None, typer.Option(help="Only memories of this project.", show_default=False)]
WorkspaceOption = Annotated[
    str | None, typer.Option("--workspace", help="The workspace, by name or number; required if there are several.", show_default=False)
]
AllWorkspacesOption = Annotated[
    str | None, typer.Option("--workspace", help="Only this workspace, by name or number; all by default.", show_default=False)
]


class MaintenancePlatform(Protocol):
    """The platform, opened for one command."""

    @property
    def reindexer(self) -> Reindexer:
        """The operations on the indexes."""
        ...

    @property
    def maintenance(self) -> MaintenanceServices:
        """The operations that change stored memories."""
        ...

    @property
    def training(self) -> Training:
        """The training examples."""
        ...

    @property
    def transfer(self) -> TransferServices:
        """The export and import of memories."""
        ...

    async def workspaces(self) -> Mapping[int, str]:
        """Return the names of all workspaces by number."""
        ...


class MaintenanceCommandContext(Protocol):
    """The object that the command line passes to every command as `typer.Context.obj`."""

    def open(self) -> AbstractAsyncContextManager[MaintenancePlatform]:
        """Open the platform on its store; it is closed at the end of the block."""
        ...


def get_platform(context: typer.Context) -> MaintenanceCommandContext:
    """Return the command context, which opens the platform."""
    return cast("MaintenanceCommandContext", context.obj)


async def resolve_workspace(command_context: MaintenancePlatform, name_or_id: str | None) -> int:
    """Return the number of the workspace *name_or_id*, or of the only one. Exit with code 2 if it is ambiguous (D-52)."""
    names = await command_context.workspaces()
    if name_or_id is not None:
        return _find_workspace(names, name_or_id)
    if len(names) != 1:
        fail_usage(
            "There are several workspaces; choose one with --workspace." if names else "No workspace exists yet; run `rookery init`."
        )
    return next(iter(names))


async def resolve_workspace_or_all(command_context: MaintenancePlatform, name_or_id: str | None) -> int | None:
    """Return the number of the workspace *name_or_id*, or None, for all workspaces, without a name."""
    return None if name_or_id is None else _find_workspace(await command_context.workspaces(), name_or_id)


def confirm(question: str, *, yes: bool) -> None:
    """Require the operator's confirmation, and exit without it. Without a terminal, only --yes confirms (D-04)."""
    if yes:
        return
    if not sys.stdin.isatty():
        fail_usage(f"{question} Add --yes to confirm, or --dry-run to see what would be done.")
    typer.confirm(question, abort=True, err=True)


def fail_usage(message: str) -> NoReturn:
    """Exit with code 2 and an error message about the options of the command."""
    raise typer.BadParameter(message)


def _find_workspace(names: Mapping[int, str], name_or_id: str) -> int:
    matches = [number for number, name in names.items() if name_or_id in {name, str(number)}]
    if len(matches) > 1:
        fail_usage(
            f"{name_or_id!r} is the name of one workspace and the number of another; use the number of the first or the name of the second."
        )
    if not matches:
        raise NotFound("workspace", name_or_id)
    return matches[0]
