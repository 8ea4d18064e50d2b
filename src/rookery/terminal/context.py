"""The object that every command receives, and opening the platform for one command."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast

import typer

from rookery.kernel.errors import NotFound
from rookery.terminal.options import raise_usage_error

if TYPE_CHECKING:  # commands that open nothing start faster without it
    from rookery.kernel.config import Settings

P = TypeVar("P")
T = TypeVar("T")


class PlatformOpener(Protocol):
    """The context that the command line passes to every command as `typer.Context.obj`."""

    @property
    def settings(self) -> Settings: ...

    def open(self, *, create: bool = False) -> AbstractAsyncContextManager[Any]:
        """Open the whole platform on its store, without jobs and tool servers; *create* the store if it does not exist."""
        ...

    def open_part(self, part: str, *, create: bool = False) -> AbstractAsyncContextManager[Any]:
        """Open only the services of one domain, which starts faster."""
        ...


def get_settings(context: typer.Context) -> Settings:
    return cast("PlatformOpener", context.obj).settings


def run(context: typer.Context, work: Callable[[P], Awaitable[T]], *, part: str | None = None, create: bool = False) -> T:
    """Open the platform, or only a *part* of it, run *work* and close it."""
    opener = cast("PlatformOpener", context.obj)

    async def open_and_run() -> T:
        opening = opener.open(create=create) if part is None else opener.open_part(part, create=create)
        async with cast("AbstractAsyncContextManager[P]", opening) as services:
            return await work(services)

    return asyncio.run(open_and_run())


def choose_workspace(names: Mapping[int, str], name_or_id: str | None) -> int:
    """
    Return the number of the named workspace, or of the only one. Exit with code 2 if the choice is ambiguous.

    Raises:
        NotFound: No workspace has this name or number.
    """
    if name_or_id is None:
        if len(names) == 1:
            return next(iter(names))
        raise_usage_error(
            "There are several workspaces. Select one with --workspace." if names else "There is no workspace yet. Run `rookery init`."
        )
    matches = [number for number, name in names.items() if name_or_id in {name, str(number)}]
    if len(matches) > 1:
        raise_usage_error(
            f"{name_or_id!r} is the name of one workspace and the number of another. Use the number of the first or the name of the second."
        )
    if not matches:
        raise NotFound("workspace", name_or_id)
    return matches[0]
