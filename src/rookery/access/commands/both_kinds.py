"""What both kinds of key can be told on the command line: `rookery keys …` and `rookery agent-keys …` alike."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Literal

import typer

from rookery.access import shown
from rookery.access.commands import usage
from rookery.access.commands.printing import Fields, print_json, print_many, print_one, print_rows, print_thing, progress
from rookery.access.commands.reading import Expires, Never, Out, new_file, read_new_expiry, usage_error
from rookery.access.commands.terminal import (
    DryRun,
    Json,
    KeyId,
    Services,
    Where,
    Yes,
    confirm,
    operator,
    read,
    run,
    workspace_of,
)
from rookery.access.keyring import DEFAULT_GRACE_HOURS, Keyring
from rookery.access.models import Entry, Environment, Minted
from rookery.access.settings import KEPT, Changes
from rookery.kernel.clock import utc_now

MOST_AT_ONCE = 1_000

Count = Annotated[int, typer.Option(help="How many to make.", min=1, max=MOST_AT_ONCE)]
Status = Annotated[
    Literal["active", "revoked", "expired"] | None,
    typer.Option(help="Only keys in this state; a suspended one counts as revoked.", show_default=False),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """One kind of key on the command line: what people call it, where it is, and the columns of a list, in a pipe and in a table."""

    noun: str
    keyring: Callable[[Services], Keyring]
    columns: tuple[str, ...]
    in_table: tuple[str, ...]


KINDS = {
    "keys": Kind(
        noun="an API key",
        keyring=lambda services: services.api_keys,
        columns=("id", "name", "hint", "environment", "status", "rate_limit_tier", "scopes", "expires_at", "last_used_at", "call_count"),
        in_table=("id", "name", "status", "scopes", "expires_at", "last_used_at", "call_count", "rate_limit_tier", "environment"),
    ),
    "agent-keys": Kind(
        noun="an agent key",
        keyring=lambda services: services.agent_keys,
        columns=("id", "name", "agent_id", "status", "permissions", "rate_limit", "expires_at", "last_used_at", "call_count"),
        in_table=("id", "name", "status", "permissions", "expires_at", "last_used_at", "call_count", "rate_limit", "agent_id"),
    ),
}
"""By the name of their group of commands."""


def register(app: typer.Typer, group: str) -> None:
    """Add the commands that both kinds have to the group of that name."""
    noun = KINDS[group].noun
    for name, command, says in (
        ("show", show, f"Show {noun}."),
        ("suspend", suspend, f"Let {noun} open nothing until it is resumed."),
        ("resume", resume, f"End the suspension of {noun}."),
        ("rotate", rotate, f"Make a successor of {noun} with the same settings, and show it this once."),
        ("extend", extend, f"Replace or remove the expiry of {noun}; an expired one is active again."),
        ("delete", delete, f"Delete {noun}; it opens nothing from then on."),
        ("prune", prune, f"Delete {noun[3:]}s that have expired, or whose grace period is over; of all workspaces unless one is named."),
        ("usage", usage_, f"Add up the calls of all {noun[3:]}s, or of one, or list its single calls."),
    ):
        app.command(name, help=says)(command)


def show(context: typer.Context, *, key_id: KeyId, workspace: Where = None, as_json: Json = False) -> None:
    """Show a key."""
    print_key(read(context, lambda services: get(context, services, workspace, key_id)), as_json=as_json)


def suspend(context: typer.Context, *, key_id: KeyId, workspace: Where = None, as_json: Json = False) -> None:
    """Let a key open nothing until it is resumed."""
    changed(context, workspace, key_id, lambda keys, owner: keys.suspend(owner, key_id, by=operator()), as_json=as_json)


def resume(context: typer.Context, *, key_id: KeyId, workspace: Where = None, as_json: Json = False) -> None:
    """End a suspension."""
    changed(context, workspace, key_id, lambda keys, owner: keys.resume(owner, key_id, by=operator()), as_json=as_json)


def extend(
    context: typer.Context, *, key_id: KeyId, expires: Expires = None, never: Never = False, workspace: Where = None, as_json: Json = False
) -> None:
    """Replace or remove an expiry."""
    expires_at = read_new_expiry(expires, never=never)
    if expires_at is KEPT:
        usage_error("Say either --expires-at or --never.")
    alter(context, workspace, key_id, Changes(expires_at=expires_at), action="extended", as_json=as_json)


def rotate(
    context: typer.Context,
    *,
    key_id: KeyId,
    grace_hours: Annotated[
        int, typer.Option("--grace-period-hours", "--grace-hours", help="How long the old key still works, in hours: 0 to 720.")
    ] = DEFAULT_GRACE_HOURS,
    out: Out = None,
    workspace: Where = None,
    as_json: Json = False,
) -> None:
    """Make a successor."""

    async def work(services: Services, _: Callable[[int], None]) -> list[Minted]:
        owner = (await workspace_of(services, workspace)).id
        return [await kind_of(context).keyring(services).rotate(owner, key_id, by=operator(), grace_hours=grace_hours)]

    mint(context, work, count=1, out=out, as_json=as_json)


def delete(
    context: typer.Context,
    *,
    key_id: KeyId,
    workspace: Where = None,
    yes: Yes = False,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Delete a key."""
    found = read(context, lambda services: get(context, services, workspace, key_id))
    if not dry_run:
        confirm(f"Delete the key {found.key.name!r} ({found.key.hint})?", yes=yes)
        keyring = kind_of(context).keyring
        run(context, lambda services: keyring(services).delete(found.key.workspace_id, key_id, by=operator()))
    print_thing({"id": key_id, "name": found.key.name, "deleted": not dry_run}, as_json=as_json)


def prune(
    context: typer.Context,
    *,
    workspace: Where = None,
    expired_days: Annotated[int, typer.Option(help="Only keys that expired at least so many days ago.", min=0, max=36_500)] = 0,
    yes: Yes = False,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Delete keys that are over."""

    async def work(services: Services, *, dry: bool) -> list[Entry]:
        only = None if workspace is None else (await workspace_of(services, workspace)).id
        keyring = kind_of(context).keyring(services)
        return await keyring.prune(by=operator(), workspace_id=only, expired_for=timedelta(days=expired_days), dry_run=dry)

    found = read(context, lambda services: work(services, dry=True))
    if found and not dry_run:
        confirm(f"Delete {len(found)} expired keys?", yes=yes)
        found = run(context, lambda services: work(services, dry=False))
    rows, deleted = [_fields(each) for each in found], 0 if dry_run else len(found)
    if as_json:
        print_json({"keys": rows, "deleted": deleted})
    else:
        print_many(rows, ["id", "name", "hint", "expires_at", "delete_after"])
        print_one({"expired": len(found), "deleted": deleted})


def usage_(
    context: typer.Context,
    *,
    key_id: Annotated[str | None, typer.Argument(help="Only this key; all of its kind without it.", show_default=False)] = None,
    by: usage.By = None,
    since: usage.Since = "30d",
    until: usage.Until = None,
    calls: usage.Calls = False,
    status: usage.Status = None,
    route: usage.Route = None,
    csv: usage.Csv = False,
    out: Out = None,
    workspace: Where = None,
    as_json: Json = False,
) -> None:
    """Add up calls, or list them."""
    asked = usage.read(key_id, by=by, since=since, until=until, calls=calls, status=status, route=route)
    form = usage.Form(as_csv=csv or out is not None, as_json=as_json)
    if form.as_csv and as_json:
        usage_error("Say either --json or --csv.")
    keyring = kind_of(context).keyring
    with new_file(out) as file:
        read(context, lambda services: usage.show(services, keyring(services), workspace, asked, form=form, file=file))


def list_keys(context: typer.Context, workspace: str | None, *, environment: Environment | None, status: str | None, as_json: bool) -> None:
    """Print the keys of a workspace, newest first, while they are read."""
    kind = kind_of(context)

    async def work(services: Services) -> None:
        owner = (await workspace_of(services, workspace)).id

        async def rows() -> AsyncGenerator[Fields]:
            async for found in kind.keyring(services).entries(owner, environment=environment):
                if status in {None, found.key.status(utc_now()).value.lower()}:
                    yield _fields(found)

        await print_rows(rows(), kind.columns, as_json=as_json, in_table=kind.in_table)

    read(context, work)


def mint(
    context: typer.Context,
    work: Callable[[Services, Callable[[int], None]], Awaitable[Sequence[Minted]]],
    *,
    count: int,
    out: Path | None,
    as_json: bool,
) -> None:
    """Make keys and show them this once, or write them into a file, one JSON document a line."""
    # Opened before the keys are made: none may exist that nobody could be given.
    with new_file(out, keeps_part=True) as file:
        with progress("Making keys", count) as bar:
            made = [shown.minted(each, utc_now()) for each in run(context, lambda services: work(services, bar))]
        if file is not None:
            file.writelines(json.dumps(each, ensure_ascii=False) + "\n" for each in made)
        elif as_json:
            print_json(made[0] if count == 1 else made)
        elif count == 1:
            print_one(made[0])
        else:
            print_many(made, ["id", "name", "plaintext_key" if "plaintext_key" in made[0] else "key"])


def changed(
    context: typer.Context, workspace: str | None, key_id: str, how: Callable[[Keyring, int], Awaitable[object]], *, as_json: bool
) -> None:
    """Change a key, *how* being given its keyring and its owner, and show it as it is then."""

    async def work(services: Services) -> Entry:
        keyring = kind_of(context).keyring(services)
        owner = (await workspace_of(services, workspace)).id
        await how(keyring, owner)
        return await keyring.get(owner, key_id)

    print_key(run(context, work), as_json=as_json)


def alter(context: typer.Context, workspace: str | None, key_id: str, changes: Changes, *, as_json: bool, action: str = "changed") -> None:
    """Change the settings of a key and show it as it is then."""
    changed(
        context, workspace, key_id, lambda keys, owner: keys.alter(owner, key_id, changes, by=operator(), action=action), as_json=as_json
    )


async def get(context: typer.Context, services: Services, workspace: str | None, key_id: str) -> Entry:
    """Return a key of the workspace named, of the kind whose command this is."""
    return await kind_of(context).keyring(services).get((await workspace_of(services, workspace)).id, key_id)


def print_key(found: Entry, *, as_json: bool) -> None:
    """Show a key, without its secret."""
    print_thing(_fields(found), as_json=as_json)


def kind_of(context: typer.Context) -> Kind:
    """Return the kind whose group of commands this one is in."""
    group = context.parent
    if group is None or group.info_name is None:
        msg = "a command of keys outside of its group"
        raise AssertionError(msg)
    return KINDS[group.info_name]


def numbered(name: str, count: int) -> list[str]:
    """Return the names of *count* keys."""
    return [name] if count == 1 else [f"{name} {number}" for number in range(1, count + 1)]


def _fields(found: Entry) -> shown.Fields:
    return shown.entry(found, utc_now())
