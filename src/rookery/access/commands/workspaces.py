"""`rookery workspace create|list|delete`."""

from __future__ import annotations

from typing import Annotated

import typer

from rookery.access import shown
from rookery.access.commands.terminal import DryRun, Json, Services, Yes, confirm, print_json, print_many, print_one, run, workspace_of
from rookery.access.workspaces import Deletion

app = typer.Typer(help="Workspaces: the tenants.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="Its name, or its number.")]


@app.command()
def create(context: typer.Context, *, name: Annotated[str, typer.Argument(help="Its name.")], as_json: Json = False) -> None:
    """Make a workspace."""
    made = shown.workspace(run(context, lambda services: services.workspaces.create(name)))
    if as_json:
        print_json(made)
    else:
        print_one(made)


@app.command("list")
def list_(context: typer.Context, *, as_json: Json = False) -> None:
    """List all workspaces."""
    found = [shown.workspace(each) for each in run(context, lambda services: services.workspaces.list())]
    if as_json:
        print_json(found)
    else:
        print_many(found, ["workspace_id", "name", "created_at"])


@app.command()
def delete(context: typer.Context, *, workspace: Name, yes: Yes = False, dry_run: DryRun = False, as_json: Json = False) -> None:
    """Delete a workspace with everything in it; its keys open nothing from then on."""

    async def counted(services: Services) -> Deletion:
        found = await workspace_of(services, workspace)
        return await services.workspaces.delete(found.id, dry_run=True)

    async def deleted(services: Services) -> Deletion:
        return await services.workspaces.delete(would.workspace.id)

    would = run(context, counted)
    if dry_run:
        _print(would, as_json=as_json)
        return
    confirm(f"Delete workspace {would.workspace.name!r} with {would.keys} keys and everything else in it?", yes=yes)
    _print(run(context, deleted), as_json=as_json)


def _print(deletion: Deletion, *, as_json: bool) -> None:
    fields: dict[str, object] = {
        **shown.workspace(deletion.workspace),
        "keys": deletion.keys,
        "calls": deletion.calls,
        "rows": deletion.rows,
        "deleted": deletion.rows is not None,
    }
    if as_json:
        print_json(fields)
    else:
        print_one(fields)
