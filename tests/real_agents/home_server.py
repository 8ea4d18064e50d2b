"""Rookery for the runs of the programs: a server with the probe, which restarts behind its port."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import cast

from tests.deadlines import HANG_S
from tests.processes import Server
from tests.real_agents import probe_server

Json = dict[str, object]

PROBE = "probe"
UNKNOWN_KEY = "ak_" + "0" * 32
_STARTING = "Starting now"


class HomeServer:
    """The server, with keys of its own for each run."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(mode=0o700)
        entry = {"command": sys.executable, "args": ["-I", "-S", str(Path(probe_server.__file__))]}
        (folder / "servers.json").write_text(json.dumps({"mcpServers": {PROBE: entry}}), encoding="utf-8")
        self.server = Server(folder, log_level="warning")
        self.port = int(self.server.url.rpartition(":")[2])
        self.memory = ""

    def create_key(self, name: str) -> tuple[str, str]:
        """Return the id and the secret of a new key of an agent."""
        response = self.server.client.post("/api/v1/agent-keys", json={"name": name, "preset": "agent"}).raise_for_status()
        body = cast("Json", response.json())
        return str(body["id"]), str(body["key"])

    def set_limit(self, key_id: str, per_minute: int) -> None:
        """Set the requests per minute of a key."""
        self.server.client.patch(f"/api/v1/agent-keys/{key_id}", json={"rate_limit": per_minute}).raise_for_status()

    def revoke(self, key_id: str) -> None:
        """Revoke a key."""
        self.server.client.post(f"/api/v1/agent-keys/{key_id}/revoke").raise_for_status()

    def restart(self) -> None:
        """Stop the server, and start it on the same port."""
        self.server.stop()
        self.server = Server(self.folder, port=self.port, log_level="warning")

    def read_list(self, key: str) -> tuple[list[str], str]:
        """Return the names of the tools that a key sees at `/mcp`, and the instructions."""
        headers = {"Authorization": f"Bearer {key}", "Accept": "application/json, text/event-stream", "MCP-Protocol-Version": "2025-11-25"}
        client = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "real-agents", "version": "1"}}
        deadline = time.monotonic() + HANG_S
        while True:
            opened, answer_headers = self._post({"id": 1, "method": "initialize", "params": client}, headers)
            session = {**headers, "Mcp-Session-Id": answer_headers["mcp-session-id"]}
            self._post({"method": "notifications/initialized"}, session)
            tools = cast("list[Json]", cast("Json", self._post({"id": 2, "method": "tools/list"}, session)[0]["result"])["tools"])
            self.server.client.delete("/mcp", headers=session)
            names, instructions = [str(tool["name"]) for tool in tools], str(cast("Json", opened["result"]).get("instructions", ""))
            if (any(name.startswith(PROBE) for name in names) and _STARTING not in instructions) or time.monotonic() > deadline:
                return names, instructions
            time.sleep(0.2)

    def _post(self, message: Mapping[str, object], headers: Mapping[str, str]) -> tuple[Json, Mapping[str, str]]:
        response = self.server.client.post("/mcp", json={"jsonrpc": "2.0", **message}, headers=dict(headers))
        text = response.text
        if response.headers.get("content-type", "").startswith("text/event-stream"):
            text = next(line.removeprefix("data:") for line in reversed(text.splitlines()) if line.startswith("data:"))
        return cast("Json", json.loads(text or "{}")), response.headers

    def read_errors(self, since: int = 0) -> list[str]:
        """Return the lines of its log at level error from a position on."""
        return [line for line in self.server.log()[since:].splitlines() if "error" in line.lower()[:60]]


@contextmanager
def run_home(folder: Path) -> Generator[HomeServer]:
    """Run the server until the block ends."""
    home = HomeServer(folder)
    try:
        yield home
    finally:
        if home.server.process.poll() is None:
            home.server.stop()
