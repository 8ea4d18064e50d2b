"""The platform, opened for one command on memory, and the workspace that it is about."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from typing import Annotated, NoReturn, Protocol, cast

import typer

from rookery.kernel.errors import NotFound
from rookery.memory.maintenance.lifecycle import Lifecycle
from rookery.memory.maintenance.tidying import Tidying
from rookery.memory.training import Training
from rookery.memory.transfer.moving import Moving

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only tell what would be done, to which memories and why.")]
Resume = Annotated[bool, typer.Option("--resume", help="Go on where the same command was ended in the middle.")]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask.")]
Org = Annotated[str | None, typer.Option(help="Only memories of this org.", show_default=False)]
Project = Annotated[str | None, typer.Option(help="Only memories of this project.", show_default=False)]
Where = Annotated[
    str | None, typer.Option("--workspace", help="The workspace, by name or number; needed once there are several.", show_default=False)
]
Anywhere = Annotated[
    str | None, typer.Option("--workspace", help="Only this workspace, by name or number; by default all.", show_default=False)
]


class Opened(Protocol):
    """The platform, opened for one command."""

    @property
    def lifecycle(self) -> Lifecycle:
        """The verbs of the indexes."""
        ...

    @property
    def tidying(self) -> Tidying:
        """The verbs that change what is remembered."""
        ...

    @property
    def training(self) -> Training:
        """The verbs of training rows."""
        ...

    @property
    def moving(self) -> Moving:
        """The verbs that move memories out of the store and into it."""
        ...

    async def workspaces(self) -> Mapping[int, str]:
        """Return the names of all workspaces by their numbers."""
        ...


class Opens(Protocol):
    """What the command line hands every command as `typer.Context.obj`."""

    def open(self) -> AbstractAsyncContextManager[Opened]:
        """Return the platform on its store, closed when the command is over."""
        ...


def opens(context: typer.Context) -> Opens:
    """Return what opens the platform."""
    return cast("Opens", context.obj)


async def one(opened: Opened, where: str | None) -> int:
    """Return the number of the workspace named, or of the only one; exit code 2 if that is not clear (D-52)."""
    known = await opened.workspaces()
    if where is not None:
        return _named(known, where)
    if len(known) != 1:
        wrong("Name the workspace with --workspace." if known else "There is no workspace yet: run `rookery init`.")
    return next(iter(known))


async def one_or_all(opened: Opened, where: str | None) -> int | None:
    """Return the number of the workspace named; None: no name was given, so all."""
    return None if where is None else _named(await opened.workspaces(), where)


def confirm(question: str, *, yes: bool) -> None:
    """Go on if the operator agrees; off a terminal only --yes agrees (D-04)."""
    if yes:
        return
    if not sys.stdin.isatty():
        wrong(f"{question} Add --yes to do it, or --dry-run to see what it would do.")
    typer.confirm(question, abort=True, err=True)


def wrong(says: str) -> NoReturn:
    """End with exit code 2, saying what was wrong with the command's options."""
    raise typer.BadParameter(says)


def _named(known: Mapping[int, str], where: str) -> int:
    found = [number for number, name in known.items() if where in {name, str(number)}]
    if len(found) > 1:
        wrong(f"One workspace is called {where!r} and another has that number: name the one by its number, the other by its name.")
    if not found:
        raise NotFound("workspace", where)
    return found[0]
