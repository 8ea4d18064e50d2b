"""
Notifications per second, and what crashes do to a campaign: `python -m benchmarks.notifications`.

A server in its own process, and a receiver on 127.0.0.1 in another, which responds at once and counts each message:

- throughput: a campaign to 5,000 subscribers over webhook, then one over e-mail and one over Web Push, from the request that sends it to
  the end of the campaign. The SMTP server is aiosmtpd in a process of its own. The push service accepts every message without a look at
  it; each subscription has keys of its own;
- import: 100,000 lines with 3 bad ones, over HTTP;
- kills: a campaign to 5,000 subscribers while the server is killed by `kill -9` and started again, 20 times. No message may arrive twice,
  and each delivery must be sent or unknown.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
import multiprocessing
import os
import random
import tempfile
import time
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing.connection import Connection as Pipe
from pathlib import Path
from typing import Any

import httpx2
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from benchmarks.mail_receiver import MailReceiver, run_mail_receiver
from benchmarks.servers import Running, run_server

_WITHIN_S = 300.0
_KILL_INTERVAL_S = (0.3, 0.9)


def main() -> None:
    """Measure and print the figures."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.notifications", description=__doc__)
    parser.add_argument("--subscribers", type=int, default=5_000)
    parser.add_argument("--lines", type=int, default=100_000)
    parser.add_argument("--kills", type=int, default=20)
    options = parser.parse_args()
    figures: dict[str, object] = {"load_before": os.getloadavg()[0]}
    with tempfile.TemporaryDirectory(prefix="rookery-notifications-") as name, run_receiver() as receiver:
        with run_server(Path(name) / "throughput", egress_allow="127.0.0.0/8") as running:
            figures["throughput"] = _measure_throughput(running, receiver, _lines(receiver, options.subscribers))
        with run_mail_receiver() as mails, run_server(Path(name) / "mail", smtp=mails.address) as running:
            figures["email"] = _measure_throughput(running, mails, _mail_lines(options.subscribers))
        with run_server(Path(name) / "push", egress_allow="127.0.0.0/8") as running:
            figures["webpush"] = _measure_throughput(running, receiver, _push_lines(receiver, options.subscribers))
        with run_server(Path(name) / "import", egress_allow="127.0.0.0/8") as running:
            figures["import"] = _measure_import(running, options.lines)
        figures["kills"] = _measure_kills(Path(name) / "kills", receiver, options.subscribers, options.kills)
    print(json.dumps(figures, indent=1))


def _measure_throughput(running: Running, receiver: ReceiverProcess | MailReceiver, lines: list[str]) -> dict[str, object]:
    """Send a campaign to the subscribers in *lines* and time it to its end."""
    count = len(lines)
    _import(running, lines)
    campaign = _create(running)
    receiver.read()
    started = time.perf_counter()
    _call(running, "POST", f"/api/agent/notify/campaigns/{campaign}/send")
    view = _wait(running, campaign)
    took_s = time.perf_counter() - started
    arrivals = receiver.read()
    if len(arrivals) != count or max(arrivals.values()) != 1:
        raise RuntimeError(f"{len(arrivals)} of {count} arrived, at most {max(arrivals.values())} times")
    return {"deliveries": count, "took_s": round(took_s, 2), "per_s": round(count / took_s, 1), "states": _states(view)}


def _measure_import(running: Running, count: int) -> dict[str, object]:
    """Import lines of which three are bad."""
    lines = [json.dumps({"external_id": f"user-{number}", "tags": ["all"]}) for number in range(count)]
    for place in (7, count // 2, count - 1):
        lines[place] = '{"external_id": ""}'
    started = time.perf_counter()
    report = _import(running, lines)
    took_s = time.perf_counter() - started
    return {"lines": count, "took_s": round(took_s, 2), "created": report["created"], "failed": report["failed"]}


def _measure_kills(folder: Path, receiver: ReceiverProcess, count: int, kills: int) -> dict[str, object]:
    """Kill the server repeatedly in the middle of a campaign."""
    receiver.read()
    campaign, done_kills, view = "", 0, dict[str, Any]()
    pause = random.Random(4)
    for number in range(kills + 1):
        with run_server(folder, egress_allow="127.0.0.0/8") as running:
            if not campaign:
                _import(running, _lines(receiver, count))
                campaign = _create(running, rate_per_second=count / 12)
                _call(running, "POST", f"/api/agent/notify/campaigns/{campaign}/send")
            if number == kills:
                view = _wait(running, campaign)
                break
            time.sleep(pause.uniform(*_KILL_INTERVAL_S))
            done_kills += _call(running, "GET", f"/api/agent/notify/campaigns/{campaign}")["status"] == "sending"
            os.kill(running.pid, 9)
    arrivals, states = receiver.read(), _states(view)
    return {
        "kills": kills,
        "kills_while_sending": done_kills,
        "deliveries": count,
        "states": states,
        "arrived": len(arrivals),
        "arrived_twice": sum(times > 1 for times in arrivals.values()),
        "accounted_for": sum(states.values()) == count,
    }


def _lines(receiver: ReceiverProcess, count: int) -> list[str]:
    return [
        json.dumps({"external_id": f"u{number}", "channels": [{"type": "webhook", "url": f"{receiver.url}/{number}"}]})
        for number in range(count)
    ]


def _mail_lines(count: int) -> list[str]:
    return [
        json.dumps({"external_id": f"u{number}", "channels": [{"type": "email", "address": f"u{number}@example.org"}]})
        for number in range(count)
    ]


def _push_lines(receiver: ReceiverProcess, count: int) -> list[str]:
    return [
        json.dumps({"external_id": f"u{number}", "channels": [_make_subscription(f"{receiver.url}/push/{number}")]})
        for number in range(count)
    ]


def _make_subscription(endpoint: str) -> dict[str, object]:
    """Return a subscription as a browser makes it, whose private key is thrown away."""
    key = ec.generate_private_key(ec.SECP256R1()).public_key()
    point = key.public_bytes(serialization.Encoding.X962, serialization.PublicFormat.UncompressedPoint)
    keys = {"p256dh": _encode(point), "auth": _encode(os.urandom(16))}
    return {"type": "webpush", "endpoint": endpoint, "keys": keys}


def _encode(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _import(running: Running, lines: list[str]) -> dict[str, Any]:
    headers = {"Authorization": f"Bearer {running.api_key}", "Content-Type": "application/x-ndjson"}
    url = f"{running.url}/api/agent/notify/subscribers/import"
    response = httpx2.post(url, content="\n".join(lines).encode(), headers=headers, timeout=_WITHIN_S)
    response.raise_for_status()
    return dict(response.json())


def _create(running: Running, **fields: object) -> str:
    body = {"name": "a", "title": "Hello {{ external_id }}", "body": "Text", "audience": {"all": True}, **fields}
    return str(_call(running, "POST", "/api/agent/notify/campaigns", body)["id"])


def _call(running: Running, method: str, path: str, body: object = None) -> dict[str, Any]:
    headers = {"Authorization": f"Bearer {running.api_key}"}
    response = httpx2.request(method, running.url + path, json=body, headers=headers, timeout=_WITHIN_S)
    response.raise_for_status()
    return dict(response.json())


def _wait(running: Running, campaign: str) -> dict[str, Any]:
    deadline = time.monotonic() + _WITHIN_S
    while (view := _call(running, "GET", f"/api/agent/notify/campaigns/{campaign}"))["status"] == "sending":
        if time.monotonic() > deadline:
            raise RuntimeError(f"not finished: {view['statistics']}")
        time.sleep(0.05)
    return view


def _states(view: dict[str, Any]) -> dict[str, int]:
    return {name: count for name, count in view["statistics"].items() if name not in {"total", "by_channel"} and count}


@dataclass(frozen=True, slots=True)
class ReceiverProcess:
    """The receiver in a separate process."""

    url: str
    pipe: Pipe

    def read(self) -> Counter[str]:
        """Return the number of messages by path since the last call."""
        self.pipe.send("read")
        if not self.pipe.poll(_WITHIN_S):
            raise RuntimeError("the receiver does not answer")
        return Counter(self.pipe.recv())


@contextmanager
def run_receiver() -> Generator[ReceiverProcess]:
    """Run a receiver until the block ends."""
    parent_pipe, child_pipe = multiprocessing.Pipe()
    process = multiprocessing.get_context("spawn").Process(target=_serve, args=(child_pipe,), daemon=True)
    process.start()
    try:
        yield ReceiverProcess(f"http://127.0.0.1:{parent_pipe.recv()}", parent_pipe)
    finally:
        process.terminate()
        process.join(10)


def _serve(pipe: Pipe) -> None:
    asyncio.run(_serving(pipe))


async def _serving(pipe: Pipe) -> None:
    paths = list[str]()

    class Serving(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            self.transport, self.read = transport, b""

        def data_received(self, data: bytes) -> None:
            self.read += data
            while (end := self.read.find(b"\r\n\r\n")) >= 0:
                head = self.read[:end].lower()
                start = head.index(b"content-length:") + len(b"content-length:")
                length = int(head[start:].split(b"\r\n", 1)[0])
                if len(self.read) < end + 4 + length:
                    return
                paths.append(self.read.split(b" ", 2)[1].decode())
                self.read = self.read[end + 4 + length :]
                if isinstance(self.transport, asyncio.WriteTransport):
                    self.transport.write(b"HTTP/1.1 204 No Content\r\n\r\n")

    listening = await asyncio.get_running_loop().create_server(Serving, "127.0.0.1", 0, backlog=1024)
    pipe.send(listening.sockets[0].getsockname()[1])
    while True:
        await asyncio.to_thread(pipe.recv)
        received, paths[:] = list(paths), []
        pipe.send(received)


if __name__ == "__main__":
    main()
