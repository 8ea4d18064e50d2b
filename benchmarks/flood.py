"""
Cost of a flood of wrong keys for a caller with a valid one: `python -m benchmarks.flood`.

Server, flood and caller are separate processes. The flood sends 5,000 requests a second over 100 connections, one every 200 µs, without
waiting for responses. A third of the keys is malformed, a third is well-formed and unknown (API and agent keys in turn), a third begins
like the caller's and ends differently. The caller requests the state of its rate limit 200 times a second, which is little more than
a key check. Idle and flooded rounds alternate; the figures cover all responses of one kind.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import socket
import string
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from random import Random
from urllib.parse import urlsplit

from benchmarks.servers import Running, run_server

RATE = 5000
_CONNECTIONS = 100
_MAX_PENDING = 8
_CALLS = 200
_RAMP_S = 1.0
_ALPHANUMERIC = string.ascii_letters + string.digits
KINDS = ("malformed", "unknown", "wrong")


def main() -> None:
    """Measure and print the figures."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.flood", description=__doc__)
    parser.add_argument("--rounds", type=int, default=6, help="number of idle rounds and of flooded rounds")
    parser.add_argument("--seconds", type=float, default=10.0, help="duration of a round")
    parser.add_argument("--rate", type=int, default=RATE, help="wrong keys per second")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS), help="kinds of wrong keys")
    parser.add_argument("--calls", type=int, default=_CALLS, help="requests per second with the valid key; 0 sends them without pauses")
    parser.add_argument("--flood", metavar="URL", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.flood:
        print(json.dumps(_flood(options.flood, os.environ["FLOOD_KEY"], options.kinds, rate=options.rate, seconds=options.seconds)))
        return
    with tempfile.TemporaryDirectory(prefix="rookery-flood-") as folder, run_server(Path(folder)) as running:
        arguments = {"rounds": options.rounds, "seconds": options.seconds, "rate": options.rate, "calls": options.calls}
        figures = measure(running, kinds=options.kinds, **arguments)
    print(json.dumps(figures, indent=1))


def measure(running: Running, *, rounds: int, seconds: float, rate: int, kinds: list[str], calls: int = _CALLS) -> dict[str, object]:
    """Run the rounds and return the figures, with the load of the machine before them."""
    load, idle, flooded = os.getloadavg()[0], list[float](), list[float]()
    floods, busy = list[dict[str, float]](), list[float]()
    _call(running, 1.0, calls)  # warms up the caches
    for _ in range(rounds):
        idle += _call(running, seconds, calls)
        command = [sys.executable, "-m", "benchmarks.flood", "--flood", running.url, "--rate", str(rate)]
        command += ["--seconds", str(seconds + 2 * _RAMP_S), "--kinds", *kinds]
        environment = os.environ | {"FLOOD_KEY": running.api_key}
        with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, text=True) as flood:
            time.sleep(_RAMP_S)
            before, started = _cpu_s(running.pid), time.perf_counter()
            flooded += _call(running, seconds, calls)
            busy.append((_cpu_s(running.pid) - before) / (time.perf_counter() - started))
            out, _ = flood.communicate(timeout=seconds + 30)
        assert flood.returncode == 0
        floods.append(json.loads(out))
    return {
        "load_before": round(load, 2),
        "wrong_keys_per_s": [flood["answered_per_s"] for flood in floods],
        "wrong_keys_refused_with": floods[-1],
        "server_cpu": [round(busy_share, 2) for busy_share in busy],
        "idle": _percentiles(idle),
        "flooded": _percentiles(flooded),
        "p99_ratio": round(_percentile(flooded, 0.99) / _percentile(idle, 0.99), 2),
    }


def _call(running: Running, seconds: float, calls: int) -> list[float]:
    """Send *calls* requests a second for *seconds*, and return the milliseconds of each response, which must be 200."""
    address, times_ms = urlsplit(running.url), list[float]()
    request = f"GET /api/v1/rate-limit HTTP/1.1\r\nHost: {address.netloc}\r\nAuthorization: Bearer {running.api_key}\r\n\r\n".encode()
    with socket.create_connection((address.hostname, address.port), timeout=30) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        started = time.perf_counter()
        while (now := time.perf_counter()) < started + seconds:
            time.sleep(max(0.0, started + len(times_ms) / calls - now) if calls else 0.0)
            sent = time.perf_counter()
            connection.sendall(request)
            response = b""
            while not response.endswith(b"}"):
                response += connection.recv(65536)
            times_ms.append((time.perf_counter() - sent) * 1000)
            assert response.startswith(b"HTTP/1.1 200 "), response
    return times_ms


def _flood(url: str, key: str, kinds: list[str], *, rate: int, seconds: float) -> dict[str, float]:
    """Send wrong keys at a steady rate and count the responses by status. Skip requests that a slow server would queue."""
    address, turn, statuses = urlsplit(url), 0, Counter[str]()
    connections = [socket.create_connection((address.hostname, address.port)) for _ in range(_CONNECTIONS)]
    pending, poller = {connection.fileno(): 0 for connection in connections}, select.epoll()
    by_number = {connection.fileno(): connection for connection in connections}
    for connection in connections:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.setblocking(False)
        poller.register(connection, select.EPOLLIN)
    head = f"GET /v1/brain/tags HTTP/1.1\r\nHost: {address.netloc}\r\nAuthorization: Bearer ".encode()
    keys, started = _wrong_keys(key, kinds), time.perf_counter()
    while (now := time.perf_counter()) < started + seconds:
        while started + turn / rate <= now:
            connection, turn = connections[turn % _CONNECTIONS], turn + 1
            if pending[connection.fileno()] < _MAX_PENDING:
                connection.sendall(head + next(keys) + b"\r\n\r\n")
                pending[connection.fileno()] += 1
        for number, _ in poller.poll(0):
            data = by_number[number].recv(1 << 18)
            assert data, "the server closed a connection"
            pieces = data.split(b"HTTP/1.1 ")[1:]
            statuses.update(piece[:3].decode() for piece in pieces)
            pending[number] -= len(pieces)
        time.sleep(0.0001)
    return {"answered_per_s": round(statuses.total() / (time.perf_counter() - started)), **statuses}


def _wrong_keys(key: str, kinds: list[str]) -> Iterator[bytes]:
    """Yield invalid keys, each different."""
    chance = Random()
    for number in count():
        text = "".join(chance.choices(_ALPHANUMERIC, k=32))
        match kinds[number % len(kinds)]:
            case "malformed":
                yield f"sk_live_{text}-".encode()
            case "unknown":
                yield f"{'ak' if number & 1 else 'sk_live'}_{text}".encode()
            case _:
                yield f"{key[:-24]}{text[:24]}".encode()


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _percentile(times_ms: list[float], share: float) -> float:
    return sorted(times_ms)[int(share * len(times_ms))]


def _percentiles(times_ms: list[float]) -> dict[str, float]:
    return {f"p{share:g}_ms": round(_percentile(times_ms, share / 100), 2) for share in (50, 90, 99, 99.9)} | {"n": len(times_ms)}


if __name__ == "__main__":
    main()
