"""
Times of claim-next among 10,000 tasks, and of creating a plan of 50 phases with 20 tasks each.

    python -m benchmarks.agents [--claims N] [--database postgresql://…] [--secret-key …]

One request after another over a real socket to a server in its own process. `bare request` only authenticates, which separates the
cost of the store and the rules from the cost of every request.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import cast

from benchmarks.load import Connection
from benchmarks.servers import Running, run_server

_PLANS = 10
_PHASES, _TASKS = 50, 20


async def _run(running: Running, claims: int) -> None:
    phases = [{"name": f"phase {number}", "tasks": [f"task {number}.{task}" for task in range(_TASKS)]} for number in range(_PHASES)]
    created, bare, claimed, completed = list[float](), list[float](), list[float](), list[float]()
    connection = Connection(running.url, running.api_key)

    async def send(times: list[float], expect: int, method: str, path: str, body: object = None) -> dict[str, object]:
        started = time.perf_counter()
        status, response = await connection.send(method, path, cast("dict[str, object] | None", body))
        times.append((time.perf_counter() - started) * 1000)
        assert status == expect, response
        return cast("dict[str, object]", json.loads(response))

    try:
        for number in range(_PLANS):
            await send(created, 201, "POST", "/v1/plans", {"title": f"plan {number}", "status": "active", "phases": phases})
        for _ in range(claims):
            await send(bare, 200, "GET", "/api/v1/whoami")
            task = await send(claimed, 200, "POST", "/v1/tasks/claim-next", {})
            await send(completed, 200, "POST", f"/v1/tasks/{task['id']}/complete", {"claim_token": task["claim_token"]})
    finally:
        await connection.close()
    _print_times(f"create a plan of {_PHASES} phases × {_TASKS} tasks", created)
    _print_times("bare request", bare)
    _print_times(f"claim-next among {_PLANS * _PHASES * _TASKS:,} tasks", claimed)
    _print_times("complete", completed)


def _print_times(label: str, times: list[float]) -> None:
    ordered = sorted(times)
    print(f"{label:45} p50 {statistics.median(ordered):8.2f} ms   p95 {ordered[int(len(ordered) * 0.95) - 1]:8.2f} ms   n {len(ordered)}")


def main() -> None:
    """Measure, and print a line for each kind of request."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--claims", type=int, default=300)
    parser.add_argument("--database", default="embedded:")
    parser.add_argument("--secret-key", default="a secret key of the benchmark: 0123")
    options = parser.parse_args()
    settings = {} if options.database == "embedded:" else {"database_url": options.database, "secret_key": options.secret_key}
    with tempfile.TemporaryDirectory() as folder, run_server(Path(folder) / "data", **settings) as running:
        asyncio.run(_run(running, options.claims))


if __name__ == "__main__":
    main()
