"""Memories of commands, and a worker that indexes them without a server."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import cast

import pytest

from tests.conftest import eventually, lend_model
from tests.deadlines import HANG_S
from tests.processes import Server, run_rookery

SETTINGS = {"ROOKERY_BCRYPT_COST": "4", "ROOKERY_MIN_FREE_DISK_MB": "0"}


@pytest.fixture
def folder(tmp_path: Path, model_folder: Path) -> Path:
    """A data folder with a workspace."""
    path = tmp_path / "home"
    lend_model(model_folder, path)
    assert _run_rookery(path, "init").returncode == 0
    return path


def _run_rookery(folder: Path, *arguments: str, text: str = "") -> subprocess.CompletedProcess[str]:
    return run_rookery(*arguments, data_dir=folder, environment=SETTINGS, standard_input=text.encode())


def run_json(folder: Path, *arguments: str) -> dict[str, object]:
    """Run a command with --json and return its output."""
    process = _run_rookery(folder, *arguments, "--json")
    assert process.returncode == 0, process.stderr
    return cast("dict[str, object]", json.loads(process.stdout))


def is_found(folder: Path, query: str) -> bool:
    """Return whether a semantic recall finds a memory."""
    return bool(run_json(folder, "recall", query, "--mode", "semantic")["memories"])


async def test_a_worker_indexes_memories_of_commands(folder: Path) -> None:
    """Commands remember, recall and search; the worker stops cleanly on SIGTERM."""
    options = ("--type", "decision", "--org", "acme", "--tag", "release")
    stored = _run_rookery(folder, "remember", "-", *options, text="We deploy on Tuesdays.\n")
    assert stored.returncode == 0, stored.stderr
    assert "rookery worker" in stored.stderr
    memory_id = stored.stdout.strip()

    hits = cast("list[dict[str, object]]", run_json(folder, "search", "deploy")["hits"])
    assert [(hit["id"], hit["content"], hit["tags"]) for hit in hits] == [(memory_id, "We deploy on Tuesdays.", ["release"])]
    assert not is_found(folder, "When do we ship?")

    command = [sys.executable, "-m", "rookery", "--data-dir", str(folder), "worker"]
    with subprocess.Popen(command, env=SETTINGS, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as worker:
        try:
            await eventually(lambda: is_found(folder, "When do we ship?"))
        finally:
            worker.send_signal(signal.SIGTERM)
        assert worker.wait(timeout=HANG_S) == 0

    [line] = _run_rookery(folder, "recall", "When do we ship?").stdout.splitlines()
    assert line.split("\t")[1:] == [memory_id, "decision", "We deploy on Tuesdays."]


def test_an_invalid_value_is_a_usage_error(folder: Path) -> None:
    """The exit code of an invalid value is 2."""
    for arguments in (["remember", " "], ["remember", "x", "--confidence", "2"], ["recall", ""], ["remember", "x", "--type", "No Type"]):
        process = _run_rookery(folder, *arguments)

        assert process.returncode == 2, process.stderr
        assert len(process.stderr.splitlines()) == 1, process.stderr


async def test_a_worker_runs_beside_a_server(folder: Path) -> None:
    """Several processes share a data folder."""
    (folder / "first-run.json").write_text(json.dumps({"url": "", "api_key": "none"}), encoding="utf-8")
    server = Server(folder)
    command = [sys.executable, "-m", "rookery", "--data-dir", str(folder), "worker"]
    with subprocess.Popen(command, env=SETTINGS, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as worker:
        assert worker.stdout is not None
        assert worker.stdout.readline() == f"Rookery works on {folder}; Ctrl-C stops it.\n"
        assert _run_rookery(folder, "remember", "The rook nests in the elm.").stderr == ""
        await eventually(lambda: is_found(folder, "Where does the bird live?"))
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(timeout=HANG_S) == 0
    assert server.stop() == 0
