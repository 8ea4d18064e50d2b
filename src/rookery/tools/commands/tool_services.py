"""The services that commands for tool servers use, and the audit entry of one that changed servers.json."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar

import typer

from rookery.access.models import Actor
from rookery.kernel.config import Settings
from rookery.terminal.context import run

if TYPE_CHECKING:  # not imported at run time, to keep commands that open nothing fast
    from rookery.access.operator import WorkspaceServices
    from rookery.kernel.db import Database
    from rookery.tools.build import ToolServices

T = TypeVar("T")


class ToolPlatform(Protocol):
    """The platform, opened for one command."""

    @property
    def db(self) -> Database: ...

    @property
    def access(self) -> WorkspaceServices: ...

    @property
    def tools(self) -> ToolServices: ...


def run_with_platform(context: typer.Context, work: Callable[[ToolPlatform], Awaitable[T]], *, create: bool = False) -> T:
    """Open the platform, run *work* and close the platform; *create* its store if it does not exist."""
    return run(context, work, create=create)


def record_file_change(settings: Settings, operator: Actor, path: Path) -> str | None:
    """Write the entry to the record store as it is. Return why nothing was written, or None (`operator_audit.write_entries`)."""
    from rookery.access.operator_audit import write_entries
    from rookery.tools.servers.file_audit import record_file

    return write_entries(settings.data_dir, settings.database_url, lambda audit, tx: record_file(audit, tx, operator, path))
