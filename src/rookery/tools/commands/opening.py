"""What the commands of tool servers share: the settings, and the platform opened on its store."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import Protocol, TypeVar, cast

import typer

from rookery.access.commands.terminal import Services as AccessServices
from rookery.kernel.config import Settings
from rookery.kernel.db import Database
from rookery.tools.servers.brakes import Brakes
from rookery.tools.servers.checking import Checker
from rookery.tools.servers.logins import Logins
from rookery.tools.servers.owned import Owned

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


def settings_of(context: typer.Context) -> Settings:
    """Return the settings."""
    return cast("Context", context.obj).settings
