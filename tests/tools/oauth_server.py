"""An OAuth-protected tool server (servers/guarded.py) in its own process, and a browser that consents."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from html import unescape
from typing import cast
from urllib.parse import parse_qsl, urlsplit

import httpx2

from rookery.engines.upstreams.http import HttpConnector
from rookery.tools.models import ALL_WORKSPACES, HttpTarget, OAuthConfig, Server
from rookery.tools.ports import RequestOptions
from rookery.tools.servers.logins import Logins, PendingLogin
from tests.conftest import OPERATOR
from tests.deadlines import HANG_S
from tests.tools.makers import SERVERS, make_caller

REDIRECT = "http://127.0.0.1:9/callback"


@dataclass(frozen=True, slots=True)
class OAuthServer:
    """A running server; *url* is its origin."""

    url: str

    def control(self, **options: object) -> dict[str, int]:
        """Change its options, and return what it has counted."""
        response = httpx2.post(f"{self.url}/control", json=options, trust_env=False, timeout=HANG_S)
        return cast("dict[str, int]", response.json())

    def redirected_headers(self) -> list[dict[str, str]]:
        """Return the headers of redirected requests."""
        return cast("list[dict[str, str]]", httpx2.get(f"{self.url}/redirected", trust_env=False, timeout=HANG_S).json())

    def make_entry(
        self, *, path: str = "/mcp", auth: OAuthConfig | None = None, forward_headers: tuple[str, ...] = (), **fields: object
    ) -> Server:
        """Return an entry for it."""
        target = HttpTarget(url=self.url + path, kind="sse" if path == "/sse" else "http")
        defaults = {"id": "guarded", "name": "Guarded", "target": target, "auth": auth, "forward_headers": forward_headers}
        return Server(**{**defaults, **fields})  # pyright: ignore[reportArgumentType] - fields by name


@contextmanager
def run_oauth_server(**options: object) -> Generator[OAuthServer]:
    """Run the server until the block ends."""
    command = [sys.executable, "-I", "-S", str(SERVERS / "guarded.py"), json.dumps(options)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            yield OAuthServer(f"http://127.0.0.1:{int(process.stdout.readline())}")
        finally:
            process.kill()


def authorize(url: str) -> str:
    """Open *url* and grant consent; return the address that the browser is redirected to."""
    response = httpx2.get(url, follow_redirects=False, trust_env=False, timeout=HANG_S)
    assert response.status_code == 302, (response.status_code, response.text)
    return response.headers["location"]


async def log_in(logins: Logins, server: Server, workspace_id: int = ALL_WORKSPACES) -> None:
    """Log in, with consent in a browser."""
    pending = await logins.begin(server, workspace_id, OPERATOR, redirect_uri=REDIRECT)
    await grant_consent(logins, server, pending)


async def grant_consent(logins: Logins, server: Server, pending: PendingLogin, **overrides: str | None) -> None:
    """Grant consent, and pass the response to the login."""
    fields: dict[str, str | None] = {**dict(parse_qsl(urlsplit(authorize(pending.start.url)).query)), **overrides}
    assert fields["state"] == pending.start.state
    await logins.finish(server, pending, code=str(fields["code"]), issuer=fields.get("iss"))


async def call_tool(logins: Logins, server: Server, workspace_id: int | None = None) -> None:
    """Call a tool of the server through a session that is logged in."""
    async with HttpConnector(logins).connect(server, on_changed=lambda: None, workspace_id=workspace_id) as session:
        await session.request("tools/call", {"name": "write", "arguments": {}}, RequestOptions(caller=make_caller()))


def parse_hidden_fields(page: str) -> Mapping[str, str]:
    """Return the hidden fields of a page's form."""
    return {name: unescape(value) for name, value in re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)">', page)}
