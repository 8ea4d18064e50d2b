"""`rookery workspace`, and what all commands have in common."""

from __future__ import annotations

from pathlib import Path

import pytest

from rookery.access.errors import NameTaken, Unauthorised
from rookery.access.operator import get_operator
from rookery.kernel.errors import NotFound
from tests.access.commands.command_line import CommandLine


def test_a_workspace_is_shown_renamed_and_deleted_with_its_keys(cli: CommandLine) -> None:
    """--dry-run shows what would be deleted. Without a terminal --yes is required."""
    key = cli.run_object("agent-keys", "create", "--name", "rook", "--preset", "planner")
    cli.call(key["key"], times=2)
    cli.run_object("workspace", "create", "other")
    output = cli.run_object("workspace", "show", "nest")
    assert (output["workspace_id"], output["name"], output["keys"], output["calls"]) == (1, "nest", 1, 2)
    assert cli.run_object("workspace", "rename", "nest", "home")["workspace_id"] == 1
    assert isinstance(cli.run("workspace", "rename", "home", "other").exception, NameTaken)
    dry_run = cli.run_object("workspace", "delete", "home", "--dry-run")
    assert (dry_run["name"], dry_run["keys"], dry_run["deleted"]) == ("home", 1, False)
    assert cli.run("workspace", "delete", "home").exit_code == 2
    assert cli.admission_error(key["key"]) is None

    assert cli.run_object("workspace", "delete", "home", "--yes")["deleted"] is True
    assert cli.admission_error(key["key"]) is Unauthorised
    assert [row[1] for row in cli.run_table("workspace", "list")] == ["other"]


def test_with_several_workspaces_a_command_must_name_one(cli: CommandLine) -> None:
    """By name or number."""
    other = cli.run_object("workspace", "create", "other")

    assert cli.run("keys", "list").exit_code == 2
    assert cli.run("keys", "create", "--name", "key", "--scope", "*", "--workspace", str(other["workspace_id"])).exit_code == 0
    assert len(cli.run_table("keys", "list", "--workspace", "other")) == 1
    assert cli.run_table("keys", "list", "--workspace", "nest") == []


def test_a_name_that_is_the_number_of_another_workspace_is_rejected(cli: CommandLine) -> None:
    """A destructive command never confuses the two."""
    cli.run_object("workspace", "create", "1")

    assert cli.run("workspace", "delete", "1", "--yes").exit_code == 2
    assert cli.run_object("workspace", "show", "nest")["workspace_id"] == 1
    assert cli.run_object("workspace", "show", "2")["name"] == "1"


def test_without_a_workspace_the_error_names_init(data_dir: Path) -> None:
    """The message says what to do."""
    result = CommandLine(data_dir).run("keys", "list")

    assert result.exit_code == 2
    assert "rookery init" in result.output


@pytest.mark.parametrize("arguments", [["delete", "nowhere", "--yes"], ["show", "9"], ["rename", "nowhere", "x"]])
def test_an_unknown_workspace_is_exit_code_1(cli: CommandLine, arguments: list[str]) -> None:
    """An object that is not found is exit code 1 everywhere."""
    result = cli.run("workspace", *arguments)

    assert (result.exit_code, type(result.exception)) == (1, NotFound)
    assert "in this workspace" not in str(result.exception)


def test_a_missing_workspace_name_is_exit_code_2(cli: CommandLine) -> None:
    """A usage error, and nothing is changed."""
    assert cli.run("workspace", "rename", "nest").exit_code == 2


def test_plain_output_has_one_line_per_object(cli: CommandLine) -> None:
    """A pipe gets no table; the plaintext is printed once."""
    assert "plaintext_key" in cli.run("keys", "create", "--name", "key", "--scope", "*", "--tool-limit", "web/*=3").stdout
    assert cli.run_table("keys", "list")[0][1] == "key"
    assert [row[1] for row in cli.run_table("agent-keys", "create", "--name", "rook", "--preset", "agent", "--count", "2")] == [
        "rook 1",
        "rook 2",
    ]
    assert {"rook-1", "rook-2"} == {row[2] for row in cli.run_table("agent-keys", "list")}
    assert "nest2" in cli.run("workspace", "create", "nest2").stdout


@pytest.mark.usefixtures("wide_terminal")
def test_a_terminal_shows_lists_as_tables(cli: CommandLine) -> None:
    """Names are printed as they are, even if they look like markup."""
    cli.run("workspace", "create", "[red]loud")

    output = cli.run("workspace", "list").stdout
    assert "[red]loud" in output
    assert "created_at" in output


def test_a_narrow_terminal_shows_complete_ids(cli: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    """A truncated id is useless; columns without room are omitted."""
    key_id = str(cli.run_object("keys", "create", "--name", "a name", "--preset", "agent")["id"])
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "70")
    output = cli.run("keys", "list").stdout

    assert key_id in output
    assert "a name" in output
    assert "last_used_at" not in output


@pytest.mark.usefixtures("wide_terminal")
def test_a_long_table_is_truncated_with_a_notice(cli: CommandLine) -> None:
    """A terminal shows at most a thousand rows; a pipe gets all."""
    for name in ("a", "b"):
        cli.run("agent-keys", "create", "--name", name, "--preset", "reader", "--count", "600")
    result = cli.run("agent-keys", "list")

    assert result.stdout.count("Active") == 1000
    assert "first 1,000" in result.stderr


def test_every_command_has_readable_output(cli: CommandLine) -> None:
    """Without --json, one field per line."""
    key = str(cli.run_object("keys", "create", "--name", "key", "--scope", "*")["id"])
    agent = str(cli.run_object("agent-keys", "create", "--name", "rook", "--preset", "agent")["id"])
    commands = [["keys", "show", key], ["agent-keys", "show", agent], ["keys", "delete", key, "--yes"], ["workspace", "show", "nest"]]

    for command in commands:
        result = cli.run(*command)
        assert (result.exit_code, result.stdout.splitlines()[0].split()[0].removeprefix("workspace_")) == (0, "id")
    several = cli.run("agent-keys", "create", "--name", "two", "--preset", "agent", "--count", "2", "--json")
    assert several.stdout.startswith("[{")


def test_the_audit_log_names_the_operator(cli: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the login name, without invalid Unicode, since entries are hashed as UTF-8."""
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
