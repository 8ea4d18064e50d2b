"""`rookery connect`: a client's set-up for this server (D-04, D-35)."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from rookery.access.commands.printing import print_json, say
from rookery.access.commands.reading import usage_error
from rookery.access.commands.terminal import Json
from rookery.kernel.config import Settings
from rookery.kernel.errors import RookeryError
from rookery.kernel.running_server import find_server
from rookery.tools.commands.opening import settings_of
from rookery.tools.finding.client_files import FILES, Client, ClientFileBroken, read, with_ours, write
from rookery.tools.finding.client_setups import CLIENTS, KEY_VARIABLE, Setup, Target, setups
from rookery.tools.servers.servers_file import ID

_WITH_A_FILE: dict[str, Client] = {str(client): client for client in FILES}


def connect(
    context: typer.Context,
    client: Annotated[str, typer.Argument(help=f"{', '.join(CLIENTS[:-1])} or {CLIENTS[-1]}.")],
    *,
    server: Annotated[str | None, typer.Option(help="Only this tool server; all at once if left out.", show_default=False)] = None,
    search: Annotated[bool, typer.Option("--search", help="Two tools that find and call all others.")] = False,
    to_write: Annotated[bool, typer.Option("--write", help="Add it to the client's file instead of showing it.")] = False,
    file: Annotated[Path | None, typer.Option(help="The client's file, if it is not where it usually is.", show_default=False)] = None,
    as_json: Json = False,
) -> None:
    """Show how a client is set up for this server, or write it; the key stays in a variable, and goes into no file and no command."""
    target = _target(context, server, search=search)
    setup = next((each for each in setups(target) if each.client == client), None)
    if setup is None:
        usage_error(f"There is no client {client!r}; use {', '.join(each.client for each in setups(target))}.")
    _warn_if_nothing_runs(settings_of(context), target)
    if not to_write and file is None:
        _show(setup, as_json=as_json)
        return
    known = _WITH_A_FILE.get(client)
    if known is None:
        why = "has no file to write to" if setup.file is None else f"keeps the key itself in {setup.file}, which is yours to edit"
        usage_error(f"{setup.name} {why}; leave out --write and --file.")
    path = Path(FILES[known]).expanduser() if file is None else file
    _write(known, path, target, as_json=as_json)


def _target(context: typer.Context, server: str | None, *, search: bool) -> Target:
    if server is not None and search:
        usage_error("Say either --server or --search: the search is over all servers.")
    if server is not None and not ID.fullmatch(server):
        usage_error(f"{server!r} is no server's id; see `rookery servers list`.")
    settings = settings_of(context)
    running = None if settings.has_public_urls else find_server(settings.data_dir)
    if running is not None:
        settings = settings.at(running.url)
    url = settings.address_of("/mcp") + "/mcp" + (f"/{server}" if server else "") + ("?mode=search" if search else "")
    return Target(name=server or "rookery", url=url, api=settings.address_of("/api/v1/mcp") + "/api/v1/mcp", server=server)


def _warn_if_nothing_runs(settings: Settings, target: Target) -> None:
    if not settings.has_public_urls and find_server(settings.data_dir) is None:
        say(f"No server answers on {settings.data_dir}. {target.url} is its address if it is started with these settings.")


def _show(setup: Setup, *, as_json: bool) -> None:
    if as_json:
        print_json({"client": setup.client, "file": setup.file, "text": setup.text, "note": setup.note, "command": setup.command})
        return
    typer.echo(setup.text, nl=False)
    where = f"{setup.file}: " if setup.file else ""
    typer.echo(f"{where}{setup.note}", err=True)
    if setup.command is not None:
        typer.echo(f"Or: {setup.command}", nl=False, err=True)


def _write(client: Client, path: Path, target: Target, *, as_json: bool) -> None:
    try:
        write(path, with_ours(client, read(path), target))
    except ClientFileBroken as error:
        raise RookeryError(f"{path}: {error}") from error
    if as_json:
        print_json({"client": client, "file": str(path), "name": target.name, "url": target.url, "key_variable": KEY_VARIABLE})
    else:
        typer.echo(f"{path} has {target.name} ({target.url}).")
        if client != "vscode":
            typer.echo(f"Set {KEY_VARIABLE} to a key in the shell that starts {client}.", err=True)
