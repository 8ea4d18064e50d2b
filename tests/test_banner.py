"""The start message of `rookery serve`, on a terminal and without one."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import sys
import time
from pathlib import Path

from tests import key_leaks
from tests.deadlines import HANG_S
from tests.processes import run_server

_PAGES = ("Console", "Set up a client", "Tool servers", "The API")


def _read_banner(folder: Path) -> str:
    """Start a server on a pseudo-terminal, and return its output until it serves."""
    master, slave = pty.openpty()
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ROOKERY_")}
    environment |= {"ROOKERY_MIN_FREE_DISK_MB": "0", "ROOKERY_BCRYPT_COST": "4", "TERM": "dumb", "COLUMNS": "400"}
    command = [sys.executable, "-m", "rookery", "--data-dir", str(folder), "serve", "--port", "0"]
    with subprocess.Popen(command, env=environment, stdin=slave, stdout=slave, stderr=subprocess.DEVNULL) as process:
        os.close(slave)
        output, deadline = b"", time.monotonic() + HANG_S
        try:
            while b"Ctrl-C stops the server." not in output and time.monotonic() < deadline and select.select([master], [], [], HANG_S)[0]:
                output += os.read(master, 65536)
        finally:
            process.terminate()
            process.wait(HANG_S)
            os.close(master)
    text = output.decode().replace("\r\n", "\n")
    key_leaks.DETECTOR.add_keys_from(text)
    return text


def test_a_terminal_shows_the_keys_once_and_the_next_steps(tmp_path: Path) -> None:
    """The banner has address, keys, example requests and pages; the second start names the command that creates a key."""
    first, second = _read_banner(tmp_path / "data"), _read_banner(tmp_path / "data")

    for banner in (first, second):
        assert banner.startswith("Rookery serves on http://127.0.0.1:")
        assert [title for title in _PAGES if f"\n{title} " in banner] == list(_PAGES)
        assert banner.rstrip().endswith("Ctrl-C stops the server.")
    assert ("sk_live_" in first, "/v1/brain/recall" in first, "These keys are shown only once" in first) == (True, True, True)
    assert ("sk_live_" in second, "Another key" in second, "keys create --name NAME" in second) == (False, True, True)
    assert not (tmp_path / "data" / "first-run.json").exists()


def test_without_a_terminal_the_keys_are_only_in_a_file(tmp_path: Path) -> None:
    """The output for a service manager has the address and the file, and no key."""
    with run_server(tmp_path / "data") as server:
        assert server.url.startswith("http://127.0.0.1:")
        assert "Copy the keys, then delete that file." in server.stdout.readline()
        assert (tmp_path / "data" / "first-run.json").stat().st_mode & 0o777 == 0o600
