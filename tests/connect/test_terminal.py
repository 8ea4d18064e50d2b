"""`rookery connect` on a terminal shows the set-up and offers to write it."""

from __future__ import annotations

import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from tests.deadlines import HANG_S
from tests.processes import get_environment


@pytest.mark.parametrize(("answer", "is_written"), [(b"y\n", True), (b"n\n", False), (b"\n", False)])
def test_on_a_terminal_it_asks_before_it_writes(tmp_path: Path, answer: bytes, is_written: bool) -> None:
    """The answer is no unless the user agrees. In a pipe nothing is asked, as the other tests show."""
    environment = get_environment() | {"HOME": str(tmp_path), "ROOKERY_KEY": "the key itself"}
    command = [sys.executable, "-m", "rookery", "--data-dir", str(tmp_path / "data"), "connect", "cursor"]
    controller, terminal = pty.openpty()
    try:
        os.write(controller, answer)
        process = subprocess.Popen(command, cwd=tmp_path, env=environment, stdin=terminal, stdout=terminal, stderr=subprocess.PIPE)
        _, error = process.communicate(timeout=HANG_S)
    finally:
        os.close(controller)
        os.close(terminal)

    assert process.returncode == 0, error
    assert f"Write it to {tmp_path}/.cursor/mcp.json?" in error.decode()
    assert (tmp_path / ".cursor" / "mcp.json").exists() is is_written
