"""
Deliveries per second, and a check that all arrive: `python -m benchmarks.webhooks`.

A server in its own process, a receiver on 127.0.0.1 in another, which responds at once and records each request:

- alone: the events of 10,000 memories to one endpoint, recorded while it is disabled and then sent by `resend-failed`,
  timed from the first arrival to the last;
- spread: the same to four endpoints, 2,500 events each;
- beside: deliveries while eight clients store memories as fast as they can, and the rate of these with and without a subscriber.

Each event must arrive with a valid signature. The server's CPU time per delivery is comparable on busy machines too.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import hmac
import json
import multiprocessing
import os
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection as Pipe
from pathlib import Path

from benchmarks.load import Connection, Timings, measure
from benchmarks.servers import Running, run_server

_SECRET = "a-secret-for-a-benchmark"  # noqa: S105 - made up
_WRITERS = 8
_WITHIN_S = 300.0


def main() -> None:
    """Measure and print the figures."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.webhooks", description=__doc__)
    parser.add_argument("--events", type=int, default=10_000)
    parser.add_argument("--concurrency", type=int, default=16, help="concurrent deliveries of each endpoint")
    options = parser.parse_args()
    figures: dict[str, object] = {"load_before": os.getloadavg()[0]}
    with tempfile.TemporaryDirectory(prefix="rookery-webhooks-") as name, _receiver() as receiver:
        for case, endpoints in (("alone", 1), ("spread", 4)):
            with run_server(Path(name) / case, egress_allow="127.0.0.0/8") as running:
                figures[case] = asyncio.run(
                    _measure_throughput(running, receiver, options.events // endpoints, endpoints, options.concurrency)
                )
        with run_server(Path(name) / "beside", egress_allow="127.0.0.0/8") as running:
            figures["beside"] = asyncio.run(_measure_remember(running, receiver, options.events // 4, options.concurrency))
    print(json.dumps(figures, indent=1))


async def _measure_throughput(
    running: Running, receiver: ReceiverProcess, events: int, endpoints: int, concurrency: int
) -> dict[str, object]:
    """Queue the deliveries of *events* memories to each of *endpoints*, release them, and time their arrival."""
    admin = Connection(running.url, running.api_key)
    hooks = [await _endpoint(admin, f"{receiver.url}/{number}", concurrency, enabled=False) for number in range(endpoints)]
    await _remember(running, events)
    for hook in hooks:
        await _ok(admin, "PATCH", f"/api/v1/webhooks/{hook}", {"enabled": True})
    receiver.begin()
    cpu = _cpu_s(running.pid)
    for hook in hooks:
        await _ok(admin, "POST", f"/api/v1/webhooks/{hook}/resend-failed", {})
    came = await asyncio.to_thread(receiver.wait_for, events * endpoints)
    for hook in hooks:
        await _all_delivered(admin, hook, events)
    await admin.close()
    return {**came, "server_cpu_ms_each": round((_cpu_s(running.pid) - cpu) / events / endpoints * 1000, 3)}


async def _measure_remember(running: Running, receiver: ReceiverProcess, events: int, concurrency: int) -> dict[str, object]:
    """Time `remember` without and with a subscriber; all events sent meanwhile must arrive."""
    admin = Connection(running.url, running.api_key)
    before = await _remember(running, events)
    hook = await _endpoint(admin, receiver.url, concurrency, enabled=True)
    receiver.begin()
    remembered = await _remember(running, events, "second")
    came = await asyncio.to_thread(receiver.wait_for, events)
    await _all_delivered(admin, hook, events)
    await admin.close()
    return {"remember_alone": before.as_json(), "remember_told": remembered.as_json(), "deliveries": came}


async def _endpoint(admin: Connection, url: str, concurrency: int, *, enabled: bool) -> str:
    body = {"url": url, "events": ["memory.stored"], "secret": _SECRET, "concurrency": concurrency, "enabled": enabled}
    return str(json.loads(await _ok(admin, "POST", "/api/v1/webhooks", body))["id"])


async def _remember(running: Running, count: int, round_: str = "first") -> Timings:
    def request(number: int) -> tuple[str, str, dict[str, object]]:
        return "POST", "/v1/brain/remember", {"type": "fact", "content": f"In the {round_} round fact {number} reaches every subscriber."}

    return await measure(running.url, running.api_key, request, count=count, clients=_WRITERS, expect=201, warm=0)


async def _all_delivered(admin: Connection, hook: str, count: int) -> None:
    """Wait until the delivery log has all as delivered at the first attempt."""
    deadline = time.monotonic() + _WITHIN_S
    while True:
        page = json.loads(await _ok(admin, "GET", f"/api/v1/webhooks/{hook}/deliveries?status=delivered&per_page=1"))
        if page["meta"]["total"] >= count:
            return
        if time.monotonic() > deadline:
            raise RuntimeError(f"{page['meta']['total']} of {count} are delivered")
        await asyncio.sleep(0.05)


async def _ok(connection: Connection, method: str, path: str, body: object = None) -> bytes:
    status, response = await connection.send(method, path, body)
    if status >= 300:
        raise RuntimeError(f"{method} {path}: {status} {response[:300]!r}")
    return response


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class ReceiverProcess:
    """The receiver in a separate process."""

    url: str
    pipe: Pipe

    def begin(self) -> None:
        """Clear the received events."""
        self.pipe.send(("begin", 0))
        self.pipe.recv()

    def wait_for(self, count: int) -> dict[str, object]:
        """Wait for *count* different deliveries and return them; every signature must be valid."""
        self.pipe.send(("until", count))
        if not self.pipe.poll(_WITHIN_S):
            raise RuntimeError("not all arrived")
        response: dict[str, object] = self.pipe.recv()
        return response


@contextmanager
def _receiver() -> Generator[ReceiverProcess]:
    parent_pipe, child_pipe = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=_serve, args=(child_pipe,), daemon=True)
    process.start()
    try:
        yield ReceiverProcess(f"http://127.0.0.1:{parent_pipe.recv()}/hook", parent_pipe)
    finally:
        process.terminate()
        process.join(10)


@dataclass(slots=True)
class _ReceivedEvents:
    """The events received since the start."""

    ids: set[bytes]
    deliveries: int = 0
    wrong: int = 0
    first_s: float = 0.0
    last_s: float = 0.0

    def note(self, head: bytes, body: bytes) -> None:
        """Record a delivery."""
        now = time.perf_counter()
        self.first_s = self.first_s or now
        self.last_s = now
        self.deliveries += 1
        path = head.split(b" ", 2)[1]  # all endpoints receive an event with the same id
        self.ids.add(path + _value(head, b"webhook-id"))
        right = "sha256=" + hmac.digest(_SECRET.encode(), body, hashlib.sha256).hex()
        self.wrong += not hmac.compare_digest(right.encode(), _value(head, b"x-webhook-signature"))

    def summary(self) -> dict[str, object]:
        """Return the figures; raise if a signature was invalid."""
        if self.wrong:
            raise RuntimeError(f"{self.wrong} signatures were wrong")
        took_s = self.last_s - self.first_s
        return {
            "events": len(self.ids),
            "twice": self.deliveries - len(self.ids),
            "took_s": round(took_s, 2),
            "per_s": round(self.deliveries / took_s, 1),
        }


def _value(head: bytes, name: bytes) -> bytes:
    start = head.lower().index(b"\r\n" + name + b":") + len(name) + 3
    return head[start : head.index(b"\r\n", start)].strip()


def _serve(pipe: Pipe) -> None:
    asyncio.run(_serving(pipe))


async def _serving(pipe: Pipe) -> None:
    came = [_ReceivedEvents(ids=set())]

    class Serving(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            self.transport, self.read = transport, b""

        def data_received(self, data: bytes) -> None:
            self.read += data
            while (end := self.read.find(b"\r\n\r\n")) >= 0:
                head = self.read[: end + 2]
                length = int(_value(head, b"content-length"))
                if len(self.read) < end + 4 + length:
                    return
                body, self.read = self.read[end + 4 : end + 4 + length], self.read[end + 4 + length :]
                came[0].note(head, body)
                if isinstance(self.transport, asyncio.WriteTransport):
                    self.transport.write(b"HTTP/1.1 204 No Content\r\n\r\n")

    listening = await asyncio.get_running_loop().create_server(Serving, "127.0.0.1", 0)
    pipe.send(listening.sockets[0].getsockname()[1])
    while True:
        message, count = await asyncio.to_thread(pipe.recv)
        if message == "begin":
            came[0] = _ReceivedEvents(ids=set())
            pipe.send(None)
        else:
            while len(came[0].ids) < count:  # noqa: ASYNC110 - an event for each would be in what is measured
                await asyncio.sleep(0.02)
            pipe.send(came[0].summary())


if __name__ == "__main__":
    main()
