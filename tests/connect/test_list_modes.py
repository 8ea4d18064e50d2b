"""All tools or search mode: `rookery connect` chooses by what the list costs the client's model, and says it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import pytest

from tests.connect.command_line import ConnectCommand
from tests.processes import Server, run_server
from tests.tools.makers import make_odd_entry

_SEARCH = "?mode=search"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server whose list of tools is too long for a model."""
    folder = tmp_path_factory.mktemp("server") / "data"
    folder.mkdir()
    (folder / "servers.json").write_text(json.dumps({"mcpServers": {"odd": make_odd_entry("--many")}}), encoding="utf-8")
    with run_server(folder) as running:
        yield running


@pytest.fixture
def command(server: Server, home: Path, project: Path) -> ConnectCommand:
    """The command in the shell of a client whose key is set."""
    return ConnectCommand(server.folder, home, ROOKERY_KEY=server.keys["api_key"])


def read_url(home: Path) -> str:
    """Return the address that Gemini CLI has."""
    settings = json.loads((home / ".gemini" / "settings.json").read_text(encoding="utf-8"))
    return str(settings["mcpServers"]["rookery"]["httpUrl"])


def test_a_client_gets_search_mode_for_a_list_that_its_model_cannot_hold(command: ConnectCommand, home: Path) -> None:
    """The change that --write would make is the same, and --check follows what was written."""
    assert _SEARCH in command.run("gemini", "--write", "--dry-run").stdout
    written = command.run_json("gemini", "--write", "--no-key")
    assert (str(written["url"]).endswith(_SEARCH), read_url(home).endswith(_SEARCH)) == (True, True)
    assert "search mode" in " ".join(cast("list[str]", written["notices"]))

    report = command.run_json("gemini", "--check")

    assert (report["url"], report["tools"]) == (written["url"], 3)
    assert 0 < cast("int", report["tokens"]) < 1000


def test_the_mode_that_a_person_names_stays(command: ConnectCommand, home: Path) -> None:
    """--no-search writes the whole list, and says what it costs. A check names the cost, which is no fault."""
    written = command.run_json("gemini", "--write", "--no-key", "--no-search")
    assert not read_url(home).endswith(_SEARCH)
    assert "tokens in each session" in " ".join(cast("list[str]", written["notices"]))
    report = command.run_json("gemini", "--check")
    assert cast("int", report["tokens"]) > 6000
    findings = cast("list[dict[str, object]]", report["findings"])
    assert ("large_list", False) in [(finding["code"], finding["is_problem"]) for finding in findings]


def test_a_client_that_loads_definitions_itself_gets_all_tools(command: ConnectCommand) -> None:
    """Claude Code searches a list itself, so a search of Rookery would be a second one."""
    written = command.run_json("claude-code", "--write", "--no-key", "--user")

    assert not str(written["url"]).endswith(_SEARCH)
    assert "by its own search" in " ".join(cast("list[str]", written["notices"]))
