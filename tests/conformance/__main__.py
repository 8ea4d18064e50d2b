"""
Run the official conformance suite through Rookery: `make conformance`.

The suite speaks to /mcp/everything with no key, so a doorman in between adds one. Behind Rookery stands a server of ours with
all that the suite asks for (everything.py), once in the later era and once in the older one: both requirement sets are run
against both, so that what Rookery translates between the eras is held to them too.
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
async def doorman(url: str, key: str) -> AsyncGenerator[str]:
    """Stand before *url* and add *key* to each request, one a connection; what the suite sends is passed on byte by byte."""
    host, port = urlsplit(url).hostname or "", urlsplit(url).port or 0

    async def pump(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
        while data := await source.read(65536):
            target.write(data)
            await target.drain()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n"))[:-2]
            lines = [line for line in head.split(b"\r\n") if not line.lower().startswith(b"connection:")]
            theirs, ours = await asyncio.open_connection(host, port)
            ours.write(b"\r\n".join([*filter(None, lines), b"Authorization: Bearer " + key.encode(), b"Connection: close", b"", b""]))
            upward = asyncio.create_task(pump(reader, ours))
            downward = asyncio.create_task(pump(theirs, writer))
            # Whoever leaves first, the other is told: a client that leaves is how a request is cancelled.
            await asyncio.wait({upward, downward}, return_when=asyncio.FIRST_COMPLETED)
            upward.cancel()
            downward.cancel()
            ours.close()
        except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # whoever it was has left, or the suite is over
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://localhost:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()


def suite(url: str, combination: Combination, *more: str) -> subprocess.CompletedProcess[str]:
    """Run the suite; its exit code is 0 when nothing failed but what is expected to."""
    expected = ["--requirements", combination.requirements, "--expected-failures", str(combination.expected_failures)]
    chosen = ["--spec-version", combination.requirements, *more] if more else expected
    command = [node(), str(SUITE), "server", "--url", url, *chosen]
    with tempfile.TemporaryDirectory() as folder:
        return subprocess.run(command, capture_output=True, text=True, timeout=_RUN_S, check=False, cwd=folder)


async def run(combinations: list[Combination], *more: str) -> int:
    """Run *combinations* against a server of their own; return how many were not as expected."""
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder)
        arguments = ["-m", "tests.conformance.everything"]
        # The suite answers with roots of its client.
        later: dict[str, object] = {"command": sys.executable, "args": arguments, "cwd": str(HERE.parent.parent), "roots": "caller"}
        older = {**later, "args": [*arguments, "--older-era"]}
        (data / "servers.json").write_text(json.dumps({"mcpServers": {"later": later, "older": older}}), encoding="utf-8")
        with run_server(data) as server:
            async with doorman(server.url, server.keys["agent_key"]) as address:
                for combination in combinations:
                    url = f"{address}/mcp/{combination.server}"
                    done = await asyncio.to_thread(suite, url, combination, *more)
                    said = done.stdout + done.stderr
                    if done.returncode or more:
                        print(said)
                    summary = [line for line in said.splitlines() if line.startswith(("Total:", "Passed:"))]
                    verdict = verdict_of(done.returncode, " ".join(summary))
                    print(f"{combination.requirements}, server of the {combination.server} era: {verdict}", flush=True)
                    wrong += done.returncode != 0
    return wrong


def verdict_of(code: int, summary: str) -> str:
    """Return the outcome in words. What fails with exit code 0 is not required: listed in expected_failures, or not scored by the suite."""
    counts = {word: int(count) for count, word in re.findall(r"(\d+) (passed|failed)", summary)}
    if code != 0:
        return f"NOT as required. {summary}"
    unscored = counts.get("failed", 0)
    reason = " (not required of a server of this era, or listed with a reason in tests/conformance)" if unscored else ""
    return f"required: all passed ({counts.get('passed', 0)}); {unscored} unscored{reason}"


def main() -> None:
    """Run everything, or what the arguments name: `2026-07-28 later --scenario tools-list`."""
    if not SUITE.is_file():
        print("The conformance suite is not installed (npm could not be reached): make upstreams")
        return
    named = [each for each in COMBINATIONS if each.requirements in sys.argv and each.server in sys.argv]
    more = [each for each in sys.argv[1:] if each not in {"2025-11-25", "2026-07-28", "later", "older"}]
    sys.exit(1 if asyncio.run(run(named or COMBINATIONS, *more)) else 0)


if __name__ == "__main__":
    main()
