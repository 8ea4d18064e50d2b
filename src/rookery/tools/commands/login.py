"""`rookery servers login` and `logout`: OAuth logins at servers, with consent in a browser."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import html
import os
import sys
import webbrowser
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Annotated, cast
from urllib.parse import parse_qs, urlsplit

import typer

from rookery.access.operator import get_operator, resolve_workspace
from rookery.kernel.errors import NotFound
from rookery.kernel.sentences import format_count
from rookery.terminal.context import get_settings
from rookery.terminal.options import JsonOption
from rookery.terminal.output import print_notice, print_record
from rookery.tools.commands.tool_services import ToolPlatform, run_with_platform
from rookery.tools.errors import LoginFailed
from rookery.tools.models import ALL_WORKSPACES, Server
from rookery.tools.servers.servers_file import InvalidServersFile, read_servers_file

_HOST = "127.0.0.1"
_PATH = "/callback"
_MAX_HEAD_BYTES = 16 * 1024
_HEAD_TIMEOUT_S = 10.0
_MAX_WAIT_S = 3600

ServerId = Annotated[str, typer.Argument(help="The server's id.")]
LoginWorkspaceOption = Annotated[
    str | None, typer.Option("--workspace", help="Only for this workspace, by name or number; default: for all.", show_default=False)
]


def login(
    context: typer.Context,
    server_id: ServerId,
    *,
    workspace: LoginWorkspaceOption = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="The local port for the redirect; 0 selects a free one.")] = 0,
    wait_s: Annotated[int, typer.Option("--wait", min=1, max=_MAX_WAIT_S, help="Seconds to wait for your consent.")] = 300,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Print the URL without opening a browser.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Log in at a server that requires it: open its consent page in a browser, and store the login encrypted."""

    async def work(platform: ToolPlatform) -> dict[str, object]:
        server, owner = await _find_server(context, platform, server_id, workspace)
        logins = platform.tools.logins
        async with _listen(port) as answers:
            pending_login = await logins.begin(server, owner, get_operator(), redirect_uri=answers.address)
            print_notice(f"Open this URL in a browser and consent within {wait_s} s:")
            print(pending_login.start.url, file=sys.stderr, flush=True)  # noqa: T201 - on one line, to be copied
            if sys.stdin.isatty():
                print_notice("If the browser is on another machine, paste the URL at which it ends here.")
                if not no_browser:
                    await asyncio.to_thread(webbrowser.open, pending_login.start.url)
            fields = await answers.wait(pending_login.start.state, wait_s)
            if "code" not in fields:
                raise LoginFailed(f"The authorisation server rejected the login: {pending_login.describe_refusal(fields)}")
            await logins.finish(server, pending_login, code=fields["code"], issuer=fields.get("iss"))
        result = await platform.tools.checker.check(server, workspace_id=owner or None)
        return {
            "server": server.id,
            "workspace_id": owner or None,
            "logged_in": True,
            "tools": len(result.tool_names),
            "error": result.error,
        }

    # A login for all workspaces may come before the first start of the server, as soon as the file of servers exists.
    is_prepared = workspace is None and get_settings(context).servers_file.exists()
    result = run_with_platform(context, work, create=is_prepared)
    print_record(result, as_json=as_json)
    if result["error"] is None:
        print_notice(f"Logged in at {server_id}: it has {format_count(cast('int', result['tools']), 'tool')}.")
    else:
        print_notice(f"Logged in at {server_id}, but it cannot be used: {result['error']}")


def logout(context: typer.Context, server_id: ServerId, *, workspace: LoginWorkspaceOption = None, as_json: JsonOption = False) -> None:
    """Delete the login at a server; a running Rookery stops using it within a second."""

    async def work(platform: ToolPlatform) -> dict[str, object]:
        server, owner = await _find_server(context, platform, server_id, workspace)
        if not await platform.tools.logins.log_out(server, owner, get_operator()):
            raise NotFound("login", server_id)
        return {"server": server.id, "workspace_id": owner or None, "logged_in": False}

    print_record(run_with_platform(context, work), as_json=as_json)


def register(app: typer.Typer) -> None:
    """Add both commands to the group `servers`."""
    app.command()(login)
    app.command()(logout)


async def _find_server(context: typer.Context, platform: ToolPlatform, server_id: str, workspace: str | None) -> tuple[Server, int]:
    """Return the server with this id, preferably the workspace's own, and the workspace of the login."""
    owner = ALL_WORKSPACES
    if workspace is not None:
        owner = (await resolve_workspace(platform.access, workspace)).id
        for workspace_server in await platform.tools.workspace_servers.list_for_workspace(owner):
            if workspace_server.server.id == server_id:
                return workspace_server.server, owner
    try:
        server = read_servers_file(get_settings(context).servers_file, os.environ).servers.get(server_id)
    except InvalidServersFile as error:
        raise LoginFailed(str(error)) from error
    if server is None:
        hint = "" if workspace is not None else " For a server that a workspace added, use --workspace."
        raise LoginFailed(f"The server {server_id!r} does not exist.{hint} `rookery servers list` shows all servers.")
    return server, owner


@dataclass(slots=True)
class _CallbackReceiver:
    """The requests to the local port: responses of authorisation servers, or of anyone who found the port."""

    address: str
    received: asyncio.Queue[dict[str, str]] = field(default_factory=asyncio.Queue[dict[str, str]])

    async def wait(self, state: str, seconds: float) -> dict[str, str]:
        """Return the response with *state*. Others are ignored."""
        loop = asyncio.get_running_loop()
        if sys.stdin.isatty():
            loop.add_reader(sys.stdin, lambda: self.add_if_answer(sys.stdin.readline()))
        try:
            async with asyncio.timeout(seconds):
                while True:
                    fields = await self.received.get()
                    if hmac.compare_digest(fields.get("state", "").encode(), state.encode()):
                        return fields
        except TimeoutError:
            raise LoginFailed(f"There was no consent within {seconds:g} s. Run the command again.") from None
        finally:
            if sys.stdin.isatty():
                loop.remove_reader(sys.stdin)

    def add_if_answer(self, address: str) -> bool:
        """Queue the query parameters of *address*. Return False if it is not a response."""
        try:
            parts = urlsplit(address.strip())
            fields = {name: values[0] for name, values in parse_qs(parts.query, max_num_fields=20).items()}
        except ValueError:
            return False
        if parts.path != _PATH or "state" not in fields:
            return False
        self.received.put_nowait(fields)
        return True


@asynccontextmanager
async def _listen(port: int) -> AsyncGenerator[_CallbackReceiver]:
    """Listen on the loopback interface while the block runs."""
    answers = _CallbackReceiver("")

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, TimeoutError, ValueError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            async with asyncio.timeout(_HEAD_TIMEOUT_S):
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                method, target, *_ = head.split(" ", 2)
                is_answer = method == "GET" and answers.add_if_answer(target)
                writer.write(
                    _render_page("Back to the terminal", "The terminal shows the result. You may close this page.")
                    if is_answer
                    else _NOT_FOUND_RESPONSE
                )
                await writer.drain()
        writer.close()

    try:
        server = await asyncio.start_server(serve, _HOST, port, limit=_MAX_HEAD_BYTES)
    except OSError as error:
        raise LoginFailed(f"Cannot listen on {_HOST}:{port}: {error.strerror}") from error
    async with server:
        answers.address = f"http://{_HOST}:{server.sockets[0].getsockname()[1]}{_PATH}"
        yield answers


_NOT_FOUND_RESPONSE = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


def _render_page(title: str, text: str) -> bytes:
    body = (
        '<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">'
        f'<meta name="color-scheme" content="light dark"><title>{html.escape(title)}</title>'
        f'<body style="font: 1.1rem/1.5 system-ui, sans-serif; margin: 15vh auto; max-width: 32rem; padding: 0 1rem">'
        f"<h1>{html.escape(title)}</h1><p>{html.escape(text)}</p></body></html>"
    ).encode()
    head = f"HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: {len(body)}\r\nConnection: close\r\n"
    policy = "Content-Security-Policy: default-src 'none'; style-src 'unsafe-inline'\r\nReferrer-Policy: no-referrer\r\n\r\n"
    return (head + policy).encode() + body
