"""The process that builds IVF files, and how it ends."""

from __future__ import annotations

import contextlib
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Generator
from pathlib import Path
from typing import ParamSpec

import pytest

from rookery.engines.vectors import ivf_build
from rookery.engines.vectors.ivf_build import run_build
from rookery.engines.vectors.ivf_file import IvfFolder
from tests.deadlines import HANG_S
from tests.engines.conftest import find_ids, make_embedded
from tests.engines.ivf import OpenIndex, build_ivf_file, make_build_request

P = ParamSpec("P")


async def test_a_workspace_emptied_during_the_build_has_no_ivf_file(
    open_vectors: OpenIndex, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the file would never be deleted."""
    await open_vectors().put([make_embedded("a")])

    def empty_after(seal: Callable[P, None]) -> Callable[P, None]:
        def write_and_empty(*args: P.args, **options: P.kwargs) -> None:
            seal(*args, **options)
            with contextlib.closing(sqlite3.connect(tmp_path / "vectors.db")) as connection:
                connection.executescript("DELETE FROM chunk; DELETE FROM entry;")

        return write_and_empty

    monkeypatch.setattr(IvfFolder, "write", empty_after(IvfFolder.write))

    assert build_ivf_file(tmp_path) == tmp_path


async def test_a_build_fails_if_its_process_cannot_be_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A build that lacks memory or files is retried after a minute, not at each search."""
    monkeypatch.setattr(sys, "executable", str(tmp_path / "nothing"))

    assert not await run_build(make_build_request(tmp_path), poll_s=0.01)


async def test_one_process_at_a_time_builds_in_a_folder_and_ends_with_its_parent(open_vectors: OpenIndex, tmp_path: Path) -> None:
    """Processes share a data folder; a killed one leaves no build process and no partial file."""
    await open_vectors().put([make_embedded("a")])
    (tmp_path / "vectors.lists").mkdir()
    (tmp_path / "vectors.lists" / "1-x-9.new").touch()
    command = [sys.executable, "-m", "rookery.engines.vectors.ivf_build"]

    def run(request_line: bytes) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(command, input=request_line, capture_output=True, check=False, timeout=HANG_S)

    with ivf_build.lock_folder(tmp_path / "vectors.lists"):
        busy_process = subprocess.Popen(command, stdin=subprocess.PIPE)
        assert busy_process.stdin is not None
        busy_process.stdin.write(make_build_request(tmp_path).to_json_line())
        busy_process.stdin.flush()
        assert busy_process.wait(50) == 3
        busy_process.stdin.close()
    assert run(b"").returncode != 0
    assert list((tmp_path / "vectors.lists").glob("*.lists")) == []
    waiting_process = subprocess.Popen(command, stdin=subprocess.PIPE)
    assert waiting_process.stdin is not None
    waiting_process.stdin.write(make_build_request(tmp_path).to_json_line())
    waiting_process.stdin.flush()
    assert waiting_process.wait(50) == 0
    waiting_process.stdin.close()
    assert sorted(path.suffix for path in (tmp_path / "vectors.lists").iterdir()) == ["", ".lists"]


@contextlib.contextmanager
def signal_build(folder: Path, number: signal.Signals) -> Generator[subprocess.Popen[bytes]]:
    """Start a build and send it a signal while it writes. Its return code is 0 if it ended before that."""
    lists = folder / "vectors.lists"
    shutil.rmtree(lists, ignore_errors=True)
    lists.mkdir()
    with subprocess.Popen([sys.executable, "-m", "rookery.engines.vectors.ivf_build"], stdin=subprocess.PIPE) as process:
        assert process.stdin is not None
        process.stdin.write(make_build_request(folder).to_json_line())
        process.stdin.flush()
        while not any(lists.glob("*.new")) and process.poll() is None:
            pass  # the files are written within milliseconds
        process.send_signal(number)
        yield process


def kill_build(folder: Path) -> bool:
    """Start a build and kill it while it writes. Return False if it ended before that."""
    with signal_build(folder, signal.SIGKILL) as process:
        pass
    return process.returncode == -signal.SIGKILL


async def test_what_is_erased_during_a_build_is_in_no_file(open_vectors: OpenIndex, tmp_path: Path) -> None:
    """A build that read a memory before its deletion deletes what it wrote, because the erasure is over."""
    ids = [f"m{number:04}" for number in range(3000)]
    index = open_vectors()
    await index.put([make_embedded(memory_id) for memory_id in ids])

    with signal_build(tmp_path, signal.SIGSTOP) as process:
        await index.drop(1, [ids[0]])
        await index.erase()
        process.send_signal(signal.SIGCONT)
        assert process.wait(HANG_S) == 0

    files = [path for path in (tmp_path / "vectors.lists").rglob("*") if path.is_file()]
    assert [path.name for path in files if ids[0].encode() in path.read_bytes()] == []
    assert await find_ids(open_vectors(), limit=5000) == ids[1:]


async def test_a_killed_build_loses_nothing(open_vectors: OpenIndex, tmp_path: Path) -> None:
    """Searches find all memories after a kill in the middle of a build, and the next build succeeds."""
    ids = [f"m{number:04}" for number in range(3000)]
    await open_vectors().put([make_embedded(memory_id) for memory_id in ids])
    assert any(kill_build(tmp_path) for _ in range(5))

    index = open_vectors()
    assert await find_ids(index, limit=5000) == ids
    assert index.listed_rows == 0
    assert await run_build(make_build_request(tmp_path), poll_s=0.01)
    listed_index = open_vectors()

    assert await find_ids(listed_index, limit=5000) == ids
    assert listed_index.listed_rows == 3000
    assert not any((tmp_path / "vectors.lists").glob("*.new"))
