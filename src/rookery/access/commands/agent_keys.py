"""`rookery agent-keys`: agent keys."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated

import typer

from rookery.access import scopes
from rookery.access.commands import shared_key_commands
from rookery.access.commands.command_context import (
    AccessCommandServices,
    DryRunOption,
    JsonOption,
    KeyIdArgument,
    WorkspaceOption,
    YesOption,
    confirm,
    get_operator,
    read,
    resolve_workspace,
    run_with_access,
)
from rookery.access.commands.options import (
    AllOrgsOption,
    AllowListOptions,
    AllProjectsOption,
    AllServersOption,
    AllToolsOption,
    ExpiresOption,
    NeverOption,
    NoToolLimitsOption,
    OrgsOption,
    OutputOption,
    PresetOption,
    ProjectsOption,
    ServersOption,
    ToolLimitsOption,
    ToolsOption,
    parse_expiry,
    parse_grants,
    parse_new_expiry,
    raise_usage_error,
    read_text_file,
    split_names,
)
from rookery.access.commands.output import is_terminal, print_json, print_table
from rookery.access.key_fields import UNSET, KeyChanges, NewAgentKey
from rookery.access.models import KeyWithSecret, KeyWithUsage

app = typer.Typer(help="Agent keys.", no_args_is_help=True)

_MAX_LISTED_ADDRESSES = 5

Permissions = Annotated[
    list[str] | None, typer.Option("--permission", help="A permission such as plans.read; may be repeated.", show_default=False)
]


@app.command()
def create(
    context: typer.Context,
    *,
    name: Annotated[str, typer.Option(help="What it is for; several keys are numbered.")],
    preset: PresetOption = None,
    permission: Permissions = None,
    rate_limit: Annotated[int, typer.Option(help="Requests a minute.")] = 600,
    expires: ExpiresOption = None,
    agent_id: Annotated[
        str | None, typer.Option(help="The agent that it speaks for; a slug of the name by default.", show_default=False)
    ] = None,
    ip: Annotated[list[str] | None, typer.Option("--ip", help="Only from these addresses or ranges.", show_default=False)] = None,
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
    """Make agent keys, and show them this once."""
    if agent_id is not None and count > 1:
        raise_usage_error("--agent-id names one agent; leave it out to make several keys.")
    addresses = split_names(ip)
    expires_at, permissions = parse_expiry(expires), parse_grants(preset, permission, option="--permission")
    reach = AllowListOptions(servers=server, tools=tool, orgs=org, projects=project, limits=tool_limit).to_restrictions()
    new = [
        NewAgentKey(
            name=each,
            permissions=permissions,
            rate_limit=rate_limit,
            expires_at=expires_at,
            agent_id=agent_id,
            ip_restriction=bool(addresses),
            ip_list=addresses,
            restrictions=reach,
        )
        for each in shared_key_commands.number_names(name, count)
    ]

    async def work(services: AccessCommandServices, _: Callable[[int], None]) -> Sequence[KeyWithSecret]:
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
    name: Annotated[str | None, typer.Option(help="What it is for; the agent that it speaks for stays.", show_default=False)] = None,
    preset: PresetOption = None,
    permission: Permissions = None,
    rate_limit: Annotated[int | None, typer.Option(help="Requests a minute.", show_default=False)] = None,
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
    """Change an agent key; each option replaces what it names, and the rest stays."""
    changes = KeyChanges(
        name=UNSET if name is None else name,
        grants=parse_grants(preset, permission, option="--permission") if preset or permission else UNSET,
        rate_limit=UNSET if rate_limit is None else rate_limit,
        expires_at=parse_new_expiry(expires, never=never),
    )
    lists = AllowListOptions(servers=server, tools=tool, orgs=org, projects=project, limits=tool_limit)
    lifted = {"servers": all_servers, "tools": all_tools, "orgs": all_orgs, "projects": all_projects, "limits": no_tool_limits}
    shared_key_commands.update_and_print(context, workspace, key_id, lists.to_changes(changes, removed=lifted), as_json=as_json)


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
    """Revoke an agent key for good; its next request fails with key_revoked."""
    found = read(context, lambda services: shared_key_commands.get_key(context, services, workspace, key_id))
    if dry_run:
        shared_key_commands.print_key(found, as_json=as_json)
        return
    confirm(f"Revoke the key {found.key.name!r} ({found.key.hint}) for good?", yes=yes)

    async def work(services: AccessCommandServices) -> KeyWithUsage:
        await services.agent_keys.revoke(found.key.workspace_id, key_id, by=get_operator())
        return await services.agent_keys.get(found.key.workspace_id, key_id)

    shared_key_commands.print_key(run_with_access(context, work), as_json=as_json)


@app.command()
def permissions(
    context: typer.Context,
    *,
    key_id: KeyIdArgument,
    preset: PresetOption = None,
    permission: Permissions = None,
    has: Annotated[str | None, typer.Option("--has", help="Ask whether it has this one.", show_default=False)] = None,
    any_of: Annotated[list[str] | None, typer.Option("--any", help="Ask whether it has at least one of these.", show_default=False)] = None,
    all_of: Annotated[list[str] | None, typer.Option("--all", help="Ask whether it has each of these.", show_default=False)] = None,
    workspace: WorkspaceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Replace the permissions of an agent key, or ask what it has: yes is exit code 0, no is 1; without either, show them."""
    question = _parse_check(has, any_of, all_of)
    if question is not None:
        if preset or permission:
            raise_usage_error("Say either what it is to have, or what you ask.")
        found = read(context, lambda services: shared_key_commands.get_key(context, services, workspace, key_id))
        _print_check(found, *question, as_json=as_json)
    elif preset or permission:
        wanted = parse_grants(preset, permission, option="--permission")

        async def work(services: AccessCommandServices) -> KeyWithUsage:
            owner = (await resolve_workspace(services, workspace)).id
            await services.agent_keys.set_permissions(owner, key_id, wanted, by=get_operator())
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
        Path | None, typer.Option(help="Replace the list by this file's, one entry a line; - is standard input.", show_default=False)
    ] = None,
    restrict: Annotated[
        bool | None,
        typer.Option(
            "--on/--off",
            help="Enforce the list; without either, --add and --file switch it on. An enforced empty list blocks every request.",
            show_default=False,
        ),
    ] = None,
    workspace: WorkspaceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Change the addresses that an agent key may be used from; without a change given, show them."""
    if file is not None and (add or remove):
        raise_usage_error("--file replaces the whole list; leave out --add and --remove.")
    pasted = None if file is None else read_text_file(file)

    async def work(services: AccessCommandServices) -> tuple[bool, KeyWithUsage]:
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

    was_enforced, found = run_with_access(context, work)
    if found.key.ip_restriction and not was_enforced:
        listed = ", ".join(found.key.ip_list[:_MAX_LISTED_ADDRESSES]) or "no address at all"
        more = f" and {len(found.key.ip_list) - _MAX_LISTED_ADDRESSES} more" if len(found.key.ip_list) > _MAX_LISTED_ADDRESSES else ""
        typer.echo(
            f"The list is enforced from now on: the key works from {listed}{more} only. --off stores it without enforcing.", err=True
        )
    shared_key_commands.print_key(found, as_json=as_json)


def _parse_check(has: str | None, any_of: Sequence[str] | None, all_of: Sequence[str] | None) -> tuple[str, tuple[str, ...]] | None:
    """Return what is asked, `has`, `any` or `all`, of which permissions in their own spelling; None: nothing is."""
    asked = {"has": has and [has], "any": any_of, "all": all_of}
    given = [(name, names) for name, names in asked.items() if names is not None and names != ""]
    if has == "" or len(given) > 1:
        raise_usage_error("Ask one thing: --has PERMISSION, or --any or --all with several.")
    if not given:
        return None
    [(name, names)] = given
    good, wrong = scopes.parse_grants(split_names(list(names or ())), allow_platform_scopes=True)
    wrong += [f"{each}: no single permission; nothing asks for a wildcard" for each in good if "*" in each]
    if wrong or not good:
        raise_usage_error("; ".join(wrong) or f"Name permissions with --{name}.")
    if name == "has" and len(good) > 1:
        raise_usage_error("--has asks for one permission; --any and --all for several.")
    return name, good


def _print_check(found: KeyWithUsage, asked: str, wanted: Sequence[str], *, as_json: bool) -> None:
    """Print whether the key has what is asked for; exit code 1 if not."""
    held = frozenset(found.key.scopes)
    granted = {name: scopes.grants(held, name) for name in wanted}
    answer = scopes.grants_any(held, wanted) if asked == "any" else scopes.grants_all(held, wanted)
    if as_json:
        missing = [name for name, is_granted in granted.items() if not is_granted]
        print_json({"id": found.key.id, asked: list(wanted), "granted": answer, "missing": missing})
    else:
        if is_terminal() and len(wanted) > 1:
            print_table([{"permission": name, "granted": is_granted} for name, is_granted in granted.items()], ["permission", "granted"])
        print("yes" if answer else "no")  # noqa: T201 - the command's answer
    if not answer:
        raise typer.Exit(1)


shared_key_commands.register(app, "agent-keys")
