"""`rookery connect`: adds an entry to the configuration files of clients and keeps the rest (D-35)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rookery.kernel.errors import RookeryError
from rookery.tools.discovery.client_files import CLIENT_FILES, ClientFileBroken, add_entry
from rookery.tools.discovery.client_guides import SetupTarget, list_setups
from tests.deadlines import HANG_S
from tests.tools.commands.command_line import CommandLine

TARGET = SetupTarget(name="rookery", url="http://h/mcp", api="http://h/api/v1/mcp")
NAMES = st.text(alphabet="abcdef_-", min_size=1, max_size=8).filter(lambda name: name != "rookery")
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5), lambda values: st.lists(values, max_size=3), max_leaves=5
)


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project folder as working directory, with its own home folder."""
    folder = tmp_path / "project"
    folder.mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.setenv("HOME", str(folder / "home"))
    monkeypatch.setenv("ROOKERY_KEY", "the key itself")
    return folder


@pytest.fixture
def cli(data_dir: Path) -> CommandLine:
    """A command line for a server on another port."""
    command_line = CommandLine(data_dir)
    command_line.settings = replace(command_line.settings, port=9123)
    return command_line


def test_it_prints_the_set_up_and_opens_no_store(tmp_path: Path) -> None:
    """D-35, D-04: standard output has only the text, with the configured address; no store is created, and nothing is warned of."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ROOKERY_")}
    environment |= {"ROOKERY_PORT": "9123", "ROOKERY_KEY": "the key itself"}
    command = [sys.executable, "-m", "rookery", "--data-dir", str(tmp_path / "data"), "connect", "claude-code"]

    process = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=HANG_S, check=True)

    assert json.loads(process.stdout)["mcpServers"]["rookery"]["url"] == "http://127.0.0.1:9123/mcp"
    assert "the key itself" not in process.stdout + process.stderr
    assert "warning" not in process.stderr
    assert list(tmp_path.iterdir()) == []


def test_it_prints_the_set_up_of_one_server_or_of_search_mode(cli: CommandLine) -> None:
    """D-35, D-01: the configured address has the path of the server or the mode of the search."""
    cli.settings = replace(cli.settings, mcp_url="https://agents.example.org")

    one_server = cast("dict[str, str]", cli.run_json("connect", "vscode", "--server", "time", "--json"))
    search = cli.run("connect", "codex", "--search")

    assert '"https://agents.example.org/mcp/time"' in one_server["text"]
    assert tomllib.loads(search.stdout)["mcp_servers"]["rookery"]["url"] == "https://agents.example.org/mcp?mode=search"


def test_it_writes_into_each_clients_file_and_keeps_the_rest(cli: CommandLine, project: Path) -> None:
    """D-35: a second write changes nothing; other servers, TOML comments and the file mode stay; no file has the key."""
    (project / ".mcp.json").write_text('{"mcpServers": {"mine": {"command": "x"}}, "other": 1}')
    (project / ".mcp.json").chmod(0o640)
    codex = project / "home" / ".codex" / "config.toml"
    codex.parent.mkdir(parents=True)
    codex.write_text('model = "m"  # mine\n\n[mcp_servers.rookery]\nurl = "http://old"\n\n[mcp_servers.mine]\ncommand = "x"\n')

    for client in CLIENT_FILES:
        for _ in range(2):
            assert cli.run("connect", client, "--write").exit_code == 0

    claude = json.loads((project / ".mcp.json").read_text())
    assert (set(claude["mcpServers"]), claude["other"]) == ({"mine", "rookery"}, 1)
    assert (project / ".mcp.json").stat().st_mode & 0o777 == 0o640
    assert json.loads((project / ".cursor/mcp.json").read_text())["mcpServers"]["rookery"]["url"] == "http://127.0.0.1:9123/mcp"
    assert len(json.loads((project / ".vscode/mcp.json").read_text())["inputs"]) == 1
    home = project / "home"
    windsurf = json.loads((home / ".codeium/windsurf/mcp_config.json").read_text())["mcpServers"]["rookery"]
    gemini = json.loads((home / ".gemini/settings.json").read_text())["mcpServers"]["rookery"]
    assert windsurf == {"serverUrl": "http://127.0.0.1:9123/mcp", "headers": {"Authorization": "Bearer ${env:ROOKERY_KEY}"}}
    assert gemini == {"httpUrl": "http://127.0.0.1:9123/mcp", "headers": {"Authorization": "Bearer ${ROOKERY_KEY}"}}
    tables = tomllib.loads(codex.read_text())
    assert tables["mcp_servers"]["rookery"] == {"url": "http://127.0.0.1:9123/mcp", "bearer_token_env_var": "ROOKERY_KEY"}
    assert (tables["mcp_servers"]["mine"], "# mine" in codex.read_text()) == ({"command": "x"}, True)
    for file in project.rglob("*"):
        assert not file.is_file() or "the key itself" not in file.read_text()


def test_a_server_that_servers_json_lacks_gets_a_notice_with_the_nearest_one(cli: CommandLine) -> None:
    """Issue 14: a mistyped `--server` gave a configuration that fails in the client."""
    mistyped = cli.run("connect", "cursor", "--server", "brian")
    built_in = cli.run("connect", "cursor", "--server", "brain")

    assert (mistyped.exit_code, built_in.exit_code) == (0, 0)
    assert "servers.json has no server 'brian'. Did you mean 'brain'?" in " ".join(mistyped.stderr.split())
    assert "has no server" not in built_in.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("nope",), 2, "Unknown client"),
        (("curl", "--write"), 2, "no file"),
        (("zed", "--write"), 2, "stores the key itself in ~/.config/zed/settings.json"),
        (("cursor", "--server", "a/b"), 2, "is not a valid server id"),
        (("cursor", "--server", "a", "--search"), 2, "either --server or --search"),
        (("cursor", "--file", "commented.json", "--write"), 1, "by hand"),
        (("cursor", "--file", "listed.json", "--write"), 1, "by hand"),
        (("codex", "--file", "dotted.toml", "--write"), 1, "by hand"),
    ],
)
def test_an_impossible_write_is_reported_and_changes_nothing(
    cli: CommandLine, project: Path, arguments: tuple[str, ...], code: int, message: str
) -> None:
    """D-35, D-04: exit code 2 for wrong usage, 1 for a file that cannot be edited; the file stays as it is."""
    files = {
        "commented.json": '{"mcpServers": {}} // mine',
        "listed.json": '{"mcpServers": []}',
        "dotted.toml": 'mcp_servers.rookery.url = "http://mine"\n',
    }
    for name, text in files.items():
        (project / name).write_text(text)

    result = cli.run("connect", *arguments)

    error = result.exception.message if isinstance(result.exception, RookeryError) else " ".join(result.stderr.replace("│", "").split())
    assert (result.exit_code, message in error) == (code, True), error
    assert {name: (project / name).read_text() for name in files} == files


def test_printed_and_written_files_are_the_same() -> None:
    """D-35: files that contain the key itself are printed and never written."""
    files = {setup.client: setup.file for setup in list_setups(TARGET) if setup.file}

    assert {client: file for client, file in files.items() if client in CLIENT_FILES} == CLIENT_FILES
    assert [setup.client for setup in list_setups(TARGET) if "YOUR_KEY" in setup.text] == [
        client for client in files if client not in CLIENT_FILES
    ]


@given(
    others=st.dictionaries(NAMES, st.dictionaries(NAMES, VALUES, max_size=3), max_size=4), more=st.dictionaries(NAMES, VALUES, max_size=3)
)
def test_other_content_of_a_file_is_kept(others: dict[str, object], more: dict[str, object]) -> None:
    """D-35: other content stays, and adding again changes nothing."""
    text = json.dumps({**more, "mcpServers": others})

    once = add_entry("cursor", text, TARGET)

    assert json.loads(once) == {**more, "mcpServers": {**others, "rookery": json.loads(once)["mcpServers"]["rookery"]}}
    assert add_entry("cursor", once, TARGET) == once


@given(text=st.text(max_size=60))
def test_a_file_of_any_form_is_edited_or_rejected(text: str) -> None:
    """D-16, D-35: no other error occurs, and the client can read the result."""
    for client in CLIENT_FILES:
        try:
            edited = add_entry(client, text, TARGET)
        except ClientFileBroken:
            continue
        parsed = tomllib.loads(edited) if client == "codex" else json.loads(edited)
        assert TARGET.url in json.dumps(parsed, default=str)
