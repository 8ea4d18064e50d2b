"""`rookery agent-keys`: agent keys."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated

import typer

from rookery.access import scopes
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
from rookery.access.commands.key_services import read, run_with_access
from rookery.access.key_fields import KeyChanges, NewAgentKey
from rookery.access.models import KeyWithSecret, KeyWithUsage
from rookery.access.operator import get_operator, resolve_workspace
from rookery.kernel.unset import UNSET, or_unset
from rookery.terminal.options import (
    DryRunOption,
    JsonOption,
    OutputOption,
    WorkspaceOption,
    YesOption,
    confirm,
    parse_expiry,
    raise_usage_error,
    read_text_file,
    split_names,
)
from rookery.terminal.output import is_terminal, print_json, print_table

app = typer.Typer(no_args_is_help=True)

_MAX_LISTED_ADDRESSES = 5

Permissions = Annotated[
    list[str] | None, typer.Option("--permission", help="A permission such as plans.read; may be repeated.", show_default=False)
]


@app.command()
def create(
    context: typer.Context,
    *,
    name: Annotated[str, typer.Option(help="The purpose of the key. Several keys get a number each.")],
    preset: PresetOption = None,
    permission: Permissions = None,
    rate_limit: Annotated[int, typer.Option(help="Requests per minute.")] = 600,
    expires: ExpiresOption = None,
    agent_id: Annotated[
        str | None,
        typer.Option("--agent-id", help="The agent that the key is bound to; by default a slug of the name.", show_default=False),
    ] = None,
    ip: Annotated[
        list[str] | None, typer.Option("--ip", help="Allow only these addresses or ranges; may be repeated.", show_default=False)
    ] = None,
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
    """Create agent keys. The secrets are shown only once."""
    if agent_id is not None and count > 1:
        raise_usage_error("--agent-id names one agent. Omit it to create several keys.")
    addresses = split_names(ip)
    expires_at, permissions = parse_expiry(expires), parse_grants(preset, permission, option="--permission")
    restrictions = AllowListOptions(servers=server, tools=tool, orgs=org, projects=project, tool_limits=tool_limit).to_restrictions()
    new = [
        NewAgentKey(
            name=each_name,
            permissions=permissions,
            rate_limit=rate_limit,
            expires_at=expires_at,
            agent_id=agent_id,
            ip_restriction=bool(addresses),
            ip_list=addresses,
            restrictions=restrictions,
        )
        for each_name in shared_key_commands.number_names(name, count)
    ]

    async def work(services: AccessServices, _: Callable[[int], None]) -> Sequence[KeyWithSecret]:
        return await services.agent_keys.create_many((await resolve_workspace(services, workspace)).id, new, by=get_operator())

    shared_key_commands.create_and_print(context, work, count=count, out=out, as_json=as_json)


@app.command("list")
def list_(
    context: typer.Context,
    *,
    status: shared_key_commands.StatusOption = None,
    workspace: WorkspaceOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the agent keys of a workspace, newest first."""
    shared_key_commands.list_keys(context, workspace, environment=None, status=status, as_json=as_json)


@app.command()
def change(
    context: typer.Context,
    *,
    key_id: KeyIdArgument,
    name: Annotated[str | None, typer.Option(help="The purpose of the key. The agent_id does not change.", show_default=False)] = None,
    preset: PresetOption = None,
    permission: Permissions = None,
    rate_limit: Annotated[int | None, typer.Option(help="Requests per minute.", show_default=False)] = None,
    expires: ExpiresOption = None,
    never: NeverOption = False,
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
    """Change an agent key. Options that are omitted keep their value."""
    changes = KeyChanges(
        name=or_unset(name),
        scopes=parse_grants(preset, permission, option="--permission") if preset or permission else UNSET,
        rate_limit=or_unset(rate_limit),
        expires_at=parse_new_expiry(expires, never=never),
    )
    lists = AllowListOptions(servers=server, tools=tool, orgs=org, projects=project, tool_limits=tool_limit)
    removed_lists = {"servers": all_servers, "tools": all_tools, "orgs": all_orgs, "projects": all_projects, "tool_limits": no_tool_limits}
    shared_key_commands.update_and_print(
        context, workspace, key_id, lists.to_changes(changes, removed_lists=removed_lists), as_json=as_json
    )


@app.command()
def revoke(
    context: typer.Context,
    *,
    key_id: KeyIdArgument,
    workspace: WorkspaceOption = None,
    yes: YesOption = False,
    dry_run: DryRunOption = False,
    as_json: JsonOption = False,
) -> None:
    """Revoke an agent key permanently. Its next request fails with key_revoked."""
    entry = read(context, lambda services: shared_key_commands.get_key(context, services, workspace, key_id))
    if dry_run:
        shared_key_commands.print_key(entry, as_json=as_json)
        return
    confirm(f"Revoke the key {entry.key.name!r} ({entry.key.hint}) permanently?", yes=yes)

    async def work(services: AccessServices) -> KeyWithUsage:
        await services.agent_keys.revoke(entry.key.workspace_id, key_id, by=get_operator())
        return await services.agent_keys.get(entry.key.workspace_id, key_id)

    shared_key_commands.print_key(run_with_access(context, work), as_json=as_json)


@app.command()
def permissions(
    context: typer.Context,
    *,
    key_id: KeyIdArgument,
    preset: PresetOption = None,
    permission: Permissions = None,
    has: Annotated[str | None, typer.Option("--has", help="Check one permission.", show_default=False)] = None,
    any_of: Annotated[
        list[str] | None, typer.Option("--any", help="Check that the key has at least one of these.", show_default=False)
    ] = None,
    all_of: Annotated[list[str] | None, typer.Option("--all", help="Check that the key has all of these.", show_default=False)] = None,
    workspace: WorkspaceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show, replace or check the permissions of an agent key. A check exits with code 0 for yes and 1 for no."""
    check = _parse_check(has, any_of, all_of)
    if check is not None:
        if preset or permission:
            raise_usage_error("Use either --preset and --permission to replace, or one of --has, --any and --all to check.")
        key = read(context, lambda services: shared_key_commands.get_key(context, services, workspace, key_id))
        _print_check(key, *check, as_json=as_json)
    elif preset or permission:
        requested_permissions = parse_grants(preset, permission, option="--permission")

        async def work(services: AccessServices) -> KeyWithUsage:
            owner = (await resolve_workspace(services, workspace)).id
            await services.agent_keys.set_permissions(owner, key_id, requested_permissions, by=get_operator())
            return await services.agent_keys.get(owner, key_id)

        shared_key_commands.print_key(run_with_access(context, work), as_json=as_json)
    else:
        shared_key_commands.show(context, key_id=key_id, workspace=workspace, as_json=as_json)


@app.command()
def ips(
    context: typer.Context,
    *,
    key_id: KeyIdArgument,
    add: Annotated[list[str] | None, typer.Option(help="Add addresses or ranges.", show_default=False)] = None,
    remove: Annotated[list[str] | None, typer.Option(help="Remove addresses or ranges.", show_default=False)] = None,
    file: Annotated[
        Path | None,
        typer.Option(help="Replace the list with the entries of this file, one per line; - is standard input.", show_default=False),
    ] = None,
    restrict: Annotated[
        bool | None,
        typer.Option(
            "--on/--off",
            help="Enforce the list. By default, --add and --file enforce it. An enforced empty list blocks every request.",
            show_default=False,
        ),
    ] = None,
    workspace: WorkspaceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show or change the IP list of an agent key."""
    if file is not None and (add or remove):
        raise_usage_error("--file replaces the whole list. Omit --add and --remove.")
    pasted = None if file is None else read_text_file(file)

    async def work(services: AccessServices) -> tuple[bool, KeyWithUsage]:
        keys, owner = services.agent_keys, (await resolve_workspace(services, workspace)).id
        was_enforced = (await keys.get(owner, key_id)).key.ip_restriction
        if pasted is not None:
            await keys.set_addresses(owner, key_id, pasted, by=get_operator(), is_enforced=restrict)
        if add:
            await keys.add_addresses(owner, key_id, split_names(add), by=get_operator(), is_enforced=restrict)
        if remove:
            await keys.remove_addresses(owner, key_id, split_names(remove), by=get_operator())
        if restrict is not None:
            await keys.set_enforcement(owner, key_id, is_enforced=restrict, by=get_operator())
        return was_enforced, await keys.get(owner, key_id)

    was_enforced, entry = run_with_access(context, work)
    if entry.key.ip_restriction and not was_enforced:
        listed_addresses = ", ".join(entry.key.ip_list[:_MAX_LISTED_ADDRESSES]) or "no address"
        more = f" and {len(entry.key.ip_list) - _MAX_LISTED_ADDRESSES} more" if len(entry.key.ip_list) > _MAX_LISTED_ADDRESSES else ""
        typer.echo(
            f"The list is now enforced: the key works only from {listed_addresses}{more}. "
            "Use --off to store the list without enforcing it.",
            err=True,
        )
    shared_key_commands.print_key(entry, as_json=as_json)


def _parse_check(has: str | None, any_of: Sequence[str] | None, all_of: Sequence[str] | None) -> tuple[str, tuple[str, ...]] | None:
    """Return the check (`has`, `any` or `all`) with its permissions in canonical spelling; None if no option is given."""
    names_by_check = {"has": has and [has], "any": any_of, "all": all_of}
    requested_checks = [(name, names) for name, names in names_by_check.items() if names is not None and names != ""]
    if has == "" or len(requested_checks) > 1:
        raise_usage_error("Use exactly one of --has PERMISSION, --any PERMISSION,… and --all PERMISSION,….")
    if not requested_checks:
        return None
    [(name, names)] = requested_checks
    permissions, errors = scopes.parse_grants(split_names(list(names or ())), allow_platform_scopes=True)
    errors += [f"{permission}: a wildcard cannot be checked; use single permissions" for permission in permissions if "*" in permission]
    if errors or not permissions:
        raise_usage_error("; ".join(errors) or f"--{name} needs at least one permission.")
    if name == "has" and len(permissions) > 1:
        raise_usage_error("--has takes one permission. Use --any or --all for several.")
    return name, permissions


def _print_check(entry: KeyWithUsage, check: str, permissions: Sequence[str], *, as_json: bool) -> None:
    """Print the result of a check; exit with code 1 if it is no."""
    held_scopes = frozenset(entry.key.scopes)
    granted = {name: scopes.grants(held_scopes, name) for name in permissions}
    is_granted = scopes.grants_any(held_scopes, permissions) if check == "any" else scopes.grants_all(held_scopes, permissions)
    if as_json:
        missing = [name for name, is_granted in granted.items() if not is_granted]
        print_json({"id": entry.key.id, check: list(permissions), "granted": is_granted, "missing": missing})
    else:
        if is_terminal() and len(permissions) > 1:
            print_table([{"permission": name, "granted": is_granted} for name, is_granted in granted.items()], ["permission", "granted"])
        print("yes" if is_granted else "no")  # noqa: T201 - the command's output
    if not is_granted:
        raise typer.Exit(1)


shared_key_commands.register(app, "agent-keys")
