"""The commands that both kinds of key share: `rookery keys …` and `rookery agent-keys …`."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Literal

import typer

from rookery.access import serializers
from rookery.access.build import AccessServices
from rookery.access.commands import usage
from rookery.access.commands.key_options import ExpiresOption, KeyIdArgument, NeverOption, parse_new_expiry
from rookery.access.commands.key_services import read, run_with_access
from rookery.access.key_fields import KeyChanges
from rookery.access.keyring import DEFAULT_GRACE_HOURS, Keyring
from rookery.access.models import Environment, KeyWithSecret, KeyWithUsage
from rookery.access.operator import get_operator, resolve_workspace
from rookery.kernel.clock import utc_now
from rookery.kernel.unset import UNSET
from rookery.terminal.options import (
    DryRunOption,
    JsonOption,
    OutputOption,
    WorkspaceOption,
    YesOption,
    confirm,
    open_new_file,
    raise_usage_error,
)
from rookery.terminal.output import Fields, print_fields, print_json, print_list, print_record, print_rows, show_progress

MAX_NEW_KEYS = 1_000

CountOption = Annotated[int, typer.Option(help="Number of keys to create.", min=1, max=MAX_NEW_KEYS)]
StatusOption = Annotated[
    Literal["active", "revoked", "expired"] | None,
    typer.Option(help="Only keys with this status; a suspended key counts as revoked.", show_default=False),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyCommandGroup:
    """One kind of key on the command line: its noun, its keyring, and the columns of its lists."""

    noun: str
    plural: str
    get_keyring: Callable[[AccessServices], Keyring]
    columns: tuple[str, ...]
    table_columns: tuple[str, ...]


KEY_COMMAND_GROUPS = {
    "keys": KeyCommandGroup(
        noun="an API key",
        plural="API keys",
        get_keyring=lambda services: services.api_keys,
        columns=("id", "name", "hint", "environment", "status", "rate_limit_tier", "scopes", "expires_at", "last_used_at", "call_count"),
        table_columns=("id", "name", "status", "scopes", "expires_at", "last_used_at", "call_count", "rate_limit_tier", "environment"),
    ),
    "agent-keys": KeyCommandGroup(
        noun="an agent key",
        plural="agent keys",
        get_keyring=lambda services: services.agent_keys,
        columns=("id", "name", "agent_id", "status", "permissions", "rate_limit", "expires_at", "last_used_at", "call_count"),
        table_columns=("id", "name", "status", "permissions", "expires_at", "last_used_at", "call_count", "rate_limit", "agent_id"),
    ),
}
"""The groups by their command."""


def register(app: typer.Typer, group: str) -> None:
    """Register the shared commands in a group."""
    noun, plural = KEY_COMMAND_GROUPS[group].noun, KEY_COMMAND_GROUPS[group].plural
    for name, command, help_text in (
        ("show", show, f"Show {noun}."),
        ("suspend", suspend, f"Suspend {noun}: its requests are rejected until it is resumed."),
        ("resume", resume, f"Resume {noun} that was suspended."),
        ("rotate", rotate, f"Create a successor of {noun} with the same settings. Its secret is shown only once."),
        ("extend", extend, f"Replace or remove the expiry of {noun}. An expired key becomes active again."),
        ("delete", delete, f"Delete {noun}. Its requests are rejected from then on."),
        ("prune", prune, f"Delete {plural} that have expired or whose grace period is over, by default of all workspaces."),
        ("usage", usage_, f"Show the totals of the calls of all {plural} or of one, or list the single calls of one."),
    ):
        app.command(name, help=help_text)(command)


def show(context: typer.Context, *, key_id: KeyIdArgument, workspace: WorkspaceOption = None, as_json: JsonOption = False) -> None:
    """Show a key."""
    print_key(read(context, lambda services: get_key(context, services, workspace, key_id)), as_json=as_json)


def suspend(context: typer.Context, *, key_id: KeyIdArgument, workspace: WorkspaceOption = None, as_json: JsonOption = False) -> None:
    """Suspend a key."""
    change_and_print(context, workspace, key_id, lambda keys, owner: keys.suspend(owner, key_id, by=get_operator()), as_json=as_json)


def resume(context: typer.Context, *, key_id: KeyIdArgument, workspace: WorkspaceOption = None, as_json: JsonOption = False) -> None:
    """Resume a suspended key."""
    change_and_print(context, workspace, key_id, lambda keys, owner: keys.resume(owner, key_id, by=get_operator()), as_json=as_json)


def extend(
    context: typer.Context,
    *,
    key_id: KeyIdArgument,
    expires: ExpiresOption = None,
    never: NeverOption = False,
    workspace: WorkspaceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Replace or remove the expiry of a key."""
    expires_at = parse_new_expiry(expires, never=never)
    if expires_at is UNSET:
        raise_usage_error("Use either --expires-at or --never.")
    update_and_print(context, workspace, key_id, KeyChanges(expires_at=expires_at), action="extended", as_json=as_json)


def rotate(
    context: typer.Context,
    *,
    key_id: KeyIdArgument,
    grace_hours: Annotated[
        int, typer.Option("--grace-period-hours", help="Hours during which the old key still works: 0 to 720.")
    ] = DEFAULT_GRACE_HOURS,
    out: OutputOption = None,
    workspace: WorkspaceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Rotate a key."""

    async def work(services: AccessServices, _: Callable[[int], None]) -> list[KeyWithSecret]:
        owner = (await resolve_workspace(services, workspace)).id
        return [await get_group(context).get_keyring(services).rotate(owner, key_id, by=get_operator(), grace_hours=grace_hours)]

    create_and_print(context, work, count=1, out=out, as_json=as_json)


def delete(
    context: typer.Context,
    *,
    key_id: KeyIdArgument,
    workspace: WorkspaceOption = None,
    yes: YesOption = False,
    dry_run: DryRunOption = False,
    as_json: JsonOption = False,
) -> None:
    """Delete a key."""
    entry = read(context, lambda services: get_key(context, services, workspace, key_id))
    if not dry_run:
        confirm(f"Delete the key {entry.key.name!r} ({entry.key.hint})?", yes=yes)
        keyring = get_group(context).get_keyring
        run_with_access(context, lambda services: keyring(services).delete(entry.key.workspace_id, key_id, by=get_operator()))
    print_record({"id": key_id, "name": entry.key.name, "deleted": not dry_run}, as_json=as_json)


def prune(
    context: typer.Context,
    *,
    workspace: WorkspaceOption = None,
    expired_days: Annotated[int, typer.Option(help="Only keys that expired at least this many days ago.", min=0, max=36_500)] = 0,
    yes: YesOption = False,
    dry_run: DryRunOption = False,
    as_json: JsonOption = False,
) -> None:
    """Delete expired keys."""

    async def work(services: AccessServices, *, dry: bool) -> list[KeyWithUsage]:
        only = None if workspace is None else (await resolve_workspace(services, workspace)).id
        keyring = get_group(context).get_keyring(services)
        return await keyring.prune(by=get_operator(), workspace_id=only, expired_for=timedelta(days=expired_days), dry_run=dry)

    keys = read(context, lambda services: work(services, dry=True))
    if keys and not dry_run:
        confirm(f"Delete {len(keys)} expired keys?", yes=yes)
        keys = run_with_access(context, lambda services: work(services, dry=False))
    rows, deleted_count = [_serialize(key) for key in keys], 0 if dry_run else len(keys)
    if as_json:
        print_json({"keys": rows, "deleted": deleted_count})
    else:
        print_list(rows, ["id", "name", "hint", "expires_at", "delete_after"])
        print_fields({"expired": len(keys), "deleted": deleted_count})


def usage_(
    context: typer.Context,
    *,
    key_id: Annotated[str | None, typer.Argument(help="Only this key; by default all keys of its kind.", show_default=False)] = None,
    by: usage.ByOption = None,
    since: usage.SinceOption = "30d",
    until: usage.UntilOption = None,
    calls: usage.CallsOption = False,
    status: usage.StatusOption = None,
    route: usage.RouteOption = None,
    csv: usage.CsvOption = False,
    out: OutputOption = None,
    workspace: WorkspaceOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show totals of calls, or list single calls."""
    query = usage.parse_options(key_id, by=by, since=since, until=until, calls=calls, status=status, route=route)
    output_format = usage.OutputFormat(as_csv=csv or out is not None, as_json=as_json)
    if output_format.as_csv and as_json:
        raise_usage_error("Use either --json or --csv.")
    keyring = get_group(context).get_keyring
    with open_new_file(out) as file:
        read(
            context,
            lambda services: usage.print_usage(services, keyring(services), workspace, query, output_format=output_format, file=file),
        )


def list_keys(context: typer.Context, workspace: str | None, *, environment: Environment | None, status: str | None, as_json: bool) -> None:
    """Print the keys of a workspace, newest first, while they are read."""
    kind = get_group(context)

    async def work(services: AccessServices) -> None:
        owner = (await resolve_workspace(services, workspace)).id

        async def rows() -> AsyncGenerator[Fields]:
            async for entry in kind.get_keyring(services).iter_keys(owner, environment=environment):
                if status in {None, entry.key.status(utc_now()).value.lower()}:
                    yield _serialize(entry)

        await print_rows(rows(), kind.columns, as_json=as_json, table_columns=kind.table_columns)

    read(context, work)


def create_and_print(
    context: typer.Context,
    create_keys: Callable[[AccessServices, Callable[[int], None]], Awaitable[Sequence[KeyWithSecret]]],
    *,
    count: int,
    out: Path | None,
    as_json: bool,
) -> None:
    """Create keys and print them with their secrets, or write them to a file, one JSON document per line."""
    # Open the file first, so that no key is created whose secret cannot be written.
    with open_new_file(out, keep_partial=True) as file:
        with show_progress("Creating keys", count) as bar:
            new_rows = [
                serializers.serialize_key_with_secret(key, utc_now())
                for key in run_with_access(context, lambda services: create_keys(services, bar))
            ]
        if file is not None:
            file.writelines(json.dumps(fields, ensure_ascii=False) + "\n" for fields in new_rows)
        elif as_json:
            print_json(new_rows[0] if count == 1 else new_rows)
        elif count == 1:
            print_fields(new_rows[0])
        else:
            print_list(new_rows, ["id", "name", "plaintext_key" if "plaintext_key" in new_rows[0] else "key"])


def change_and_print(
    context: typer.Context, workspace: str | None, key_id: str, change: Callable[[Keyring, int], Awaitable[object]], *, as_json: bool
) -> None:
    """Change a key by *change*, which gets the keyring and the owner, and print the changed key."""

    async def work(services: AccessServices) -> KeyWithUsage:
        keyring = get_group(context).get_keyring(services)
        owner = (await resolve_workspace(services, workspace)).id
        await change(keyring, owner)
        return await keyring.get(owner, key_id)

    print_key(run_with_access(context, work), as_json=as_json)


def update_and_print(
    context: typer.Context, workspace: str | None, key_id: str, changes: KeyChanges, *, as_json: bool, action: str = "changed"
) -> None:
    """Change the settings of a key and print the changed key."""
    change_and_print(
        context,
        workspace,
        key_id,
        lambda keys, owner: keys.update(owner, key_id, changes, by=get_operator(), action=action),
        as_json=as_json,
    )


async def get_key(context: typer.Context, services: AccessServices, workspace: str | None, key_id: str) -> KeyWithUsage:
    """Return a key of the selected workspace, of the kind of the current command group."""
    return await get_group(context).get_keyring(services).get((await resolve_workspace(services, workspace)).id, key_id)


def print_key(key: KeyWithUsage, *, as_json: bool) -> None:
    """Print a key without its secret."""
    print_record(_serialize(key), as_json=as_json)


def get_group(context: typer.Context) -> KeyCommandGroup:
    """Return the group of the current command."""
    group = context.parent
    if group is None or group.info_name is None:
        msg = "a key command was called outside its group"
        raise AssertionError(msg)
    return KEY_COMMAND_GROUPS[group.info_name]


def number_names(name: str, count: int) -> list[str]:
    """Return the names of *count* new keys."""
    return [name] if count == 1 else [f"{name} {number}" for number in range(1, count + 1)]


def _serialize(key: KeyWithUsage) -> serializers.Fields:
    return serializers.serialize_key(key, utc_now())
