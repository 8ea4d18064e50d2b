"""`rookery workspace`: manage workspaces, the tenants."""

from __future__ import annotations

from typing import Annotated

import typer

from rookery.access import serializers
from rookery.access.commands.command_context import (
    AccessCommandServices,
    AccessPlatform,
    DryRunOption,
    JsonOption,
    YesOption,
    confirm,
    get_operator,
    read,
    resolve_workspace,
    run_with_access,
    run_with_platform,
)
from rookery.access.commands.output import print_json, print_list, print_notice, print_record
from rookery.access.models import Workspace
from rookery.access.workspaces import WorkspaceDeletion

app = typer.Typer(help="Manage workspaces, which separate the keys, memories and plans of tenants.", no_args_is_help=True)

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

    async def work(services: AccessCommandServices) -> Workspace:
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
    confirm(f"Delete workspace {preview.workspace.name!r} with {preview.key_count} keys and everything else in it?", yes=yes)

    async def work(platform: AccessPlatform) -> tuple[WorkspaceDeletion, str | None]:
        deletion = await platform.access.workspaces.delete(preview.workspace.id, by=get_operator())
        return deletion, await platform.erase_deleted()

    deletion, remaining_reason = run_with_platform(context, work)
    _print_deletion(deletion, as_json=as_json)
    if remaining_reason is not None:
        print_notice(f"The workspace is deleted, but: {remaining_reason} Run `rookery brain:forget --traces` to complete this.")
        raise typer.Exit(1)


async def _preview_deletion(services: AccessCommandServices, workspace: str) -> WorkspaceDeletion:
    owner = await resolve_workspace(services, workspace)
    return await services.workspaces.delete(owner.id, dry_run=True, by=get_operator())


def _print_deletion(deletion: WorkspaceDeletion, *, as_json: bool) -> None:
    fields: serializers.Fields = {
        **serializers.serialize_workspace(deletion.workspace),
        "keys": deletion.key_count,
        "calls": deletion.call_count,
        "rows": deletion.row_count,
        "deleted": deletion.row_count is not None,
    }
    print_record(fields, as_json=as_json)
