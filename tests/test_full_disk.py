"""A data folder on a disk that is really full: a small tmpfs, mounted for the server alone."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import httpx2
import pytest

from tests.processes import Server, run_server

_SIZE_MIB = 96
_MOST_LINES = 20
_MOUNT = 'mount -t tmpfs -o size=$1m tmpfs "$0" && echo mounted && exec cat'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The mount point of the small disk."""
    made = tmp_path / "data"
    made.mkdir()
    return made


@pytest.fixture
def on_small_disk(folder: Path) -> Iterator[Sequence[str]]:
    """Return what starts a program that sees a disk of 96 MiB at *folder*; it stays the same disk until the test ends."""
    own_users = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    mounting = ["unshare", "--mount", *own_users, "sh", "-c", _MOUNT, str(folder), str(_SIZE_MIB)]
    if shutil.which("unshare") is None:
        pytest.skip("no unshare")
    with subprocess.Popen(mounting, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as holder:
        assert holder.stdin is not None
        assert holder.stdout is not None
        if holder.stdout.readline() != "mounted\n":
            pytest.skip("this user may not mount a disk")
        users = ["--user", "--preserve-credentials"] if own_users else []
        yield ["nsenter", "--target", str(holder.pid), "--mount", *users]
        holder.stdin.close()


def _fill(wrapper: Sequence[str], folder: Path) -> None:
    """Take the rest of the disk, to the last byte."""
    filling = [*wrapper, "sh", "-c", 'cat /dev/zero >> "$0"', str(folder / "ballast")]
    assert b"No space left" in subprocess.run(filling, capture_output=True, timeout=30, check=False).stderr


def _run(wrapper: Sequence[str], folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ROOKERY_")}
    command = [*wrapper, sys.executable, "-m", "rookery", "--data-dir", str(folder), *words]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=50, check=False)


def _remember(server: Server, content: str, **more: object) -> httpx2.Response:
    return server.client.post("/v1/brain/remember", json={"type": "fact", "content": content, **more})


def test_a_full_disk_refuses_writes_and_loses_nothing(folder: Path, on_small_disk: Sequence[str]) -> None:
    """Issue 14 (attack 7), D-17: 507 for writes, reads go on, a short log, a clean end, and every acknowledged write is there later."""
    with run_server(folder, wrapper=on_small_disk) as server:
        stored = [str(_remember(server, f"The heron of roof {number}.", wait_ms=5000).json()["id"]) for number in range(5)]
        _fill(on_small_disk, folder)
        refused = list[httpx2.Response]()
        for number in range(100):
            answer = _remember(server, f"{number} " + "x" * 2000)
            if answer.is_success:
                stored.append(str(answer.json()["id"]))
            else:
                refused.append(answer)
            tool = server.client.post("/api/v1/mcp/tools/call", json={"server": "time", "tool": "get_current_time", "arguments": {}})
            assert tool.status_code < 500 or tool.json()["error"] in {"storage_full", "upstream_error", "engine_unavailable"}, tool.text
            assert server.client.get(f"/v1/brain/memories/{stored[0]}").status_code == 200
            assert server.client.post("/v1/brain/recall", json={"query": "heron"}).status_code == 200
        figures = server.client.get("/metrics").text
        diagnosis = _run(on_small_disk, folder, "doctor", "--json")
        code = server.stop()
        log = server.log()
    _fill(on_small_disk, folder)
    starts = [_run(on_small_disk, folder, *words) for words in (("serve", "--port", "0"), ("keys", "list"))]
    stopped_diagnosis = _run(on_small_disk, folder, "doctor", "--deep", "--json")
    subprocess.run([*on_small_disk, "rm", str(folder / "ballast")], check=True)

    with run_server(folder, wrapper=on_small_disk) as server:
        lost = [each for each in stored if server.client.get(f"/v1/brain/memories/{each}").status_code != 200]
        after = _remember(server, "There is room again.", wait_ms=5000)

    assert refused
    assert {(each.status_code, each.json()["error"]) for each in refused} == {(507, "storage_full")}
    assert "disk" in refused[0].json()["message"]
    assert "\nrookery_tool_call_rows_unwritten 100" in figures
    assert code == 0
    assert "Traceback" not in log
    assert len(log.splitlines()) < _MOST_LINES
    for each in (diagnosis, stopped_diagnosis):
        assert each.stdout, each.stderr
        assert [found["grade"] for found in json.loads(each.stdout) if found["about"] == "disk"] == ["problem"]
        assert "Traceback" not in each.stderr
    for start in starts:
        assert (start.returncode, start.stderr.splitlines()[-1].partition(":")[0]) == (1, "error")
        assert "disk is full" in start.stderr
        assert "Traceback" not in start.stderr
    assert lost == []
    assert after.status_code == 201
