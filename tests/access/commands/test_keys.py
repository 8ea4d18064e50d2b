"""`rookery keys`, run as a command."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from rookery.access.errors import KeyInGrace, KeySuspended, Unauthorised
from rookery.access.scopes import PRESETS
from rookery.kernel.errors import NotFound, ValidationFailed
from tests.access.commands.command_line import CommandLine


def create(cli: CommandLine, *options: str) -> dict[str, object]:
    """Create an API key with all scopes, unless *options* grant something."""
    default_options = () if "--scope" in options or "--preset" in options else ("--scope", "*")
    return cli.run_object("keys", "create", "--name", "key", *default_options, *options)


def test_an_api_key_is_created_listed_shown_rotated_and_deleted(cli: CommandLine) -> None:
    """The fields of a key; plaintext_key only at creation and rotation."""
    key = create(cli, "--scope", "brain:read,mcp:*", "--scope", "platform:metrics", "--tier", "free", "--org", "acme")
    settings = key["scopes"], key["rate_limit_tier"], key["environment"], key["orgs"]
    assert settings == (["brain:read", "mcp:*", "platform:metrics"], "free", "live", ["acme"])
    assert cli.admission_error(key["plaintext_key"]) is None
    output = cli.run_object("keys", "show", str(key["id"]))
    assert "plaintext_key" not in output
    use = {"call_count": 1, "last_used_at": output["last_used_at"], "last_used_ip": "192.0.2.1"}
    assert output == {**{name: key[name] for name in output}, **use}
    assert cli.run_list("keys", "list") == [output]

    successor = cli.run_object("keys", "rotate", str(key["id"]), "--grace-period-hours", "0")
    assert cli.admission_error(key["plaintext_key"]) is Unauthorised
    assert cli.admission_error(successor["plaintext_key"]) is None
    assert cli.run_object("keys", "delete", str(successor["id"]), "--dry-run")["deleted"] is False
    assert cli.admission_error(successor["plaintext_key"]) is None
    assert cli.run_object("keys", "delete", str(successor["id"]), "--yes")["deleted"] is True
    assert cli.admission_error(successor["plaintext_key"]) is Unauthorised


def test_each_setting_of_an_api_key_can_be_changed_alone(cli: CommandLine) -> None:
    """Only the settings of the options change, with effect on the next request."""
    key = create(cli, "--server", "git", "--tool", "git/*", "--org", "acme", "--project", "site", "--tool-limit", "git/*=3")
    key_id = str(key["id"])
    settings = cli.run_object("keys", "show", key_id)
    changes: list[tuple[list[str], dict[str, object]]] = [
        (["--name", "other"], {"name": "other"}),
        (["--preset", "reader", "--scope", "mcp:write"], {"scopes": [*PRESETS["reader"], "mcp:write"]}),
        (["--tier", "business"], {"rate_limit_tier": "business"}),
        (["--expires-at", "2099-01-31"], {"expires_at": "2099-01-31T00:00:00.000000Z"}),
        (["--never"], {"expires_at": None}),
        (["--agent-id", "rook"], {"agent_id": "rook"}),
        (["--no-agent-id"], {"agent_id": None}),
        (["--server", "web,time"], {"servers": ["time", "web"]}),
        (["--server", ""], {"servers": []}),
        (["--all-servers", "--all-tools"], {"servers": None, "tools": None}),
        (["--all-orgs", "--all-projects"], {"orgs": None, "projects": None}),
        (["--no-tool-limits"], {"tool_limits": {}}),
    ]

    for options, expected in changes:
        settings |= expected
        assert cli.run_object("keys", "change", key_id, *options) == settings
    assert cli.run_object("keys", "show", key_id) == settings
    assert cli.admission_error(key["plaintext_key"]) is None


def test_an_api_key_is_suspended_and_resumed(cli: CommandLine) -> None:
    """Either kind can be; a suspended key is rejected."""
    key = create(cli)
    key_id = str(key["id"])
    assert cli.run_object("keys", "suspend", key_id)["suspended_at"] is not None
    assert cli.admission_error(key["plaintext_key"]) is KeySuspended
    assert [row[0] for row in cli.run_table("keys", "list", "--status", "revoked")] == [key_id]
    assert cli.run_object("keys", "resume", key_id)["suspended_at"] is None
    assert cli.admission_error(key["plaintext_key"]) is None
    assert cli.run_table("keys", "list", "--status", "revoked") == []


def test_the_expiry_of_an_api_key_is_replaced_and_removed(cli: CommandLine) -> None:
    """A new expiry makes an expired key active again."""
    key = create(cli, "--expires-at", "2026-11-22")
    key_id = str(key["id"])
    cli.platform.clock.advance(days=2)
    assert cli.admission_error(key["plaintext_key"]) is not None
    assert cli.run_object("keys", "extend", key_id, "--expires-at", "2099-01-31")["expires_at"] == "2099-01-31T00:00:00.000000Z"
    assert cli.admission_error(key["plaintext_key"]) is None
    assert cli.run_object("keys", "extend", key_id, "--never")["expires_at"] is None


def test_a_key_in_its_grace_period_works_and_cannot_be_rotated(cli: CommandLine) -> None:
    """Both keys authenticate in the grace period."""
    key = create(cli)
    successor = cli.run_object("keys", "rotate", str(key["id"]), "--grace-period-hours", "48")
    assert cli.admission_error(key["plaintext_key"]) is None
    assert cli.admission_error(successor["plaintext_key"]) is None
    assert cli.run_object("keys", "show", str(key["id"]))["delete_after"] == "2026-11-23T09:30:00.000000Z"
    assert isinstance(cli.run("keys", "rotate", str(key["id"])).exception, KeyInGrace)


def test_many_api_keys_are_written_to_a_private_file(cli: CommandLine, tmp_path: Path) -> None:
    """--count N --out FILE, mode 0600. No key is printed, and all are admitted."""
    path = tmp_path / "keys.jsonl"
    command = ["keys", "create", "--name", "ci", "--preset", "planner", "--count", "20", "--out", str(path)]
    result = cli.run(*command)
    new_keys = [json.loads(row) for row in path.read_text(encoding="utf-8").splitlines()]

    assert (result.exit_code, result.stdout, stat.S_IMODE(path.stat().st_mode)) == (0, "", 0o600)
    assert [new_key["name"] for new_key in new_keys] == [f"ci {number}" for number in range(1, 21)]
    assert new_keys[0]["scopes"] == list(PRESETS["planner"])
    assert all(cli.admission_error(new_key["plaintext_key"]) is None for new_key in new_keys)
    assert cli.run(*command).exit_code == 2
    assert len(cli.run_table("keys", "list")) == 20


def test_several_api_keys_are_created_all_or_none(cli: CommandLine) -> None:
    """If the second key cannot be created, the first is not stored either."""
    result = cli.run("keys", "create", "--name", "x" * 98, "--scope", "*", "--count", "10")  # "… 10" is too long, "… 9" is not

    assert isinstance(result.exception, ValidationFailed)
    assert cli.run_table("keys", "list") == []


def test_a_successor_can_be_written_to_a_file(cli: CommandLine, tmp_path: Path) -> None:
    """A secret need not be printed on a screen; `-` is the standard output."""
    key_id, path = str(create(cli)["id"]), tmp_path / "next.json"
    assert cli.run("keys", "rotate", key_id, "--out", str(path)).stdout == ""
    successor = json.loads(path.read_text(encoding="utf-8"))
    assert cli.admission_error(successor["plaintext_key"]) is None
    piped = json.loads(cli.run("keys", "rotate", str(successor["id"]), "--out", "-").stdout)
    assert cli.admission_error(piped["plaintext_key"]) is None


def test_lists_filter_by_environment_and_read_all_pages(cli: CommandLine) -> None:
    """Live and test keys; more keys than a page, each once, newest first."""
    create(cli, "--environment", "test")
    cli.run("agent-keys", "create", "--name", "a", "--preset", "reader", "--count", "1000")
    cli.run("agent-keys", "create", "--name", "b", "--preset", "reader", "--count", "5")
    create(cli)

    assert [row[3] for row in cli.run_table("keys", "list")] == ["live", "test"]
    assert [row[3] for row in cli.run_table("keys", "list", "--environment", "test")] == ["test"]
    ids = [str(listed["id"]) for listed in cli.run_list("agent-keys", "list")]
    assert ids == sorted(set(ids), reverse=True)
    assert len(ids) == 1005


def test_prune_shows_the_keys_to_delete(cli: CommandLine) -> None:
    """--dry-run, --yes, all workspaces or one."""
    cli.run_object("keys", "rotate", str(create(cli)["id"]), "--grace-period-hours", "0")

    assert cli.run_object("keys", "prune", "--dry-run")["deleted"] == 0
    assert cli.run("keys", "prune").exit_code == 2
    assert cli.run_object("keys", "prune", "--yes", "--workspace", "nest")["deleted"] == 1
    assert cli.run("keys", "prune").exit_code == 0


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["create", "--name", "x"],
        ["create", "--name", "x", "--preset", "king"],
        ["create", "--name", "x", "--scope", "*", "--tier", "gold"],
        ["create", "--name", "x", "--scope", "*", "--expires-at", "soon"],
        ["create", "--name", "x", "--scope", "*", "--expires-at", "99999999d"],
        ["create", "--name", "x", "--scope", "*", "--tool-limit", "web"],
        ["create", "--name", "x", "--scope", "*", "--tool-limit", f"web={'9' * 5000}"],
        ["create", "--name", "x", "--scope", "*", "--count", "0"],
        ["create", "--name", "x", "--scope", "*", "--out", "nowhere/at/all"],
        ["change", "x"],
        ["change", "x", "--never", "--expires-at", "1d"],
        ["change", "x", "--agent-id", "a", "--no-agent-id"],
        ["change", "x", "--server", "a", "--all-servers"],
        ["change", "x", "--tool-limit", "a=1", "--no-tool-limits"],
        ["extend", "x"],
        ["extend", "x", "--never", "--expires-at", "1d"],
        ["list", "--status", "gone"],
        ["list", "--environment", "both"],
        ["prune", "--expired-days", "99999"],
    ],
)
def test_invalid_options_of_api_keys_are_exit_code_2(cli: CommandLine, arguments: list[str]) -> None:
    """A usage error, and nothing is changed."""
    assert cli.run("keys", *arguments).exit_code == 2
    assert cli.run_table("keys", "list") == []


@pytest.mark.parametrize("group", ["keys", "agent-keys"])
def test_an_unknown_key_is_exit_code_1(cli: CommandLine, group: str) -> None:
    """The command line prints an error as one line, with exit code 1."""
    commands = [["show"], ["rotate"], ["delete"], ["suspend"], ["resume"], ["extend", "--never"], ["change", "--name", "x"], ["usage"]]
    for name, *options in commands:
        result = cli.run(group, name, "no-such-key", *options)
        assert (result.exit_code, type(result.exception)) == (1, NotFound), name
