"""`rookery connect`: set-up of MCP clients for this server (D-04, D-35)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from rookery.kernel.config import Settings
from rookery.kernel.errors import RookeryError
from rookery.kernel.running_server import find_server
from rookery.kernel.suggestions import find_nearest
from rookery.terminal.context import get_settings
from rookery.terminal.options import JsonOption, raise_usage_error
from rookery.terminal.output import print_json, print_notice
from rookery.tools.discovery.client_files import CLIENT_FILES, Client, ClientFileBroken, add_entry, read_client_file, write_client_file
from rookery.tools.discovery.client_guides import CLIENTS, KEY_VARIABLE, SetupGuide, SetupTarget, list_setups
from rookery.tools.servers.entries import BUILTIN_IDS
from rookery.tools.servers.servers_file import SERVER_ID_PATTERN, InvalidServersFile, read_servers_file

_WRITABLE_CLIENTS: dict[str, Client] = {str(client): client for client in CLIENT_FILES}


def connect(
    context: typer.Context,
    client: Annotated[str, typer.Argument(help=f"{', '.join(CLIENTS[:-1])} or {CLIENTS[-1]}.")],
    *,
    server: Annotated[str | None, typer.Option(help="Only this tool server; default: all servers.", show_default=False)] = None,
    search: Annotated[bool, typer.Option("--search", help="Serve two tools that find and call all others.")] = False,
    to_write: Annotated[bool, typer.Option("--write", help="Write the set-up to the client's file instead of showing it.")] = False,
    file: Annotated[Path | None, typer.Option(help="The client's file, if it is not in its usual place.", show_default=False)] = None,
    as_json: JsonOption = False,
) -> None:
    """Show the configuration that connects a client to this server, or write it. The key stays in an environment variable."""
    target = _build_target(context, server, search=search)
    setup = next((guide for guide in list_setups(target) if guide.client == client), None)
    if setup is None:
        raise_usage_error(f"Unknown client {client!r}; use {', '.join(guide.client for guide in list_setups(target))}.")
    _warn_if_not_running(get_settings(context), target)
    _warn_if_unlisted(get_settings(context), server)
    if not to_write and file is None:
        _show(setup, as_json=as_json)
        return
    writable_client = _WRITABLE_CLIENTS.get(client)
    if writable_client is None:
        reason = "has no file to write to" if setup.file is None else f"stores the key itself in {setup.file}, so edit that file yourself"
        raise_usage_error(f"{setup.name} {reason}; omit --write and --file.")
    path = Path(CLIENT_FILES[writable_client]).expanduser() if file is None else file
    _write(writable_client, path, target, as_json=as_json)


def _build_target(context: typer.Context, server: str | None, *, search: bool) -> SetupTarget:
    if server is not None and search:
        raise_usage_error("Use either --server or --search: the search covers all servers.")
    if server is not None and not SERVER_ID_PATTERN.fullmatch(server):
        raise_usage_error(f"{server!r} is not a valid server id; see `rookery servers list`.")
    settings = get_settings(context)
    running = None if settings.has_public_urls else find_server(settings.data_dir)
    if running is not None:
        settings = settings.with_public_url(running.url)
    url = settings.public_url_of("/mcp") + "/mcp" + (f"/{server}" if server else "") + ("?mode=search" if search else "")
    return SetupTarget(name=server or "rookery", url=url, api=settings.public_url_of("/api/v1/mcp") + "/api/v1/mcp", server=server)


def _warn_if_not_running(settings: Settings, target: SetupTarget) -> None:
    if not settings.has_public_urls and find_server(settings.data_dir) is None:
        print_notice(f"No Rookery runs on {settings.data_dir}. Its URL will be {target.url} if it is started with these settings.")


def _warn_if_unlisted(settings: Settings, server: str | None) -> None:
    """Print a notice if neither Rookery nor servers.json has the server. A workspace may have added it over HTTP."""
    if server is None:
        return
    try:
        known_ids = {*BUILTIN_IDS, *read_servers_file(settings.servers_file, os.environ).servers}
    except InvalidServersFile:  # `servers check` and `doctor` report it
        return
    if server not in known_ids:
        near = find_nearest(server, known_ids)
        hint = f"Did you mean {near!r}?" if near else "`rookery servers list` shows its servers."
        print_notice(f"servers.json has no server {server!r}. {hint} A workspace may have added it over HTTP.")


def _show(setup: SetupGuide, *, as_json: bool) -> None:
    if as_json:
        print_json({"client": setup.client, "file": setup.file, "text": setup.text, "note": setup.note, "command": setup.command})
        return
    typer.echo(setup.text, nl=False)
    location = f"{setup.file}: " if setup.file else ""
    typer.echo(f"{location}{setup.note}", err=True)
    if setup.command is not None:
        typer.echo(f"Or: {setup.command}", nl=False, err=True)


def _write(client: Client, path: Path, target: SetupTarget, *, as_json: bool) -> None:
    try:
        write_client_file(path, add_entry(client, read_client_file(path), target))
    except ClientFileBroken as error:
        raise RookeryError(f"{path}: {error}") from error
    if as_json:
        print_json({"client": client, "file": str(path), "name": target.name, "url": target.url, "key_variable": KEY_VARIABLE})
    else:
        typer.echo(f"{path} has {target.name} ({target.url}).")
        if client != "vscode":
            typer.echo(f"Set {KEY_VARIABLE} to a key in the shell that starts {client}.", err=True)
