"""A tool server that answers with any error status (servers/refusing.py), in its own process."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import cast

import httpx2

from tests.deadlines import HANG_S
from tests.tools.makers import SERVERS


@dataclass(frozen=True, slots=True)
class RefusingServer:
    """A running server; *url* is its origin."""

    url: str

    def control(self, **options: object) -> list[dict[str, object]]:
        """Change its options, and return the requests that it has received: name and authorization of each."""
        response = httpx2.post(f"{self.url}/control", json=options, trust_env=False, timeout=HANG_S)
        return cast("list[dict[str, object]]", response.json())

    def refuse(self, *names: str, status: int, body: str = "", type: str = "text/plain", **headers: str) -> None:
        """Answer these methods or tools, and no others, with an error status. *headers* have `_` for `-`."""
        refusal = {
            "status": status,
            "body": body,
            "type": type,
            "headers": {name.replace("_", "-"): text for name, text in headers.items()},
        }
        self.control(refused=dict.fromkeys(names, refusal))

    def count(self, name: str) -> int:
        """Return how often it received a method or a call of a tool."""
        return sum(request["name"] == name for request in self.control())

    def list_authorizations(self, name: str) -> list[object]:
        """Return the Authorization of each request of a method or a tool."""
        return [request["authorization"] for request in self.control() if request["name"] == name]

    def make_entry(self, path: str = "/mcp", /, **fields: object) -> dict[str, object]:
        """Make its entry for a file."""
        return {"url": self.url + path, **({"type": "sse"} if path == "/sse" else {}), **fields}


@contextmanager
def run_refusing_server(**options: object) -> Generator[RefusingServer]:
    """Run the server until the block ends."""
    command = [sys.executable, "-I", "-S", str(SERVERS / "refusing.py"), json.dumps(options)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            yield RefusingServer(f"http://127.0.0.1:{int(process.stdout.readline())}")
        finally:
            process.kill()
