"""The operator's commands, run as they are typed (D-04)."""

from __future__ import annotations

import asyncio
import json
import stat
from collections.abc import AsyncGenerator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner, Result

from rookery.access import commands
from rookery.access.errors import KeyRevoked, Unauthorised
from rookery.access.scopes import PRESETS
from rookery.engines.counters import open_counter
from rookery.kernel.db import open_database
from rookery.kernel.errors import NotFound, ValidationFailed
from tests.access.makers import Access, build
from tests.conftest import FakeClock


@dataclass
class Opened:
    """The platform, opened for one command."""

    access: Access


@dataclass
class Platform:
    """What the command line hands every command; opens a store anew each time, as separate processes do."""

    data_dir: Path

    def open(self) -> AbstractAsyncContextManager[Opened]:
        """Open it."""
        return self._open()

    @asynccontextmanager
    async def _open(self) -> AsyncGenerator[Opened]:
        database, counter = open_database("embedded:", data_dir=self.data_dir), open_counter("embedded:", data_dir=self.data_dir)
        access = build(database, counter, FakeClock())
        try:
            yield Opened(access)
        finally:
            await access.close()
            await counter.close()
            await database.close()


class Line:
    """A command line on one data folder."""

    def __init__(self, data_dir: Path) -> None:
        self.platform = Platform(data_dir)
        self.app = typer.Typer()
        commands.register(self.app)

    def run(self, *arguments: str, text: str | None = None) -> Result:
        """Type it."""
        return CliRunner().invoke(self.app, list(arguments), obj=self.platform, input=text)

    def json(self, *arguments: str) -> dict[str, object]:
        """Type it with --json; it must succeed."""
        result = self.run(*arguments, "--json")
        assert result.exit_code == 0, result.output
        found = json.loads(result.stdout)
        return found if isinstance(found, dict) else {"list": found}  # pyright: ignore[reportUnknownVariableType] - JSON

    def refuses(self, token: object) -> type[BaseException] | None:
        """Present a key; return why it was not let in."""

        async def present() -> type[BaseException] | None:
            async with self.platform.open() as opened:
                try:
                    await opened.access.admit(str(token))
                except Unauthorised as error:
                    return type(error)
                return None

        return asyncio.run(present())


@pytest.fixture
def line(data_dir: Path) -> Line:
    """A command line with one workspace."""
    line = Line(data_dir)
    line.json("workspace", "create", "nest")
    return line


def test_an_api_key_is_made_listed_shown_rotated_and_deleted(line: Line) -> None:
    """D-04, D-29: the fields of D-29, plaintext_key at creation and rotation alone."""
    made = line.json(
        "keys",
        "create",
        "--name",
        "reader",
        "--scope",
        "brain:read,mcp:*",
        "--scope",
        "platform:metrics",
        "--tier",
        "free",
        "--org",
        "acme",
    )
    assert (made["scopes"], made["rate_limit_tier"], made["environment"], made["orgs"]) == (
        ["brain:read", "mcp:*", "platform:metrics"],
        "free",
        "live",
        ["acme"],
    )
    assert line.refuses(made["plaintext_key"]) is None
    shown = line.json("keys", "show", str(made["id"]))
    assert "plaintext_key" not in shown
    assert shown == {
        **{name: made[name] for name in shown},
        "call_count": 1,
        "last_used_at": shown["last_used_at"],
        "last_used_ip": "192.0.2.1",
    }
    assert line.json("keys", "list") == {"list": [shown]}

    rotated = line.json("keys", "rotate", str(made["id"]), "--grace-hours", "0")
    assert line.refuses(made["plaintext_key"]) is Unauthorised
    assert line.refuses(rotated["plaintext_key"]) is None
    assert line.json("keys", "delete", str(rotated["id"]), "--dry-run")["deleted"] is False
    assert line.refuses(rotated["plaintext_key"]) is None
    assert line.json("keys", "delete", str(rotated["id"]), "--yes")["deleted"] is True
    assert line.refuses(rotated["plaintext_key"]) is Unauthorised


def test_an_agent_key_is_made_changed_and_revoked(line: Line) -> None:
    """D-04, D-29: key at creation alone; permissions, expiry, addresses can be changed."""
    made = line.json(
        "agent-keys",
        "create",
        "--name",
        "Rook",
        "--preset",
        "reader",
        "--permission",
        "plans.write",
        "--rate-limit",
        "9",
        "--expires-at",
        "30d",
    )
    key_id = str(made["id"])
    assert (made["agent_id"], made["permissions"], made["rate_limit"], made["status"]) == (
        "rook",
        [*PRESETS["reader"], "plans.write"],
        9,
        "Active",
    )
    assert line.refuses(made["key"]) is None
    assert "key" not in line.json("agent-keys", "show", key_id)
    assert line.json("agent-keys", "permissions", key_id, "--permission", "plans.read")["permissions"] == ["plans.read"]
    assert line.json("agent-keys", "permissions", key_id)["permissions"] == ["plans.read"]
    assert line.json("agent-keys", "extend", key_id, "--never")["expires_at"] is None
    assert line.json("agent-keys", "extend", key_id, "--expires-at", "2099-01-31")["expires_at"] == "2099-01-31T00:00:00.000000Z"
    assert line.json("agent-keys", "ips", key_id, "--add", "192.0.2.1,10.0.0.0/8", "--on")["ip_list"] == ["192.0.2.1", "10.0.0.0/8"]
    assert line.json("agent-keys", "ips", key_id, "--remove", "10.0.0.0/8")["ip_restriction"] is True
    assert line.json("agent-keys", "revoke", key_id, "--dry-run")["status"] == "Active"
    assert line.json("agent-keys", "revoke", key_id, "--yes")["status"] == "Revoked"
    assert line.refuses(made["key"]) is KeyRevoked


def test_a_list_of_addresses_is_read_from_a_file_or_the_standard_input(line: Line, tmp_path: Path) -> None:
    """Spec 5.3, D-28: one a line, # comments; one bad line stores nothing."""
    key_id = str(line.json("agent-keys", "create", "--name", "rook", "--preset", "agent", "--ip", "192.0.2.9")["id"])
    path = tmp_path / "ips.txt"
    path.write_text("# office\n192.0.2.1\n", encoding="utf-8")
    assert line.json("agent-keys", "ips", key_id, "--file", str(path))["ip_list"] == ["192.0.2.1"]
    assert line.run("agent-keys", "ips", key_id, "--file", "-", text="198.51.100.0/24\n").exit_code == 0
    path.write_text("203.0.113.1\nnonsense\n", encoding="utf-8")

    assert isinstance(line.run("agent-keys", "ips", key_id, "--file", str(path)).exception, ValidationFailed)
    assert line.json("agent-keys", "show", key_id)["ip_list"] == ["198.51.100.0/24"]


def test_many_agent_keys_go_into_a_file_only_we_may_read(line: Line, tmp_path: Path) -> None:
    """D-04: --count N --out FILE, mode 0600; a file that is there is never written over, and no key is made then."""
    path = tmp_path / "keys.jsonl"
    command = ["agent-keys", "create", "--name", "rook", "--preset", "agent", "--count", "3", "--out", str(path)]
    result = line.run(*command)
    made = [json.loads(row) for row in path.read_text(encoding="utf-8").splitlines()]

    assert (result.exit_code, result.stdout) == (0, "")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [each["agent_id"] for each in made] == ["rook-1", "rook-2", "rook-3"]
    assert all(line.refuses(each["key"]) is None for each in made)
    assert line.run(*command).exit_code == 2
    assert len(line.run("agent-keys", "list").stdout.splitlines()) == 3


def test_a_file_is_not_left_behind_when_no_key_was_made(line: Line, tmp_path: Path) -> None:
    """D-04: an empty file would look like keys that got lost."""
    path = tmp_path / "keys.jsonl"
    result = line.run("agent-keys", "create", "--name", "rook", "--permission", "nonsense", "--out", str(path))

    assert isinstance(result.exception, ValidationFailed)
    assert not path.exists()


def test_prune_says_what_it_would_delete(line: Line) -> None:
    """Spec 5.2, rule 9; D-04: --dry-run, --yes, all workspaces or one."""
    old = line.json("keys", "create", "--name", "old", "--scope", "*")
    line.json("keys", "rotate", str(old["id"]), "--grace-hours", "0")

    assert line.json("keys", "prune", "--dry-run")["deleted"] == 0
    assert line.run("keys", "prune").exit_code == 2
    assert line.json("keys", "prune", "--yes", "--workspace", "nest")["deleted"] == 1
    assert line.run("keys", "prune").exit_code == 0


def test_a_workspace_is_deleted_with_its_keys(line: Line) -> None:
    """D-04: --dry-run tells what would go; off a terminal only --yes does it."""
    made = line.json("agent-keys", "create", "--name", "rook", "--preset", "planner")
    line.json("workspace", "create", "other")
    would = line.json("workspace", "delete", "nest", "--dry-run")
    assert (would["name"], would["keys"], would["deleted"]) == ("nest", 1, False)
    assert line.run("workspace", "delete", "nest").exit_code == 2
    assert line.refuses(made["key"]) is None

    assert line.json("workspace", "delete", "nest", "--yes")["deleted"] is True
    assert line.refuses(made["key"]) is Unauthorised
    assert [row.split("\t")[1] for row in line.run("workspace", "list").stdout.splitlines()] == ["other"]


@pytest.mark.parametrize(
    "arguments",
    [
        ["keys"],
        ["keys", "create", "--name", "x"],
        ["keys", "create", "--name", "x", "--scope", "*", "--tier", "gold"],
        ["keys", "create", "--name", "x", "--scope", "*", "--expires-at", "soon"],
        ["keys", "create", "--name", "x", "--scope", "*", "--tool-limit", "web"],
        ["keys", "create", "--name", "x", "--scope", "*", "--workspace", "nowhere"],
        ["keys", "prune", "--expired-days", "99999"],
        ["agent-keys", "create", "--name", "x"],
        ["agent-keys", "create", "--name", "x", "--preset", "king"],
        ["agent-keys", "create", "--name", "x", "--preset", "agent", "--count", "2", "--agent-id", "x"],
        ["agent-keys", "extend", "x"],
        ["agent-keys", "extend", "x", "--never", "--expires-at", "1d"],
        ["agent-keys", "ips", "x", "--file", "a", "--add", "b"],
        ["agent-keys", "ips", "x", "--file", "nowhere/at/all"],
        ["workspace", "delete", "nowhere", "--yes"],
    ],
)
def test_what_cannot_be_meant_is_exit_code_2(line: Line, arguments: list[str]) -> None:
    """D-04: a usage error, and nothing done."""
    assert line.run(*arguments).exit_code == 2


def test_what_is_not_there_is_exit_code_1(line: Line) -> None:
    """D-04: the command line turns our errors into one line and exit code 1."""
    for command in (["keys", "show"], ["keys", "rotate"], ["keys", "delete"], ["agent-keys", "show"], ["agent-keys", "revoke"]):
        result = line.run(*command, "no-such-key")
        assert (result.exit_code, type(result.exception)) == (1, NotFound)


def test_with_several_workspaces_one_must_be_named(line: Line) -> None:
    """D-04: by name or number."""
    other = line.json("workspace", "create", "other")

    assert line.run("keys", "list").exit_code == 2
    assert line.run("keys", "create", "--name", "key", "--scope", "*", "--workspace", str(other["workspace_id"])).exit_code == 0
    assert len(line.run("keys", "list", "--workspace", "other").stdout.splitlines()) == 1
    assert line.run("keys", "list", "--workspace", "nest").stdout == ""


def test_without_a_workspace_init_is_named(data_dir: Path) -> None:
    """D-04: the message says what to do."""
    result = Line(data_dir).run("keys", "list")

    assert result.exit_code == 2
    assert "rookery init" in result.output


def test_plain_output_has_a_line_a_thing(line: Line) -> None:
    """D-04: in a pipe, no table is drawn; the plaintext is shown once."""
    assert "plaintext_key" in line.run("keys", "create", "--name", "key", "--scope", "*", "--tool-limit", "web/*=3").stdout
    assert "\tkey\t" in line.run("keys", "list").stdout
    assert len(line.run("agent-keys", "create", "--name", "rook", "--preset", "agent", "--count", "2").stdout.splitlines()) == 2
    assert "rook-1" in line.run("agent-keys", "list").stdout
    assert "nest" in line.run("workspace", "create", "nest2").stdout


def test_on_a_terminal_lists_are_tables(line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    """D-04: names are shown as they are, whatever markup they look like."""
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "200")
    line.run("workspace", "create", "[red]loud")

    shown = line.run("workspace", "list").stdout
    assert "[red]loud" in shown
    assert "created_at" in shown


def test_every_answer_is_for_people_too(line: Line) -> None:
    """D-04: without --json, a field a line."""
    key = str(line.json("keys", "create", "--name", "key", "--scope", "*")["id"])
    agent = str(line.json("agent-keys", "create", "--name", "rook", "--preset", "agent")["id"])
    commands_ = [
        ["keys", "show", key],
        ["agent-keys", "show", agent],
        ["keys", "delete", key, "--yes"],
        ["workspace", "delete", "nest", "--dry-run"],
    ]

    for command in commands_:
        result = line.run(*command)
        assert (result.exit_code, result.stdout.splitlines()[0].split()[0].removeprefix("workspace_")) == (0, "id")
    assert line.run("agent-keys", "create", "--name", "two", "--preset", "agent", "--count", "2", "--json").stdout.startswith("[{")
