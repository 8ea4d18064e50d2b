"""`rookery keys`: API keys."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated, Literal

import typer

from rookery.access.commands import both_kinds
from rookery.access.commands.reading import (
    AllOrgs,
    AllProjects,
    AllServers,
    AllTools,
    Expires,
    Lists,
    Never,
    NoToolLimits,
    Orgs,
    Out,
    Preset,
    Projects,
    Servers,
    ToolLimits,
    Tools,
    read_expiry,
    read_grants,
    read_new_expiry,
    usage_error,
)
from rookery.access.commands.terminal import Json, KeyId, Services, Where, operator, workspace_of
from rookery.access.models import Minted, Tier
from rookery.access.settings import KEPT, Changes, NewApiKey

app = typer.Typer(help="API keys.", no_args_is_help=True)

Scopes = Annotated[
    list[str] | None,
    typer.Option("--scope", help="A scope such as brain:read, mcp:* or *; may be repeated.", show_default=False),
]
Environments = Literal["live", "test"]


@app.command()
def create(
    context: typer.Context,
    *,
    name: Annotated[str, typer.Option(help="What it is for; several keys are numbered.")],
    preset: Preset = None,
    scope: Scopes = None,
    tier: Annotated[Tier, typer.Option(help="How much it may ask an hour.")] = Tier.PRO,
    environment: Annotated[Environments, typer.Option(help="Test keys act in a sandbox of their own.")] = "live",
    expires: Expires = None,
    agent_id: Annotated[str | None, typer.Option(help="The agent that it speaks for.", show_default=False)] = None,
    server: Servers = None,
    tool: Tools = None,
    org: Orgs = None,
    project: Projects = None,
    tool_limit: ToolLimits = None,
    count: both_kinds.Count = 1,
    out: Out = None,
    workspace: Where = None,
    as_json: Json = False,
) -> None:
    """Make API keys, and show them this once."""
    scopes, expires_at = read_grants(preset, scope, option="--scope"), read_expiry(expires)
    reach = Lists(servers=server, tools=tool, orgs=org, projects=project, limits=tool_limit).reach()
    new = [
        NewApiKey(name=each, scopes=scopes, tier=tier, environment=environment, expires_at=expires_at, agent_id=agent_id, reach=reach)
        for each in both_kinds.numbered(name, count)
    ]

    async def work(services: Services, done: Callable[[int], None]) -> Sequence[Minted]:
        owner = (await workspace_of(services, workspace)).id
        return await services.api_keys.create_many(owner, new, by=operator(), progress=done)

    both_kinds.mint(context, work, count=count, out=out, as_json=as_json)


@app.command("list")
def list_(
    context: typer.Context,
    *,
    environment: Annotated[Environments | None, typer.Option(help="Only live keys, or only test keys.", show_default=False)] = None,
    status: both_kinds.Status = None,
    workspace: Where = None,
    as_json: Json = False,
) -> None:
    """List the API keys of a workspace, newest first."""
    both_kinds.list_keys(context, workspace, environment=environment, status=status, as_json=as_json)


@app.command()
def change(
    context: typer.Context,
    *,
    key_id: KeyId,
    name: Annotated[str | None, typer.Option(help="What it is for.", show_default=False)] = None,
    preset: Preset = None,
    scope: Scopes = None,
    tier: Annotated[Tier | None, typer.Option(help="How much it may ask an hour.", show_default=False)] = None,
    expires: Expires = None,
    never: Never = False,
    agent_id: Annotated[str | None, typer.Option(help="The agent that it speaks for.", show_default=False)] = None,
    no_agent_id: Annotated[bool, typer.Option("--no-agent-id", help="Let it speak for no agent.")] = False,
    server: Servers = None,
    all_servers: AllServers = False,
    tool: Tools = None,
    all_tools: AllTools = False,
    org: Orgs = None,
    all_orgs: AllOrgs = False,
    project: Projects = None,
    all_projects: AllProjects = False,
    tool_limit: ToolLimits = None,
    no_tool_limits: NoToolLimits = False,
    workspace: Where = None,
    as_json: Json = False,
) -> None:
    """Change an API key; each option replaces what it names, and the rest stays."""
    if agent_id is not None and no_agent_id:
        usage_error("Say either --agent-id or --no-agent-id.")
    changes = Changes(
        name=KEPT if name is None else name,
        grants=read_grants(preset, scope, option="--scope") if preset or scope else KEPT,
        tier=tier or KEPT,
        expires_at=read_new_expiry(expires, never=never),
        agent_id=None if no_agent_id else KEPT if agent_id is None else agent_id,
    )
    lists = Lists(servers=server, tools=tool, orgs=org, projects=project, limits=tool_limit)
    lifted = {"servers": all_servers, "tools": all_tools, "orgs": all_orgs, "projects": all_projects, "limits": no_tool_limits}
    both_kinds.alter(context, workspace, key_id, lists.changes(changes, lifted=lifted), as_json=as_json)


both_kinds.register(app, "keys")
