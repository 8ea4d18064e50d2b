"""`rookery agent-keys`: agent keys."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated

import typer

from rookery.access import scopes
from rookery.access.commands import both_kinds
from rookery.access.commands.printing import is_terminal, print_json, print_table
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
    read_names,
    read_new_expiry,
    read_text,
    usage_error,
)
from rookery.access.commands.terminal import DryRun, Json, KeyId, Services, Where, Yes, confirm, operator, read, run, workspace_of
from rookery.access.models import Entry, Minted
from rookery.access.settings import KEPT, Changes, NewAgentKey

app = typer.Typer(help="Agent keys.", no_args_is_help=True)

_MAX_SHOWN = 5

Permissions = Annotated[
    list[str] | None, typer.Option("--permission", help="A permission such as plans.read; may be repeated.", show_default=False)
]


@app.command()
def create(
    context: typer.Context,
    *,
    name: Annotated[str, typer.Option(help="What it is for; several keys are numbered.")],
    preset: Preset = None,
    permission: Permissions = None,
    rate_limit: Annotated[int, typer.Option(help="Requests a minute.")] = 600,
    expires: Expires = None,
    agent_id: Annotated[
        str | None, typer.Option(help="The agent that it speaks for; a slug of the name by default.", show_default=False)
    ] = None,
    ip: Annotated[list[str] | None, typer.Option("--ip", help="Only from these addresses or ranges.", show_default=False)] = None,
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
    """Make agent keys, and show them this once."""
    if agent_id is not None and count > 1:
        usage_error("--agent-id names one agent; leave it out to make several keys.")
    addresses = read_names(ip)
    expires_at, permissions = read_expiry(expires), read_grants(preset, permission, option="--permission")
    reach = Lists(servers=server, tools=tool, orgs=org, projects=project, limits=tool_limit).reach()
    new = [
        NewAgentKey(
            name=each,
            permissions=permissions,
            rate_limit=rate_limit,
            expires_at=expires_at,
            agent_id=agent_id,
            ip_restriction=bool(addresses),
            ip_list=addresses,
            reach=reach,
        )
        for each in both_kinds.numbered(name, count)
    ]

    async def work(services: Services, _: Callable[[int], None]) -> Sequence[Minted]:
        return await services.agent_keys.create_many((await workspace_of(services, workspace)).id, new, by=operator())

    both_kinds.mint(context, work, count=count, out=out, as_json=as_json)


@app.command("list")
def list_(context: typer.Context, *, status: both_kinds.Status = None, workspace: Where = None, as_json: Json = False) -> None:
    """List the agent keys of a workspace, newest first."""
    both_kinds.list_keys(context, workspace, environment=None, status=status, as_json=as_json)


@app.command()
def change(
    context: typer.Context,
    *,
    key_id: KeyId,
    name: Annotated[str | None, typer.Option(help="What it is for; the agent that it speaks for stays.", show_default=False)] = None,
    preset: Preset = None,
    permission: Permissions = None,
    rate_limit: Annotated[int | None, typer.Option(help="Requests a minute.", show_default=False)] = None,
    expires: Expires = None,
    never: Never = False,
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
    """Change an agent key; each option replaces what it names, and the rest stays."""
    changes = Changes(
        name=KEPT if name is None else name,
        grants=read_grants(preset, permission, option="--permission") if preset or permission else KEPT,
        rate_limit=KEPT if rate_limit is None else rate_limit,
        expires_at=read_new_expiry(expires, never=never),
    )
    lists = Lists(servers=server, tools=tool, orgs=org, projects=project, limits=tool_limit)
    lifted = {"servers": all_servers, "tools": all_tools, "orgs": all_orgs, "projects": all_projects, "limits": no_tool_limits}
    both_kinds.alter(context, workspace, key_id, lists.changes(changes, lifted=lifted), as_json=as_json)


@app.command()
def revoke(
    context: typer.Context,
    *,
    key_id: KeyId,
    workspace: Where = None,
    yes: Yes = False,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Revoke an agent key for good; its next request fails with key_revoked."""
    found = read(context, lambda services: both_kinds.get(context, services, workspace, key_id))
    if dry_run:
        both_kinds.print_key(found, as_json=as_json)
        return
    confirm(f"Revoke the key {found.key.name!r} ({found.key.hint}) for good?", yes=yes)

    async def work(services: Services) -> Entry:
        await services.agent_keys.revoke(found.key.workspace_id, key_id, by=operator())
        return await services.agent_keys.get(found.key.workspace_id, key_id)

    both_kinds.print_key(run(context, work), as_json=as_json)


@app.command()
def permissions(
    context: typer.Context,
    *,
    key_id: KeyId,
    preset: Preset = None,
    permission: Permissions = None,
    has: Annotated[str | None, typer.Option("--has", help="Ask whether it has this one.", show_default=False)] = None,
    any_of: Annotated[list[str] | None, typer.Option("--any", help="Ask whether it has at least one of these.", show_default=False)] = None,
    all_of: Annotated[list[str] | None, typer.Option("--all", help="Ask whether it has each of these.", show_default=False)] = None,
    workspace: Where = None,
    as_json: Json = False,
) -> None:
    """Replace the permissions of an agent key, or ask what it has: yes is exit code 0, no is 1; without either, show them."""
    question = _question(has, any_of, all_of)
    if question is not None:
        if preset or permission:
            usage_error("Say either what it is to have, or what you ask.")
        found = read(context, lambda services: both_kinds.get(context, services, workspace, key_id))
        _answer(found, *question, as_json=as_json)
    elif preset or permission:
        wanted = read_grants(preset, permission, option="--permission")

        async def work(services: Services) -> Entry:
            owner = (await workspace_of(services, workspace)).id
            await services.agent_keys.set_permissions(owner, key_id, wanted, by=operator())
            return await services.agent_keys.get(owner, key_id)

        both_kinds.print_key(run(context, work), as_json=as_json)
    else:
        both_kinds.show(context, key_id=key_id, workspace=workspace, as_json=as_json)


@app.command()
def ips(
    context: typer.Context,
    *,
    key_id: KeyId,
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
    workspace: Where = None,
    as_json: Json = False,
) -> None:
    """Change the addresses that an agent key may be used from; without a change given, show them."""
    if file is not None and (add or remove):
        usage_error("--file replaces the whole list; leave out --add and --remove.")
    pasted = None if file is None else read_text(file)

    async def work(services: Services) -> tuple[bool, Entry]:
        keys, owner = services.agent_keys, (await workspace_of(services, workspace)).id
        was_enforced = (await keys.get(owner, key_id)).key.ip_restriction
        if pasted is not None:
            await keys.set_addresses(owner, key_id, pasted, by=operator(), restriction=restrict)
        if add:
            await keys.add_addresses(owner, key_id, read_names(add), by=operator(), restriction=restrict)
        if remove:
            await keys.remove_addresses(owner, key_id, read_names(remove), by=operator())
        if restrict is not None:
            await keys.restrict(owner, key_id, on=restrict, by=operator())
        return was_enforced, await keys.get(owner, key_id)

    was_enforced, found = run(context, work)
    if found.key.ip_restriction and not was_enforced:
        listed = ", ".join(found.key.ip_list[:_MAX_SHOWN]) or "no address at all"
        more = f" and {len(found.key.ip_list) - _MAX_SHOWN} more" if len(found.key.ip_list) > _MAX_SHOWN else ""
        typer.echo(
            f"The list is enforced from now on: the key works from {listed}{more} only. --off stores it without enforcing.", err=True
        )
    both_kinds.print_key(found, as_json=as_json)


def _question(has: str | None, any_of: Sequence[str] | None, all_of: Sequence[str] | None) -> tuple[str, tuple[str, ...]] | None:
    """Return what is asked, `has`, `any` or `all`, of which permissions in their own spelling; None: nothing is."""
    asked = {"has": has and [has], "any": any_of, "all": all_of}
    given = [(name, names) for name, names in asked.items() if names is not None and names != ""]
    if has == "" or len(given) > 1:
        usage_error("Ask one thing: --has PERMISSION, or --any or --all with several.")
    if not given:
        return None
    [(name, names)] = given
    good, wrong = scopes.read(read_names(list(names or ())), platform=True)
    wrong += [f"{each}: no single permission; nothing asks for a wildcard" for each in good if "*" in each]
    if wrong or not good:
        usage_error("; ".join(wrong) or f"Name permissions with --{name}.")
    if name == "has" and len(good) > 1:
        usage_error("--has asks for one permission; --any and --all for several.")
    return name, good


def _answer(found: Entry, asked: str, wanted: Sequence[str], *, as_json: bool) -> None:
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


both_kinds.register(app, "agent-keys")
