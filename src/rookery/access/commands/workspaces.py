"""`rookery workspace`: manage workspaces, the tenants."""

from __future__ import annotations

from typing import Annotated, Protocol

import typer

from rookery.access import serializers
from rookery.access.build import AccessServices
from rookery.access.commands.key_services import read, run_with_access
from rookery.access.models import Workspace
from rookery.access.operator import WorkspaceServices, get_operator, resolve_workspace
from rookery.access.workspaces import WorkspaceDeletion
from rookery.kernel.sentences import format_count
from rookery.terminal.context import run
from rookery.terminal.options import DryRunOption, JsonOption, YesOption, confirm
from rookery.terminal.output import print_json, print_list, print_notice, print_record

app = typer.Typer(no_args_is_help=True)


class AccessPlatform(Protocol):
    """The whole platform, opened for one command. Deleting a workspace deletes its rows in all domains."""

    @property
    def access(self) -> WorkspaceServices: ...

    async def erase_deleted(self) -> str | None:
        """Erase all remains of deleted data from indexes and files; return the reason if that is incomplete."""
        ...


WorkspaceArgument = Annotated[str, typer.Argument(help="The workspace's name or number.")]


@app.command()
def create(
    context: typer.Context, *, name: Annotated[str, typer.Argument(help="The workspace's name.")], as_json: JsonOption = False
) -> None:
    """Create a workspace."""
    print_record(
        serializers.serialize_workspace(
            run_with_access(context, lambda services: services.workspaces.create(name, by=get_operator()), create=True)
        ),
        as_json=as_json,
    )


@app.command("list")
def list_(context: typer.Context, *, as_json: JsonOption = False) -> None:
    """List all workspaces."""
    rows = [serializers.serialize_workspace(workspace) for workspace in read(context, lambda services: services.workspaces.list())]
    if as_json:
        print_json(rows)
    else:
        print_list(rows, ["workspace_id", "name", "created_at"])


@app.command()
def show(context: typer.Context, *, workspace: WorkspaceArgument, as_json: JsonOption = False) -> None:
    """Show a workspace with its numbers of keys and stored calls."""
    preview = read(context, lambda services: _preview_deletion(services, workspace))
    print_record(
        {**serializers.serialize_workspace(preview.workspace), "keys": preview.key_count, "calls": preview.call_count}, as_json=as_json
    )


@app.command()
def rename(
    context: typer.Context,
    *,
    workspace: WorkspaceArgument,
    name: Annotated[str, typer.Argument(help="The new name.")],
    as_json: JsonOption = False,
) -> None:
    """Rename a workspace. Its number and its keys do not change."""

    async def work(services: AccessServices) -> Workspace:
        return await services.workspaces.rename((await resolve_workspace(services, workspace)).id, name, by=get_operator())

    print_record(serializers.serialize_workspace(run_with_access(context, work)), as_json=as_json)


@app.command()
def delete(
    context: typer.Context,
    *,
    workspace: WorkspaceArgument,
    yes: YesOption = False,
    dry_run: DryRunOption = False,
    as_json: JsonOption = False,
) -> None:
    """Delete a workspace with everything in it. Its keys are rejected from then on."""
    preview = read(context, lambda services: _preview_deletion(services, workspace))
    if dry_run:
        _print_deletion(preview, as_json=as_json)
        return
    confirm(
        f"Delete workspace {preview.workspace.name!r} with {format_count(preview.key_count, 'key')} and everything else in it?", yes=yes
    )

    async def work(platform: AccessPlatform) -> tuple[WorkspaceDeletion, str | None]:
        deletion = await platform.access.workspaces.delete(preview.workspace.id, by=get_operator())
        return deletion, await platform.erase_deleted()

    deletion, remaining_reason = run(context, work)
    _print_deletion(deletion, as_json=as_json)
    if remaining_reason is not None:
        print_notice(f"The workspace is deleted, but: {remaining_reason} Run `rookery brain:forget --traces` to complete this.")
        raise typer.Exit(1)


async def _preview_deletion(services: AccessServices, workspace: str) -> WorkspaceDeletion:
    owner = await resolve_workspace(services, workspace)
    return await services.workspaces.delete(owner.id, dry_run=True, by=get_operator())


def _print_deletion(deletion: WorkspaceDeletion, *, as_json: bool) -> None:
    print_record(serializers.serialize_deletion(deletion), as_json=as_json)
