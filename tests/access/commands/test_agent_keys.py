"""`rookery agent-keys`, run as a command."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from rookery.access.errors import KeyRevoked, KeySuspended
from rookery.access.scopes import PRESETS
from rookery.kernel.errors import ValidationFailed
from tests.access.commands.command_line import CommandLine


def create(cli: CommandLine, *options: str) -> dict[str, object]:
    """Create an agent key that may read, unless *options* grant something."""
    default_options = () if "--permission" in options or "--preset" in options else ("--permission", "plans.read")
    return cli.run_object("agent-keys", "create", "--name", "Rook", *default_options, *options)


def test_an_agent_key_is_created_changed_and_revoked(cli: CommandLine) -> None:
    """The key is shown only at creation; permissions, expiry and addresses can be changed."""
    key = create(cli, "--preset", "reader", "--permission", "plans.write", "--rate-limit", "9", "--expires-at", "30d")
    key_id = str(key["id"])
    settings = key["agent_id"], key["permissions"], key["rate_limit"], key["status"]
    assert settings == ("rook", [*PRESETS["reader"], "plans.write"], 9, "Active")
    assert cli.admission_error(key["key"]) is None
    assert "key" not in cli.run_object("agent-keys", "show", key_id)
    assert cli.run_object("agent-keys", "permissions", key_id, "--permission", "plans.read")["permissions"] == ["plans.read"]
    assert cli.run_object("agent-keys", "permissions", key_id)["permissions"] == ["plans.read"]
    assert cli.run_object("agent-keys", "extend", key_id, "--never")["expires_at"] is None
    assert cli.run_object("agent-keys", "extend", key_id, "--expires-at", "2099-01-31")["expires_at"] == "2099-01-31T00:00:00.000000Z"
    assert cli.run_object("agent-keys", "ips", key_id, "--add", "192.0.2.1,10.0.0.0/8", "--on")["ip_list"] == ["192.0.2.1", "10.0.0.0/8"]
    assert cli.run_object("agent-keys", "ips", key_id, "--remove", "10.0.0.0/8")["ip_restriction"] is True
    assert cli.run_object("agent-keys", "revoke", key_id, "--dry-run")["status"] == "Active"
    assert cli.run_object("agent-keys", "revoke", key_id, "--yes")["status"] == "Revoked"
    assert cli.admission_error(key["key"]) is KeyRevoked


@pytest.mark.parametrize("option", ["--add", "--file"])
def test_addresses_set_by_the_command_line_are_enforced(cli: CommandLine, tmp_path: Path, option: str) -> None:
    """`agent-keys ips --add` did not enforce. A line on standard error reports it, and --off stores without enforcing."""
    key_id = str(create(cli)["id"])
    file = tmp_path / "ips"
    file.write_text("192.0.2.1\n", encoding="utf-8")
    value = "192.0.2.1" if option == "--add" else str(file)

    assert cli.run_object("agent-keys", "ips", key_id, option, value, "--off")["ip_restriction"] is False
    result = cli.run("agent-keys", "ips", key_id, option, value, "--json")

    assert json.loads(result.stdout)["ip_restriction"] is True
    assert "now enforced: the key works only from 192.0.2.1" in result.stderr
    assert cli.run("agent-keys", "ips", key_id, option, value, "--json").stderr == "", "it was enforced before"


def test_each_setting_of_an_agent_key_can_be_changed_but_not_its_agent(cli: CommandLine) -> None:
    """Renaming does not change the agent_id."""
    key = create(cli, "--server", "git", "--tool-limit", "git/*=3")
    key_id = str(key["id"])
    settings = cli.run_object("agent-keys", "show", key_id)
    changes: list[tuple[list[str], dict[str, object]]] = [
        (["--name", "Raven"], {"name": "Raven", "agent_id": "rook"}),
        (["--rate-limit", "7"], {"rate_limit": 7}),
        (["--permission", "plans.write"], {"permissions": ["plans.write"]}),
        (["--tool", "web/*", "--all-servers", "--no-tool-limits"], {"tools": ["web/*"], "servers": None, "tool_limits": {}}),
        (["--expires-at", "2099-01-31"], {"expires_at": "2099-01-31T00:00:00.000000Z"}),
    ]

    for options, expected in changes:
        settings |= expected
        assert cli.run_object("agent-keys", "change", key_id, *options) == settings
    assert cli.run("agent-keys", "change", key_id, "--agent-id", "raven").exit_code == 2


def test_an_agent_key_is_suspended_rotated_pruned_and_deleted(cli: CommandLine) -> None:
    """Agent keys rotate with a grace period as API keys do, and keep their agent."""
    key = create(cli)
    key_id = str(key["id"])
    assert cli.run_object("agent-keys", "suspend", key_id)["status"] == "Revoked"
    assert cli.admission_error(key["key"]) is KeySuspended
    assert cli.run_object("agent-keys", "resume", key_id)["status"] == "Active"
    successor = cli.run_object("agent-keys", "rotate", key_id)
    assert successor["agent_id"] == key["agent_id"]
    assert [cli.admission_error(new_key["key"]) for new_key in (key, successor)] == [None, None]
    cli.platform.clock.advance(hours=25)
    assert [listed["id"] for listed in cli.run_list("agent-keys", "list")] == [successor["id"]]
    assert cli.run_object("agent-keys", "prune", "--yes")["deleted"] == 1
    assert cli.run("agent-keys", "delete", str(successor["id"])).exit_code == 2
    assert cli.run_object("agent-keys", "delete", str(successor["id"]), "--yes")["deleted"] is True
    assert cli.run_list("agent-keys", "list") == []


@pytest.mark.parametrize(
    ("question", "is_granted"),
    [
        (["--has", "plans.read"], True),
        (["--has", "plans:read"], True),
        (["--has", "plans.write"], False),
        (["--any", "plans.write", "--any", "plans.read"], True),
        (["--any", "plans.write,phases.write"], False),
        (["--all", "plans.read,brain:read"], True),
        (["--all", "plans.read,plans.write"], False),
    ],
)
def test_permissions_of_a_key_can_be_checked(cli: CommandLine, question: list[str], is_granted: bool) -> None:
    """Has one, any, all. The exit codes are 0 for yes and 1 for no; wildcards count."""
    key_id = str(create(cli, "--permission", "plans.read,brain:*")["id"])
    result = cli.run("agent-keys", "permissions", key_id, *question)
    as_json = cli.run("agent-keys", "permissions", key_id, *question, "--json")

    assert (result.exit_code, result.stdout) == ((0, "yes\n") if is_granted else (1, "no\n"))
    assert (as_json.exit_code, json.loads(as_json.stdout)["granted"]) == (result.exit_code, is_granted)


def test_missing_permissions_are_named(cli: CommandLine) -> None:
    """All missing ones, with their canonical names."""
    key_id = str(create(cli)["id"])
    output = json.loads(cli.run("agent-keys", "permissions", key_id, "--all", "plans:read,notify.send", "--json").stdout)

    assert output == {"id": key_id, "all": ["plans.read", "notify:send"], "granted": False, "missing": ["notify:send"]}


def test_addresses_are_read_from_a_file_or_standard_input(cli: CommandLine, tmp_path: Path) -> None:
    """One per line, with # comments. With one invalid line nothing is stored."""
    key_id = str(create(cli, "--ip", "192.0.2.9")["id"])
    path = tmp_path / "ips.txt"
    path.write_text("# office\n192.0.2.1\n", encoding="utf-8")
    assert cli.run_object("agent-keys", "ips", key_id, "--file", str(path))["ip_list"] == ["192.0.2.1"]
    assert cli.run("agent-keys", "ips", key_id, "--file", "-", text="198.51.100.0/24\n").exit_code == 0
    path.write_text("203.0.113.1\nnonsense\n", encoding="utf-8")

    assert isinstance(cli.run("agent-keys", "ips", key_id, "--file", str(path)).exception, ValidationFailed)
    assert cli.run_object("agent-keys", "show", key_id)["ip_list"] == ["198.51.100.0/24"]
    path.write_bytes(b"\xff\xfe")
    assert cli.run("agent-keys", "ips", key_id, "--file", str(path)).exit_code == 2
    assert cli.run_object("agent-keys", "ips", key_id, "--off")["ip_restriction"] is False


def test_many_agent_keys_are_written_to_a_private_file(cli: CommandLine, tmp_path: Path) -> None:
    """--count N --out FILE, mode 0600. An existing file is never overwritten, and then no key is created."""
    path = tmp_path / "keys.jsonl"
    command = ["agent-keys", "create", "--name", "rook", "--preset", "agent", "--count", "3", "--out", str(path)]
    result = cli.run(*command)
    new_keys = [json.loads(row) for row in path.read_text(encoding="utf-8").splitlines()]

    assert (result.exit_code, result.stdout) == (0, "")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [new_key["agent_id"] for new_key in new_keys] == ["rook-1", "rook-2", "rook-3"]
    assert all(cli.admission_error(new_key["key"]) is None for new_key in new_keys)
    assert cli.run(*command).exit_code == 2
    assert len(cli.run_table("agent-keys", "list")) == 3


def test_no_file_is_left_if_no_key_was_created(cli: CommandLine, tmp_path: Path) -> None:
    """An empty file would look like lost keys."""
    path = tmp_path / "keys.jsonl"
    result = cli.run("agent-keys", "create", "--name", "rook", "--permission", "nonsense", "--out", str(path))

    assert isinstance(result.exception, ValidationFailed)
    assert not path.exists()


@pytest.mark.parametrize(
    "arguments",
    [
        ["create", "--name", "x"],
        ["create", "--name", "x", "--preset", "king"],
        ["create", "--name", "x", "--preset", "agent", "--count", "2", "--agent-id", "x"],
        ["change", "x"],
        ["extend", "x"],
        ["extend", "x", "--never", "--expires-at", "1d"],
        ["permissions", "x", "--has", "plans.read", "--permission", "plans.write"],
        ["permissions", "x", "--has", "plans.read", "--any", "plans.write"],
        ["permissions", "x", "--has", "plans.read,plans.write"],
        ["permissions", "x", "--has", "plan.read"],
        ["permissions", "x", "--has", ""],
        ["permissions", "x", "--any", ""],
        ["permissions", "x", "--all", "plans.*"],
        ["ips", "x", "--file", "a", "--add", "b"],
        ["ips", "x", "--file", "nowhere/at/all"],
    ],
)
def test_invalid_options_of_agent_keys_are_exit_code_2(cli: CommandLine, arguments: list[str]) -> None:
    """A usage error, and nothing is changed."""
    assert cli.run("agent-keys", *arguments).exit_code == 2
    assert cli.run_table("agent-keys", "list") == []
