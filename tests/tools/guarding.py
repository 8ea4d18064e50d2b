"""The server behind an authorisation server (servers/guarded.py), started and steered, and a person who consents in a browser."""

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
from tests.tools.makers import SERVERS


@dataclass(frozen=True, slots=True)
class Guarded:
    """A running one; *url* is its origin."""

    url: str

    def control(self, **options: object) -> dict[str, int]:
        """Change its options, and return what it has counted."""
        answer = httpx2.post(f"{self.url}/control", json=options, trust_env=False)
        return cast("dict[str, int]", answer.json())

    def seen(self) -> list[dict[str, str]]:
        """Return the headers of requests that were led elsewhere."""
        return cast("list[dict[str, str]]", httpx2.get(f"{self.url}/seen", trust_env=False).json())

    def server(
        self, *, path: str = "/mcp", auth: OAuthConfig | None = None, forward_headers: tuple[str, ...] = (), **fields: object
    ) -> Server:
        """Return an entry for it."""
        target = HttpTarget(url=self.url + path, kind="sse" if path == "/sse" else "http")
        made = {"id": "guarded", "name": "Guarded", "target": target, "auth": auth, "forward_headers": forward_headers}
        return Server(**{**made, **fields})  # pyright: ignore[reportArgumentType] - fields by their own names


@contextmanager
def guarded(**options: object) -> Generator[Guarded]:
    """Run one until the block ends."""
    command = [sys.executable, "-I", "-S", str(SERVERS / "guarded.py"), json.dumps(options)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            yield Guarded(f"http://127.0.0.1:{int(process.stdout.readline())}")
        finally:
            process.kill()


def consent(url: str) -> str:
    """Open *url* as somebody who says yes to everything; return where the browser is sent with the answer."""
    answer = httpx2.get(url, follow_redirects=False, trust_env=False)
    assert answer.status_code == 302, (answer.status_code, answer.text)
    return answer.headers["location"]


def form_of(page: str) -> Mapping[str, str]:
    """Return the hidden fields of a page's form."""
    return {name: unescape(value) for name, value in re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)">', page)}
