"""What all commands of access share: opening the platform, choosing a workspace, asking before destroying."""

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

if TYPE_CHECKING:  # a command that opens nothing need not import what it would work with
    from rookery.access.agent_keys import AgentKeys
    from rookery.access.api_keys import ApiKeys
    from rookery.access.audit_log import AuditLog
    from rookery.access.usage_log import UsageLog
    from rookery.access.workspaces import Workspaces
    from rookery.kernel.config import Settings

T = TypeVar("T")

_MAX_NAME_LENGTH = 100

JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON.")]
YesOption = Annotated[bool, typer.Option("--yes", help="Do not ask.")]
DryRunOption = Annotated[bool, typer.Option("--dry-run", help="Only tell what would be done.")]
KeyIdArgument = Annotated[str, typer.Argument(help="The key's id.")]
WorkspaceOption = Annotated[
    str | None, typer.Option("--workspace", help="The workspace, by name or number; needed once there are several.", show_default=False)
]


def get_operator() -> Actor:
    """Return who sits at this command line, as the audit log names them."""
    try:
        name = getpass.getuser()
    except (KeyError, OSError):  # a container's user that has no name
        name = f"user {os.getuid()}"
    # From the environment, so it may be any bytes; the audit log is hashed as UTF-8.
    return Actor(kind="operator", name=name.encode("utf-8", "replace").decode("utf-8")[:_MAX_NAME_LENGTH])


def make_operator_caller(workspace_id: int) -> Caller:
    """Return the operator as the caller of a verb: everything in the workspace may be read and changed."""
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


class AccessCommandServices(Protocol):
    """What the commands work with."""

    @property
    def workspaces(self) -> Workspaces: ...

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
        """Leave nothing of what was deleted, in no index and no file; return why there is some."""
        ...


class AccessCommandContext(Protocol):
    """What the command line passes to every command as `typer.Context.obj`."""

    @property
    def settings(self) -> Settings: ...

    def open(self) -> AbstractAsyncContextManager[AccessPlatform]:
        """Open the platform on its store."""
        ...

    def open_keys(self) -> AbstractAsyncContextManager[AccessCommandServices]:
        """Open keys, workspaces and the audit log alone; a workspace cannot be deleted there."""
        ...

    def read_keys(self) -> AbstractAsyncContextManager[AccessCommandServices]:
        """Open them for a command that changes nothing; it starts sooner."""
        ...


def get_settings(context: typer.Context) -> Settings:
    """Return the settings."""
    return cast("AccessCommandContext", context.obj).settings


def run_with_access(context: typer.Context, work: Callable[[AccessCommandServices], Awaitable[T]]) -> T:
    """Open keys, workspaces and the audit log, do *work*, close them."""

    async def inside() -> T:
        async with cast("AccessCommandContext", context.obj).open_keys() as services:
            return await work(services)

    return asyncio.run(inside())


def read(context: typer.Context, work: Callable[[AccessCommandServices], Awaitable[T]]) -> T:
    """Open keys, workspaces and the audit log for reading, do *work*, close them."""

    async def inside() -> T:
        async with cast("AccessCommandContext", context.obj).read_keys() as services:
            return await work(services)

    return asyncio.run(inside())


def run_with_platform(context: typer.Context, work: Callable[[AccessPlatform], Awaitable[T]]) -> T:
    """Open the whole platform, do *work*, close it."""

    async def inside() -> T:
        async with cast("AccessCommandContext", context.obj).open() as opened:
            return await work(opened)

    return asyncio.run(inside())


async def resolve_workspace(services: AccessCommandServices, where: str | None) -> Workspace:
    """
    Return the workspace named, or the only one; exit code 2 if that is not clear.

    Raises:
        NotFound: There is no workspace of that name or number.
    """
    known = await services.workspaces.list()
    if where is None:
        if len(known) == 1:
            return known[0]
        raise_usage_error("Name the workspace with --workspace." if known else "There is no workspace yet: run `rookery init`.")
    found = [workspace for workspace in known if where in {workspace.name, str(workspace.id)}]
    if len(found) > 1:
        raise_usage_error(
            f"One workspace is called {where!r} and another has that number: name the one by its number, the other by its name."
        )
    if not found:
        raise NotFound("workspace", where)
    return found[0]


def confirm(question: str, *, yes: bool) -> None:
    """Go on if the operator agrees; off a terminal only --yes agrees (D-04)."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise_usage_error(f"{question} Say --yes to do it.")
    typer.confirm(question, abort=True, err=True)
