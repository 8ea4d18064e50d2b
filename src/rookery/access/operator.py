"""The operator: the user of the command line, who may read and change everything."""

from __future__ import annotations

import getpass
import os
from typing import TYPE_CHECKING, Protocol

from rookery.access.models import Actor, Caller, Workspace
from rookery.terminal.context import choose_workspace

if TYPE_CHECKING:  # commands that open nothing start faster without it
    from rookery.access.build import AccessServices
    from rookery.access.workspaces import Workspaces

_MAX_NAME_LENGTH = 100


class WorkspaceServices(Protocol):
    """The services that select the workspace of a command."""

    @property
    def workspaces(self) -> Workspaces: ...


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
    return Caller.without_limits(get_operator().name, workspace_id)


async def resolve_workspace(services: WorkspaceServices | AccessServices, name_or_id: str | None) -> Workspace:
    """Return the named workspace, or the only one. Exit with code 2 if the choice is ambiguous. Raises NotFound."""
    workspaces = {workspace.id: workspace for workspace in await services.workspaces.list()}
    return workspaces[choose_workspace({number: workspace.name for number, workspace in workspaces.items()}, name_or_id)]


async def resolve_caller(services: WorkspaceServices | AccessServices, name_or_id: str | None) -> Caller:
    """Return the operator as a caller in the named workspace, or in the only one. Raises as `resolve_workspace`."""
    return make_operator_caller((await resolve_workspace(services, name_or_id)).id)
