"""`rookery keys create|list|show|rotate|delete|prune`: API keys."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Literal

import typer

from rookery.access import shown
from rookery.access.api_keys import DEFAULT_GRACE_HOURS
from rookery.access.commands.terminal import (
    DryRun,
    Expires,
    Json,
    Orgs,
    Projects,
    Servers,
    Services,
    ToolLimits,
    Tools,
    Where,
    Yes,
    confirm,
    print_json,
    print_many,
    print_one,
    read_expiry,
    read_names,
    read_reach,
    run,
    usage_error,
    workspace_of,
)
from rookery.access.models import Entry, Minted, Tier
from rookery.access.settings import NewApiKey
from rookery.kernel.clock import utc_now

app = typer.Typer(help="API keys.", no_args_is_help=True)

KeyId = Annotated[str, typer.Argument(help="The key's id.")]
_COLUMNS = ["id", "name", "hint", "environment", "rate_limit_tier", "scopes", "expires_at", "last_used_at", "call_count"]
_ALL = 1_000_000


@app.command()
def create(
    context: typer.Context,
    *,
    name: Annotated[str, typer.Option(help="What it is for.")],
    scope: Annotated[list[str], typer.Option(help="A scope such as brain:read, mcp:* or *; may be repeated.")],
    tier: Annotated[Tier, typer.Option(help="How much it may ask an hour.")] = Tier.PRO,
    environment: Annotated[Literal["live", "test"], typer.Option(help="Test keys act in a sandbox of their own.")] = "live",
    expires: Expires = None,
    agent_id: Annotated[str | None, typer.Option(help="The agent that it speaks for.", show_default=False)] = None,
    server: Servers = None,
    tool: Tools = None,
    org: Orgs = None,
    project: Projects = None,
    tool_limit: ToolLimits = None,
    workspace: Where = None,
    as_json: Json = False,
) -> None:
    """Make an API key, and show it this once."""
    new = NewApiKey(
        name=name,
        scopes=read_names(scope),
        tier=tier,
        environment=environment,
        expires_at=read_expiry(expires),
        agent_id=agent_id,
        reach=read_reach(servers=server, tools=tool, orgs=org, projects=project, limits=tool_limit),
    )

    async def work(services: Services) -> Minted:
        return await services.api_keys.create((await workspace_of(services, workspace)).id, new, platform=True)

    _print_minted(run(context, work), as_json=as_json)


@app.command("list")
def list_(context: typer.Context, *, workspace: Where = None, as_json: Json = False) -> None:
    """List the API keys of a workspace, newest first."""

    async def work(services: Services) -> list[Entry]:
        return (await services.api_keys.page((await workspace_of(services, workspace)).id, limit=_ALL))[0]

    found = [shown.entry(each, utc_now()) for each in run(context, work)]
    if as_json:
        print_json(found)
    else:
        print_many(found, _COLUMNS)


@app.command()
def show(context: typer.Context, *, key_id: KeyId, workspace: Where = None, as_json: Json = False) -> None:
    """Show one API key."""

    async def work(services: Services) -> Entry:
        return await services.api_keys.get((await workspace_of(services, workspace)).id, key_id)

    found = shown.entry(run(context, work), utc_now())
    if as_json:
        print_json(found)
    else:
        print_one(found)


@app.command()
def rotate(
    context: typer.Context,
    *,
    key_id: KeyId,
    grace_hours: Annotated[int, typer.Option(help="How long the old key still works, in hours: 0 to 720.")] = DEFAULT_GRACE_HOURS,
    workspace: Where = None,
    as_json: Json = False,
) -> None:
    """Make a successor with the same settings, and show it this once."""

    async def work(services: Services) -> Minted:
        return await services.api_keys.rotate((await workspace_of(services, workspace)).id, key_id, grace_hours=grace_hours)

    _print_minted(run(context, work), as_json=as_json)


@app.command()
def delete(
    context: typer.Context,
    *,
    key_id: KeyId,
    workspace: Where = None,
    yes: Yes = False,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Delete an API key; it opens nothing from then on."""

    async def looked_up(services: Services) -> Entry:
        return await services.api_keys.get((await workspace_of(services, workspace)).id, key_id)

    found = run(context, looked_up)
    if not dry_run:
        confirm(f"Delete the key {found.key.name!r} ({found.key.hint})?", yes=yes)
        run(context, lambda services: services.api_keys.delete(found.key.workspace_id, key_id))
    fields: dict[str, object] = {"id": key_id, "name": found.key.name, "deleted": not dry_run}
    if as_json:
        print_json(fields)
    else:
        print_one(fields)


@app.command()
def prune(
    context: typer.Context,
    *,
    workspace: Where = None,
    expired_days: Annotated[int, typer.Option(help="Only keys that expired at least so many days ago.", min=0)] = 0,
    yes: Yes = False,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Delete API keys that have expired, or whose grace period is over; of all workspaces unless one is named."""
    if expired_days > 36_500:
        usage_error("--expired-days is at most 36500.")

    async def work(services: Services, *, dry: bool) -> list[Entry]:
        only = None if workspace is None else (await workspace_of(services, workspace)).id
        return await services.api_keys.prune(workspace_id=only, expired_for=timedelta(days=expired_days), dry_run=dry)

    found = run(context, lambda services: work(services, dry=True))
    if found and not dry_run:
        confirm(f"Delete {len(found)} expired keys?", yes=yes)
        found = run(context, lambda services: work(services, dry=False))
    if as_json:
        print_json({"keys": [shown.entry(each, utc_now()) for each in found], "deleted": 0 if dry_run else len(found)})
    else:
        print_many([shown.entry(each, utc_now()) for each in found], ["id", "name", "hint", "expires_at", "delete_after"])
        print_one({"expired": len(found), "deleted": 0 if dry_run else len(found)})


def _print_minted(made: Minted, *, as_json: bool) -> None:
    fields = shown.minted(made, utc_now())
    if as_json:
        print_json(fields)
    else:
        print_one(fields)
