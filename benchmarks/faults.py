"""
Cost of faults of tool servers: `python -m benchmarks.faults`.

A server with mcp-server-time as its tool server, measured from outside:

- killed: kill -9 of the tool server under 16 callers, repeatedly: the number of failed calls (only calls in flight may fail)
  and the time from the kill to the next response; for comparison the time of the tool server alone from its start to its first
  response, which is the lower bound, and the same kills with two replicas;
- leaks: 100 restarts (edits of servers.json, with a kill -9 now and then) and 10,000 calls; processes, threads and
  descriptors of Rookery before and after must be the same;
- dead: calls of one caller alone, and beside eight callers of a server that hangs at its start and eight callers of one that
  exits immediately; rounds alternate;
- left: processes that remain after a kill -9 of Rookery.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import psutil

from benchmarks.baseline import time_start
from benchmarks.load import Connection, measure
from benchmarks.servers import Running, run_server
from rookery.kernel.cancellation import wait_until_set

_CALL = "/api/v1/mcp/tools/call"
_CLIENTS = 16
_RECOVERY_TIMEOUT_S = 30.0
_BETWEEN_KILLS_S = 8.0
"""More than seven kills a minute open the circuit breaker."""

_TIME = [str(Path(sys.executable).parent / "mcp-server-time"), "--local-timezone", "UTC"]
_DEAD: dict[str, object] = {
    "hangs": {"command": "sh", "args": ["-c", "exec sleep 1000"], "isolation": "shared"},
    "ends": {"command": "false", "isolation": "shared"},
}


def main() -> None:
    """Measure and print the figures."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.faults", description=__doc__)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--restarts", type=int, default=100)
    parser.add_argument("--calls", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=8, help="number of rounds with dead servers, and of rounds without")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="rookery-faults-") as name:
        folder = Path(name)
        _write(folder, 0)
        with run_server(folder) as running:
            figures = {
                "load_before": os.getloadavg()[0],
                "dead": asyncio.run(_measure_dead_servers(running, options.rounds)),
                "own_start_ms": _measure_server_start(),
                "killed": asyncio.run(_measure_kills(running, options.kills)),
                "killed_of_two": asyncio.run(_measure_replica_kill(running, folder, options.kills)),
                "leaks": asyncio.run(_measure_leaks(running, folder, options.restarts, options.calls)),
                "left": _count_orphans(running),
            }
    print(json.dumps(figures, indent=1))


def _write(folder: Path, number: int, replicas: int = 1) -> None:
    """Rewrite servers.json; a new *number* changes the entry and restarts its server."""
    time_server = {"command": _TIME[0], "args": _TIME[1:], "isolation": "shared", "replicas": replicas}
    servers = {"time": {**time_server, "env": {"ROUND": str(number)}}, **_DEAD}
    new_file = folder / "servers.new"
    new_file.write_text(json.dumps({"mcpServers": servers}), encoding="utf-8")
    new_file.replace(folder / "servers.json")


def _call(server_id: str, tool: str = "get_current_time", **arguments: object) -> tuple[str, str, dict[str, object]]:
    return "POST", _CALL, {"server": server_id, "tool": tool, "arguments": arguments or {"timezone": "UTC"}}


async def _measure_dead_servers(running: Running, rounds: int) -> dict[str, object]:
    """Measure one caller beside callers of dead servers, and alone."""
    alone, beside = list[float](), list[float]()
    for _ in range(rounds):
        alone.append((await measure(running.url, running.api_key, lambda _: _call("time"), count=300)).p50)
        ended = asyncio.Event()
        dead_callers = [asyncio.create_task(_call_dead_server(running, name, ended)) for name in _DEAD for _ in range(8)]
        beside.append((await measure(running.url, running.api_key, lambda _: _call("time"), count=300)).p50)
        ended.set()
        for task in dead_callers:
            task.cancel()
        await asyncio.gather(*dead_callers, return_exceptions=True)
    return {
        "alone_p50_ms": round(statistics.median(alone), 3),
        "beside_p50_ms": round(statistics.median(beside), 3),
        "slower_percent": round((statistics.median(beside) / statistics.median(alone) - 1) * 100, 1),
    }


async def _call_dead_server(running: Running, server_id: str, ended: asyncio.Event) -> None:
    """Call a dead server, and retry half a second after each error."""
    connection = Connection(running.url, running.api_key)
    try:
        while not ended.is_set():
            status, _ = await connection.send(*_call(server_id))
            if status != 500:
                raise RuntimeError(f"a dead server answered {status}")
            await wait_until_set(ended, timeout_s=0.5)
    finally:
        await connection.close()


def _measure_server_start() -> dict[str, int]:
    each_ms = [time_start() for _ in range(7)]
    return {"median": round(statistics.median(each_ms)), "max": round(max(each_ms))}


async def _measure_replica_kill(running: Running, folder: Path, kills: int) -> dict[str, object]:
    """Measure kills of one of two replicas."""
    _write(folder, 0, replicas=2)
    deadline = time.monotonic() + _RECOVERY_TIMEOUT_S
    while len(_time_servers(running)) < 2:
        if time.monotonic() > deadline:
            raise RuntimeError("the second replica did not start")
        await measure(running.url, running.api_key, lambda _: _call("time"), count=100, clients=_CLIENTS, warm=0)
    return await _measure_kills(running, kills)


async def _measure_kills(running: Running, kills: int) -> dict[str, object]:
    """Kill one tool server during calls of a retryable tool, and check each response."""
    statuses: dict[int, int] = {}
    ended = asyncio.Event()

    async def caller() -> None:
        connection = Connection(running.url, running.api_key)
        try:
            while not ended.is_set():
                status, _ = await connection.send(*_call("time"))
                statuses[status] = statuses.get(status, 0) + 1
        finally:
            await connection.close()

    callers = [asyncio.create_task(caller()) for _ in range(_CLIENTS)]
    connection = Connection(running.url, running.api_key)
    recovery_ms = list[float]()
    for _ in range(kills):
        await asyncio.sleep(_BETWEEN_KILLS_S)
        os.kill(_time_servers(running)[0], signal.SIGKILL)
        killed = time.perf_counter()
        while (await connection.send(*_call("time")))[0] != 200:
            if time.perf_counter() - killed > _RECOVERY_TIMEOUT_S:
                raise RuntimeError("the tool server did not recover")
        recovery_ms.append((time.perf_counter() - killed) * 1000)
    ended.set()
    await asyncio.gather(*callers)
    await connection.close()
    return {
        "kills": kills,
        "answers": statuses,
        "back_ms_median": round(statistics.median(recovery_ms)),
        "back_ms_max": round(max(recovery_ms)),
    }


async def _measure_leaks(running: Running, folder: Path, restarts: int, calls: int) -> dict[str, object]:
    """Count the open resources before and after."""
    for number in range(1, 6):
        await _restart(running, folder, number)
    before = await _wait_until_stable(lambda: _count_resources(running))
    share = max(calls // restarts, 1)
    for number in range(6, 6 + restarts):
        await _restart(running, folder, number)
        await measure(running.url, running.api_key, lambda _: _call("time"), count=share, clients=_CLIENTS, warm=0)
    after = await _wait_until_stable(lambda: _count_resources(running))
    return {"restarts": restarts, "calls": restarts * share, "before": before, "after": after}


async def _restart(running: Running, folder: Path, number: int) -> None:
    """Edit the entry and wait for a new process; every tenth time the server is killed as well."""
    old = _time_servers(running)
    if number % 10 == 0:
        for pid in old:
            os.kill(pid, signal.SIGKILL)
    _write(folder, number)
    deadline = time.monotonic() + _RECOVERY_TIMEOUT_S
    connection = Connection(running.url, running.api_key)
    try:
        while not (new := _time_servers(running)) or set(new) & set(old):
            if time.monotonic() > deadline:
                raise RuntimeError("the edit was not applied")
            await connection.send(*_call("time"))
            await asyncio.sleep(0.05)
    finally:
        await connection.close()


async def _wait_until_stable(count: Callable[[], dict[str, int]]) -> dict[str, int]:
    """Return the counts once they are stable for two seconds."""
    last, since = count(), time.monotonic()
    deadline = since + _RECOVERY_TIMEOUT_S
    while time.monotonic() - since < 2 and time.monotonic() < deadline:
        await asyncio.sleep(0.2)
        now = count()
        if now != last:
            last, since = now, time.monotonic()
    return last


def _count_resources(running: Running) -> dict[str, int]:
    process = psutil.Process(running.pid)
    return {
        "processes": len(process.children(recursive=True)),
        "threads": process.num_threads(),
        "descriptors": process.num_fds(),
        "rss_mb": round(process.memory_info().rss / 1e6),
    }


def _time_servers(running: Running) -> list[int]:
    """Return the ids of the running time servers: not their guard processes."""
    pids = list[int]()
    for process in psutil.Process(running.pid).children(recursive=True):
        with contextlib.suppress(psutil.Error):
            command = " ".join(process.cmdline())
            if "mcp-server-time" in command and "process_guard.py" not in command:
                pids.append(process.pid)
    return pids


def _count_orphans(running: Running) -> dict[str, int]:
    """Kill Rookery, and count the surviving child processes."""
    rookery = psutil.Process(running.pid)
    children = rookery.children(recursive=True)
    rookery.kill()
    started = time.perf_counter()
    _, alive = psutil.wait_procs(children, timeout=10)
    return {"were": len(children), "left": len(alive), "gone_after_ms": round((time.perf_counter() - started) * 1000)}


if __name__ == "__main__":
    main()
