"""The memory and the workspace that a command runs against."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Protocol, TypeVar

import typer

from rookery.terminal.context import choose_workspace, run

if TYPE_CHECKING:  # help texts are shown faster without it
    from rookery.memory.build import MemoryServices

T = TypeVar("T")

DryRunOption = Annotated[bool, typer.Option("--dry-run", help="List what would be done and why, and change nothing.")]
ResumeOption = Annotated[bool, typer.Option("--resume", help="Continue an interrupted run of the same command.")]


class MaintenancePlatform(Protocol):
    """The platform, opened for one command."""

    @property
    def memory(self) -> MemoryServices: ...

    async def workspaces(self) -> Mapping[int, str]: ...


def run_in_workspace(
    context: typer.Context, workspace: str | None, work: Callable[[MemoryServices, int], Awaitable[T]], *, needs_workspace: bool = True
) -> T:
    """
    Open the platform, run *work* with its memory and the number of the workspace, and close it.

    Args:
        workspace: A name or number; None: the only workspace.
        needs_workspace: False: *work* receives 0 for all workspaces if *workspace* is None.
    """

    async def work_in_workspace(platform: MaintenancePlatform) -> T:
        is_needed = needs_workspace or workspace is not None
        return await work(platform.memory, choose_workspace(await platform.workspaces(), workspace) if is_needed else 0)

    return run(context, work_in_workspace)
