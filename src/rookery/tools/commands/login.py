"""`rookery servers login` and `logout`: consent to act at a server in somebody's name, given in a browser (D-31)."""

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
from typing import Annotated
from urllib.parse import parse_qs, urlsplit

import typer

from rookery.access.commands.command_context import JsonOption, get_operator, resolve_workspace
from rookery.access.commands.output import print_notice, print_record
from rookery.kernel.errors import NotFound
from rookery.tools.commands.command_context import ToolPlatform, get_settings, run_with_platform
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
    str | None, typer.Option("--workspace", help="For this workspace alone, by name or number; by default for all.", show_default=False)
]


def login(
    context: typer.Context,
    server_id: ServerId,
    *,
    workspace: LoginWorkspaceOption = None,
    port: Annotated[int, typer.Option(min=0, max=65535, help="The port of this host to which the answer comes; 0 takes a free one.")] = 0,
    wait_s: Annotated[int, typer.Option("--wait", min=1, max=_MAX_WAIT_S, help="Seconds to wait for the consent.")] = 300,
    no_browser: Annotated[bool, typer.Option("--no-browser", help="Only print the address.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Log in at a server that asks for it: opens its consent page in a browser, and keeps the login sealed."""

    async def work(opened: ToolPlatform) -> dict[str, object]:
        server, owner = await _find_server(context, opened, server_id, workspace)
        logins = opened.tools.logins
        async with _listen(port) as answers:
            begun = await logins.begin(server, owner, get_operator(), redirect_uri=answers.address)
            print_notice(f"Consent in a browser, within {wait_s} s:")
            print(begun.start.url, file=sys.stderr, flush=True)  # noqa: T201 - in one piece, to be copied
            if sys.stdin.isatty():
                print_notice("If that browser is on another machine, copy the address at which it ends to here.")
                if not no_browser:
                    await asyncio.to_thread(webbrowser.open, begun.start.url)
            fields = await answers.wait(begun.start.state, wait_s)
            if "code" not in fields:
                told = fields.get("error_description") or fields.get("error") or "it does not say why"
                raise LoginFailed(f"The authorisation server refused: {told[:300]}")
            await logins.finish(server, begun, code=fields["code"], issuer=fields.get("iss"))
        checked = await opened.tools.checker.check(server, workspace_id=owner or None)
        return {
            "server": server.id,
            "workspace_id": owner or None,
            "logged_in": True,
            "tools": len(checked.tool_names),
            "error": checked.error,
        }

    told = run_with_platform(context, work)
    print_record(told, as_json=as_json)
    if told["error"] is None:
        print_notice(f"Logged in at {server_id}: it has {told['tools']} tools.")
    else:
        print_notice(f"Logged in at {server_id}, but it cannot be used: {told['error']}")


def logout(context: typer.Context, server_id: ServerId, *, workspace: LoginWorkspaceOption = None, as_json: JsonOption = False) -> None:
    """Forget the login at a server; a running Rookery stops using it within a second."""

    async def work(opened: ToolPlatform) -> dict[str, object]:
        server, owner = await _find_server(context, opened, server_id, workspace)
        if not await opened.tools.logins.log_out(server, owner, get_operator()):
            raise NotFound("login", server_id)
        return {"server": server.id, "workspace_id": owner or None, "logged_in": False}

    print_record(run_with_platform(context, work), as_json=as_json)


def register(app: typer.Typer) -> None:
    """Add both to the group `servers`."""
    app.command()(login)
    app.command()(logout)


async def _find_server(context: typer.Context, opened: ToolPlatform, server_id: str, workspace: str | None) -> tuple[Server, int]:
    """Return the server of that id, the workspace's own if it added one, and whose login is meant."""
    owner = ALL_WORKSPACES
    if workspace is not None:
        owner = (await resolve_workspace(opened.access, workspace)).id
        for added in await opened.tools.workspace_servers.list_for_workspace(owner):
            if added.server.id == server_id:
                return added.server, owner
    try:
        server = read_servers_file(get_settings(context).servers_file, os.environ).servers.get(server_id)
    except InvalidServersFile as broken:
        raise LoginFailed(str(broken)) from broken
    if server is None:
        where = "" if workspace is not None else "; one that a workspace added is named with --workspace"
        raise LoginFailed(f"There is no server {server_id!r}{where}. `rookery servers list` shows what there is.")
    return server, owner


@dataclass(slots=True)
class _CallbackReceiver:
    """What came to our port: the answers of authorisation servers, or of anybody who found it."""

    address: str
    received: asyncio.Queue[dict[str, str]] = field(default_factory=asyncio.Queue[dict[str, str]])

    async def wait(self, state: str, seconds: float) -> dict[str, str]:
        """Return the answer that has *state*; others are passed over."""
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
            raise LoginFailed(f"Nobody consented within {seconds:g} s; run the command again.") from None
        finally:
            if sys.stdin.isatty():
                loop.remove_reader(sys.stdin)

    def add_if_answer(self, address: str) -> bool:
        """Keep what the query of *address* says; false if it is no answer."""
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
    """Listen on this host alone, for as long as the block takes."""
    answers = _CallbackReceiver("")

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, TimeoutError, ValueError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            async with asyncio.timeout(_HEAD_TIMEOUT_S):
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                method, target, *_ = head.split(" ", 2)
                is_answer = method == "GET" and answers.add_if_answer(target)
                writer.write(
                    _render_page("Back to the terminal", "It says how it went. You may close this page.")
                    if is_answer
                    else _NOT_FOUND_RESPONSE
                )
                await writer.drain()
        writer.close()

    try:
        server = await asyncio.start_server(serve, _HOST, port, limit=_MAX_HEAD_BYTES)
    except OSError as error:
        raise LoginFailed(f"Port {port} of {_HOST} cannot be listened on: {error.strerror}") from error
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
