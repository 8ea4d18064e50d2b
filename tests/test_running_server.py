"""One settings file for the server and its commands, and commands that find the running server."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

from rookery.kernel.data_folder import SERVER_FILE
from rookery.kernel.running_server import find_server
from tests.conftest import lend_model
from tests.processes import run_rookery, run_server


def _run_rookery(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a command with the data folder and no other settings of the server."""
    return run_rookery(*arguments, data_dir=folder, environment={})


def test_commands_find_the_server_and_its_settings_in_the_data_folder(tmp_path: Path, model_folder: Path) -> None:
    """Server and commands read rookery.toml; connect and doctor find the server."""
    folder = tmp_path / "home"
    lend_model(model_folder, folder)
    (folder / "rookery.toml").write_text('egress_allow = ["127.0.0.1/32"]\nbcrypt_cost = 4\n', encoding="utf-8")
    with run_server(folder) as server:
        connected = _run_rookery(folder, "connect", "claude-code")
        written = _run_rookery(folder, "connect", "claude-code", "--write", "--file", str(tmp_path / "mcp.json"))
        added = _run_rookery(folder, "webhooks", "add", "http://127.0.0.1:9/", "--event", "*", "--json")
        findings = json.loads(_run_rookery(folder, "doctor", "--json").stdout)

        assert f"{server.url}/mcp" in connected.stdout, connected.stderr
        assert written.returncode == 0, written.stderr
        assert f"{server.url}/mcp" in (tmp_path / "mcp.json").read_text(encoding="utf-8")
        assert added.returncode == 0, added.stderr
        assert [finding["says"] for finding in findings if finding["about"] == "server"] == [
            f"runs at {server.url}, process {server.process.pid}"
        ]
        content = (folder / SERVER_FILE).read_bytes()
        assert server.stop() == 0
    assert not (folder / SERVER_FILE).exists()

    (folder / SERVER_FILE).write_bytes(content)
    without_server = _run_rookery(folder, "connect", "claude-code")
    assert "http://127.0.0.1:8400/mcp" in without_server.stdout
    assert "No Rookery runs" in without_server.stderr


def test_an_invalid_server_file_is_ignored(tmp_path: Path) -> None:
    """Invalid and outdated server files are ignored."""
    for content in (
        "[" * 100_000,
        "",
        "[]",
        "{}",
        '{"url": 1, "pid": 1}',
        '{"url": "http://127.0.0.1:1", "pid": 1}',
        '{"url": "nowhere", "pid": 1}',
    ):
        (tmp_path / SERVER_FILE).write_text(content, encoding="utf-8")

        assert find_server(tmp_path) is None


def test_a_fifo_as_server_file_blocks_no_command(tmp_path: Path) -> None:
    """`doctor` and `connect` ignore a FIFO in place of the file."""
    os.mkfifo(tmp_path / SERVER_FILE)

    connected = _run_rookery(tmp_path, "connect", "claude-code")

    assert find_server(tmp_path) is None
    assert "http://127.0.0.1:8400/mcp" in connected.stdout


def test_a_server_behind_a_proxy_prints_both_addresses(tmp_path: Path, model_folder: Path) -> None:
    """With API_URL the start prints the public addresses and the one it listens on."""
    folder = tmp_path / "home"
    lend_model(model_folder, folder)
    with run_server(folder, api_url="https://api.example.org", mcp_url="https://mcp.example.org") as server:
        assert server.url.startswith("http://127.0.0.1:")
        lines = [server.stdout.readline() for _ in range(2)]

        assert lines[-1] == "Clients reach it at https://api.example.org, https://mcp.example.org\n"


def test_the_settings_file_cannot_name_another_data_folder(tmp_path: Path) -> None:
    """The file is read from the folder of --data-dir, so it cannot set data_dir."""
    (tmp_path / "rookery.toml").write_text('data_dir = "/elsewhere"\n', encoding="utf-8")

    process = _run_rookery(tmp_path, "keys", "list")

    assert process.returncode == 1
    assert process.stderr.splitlines()[0].startswith("error: data_dir cannot be set in")
