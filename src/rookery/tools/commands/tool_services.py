"""The services that commands for tool servers use."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Protocol, TypeVar

import typer

from rookery.terminal.context import run

if TYPE_CHECKING:  # not imported at run time, to keep commands that open nothing fast
    from rookery.access.operator import WorkspaceServices
    from rookery.kernel.db import Database
    from rookery.tools.servers.kill_switch import KillSwitch
    from rookery.tools.servers.logins import Logins
    from rookery.tools.servers.server_check import ServerChecker
    from rookery.tools.servers.workspace_servers import WorkspaceServers

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
    def access(self) -> WorkspaceServices: ...

    @property
    def tools(self) -> ToolCommandServices: ...


def run_with_platform(context: typer.Context, work: Callable[[ToolPlatform], Awaitable[T]], *, create: bool = False) -> T:
    """Open the platform, run *work* and close the platform; *create* its store if it does not exist."""
    return run(context, work, create=create)
