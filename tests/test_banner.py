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
from tests.processes import run_server

_LONGEST_S = 60.0


def _banner(folder: Path) -> str:
    """Start a server on a terminal of its own, and return what it shows until it serves."""
    ours, theirs = pty.openpty()
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ROOKERY_")}
    environment |= {"ROOKERY_MIN_FREE_DISK_MB": "0", "ROOKERY_BCRYPT_COST": "4", "TERM": "dumb", "COLUMNS": "400"}
    command = [sys.executable, "-m", "rookery", "--data-dir", str(folder), "serve", "--port", "0"]
    with subprocess.Popen(command, env=environment, stdin=theirs, stdout=theirs, stderr=subprocess.DEVNULL) as process:
        os.close(theirs)
        shown, deadline = b"", time.monotonic() + _LONGEST_S
        try:
            while b"Ctrl-C stops the server." not in shown and time.monotonic() < deadline and select.select([ours], [], [], _LONGEST_S)[0]:
                shown += os.read(ours, 65536)
        finally:
            process.terminate()
            process.wait(30)
            os.close(ours)
    text = shown.decode().replace("\r\n", "\n")
    key_leaks.DETECTOR.add_keys_from(text)
    return text


def test_a_terminal_is_shown_the_keys_once_and_where_to_go_next(tmp_path: Path) -> None:
    """Issue 14: address, keys, requests to try, pages and how to stop; the second start has no keys, and says how to make one; D-28."""
    first, second = _banner(tmp_path / "data"), _banner(tmp_path / "data")

    for shown in (first, second):
        assert shown.startswith("Rookery serves on http://127.0.0.1:")
        assert [title for title in ("Set up a client", "Tool servers", "The API") if title in shown] == [
            "Set up a client",
            "Tool servers",
            "The API",
        ]
        assert shown.rstrip().endswith("Ctrl-C stops the server.")
    assert ("sk_live_" in first, "/v1/brain/recall" in first, "These keys are shown only once" in first) == (True, True, True)
    assert ("sk_live_" in second, "Another key" in second, "keys create --name NAME" in second) == (False, True, True)
    assert not (tmp_path / "data" / "first-run.json").exists()


def test_off_a_terminal_the_keys_are_in_a_file_alone(tmp_path: Path) -> None:
    """Issue 14: what a service manager logs has the address and the file, and no key; D-28."""
    with run_server(tmp_path / "data") as server:
        assert server.url.startswith("http://127.0.0.1:")
        assert server.process.stdout is not None
        assert "Copy the keys, then delete that file." in server.process.stdout.readline()
        assert (tmp_path / "data" / "first-run.json").stat().st_mode & 0o777 == 0o600
