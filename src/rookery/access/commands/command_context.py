"""Helpers of all commands of access: opening the platform, selecting a workspace, confirmations."""

from __future__ import annotations

import asyncio
import getpass
import os
import sys
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Annotated, Protocol, TypeVar, cast

import typer

from rookery.access.commands.options import raise_usage_error
from rookery.access.models import Actor, Caller, Workspace
from rookery.kernel.errors import NotFound

if TYPE_CHECKING:  # Commands that do not open the platform start faster without these imports.
    from rookery.access.agent_keys import AgentKeys
    from rookery.access.api_keys import ApiKeys
    from rookery.access.audit_log import AuditLog
    from rookery.access.usage_log import UsageLog
    from rookery.access.workspaces import Workspaces
    from rookery.kernel.config import Settings

T = TypeVar("T")

_MAX_NAME_LENGTH = 100

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
YesOption = Annotated[bool, typer.Option("--yes", help="Skip the confirmation.")]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Show what would be done, without doing it.")]
KeyIdArgument = Annotated[str, typer.Argument(help="The key's id.")]
WorkspaceOption = Annotated[
    str | None, typer.Option("--workspace", help="The workspace, by name or number; required if there are several.", show_default=False)
]


def get_operator() -> Actor:
    """Return the user of this command line as the actor for the audit log."""
    try:
        name = getpass.getuser()
    except (KeyError, OSError):  # The user of a container may have no name.
        name = f"user {os.getuid()}"
    # The name comes from the environment and may be any bytes, but the audit log hashes UTF-8.
    return Actor(kind="operator", name=name.encode("utf-8", "replace").decode("utf-8")[:_MAX_NAME_LENGTH])


def make_operator_caller(workspace_id: int) -> Caller:
    """Return a caller for the operator, who may read and change everything in the workspace."""
    return Caller(
        key_id="",
        key_kind="api",
        key_name=get_operator().name,
        workspace_id=workspace_id,
        public_workspace_id=workspace_id,
        scopes=frozenset({"*"}),
        agent_id=None,
        environment="live",
        servers=None,
        tools=None,
        orgs=None,
        projects=None,
        tool_limits={},
        address="unknown",
        request_id="",
    )


class WorkspaceServices(Protocol):
    """The services that select the workspace of a command."""

    @property
    def workspaces(self) -> Workspaces: ...


class AccessCommandServices(WorkspaceServices, Protocol):
    """The services that commands of access use."""

    @property
    def api_keys(self) -> ApiKeys: ...

    @property
    def agent_keys(self) -> AgentKeys: ...

    @property
    def usage(self) -> UsageLog: ...

    @property
    def audit(self) -> AuditLog: ...


class AccessPlatform(Protocol):
    """The platform, opened for one command."""

    @property
    def access(self) -> AccessCommandServices: ...

    async def erase_deleted(self) -> str | None:
        """Erase all remains of deleted data from indexes and files; return the reason if that is incomplete."""
        ...


class AccessCommandContext(Protocol):
    """The context that the command line passes to every command as `typer.Context.obj`."""

    @property
    def settings(self) -> Settings: ...

    def open(self) -> AbstractAsyncContextManager[AccessPlatform]:
        """Open the platform on its store."""
        ...

    def open_keys(self, *, create: bool = False) -> AbstractAsyncContextManager[AccessCommandServices]:
        """Open keys, workspaces and the audit log, or create their store. Workspaces cannot be deleted through it."""
        ...

    def read_keys(self) -> AbstractAsyncContextManager[AccessCommandServices]:
        """Open the same services read-only, which starts faster."""
        ...


def get_settings(context: typer.Context) -> Settings:
    """Return the settings."""
    return cast("AccessCommandContext", context.obj).settings


def run_with_access(context: typer.Context, work: Callable[[AccessCommandServices], Awaitable[T]], *, create: bool = False) -> T:
    """Open keys, workspaces and the audit log, run *work* and close them; *create* the store if it does not exist."""

    async def open_and_run() -> T:
        async with cast("AccessCommandContext", context.obj).open_keys(create=create) as services:
            return await work(services)

    return asyncio.run(open_and_run())


def read(context: typer.Context, work: Callable[[AccessCommandServices], Awaitable[T]]) -> T:
    """Open keys, workspaces and the audit log read-only, run *work* and close them."""

    async def open_and_run() -> T:
        async with cast("AccessCommandContext", context.obj).read_keys() as services:
            return await work(services)

    return asyncio.run(open_and_run())


def run_with_platform(context: typer.Context, work: Callable[[AccessPlatform], Awaitable[T]]) -> T:
    """Open the whole platform, run *work* and close it."""

    async def open_and_run() -> T:
        async with cast("AccessCommandContext", context.obj).open() as platform:
            return await work(platform)

    return asyncio.run(open_and_run())


async def resolve_workspace(services: WorkspaceServices, name_or_id: str | None) -> Workspace:
    """
    Return the named workspace, or the only one. Exit with code 2 if the choice is ambiguous.

    Raises:
        NotFound: No workspace has this name or number.
    """
    workspaces = await services.workspaces.list()
    if name_or_id is None:
        if len(workspaces) == 1:
            return workspaces[0]
        raise_usage_error(
            "There are several workspaces. Select one with --workspace." if workspaces else "There is no workspace yet. Run `rookery init`."
        )
    matches = [workspace for workspace in workspaces if name_or_id in {workspace.name, str(workspace.id)}]
    if len(matches) > 1:
        raise_usage_error(
            f"{name_or_id!r} is the name of one workspace and the number of another. Use the number of the first or the name of the second."
        )
    if not matches:
        raise NotFound("workspace", name_or_id)
    return matches[0]


def confirm(question: str, *, yes: bool) -> None:
    """Ask the operator to confirm. Without a terminal, --yes is required (D-04)."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise_usage_error(f"{question} Confirm with --yes.")
    typer.confirm(question, abort=True, err=True)
