"""
Several server processes under load for a long time: `python -m benchmarks.soak --minutes 20 --processes 4`.

The records and the vectors are in a PostgreSQL, and the counters in a Valkey, both started for it. Callers send paced requests to the one
address: remember with an Idempotency-Key, some of them twice at once; recall; tool calls; claims of tasks; and requests of keys with a
limit of 1,000, in rounds of 1,100. A request with an Idempotency-Key is repeated after a 503, as clients must. A receiver counts webhook
deliveries. With `--kill-every`, a server process is killed now and then.

At the end everything is counted: memories that are missing, doubled or not indexed; vectors; jobs that are left; requests admitted per
limited key; tasks claimed twice; deliveries missing or doubled (a kill may double some); errors in the log. Memory and descriptors of each
process are compared between the second and the last quarter of its time. The exit code is 1 if a count is wrong.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import signal
import statistics
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import cast

import psutil
import psycopg

from benchmarks.load import Connection
from benchmarks.servers import Running, run_server
from tests.postgres import create_database, start_postgres
from tests.valkey import run_valkey

_SEAL = "a secret key of the benchmark: 0123"
_TIME_SERVER = {"mcpServers": {"time": {"command": sys.executable, "args": ["-m", "mcp_server_time", "--local-timezone", "UTC"]}}}
_LIMIT = 1_000  # of the tier `free`, per hour
_LIMIT_ROUND = 1_100
_LIMIT_CLIENTS = 12
_SAMPLE_INTERVAL_S = 5.0
_SETTLE_S = 900.0
_RETRY_S = 60.0
_RATES = {"remember": 12.0, "recall": 8.0, "tool call": 6.0, "task": 4.0}
"""Requests of each kind per second, which two cores serve beside the receiver and the engines."""


@dataclass
class Tally:
    """The requests of the callers and their results."""

    contents: dict[str, str] = field(default_factory=dict[str, str])
    """The id of each memory by its content."""
    doubled_ids: int = 0
    requests: Counter[str] = field(default_factory=Counter[str])
    refused: Counter[str] = field(default_factory=Counter[str])
    retried: int = 0
    repeated: int = 0
    """Requests that were sent again after a 503."""
    latencies_ms: defaultdict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    admitted: list[int] = field(default_factory=list[int])
    claims: Counter[str] = field(default_factory=Counter[str])
    deliveries: Counter[str] = field(default_factory=Counter[str])
    kills: int = 0


@dataclass(frozen=True, slots=True)
class Sample:
    """The resources of one process at one time."""

    at_s: float
    rss_mb: float
    descriptors: int
    threads: int


class Caller:
    """Paced requests of one kind over connections of its own, repeated if the connection is lost, or after a 503 if that is safe."""

    def __init__(self, running: Running, tally: Tally, kind: str) -> None:
        self._running = running
        self._tally = tally
        self._kind = kind

    async def send(self, method: str, path: str, body: object = None, *, key: str = "", mark: str = "") -> tuple[int, bytes]:
        """Send a request on a new connection, which any process may accept. Repeat it until it has a response."""
        headers = {"Idempotency-Key": mark} if mark else {}
        deadline = time.monotonic() + _RETRY_S
        while True:
            connection = Connection(self._running.url, key or self._running.api_key, headers)
            started = time.perf_counter()
            try:
                status, response = await connection.send(method, path, body)
            except (OSError, asyncio.IncompleteReadError, TimeoutError):
                self._tally.retried += 1
                if time.monotonic() > deadline:
                    raise
                await asyncio.sleep(0.1)
                continue
            finally:
                await connection.close()
            if status == 409 and mark and b"idempotency_in_progress" in response and time.monotonic() < deadline:
                await asyncio.sleep(0.05)
                continue
            if status == 503 and mark and time.monotonic() < deadline:
                self._tally.repeated += 1
                await asyncio.sleep(1)
                continue
            self._tally.requests[self._kind] += 1
            self._tally.latencies_ms[self._kind].append((time.perf_counter() - started) * 1000)
            return status, response

    def refuse(self, status: int, response: bytes) -> None:
        """Count an unexpected response."""
        self._tally.refused[f"{self._kind} {status} {response[:120].decode(errors='replace')}"] += 1


async def _pace(rate: float, until_s: float, run: Callable[[int], Awaitable[None]]) -> None:
    """Start *run* *rate* times per second until *until_s*, at most 32 at once; raise the first failure."""
    slots, started, number = asyncio.Semaphore(32), time.monotonic(), 0
    async with asyncio.TaskGroup() as tasks:

        async def run_one(number: int) -> None:
            try:
                await run(number)
            finally:
                slots.release()

        while time.monotonic() < until_s:
            await slots.acquire()
            tasks.create_task(run_one(number))
            number += 1
            await asyncio.sleep(max(0.0, started + number / rate - time.monotonic()))


async def _remember(caller: Caller, tally: Tally, number: int) -> None:
    content = f"Entry {number} of the log: valve {number % 97} of plant {number % 13} was serviced in shift {number % 7}."
    body = {"type": "fact", "content": content, "project": f"p{number % 10}"}

    async def store() -> None:
        status, response = await caller.send("POST", "/v1/brain/remember", body, mark=f"soak-{number}")
        if status not in {200, 201, 202}:
            caller.refuse(status, response)
            return
        memory_id = cast("str", json.loads(response)["id"])
        tally.doubled_ids += tally.contents.setdefault(content, memory_id) != memory_id

    await asyncio.gather(*(store() for _ in range(2 if number % 20 == 0 else 1)))


async def _recall(caller: Caller, number: int) -> None:
    status, response = await caller.send("POST", "/v1/brain/recall", {"query": f"valve {number % 97} serviced", "mode": "hybrid"})
    if status != 200:
        caller.refuse(status, response)


async def _call_tool(caller: Caller, number: int) -> None:
    del number
    body = {"server": "time", "tool": "get_current_time", "arguments": {"timezone": "UTC"}}
    status, response = await caller.send("POST", "/api/v1/mcp/tools/call", body)
    if status != 200:
        caller.refuse(status, response)


async def _claim(caller: Caller, tally: Tally, number: int) -> None:
    if number % 20 == 0:
        phases = [{"name": "only", "tasks": [f"task {index}" for index in range(20)]}]
        status, response = await caller.send(
            "POST", "/v1/plans", {"title": f"plan {number}", "status": "active", "phases": phases}, mark=f"plan-{number}"
        )
        if status != 201:
            caller.refuse(status, response)
    status, response = await caller.send("POST", "/v1/tasks/claim-next", {}, mark=f"claim-{number}")
    if status == 200 and (task := json.loads(response)):
        tally.claims[task["id"]] += 1
        done = {"claim_token": task["claim_token"]}
        status, response = await caller.send("POST", f"/v1/tasks/{task['id']}/complete", done, mark=f"done-{number}")
        if status != 200:
            caller.refuse(status, response)


async def _spend_limits(caller: Caller, tally: Tally, until_s: float) -> None:
    """Spend more requests than a new key has, by several clients at once, and count those that were admitted. Repeat."""
    while time.monotonic() < until_s:
        body = {"name": "limited", "rate_limit_tier": "free", "scopes": ["brain:read"]}
        status, response = await caller.send("POST", "/api/v1/api-keys", body)
        if status != 201:
            caller.refuse(status, response)
            return
        key, admitted = cast("str", json.loads(response)["plaintext_key"]), 0
        numbers = iter(range(_LIMIT_ROUND))

        async def spend(key: str = key, numbers: object = numbers) -> int:
            count = 0
            for _ in cast("range", numbers):
                status, response = await caller.send("GET", "/v1/brain/tags", key=key)
                count += status == 200
                if status not in {200, 429}:
                    caller.refuse(status, response)
            return count

        admitted = sum(await asyncio.gather(*(spend() for _ in range(_LIMIT_CLIENTS))))
        tally.admitted.append(admitted)
        await asyncio.sleep(min(60.0, max(0.0, until_s - time.monotonic())))


async def _kill(running: Running, tally: Tally, every_s: float, until_s: float, chance: random.Random) -> None:
    while every_s and time.monotonic() + every_s < until_s:
        await asyncio.sleep(every_s)
        processes = psutil.Process(running.pid).children()
        if processes:
            os.kill(chance.choice(processes).pid, signal.SIGKILL)
            tally.kills += 1


async def _sample(running: Running, samples: dict[int, list[Sample]], until_s: float) -> None:
    while time.monotonic() < until_s:
        for process in psutil.Process(running.pid).children():
            try:
                now = Sample(time.monotonic(), process.memory_info().rss / 1e6, process.num_fds(), process.num_threads())
            except psutil.Error:
                continue
            samples.setdefault(process.pid, []).append(now)
        await asyncio.sleep(_SAMPLE_INTERVAL_S)


async def _receive(tally: Tally) -> asyncio.Server:
    """Return a server that accepts webhook deliveries and counts each event."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                fields = {name.lower(): value.strip() for name, _, value in (line.partition(b":") for line in head.split(b"\r\n"))}
                await reader.readexactly(int(fields[b"content-length"]))
                tally.deliveries[fields[b"webhook-id"].decode()] += 1
                writer.write(b"HTTP/1.1 204 No Content\r\n\r\n")
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    return await asyncio.start_server(serve, "127.0.0.1", 0)


async def _run(running: Running, options: argparse.Namespace, tally: Tally, samples: dict[int, list[Sample]]) -> None:
    async with await _receive(tally) as receiver:
        port = receiver.sockets[0].getsockname()[1]
        admin = Caller(running, tally, "admin")
        hook = {"url": f"http://127.0.0.1:{port}/", "events": ["memory.stored"], "secret": "soak-test-secret-0123456789", "concurrency": 8}
        status, response = await admin.send("POST", "/api/v1/webhooks", hook)
        if status != 201:
            raise RuntimeError(response)
        until_s = time.monotonic() + options.minutes * 60
        callers = {kind: Caller(running, tally, kind) for kind in _RATES}
        async with asyncio.TaskGroup() as tasks:
            runs: dict[str, Callable[[int], Awaitable[None]]] = {
                "remember": partial(_remember, callers["remember"], tally),
                "recall": partial(_recall, callers["recall"]),
                "tool call": partial(_call_tool, callers["tool call"]),
                "task": partial(_claim, callers["task"], tally),
            }
            for kind, run in runs.items():
                tasks.create_task(_pace(_RATES[kind] * options.rate, until_s, run))
            tasks.create_task(_spend_limits(Caller(running, tally, "limited"), tally, until_s))
            tasks.create_task(_sample(running, samples, until_s))
            tasks.create_task(_kill(running, tally, options.kill_every, until_s, random.Random(options.seed)))
        await _settle(options.database, tally)


async def _settle(database: str, tally: Tally) -> None:
    """Wait until all jobs are done and all deliveries have arrived."""
    deadline = time.monotonic() + _SETTLE_S
    async with await psycopg.AsyncConnection.connect(database, autocommit=True) as connection:
        while time.monotonic() < deadline:
            jobs = await (await connection.execute("SELECT count(*) FROM jobs")).fetchone()
            if jobs == (0,) and len(tally.deliveries) >= len(tally.contents):
                return
            await asyncio.sleep(1)


def _count_records(database: str, tally: Tally) -> dict[str, int]:
    with psycopg.connect(database) as connection:

        def count(statement: str) -> int:
            row = connection.execute(statement.encode()).fetchone()
            return cast("int", row[0]) if row else 0

        stored = [cast("str", row[0]) for row in connection.execute("SELECT content FROM memories WHERE content LIKE 'Entry %'")]
        version = count("SELECT max(id) FROM rookery_vector_versions")
        return {
            "memories": len(stored),
            "memories_doubled": len(stored) - len(set(stored)) + tally.doubled_ids,
            "memories_missing": len(tally.contents.keys() - set(stored)),
            "memories_not_indexed": count("SELECT count(*) FROM memories WHERE indexed_at IS NULL"),
            "vectors_off": abs(count(f"SELECT count(DISTINCT memory_id) FROM rookery_vectors_{version}") - len(stored)),  # noqa: S608 - a number
            "jobs_left": count("SELECT count(*) FROM jobs"),
            "jobs_failed": count("SELECT count(*) FROM jobs WHERE failed_at IS NOT NULL"),
        }


def _compare_quarters(samples: dict[int, list[Sample]], read: Callable[[Sample], float]) -> list[list[float]]:
    """Return for each process the medians of the second and of the last quarter of its samples."""
    result = list[list[float]]()
    for series in samples.values():
        quarter = len(series) // 4
        if quarter >= 3:
            second, last = series[quarter : 2 * quarter], series[-quarter:]
            result.append([round(statistics.median(read(sample) for sample in part), 1) for part in (second, last)])
    return result


def _percentiles(each_ms: list[float]) -> dict[str, float]:
    ordered = sorted(each_ms)
    return {"n": len(ordered), "p50_ms": round(statistics.median(ordered), 1), "p99_ms": round(ordered[int(0.99 * len(ordered))], 1)}


def _soak(folder: Path, options: argparse.Namespace) -> bool:
    tally, samples = Tally(), dict[int, list[Sample]]()
    database = Path(folder / "postgres")
    database.mkdir()
    (folder / "data").mkdir()
    (folder / "data" / "servers.json").write_text(json.dumps(_TIME_SERVER), encoding="utf-8")
    with start_postgres(database) as server, run_valkey(folder, options=("--appendonly", "no")) as valkey:
        options.database = create_database(server, "soak")
        settings = {
            "database_url": options.database,
            "vectors": options.database,
            "counters": valkey.address(),
            "secret_key": _SEAL,
            "workers": str(options.processes),
            "egress_allow": "127.0.0.0/8",
            "min_free_disk_mb": "0",
            "log_level": "warning",
        }
        with run_server(folder / "data", **settings) as running:
            asyncio.run(_run(running, options, tally, samples))
        records = _count_records(options.database, tally)
    log = (folder / "data" / "server.log").read_text(encoding="utf-8", errors="replace").splitlines()
    lines = [json.loads(line) for line in log if line.startswith("{")]
    delivered = {"events": len(tally.deliveries), "missing": len(tally.contents) - len(tally.deliveries)}
    delivered["doubled"] = tally.deliveries.total() - len(tally.deliveries)
    figures = {
        "processes": options.processes,
        "minutes": options.minutes,
        "kills": tally.kills,
        "requests": dict(tally.requests),
        "retried_connections": tally.retried,
        "repeated_after_503": tally.repeated,
        "refused": dict(tally.refused.most_common(10)),
        "records": records,
        "admitted_per_limited_key": tally.admitted,
        "tasks_claimed": len(tally.claims),
        "tasks_claimed_twice": sum(count > 1 for count in tally.claims.values()),
        "deliveries": delivered,
        "rss_mb_second_and_last_quarter": _compare_quarters(samples, lambda sample: sample.rss_mb),
        "descriptors_second_and_last_quarter": _compare_quarters(samples, lambda sample: sample.descriptors),
        "threads_second_and_last_quarter": _compare_quarters(samples, lambda sample: sample.threads),
        "latency": {kind: _percentiles(each) for kind, each in tally.latencies_ms.items()},
        "log": dict(Counter(f"{line['level']} {line['event']}" for line in lines).most_common(20)),
        "load_average": os.getloadavg(),
    }
    print(json.dumps(figures, indent=1))
    wrong = sum(count for name, count in records.items() if name != "memories")
    wrong += sum(count > 1 for count in tally.claims.values())
    if tally.kills == 0:  # a killed process may have counted a request and not answered it, or sent a delivery and not recorded it
        wrong += sum(admitted != _LIMIT for admitted in tally.admitted) + delivered["doubled"]
    wrong += max(0, delivered["missing"])
    return wrong == 0


def main() -> None:
    """Run, count and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.soak", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument("--processes", type=int, default=4)
    parser.add_argument("--rate", type=float, default=1.0, help="a factor on the requests per second")
    parser.add_argument("--kill-every", type=float, default=0, help="seconds between kills of a server process; 0: none")
    parser.add_argument("--seed", type=int, default=20)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="rookery-soak-") as name:
        Path(name).chmod(0o755)  # PostgreSQL does not run as root, and its user must reach its folder
        is_right = _soak(Path(name), options)
    sys.exit(0 if is_right else 1)


if __name__ == "__main__":
    main()
