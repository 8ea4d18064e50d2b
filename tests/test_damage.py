"""Damaged files, FIFOs, and stores that cannot be written: one clear log line, and a clean stop."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest
import structlog
from structlog.testing import capture_logs

from rookery.kernel.data_folder import read_config_file
from rookery.kernel.errors import StorageFull
from rookery.kernel.logs import LimitedWarning
from rookery.kernel.runtime import PeriodicTask, run_periodic_tasks
from tests.conftest import eventually
from tests.deadlines import HANG_S
from tests.processes import get_environment, run_rookery, run_server


def _run_rookery(folder: Path, *arguments: str, **settings: str) -> subprocess.CompletedProcess[str]:
    return run_rookery(*arguments, data_dir=folder, environment=get_environment() | settings)


@pytest.fixture(scope="module")
def first_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder with every database, and without keys."""
    data = tmp_path_factory.mktemp("first") / "data"
    assert _run_rookery(data, "migrate").returncode == 0
    assert _run_rookery(data, "doctor").returncode == 0
    return data


@pytest.fixture
def folder(tmp_path: Path, first_run: Path) -> Path:
    """A copy of that folder."""
    return shutil.copytree(first_run, tmp_path / "data")


@pytest.mark.parametrize("name", ["servers.json", "secret.key"])
def test_a_fifo_as_configuration_file_does_not_block(folder: Path, name: str) -> None:
    """Doctor reports a FIFO in place of a regular file, and exits."""
    (folder / name).unlink(missing_ok=True)
    os.mkfifo(folder / name)

    process = _run_rookery(folder, "doctor", "--json")

    assert (process.returncode, "not a regular file" in process.stdout) == (1, True), process.stderr


@pytest.mark.parametrize("signal_number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_server_whose_servers_file_becomes_a_fifo_continues_and_stops(folder: Path, signal_number: signal.Signals) -> None:
    """The watcher does not block on a FIFO: requests are served, the last valid servers stay, a signal stops the server."""
    if signal.getsignal(signal_number) is signal.SIG_IGN:
        pytest.skip(f"{signal_number.name} is ignored, as below nohup, and processes inherit that")
    with run_server(folder) as server:
        before = [entry["id"] for entry in server.client.get("/api/v1/mcp/servers").json()["servers"]]
        (folder / "pipe").unlink(missing_ok=True)
        os.mkfifo(folder / "pipe")
        (folder / "pipe").replace(folder / "servers.json")
        deadline = time.monotonic() + HANG_S
        while "servers.json is invalid" not in (ready := server.client.get("/readyz").text) and time.monotonic() < deadline:
            pass
        after = [entry["id"] for entry in server.client.get("/api/v1/mcp/servers").json()["servers"]]
        code = server.stop(signal_number)
        log = server.log()

    assert "servers.json is invalid" in ready
    assert "not a regular file" in log
    assert before == after
    assert code == (-signal.SIGHUP if signal_number is signal.SIGHUP else 0)
    assert "Traceback" not in log


def test_configuration_files_are_limited_in_size(tmp_path: Path) -> None:
    """Devices and huge files are rejected; a missing file raises FileNotFoundError."""
    (tmp_path / "large").write_bytes(b"x" * 11)

    assert read_config_file(tmp_path / "large", max_bytes=11) == b"x" * 11
    for path, reason in ((tmp_path / "large", "larger than"), (Path("/dev/zero"), "not a regular file"), (tmp_path, "not a regular file")):
        with pytest.raises(OSError, match=reason):
            read_config_file(path, max_bytes=10)
    with pytest.raises(FileNotFoundError):
        read_config_file(tmp_path / "missing")


@pytest.mark.parametrize("name", ["texts.db", "vectors.db"])
def test_the_doctor_names_an_index_that_was_truncated(folder: Path, name: str) -> None:
    """An empty file is a problem, with the command that repairs it."""
    (folder / name).write_bytes(b"")

    findings = json.loads(_run_rookery(folder, "doctor", "--json").stdout)

    assert [finding["advice"] for finding in findings if finding["about"] == "files" and name in finding["says"]] == [
        "Stop the server, remove the file, and run: rookery brain:reindex"
    ]


@pytest.mark.parametrize("damage", ["truncated", "flipped"])
def test_the_doctor_names_a_damaged_model_file_and_the_load_rewrites_it(folder: Path, damage: str) -> None:
    """The digest of the graph is compared with the one stored beside it."""
    (graph,) = (folder / "models").glob("*.onnx")
    content = graph.read_bytes()
    half = len(content) // 2
    graph.write_bytes(content[:half] if damage == "truncated" else content[:half] + bytes([content[half] ^ 1]) + content[half + 1 :])

    findings = json.loads(_run_rookery(folder, "doctor", "--json").stdout)

    grades = [finding["grade"] for finding in findings if graph.name in finding["says"] and "is damaged" in finding["says"]]
    assert grades == ["warning"]
    assert graph.read_bytes() == content
    assert not any("is damaged" in finding["says"] for finding in json.loads(_run_rookery(folder, "doctor", "--json").stdout))


def test_the_doctor_reads_every_page_with_deep(folder: Path) -> None:
    """`doctor --deep` finds damaged pages that were not read yet."""
    path = folder / "records.db"
    content = bytearray(path.read_bytes())
    for offset in range(8 * 4096, len(content), 4096):
        content[offset : offset + 64] = bytes(byte ^ 0xFF for byte in content[offset : offset + 64])
    path.write_bytes(content)

    findings = json.loads(_run_rookery(folder, "doctor", "--deep", "--json").stdout)

    assert "Restore a backup: rookery restore ARCHIVE" in [finding["advice"] for finding in findings if finding["about"] == "files"]


@pytest.mark.parametrize("content", [b"", b"not a database" * 1000, None])
def test_the_doctor_checks_the_other_stores_when_the_record_store_is_damaged(folder: Path, content: bytes | None) -> None:
    """Doctor prints a complete document and exits with 1, without a traceback."""
    path = folder / "records.db"
    pages = bytearray(path.read_bytes())
    pages[100:4096] = bytes(byte ^ 0xA5 for byte in pages[100:4096])
    path.write_bytes(bytes(pages) if content is None else content)

    process = _run_rookery(folder, "doctor", "--json")
    findings = json.loads(process.stdout)

    assert process.returncode == 1
    assert "Traceback" not in process.stderr
    assert {"disk", "embedder", "vectors", "files"} <= {finding["about"] for finding in findings}
    assert all(finding["advice"] for finding in findings if finding["grade"] == "problem")


def test_the_doctor_names_an_open_folder_and_the_first_keys(folder: Path) -> None:
    """A data folder that others may read, and keys in plain text, are reported."""
    (folder / "first-run.json").write_text("{}", encoding="utf-8")

    findings = json.loads(_run_rookery(folder, "doctor", "--json").stdout)

    assert ["first-run.json" in finding["says"] for finding in findings if finding["about"] == "data folder"] == [True]


def test_a_store_that_cannot_grow_logs_one_line_a_minute_and_stops_cleanly(folder: Path) -> None:
    """No file may grow, as on a full disk: reads continue, the log has few lines, the stop is clean."""
    with run_server(folder) as server:
        assert server.client.get("/v1/brain/tags").status_code == 200
        (folder / "server.log").stat()
        largest = max(path.stat().st_size for path in folder.iterdir() if path.suffix != ".log")
        log = (folder / "server.log").stat().st_size
        resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (max(1024 * 64, log + 1024 * 32), resource.RLIM_INFINITY))
        assert largest > 1024 * 64
        for number in range(40):
            server.client.post("/v1/brain/remember", json={"type": "fact", "content": f"{number} " + "x" * 2000})
            assert server.client.get("/v1/brain/tags").status_code == 200
        code = server.stop()
        output = server.log()

    assert code == 0
    assert "Traceback" not in output
    assert "lifespan" not in output
    assert output.count("usage.calls_not_written") <= 1


def test_a_warning_that_repeats_is_logged_once_a_minute() -> None:
    """The next line has the number of omitted lines."""
    now = [0.0]
    with capture_logs() as logs:
        limited = LimitedWarning(structlog.stdlib.get_logger("test"), "not_written", monotonic=lambda: now[0])
        for second in range(121):
            now[0] = float(second)
            limited.warn(rows=second)

    assert [(entry["rows"], entry.get("repeated")) for entry in logs] == [(0, None), (60, 59), (120, 59)]


async def test_a_periodic_task_logs_an_outage_in_one_line_and_a_bug_with_traceback() -> None:
    """An outage is logged without tracebacks; a bug keeps its traceback."""
    runs = {"outage": 0, "mistake": 0}

    async def outage() -> None:
        runs["outage"] += 1
        raise StorageFull("The disk is full.")

    async def mistake() -> None:
        runs["mistake"] += 1
        raise ZeroDivisionError

    with capture_logs() as logs:
        task = asyncio.create_task(
            run_periodic_tasks(
                [PeriodicTask(name="outage", interval_s=0, run=outage), PeriodicTask(name="mistake", interval_s=0, run=mistake)]
            )
        )
        await eventually(lambda: min(runs.values()) > 5)
        task.cancel()
        await asyncio.wait([task])

    lines = [(entry["event"], entry["reason"], entry["log_level"], "exc_info" in entry) for entry in logs if entry["task"] == "outage"]
    assert lines == [("periodic.failed", "The disk is full.", "warning", False)]
    assert all(isinstance(entry["exc_info"], ZeroDivisionError) for entry in logs if entry["task"] == "mistake")
