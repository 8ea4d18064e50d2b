"""
A quiet workspace beside the load of another one: `python -m benchmarks.neighbours`.

One server of four processes on SQLite. The quiet workspace gets a memory, remembers, recalls, calls a tool, and remembers until the
memory is indexed. It does so alone, and while clients in a process of their own load another workspace:

- recalls: 16 clients recall with top_k 50;
- tools: 64 clients call a tool;
- scoring: 8 clients score batches of 20 texts of 3,000 characters;
- batches: 4 clients remember batches of 100;
- backlog: 9,100 memories of the other workspace wait for their index;
- campaigns: 4 campaigns are sent by webhook, beside such a backlog.

Each load is measured between two times alone, because other work of the machine changes the figures. It prints the table in milliseconds,
p50 and p99, and the ratios of the medians to those alone. `--against FOLDER` measures the source tree of another folder in the same way.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from multiprocessing.synchronize import Event
from pathlib import Path

from benchmarks.load import Connection, Timings
from benchmarks.notifications import ReceiverProcess, run_receiver
from benchmarks.servers import Running, run_server
from benchmarks.texts import questions, texts

LOADS = ("recalls", "tools", "scoring", "batches", "backlog", "campaigns")
_KINDS = ("get", "remember", "recall", "tool", "indexed")
_WORKERS = 4
_BATCH = 100
_BACKLOG = 9_100
_CAMPAIGNS = 4
_SUBSCRIBERS = 2_000
_INDEX_DEADLINE_S = 30.0
_PAUSE_S = 0.1
_RAMP_S = 1.5
_SERVER_ERROR = 500


@dataclass(slots=True)
class Quiet:
    """The times of the quiet workspace in milliseconds, by kind."""

    times_ms: dict[str, list[float]] = field(default_factory=lambda: {kind: [] for kind in _KINDS})

    def timings(self, kind: str) -> Timings:
        """Return the times of *kind*."""
        return Timings(each_ms=self.times_ms[kind], took_s=1.0)

    def format(self) -> str:
        """Return the cells of a row of the table."""
        cells = (f"{self.timings(kind).p50:.0f}/{self.timings(kind).percentile(0.99):.0f}" for kind in _KINDS)
        return " | ".join([*cells, str(len(self.times_ms["get"]))])


async def _measure_quiet(running: Running, key: str, seconds: float, numbers: itertools.count[int]) -> Quiet:
    """Run the requests of the quiet workspace for *seconds*, each kind on a connection of its own."""
    quiet, connections = Quiet(), {kind: Connection(running.url, key) for kind in _KINDS}
    contents, asked = texts(next(numbers)), questions(next(numbers))

    async def call(kind: str, method: str, path: str, body: object = None) -> dict[str, object]:
        started = time.perf_counter()
        status, response = await connections[kind].send(method, path, body)
        quiet.times_ms[kind].append((time.perf_counter() - started) * 1000)
        if status not in {200, 201}:
            raise RuntimeError(f"{method} {path}: {status} {response[:300]!r}")
        return dict(json.loads(response))

    until = time.perf_counter() + seconds
    try:
        while time.perf_counter() < until:
            memory = await call("remember", "POST", "/v1/brain/remember", {"content": next(contents), "type": "decision"})
            await call("get", "GET", f"/v1/brain/memories/{memory['id']}")
            await call("recall", "POST", "/v1/brain/recall", {"query": next(asked), "top_k": 5})
            await call("tool", "POST", "/api/v1/mcp/tools/call", {"server": "brain", "tool": "get", "arguments": {"id": memory["id"]}})
            await _time_index(connections["indexed"], next(contents), quiet)
            await asyncio.sleep(_PAUSE_S)
    finally:
        await asyncio.gather(*(connection.close() for connection in connections.values()))
    return quiet


async def _time_index(connection: Connection, content: str, quiet: Quiet) -> None:
    """Time a memory from the request that stores it until it is indexed."""
    started = time.perf_counter()
    _, response = await connection.send("POST", "/v1/brain/remember", {"content": content, "type": "decision"})
    memory = json.loads(response)
    while not memory["indexed"] and time.perf_counter() < started + _INDEX_DEADLINE_S:
        await asyncio.sleep(0.005)
        _, response = await connection.send("GET", f"/v1/brain/memories/{memory['id']}")
        memory = json.loads(response)
    quiet.times_ms["indexed"].append((time.perf_counter() - started) * 1000)


def _run_load(name: str, url: str, key: str, receiver_url: str, stop: Event) -> None:
    asyncio.run(_load(name, url, key, receiver_url, stop))


Request = tuple[str, str, dict[str, object]]


def _choose_requests(name: str) -> tuple[Callable[[], Request], int]:
    """Return a function that makes a request of a load, and the number of its clients."""
    contents, asked = texts(os.getpid()), questions(os.getpid())

    def batch() -> Request:
        memories = [{"content": content, "type": "observation"} for content in itertools.islice(contents, _BATCH)]
        return "POST", "/v1/brain/remember/batch", {"memories": memories}

    def recall() -> Request:
        return "POST", "/v1/brain/recall", {"query": next(asked), "top_k": 50}

    def call_tool() -> Request:
        return "POST", "/api/v1/mcp/tools/call", {"server": "brain", "tool": "tags", "arguments": {}}

    def score() -> Request:
        long_texts = [{"text": " ".join(itertools.islice(contents, 40))[:3000]} for _ in range(20)]
        return "POST", "/v1/score/batch", {"items": long_texts}

    return {"recalls": (recall, 16), "tools": (call_tool, 64), "scoring": (score, 8)}.get(name, (batch, 4))


async def _load(name: str, url: str, key: str, receiver_url: str, stop: Event) -> None:
    """Load the workspace of *key* until *stop* is set."""
    make, clients = _choose_requests(name)
    if name in {"backlog", "campaigns"}:
        connection = Connection(url, key)
        for _ in range(_BACKLOG // _BATCH):
            await connection.send(*make())
        if name == "campaigns":
            await _send_campaigns(connection, receiver_url)
        await asyncio.to_thread(stop.wait)
        return

    async def client() -> None:
        connection = Connection(url, key)
        while not stop.is_set():
            status, response = await connection.send(*make())
            if status >= _SERVER_ERROR:
                raise RuntimeError(f"{status} {response[:300]!r}")
        await connection.close()

    await asyncio.gather(*(client() for _ in range(clients)))


async def _send_campaigns(connection: Connection, receiver_url: str) -> None:
    for number in range(_SUBSCRIBERS):
        subscriber = {"external_id": f"u{number}", "channels": [{"type": "webhook", "url": f"{receiver_url}/{number}"}]}
        await connection.send("POST", "/api/agent/notify/subscribers", subscriber)
    for number in range(_CAMPAIGNS):
        body = {"name": f"c{number}", "title": "Hello", "body": "Text", "audience": {"all": True}}
        _, response = await connection.send("POST", "/api/agent/notify/campaigns", body)
        await connection.send("POST", f"/api/agent/notify/campaigns/{json.loads(response)['id']}/send")


@contextmanager
def _loading(name: str, running: Running, receiver: ReceiverProcess) -> Generator[None]:
    context = multiprocessing.get_context("spawn")
    stop = context.Event()
    process = context.Process(target=_run_load, args=(name, running.url, running.api_key, receiver.url, stop))
    process.start()
    try:
        if name in {"backlog", "campaigns"}:
            asyncio.run(_wait_for_pending(running, lambda pending: pending >= _BACKLOG // 3))
        time.sleep(_RAMP_S)
        yield
    finally:
        stop.set()
        process.join(60)
        if process.is_alive():
            process.kill()


async def _wait_for_pending(running: Running, is_reached: Callable[[int], bool]) -> None:
    """Wait until the number of memories that wait for their index is one that *is_reached* accepts."""
    connection = Connection(running.url, running.api_key)
    while True:
        if is_reached(await _count_pending(connection)):
            break
        await asyncio.sleep(0.2)
    await connection.close()


async def _count_pending(connection: Connection) -> int:
    status, response = await connection.send("GET", "/v1/brain/memories?state=pending_embed&per_page=1")
    if status != 200:
        raise RuntimeError(response)
    return int(json.loads(response)["meta"]["total"])


def _create_quiet_key(folder: Path) -> str:
    base = [sys.executable, "-m", "rookery", "--data-dir", str(folder)]
    subprocess.run([*base, "workspace", "create", "quiet"], check=True, capture_output=True)
    command = [*base, "keys", "create", "--name", "quiet", "--scope", "*", "--tier", "enterprise", "--workspace", "quiet", "--json"]
    return str(json.loads(subprocess.run(command, check=True, capture_output=True).stdout)["plaintext_key"])


def _measure(running: Running, key: str, loads: Sequence[str], seconds: float, receiver: ReceiverProcess) -> None:
    numbers = itertools.count(7)

    def measure() -> Quiet:
        return asyncio.run(_measure_quiet(running, key, seconds, numbers))

    measure()  # warms up the processes
    print(f"| Beside | {' | '.join(_KINDS)} | n | times the medians alone |")
    print("|---|---|---|---|---|---|---|---|")
    before = measure()
    print(f"| nobody | {before.format()} | |", flush=True)
    for name in loads:
        with _loading(name, running, receiver):
            beside = measure()
        asyncio.run(_wait_for_pending(running, lambda pending: not pending))
        after = measure()
        ratios = ", ".join(
            f"{kind} {beside.timings(kind).p50 / ((before.timings(kind).p50 + after.timings(kind).p50) / 2):.1f}" for kind in _KINDS
        )
        print(f"| {name} | {beside.format()} | {ratios} |\n| nobody | {after.format()} | |", flush=True)
        before = after


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.neighbours", description=__doc__)
    parser.add_argument("--loads", nargs="+", choices=LOADS, default=LOADS)
    parser.add_argument("--seconds", type=float, default=15.0, help="duration of each measurement")
    parser.add_argument("--against", type=Path, action="append", default=[], help="the folder of another source tree")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="rookery-neighbours-") as name, run_receiver() as receiver:
        for number, tree in enumerate([None, *options.against]):
            folder = Path(name) / str(number)
            settings = {"workers": str(_WORKERS), "egress_allow": "127.0.0.0/8"}
            print(f"\n{'This tree' if tree is None else tree}, load of the machine {os.getloadavg()[0]:.1f}\n", flush=True)
            with run_server(folder, None if tree is None else tree.resolve(), **settings) as running:
                _measure(running, _create_quiet_key(folder), options.loads, options.seconds, receiver)


if __name__ == "__main__":
    main()
