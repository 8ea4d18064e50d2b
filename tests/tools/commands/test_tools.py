"""`rookery tools` (D-33)."""

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


def stopped(cli: CommandLine) -> list[tuple[object, object, object]]:
    """Return what is stopped."""
    listed = cast("list[dict[str, object]]", cli.run_json("tools", "stops", "--json"))
    return [(each["workspace"], each["server"], each["tool"]) for each in listed]


def test_tools_are_stopped_and_go_on_by_the_same_words(nest: CommandLine) -> None:
    """D-33: a workspace, a server, a tool; of one workspace or of all."""
    nest.file.write_text('{"mcpServers": {"git": {"command": "git"}}}', encoding="utf-8")
    for words in (["stop"], ["stop", "git"], ["stop", "git/push"], ["stop", "--all-workspaces", "git"]):
        assert nest.run("tools", *words).exit_code == 0
    assert stopped(nest) == [("all", "git", "all"), (1, "all", "all"), (1, "git", "all"), (1, "git", "push")]

    still = cast("dict[str, object]", nest.run_json("tools", "start", "git/push", "--json"))
    assert (still["started"], len(cast("list[object]", still["still_stopped_by"]))) == (True, 3)
    for words in (["start"], ["start", "git"], ["start", "--all-workspaces", "git"]):
        assert nest.run("tools", *words).exit_code == 0
    assert stopped(nest) == []
    assert nest.run("tools", "start").exit_code == 1


def test_the_workspace_must_be_clear(nest: CommandLine) -> None:
    """D-04: with several workspaces it must be named (wrong usage is 2); an unknown or partial name is 1."""
    AccessLine(nest.settings.data_dir).run_object("workspace", "create", "other")

    codes = [
        nest.run("tools", "stop", *more).exit_code
        for more in ([], ["--workspace", "none"], ["git/"], ["--workspace", "nest", "--all-workspaces"], ["--workspace", "other"])
    ]

    assert (codes, stopped(nest)) == ([2, 1, 2, 2, 0], [(2, "all", "all")])


def test_a_brake_on_what_is_not_there_says_so(nest: CommandLine) -> None:
    """D-33: a name that was typed wrong must not look like a server that is stopped."""
    nest.file.write_text('{"mcpServers": {"git": {"command": "git"}}}', encoding="utf-8")

    tried = {name: nest.run("tools", "stop", name) for name in ("git", "brain", "gti", "nope/x", "all")}

    assert {name: result.exit_code for name, result in tried.items()} == {"git": 0, "brain": 0, "gti": 1, "nope/x": 1, "all": 1}
    assert "'git'" in str(tried["gti"].exception)
    assert "omit the name" in str(tried["all"].exception)
    assert stopped(nest) == [(1, "brain", "all"), (1, "git", "all")]


def test_a_server_called_all_is_not_all_servers(nest: CommandLine) -> None:
    """Issue 14: a stop of everything and one of a server that is called "all" are told apart in the list; D-33."""
    nest.file.write_text('{"mcpServers": {"all": {"command": "x"}}}', encoding="utf-8")

    for words in (["stop"], ["stop", "all"]):
        assert nest.run("tools", *words).exit_code == 0

    assert stopped(nest) == [(1, "all", "all"), (1, "'all'", "all")]
