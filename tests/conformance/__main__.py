"""
Run the official conformance suite through Rookery: `make conformance`.

The suite sends requests to /mcp/everything without a key, so a proxy in between adds one. Behind Rookery runs a server with
everything that the suite tests (everything.py), once in the later version and once in the older one. Both requirement sets are
run against both, so that the translation between the versions is tested too.
"""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from tests.processes import run_server
from tests.real_servers import INSTALLED, node

HERE = Path(__file__).resolve().parent
SUITE = INSTALLED / "node_modules" / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"
_RUN_S = 240.0


class Combination(NamedTuple):
    """A requirement set, and the server behind Rookery."""

    requirements: str
    server: str

    @property
    def expected_failures(self) -> Path:
        """The expected failures with their reasons."""
        return HERE / f"{self.requirements}-{self.server}.yaml"


COMBINATIONS = [
    Combination("2025-11-25", "older"),
    Combination("2026-07-28", "later"),
    Combination("2025-11-25", "later"),
    Combination("2026-07-28", "older"),
]


@asynccontextmanager
async def authenticating_proxy(url: str, key: str) -> AsyncGenerator[str]:
    """Serve a proxy for *url* that adds *key* to each request, one per connection; it forwards the other bytes unchanged."""
    host, port = urlsplit(url).hostname or "", urlsplit(url).port or 0

    async def pump(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        while data := await source.read(65536):
            target.write(data)
            await target.drain()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            request_head = (await reader.readuntil(b"\r\n\r\n"))[:-2]
            lines = [line for line in request_head.split(b"\r\n") if not line.lower().startswith(b"connection:")]
            upstream_reader, upstream_writer = await asyncio.open_connection(host, port)
            upstream_writer.write(
                b"\r\n".join([*filter(None, lines), b"Authorization: Bearer " + key.encode(), b"Connection: close", b"", b""])
            )
            to_server = asyncio.create_task(pump(reader, upstream_writer))
            to_client = asyncio.create_task(pump(upstream_reader, writer))
            # If one side disconnects, disconnect the other: a client cancels a request by disconnecting.
            await asyncio.wait({to_server, to_client}, return_when=asyncio.FIRST_COMPLETED)
            to_server.cancel()
            to_client.cancel()
            upstream_writer.close()
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # one side has disconnected, or the suite has ended
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://localhost:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()


def suite(url: str, combination: Combination, *scenario_options: str) -> subprocess.CompletedProcess[str]:
    """Run the suite; its exit code is 0 if only the expected failures failed."""
    expected = ["--requirements", combination.requirements, "--expected-failures", str(combination.expected_failures)]
    options = ["--spec-version", combination.requirements, *scenario_options] if scenario_options else expected
    command = [node(), str(SUITE), "server", "--url", url, *options]
    with tempfile.TemporaryDirectory() as folder:
        return subprocess.run(command, capture_output=True, text=True, timeout=_RUN_S, check=False, cwd=folder)


async def run(combinations: list[Combination], *scenario_options: str) -> int:
    """Run *combinations*, each against its own server; return the number of unexpected results."""
    failure_count = 0
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder)
        arguments = ["-m", "tests.conformance.everything"]
        # The client of the suite provides roots.
        later_entry: dict[str, object] = {"command": sys.executable, "args": arguments, "cwd": str(HERE.parent.parent), "roots": "caller"}
        older_entry = {**later_entry, "args": [*arguments, "--older-era"]}
        (data / "servers.json").write_text(json.dumps({"mcpServers": {"later": later_entry, "older": older_entry}}), encoding="utf-8")
        with run_server(data) as server:
            async with authenticating_proxy(server.url, server.keys["agent_key"]) as address:
                for combination in combinations:
                    url = f"{address}/mcp/{combination.server}"
                    result = await asyncio.to_thread(suite, url, combination, *scenario_options)
                    output = result.stdout + result.stderr
                    if result.returncode or scenario_options:
                        print(output)
                    summary = [line for line in output.splitlines() if line.startswith(("Total:", "Passed:"))]
                    verdict = verdict_of(result.returncode, " ".join(summary))
                    print(f"{combination.requirements}, server of the {combination.server} era: {verdict}", flush=True)
                    failure_count += result.returncode != 0
    return failure_count


def verdict_of(code: int, summary: str) -> str:
    """Return the result as a text. Failures with exit code 0 are not required: in expected_failures, or not scored by the suite."""
    counts = {word: int(count) for count, word in re.findall(r"(\d+) (passed|failed)", summary)}
    if code != 0:
        return f"NOT as required. {summary}"
    unscored = counts.get("failed", 0)
    reason = " (not required of a server of this era, or listed with a reason in tests/conformance)" if unscored else ""
    return f"required: all passed ({counts.get('passed', 0)}); {unscored} unscored{reason}"


def main() -> None:
    """Run all combinations, or those in the arguments: `2026-07-28 later --scenario tools-list`."""
    if not SUITE.is_file():
        print("The conformance suite is not installed (npm could not be reached): make upstreams")
        return
    selected = [item for item in COMBINATIONS if item.requirements in sys.argv and item.server in sys.argv]
    scenario_options = [item for item in sys.argv[1:] if item not in {"2025-11-25", "2026-07-28", "later", "older"}]
    sys.exit(1 if asyncio.run(run(selected or COMBINATIONS, *scenario_options)) else 0)


if __name__ == "__main__":
    main()
