"""The platform and the workspace that a command on memory runs against."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Annotated, Protocol, TypeVar

import typer

from rookery.memory.maintenance.operations import MaintenanceServices
from rookery.memory.maintenance.reindexing import Reindexer
from rookery.memory.training import Training
from rookery.memory.transfer.importing import TransferServices
from rookery.terminal.context import choose_workspace, run

T = TypeVar("T")

DryRunOption = Annotated[bool, typer.Option("--dry-run", help="List what would be done and why, and change nothing.")]
ResumeOption = Annotated[bool, typer.Option("--resume", help="Continue an interrupted run of the same command.")]


class MaintenancePlatform(Protocol):
    """The platform, opened for one command."""

    @property
    def reindexer(self) -> Reindexer: ...

    @property
    def maintenance(self) -> MaintenanceServices: ...

    @property
    def training(self) -> Training: ...

    @property
    def transfer(self) -> TransferServices: ...

    async def workspaces(self) -> Mapping[int, str]: ...


def run_in_workspace(
    context: typer.Context, workspace: str | None, work: Callable[[MaintenancePlatform, int], Awaitable[T]], *, needs_workspace: bool = True
) -> T:
    """
    Open the platform, run *work* with the number of the workspace, and close it.

    Args:
        workspace: A name or number; None: the only workspace.
        needs_workspace: False: *work* receives 0 for all workspaces if *workspace* is None.
    """

    async def work_in_workspace(platform: MaintenancePlatform) -> T:
        is_needed = needs_workspace or workspace is not None
        return await work(platform, choose_workspace(await platform.workspaces(), workspace) if is_needed else 0)

    return run(context, work_in_workspace)
