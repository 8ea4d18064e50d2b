"""Damaged files, files that are not files, and stores that cannot be written: one clear line, and a clean end."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import structlog
from structlog.testing import capture_logs

from rookery.kernel.config_files import read_config_file
from rookery.kernel.errors import StorageFull
from rookery.kernel.logs import LimitedWarning
from rookery.kernel.periodic import PeriodicTask, run_periodic_tasks
from tests.conftest import eventually
from tests.processes import run_server


def _rookery(folder: Path, *words: str, **settings: str) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ROOKERY_")} | settings
    command = [sys.executable, "-m", "rookery", "--data-dir", str(folder), *words]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=50, check=False)


@pytest.fixture(scope="module")
def first_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder with every database, and without keys."""
    data = tmp_path_factory.mktemp("first") / "data"
    assert _rookery(data, "migrate").returncode == 0
    assert _rookery(data, "doctor").returncode == 0
    return data


@pytest.fixture
def folder(tmp_path: Path, first_run: Path) -> Path:
    """A copy of that folder."""
    return shutil.copytree(first_run, tmp_path / "data")


@pytest.mark.parametrize("name", ["servers.json", "secret.key"])
def test_a_fifo_in_the_place_of_a_configuration_file_blocks_nothing(folder: Path, name: str) -> None:
    """Issue 14 (attack 5): configuration files are regular files; doctor names a FIFO, and ends."""
    (folder / name).unlink(missing_ok=True)
    os.mkfifo(folder / name)

    done = _rookery(folder, "doctor", "--json")

    assert (done.returncode, "not a regular file" in done.stdout) == (1, True), done.stderr


@pytest.mark.parametrize("ending", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
def test_a_running_server_whose_file_of_servers_becomes_a_fifo_goes_on_and_ends(folder: Path, ending: signal.Signals) -> None:
    """Issue 14 (attack 5): the watcher does not block on a FIFO: requests are answered, the last good servers stay, a signal ends it."""
    with run_server(folder) as server:
        before = [each["id"] for each in server.client.get("/api/v1/mcp/servers").json()["servers"]]
        (folder / "pipe").unlink(missing_ok=True)
        os.mkfifo(folder / "pipe")
        (folder / "pipe").replace(folder / "servers.json")
        deadline = time.monotonic() + 30
        while "servers.json is invalid" not in (ready := server.client.get("/readyz").text) and time.monotonic() < deadline:
            pass
        after = [each["id"] for each in server.client.get("/api/v1/mcp/servers").json()["servers"]]
        code = server.stop(ending)
        said = server.log()

    assert "servers.json is invalid" in ready
    assert "not a regular file" in said
    assert before == after
    assert code == (-signal.SIGHUP if ending is signal.SIGHUP else 0)
    assert "Traceback" not in said


def test_a_configuration_file_is_bounded(tmp_path: Path) -> None:
    """Issue 14 (attack 5): a device or a huge file is refused, a missing one is missing."""
    (tmp_path / "large").write_bytes(b"x" * 11)

    assert read_config_file(tmp_path / "large", max_bytes=11) == b"x" * 11
    for path, reason in ((tmp_path / "large", "larger than"), (Path("/dev/zero"), "not a regular file"), (tmp_path, "not a regular file")):
        with pytest.raises(OSError, match=reason):
            read_config_file(path, max_bytes=10)
    with pytest.raises(FileNotFoundError):
        read_config_file(tmp_path / "missing")


@pytest.mark.parametrize("name", ["texts.db", "vectors.db"])
def test_the_doctor_names_an_index_that_was_truncated(folder: Path, name: str) -> None:
    """Issue 14 (attack 6): a file truncated to nothing is a problem, with the command that mends it."""
    (folder / name).write_bytes(b"")

    found = json.loads(_rookery(folder, "doctor", "--json").stdout)

    assert [each["advice"] for each in found if each["about"] == "files" and name in each["says"]] == [
        "Stop the server, remove the file, and run: rookery brain:reindex"
    ]


@pytest.mark.parametrize("damage", ["truncated", "flipped"])
def test_the_doctor_names_a_damaged_model_file_and_the_load_writes_it_anew(folder: Path, damage: str) -> None:
    """Issue 14 (attack 6): the digest of the graph is compared with the one stored beside it."""
    (graph,) = (folder / "models").glob("*.onnx")
    whole = graph.read_bytes()
    half = len(whole) // 2
    graph.write_bytes(whole[:half] if damage == "truncated" else whole[:half] + bytes([whole[half] ^ 1]) + whole[half + 1 :])

    found = json.loads(_rookery(folder, "doctor", "--json").stdout)

    named = [each["grade"] for each in found if graph.name in each["says"] and "is damaged" in each["says"]]
    assert named == ["warning"]
    assert graph.read_bytes() == whole
    assert not any("is damaged" in each["says"] for each in json.loads(_rookery(folder, "doctor", "--json").stdout))


def test_the_doctor_reads_every_page_when_it_is_told_to(folder: Path) -> None:
    """Issue 14 (attack 6): `doctor --deep` finds flipped pages that nothing read yet."""
    path = folder / "records.db"
    content = bytearray(path.read_bytes())
    for at in range(8 * 4096, len(content), 4096):
        content[at : at + 64] = bytes(each ^ 0xFF for each in content[at : at + 64])
    path.write_bytes(content)

    found = json.loads(_rookery(folder, "doctor", "--deep", "--json").stdout)

    assert "Restore a backup: rookery restore ARCHIVE" in [each["advice"] for each in found if each["about"] == "files"]


@pytest.mark.parametrize("content", [b"", b"no database at all" * 1000, None])
def test_a_damaged_record_store_is_one_line_and_never_hides_the_rest(folder: Path, content: bytes | None) -> None:
    """Issue 14 (user 16, attack 6): doctor always prints a document and goes on; a command ends with one line that names `restore`."""
    path = folder / "records.db"
    whole = bytearray(path.read_bytes())
    whole[100:4096] = bytes(each ^ 0xA5 for each in whole[100:4096])
    path.write_bytes(bytes(whole) if content is None else content)

    done = _rookery(folder, "doctor", "--json")
    found = json.loads(done.stdout)

    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert {"disk", "embedder", "vectors", "files"} <= {each["about"] for each in found}
    assert all(each["advice"] for each in found if each["grade"] == "problem")


def test_the_doctor_names_an_open_folder_and_the_first_keys(folder: Path) -> None:
    """Issue 14 (attack 8): a data folder that others may open, and keys in plain text, are named."""
    (folder / "first-run.json").write_text("{}", encoding="utf-8")

    found = json.loads(_rookery(folder, "doctor", "--json").stdout)

    assert ["first-run.json" in each["says"] for each in found if each["about"] == "data folder"] == [True]


def test_a_store_that_cannot_grow_is_one_line_a_minute_and_a_clean_end(folder: Path) -> None:
    """Issue 14 (attack 7, 9): no file may grow, as on a full disk: reads go on, the log is quiet, the end is clean."""
    with run_server(folder) as server:
        assert server.client.get("/v1/brain/tags").status_code == 200
        (folder / "server.log").stat()
        largest = max(each.stat().st_size for each in folder.iterdir() if each.suffix != ".log")
        log = (folder / "server.log").stat().st_size
        resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (max(1024 * 64, log + 1024 * 32), resource.RLIM_INFINITY))
        assert largest > 1024 * 64
        for number in range(40):
            server.client.post("/v1/brain/remember", json={"type": "fact", "content": f"{number} " + "x" * 2000})
            assert server.client.get("/v1/brain/tags").status_code == 200
        code = server.stop()
        said = server.log()

    assert code == 0
    assert "Traceback" not in said
    assert "lifespan" not in said
    assert said.count("usage.not_written") <= 1


def test_a_warning_that_repeats_is_logged_once_a_minute() -> None:
    """Issue 14 (attack 7): the line that comes after says how many were left out."""
    at = [0.0]
    with capture_logs() as logs:
        limited = LimitedWarning(structlog.stdlib.get_logger("test"), "not_written", monotonic=lambda: at[0])
        for second in range(121):
            at[0] = float(second)
            limited.warn(rows=second)

    assert [(each["rows"], each.get("repeated")) for each in logs] == [(0, None), (60, 59), (120, 59)]


async def test_a_periodic_task_that_meets_a_full_disk_is_one_line_and_a_mistake_is_logged_whole() -> None:
    """Issue 14 (attack 7): no traceback floods of an outage; a mistake of ours keeps its traceback."""
    turns = {"outage": 0, "mistake": 0}

    async def outage() -> None:
        turns["outage"] += 1
        raise StorageFull("The disk is full.")

    async def mistake() -> None:
        turns["mistake"] += 1
        raise ZeroDivisionError

    with capture_logs() as logs:
        running_chores = asyncio.create_task(
            run_periodic_tasks(
                [PeriodicTask(name="outage", interval_s=0, run=outage), PeriodicTask(name="mistake", interval_s=0, run=mistake)]
            )
        )
        await eventually(lambda: min(turns.values()) > 5)
        running_chores.cancel()
        await asyncio.wait([running_chores])

    lines = [(each["reason"], each["log_level"], "exc_info" in each) for each in logs if each["chore"] == "outage"]
    assert lines == [("The disk is full.", "warning", False)]
    assert all(isinstance(each["exc_info"], ZeroDivisionError) for each in logs if each["chore"] == "mistake")
