"""
Calls beside calls that their server refuses: `python -m benchmarks.refused_calls`.

One caller calls a tool of a server over HTTP without a pause: alone, and while the same session gets 20 calls a second of another tool,
which the server answers with 429. Rounds alternate. `--against FOLDER`, which may be repeated, measures the source tree of another
folder by turns with this one.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import statistics
import tempfile
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.load import Connection, Timings
from benchmarks.servers import Running, run_server
from tests.tools.refusing_server import RefusingServer, run_refusing_server

_CALL = "/api/v1/mcp/tools/call"
_REFUSED_PER_S = 20
_WARM = 50
_READY_S = 30.0


@dataclass(slots=True)
class Measured:
    """One source tree: a server of it, its own tool server, and what was measured."""

    running: Running
    server: RefusingServer
    alone: list[Timings] = field(default_factory=list[Timings])
    beside: list[Timings] = field(default_factory=list[Timings])
    failures: Counter[str] = field(default_factory=Counter[str])
    refused: Counter[str] = field(default_factory=Counter[str])

    def as_json(self) -> dict[str, object]:
        """Return the medians of the rounds, and the failures by the code of the answer."""
        alone_p99, beside_p99 = (statistics.median(timings.percentile(0.99) for timings in rounds) for rounds in (self.alone, self.beside))
        return {
            "alone": {"p50_ms": round(statistics.median(timings.p50 for timings in self.alone), 2), "p99_ms": round(alone_p99, 2)},
            "beside": {"p50_ms": round(statistics.median(timings.p50 for timings in self.beside), 2), "p99_ms": round(beside_p99, 2)},
            "p99_ratio": round(beside_p99 / alone_p99, 2),
            "p99_ratios": [
                round(beside.percentile(0.99) / alone.percentile(0.99), 2) for alone, beside in zip(self.alone, self.beside, strict=True)
            ],
            "calls": sum(len(timings.each_ms) for timings in (*self.alone, *self.beside)),
            "failures": dict(self.failures),
            "refused": dict(self.refused),
            "sessions_opened_again": self.server.count("initialize"),
        }


async def _call(connection: Connection, tool: str) -> str | None:
    """Call a tool, and return the code of a failure."""
    _, body = await connection.send("POST", _CALL, {"server": "it", "tool": tool, "arguments": {}})
    return json.loads(body).get("code")


async def _measure(measured: Measured, seconds: float) -> Timings:
    connection = Connection(measured.running.url, measured.running.api_key)
    each_ms = list[float]()
    try:
        for _ in range(_WARM):
            await _call(connection, "write")
        started = time.perf_counter()
        while (begun := time.perf_counter()) < started + seconds:
            code = await _call(connection, "write")
            each_ms.append((time.perf_counter() - begun) * 1000)
            if code is not None:
                measured.failures[code] += 1
    finally:
        await connection.close()
    return Timings(each_ms=each_ms, took_s=time.perf_counter() - started)


async def _send_refused(measured: Measured) -> None:
    """Call the refused tool at a constant rate until cancelled."""
    connection = Connection(measured.running.url, measured.running.api_key)
    due = time.perf_counter()
    try:
        while True:
            due += 1 / _REFUSED_PER_S
            await asyncio.sleep(max(due - time.perf_counter(), 0))
            measured.refused[str(await _call(connection, "quick"))] += 1
    finally:
        await connection.close()


async def _run_round(measured: Measured, seconds: float) -> None:
    measured.alone.append(await _measure(measured, seconds))
    refused = asyncio.create_task(_send_refused(measured))
    measured.beside.append(await _measure(measured, seconds))
    refused.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await refused


async def _wait_ready(measured: Measured) -> None:
    connection = Connection(measured.running.url, measured.running.api_key)
    deadline = time.perf_counter() + _READY_S
    try:
        while await _call(connection, "write") is not None:
            if time.perf_counter() > deadline:
                raise TimeoutError("the tool server cannot be called")
            await asyncio.sleep(0.1)
    finally:
        await connection.close()
    measured.server.control(forget=True)
    measured.server.refuse("quick", status=429, body="slow down", Retry_After="1")


def main() -> None:
    """Print the figures of each tree as JSON."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.refused_calls", description=__doc__)
    parser.add_argument("--against", type=Path, action="append", default=[], help="the folder of another source tree")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--seconds", type=float, default=5.0, help="duration of each half of a round")
    options = parser.parse_args()
    trees: dict[str, Path | None] = {"this": None, **{f"against-{number}": path for number, path in enumerate(options.against)}}
    with tempfile.TemporaryDirectory(prefix="rookery-refused-") as name, ExitStack() as stack:
        measured: dict[str, Measured] = {}
        for tree_name, tree in trees.items():
            server = stack.enter_context(run_refusing_server())
            folder = Path(name) / tree_name
            folder.mkdir()
            (folder / "servers.json").write_text(
                json.dumps({"mcpServers": {"it": server.make_entry(isolation="shared")}}), encoding="utf-8"
            )
            running = stack.enter_context(run_server(folder, None if tree is None else tree.resolve()))
            measured[tree_name] = Measured(running, server)
            asyncio.run(_wait_ready(measured[tree_name]))
        load_before = os.getloadavg()[0]
        for number in range(options.rounds):
            for one in list(measured.values())[:: 1 if number % 2 else -1]:
                asyncio.run(_run_round(one, options.seconds))
        print(json.dumps({"load_before": load_before, **{tree_name: one.as_json() for tree_name, one in measured.items()}}, indent=1))


if __name__ == "__main__":
    main()
