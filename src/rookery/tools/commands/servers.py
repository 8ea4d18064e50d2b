"""`rookery servers`: the file of servers, and those that workspaces added (D-37)."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast
from urllib.parse import urlsplit

import typer

from rookery.access.commands.printing import Fields, print_json, print_many, say
from rookery.access.commands.reading import usage_error
from rookery.access.commands.terminal import DryRun, Json, Yes, confirm, operator, workspace_of
from rookery.kernel.errors import RookeryError
from rookery.tools.commands import login
from rookery.tools.commands.live_health import running_health
from rookery.tools.commands.opening import Opened, run, settings_of
from rookery.tools.models import JsonObject, Server
from rookery.tools.servers.entries import ID, RESERVED_IDS
from rookery.tools.servers.file_edits import edit, read_entries
from rookery.tools.servers.importing import Found, NotUnderstood, of_address, of_command, of_document, unread_projects
from rookery.tools.servers.programs import why_not_startable
from rookery.tools.servers.servers_file import FileBroken, ServersFile, parse, read_file

if TYPE_CHECKING:
    from rookery.tools.servers.checking import Checked

app = typer.Typer(help="Tool servers.", no_args_is_help=True)

_AT_ONCE = 4
_DOCUMENTS = frozenset({".json", ".jsonc", ".json5", ".toml", ".yaml", ".yml"})
_MOST_PROJECTS = 5
_LONGEST_FILE = 4 * 1024 * 1024
_COLUMNS = ("id", "kind", "status", "health", "where", "workspaces", "says")
_CHECKED = ("id", "ok", "tools", "took_ms", "says", "advice")

Of = Annotated[
    str | None,
    typer.Option("--workspace", help="Those that this workspace added, by name or number, instead of the file's.", show_default=False),
]


class _Unusable(RookeryError):
    """The command cannot be done; exit code 1."""


@app.command("list")
def list_(context: typer.Context, *, workspace: Of = None, as_json: Json = False) -> None:
    """
    List the servers of servers.json, or those that a workspace added.

    Nothing is started. `health` is what a running Rookery shows to everybody at /servers.
    Where it shows nothing, `health` is offline if a server cannot start, and unknown else. `rookery servers check` tries it.
    """
    registered = _registered(context, workspace)
    live = running_health(settings_of(context).data_dir) if workspace is None else {}
    shown = [_shown(each, live.get(each.server.id, "unknown")) for each in registered]
    for warning in _file(settings_of(context).servers_file).warnings if workspace is None else ():
        if not any(warning == f"{each.key}: {each.server.fault}" for each in registered):  # a fault has a column
            say(warning)
    if as_json:
        print_json(shown)
    elif shown:
        print_many(shown, _COLUMNS)
    else:
        say("There are none; `rookery servers add` adds one.")


@app.command(context_settings={"ignore_unknown_options": True})  # they are the command's: `servers add npx -y x`
def add(
    context: typer.Context,
    source: Annotated[
        list[str],
        typer.Argument(help="An address; a server.json or another client's file; or a command with its arguments, best after --."),
    ],
    *,
    server_id: Annotated[str | None, typer.Option("--id", help="Its id; by default made of the source.", show_default=False)] = None,
    env: Annotated[list[str] | None, typer.Option(help="NAME=VALUE for a command; may be repeated.", show_default=False)] = None,
    header: Annotated[
        list[str] | None, typer.Option(help="'Name: value' for an address; ${NAME} is read from the environment.", show_default=False)
    ] = None,
    sse: Annotated[bool, typer.Option("--sse", help="The address speaks the older HTTP with SSE.")] = False,
    replace: Annotated[bool, typer.Option("--replace", help="Replace an entry of that id.")] = False,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """
    Add servers to servers.json; a running Rookery takes them up within a second.

    Of a file with several servers those that can be used are added. The others are named with the reason, and the exit code is 1.
    """
    path = settings_of(context).servers_file
    found, refused = _found(source, env=env or [], headers=header or [], sse=sse)
    if server_id is not None:
        if len(found) + len(refused) > 1:
            usage_error(f"--id names one server, and {source[0]} has {len(found) + len(refused)}.")
        found = [Found(id=server_id, entry=each.entry, needs=each.needs) for each in found]
    there, good = _entries_of(path), list[Found]()
    for each in found:
        reason = _why_not(each)
        if reason is None and each.id in there and not replace:
            reason = f"{path.name} has {each.id} already; choose another --id, or say --replace."
        if reason is None:
            good.append(each)
        else:
            refused[each.id] = reason
    if not good:
        raise _Unusable("; ".join(f"{name}: {reason}" for name, reason in refused.items()) or f"{source[0]} has no servers.")
    if not dry_run:
        _edit(path, {each.id: each.entry for each in good})
    _tell(good, refused, path, dry_run=dry_run, as_json=as_json)
    if refused:
        raise typer.Exit(1)


@app.command()
def remove(
    context: typer.Context,
    server_id: Annotated[str, typer.Argument(help="The server's id.")],
    *,
    workspace: Of = None,
    yes: Yes = False,
    dry_run: DryRun = False,
    as_json: Json = False,
) -> None:
    """Remove a server from servers.json, or one that a workspace added."""
    found = [each for each in _registered(context, workspace) if server_id in {each.key, each.server.id}]
    if not found:
        raise _Unusable(f"There is no server {server_id!r}; `rookery servers list` shows what there is.")
    if not dry_run:
        confirm(f"Remove the server {server_id!r}?", yes=yes)
        if workspace is None:
            _edit(settings_of(context).servers_file, {found[0].key: None})
        else:

            async def work(opened: Opened) -> None:
                owner = await workspace_of(opened.access, workspace)
                await opened.tools.owned.remove_of(owner.id, found[0].key, by=operator())

            run(context, work)
    if as_json:
        print_json({"removed": server_id, "dry_run": dry_run})
    else:
        print(f"{'Would remove' if dry_run else 'Removed'} {server_id}.")  # noqa: T201 - the command's answer


@app.command()
def check(
    context: typer.Context,
    ids: Annotated[list[str] | None, typer.Argument(help="Which; by default all.", show_default=False)] = None,
    *,
    workspace: Of = None,
    verbose: Annotated[bool, typer.Option("--verbose", help="Show the last lines that each server wrote to its standard error.")] = False,
    as_json: Json = False,
) -> None:
    """Start or reach servers, list their tools, and say what is wrong; exit code 1 if one cannot be used."""
    known = _registered(context, workspace)
    wanted = [each for each in known if not ids or each.key in ids or each.server.id in ids]
    missing = set(ids or ()) - {each.key for each in wanted} - {each.server.id for each in wanted}
    if missing:
        raise _Unusable(f"There is no server {', '.join(sorted(missing))}; `rookery servers list` shows what there is.")
    if not wanted and not as_json:
        say("There are none; `rookery servers add` adds one.")
    places = asyncio.Semaphore(_AT_ONCE)

    async def one(opened: Opened, server: Server) -> Checked:
        async with places:
            return await opened.tools.checker.check(server)

    async def work(opened: Opened) -> list[Checked]:
        return await asyncio.gather(*(one(opened, each.server) for each in wanted))

    checked = run(context, work) if wanted else []
    if as_json:
        print_json([_checked(each) for each in checked])
    else:
        _print_checked(checked, verbose=verbose)
    if any(each.error is not None for each in checked):
        raise typer.Exit(1)


@dataclass(frozen=True, slots=True)
class _Registered:
    """One server with its entry as it was written, so that no secret that was filled in is shown; by the file's own key."""

    key: str
    server: Server
    entry: JsonObject


def _registered(context: typer.Context, workspace: str | None) -> list[_Registered]:
    if workspace is not None:

        async def work(opened: Opened) -> list[_Registered]:
            owner = await workspace_of(opened.access, workspace)
            found = await opened.tools.owned.all_of(owner.id)
            return [_Registered(each.server.id, each.server, each.added.entry) for each in found]

        return run(context, work)
    path = settings_of(context).servers_file
    read, written = _file(path), _entries_of(path)
    keys = list(written)
    return [
        _Registered(key, server, cast("JsonObject", written[key]) if isinstance(written[key], dict) else {})
        for key, server in zip(keys, read.servers.values(), strict=True)
    ]


def _file(path: Path) -> ServersFile:
    try:
        return read_file(path, os.environ)
    except FileBroken as error:
        raise _Unusable(str(error)) from None


def _entries_of(path: Path) -> JsonObject:
    try:
        return read_entries(path)
    except FileBroken as error:
        raise _Unusable(str(error)) from None


def _edit(path: Path, changes: Mapping[str, JsonObject | None]) -> None:
    def change(entries: JsonObject) -> None:
        for key, entry in changes.items():
            if entry is None:
                entries.pop(key, None)
            else:
                entries[key] = entry

    try:
        edit(path, change)
    except FileBroken as error:
        raise _Unusable(str(error)) from None


def _found(source: Sequence[str], *, env: Sequence[str], headers: Sequence[str], sse: bool) -> tuple[list[Found], dict[str, str]]:
    """Return the servers of what was typed, and why others of the same file are refused."""
    first = source[0]
    is_address = urlsplit(first).scheme in {"http", "https"}
    if first.startswith("-") or (is_address and len(source) > 1):
        wrong = first if first.startswith("-") else source[1]
        usage_error(f"No such option: {wrong}." if wrong.startswith("-") else f"After an address comes nothing: {wrong}.")
    if is_address:
        if env:
            usage_error("--env is for commands.")
        return [of_address(first, kind="sse" if sse else None, headers=_pairs(headers, ":", "--header"))], {}
    if headers or sse:
        usage_error("--header and --sse are for addresses.")
    path = Path(first).expanduser()
    if len(source) == 1 and (path.suffix in _DOCUMENTS or path.name.startswith(".claude")):
        try:
            with path.open(encoding="utf-8") as file:
                text = file.read(_LONGEST_FILE)
            found = of_document(text, name=path.name, folder=Path.cwd())
            if unread := unread_projects(text, name=path.name, folder=Path.cwd()):
                named = ", ".join(unread[:_MOST_PROJECTS]) + (
                    f" and {len(unread) - _MOST_PROJECTS} more" if len(unread) > _MOST_PROJECTS else ""
                )
                say(f"Not read: the servers of other projects ({named}). Run the command in a project's folder to add its servers.")
        except (OSError, UnicodeDecodeError) as error:
            raise _Unusable(f"{first} cannot be read: {error}") from None
        except NotUnderstood as error:
            raise _Unusable(str(error)) from None
        return found
    return [of_command(_words(source), env=_pairs(env, "=", "--env"))], {}


def _words(source: Sequence[str]) -> Sequence[str]:
    """Return the words of a command; one quoted text is taken apart as a shell would, unless it is the path of a program."""
    if len(source) > 1 or not any(mark.isspace() for mark in source[0]) or Path(source[0]).expanduser().exists():
        return source
    try:
        words = shlex.split(source[0])
    except ValueError as error:
        usage_error(f"{source[0]!r} is not a command: {error}. Write its words after --, each by itself.")
    return words or usage_error("The command is empty.")


def _pairs(texts: Sequence[str], mark: str, option: str) -> dict[str, str]:
    pairs: dict[str, str] = {}
    for text in texts:
        name, found, value = text.partition(mark)
        if not found or not name.strip():
            usage_error(f"{option} takes NAME{mark}VALUE.")
        pairs[name.strip()] = value.strip() if mark == ":" else value
    return pairs


def _why_not(found: Found) -> str | None:
    """Return why the entry could not be used, even if its variables are set; None: it could."""
    if found.id in RESERVED_IDS:
        return f"The id {found.id!r} is reserved; choose another --id."
    if not ID.fullmatch(found.id):
        say(f"{found.id!r} is no id, so it will be served under one made of it; --id chooses another.")
    anything = _Anything()
    document = parse(json.dumps({"mcpServers": {found.id: found.entry}}).encode(), anything)
    for server in document.servers.values():
        if server.fault is not None:
            return server.fault
    for warning in document.warnings:
        say(warning)
    return None


class _Anything(dict[str, str]):
    """An environment in which everything is set."""

    def __contains__(self, name: object) -> bool:
        return True

    def __missing__(self, name: str) -> str:
        return "https://x"  # good for an address, too


def _tell(found: Sequence[Found], refused: Mapping[str, str], path: Path, *, dry_run: bool, as_json: bool) -> None:
    unset = {name: says for each in found for name, says in each.needs.items() if name not in os.environ}
    if as_json:
        shown = {"added": {each.id: each.entry for each in found}, "needs": unset, "file": str(path), "dry_run": dry_run}
        print_json({**shown, "refused": dict(refused)} if refused else shown)
        return
    for each in found:
        print(f"{'Would add' if dry_run else 'Added'} {each.id}: {_where(each.entry)}")  # noqa: T201 - the command's answer
    for name, says in unset.items():
        say(f"Set the environment variable {name} where Rookery runs" + (f": {says}" if says else "."))
    for name, reason in refused.items():
        say(f"Not added: {name}: {reason}")
    if not dry_run:
        say(f"To see whether it works: rookery servers check {' '.join(shlex.quote(each.id) for each in found)}")


def _where(entry: Mapping[str, object]) -> str:
    if isinstance(entry.get("url"), str):
        return str(entry["url"])
    args = entry.get("args")
    words = [str(entry.get("command") or ""), *(map(str, cast("list[object]", args)) if isinstance(args, list) else ())]
    return shlex.join(words)


def _shown(each: _Registered, live: str) -> Fields:
    server = each.server
    reason = why_not_startable(server, os.environ)
    return {
        "id": server.id,
        "kind": server.kind if server.fault is None or each.entry.get("command") else str(each.entry.get("type") or "http"),
        "status": server.status if server.enabled else "switched off",
        "health": live if live != "unknown" or reason is None else "offline",
        "where": _where(each.entry),
        "workspaces": "all" if server.workspaces is None and server.owner is None else sorted(server.workspaces or {server.owner or 0}),
        "fault": server.fault,
        "says": reason if live in {"unknown", "offline"} else None,
    }


def _checked(checked: Checked) -> Fields:
    return {
        "id": checked.server_id,
        "ok": checked.error is None,
        "error": checked.error,
        "advice": checked.advice,
        "warnings": list(checked.warnings),
        "software": checked.facts.software or None,
        "era": checked.facts.era,
        "tools": checked.tools,
        "resources": len(checked.offer.resources),
        "prompts": len(checked.offer.prompts),
        "took_ms": round(checked.took_ms),
        "stderr": list(checked.stderr),
    }


def _print_checked(checked: Sequence[Checked], *, verbose: bool) -> None:
    rows = [
        {
            "id": each.server_id,
            "ok": each.error is None,
            "tools": len(each.offer.tools),
            "took_ms": round(each.took_ms),
            "says": each.error or ", ".join(each.tools[:8]) + (" …" if len(each.tools) > 8 else ""),
            "advice": each.advice,
        }
        for each in checked
    ]
    if rows:
        print_many(rows, _CHECKED)
    for each in checked:
        for warning in each.warnings:
            say(f"{each.server_id}: {warning}")
        for line in each.stderr if verbose else ():
            say(f"{each.server_id} | {line}")


login.register(app)
