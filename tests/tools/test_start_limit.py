"""The number of servers that start at the same time, and their order."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from rookery.kernel.process_resources import count_available_cores
from rookery.tools.supervision.start_limit import PendingStart, StartLimit
from tests.conftest import eventually
from tests.deadlines import HANG_S
from tests.processes import run_server

_SERVER = """
import json, os, sys, time
def mark(what):
    with open(sys.argv[1], "a") as file:
        file.write(json.dumps([what, sys.argv[2], time.monotonic()]) + "\\n")
mark("begin")
end = time.process_time() + 0.1
while time.process_time() < end or not os.path.exists(sys.argv[1] + ".go"):
    time.sleep(0.001) if time.process_time() >= end else None
for line in sys.stdin:
    message = json.loads(line)
    if "id" not in message:
        continue
    answer = {"jsonrpc": "2.0", "id": message["id"]}
    if message["method"] == "initialize":
        mark("end")
        version = message["params"]["protocolVersion"]
        answer["result"] = {"protocolVersion": version, "capabilities": {"tools": {}}, "serverInfo": {"name": "s", "version": "1"}}
    elif message["method"] == "tools/list":
        answer["result"] = {"tools": [{"name": "echo", "inputSchema": {"type": "object"}}]}
    elif message["method"] == "tools/call":
        answer["result"] = {"content": [{"type": "text", "text": "here"}]}
    else:
        answer["error"] = {"code": -32601, "message": "Method not found"}
    print(json.dumps(answer), flush=True)
"""
_SERVERS = 12


@dataclass
class _Events:
    """The starts, and the ends of starts, that the servers recorded."""

    path: Path
    rows: list[tuple[str, str, float]] = field(default_factory=list[tuple[str, str, float]])

    def read(self) -> list[tuple[str, str, float]]:
        """Return them in the order of time."""
        if self.path.exists():
            self.rows = sorted((tuple(json.loads(line)) for line in self.path.read_text().splitlines()), key=lambda row: row[2])
        return self.rows

    def count_most_at_once(self) -> int:
        """Return the number of starts at the same time."""
        running = most = 0
        for what, _, _ in self.read():
            running += 1 if what == "begin" else -1
            most = max(most, running)
        return most


async def test_few_servers_start_at_once_and_the_one_with_a_caller_first(data_dir: Path) -> None:
    """A restart with many servers is no rush: at most two more than the cores start, and a call to the last one is not the last."""
    (data_dir / "server.py").write_text(_SERVER)
    events = _Events(data_dir / "events")
    entries = {
        f"s{number}": {"command": sys.executable, "args": [str(data_dir / "server.py"), str(events.path), f"s{number}"]}
        for number in range(_SERVERS)
    }
    (data_dir / "servers.json").write_text(json.dumps({"mcpServers": entries}))
    with run_server(data_dir) as server:
        limit = count_available_cores() + 2

        async def are_background_starts_full() -> bool:
            return len(events.read()) >= limit - 1

        assert await eventually(are_background_starts_full)
        call = asyncio.create_task(
            asyncio.to_thread(server.client.post, "/api/v1/mcp/tools/call", json={"server": f"s{_SERVERS - 1}", "tool": "echo"})
        )

        async def has_caller_started() -> bool:
            return f"s{_SERVERS - 1}" in {name for _, name, _ in events.read()}

        assert await eventually(has_caller_started)
        assert len(events.read()) == limit, "one place is for servers with a caller"
        Path(f"{events.path}.go").touch()
        response = await call
        assert response.json()["result"]["content"][0]["text"] == "here"

        async def have_all_started() -> bool:
            return len({name for what, name, _ in events.read() if what == "end"}) == _SERVERS

        assert await eventually(have_all_started)
        assert events.count_most_at_once() <= limit


def _keys(starts: Sequence[PendingStart]) -> list[str]:
    return [start.server_key for start in starts if start.admitted.done()]


async def test_a_start_that_hangs_does_not_keep_the_others_waiting() -> None:
    """It no longer counts after a while. Its own time-out goes on."""
    limit = StartLimit(2, max_held_s=0.01)
    hanging, other = limit.request("hanging"), limit.request("other")
    await eventually(other.admitted.done)
    hanging.end()
    other.end()
    assert _keys([limit.request("third")]) == ["third"]


async def test_a_caller_that_comes_later_is_preferred() -> None:
    """It may come while its server waits already. While it waits, no server without a caller starts."""
    limit = StartLimit(3)
    starts = [limit.request(key) for key in ("a", "b", "c", "d")]
    assert _keys(starts) == ["a", "b"]
    with limit.prefer_for_call("d"):
        assert _keys(starts) == ["a", "b", "d"]
        starts[0].end()
        assert _keys(starts) == ["a", "b", "d"]
    starts[3].end()
    assert _keys(starts) == ["a", "b", "c", "d"]


async def test_servers_of_a_list_start_before_those_that_nobody_waits_for() -> None:
    """And behind one with a call, for which a place is free."""
    limit = StartLimit(2)
    starts = [limit.request(key) for key in ("a", "b", "c", "d")]
    with limit.prefer_for_list(["c", "d"]):
        assert _keys(starts) == ["a"]
        with limit.prefer_for_call("d"):
            assert _keys(starts) == ["a", "d"]
        starts[3].end()
        starts[0].end()
        assert _keys(starts) == ["a", "c", "d"]


@pytest.mark.parametrize(("program", "makes_room"), [("import time; time.sleep(60)", True), ("while True: pass", False)])
async def test_a_start_that_only_waits_makes_room_for_one_that_is_wanted(program: str, *, makes_room: bool) -> None:
    """A server that waits for a database is no load, and a client that lists once waits 5 seconds. One that computes keeps its place."""
    limit = StartLimit(2)
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", program)
    try:
        first, second = limit.request("first"), limit.request("second")
        first.set_pid(process.pid)
        await asyncio.wait({second.admitted}, timeout=1.0)
        assert _keys([first, second]) == ["first"], "nobody waits for the second one"
        with limit.prefer_for_list(["second"]):
            await asyncio.wait({second.admitted}, timeout=HANG_S if makes_room else 1.0)
        assert second.admitted.done() is makes_room
        first.end()
        second.end()
    finally:
        process.kill()
        await process.wait()


async def test_a_start_that_is_given_up_leaves_its_place() -> None:
    """`end` may be called before the start, after it, and twice."""
    limit = StartLimit(1)
    first, second, third = (limit.request(key) for key in ("a", "b", "c"))
    second.end()
    first.end()
    first.end()
    assert _keys([first, second, third]) == ["a", "c"]


@pytest.mark.parametrize(
    ("files", "own", "cores"),
    [
        ({"cpu.max": "150000 100000"}, "0::/", 2),
        ({"cpu.max": "max 100000"}, "0::/", None),
        ({"cpu.max": "max 100000", "a/cpu.max": "50000 100000", "a/b/cpu.max": "max 100000"}, "0::/a/b", 1),
        ({"cpu/cpu.cfs_quota_us": "100000\n", "cpu/cpu.cfs_period_us": "100000\n"}, "4:cpu,cpuacct:/docker/x\n1:name=systemd:/", 1),
        ({"cpu/cpu.cfs_quota_us": "-1\n", "cpu/cpu.cfs_period_us": "100000\n"}, "4:cpu,cpuacct:/", None),
        ({}, "nonsense-free:cpu:/", None),
    ],
    ids=["a core and a half", "no limit", "a group above", "version 1", "version 1 without a limit", "no files"],
)
def test_cores_are_those_that_the_process_may_use(tmp_path: Path, files: dict[str, str], own: str, cores: int | None) -> None:
    """A container often has a part of the machine."""
    for name, content in files.items():
        (tmp_path / "cgroup" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "cgroup" / name).write_text(content)
    (tmp_path / "own").write_text(own)
    available = len(os.sched_getaffinity(0))

    found = count_available_cores(cgroups=tmp_path / "cgroup", own_cgroups=tmp_path / "own")
    assert found == (available if cores is None else min(cores, available))
    assert count_available_cores(own_cgroups=tmp_path / "missing") == available
