"""The services that commands on keys, workspaces and the audit log use."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

import typer

from rookery.terminal.context import run

if TYPE_CHECKING:  # commands that open nothing start faster without these imports
    from rookery.access.build import AccessServices

T = TypeVar("T")


def run_with_access(context: typer.Context, work: Callable[[AccessServices], Awaitable[T]], *, create: bool = False) -> T:
    """Open keys, workspaces and the audit log, run *work* and close them; *create* the store if it does not exist."""
    return run(context, work, part="keys", create=create)


def read(context: typer.Context, work: Callable[[AccessServices], Awaitable[T]]) -> T:
    """Open keys, workspaces and the audit log read-only, which starts faster, run *work* and close them."""
    return run(context, work, part="keys-read-only")
