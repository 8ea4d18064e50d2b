"""What the commands of tool servers share: the settings, and the platform opened on its store."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Protocol, TypeVar, cast

import typer

from rookery.access.commands.terminal import settings_of

if TYPE_CHECKING:  # a command that opens nothing need not import what it would work with
    from rookery.access.commands.terminal import Services as AccessServices
    from rookery.kernel.config import Settings
    from rookery.kernel.db import Database
    from rookery.tools.servers.brakes import Brakes
    from rookery.tools.servers.checking import Checker
    from rookery.tools.servers.logins import Logins
    from rookery.tools.servers.owned import Owned

__all__ = ["Context", "Opened", "ToolServices", "run", "settings_of"]

T = TypeVar("T")


class ToolServices(Protocol):
    """The tool servers, none of them started."""

    @property
    def owned(self) -> Owned: ...

    @property
    def brakes(self) -> Brakes: ...

    @property
    def checker(self) -> Checker: ...

    @property
    def logins(self) -> Logins: ...


class Opened(Protocol):
    """The platform, opened for one command."""

    @property
    def db(self) -> Database: ...

    @property
    def access(self) -> AccessServices: ...

    @property
    def tools(self) -> ToolServices: ...


class Context(Protocol):
    """What the command line hands every command as `typer.Context.obj`."""

    @property
    def settings(self) -> Settings: ...

    def open(self) -> AbstractAsyncContextManager[Opened]:
        """Open the platform on its store."""
        ...


def run(context: typer.Context, work: Callable[[Opened], Awaitable[T]]) -> T:
    """Open the platform, do *work*, close it."""

    async def inside() -> T:
        async with cast("Context", context.obj).open() as opened:
            return await work(opened)

    return asyncio.run(inside())
