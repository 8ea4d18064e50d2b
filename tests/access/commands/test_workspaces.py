"""`rookery workspace`, and what all commands share (D-04)."""

from __future__ import annotations

from pathlib import Path

import pytest

from rookery.access.commands.command_context import get_operator
from rookery.access.errors import NameTaken, Unauthorised
from rookery.kernel.errors import NotFound
from tests.access.commands.line import Line


def test_a_workspace_is_shown_renamed_and_deleted_with_its_keys(line: Line) -> None:
    """D-04: --dry-run tells what would go; off a terminal only --yes does it."""
    made = line.json("agent-keys", "create", "--name", "rook", "--preset", "planner")
    line.call(made["key"], times=2)
    line.json("workspace", "create", "other")
    shown = line.json("workspace", "show", "nest")
    assert (shown["workspace_id"], shown["name"], shown["keys"], shown["calls"]) == (1, "nest", 1, 2)
    assert line.json("workspace", "rename", "nest", "home")["workspace_id"] == 1
    assert isinstance(line.run("workspace", "rename", "home", "other").exception, NameTaken)
    would = line.json("workspace", "delete", "home", "--dry-run")
    assert (would["name"], would["keys"], would["deleted"]) == ("home", 1, False)
    assert line.run("workspace", "delete", "home").exit_code == 2
    assert line.refuses(made["key"]) is None

    assert line.json("workspace", "delete", "home", "--yes")["deleted"] is True
    assert line.refuses(made["key"]) is Unauthorised
    assert [row[1] for row in line.lines("workspace", "list")] == ["other"]


def test_with_several_workspaces_one_must_be_named(line: Line) -> None:
    """D-04: by name or number."""
    other = line.json("workspace", "create", "other")

    assert line.run("keys", "list").exit_code == 2
    assert line.run("keys", "create", "--name", "key", "--scope", "*", "--workspace", str(other["workspace_id"])).exit_code == 0
    assert len(line.lines("keys", "list", "--workspace", "other")) == 1
    assert line.lines("keys", "list", "--workspace", "nest") == []


def test_a_name_that_is_anothers_number_is_not_guessed_at(line: Line) -> None:
    """D-04: what destroys never takes the one for the other."""
    line.json("workspace", "create", "1")

    assert line.run("workspace", "delete", "1", "--yes").exit_code == 2
    assert line.json("workspace", "show", "nest")["workspace_id"] == 1
    assert line.json("workspace", "show", "2")["name"] == "1"


def test_without_a_workspace_init_is_named(data_dir: Path) -> None:
    """D-04: the message says what to do."""
    result = Line(data_dir).run("keys", "list")

    assert result.exit_code == 2
    assert "rookery init" in result.output


@pytest.mark.parametrize("arguments", [["delete", "nowhere", "--yes"], ["show", "9"], ["rename", "nowhere", "x"]])
def test_an_unknown_workspace_is_exit_code_1(line: Line, arguments: list[str]) -> None:
    """Issue 14: a thing that is not found is exit code 1 everywhere; D-04."""
    result = line.run("workspace", *arguments)

    assert (result.exit_code, type(result.exception)) == (1, NotFound)
    assert "in this workspace" not in str(result.exception)


def test_a_missing_name_of_a_workspace_is_exit_code_2(line: Line) -> None:
    """D-04: a usage error, and nothing done."""
    assert line.run("workspace", "rename", "nest").exit_code == 2


def test_plain_output_has_a_line_a_thing(line: Line) -> None:
    """D-04: in a pipe, no table is drawn; the plaintext is shown once."""
    assert "plaintext_key" in line.run("keys", "create", "--name", "key", "--scope", "*", "--tool-limit", "web/*=3").stdout
    assert line.lines("keys", "list")[0][1] == "key"
    assert [row[1] for row in line.lines("agent-keys", "create", "--name", "rook", "--preset", "agent", "--count", "2")] == [
        "rook 1",
        "rook 2",
    ]
    assert {"rook-1", "rook-2"} == {row[2] for row in line.lines("agent-keys", "list")}
    assert "nest2" in line.run("workspace", "create", "nest2").stdout


@pytest.mark.usefixtures("wide_terminal")
def test_on_a_terminal_lists_are_tables(line: Line) -> None:
    """D-04: names are shown as they are, whatever markup they look like."""
    line.run("workspace", "create", "[red]loud")

    shown = line.run("workspace", "list").stdout
    assert "[red]loud" in shown
    assert "created_at" in shown


def test_a_narrow_terminal_shows_what_can_be_copied_whole(line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    """D-04: an id that is cut off is worth nothing; columns that find no room are left out."""
    key_id = str(line.json("keys", "create", "--name", "a name", "--preset", "agent")["id"])
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "70")
    shown = line.run("keys", "list").stdout

    assert key_id in shown
    assert "a name" in shown
    assert "last_used_at" not in shown


@pytest.mark.usefixtures("wide_terminal")
def test_a_table_of_very_many_says_that_there_are_more(line: Line) -> None:
    """D-04: nobody reads more than a thousand rows; a pipe gets all."""
    for name in ("a", "b"):
        line.run("agent-keys", "create", "--name", name, "--preset", "reader", "--count", "600")
    result = line.run("agent-keys", "list")

    assert result.stdout.count("Active") == 1000
    assert "first 1,000" in result.stderr


def test_every_answer_is_for_people_too(line: Line) -> None:
    """D-04: without --json, a field a line."""
    key = str(line.json("keys", "create", "--name", "key", "--scope", "*")["id"])
    agent = str(line.json("agent-keys", "create", "--name", "rook", "--preset", "agent")["id"])
    commands = [["keys", "show", key], ["agent-keys", "show", agent], ["keys", "delete", key, "--yes"], ["workspace", "show", "nest"]]

    for command in commands:
        result = line.run(*command)
        assert (result.exit_code, result.stdout.splitlines()[0].split()[0].removeprefix("workspace_")) == (0, "id")
    several = line.run("agent-keys", "create", "--name", "two", "--preset", "agent", "--count", "2", "--json")
    assert several.stdout.startswith("[{")


def test_whoever_sits_there_is_named_in_the_audit_log(line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    """D-29: by their login, of which only Unicode is kept, since entries are hashed as UTF-8."""
    monkeypatch.setenv("LOGNAME", "ada\udcff")
    assert get_operator().name == "ada?"
    line.json("keys", "create", "--name", "key", "--scope", "*")

    assert line.list("audit", "list", "--limit", "1")[0]["actor"] == {
        "kind": "operator",
        "id": None,
        "name": "ada?",
        "address": None,
        "request_id": None,
    }
