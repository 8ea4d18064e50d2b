"""`rookery servers`: the servers of the file, and those that workspaces added."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast
from urllib.parse import urlsplit

import typer

from rookery.access.operator import get_operator, make_operator_caller, resolve_workspace
from rookery.kernel.errors import RookeryError
from rookery.terminal.context import get_settings
from rookery.terminal.options import DryRunOption, JsonOption, YesOption, confirm, parse_pairs, raise_usage_error
from rookery.terminal.output import Fields, print_json, print_list, print_notice
from rookery.tools.call_options import CallOptions
from rookery.tools.commands import login
from rookery.tools.commands.check_output import check_to_fields, print_checked, print_slow_output
from rookery.tools.commands.tool_services import ToolPlatform, record_file_change, run_with_platform
from rookery.tools.models import JsonObject, Server
from rookery.tools.servers.entries import RESERVED_IDS, SERVER_ID_PATTERN, VARIABLE_PATTERN
from rookery.tools.servers.entry_import import (
    ImportedEntry,
    UnsupportedConfig,
    entries_from_document,
    entry_from_command,
    entry_from_url,
    unread_projects,
)
from rookery.tools.servers.file_edits import edit_entries, read_entries
from rookery.tools.servers.health_file import ReportedHealth
from rookery.tools.servers.literal_secrets import find_literal_secrets
from rookery.tools.servers.server_state import fetch_health, find_start_fault
from rookery.tools.servers.servers_file import InvalidServersFile, ServersFile, parse_servers_file, read_servers_file
from rookery.tools.session_sharing import describe_concurrency, describe_sharing, find_sharing_faults, find_stateful_server

if TYPE_CHECKING:
    from rookery.kernel.config import Settings
    from rookery.tools.servers.server_check import ServerCheckResult

app = typer.Typer(no_args_is_help=True)

_MAX_CONCURRENT_CHECKS = 4
_DOCUMENT_SUFFIXES = frozenset({".json", ".jsonc", ".json5", ".toml", ".yaml", ".yml"})
_MAX_SHOWN_PROJECTS = 5
_MAX_FILE_BYTES = 4 * 1024 * 1024
_COLUMNS = ("id", "kind", "status", "health", "where", "workspaces", "says", "max_concurrency", "forwards")
_TABLE_COLUMNS = ("id", "health", "says", "where", "kind", "status", "workspaces", "max_concurrency", "forwards")
"""The columns of a terminal, most important first."""
_UNKNOWN = ReportedHealth(health="unknown")

WorkspaceOption = Annotated[
    str | None,
    typer.Option("--workspace", help="Use the servers that this workspace added (name or number) instead of the file.", show_default=False),
]


class _CommandFailed(RookeryError):
    """The command failed. Exit code 1."""


@app.command("list")
def list_(context: typer.Context, *, workspace: WorkspaceOption = None, as_json: JsonOption = False) -> None:
    """
    List the servers of servers.json, or those that a workspace added.

    The command starts no server. `health` and its reason are those of the running Rookery on the data folder.
    If none runs, `health` is offline for a server that cannot start, and unknown otherwise. `rookery servers check` tests a server.
    """
    servers = _list_servers(context, workspace)
    live = fetch_health(get_settings(context).data_dir) if workspace is None else {}
    rows = [_to_fields(listed_server, live.get(listed_server.server.id, _UNKNOWN)) for listed_server in servers]
    for warning in _read_file(get_settings(context).servers_file).warnings if workspace is None else ():
        if not any(
            warning == f"{listed_server.key}: {listed_server.server.fault}" for listed_server in servers
        ):  # faults are shown in a column
            print_notice(warning)
    if as_json:
        print_json(rows)
    elif rows:
        print_list(rows, _COLUMNS, table_columns=_TABLE_COLUMNS)
    else:
        print_notice("There are no servers. Add one with `rookery servers add`.")


@app.command(context_settings={"ignore_unknown_options": True})  # options belong to the server's command: `servers add npx -y x`
def add(
    context: typer.Context,
    source: Annotated[
        list[str],
        typer.Argument(help="A URL; a server.json or another client's file; or a command with its arguments, best after --."),
    ],
    *,
    server_id: Annotated[
        str | None, typer.Option("--id", help="The server's id; default: derived from the source.", show_default=False)
    ] = None,
    env: Annotated[list[str] | None, typer.Option(help="NAME=VALUE for a command; repeatable.", show_default=False)] = None,
    header: Annotated[
        list[str] | None, typer.Option(help="'Name: value' for a URL; ${NAME} is read from the environment.", show_default=False)
    ] = None,
    sse: Annotated[bool, typer.Option("--sse", help="The URL uses the older HTTP with SSE.")] = False,
    replace: Annotated[bool, typer.Option("--replace", help="Replace an existing entry with this id.")] = False,
    dry_run: DryRunOption = False,
    as_json: JsonOption = False,
) -> None:
    """
    Add servers to servers.json; a running Rookery loads them within a second.

    From a file with several servers, all usable ones are added. The others are named with the reason, and the exit code is 1.
    """
    path = get_settings(context).servers_file
    entries, refusals = _parse_source(source, env=env or [], headers=header or [], sse=sse)
    if server_id is not None:
        if len(entries) + len(refusals) > 1:
            raise_usage_error(f"--id applies to one server, but {source[0]} has {len(entries) + len(refusals)}.")
        entries = [ImportedEntry(id=server_id, entry=entry.entry, required_variables=entry.required_variables) for entry in entries]
    existing, accepted_entries = _read_entries(path), list[ImportedEntry]()
    for entry in entries:
        reason = _find_fault(entry)
        if reason is None and entry.id in existing and not replace:
            reason = f"{path.name} already has {entry.id}; choose another --id, or use --replace."
        if reason is None:
            accepted_entries.append(entry)
        else:
            refusals[entry.id] = reason
    if not accepted_entries:
        raise _CommandFailed("; ".join(f"{name}: {reason}" for name, reason in refusals.items()) or f"{source[0]} contains no servers.")
    if not dry_run:
        _edit_file(get_settings(context), {entry.id: entry.entry for entry in accepted_entries})
    sharing = {entry.id: _describe_sharing(entry, get_settings(context).workers) for entry in accepted_entries}
    _print_added(accepted_entries, refusals, sharing, path, dry_run=dry_run, as_json=as_json)
    if refusals:
        raise typer.Exit(1)


@app.command()
def remove(
    context: typer.Context,
    server_id: Annotated[str, typer.Argument(help="The server's id.")],
    *,
    workspace: WorkspaceOption = None,
    yes: YesOption = False,
    dry_run: DryRunOption = False,
    as_json: JsonOption = False,
) -> None:
    """Remove a server from servers.json, or one that a workspace added."""
    matches = [
        listed_server for listed_server in _list_servers(context, workspace) if server_id in {listed_server.key, listed_server.server.id}
    ]
    if not matches:
        raise _CommandFailed(f"The server {server_id!r} does not exist. `rookery servers list` shows all servers.")
    if not dry_run:
        confirm(f"Remove the server {server_id!r}?", yes=yes)
        if workspace is None:
            _edit_file(get_settings(context), {matches[0].key: None})
        else:

            async def work(platform: ToolPlatform) -> None:
                owner = await resolve_workspace(platform.access, workspace)
                await platform.tools.workspace_servers.remove_for_workspace(owner.id, matches[0].key, actor=get_operator())

            run_with_platform(context, work)
    if as_json:
        print_json({"removed": server_id, "dry_run": dry_run})
    else:
        print(f"{'Would remove' if dry_run else 'Removed'} {server_id}.")  # noqa: T201 - the command's output


@app.command()
def check(
    context: typer.Context,
    ids: Annotated[list[str] | None, typer.Argument(help="Ids of the servers; default: all.", show_default=False)] = None,
    *,
    workspace: WorkspaceOption = None,
    header: Annotated[
        list[str] | None,
        typer.Option(help="'Name: value' of a caller, sent to servers whose entry forwards it; repeatable.", show_default=False),
    ] = None,
    verbose: Annotated[bool, typer.Option("--verbose", help="Show the last lines that each server wrote to standard error.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Start or connect to servers, list their tools, and report problems. The exit code is 1 if a server cannot be used."""
    listed_servers = _list_servers(context, workspace)
    selected = [listed_server for listed_server in listed_servers if not ids or listed_server.key in ids or listed_server.server.id in ids]
    missing = set(ids or ()) - {listed_server.key for listed_server in selected} - {listed_server.server.id for listed_server in selected}
    if missing:
        raise _CommandFailed(f"Not found: {', '.join(sorted(missing))}. `rookery servers list` shows all servers.")
    if not selected and not as_json:
        print_notice("There are no servers. Add one with `rookery servers add`.")
    slots = asyncio.Semaphore(_MAX_CONCURRENT_CHECKS)
    shows_output = not as_json and sys.stderr.isatty()
    options = CallOptions(headers={name.lower(): value for name, value in parse_pairs(header or (), ":", "--header").items()})

    async def check_one(platform: ToolPlatform, server: Server) -> ServerCheckResult:
        async with slots:
            opener = options.to_request_options(server, make_operator_caller(server.owner or 0), on_progress=None)
            with print_slow_output(server.id) if shows_output else contextlib.nullcontext() as on_output:
                return await platform.tools.checker.check(server, opener=opener, on_output=on_output)

    async def work(platform: ToolPlatform) -> list[ServerCheckResult]:
        return await asyncio.gather(*(check_one(platform, listed_server.server) for listed_server in selected))

    checked = run_with_platform(context, work, create=workspace is None) if selected else []
    if as_json:
        print_json([check_to_fields(result) for result in checked])
    else:
        print_checked(checked, verbose=verbose)
    if any(result.error is not None for result in checked):
        raise typer.Exit(1)


@dataclass(frozen=True, slots=True)
class _ListedServer:
    """One server by the file's own key, with its entry as written, so that substituted secrets are not shown."""

    key: str
    server: Server
    entry: JsonObject


def _list_servers(context: typer.Context, workspace: str | None) -> list[_ListedServer]:
    if workspace is not None:

        async def work(platform: ToolPlatform) -> list[_ListedServer]:
            owner = await resolve_workspace(platform.access, workspace)
            workspace_servers = await platform.tools.workspace_servers.list_for_workspace(owner.id)
            return [
                _ListedServer(workspace_server.server.id, workspace_server.server, workspace_server.stored.entry)
                for workspace_server in workspace_servers
            ]

        return run_with_platform(context, work)
    path = get_settings(context).servers_file
    parsed, entries = _read_file(path), _read_entries(path)
    keys = list(entries)
    return [
        _ListedServer(key, server, cast("JsonObject", entries[key]) if isinstance(entries[key], dict) else {})
        for key, server in zip(keys, parsed.servers.values(), strict=True)
    ]


def _read_file(path: Path) -> ServersFile:
    try:
        return read_servers_file(path, os.environ)
    except InvalidServersFile as error:
        raise _CommandFailed(str(error)) from None


def _read_entries(path: Path) -> JsonObject:
    try:
        return read_entries(path)
    except InvalidServersFile as error:
        raise _CommandFailed(str(error)) from None


def _edit_file(settings: Settings, changes: Mapping[str, JsonObject | None]) -> None:
    def change(entries: JsonObject) -> None:
        for key, entry in changes.items():
            if entry is None:
                entries.pop(key, None)
            else:
                entries[key] = entry

    path = settings.servers_file
    try:
        edit_entries(path, change)
    except InvalidServersFile as error:
        raise _CommandFailed(str(error)) from None
    reason = record_file_change(settings, get_operator(), path)
    if reason is not None:
        print_notice(f"The audit log has no entry of this change yet: {reason} The next start of the server adds one.")


def _parse_source(
    source: Sequence[str], *, env: Sequence[str], headers: Sequence[str], sse: bool
) -> tuple[list[ImportedEntry], dict[str, str]]:
    """Return the servers of the given source, and the reasons why others of the same file were rejected."""
    first = source[0]
    is_address = urlsplit(first).scheme in {"http", "https"}
    if first.startswith("-") or (is_address and len(source) > 1):
        invalid = first if first.startswith("-") else source[1]
        raise_usage_error(f"No such option: {invalid}." if invalid.startswith("-") else f"Nothing may follow a URL: {invalid}.")
    if is_address:
        if env:
            raise_usage_error("--env applies to commands only.")
        return [entry_from_url(first, kind="sse" if sse else None, headers=parse_pairs(headers, ":", "--header"))], {}
    if headers or sse:
        raise_usage_error("--header and --sse apply to URLs only.")
    path = Path(first).expanduser()
    if len(source) == 1 and (path.suffix in _DOCUMENT_SUFFIXES or path.name.startswith(".claude")):
        try:
            with path.open(encoding="utf-8") as file:
                text = file.read(_MAX_FILE_BYTES)
            result = entries_from_document(text, name=path.name, folder=Path.cwd())
            if unread := unread_projects(text, name=path.name, folder=Path.cwd()):
                names = ", ".join(unread[:_MAX_SHOWN_PROJECTS]) + (
                    f" and {len(unread) - _MAX_SHOWN_PROJECTS} more" if len(unread) > _MAX_SHOWN_PROJECTS else ""
                )
                print_notice(
                    f"Not read: the servers of other projects ({names}). Run the command in a project's folder to add its servers."
                )
        except (OSError, UnicodeDecodeError) as error:
            raise _CommandFailed(f"{first} cannot be read: {error}") from None
        except UnsupportedConfig as error:
            raise _CommandFailed(str(error)) from None
        return result
    return [entry_from_command(_split_command(source), env=parse_pairs(env, "=", "--env"))], {}


def _split_command(source: Sequence[str]) -> Sequence[str]:
    """Return the words of a command. A single quoted text is split as a shell does, unless it is the path of a program."""
    if len(source) > 1 or not any(character.isspace() for character in source[0]) or Path(source[0]).expanduser().exists():
        return source
    try:
        words = shlex.split(source[0])
    except ValueError as error:
        raise_usage_error(f"{source[0]!r} is not a command: {error}. Write its words separately after --.")
    return words or raise_usage_error("The command is empty.")


def _find_fault(entry: ImportedEntry) -> str | None:
    """Return why the entry is unusable even if its variables are set, or None."""
    if entry.id in RESERVED_IDS:
        return f"The id {entry.id!r} is reserved for a built-in server; choose another --id."
    if not SERVER_ID_PATTERN.fullmatch(entry.id):
        print_notice(f"{entry.id!r} is not a valid id, so it is served under an id derived from it. Choose another with --id.")
    environment = _AnyEnvironment()
    document = parse_servers_file(json.dumps({"mcpServers": {entry.id: entry.entry}}).encode(), environment)
    for server in document.servers.values():
        if server.fault is not None:
            return server.fault
    for warning in document.warnings:
        print_notice(warning)
    return None


class _AnyEnvironment(dict[str, str]):
    """An environment in which every variable is set."""

    def __contains__(self, name: object) -> bool:
        return True

    def __missing__(self, name: str) -> str:
        return "https://x"  # valid as a URL, too


def _print_added(
    entries: Sequence[ImportedEntry],
    refusals: Mapping[str, str],
    sharing: Mapping[str, tuple[str, bool]],
    path: Path,
    *,
    dry_run: bool,
    as_json: bool,
) -> None:
    unset = {name: description for entry in entries for name, description in entry.required_variables.items() if name not in os.environ}
    warnings = {entry.id: texts for entry in entries if (texts := _find_warnings(entry))}
    if as_json:
        added = {entry.id: entry.entry for entry in entries}
        fields = {"added": added, "needs": unset, "warnings": warnings, "file": str(path), "dry_run": dry_run}
        optional = {"refused": dict(refusals), "sharing": {name: text for name, (text, is_known) in sharing.items() if is_known}}
        print_json({**fields, **{name: value for name, value in optional.items() if value}})
        return
    for entry in entries:
        print(f"{'Would add' if dry_run else 'Added'} {entry.id}: {_describe_location(entry.entry)}")  # noqa: T201 - the command's output
        print_notice(f"{entry.id}: {sharing[entry.id][0]}")
        for warning in warnings.get(entry.id, ()):
            print_notice(f"{entry.id}: {warning}")
    for name, description in unset.items():
        print_notice(f"Set the environment variable {name} where Rookery runs" + (f": {description}" if description else "."))
    for name, reason in refusals.items():
        print_notice(f"Not added: {name}: {reason}")
    if not dry_run:
        print_notice(f"Test it with: rookery servers check {' '.join(shlex.quote(entry.id) for entry in entries)}")


def _describe_sharing(entry: ImportedEntry, process_count: int) -> tuple[str, bool]:
    """Return who shares the server's sessions and how many calls run at once, and whether it is known to keep state."""
    document = parse_servers_file(json.dumps({"mcpServers": {entry.id: entry.entry}}).encode(), _AnyEnvironment(os.environ))
    (server,) = document.servers.values()
    faults = "".join(f" Warning: {fault}." for fault in find_sharing_faults(server, process_count=process_count))
    return f"{describe_sharing(server, process_count=process_count)} {describe_concurrency(server)}{faults}", find_stateful_server(
        server
    ) is not None


def _find_warnings(entry: ImportedEntry) -> list[str]:
    """Return why the server cannot start here, and which secrets the entry has as plain text."""
    environment = _AnyEnvironment(os.environ)
    document = parse_servers_file(json.dumps({"mcpServers": {entry.id: entry.entry}}).encode(), environment)
    places = f"{entry.entry.get('command')} {entry.entry.get('cwd')}"
    is_known = all(name in os.environ for name in VARIABLE_PATTERN.findall(places))
    faults = [find_start_fault(server, environment) for server in document.servers.values()] if is_known else []
    return [fault for fault in faults if fault is not None] + [
        f"{secret.place} looks like a secret, and the file has it as plain text. Write '${{{secret.variable}}}' instead, "
        f"and set {secret.variable} where Rookery runs."
        for secret in find_literal_secrets(entry.entry)
    ]


def _describe_location(entry: Mapping[str, object]) -> str:
    if isinstance(entry.get("url"), str):
        return str(entry["url"])
    args = entry.get("args")
    words = [str(entry.get("command") or ""), *(map(str, cast("list[object]", args)) if isinstance(args, list) else ())]
    return shlex.join(words)


def _to_fields(listed_server: _ListedServer, live: ReportedHealth) -> Fields:
    server = listed_server.server
    reason = find_start_fault(server, os.environ)
    return {
        "id": server.id,
        "kind": server.kind
        if server.fault is None or listed_server.entry.get("command")
        else str(listed_server.entry.get("type") or "http"),
        "status": server.status if server.enabled else "switched off",
        "health": live.health if live.health != "unknown" or reason is None else "offline",
        "where": _describe_location(listed_server.entry),
        "workspaces": "all" if server.workspaces is None and server.owner is None else sorted(server.workspaces or {server.owner or 0}),
        "fault": server.fault,
        "max_concurrency": server.change_limit,
        "forwards": [*server.forward_headers, *(f"_meta {key}" for key in server.forward_meta)],
        "says": _explain(server.id, live, reason),
    }


def _explain(server_id: str, live: ReportedHealth, reason: str | None) -> str | None:
    """Return the reason for the health *live*, or the command that shows it; None if the server works or nothing is known."""
    if live.health in {"unknown", "offline"} and reason is not None:
        return reason
    if live.health in {"offline", "degraded"}:
        return live.reason or f"For the reason: rookery servers check {server_id}"
    if live.health == "needs_login":
        return live.reason or f"Log in: rookery servers login {server_id}"
    if live.health == "unknown" and live.reason is not None:
        return live.reason  # it has been starting for some time
    return "It lists no tools, resources or prompts." if live.health == "online" and live.feature_count == 0 else None


login.register(app)
