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

import httpx2

from rookery.tools.models import HttpTarget, OAuthConfig, Server
from tests.deadlines import HANG_S
from tests.tools.makers import SERVERS


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


def parse_hidden_fields(page: str) -> Mapping[str, str]:
    """Return the hidden fields of a page's form."""
    return {name: unescape(value) for name, value in re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)">', page)}
