"""`rookery agent-keys create|list|show|revoke|extend|permissions|ips`."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from rookery.access import shown
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
from rookery.access.models import Entry, Minted
from rookery.access.scopes import PRESETS
from rookery.access.settings import NewAgentKey
from rookery.kernel.clock import utc_now

app = typer.Typer(help="Agent keys.", no_args_is_help=True)

KeyId = Annotated[str, typer.Argument(help="The key's id.")]
Permissions = Annotated[
    list[str] | None, typer.Option("--permission", help="A permission such as plans.read; may be repeated.", show_default=False)
]
Preset = Annotated[str | None, typer.Option(help=f"Permissions that go together: {', '.join(PRESETS)}.", show_default=False)]
_COLUMNS = ["id", "name", "agent_id", "status", "permissions", "rate_limit", "expires_at", "last_used_at", "call_count"]
_ALL = 1_000_000
_MOST_AT_ONCE = 1_000


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
    count: Annotated[int, typer.Option(help="How many to make.", min=1, max=_MOST_AT_ONCE)] = 1,
    out: Annotated[
        Path | None, typer.Option(help="Write the keys into this new file (mode 0600) instead of showing them.", show_default=False)
    ] = None,
    workspace: Where = None,
    as_json: Json = False,
) -> None:
    """Make agent keys, and show them this once."""
    if agent_id is not None and count > 1:
        usage_error("--agent-id names one agent; leave it out to make several keys.")
    addresses = read_names(ip)
    expires_at, permissions = read_expiry(expires), _permissions(preset, permission)
    reach = read_reach(servers=server, tools=tool, orgs=org, projects=project, limits=tool_limit)
    names = [name] if count == 1 else [f"{name} {number}" for number in range(1, count + 1)]
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
        for each in names
    ]

    async def work(services: Services) -> list[Minted]:
        return await services.agent_keys.create_many((await workspace_of(services, workspace)).id, new, platform=True)

    # Opened before the keys are made: none may exist that nobody could be given.
    descriptor = None if out is None else _new_file(out)
    try:
        made = [shown.minted(each, utc_now()) for each in run(context, work)]
    except BaseException:
        if descriptor is not None and out is not None:
            os.close(descriptor)
            out.unlink(missing_ok=True)
        raise
    if descriptor is not None:
        _write(descriptor, made)
    elif as_json:
        print_json(made[0] if count == 1 else made)
    elif count == 1:
        print_one(made[0])
    else:
        print_many(made, ["id", "agent_id", "key"])


@app.command("list")
def list_(context: typer.Context, *, workspace: Where = None, as_json: Json = False) -> None:
    """List the agent keys of a workspace, newest first."""

    async def work(services: Services) -> list[Entry]:
        return (await services.agent_keys.page((await workspace_of(services, workspace)).id, limit=_ALL))[0]

    found = [shown.entry(each, utc_now()) for each in run(context, work)]
    if as_json:
        print_json(found)
    else:
        print_many(found, _COLUMNS)


@app.command()
def show(context: typer.Context, *, key_id: KeyId, workspace: Where = None, as_json: Json = False) -> None:
    """Show one agent key."""
    _print(run(context, lambda services: _get(services, workspace, key_id)), as_json=as_json)


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
    found = run(context, lambda services: _get(services, workspace, key_id))
    if not dry_run:
        confirm(f"Revoke the key {found.key.name!r} ({found.key.hint}) for good?", yes=yes)

    async def work(services: Services) -> Entry:
        await services.agent_keys.revoke(found.key.workspace_id, key_id)
        return await services.agent_keys.get(found.key.workspace_id, key_id)

    _print(found if dry_run else run(context, work), as_json=as_json)


@app.command()
def extend(
    context: typer.Context,
    *,
    key_id: KeyId,
    expires: Expires = None,
    never: Annotated[bool, typer.Option("--never", help="Remove the expiry.")] = False,
    workspace: Where = None,
    as_json: Json = False,
) -> None:
    """Replace or remove the expiry of an agent key."""
    if (expires is None) == (not never):
        usage_error("Say either --expires or --never.")
    expires_at = read_expiry(expires)

    async def work(services: Services) -> Entry:
        found = await _get(services, workspace, key_id)
        await services.agent_keys.extend(found.key.workspace_id, key_id, expires_at)
        return await services.agent_keys.get(found.key.workspace_id, key_id)

    _print(run(context, work), as_json=as_json)


@app.command()
def permissions(
    context: typer.Context,
    *,
    key_id: KeyId,
    preset: Preset = None,
    permission: Permissions = None,
    workspace: Where = None,
    as_json: Json = False,
) -> None:
    """Replace the permissions of an agent key; without any given, show them."""
    wanted = _permissions(preset, permission) if preset or permission else None

    async def work(services: Services) -> Entry:
        found = await _get(services, workspace, key_id)
        if wanted is not None:
            await services.agent_keys.set_permissions(found.key.workspace_id, key_id, wanted, platform=True)
        return await services.agent_keys.get(found.key.workspace_id, key_id)

    _print(run(context, work), as_json=as_json)


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
        bool | None, typer.Option("--on/--off", help="Whether the list counts; on and empty denies all.", show_default=False)
    ] = None,
    workspace: Where = None,
    as_json: Json = False,
) -> None:
    """Change the addresses that an agent key may be used from; without a change given, show them."""
    if file is not None and (add or remove):
        usage_error("--file replaces the whole list; leave out --add and --remove.")
    pasted = None if file is None else _read(file)

    async def work(services: Services) -> Entry:
        keys, found = services.agent_keys, await _get(services, workspace, key_id)
        owner = found.key.workspace_id
        if pasted is not None:
            await keys.set_addresses(owner, key_id, pasted)
        if add:
            await keys.add_addresses(owner, key_id, read_names(add))
        if remove:
            await keys.remove_addresses(owner, key_id, read_names(remove))
        if restrict is not None:
            await keys.restrict(owner, key_id, on=restrict)
        return await keys.get(owner, key_id)

    _print(run(context, work), as_json=as_json)


async def _get(services: Services, workspace: str | None, key_id: str) -> Entry:
    return await services.agent_keys.get((await workspace_of(services, workspace)).id, key_id)


def _permissions(preset: str | None, permission: Sequence[str] | None) -> tuple[str, ...]:
    if preset is not None and preset not in PRESETS:
        usage_error(f"There is no preset {preset!r}; there are {', '.join(PRESETS)}.")
    wanted = (*(PRESETS[preset] if preset else ()), *read_names(permission))
    if not wanted:
        usage_error("Name a --preset, or permissions with --permission.")
    return wanted


def _print(found: Entry, *, as_json: bool) -> None:
    fields = shown.entry(found, utc_now())
    if as_json:
        print_json(fields)
    else:
        print_one(fields)


def _new_file(path: Path) -> int:
    try:
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        usage_error(f"Cannot make {path}: {error.strerror}")


def _write(descriptor: int, made: Sequence[shown.Fields]) -> None:
    """Write one JSON document a line."""
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.writelines(json.dumps(each, ensure_ascii=False) + "\n" for each in made)


def _read(path: Path) -> str:
    if str(path) == "-":
        return sys.stdin.read()
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        usage_error(f"Cannot read {path}: {error}")
