"""
Cost of a flood of wrong keys for a caller with a valid one: `python -m benchmarks.flood`.

A server, a flood and a caller, a process each. The flood sends 5,000 requests a second over 100 connections, evenly: one every
200 µs, never waiting for answers. A third of the keys is malformed, a third is well-formed and unknown (API and agent
keys in turn), a third begins like the caller's and ends otherwise. The caller asks 200 times a second for the state of its
rate limit, which is a key check and little else. Idle and flooded rounds alternate; the figures are over all answers of a kind.
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
_MAX_WAITING = 8
_CALLS = 200
_RAMP_S = 1.0
_ALPHANUMERIC = string.ascii_letters + string.digits
KINDS = ("malformed", "unknown", "wrong")


def main() -> None:
    """Take the figures and print them."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.flood", description=__doc__)
    parser.add_argument("--rounds", type=int, default=6, help="idle and flooded ones each")
    parser.add_argument("--seconds", type=float, default=10.0, help="of a round")
    parser.add_argument("--rate", type=int, default=RATE, help="wrong keys a second")
    parser.add_argument("--kinds", nargs="+", choices=KINDS, default=list(KINDS), help="of wrong keys")
    parser.add_argument("--calls", type=int, default=_CALLS, help="of the caller with the right key a second; 0: one after another")
    parser.add_argument("--flood", metavar="URL", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.flood:
        print(json.dumps(_flood(options.flood, os.environ["FLOOD_KEY"], options.kinds, rate=options.rate, seconds=options.seconds)))
        return
    with tempfile.TemporaryDirectory(prefix="rookery-flood-") as folder, run_server(Path(folder)) as running:
        how = {"rounds": options.rounds, "seconds": options.seconds, "rate": options.rate, "calls": options.calls}
        figures = measure(running, kinds=options.kinds, **how)
    print(json.dumps(figures, indent=1))


def measure(running: Running, *, rounds: int, seconds: float, rate: int, kinds: list[str], calls: int = _CALLS) -> dict[str, object]:
    """Run the rounds; the load of the machine before them is part of the answer."""
    load, idle, flooded = os.getloadavg()[0], list[float](), list[float]()
    floods, busy = list[dict[str, float]](), list[float]()
    _call(running, 1.0, calls)  # the key is proven, and everything is warm
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
        "wrong_keys_per_s": [each["answered_per_s"] for each in floods],
        "wrong_keys_refused_with": floods[-1],
        "server_cpu": [round(each, 2) for each in busy],
        "idle": _percentiles(idle),
        "flooded": _percentiles(flooded),
        "p99_ratio": round(_percentile(flooded, 0.99) / _percentile(idle, 0.99), 2),
    }


def _call(running: Running, seconds: float, calls: int) -> list[float]:
    """Ask *calls* times a second for *seconds*, and return the milliseconds of each answer; it must be 200."""
    address, each_ms = urlsplit(running.url), list[float]()
    request = f"GET /api/v1/rate-limit HTTP/1.1\r\nHost: {address.netloc}\r\nAuthorization: Bearer {running.api_key}\r\n\r\n".encode()
    with socket.create_connection((address.hostname, address.port), timeout=30) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        begun = time.perf_counter()
        while (now := time.perf_counter()) < begun + seconds:
            time.sleep(max(0.0, begun + len(each_ms) / calls - now) if calls else 0.0)
            started = time.perf_counter()
            connection.sendall(request)
            answer = b""
            while not answer.endswith(b"}"):
                answer += connection.recv(65536)
            each_ms.append((time.perf_counter() - started) * 1000)
            assert answer.startswith(b"HTTP/1.1 200 "), answer
    return each_ms


def _flood(url: str, key: str, kinds: list[str], *, rate: int, seconds: float) -> dict[str, float]:
    """Send wrong keys at a steady rate, and count the answers by their status; what a server too slow would pile up is not sent."""
    address, turn, answers = urlsplit(url), 0, Counter[str]()
    connections = [socket.create_connection((address.hostname, address.port)) for _ in range(_CONNECTIONS)]
    waiting, poller = {connection.fileno(): 0 for connection in connections}, select.epoll()
    by_number = {connection.fileno(): connection for connection in connections}
    for connection in connections:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.setblocking(False)
        poller.register(connection, select.EPOLLIN)
    head = f"GET /v1/brain/tags HTTP/1.1\r\nHost: {address.netloc}\r\nAuthorization: Bearer ".encode()
    keys, begun = _wrong_keys(key, kinds), time.perf_counter()
    while (now := time.perf_counter()) < begun + seconds:
        while begun + turn / rate <= now:
            connection, turn = connections[turn % _CONNECTIONS], turn + 1
            if waiting[connection.fileno()] < _MAX_WAITING:
                connection.sendall(head + next(keys) + b"\r\n\r\n")
                waiting[connection.fileno()] += 1
        for number, _ in poller.poll(0):
            data = by_number[number].recv(1 << 18)
            assert data, "the server hung up"
            pieces = data.split(b"HTTP/1.1 ")[1:]
            answers.update(piece[:3].decode() for piece in pieces)
            waiting[number] -= len(pieces)
        time.sleep(0.0001)
    return {"answered_per_s": round(answers.total() / (time.perf_counter() - begun)), **answers}


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


def _percentile(each_ms: list[float], share: float) -> float:
    return sorted(each_ms)[int(share * len(each_ms))]


def _percentiles(each_ms: list[float]) -> dict[str, float]:
    return {f"p{share:g}_ms": round(_percentile(each_ms, share / 100), 2) for share in (50, 90, 99, 99.9)} | {"n": len(each_ms)}


if __name__ == "__main__":
    main()
