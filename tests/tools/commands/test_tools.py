"""`rookery tools`."""

from __future__ import annotations

from typing import cast

import pytest

from tests.access.commands.command_line import CommandLine as AccessLine
from tests.tools.commands.command_line import CommandLine


@pytest.fixture
def nest(cli: CommandLine) -> CommandLine:
    """A command line with the workspace `nest`."""
    AccessLine(cli.settings.data_dir).run_object("workspace", "create", "nest")
    return cli


def list_stops(cli: CommandLine) -> list[tuple[object, object, object]]:
    """Return workspace, server and tool of each stop."""
    stops = cast("list[dict[str, object]]", cli.run_json("tools", "stops", "--json"))
    return [(stop["workspace"], stop["server"], stop["tool"]) for stop in stops]


def test_stops_and_starts_take_the_same_arguments(nest: CommandLine) -> None:
    """A stop is of a workspace, a server or a tool, in one workspace or in all."""
    nest.file.write_text('{"mcpServers": {"git": {"command": "git"}}}', encoding="utf-8")
    for arguments in (["stop"], ["stop", "git"], ["stop", "git/push"], ["stop", "--all-workspaces", "git"]):
        assert nest.run("tools", *arguments).exit_code == 0
    assert list_stops(nest) == [("all", "git", "all"), (1, "all", "all"), (1, "git", "all"), (1, "git", "push")]

    output = cast("dict[str, object]", nest.run_json("tools", "start", "git/push", "--json"))
    assert (output["started"], len(cast("list[object]", output["still_stopped_by"]))) == (True, 3)
    for arguments in (["start"], ["start", "git"], ["start", "--all-workspaces", "git"]):
        assert nest.run("tools", *arguments).exit_code == 0
    assert list_stops(nest) == []
    assert nest.run("tools", "start").exit_code == 1


def test_the_workspace_must_be_unambiguous(nest: CommandLine) -> None:
    """With several workspaces it must be named (wrong usage is 2); an unknown or partial name is 1."""
    AccessLine(nest.settings.data_dir).run_object("workspace", "create", "other")

    codes = [
        nest.run("tools", "stop", *options).exit_code
        for options in ([], ["--workspace", "none"], ["git/"], ["--workspace", "nest", "--all-workspaces"], ["--workspace", "other"])
    ]

    assert (codes, list_stops(nest)) == ([2, 1, 2, 2, 0], [(2, "all", "all")])


def test_a_stop_of_an_unknown_server_fails(nest: CommandLine) -> None:
    """A mistyped name must not look like a stopped server."""
    nest.file.write_text('{"mcpServers": {"git": {"command": "git"}}}', encoding="utf-8")

    results = {name: nest.run("tools", "stop", name) for name in ("git", "brain", "gti", "nope/x", "all")}

    assert {name: result.exit_code for name, result in results.items()} == {"git": 0, "brain": 0, "gti": 1, "nope/x": 1, "all": 1}
    assert "'git'" in str(results["gti"].exception)
    assert "omit the name" in str(results["all"].exception)
    assert list_stops(nest) == [(1, "brain", "all"), (1, "git", "all")]


def test_a_server_called_all_is_not_all_servers(nest: CommandLine) -> None:
    """The list distinguishes a stop of everything from one of a server named "all"."""
    nest.file.write_text('{"mcpServers": {"all": {"command": "x"}}}', encoding="utf-8")

    for arguments in (["stop"], ["stop", "all"]):
        assert nest.run("tools", *arguments).exit_code == 0

    assert list_stops(nest) == [(1, "all", "all"), (1, "'all'", "all")]
