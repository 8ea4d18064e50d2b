"""One settings file for the server and its commands, and commands that find the running server."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from rookery.kernel.data_folder import SERVER_FILE
from rookery.kernel.running_server import find_server
from tests.conftest import lend_model
from tests.processes import run_server

pytestmark = pytest.mark.timeout(240)


def rookery(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Type a command in a shell that knows nothing of the server but its data folder."""
    command = [sys.executable, "-m", "rookery", "--data-dir", str(folder), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, env={}, timeout=60)


def test_commands_find_the_server_and_its_settings_by_the_data_folder(tmp_path: Path, model_folder: Path) -> None:
    """Issue 14: the command line does not know the server's settings; D-02: rookery.toml is read by both; D-04: connect, doctor."""
    folder = tmp_path / "home"
    lend_model(model_folder, folder)
    (folder / "rookery.toml").write_text('egress_allow = ["127.0.0.1/32"]\nbcrypt_cost = 4\n', encoding="utf-8")
    with run_server(folder) as server:
        shown = rookery(folder, "connect", "claude-code")
        written = rookery(folder, "connect", "claude-code", "--write", "--file", str(tmp_path / "mcp.json"))
        added = rookery(folder, "webhooks", "add", "http://127.0.0.1:9/", "--event", "*", "--json")
        findings = json.loads(rookery(folder, "doctor", "--json").stdout)

        assert f"{server.url}/mcp" in shown.stdout, shown.stderr
        assert written.returncode == 0, written.stderr
        assert f"{server.url}/mcp" in (tmp_path / "mcp.json").read_text(encoding="utf-8")
        assert added.returncode == 0, added.stderr
        assert [each["says"] for each in findings if each["about"] == "server"] == [f"runs at {server.url}, process {server.process.pid}"]
        note = (folder / SERVER_FILE).read_bytes()
        assert server.stop() == 0
    assert not (folder / SERVER_FILE).exists()

    (folder / SERVER_FILE).write_bytes(note)
    left_behind = rookery(folder, "connect", "claude-code")
    assert "http://127.0.0.1:8400/mcp" in left_behind.stdout
    assert "No Rookery runs" in left_behind.stderr


def test_a_broken_note_is_no_server(tmp_path: Path) -> None:
    """Issue 14: stale notes are recognised; D-04."""
    for note in (
        "[" * 100_000,
        "",
        "[]",
        "{}",
        '{"url": 1, "pid": 1}',
        '{"url": "http://127.0.0.1:1", "pid": 1}',
        '{"url": "nowhere", "pid": 1}',
    ):
        (tmp_path / SERVER_FILE).write_text(note, encoding="utf-8")

        assert find_server(tmp_path) is None


def test_a_note_that_is_no_regular_file_blocks_nobody(tmp_path: Path) -> None:
    """Attack 5 on the note: a FIFO in its place made `doctor` and `connect` wait for ever; D-04."""
    os.mkfifo(tmp_path / SERVER_FILE)

    shown = rookery(tmp_path, "connect", "claude-code")

    assert find_server(tmp_path) is None
    assert "http://127.0.0.1:8400/mcp" in shown.stdout


def test_a_server_behind_a_proxy_says_where_it_listens_too(tmp_path: Path, model_folder: Path) -> None:
    """Issue 14: with API_URL set the start said only how it is reached; D-01."""
    folder = tmp_path / "home"
    lend_model(model_folder, folder)
    with run_server(folder, api_url="https://api.example.org", mcp_url="https://mcp.example.org") as server:
        assert server.url.startswith("http://127.0.0.1:")
        assert server.process.stdout is not None
        said = [server.process.stdout.readline() for _ in range(2)]

        assert said[-1] == "Clients reach it at https://api.example.org, https://mcp.example.org\n"


def test_the_settings_file_of_a_data_folder_is_its_own(tmp_path: Path) -> None:
    """D-02: --data-dir is known before the file is looked for; a file in the folder cannot name another folder."""
    (tmp_path / "rookery.toml").write_text('data_dir = "/elsewhere"\n', encoding="utf-8")

    refused = rookery(tmp_path, "keys", "list")

    assert refused.returncode == 1
    assert refused.stderr.splitlines()[0].startswith("error: data_dir cannot be set in")
