"""`rookery workspace`, and what all commands share (D-04)."""

from __future__ import annotations

from pathlib import Path

import pytest

from rookery.access.commands.command_context import get_operator
from rookery.access.errors import NameTaken, Unauthorised
from rookery.kernel.errors import NotFound
from tests.access.commands.command_line import CommandLine


def test_a_workspace_is_shown_renamed_and_deleted_with_its_keys(cli: CommandLine) -> None:
    """D-04: --dry-run tells what would go; off a terminal only --yes does it."""
    made = cli.run_object("agent-keys", "create", "--name", "rook", "--preset", "planner")
    cli.call(made["key"], times=2)
    cli.run_object("workspace", "create", "other")
    shown = cli.run_object("workspace", "show", "nest")
    assert (shown["workspace_id"], shown["name"], shown["keys"], shown["calls"]) == (1, "nest", 1, 2)
    assert cli.run_object("workspace", "rename", "nest", "home")["workspace_id"] == 1
    assert isinstance(cli.run("workspace", "rename", "home", "other").exception, NameTaken)
    would = cli.run_object("workspace", "delete", "home", "--dry-run")
    assert (would["name"], would["keys"], would["deleted"]) == ("home", 1, False)
    assert cli.run("workspace", "delete", "home").exit_code == 2
    assert cli.admission_error(made["key"]) is None

    assert cli.run_object("workspace", "delete", "home", "--yes")["deleted"] is True
    assert cli.admission_error(made["key"]) is Unauthorised
    assert [row[1] for row in cli.run_table("workspace", "list")] == ["other"]


def test_with_several_workspaces_one_must_be_named(cli: CommandLine) -> None:
    """D-04: by name or number."""
    other = cli.run_object("workspace", "create", "other")

    assert cli.run("keys", "list").exit_code == 2
    assert cli.run("keys", "create", "--name", "key", "--scope", "*", "--workspace", str(other["workspace_id"])).exit_code == 0
    assert len(cli.run_table("keys", "list", "--workspace", "other")) == 1
    assert cli.run_table("keys", "list", "--workspace", "nest") == []


def test_a_name_that_is_anothers_number_is_not_guessed_at(cli: CommandLine) -> None:
    """D-04: what destroys never takes the one for the other."""
    cli.run_object("workspace", "create", "1")

    assert cli.run("workspace", "delete", "1", "--yes").exit_code == 2
    assert cli.run_object("workspace", "show", "nest")["workspace_id"] == 1
    assert cli.run_object("workspace", "show", "2")["name"] == "1"


def test_without_a_workspace_init_is_named(data_dir: Path) -> None:
    """D-04: the message says what to do."""
    result = CommandLine(data_dir).run("keys", "list")

    assert result.exit_code == 2
    assert "rookery init" in result.output


@pytest.mark.parametrize("arguments", [["delete", "nowhere", "--yes"], ["show", "9"], ["rename", "nowhere", "x"]])
def test_an_unknown_workspace_is_exit_code_1(cli: CommandLine, arguments: list[str]) -> None:
    """Issue 14: a thing that is not found is exit code 1 everywhere; D-04."""
    result = cli.run("workspace", *arguments)

    assert (result.exit_code, type(result.exception)) == (1, NotFound)
    assert "in this workspace" not in str(result.exception)


def test_a_missing_name_of_a_workspace_is_exit_code_2(cli: CommandLine) -> None:
    """D-04: a usage error, and nothing done."""
    assert cli.run("workspace", "rename", "nest").exit_code == 2


def test_plain_output_has_a_line_a_thing(cli: CommandLine) -> None:
    """D-04: in a pipe, no table is drawn; the plaintext is shown once."""
    assert "plaintext_key" in cli.run("keys", "create", "--name", "key", "--scope", "*", "--tool-limit", "web/*=3").stdout
    assert cli.run_table("keys", "list")[0][1] == "key"
    assert [row[1] for row in cli.run_table("agent-keys", "create", "--name", "rook", "--preset", "agent", "--count", "2")] == [
        "rook 1",
        "rook 2",
    ]
    assert {"rook-1", "rook-2"} == {row[2] for row in cli.run_table("agent-keys", "list")}
    assert "nest2" in cli.run("workspace", "create", "nest2").stdout


@pytest.mark.usefixtures("wide_terminal")
def test_on_a_terminal_lists_are_tables(cli: CommandLine) -> None:
    """D-04: names are shown as they are, whatever markup they look like."""
    cli.run("workspace", "create", "[red]loud")

    shown = cli.run("workspace", "list").stdout
    assert "[red]loud" in shown
    assert "created_at" in shown


def test_a_narrow_terminal_shows_what_can_be_copied_whole(cli: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    """D-04: an id that is cut off is worth nothing; columns that find no room are left out."""
    key_id = str(cli.run_object("keys", "create", "--name", "a name", "--preset", "agent")["id"])
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "70")
    shown = cli.run("keys", "list").stdout

    assert key_id in shown
    assert "a name" in shown
    assert "last_used_at" not in shown


@pytest.mark.usefixtures("wide_terminal")
def test_a_table_of_very_many_says_that_there_are_more(cli: CommandLine) -> None:
    """D-04: a terminal shows at most a thousand rows; a pipe receives all."""
    for name in ("a", "b"):
        cli.run("agent-keys", "create", "--name", name, "--preset", "reader", "--count", "600")
    result = cli.run("agent-keys", "list")

    assert result.stdout.count("Active") == 1000
    assert "first 1,000" in result.stderr


def test_every_answer_is_for_people_too(cli: CommandLine) -> None:
    """D-04: without --json, a field a line."""
    key = str(cli.run_object("keys", "create", "--name", "key", "--scope", "*")["id"])
    agent = str(cli.run_object("agent-keys", "create", "--name", "rook", "--preset", "agent")["id"])
    commands = [["keys", "show", key], ["agent-keys", "show", agent], ["keys", "delete", key, "--yes"], ["workspace", "show", "nest"]]

    for command in commands:
        result = cli.run(*command)
        assert (result.exit_code, result.stdout.splitlines()[0].split()[0].removeprefix("workspace_")) == (0, "id")
    several = cli.run("agent-keys", "create", "--name", "two", "--preset", "agent", "--count", "2", "--json")
    assert several.stdout.startswith("[{")


def test_whoever_sits_there_is_named_in_the_audit_log(cli: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    """D-29: by their login, of which only Unicode is kept, since entries are hashed as UTF-8."""
    monkeypatch.setenv("LOGNAME", "ada\udcff")
    assert get_operator().name == "ada?"
    cli.run_object("keys", "create", "--name", "key", "--scope", "*")

    assert cli.run_list("audit", "list", "--limit", "1")[0]["actor"] == {
        "kind": "operator",
        "id": None,
        "name": "ada?",
        "address": None,
        "request_id": None,
    }
