"""Invariants while tool servers or Rookery itself are killed, hang or restart repeatedly (D-32)."""

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

from rookery.tools.supervision.circuit_breaker import SupervisionTimeouts
from tests import real_servers
from tests.conftest import eventually, lend_model
from tests.processes import Server, is_running, run_server
from tests.tools.conftest import Start
from tests.tools.makers import Tools, count_open_files, list_children, make_caller, make_odd_entry

CALLER = make_caller()
BASE = "/api/v1/mcp"


async def said(tools: Tools, tool: str, **arguments: object) -> str:
    """Call a tool that succeeds, and return its text."""
    outcome = await tools.runner.call(CALLER, "odd", tool, arguments)
    assert outcome.error is None
    return str(json.loads(outcome.result or b"")["content"][0]["text"])


@contextlib.asynccontextmanager
async def client_of(server: Server) -> AsyncGenerator[httpx2.AsyncClient]:
    """A client with the first run's key, of as many connections as there are callers."""
    headers = {"Authorization": f"Bearer {server.keys['api_key']}"}
    async with httpx2.AsyncClient(base_url=server.url, headers=headers, timeout=60) as client:
        yield client


def folder_with(tmp_path: Path, model_folder: Path, **servers: object) -> Path:
    """Make a data folder with these tool servers."""
    folder = tmp_path / "rookery"
    folder.mkdir()
    lend_model(model_folder, folder)
    (folder / "servers.json").write_text(json.dumps({"mcpServers": servers}))
    return folder


async def called(client: httpx2.AsyncClient, server: str, tool: str, **arguments: object) -> tuple[str | None, str]:
    """Call a tool over HTTP; return the failure's code and the first text."""
    answer = (await client.post(f"{BASE}/tools/call", json={"server": server, "tool": tool, "arguments": arguments})).json()
    code, result = cast("str | None", answer.get("code")), cast("dict[str, list[dict[str, str]]]", answer.get("result") or {})
    return code, result.get("content", [{}])[0].get("text", "")


async def test_a_server_killed_under_sixteen_callers_fails_the_calls_in_flight_alone(tmp_path: Path, model_folder: Path) -> None:
    """Issue 4: kill -9 of an upstream; each caller loses one call at most, of a tool that must not be repeated, and the next succeeds."""
    with run_server(folder_with(tmp_path, model_folder, odd=make_odd_entry())) as server:
        async with client_of(server) as client:
            _, pid = await called(client, "odd", "pid")
            ended, codes = asyncio.Event(), list[list[str | None]]()

            async def caller() -> None:
                mine: list[str | None] = []
                codes.append(mine)
                while not ended.is_set():
                    mine.append((await called(client, "odd", "count"))[0])

            callers = [asyncio.create_task(caller()) for _ in range(16)]
            await eventually(lambda: len(codes) == 16 and all(len(mine) > 2 for mine in codes), within_s=20)
            os.kill(int(pid), signal.SIGKILL)
            killed = time.monotonic()
            code, new = await called(client, "odd", "pid")
            back_s = time.monotonic() - killed
            at = [len(mine) for mine in codes]
            await eventually(lambda: all(len(mine) > before + 3 for mine, before in zip(codes, at, strict=True)), within_s=20)
            ended.set()
            await asyncio.gather(*callers)

    assert code is None
    assert new != pid
    assert back_s < 10  # 1 s on a quiet machine: benchmarks/faults.py
    assert {code for mine in codes for code in mine} <= {None, "server_unavailable"}
    assert all(len([code for code in mine if code is not None]) <= 1 for mine in codes)
    assert all(mine[-1] is None for mine in codes)


@pytest.mark.parametrize("how", ["kill", "stop"])
async def test_an_ended_rookery_leaves_no_process(tmp_path: Path, model_folder: Path, how: str) -> None:
    """D-32: real servers, and one that ignores SIGTERM and has a child of its own; also kill -9 leaves nothing behind."""
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
                assert (await called(client, name, tool, **arguments))[0] is None
            _, spawned = await called(client, "deaf", "spawn")
        below = [*server.children(), int(spawned)]
        assert len(below) >= 8  # a warden and a server each, and the deaf one's two children

        if how == "kill":
            server.kill()
        else:
            assert server.stop() == 0

        await eventually(lambda: not any(is_running(pid) for pid in below), within_s=20)


async def test_restarts_and_calls_leave_nothing_behind(start: Start) -> None:
    """Issue 4: the same number of processes, threads and descriptors; benchmarks/faults.py has 100 restarts and 10,000 calls."""
    tools = await start({"odd": make_odd_entry()}, timing=SupervisionTimeouts(connect_timeout_s=10, max_failures=1000))

    async def round_of_calls() -> None:
        pid = int(await said(tools, "pid"))
        await asyncio.gather(*(said(tools, "echo", text="hi") for _ in range(25)))
        psutil.Process(pid).kill()
        assert int(await said(tools, "pid")) != pid

    def held() -> tuple[int, int, int]:
        return len(list_children()), threading.active_count(), count_open_files()

    for _ in range(3):
        await round_of_calls()
    before = held()
    for _ in range(15):
        await round_of_calls()

    await eventually(lambda: all(now <= then for now, then in zip(held(), before, strict=True)))


async def test_servers_that_are_dead_slow_no_other_call(start: Start) -> None:
    """D-32: with callers waiting for one that hangs, and others asking for one that falls at once; the exact share is a benchmark's."""
    dead = {"hangs": make_odd_entry("--hang", "--deaf"), "falls": make_odd_entry("--exit"), "gone": {"command": "no-such-program"}}
    tools = await start({"odd": make_odd_entry(), **dead})
    await said(tools, "echo", text="hi")

    async def median_ms() -> float:
        took: list[float] = []
        for _ in range(60):
            started = time.perf_counter()
            await said(tools, "echo", text="hi")
            took.append(time.perf_counter() - started)
        return statistics.median(took) * 1000

    async def ask(server: str) -> None:
        assert (await tools.runner.call(CALLER, server, "echo", {"text": "hi"})).code == "server_unavailable"

    shares: list[float] = []
    for _ in range(4):
        alone = await median_ms()
        asking = [asyncio.create_task(ask(name)) for name in dead for _ in range(4)]
        beside = await median_ms()
        for task in asking:
            task.cancel()
        await asyncio.gather(*asking, return_exceptions=True)
        shares.append(beside / alone)

    assert min(shares) < 1.5
