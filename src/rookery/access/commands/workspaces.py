"""`rookery workspace`: the tenants."""

from __future__ import annotations

from typing import Annotated

import typer

from rookery.access import shown
from rookery.access.commands.printing import print_json, print_many, print_thing, say
from rookery.access.commands.terminal import DryRun, Json, Opened, Services, Yes, confirm, operator, read, run, run_opened, workspace_of
from rookery.access.models import Workspace
from rookery.access.workspaces import Deletion

app = typer.Typer(help="Workspaces: the tenants.", no_args_is_help=True)

Name = Annotated[str, typer.Argument(help="Its name, or its number.")]


@app.command()
def create(context: typer.Context, *, name: Annotated[str, typer.Argument(help="Its name.")], as_json: Json = False) -> None:
    """Make a workspace."""
    print_thing(shown.workspace(run(context, lambda services: services.workspaces.create(name, by=operator()))), as_json=as_json)


@app.command("list")
def list_(context: typer.Context, *, as_json: Json = False) -> None:
    """List all workspaces."""
    found = [shown.workspace(each) for each in read(context, lambda services: services.workspaces.list())]
    if as_json:
        print_json(found)
    else:
        print_many(found, ["workspace_id", "name", "created_at"])


@app.command()
def show(context: typer.Context, *, workspace: Name, as_json: Json = False) -> None:
    """Show a workspace, and how many keys and remembered calls it has."""
    found = read(context, lambda services: _counted(services, workspace))
    print_thing({**shown.workspace(found.workspace), "keys": found.keys, "calls": found.calls}, as_json=as_json)


@app.command()
def rename(
    context: typer.Context, *, workspace: Name, name: Annotated[str, typer.Argument(help="Its new name.")], as_json: Json = False
) -> None:
    """Give a workspace another name; its number and its keys stay."""

    async def work(services: Services) -> Workspace:
        return await services.workspaces.rename((await workspace_of(services, workspace)).id, name, by=operator())

    print_thing(shown.workspace(run(context, work)), as_json=as_json)


@app.command()
def delete(context: typer.Context, *, workspace: Name, yes: Yes = False, dry_run: DryRun = False, as_json: Json = False) -> None:
    """Delete a workspace with everything in it; its keys open nothing from then on."""
    would = read(context, lambda services: _counted(services, workspace))
    if dry_run:
        _print(would, as_json=as_json)
        return
    confirm(f"Delete workspace {would.workspace.name!r} with {would.keys} keys and everything else in it?", yes=yes)

    async def work(opened: Opened) -> tuple[Deletion, str | None]:
        deletion = await opened.access.workspaces.delete(would.workspace.id, by=operator())
        return deletion, await opened.clear_away()

    deletion, left = run_opened(context, work)
    _print(deletion, as_json=as_json)
    if left is not None:
        say(f"The workspace is deleted, but: {left} `rookery brain:forget --traces` does.")
        raise typer.Exit(1)


async def _counted(services: Services, workspace: str) -> Deletion:
    found = await workspace_of(services, workspace)
    return await services.workspaces.delete(found.id, dry_run=True, by=operator())


def _print(deletion: Deletion, *, as_json: bool) -> None:
    fields: shown.Fields = {
        **shown.workspace(deletion.workspace),
        "keys": deletion.keys,
        "calls": deletion.calls,
        "rows": deletion.rows,
        "deleted": deletion.rows is not None,
    }
    print_thing(fields, as_json=as_json)
