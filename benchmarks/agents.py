"""
Plans: how quick is claim-next among 10,000 tasks, and making a plan of 50 phases with 20 tasks each?

    python -m benchmarks.agents [--claims N] [--database postgresql://…]

Calls go through the whole application in this process, as an agent key's; `bare` is a request of the same kind that does nothing,
so that what the store and the rules cost can be told from what every request does.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
import time
from pathlib import Path

import httpx2

from rookery.app import create_app
from rookery.kernel.config import Settings
from rookery.kernel.secret import Secret
from rookery.migrations import migrate
from rookery.wiring import build

_PLANS = 10
_PHASES, _TASKS = 50, 20
_LIMIT_KEY = "a secret key of the benchmark: 0123"


async def _measure(claims: int, database: str, folder: Path) -> None:
    migrate(database, data_dir=folder)
    shared = None if database == "embedded:" else Secret(_LIMIT_KEY)
    rookery = build(Settings(data_dir=folder, database_url=Secret(database), secret_key=shared, bcrypt_cost=4, min_free_disk_mb=0))
    await rookery.start()
    try:
        made = await rookery.first_run()
        assert made.api_key is not None, "the store is not empty"
        transport = httpx2.ASGITransport(create_app(rookery))
        headers = {"Authorization": f"Bearer {made.api_key.reveal()}"}
        async with httpx2.AsyncClient(transport=transport, base_url="http://localhost", headers=headers, timeout=60) as client:
            await _run(client, claims)
    finally:
        await rookery.close()


async def _run(client: httpx2.AsyncClient, claims: int) -> None:
    phases = [{"name": f"phase {number}", "tasks": [f"task {number}.{each}" for each in range(_TASKS)]} for number in range(_PHASES)]
    made = list[float]()
    for number in range(_PLANS):
        started = time.perf_counter()
        answer = await client.post("/v1/plans", json={"title": f"plan {number}", "status": "active", "phases": phases})
        made.append((time.perf_counter() - started) * 1000)
        assert answer.status_code == 201, answer.text
    _say(f"make a plan of {_PHASES} phases × {_TASKS} tasks", made)
    bare, claimed, completed = list[float](), list[float](), list[float]()
    for _ in range(claims):
        started = time.perf_counter()
        assert (await client.get("/api/v1/whoami")).status_code == 200
        bare.append((time.perf_counter() - started) * 1000)
        started = time.perf_counter()
        answer = await client.post("/v1/tasks/claim-next", json={})
        claimed.append((time.perf_counter() - started) * 1000)
        assert answer.status_code == 200, answer.text
        task = answer.json()
        started = time.perf_counter()
        done = await client.post(f"/v1/tasks/{task['id']}/complete", json={"claim_token": task["claim_token"]})
        completed.append((time.perf_counter() - started) * 1000)
        assert done.status_code == 200, done.text
    _say("bare request", bare)
    _say(f"claim-next among {_PLANS * _PHASES * _TASKS:,} tasks", claimed)
    _say("complete", completed)


def _say(what: str, times: list[float]) -> None:
    ordered = sorted(times)
    print(f"{what:45} p50 {statistics.median(ordered):8.2f} ms   p95 {ordered[int(len(ordered) * 0.95) - 1]:8.2f} ms   n {len(ordered)}")


def main() -> None:
    """Measure, and print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--claims", type=int, default=300)
    parser.add_argument("--database", default="embedded:")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(_measure(asked.claims, asked.database, Path(folder)))


if __name__ == "__main__":
    main()
