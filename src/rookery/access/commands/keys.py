"""`rookery keys`: API keys."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Annotated

import typer

from rookery.access.build import AccessServices
from rookery.access.commands import shared_key_commands
from rookery.access.commands.key_options import (
    AllOrgsOption,
    AllowListOptions,
    AllProjectsOption,
    AllServersOption,
    AllToolsOption,
    ExpiresOption,
    KeyIdArgument,
    NeverOption,
    NoToolLimitsOption,
    OrgsOption,
    PresetOption,
    ProjectsOption,
    ServersOption,
    ToolLimitsOption,
    ToolsOption,
    parse_grants,
    parse_new_expiry,
)
from rookery.access.key_fields import KeyChanges, NewApiKey
from rookery.access.models import Environment, KeyWithSecret, Tier
from rookery.access.operator import get_operator, resolve_workspace
from rookery.kernel.unset import UNSET, or_unset
from rookery.terminal.options import JsonOption, OutputOption, WorkspaceOption, parse_expiry, raise_usage_error

app = typer.Typer(no_args_is_help=True)

ScopesOption = Annotated[
    list[str] | None,
    typer.Option("--scope", help="A scope such as brain:read, mcp:* or *; may be repeated.", show_default=False),
]
AgentIdOption = Annotated[str | None, typer.Option("--agent-id", help="The agent that the key is bound to.", show_default=False)]


@app.command()
def create(
    context: typer.Context,
    *,
    name: Annotated[str, typer.Option(help="The purpose of the key. Several keys get a number each.")],
    preset: PresetOption = None,
    scope: ScopesOption = None,
    tier: Annotated[Tier, typer.Option(help="The hourly rate limit.")] = Tier.PRO,
    environment: Annotated[Environment, typer.Option(help="A test key acts in a separate sandbox.")] = "live",
    expires: ExpiresOption = None,
    agent_id: AgentIdOption = None,
    server: ServersOption = None,
    tool: ToolsOption = None,
    org: OrgsOption = None,
    project: ProjectsOption = None,
    tool_limit: ToolLimitsOption = None,
    count: shared_key_commands.CountOption = 1,
    out: OutputOption = None,
    workspace: WorkspaceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Create API keys. The secrets are shown only once."""
    scopes, expires_at = parse_grants(preset, scope, option="--scope"), parse_expiry(expires)
    restrictions = AllowListOptions(servers=server, tools=tool, orgs=org, projects=project, tool_limits=tool_limit).to_restrictions()
    new = [
        NewApiKey(
            name=each_name,
            scopes=scopes,
            rate_limit_tier=tier,
            environment=environment,
            expires_at=expires_at,
            agent_id=agent_id,
            restrictions=restrictions,
        )
        for each_name in shared_key_commands.number_names(name, count)
    ]

    async def work(services: AccessServices, done: Callable[[int], None]) -> Sequence[KeyWithSecret]:
        owner = (await resolve_workspace(services, workspace)).id
        return await services.api_keys.create_many(owner, new, by=get_operator(), progress=done)

    shared_key_commands.create_and_print(context, work, count=count, out=out, as_json=as_json)


@app.command("list")
def list_(
    context: typer.Context,
    *,
    environment: Annotated[Environment | None, typer.Option(help="Only live keys, or only test keys.", show_default=False)] = None,
    status: shared_key_commands.StatusOption = None,
    workspace: WorkspaceOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the API keys of a workspace, newest first."""
    shared_key_commands.list_keys(context, workspace, environment=environment, status=status, as_json=as_json)


@app.command()
def change(
    context: typer.Context,
    *,
    key_id: KeyIdArgument,
    name: Annotated[str | None, typer.Option(help="The purpose of the key.", show_default=False)] = None,
    preset: PresetOption = None,
    scope: ScopesOption = None,
    tier: Annotated[Tier | None, typer.Option(help="The hourly rate limit.", show_default=False)] = None,
    expires: ExpiresOption = None,
    never: NeverOption = False,
    agent_id: AgentIdOption = None,
    no_agent_id: Annotated[bool, typer.Option("--no-agent-id", help="Bind the key to no agent.")] = False,
    server: ServersOption = None,
    all_servers: AllServersOption = False,
    tool: ToolsOption = None,
    all_tools: AllToolsOption = False,
    org: OrgsOption = None,
    all_orgs: AllOrgsOption = False,
    project: ProjectsOption = None,
    all_projects: AllProjectsOption = False,
    tool_limit: ToolLimitsOption = None,
    no_tool_limits: NoToolLimitsOption = False,
    workspace: WorkspaceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Change an API key. Options that are omitted keep their value."""
    if agent_id is not None and no_agent_id:
        raise_usage_error("Use either --agent-id or --no-agent-id.")
    changes = KeyChanges(
        name=or_unset(name),
        scopes=parse_grants(preset, scope, option="--scope") if preset or scope else UNSET,
        rate_limit_tier=or_unset(tier),
        expires_at=parse_new_expiry(expires, never=never),
        agent_id=None if no_agent_id else or_unset(agent_id),
    )
    lists = AllowListOptions(servers=server, tools=tool, orgs=org, projects=project, tool_limits=tool_limit)
    removed_lists = {"servers": all_servers, "tools": all_tools, "orgs": all_orgs, "projects": all_projects, "tool_limits": no_tool_limits}
    shared_key_commands.update_and_print(
        context, workspace, key_id, lists.to_changes(changes, removed_lists=removed_lists), as_json=as_json
    )


shared_key_commands.register(app, "keys")
