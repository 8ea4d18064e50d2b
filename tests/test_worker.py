"""Memories by command, and a worker that indexes them without any server."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import cast

import pytest

from tests.conftest import eventually, lend_model
from tests.processes import Server

pytestmark = pytest.mark.timeout(240)

SETTINGS = {"ROOKERY_BCRYPT_COST": "4", "ROOKERY_MIN_FREE_DISK_MB": "0"}


@pytest.fixture
def folder(tmp_path: Path, model_folder: Path) -> Path:
    """A data folder with a workspace."""
    path = tmp_path / "home"
    lend_model(model_folder, path)
    assert rookery(path, "init").returncode == 0
    return path


def rookery(folder: Path, *arguments: str, text: str | None = None) -> subprocess.CompletedProcess[str]:
    """Type a command, off a terminal."""
    command = [sys.executable, "-m", "rookery", "--data-dir", str(folder), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=SETTINGS, timeout=60, input=text)


def answer(folder: Path, *arguments: str) -> dict[str, object]:
    """Type a command with --json."""
    done = rookery(folder, *arguments, "--json")
    assert done.returncode == 0, done.stderr
    return cast("dict[str, object]", json.loads(done.stdout))


def is_found(folder: Path, query: str) -> bool:
    """Return whether a memory is found by its meaning alone."""
    return bool(answer(folder, "recall", query, "--mode", "semantic")["memories"])


async def test_a_worker_indexes_what_commands_remember(folder: Path) -> None:
    """Issue 14: there is no worker, nor remember, recall or search by command; D-04: it ends cleanly on SIGTERM."""
    stored = rookery(folder, "remember", "-", "--type", "decision", "--org", "acme", "--tag", "release", text="We deploy on Tuesdays.\n")
    assert stored.returncode == 0, stored.stderr
    assert "rookery worker" in stored.stderr
    memory_id = stored.stdout.strip()

    hits = cast("list[dict[str, object]]", answer(folder, "search", "deploy")["hits"])
    assert [(hit["id"], hit["content"], hit["tags"]) for hit in hits] == [(memory_id, "We deploy on Tuesdays.", ["release"])]
    assert not is_found(folder, "When do we ship?")

    command = [sys.executable, "-m", "rookery", "--data-dir", str(folder), "worker"]
    with subprocess.Popen(command, env=SETTINGS, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as worker:
        try:
            await eventually(lambda: is_found(folder, "When do we ship?"), within_s=90)
        finally:
            worker.send_signal(signal.SIGTERM)
        assert worker.wait(timeout=30) == 0

    [line] = rookery(folder, "recall", "When do we ship?").stdout.splitlines()
    assert line.split("\t")[1:] == [memory_id, "decision", "We deploy on Tuesdays."]


def test_what_is_remembered_wrongly_is_a_usage_error(folder: Path) -> None:
    """Issue 14: wrong values are exit code 2 everywhere; D-04, D-40."""
    for arguments in (["remember", " "], ["remember", "x", "--confidence", "2"], ["recall", ""], ["remember", "x", "--type", "No Type"]):
        done = rookery(folder, *arguments)

        assert done.returncode == 2, done.stderr
        assert len(done.stderr.splitlines()) == 1, done.stderr


async def test_a_worker_runs_beside_a_server(folder: Path) -> None:
    """D-01, D-04: several processes share a data folder."""
    (folder / "first-run.json").write_text(json.dumps({"url": "", "api_key": "none"}), encoding="utf-8")
    server = Server(folder)
    command = [sys.executable, "-m", "rookery", "--data-dir", str(folder), "worker"]
    with subprocess.Popen(command, env=SETTINGS, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as worker:
        assert worker.stdout is not None
        assert worker.stdout.readline() == f"Rookery works on {folder}; Ctrl-C stops it.\n"
        assert rookery(folder, "remember", "The rook nests in the elm.").stderr == ""
        await eventually(lambda: is_found(folder, "Where does the bird live?"), within_s=90)
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(timeout=30) == 0
    assert server.stop() == 0
