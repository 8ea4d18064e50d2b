"""Invariants while tool servers or Rookery itself are killed, hang or restart repeatedly."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import statistics
import threading
import time
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import cast

import httpx2
import psutil
import pytest

from rookery.kernel.db import Database
from rookery.tools.supervision.circuit_breaker import SupervisionTimeouts
from tests import real_servers
from tests.conftest import eventually, lend_model
from tests.deadlines import HANG_S
from tests.processes import Server, is_running, run_server
from tests.stopwatch import Stopwatch
from tests.tools.conftest import Start
from tests.tools.makers import CALLER, call_text, count_open_files, list_children, make_odd_entry

BASE = "/api/v1/mcp"


@contextlib.asynccontextmanager
async def client_of(server: Server) -> AsyncGenerator[httpx2.AsyncClient]:
    """A client with the first run's key, with one connection per caller."""
    headers = {"Authorization": f"Bearer {server.keys['api_key']}"}
    async with httpx2.AsyncClient(base_url=server.url, headers=headers, timeout=HANG_S) as client:
        yield client


def folder_with(tmp_path: Path, model_folder: Path, **servers: object) -> Path:
    """Make a data folder with these tool servers."""
    folder = tmp_path / "rookery"
    folder.mkdir()
    lend_model(model_folder, folder)
    (folder / "servers.json").write_text(json.dumps({"mcpServers": servers}))
    return folder


async def call_over_http(client: httpx2.AsyncClient, server: str, tool: str, **arguments: object) -> tuple[str | None, str]:
    """Call a tool over HTTP; return the failure's code and the first text."""
    response = (await client.post(f"{BASE}/tools/call", json={"server": server, "tool": tool, "arguments": arguments})).json()
    code, result = cast("str | None", response.get("code")), cast("dict[str, list[dict[str, str]]]", response.get("result") or {})
    return code, result.get("content", [{}])[0].get("text", "")


async def test_a_server_killed_under_sixteen_callers_fails_only_the_calls_in_flight(tmp_path: Path, model_folder: Path) -> None:
    """After kill -9 of an upstream each caller loses at most one call of a non-repeatable tool; the next succeeds."""
    with run_server(folder_with(tmp_path, model_folder, odd=make_odd_entry())) as server:
        async with client_of(server) as client:
            _, pid = await call_over_http(client, "odd", "pid")
            is_over, codes = asyncio.Event(), list[list[str | None]]()

            async def caller() -> None:
                own_codes: list[str | None] = []
                codes.append(own_codes)
                while not is_over.is_set():
                    own_codes.append((await call_over_http(client, "odd", "count"))[0])

            callers = [asyncio.create_task(caller()) for _ in range(16)]
            await eventually(lambda: len(codes) == 16 and all(len(own_codes) > 2 for own_codes in codes))
            with Stopwatch() as recovery:
                os.kill(int(pid), signal.SIGKILL)
                code, new_pid = await call_over_http(client, "odd", "pid")
            counts = [len(own_codes) for own_codes in codes]
            await eventually(lambda: all(len(own_codes) > before + 3 for own_codes, before in zip(codes, counts, strict=True)))
            is_over.set()
            await asyncio.gather(*callers)

    assert code is None
    assert new_pid != pid
    assert recovery.reference_s < 10  # 1 s on a quiet machine: benchmarks/faults.py
    assert {code for own_codes in codes for code in own_codes} <= {None, "server_unavailable"}
    assert all(len([code for code in own_codes if code is not None]) <= 1 for own_codes in codes)
    assert all(own_codes[-1] is None for own_codes in codes)


@pytest.mark.parametrize("signal_name", ["kill", "stop"])
async def test_an_ended_rookery_leaves_no_process(tmp_path: Path, model_folder: Path, signal_name: str) -> None:
    """Real servers, and one that ignores SIGTERM and has a child, all end, even after kill -9."""
    folder = folder_with(
        tmp_path,
        model_folder,
        time=real_servers.clock(),
        everything={**real_servers.everything(), "replicas": 2, "lifecycle": "eager"},
        deaf=make_odd_entry("--deaf", "--grandchild"),
    )
    with run_server(folder) as server:
        async with client_of(server) as client:
            for name, tool, arguments in (("time", "get_current_time", {"timezone": "UTC"}), ("everything", "echo", {"message": "hi"})):
                assert (await call_over_http(client, name, tool, **arguments))[0] is None
            _, spawned = await call_over_http(client, "deaf", "spawn")
        descendants = [*server.children(), int(spawned)]
        assert len(descendants) >= 8  # a process guard and a server each, and two children of the deaf one

        if signal_name == "kill":
            server.kill()
        else:
            assert server.stop() == 0

        await eventually(lambda: not any(is_running(pid) for pid in descendants))


async def _fill_pools(db: Database) -> None:
    """Start every thread of the pools, each with its connection. Otherwise they start when calls happen to coincide."""
    before, started, release = {thread.ident for thread in threading.enumerate()}, set[int | None](), threading.Event()

    def occupy(_: object) -> None:
        started.add(threading.get_ident())
        release.wait(HANG_S)

    def have_all_started() -> bool:
        pools = ("records-read", "asyncio_")
        return bool(started) and {thread.ident for thread in threading.enumerate() if thread.name.startswith(pools)} - before <= started

    work = asyncio.gather(*(db.read(occupy) for _ in range(64)), *(asyncio.to_thread(occupy, None) for _ in range(64)))
    await eventually(have_all_started)
    release.set()
    await work


async def test_restarts_and_calls_leave_nothing_behind(start: Start, db: Database) -> None:
    """Processes, threads and descriptors do not grow; benchmarks/faults.py has 100 restarts and 10,000 calls."""
    tools = await start({"odd": make_odd_entry()}, timing=SupervisionTimeouts(connect_timeout_s=10, max_failures=1000))
    await _fill_pools(db)

    async def round_of_calls() -> None:
        pid = int(await call_text(tools, "pid"))
        await asyncio.gather(*(call_text(tools, "echo", text="hi") for _ in range(25)))
        psutil.Process(pid).kill()
        assert int(await call_text(tools, "pid")) != pid

    def count_resources() -> tuple[int, int, int]:
        return len(list_children()), threading.active_count(), count_open_files()

    for _ in range(3):
        await round_of_calls()
    before = count_resources()
    for _ in range(15):
        await round_of_calls()

    await eventually(lambda: all(count <= limit for count, limit in zip(count_resources(), before, strict=True)))


async def test_dead_servers_do_not_slow_other_calls(start: Start) -> None:
    """Callers wait for servers that hang, crash or are missing; benchmarks/faults.py measures the exact ratio."""
    dead = {"hangs": make_odd_entry("--hang", "--deaf"), "falls": make_odd_entry("--exit"), "gone": {"command": "no-such-program"}}
    tools = await start({"odd": make_odd_entry(), **dead})
    await call_text(tools, "echo", text="hi")

    async def median_ms() -> float:
        durations: list[float] = []
        for _ in range(60):
            started = time.perf_counter()
            await call_text(tools, "echo", text="hi")
            durations.append(time.perf_counter() - started)
        return statistics.median(durations) * 1000

    async def call_dead(server: str) -> None:
        assert (await tools.runner.call(CALLER, server, "echo", {"text": "hi"})).code == "server_unavailable"

    ratios: list[float] = []
    for _ in range(4):
        alone = await median_ms()
        waiting = [asyncio.create_task(call_dead(name)) for name in dead for _ in range(4)]
        loaded = await median_ms()
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        ratios.append(loaded / alone)

    assert min(ratios) < 1.5
