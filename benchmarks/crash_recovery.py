"""
Effects of a crash on requests with an Idempotency-Key: `python -m benchmarks.crash_recovery`.

Writers send requests, each with a unique key. The server is killed with kill -9 at a random moment. After its restart, each writer
repeats its request without a response, with the same key. Each request must have created exactly one record.

It prints the numbers of kills, requests, interrupted requests, replayed requests, duplicate records and missing records.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import httpx2

_START_S = 60.0
_MAX_KILLS = 1_000
_WRITERS = 8
_PATHS = ("/v1/brain/remember", "/v1/plans", "/v1/brain/remember/batch", "/v1/sessions")
_COUNTS = {
    "/v1/brain/remember": "SELECT content FROM memories WHERE content LIKE 'one %'",
    "/v1/brain/remember/batch": "SELECT content FROM memories WHERE content LIKE 'batch %'",
    "/v1/plans": "SELECT title FROM plans",
    "/v1/sessions": "SELECT goal FROM agent_sessions",
}


@dataclass
class Tally:
    """Counts of sent requests and their outcomes."""

    kills: int = 0
    sent: Counter[str] = field(default_factory=Counter[str])
    interrupted: int = 0
    replayed: int = 0
    refused: Counter[str] = field(default_factory=Counter[str])


def main() -> None:
    """Kill, repeat, count, and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.crash_recovery", description=__doc__)
    parser.add_argument("--kills", type=int, default=40)
    parser.add_argument("--seed", type=int, default=14)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="rookery-crashes-") as name:
        tally = asyncio.run(_run(Path(name), min(options.kills, _MAX_KILLS), random.Random(options.seed)))
        records = {path: _count_records(Path(name) / "records.db", statement) for path, statement in _COUNTS.items()}
    doubled = {path: sum(count - 1 for count in counts.values()) for path, counts in records.items()}
    missing = {path: tally.sent[path] * (2 if path.endswith("batch") else 1) - len(counts) for path, counts in records.items()}
    figures = {
        "kills": tally.kills,
        "requests": tally.sent.total(),
        "interrupted": tally.interrupted,
        "replayed": tally.replayed,
        "refused": dict(tally.refused),
        "records_too_many": doubled,
        "records_missing": missing,
    }
    print(json.dumps(figures, indent=1))
    if any(doubled.values()) or any(missing.values()):
        sys.exit(1)


def _count_records(records: Path, statement: str) -> Counter[str]:
    with closing(sqlite3.connect(records)) as connection:
        return Counter(row[0] for row in connection.execute(statement))


async def _run(folder: Path, kills: int, chance: random.Random) -> Tally:
    tally, interrupted = Tally(), [(number, "", "", b"") for number in range(_WRITERS)]
    for kill in range(kills + 1):
        process, url = _start(folder)
        try:
            keys = json.loads((folder / "first-run.json").read_text(encoding="utf-8"))
            headers = {"Authorization": f"Bearer {keys['api_key']}", "Content-Type": "application/json"}
            async with httpx2.AsyncClient(base_url=url, headers=headers, timeout=30) as client:
                await asyncio.gather(*(_repeat(client, tally, path, mark, body) for _, path, mark, body in interrupted if mark))
                if kill == kills:
                    break
                writers = [asyncio.create_task(_write(client, tally, writer, f"{kill}-{writer}")) for writer in range(_WRITERS)]
                await asyncio.sleep(chance.uniform(0.05, 0.6))
                process.send_signal(signal.SIGKILL)
                tally.kills += 1
                interrupted = await asyncio.gather(*writers)
        finally:
            process.kill()
            process.wait()
        # Expire the leases, as if the minute after which a claim may be taken over had passed.
        with closing(sqlite3.connect(folder / "records.db", isolation_level=None)) as connection:
            connection.execute("UPDATE kept_answers SET until = 0 WHERE owner IS NOT NULL")
    return tally


def _start(folder: Path) -> tuple[subprocess.Popen[bytes], str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ROOKERY_")}
    environment |= {"ROOKERY_MIN_FREE_DISK_MB": "0", "ROOKERY_BCRYPT_COST": "4"}
    command = [sys.executable, "-m", "rookery", "--data-dir", str(folder), "serve", "--port", "0"]
    with (folder / "server.log").open("ab") as log:
        process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=log)
    assert process.stdout is not None
    line = process.stdout.readline().decode()
    url = next((word.rstrip(",;") for word in line.split() if word.startswith("http")), "")
    deadline = time.monotonic() + _START_S
    while time.monotonic() < deadline:
        try:
            with urlopen(f"{url}/healthz", timeout=2):  # noqa: S310 - our own server
                return process, url
        except (URLError, OSError):
            time.sleep(0.02)
    process.kill()
    raise RuntimeError(f"the server did not start: {(folder / 'server.log').read_text(encoding='utf-8')[-2000:]}")


async def _write(client: httpx2.AsyncClient, tally: Tally, writer: int, prefix: str) -> tuple[int, str, str, bytes]:
    """Send requests one after the other until one gets no response; return that one."""
    for number in range(100_000):
        path, name = _PATHS[(writer + number) % len(_PATHS)], f"{prefix}-{number}"
        body = json.dumps(_body(path, name)).encode()
        tally.sent[path] += 1
        try:
            response = await client.post(path, content=body, headers={"Idempotency-Key": name})
        except httpx2.TransportError:
            tally.interrupted += 1
            return writer, path, name, body
        if not response.is_success:
            tally.refused[response.text[:120]] += 1
    raise RuntimeError("the server was not killed")


async def _repeat(client: httpx2.AsyncClient, tally: Tally, path: str, mark: str, body: bytes) -> None:
    response = await client.post(path, content=body, headers={"Idempotency-Key": mark})
    tally.replayed += "idempotent-replay" in response.headers
    if not response.is_success:
        tally.refused[response.text[:120]] += 1


def _body(path: str, name: str) -> dict[str, object]:
    if path == "/v1/brain/remember":
        return {"type": "fact", "content": f"one {name}"}
    if path == "/v1/brain/remember/batch":
        return {"memories": [{"type": "fact", "content": f"batch {name} {letter}"} for letter in "ab"]}
    if path == "/v1/plans":
        return {"title": name}
    return {"agent_type": "writer", "agent_id": f"writer-{name}", "goal": name}


if __name__ == "__main__":
    main()
