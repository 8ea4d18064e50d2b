"""Shared parts of the commands for tool servers: the settings, and access to the platform's store."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Protocol, TypeVar, cast

import typer

from rookery.access.commands.command_context import get_settings

if TYPE_CHECKING:  # not imported at run time, to keep commands that open nothing fast
    from rookery.access.commands.command_context import AccessCommandServices as AccessServices
    from rookery.kernel.config import Settings
    from rookery.kernel.db import Database
    from rookery.tools.servers.kill_switch import KillSwitch
    from rookery.tools.servers.logins import Logins
    from rookery.tools.servers.server_check import ServerChecker
    from rookery.tools.servers.workspace_servers import WorkspaceServers

__all__ = ["ToolCommandContext", "ToolCommandServices", "ToolPlatform", "get_settings", "run_with_platform"]

T = TypeVar("T")


class ToolCommandServices(Protocol):
    """The services of the tools domain, not started."""

    @property
    def workspace_servers(self) -> WorkspaceServers: ...

    @property
    def kill_switch(self) -> KillSwitch: ...

    @property
    def checker(self) -> ServerChecker: ...

    @property
    def logins(self) -> Logins: ...


class ToolPlatform(Protocol):
    """The platform, opened for one command."""

    @property
    def db(self) -> Database: ...

    @property
    def access(self) -> AccessServices: ...

    @property
    def tools(self) -> ToolCommandServices: ...


class ToolCommandContext(Protocol):
    """The object that every command receives as `typer.Context.obj`."""

    @property
    def settings(self) -> Settings: ...

    def open(self, *, create: bool = False) -> AbstractAsyncContextManager[ToolPlatform]:
        """Open the platform on its store, or create the store."""
        ...


def run_with_platform(context: typer.Context, work: Callable[[ToolPlatform], Awaitable[T]], *, create: bool = False) -> T:
    """Open the platform, run *work* and close the platform; *create* its store if it does not exist."""

    async def run() -> T:
        async with cast("ToolCommandContext", context.obj).open(create=create) as platform:
            return await work(platform)

    return asyncio.run(run())
