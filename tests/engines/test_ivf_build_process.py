"""The process that builds lists, and how it ends."""

from __future__ import annotations

import contextlib
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import ParamSpec

import pytest

from rookery.engines.vectors import ivf_build, ivf_file
from rookery.engines.vectors.build_process import BuildOutcome, BuildProcess
from tests.engines.conftest import vectored
from tests.engines.ivf import OpenIndex, build_ivf_file, make_build_request

P = ParamSpec("P")


async def test_a_workspace_that_is_emptied_while_its_lists_are_built_leaves_none(
    open_vectors: OpenIndex, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spec 3.4: otherwise they would never be deleted."""
    await open_vectors().put([vectored("a")])

    def then_empty(seal: Callable[P, None]) -> Callable[P, None]:
        def both(*args: P.args, **options: P.kwargs) -> None:
            seal(*args, **options)
            with contextlib.closing(sqlite3.connect(tmp_path / "vectors.db")) as connection:
                connection.executescript("DELETE FROM chunk; DELETE FROM entry;")

        return both

    monkeypatch.setattr(ivf_build, "write_ivf_file", then_empty(ivf_file.write_ivf_file))

    assert build_ivf_file(tmp_path) == tmp_path


async def test_a_process_that_cannot_be_started_is_a_build_that_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No memory, no more files: it is tried again in a minute, and not at each question."""
    monkeypatch.setattr(sys, "executable", str(tmp_path / "nothing"))

    assert await BuildProcess().run(make_build_request(tmp_path)) is BuildOutcome.FAILED


async def test_one_at_a_time_builds_in_a_folder_and_none_outlives_who_asked(open_vectors: OpenIndex, tmp_path: Path) -> None:
    """Several processes share a data folder (D-01); one that is killed leaves nothing at work, and nothing half."""
    await open_vectors().put([vectored("a")])
    (tmp_path / "vectors.lists").mkdir()
    (tmp_path / "vectors.lists" / "1-x-9.new").touch()
    command = [sys.executable, "-m", "rookery.engines.vectors.ivf_build"]

    def run(order: bytes) -> subprocess.CompletedProcess[bytes]:
        return subprocess.run(command, input=order, capture_output=True, check=False, timeout=50)

    with ivf_build.lock_folder(tmp_path / "vectors.lists"):
        held = subprocess.Popen(command, stdin=subprocess.PIPE)
        assert held.stdin is not None
        held.stdin.write(make_build_request(tmp_path).to_json_line() + b"\n")
        held.stdin.flush()
        assert held.wait(50) == ivf_build.EXIT_BUSY
        held.stdin.close()
    assert run(b"").returncode != 0
    assert list((tmp_path / "vectors.lists").glob("*.lists")) == []
    waiting = subprocess.Popen(command, stdin=subprocess.PIPE)
    assert waiting.stdin is not None
    waiting.stdin.write(make_build_request(tmp_path).to_json_line() + b"\n")
    waiting.stdin.flush()
    assert waiting.wait(50) == 0
    waiting.stdin.close()
    assert sorted(path.suffix for path in (tmp_path / "vectors.lists").iterdir()) == ["", ".lists"]
