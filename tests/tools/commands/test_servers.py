"""`rookery servers` (D-37)."""

from __future__ import annotations

import json
import os
import sys
import threading
from pathlib import Path
from typing import cast

import pytest

from rookery.kernel.errors import RookeryError
from rookery.tools.models import JsonObject
from rookery.tools.servers.file_edits import edit_entries
from rookery.tools.servers.servers_file import InvalidServersFile
from tests import real_servers
from tests.processes import Server
from tests.tools.commands.command_line import CommandLine
from tests.tools.makers import SERVERS

ODD = [sys.executable, "-I", "-S", "-u", str(SERVERS / "odd.py")]

REGISTRY = {
    "name": "io.github.acme/mcp-server-tickets",
    "description": "Tickets of Acme",
    "version": "1.2.0",
    "packages": [
        {
            "registryType": "npm",
            "identifier": "@acme/mcp-server-tickets",
            "version": "1.2.0",
            "transport": {"type": "stdio"},
            "runtimeArguments": [{"type": "named", "name": "-y"}],
            "packageArguments": [
                {"type": "positional", "valueHint": "folder", "isRequired": True, "description": "Where the tickets are"},
                {"type": "named", "name": "--level", "default": "info"},
                {"type": "named", "name": "--optional", "valueHint": "more"},
            ],
            "environmentVariables": [
                {"name": "TICKETS_KEY", "isSecret": True, "isRequired": True, "description": "The key"},
                {"name": "REGION", "default": "eu"},
            ],
        }
    ],
}
REMOTE = {
    "server": {
        "name": "com.acme/search",
        "description": "Search",
        "remotes": [
            {
                "type": "sse",
                "url": "https://{tenant}.acme.example/sse",
                "variables": {"tenant": {"isRequired": True}},
                "headers": [{"name": "Authorization", "value": "Bearer {api_key}", "variables": {"api_key": {"isSecret": True}}}],
            }
        ],
    }
}


def given(path: Path, document: object) -> str:
    """Write a file; return its name."""
    path.write_text(document if isinstance(document, str) else json.dumps(document), encoding="utf-8")
    return str(path)


def added(cli: CommandLine, *arguments: str) -> dict[str, JsonObject]:
    """Add servers; return the entries that were made."""
    answer = cast("dict[str, dict[str, JsonObject]]", cli.run_json("servers", "add", "--json", *arguments))
    assert answer["added"].items() <= cli.read_entries().items()
    return answer["added"]


def test_a_servers_json_of_the_registry_becomes_an_entry(cli: CommandLine, tmp_path: Path) -> None:
    """D-37: what it asks its user for becomes a variable of the environment; no secret is written into the file."""
    answer = cli.run_json("servers", "add", "--json", given(tmp_path / "server.json", REGISTRY))

    assert answer == {
        "added": {
            "tickets": {
                "command": "npx",
                "args": ["-y", "@acme/mcp-server-tickets@1.2.0", "${FOLDER}", "--level", "info"],
                "env": {"TICKETS_KEY": "${TICKETS_KEY}", "REGION": "eu"},
                "name": "mcp-server-tickets",
                "tagline": "Tickets of Acme",
            }
        },
        "needs": {"TICKETS_KEY": "The key", "FOLDER": "Where the tickets are"},
        "file": str(cli.file),
        "dry_run": False,
    }


def test_a_remote_server_of_the_registry_becomes_an_address(cli: CommandLine, tmp_path: Path) -> None:
    """D-37: also as the registry's API has it, under `server`."""
    assert added(cli, given(tmp_path / "server.json", REMOTE))["search"] == {
        "url": "https://${TENANT}.acme.example/sse",
        "type": "sse",
        "headers": {"Authorization": "Bearer ${API_KEY}"},
        "name": "search",
        "tagline": "Search",
    }


@pytest.mark.parametrize(
    ("name", "document"),
    [
        ("claude_desktop_config.json", {"mcpServers": {"a": {"command": "a"}, "b": {"url": "https://b.example/mcp"}}, "theme": "dark"}),
        ("mcp.json", {"servers": {"a": {"command": "a", "type": "stdio"}, "b": {"url": "https://b.example/mcp", "type": "http"}}}),
        ("settings.json", {"mcp": {"servers": {"a": {"command": "a"}, "b": {"url": "https://b.example/mcp"}}}}),
        ("config.toml", '[mcp_servers.a]\ncommand = "a"\n[mcp_servers.b]\nurl = "https://b.example/mcp"\n'),
    ],
)
def test_a_clients_file_gives_all_its_servers(cli: CommandLine, tmp_path: Path, name: str, document: object) -> None:
    """D-37: Claude, Cursor, VS Code, Codex: every form that people have."""
    made = added(cli, given(tmp_path / name, document))

    assert (made["a"]["command"], made["b"]["url"]) == ("a", "https://b.example/mcp")


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("config.yaml", 'mcpServers:\n- name: s\n  command: s\n  env:\n    TOKEN: "private', "line 5"),
        ("config.yaml", "mcpServers:\n- name: s\n  command: s\n  args: !!set {a, b}", "type set"),
        ("config.yaml", "mcpServers: &all\n- name: s\n  command: s\n  env: {a: *all}", "refers to itself"),
        ("config.yaml", "mcpServers:\n- name: \x07", "not allowed in YAML"),
        ("config.yaml", "[" * 5_000, "nested too deeply"),
        ("config.toml", "a = " + "[" * 100_000, "nested too deeply"),
        ("mcp.json", "[" * 100_000, "nested too deeply"),
        ("opencode.json", '{"mcp": {"s": {"type": "local", "command": ["s"], "args": 5}}}', "args must be a list"),
    ],
)
def test_a_file_that_cannot_be_taken_is_refused_in_words(cli: CommandLine, tmp_path: Path, name: str, text: str, said: str) -> None:
    """D-37: no traceback, and no line of the file in the message: it may hold a token."""
    (tmp_path / name).write_text(text, encoding="utf-8")

    refused = cli.run("servers", "add", str(tmp_path / name))

    assert isinstance(refused.exception, RookeryError)
    assert said in str(refused.exception)
    assert "private" not in str(refused.exception)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("config.yaml", "mcpServers:\n- name: s\n  command: s\n  env:\n    SINCE: 2026-11-22"),
        ("config.toml", '[mcp_servers.s]\ncommand = "s"\nenv = {SINCE = 2026-11-22}'),
    ],
)
def test_a_date_is_taken_as_it_is_written(cli: CommandLine, tmp_path: Path, name: str, text: str) -> None:
    """D-37: YAML and TOML know dates; an environment knows texts."""
    (tmp_path / name).write_text(text, encoding="utf-8")

    assert added(cli, str(tmp_path / name))["s"]["env"] == {"SINCE": "2026-11-22"}


FILES: list[tuple[str, str, JsonObject]] = [
    (
        "mcp_config.json",  # Windsurf
        '{"mcpServers": {"s": {"serverUrl": "https://s.example/mcp", "headers": {"Authorization": "Bearer ${env:AUTH_TOKEN}"}}}}',
        {"url": "https://s.example/mcp", "headers": {"Authorization": "Bearer ${AUTH_TOKEN}"}},
    ),
    (
        "settings.json",  # Gemini CLI
        """{"mcp": {"allowed": ["s"]}, "mcpServers": {"s": {"httpUrl": "https://s.example/mcp", "headers": {"X-Key": "$MY_KEY"},
            "timeout": 5000, "trust": true, "includeTools": ["a"], "excludeTools": ["b"]}}}""",
        {"url": "https://s.example/mcp", "headers": {"X-Key": "${MY_KEY}"}, "timeout": 5000, "tools": {"allow": ["a"], "deny": ["b"]}},
    ),
    (
        "opencode.jsonc",
        """{// local
            "mcp": {"s": {"type": "local", "command": ["npx", "-y", "x"], "environment": {"A": "{env:A_KEY}"}, "enabled": true,},},
        }""",
        {"command": "npx", "args": ["-y", "x"], "env": {"A": "${A_KEY}"}, "enabled": True},
    ),
    (
        "opencode.json",
        '{"mcp": {"s": {"type": "remote", "url": "https://s.example/mcp", "oauth": {"clientId": "me", "scope": "a b"}}}}',
        {"url": "https://s.example/mcp", "auth": {"type": "oauth", "client_id": "me", "scope": "a b"}},
    ),
    (
        "mcp.json",  # VS Code, whose file may have comments
        """{
            "inputs": [{"id": "k", "type": "promptString", "password": true}], /* asked */
            "servers": {"s": {"type": "http", "url": "https://s.example/mcp?a=//b,]", "headers": {"X-Key": "${input:k}"}}}, // one
        }""",
        {"type": "http", "url": "https://s.example/mcp?a=//b,]", "headers": {"X-Key": "${K}"}},
    ),
    (
        "config.toml",  # Codex
        """[mcp_servers.s]
        url = "https://s.example/mcp"
        bearer_token_env_var = "S_TOKEN"
        http_headers = { X-Team = "t" }
        env_http_headers = { X-Key = "S_KEY" }
        tool_timeout_sec = 90
        startup_timeout_sec = 20
        enabled_tools = ["a"]
        """,
        {
            "url": "https://s.example/mcp",
            "headers": {"X-Team": "t", "X-Key": "${S_KEY}", "Authorization": "Bearer ${S_TOKEN}"},
            "timeout_s": 90,
            "start_timeout_s": 20,
            "tools": {"allow": ["a"]},
        },
    ),
    (
        "config.toml",
        '[mcp_servers.s]\ncommand = "x"\nenv = { A = "1" }\nenv_vars = ["B", { name = "C", source = "local" }]\n',
        {"command": "x", "env": {"A": "1", "B": "${B}", "C": "${C}"}},
    ),
    (
        "settings.json",  # Zed, as it was and as it is
        '{"context_servers": {"s": {"source": "custom", "command": {"path": "x", "args": ["y"], "env": {"A": "1"}}}}}',
        {"command": "x", "args": ["y"], "env": {"A": "1"}},
    ),
    (
        "zed.json",
        '{"context_servers": {"s": {"command": "x", "args": ["y"], "env": {"PORT": 1}}}}',
        {"command": "x", "args": ["y"], "env": {"PORT": "1"}},
    ),
    (
        "config.yaml",  # Continue
        """
        name: Mine
        mcpServers:
          - name: s
            type: streamable-http
            url: https://s.example/mcp
            apiKey: ${{ secrets.S_KEY }}
            requestOptions: {headers: {X-Team: t}}
        """,
        {
            "name": "s",
            "type": "streamable-http",
            "url": "https://s.example/mcp",
            "headers": {"X-Team": "t", "Authorization": "Bearer ${S_KEY}"},
        },
    ),
    (
        "config.json",  # Continue, as it was
        '{"experimental": {"modelContextProtocolServers": [{"transport": {"type": "stdio", "command": "x", "name": "s"}}]}}',
        {"type": "stdio", "command": "x", "name": "s"},
    ),
    (
        "mcp.json",  # Cursor
        '{"mcpServers": {"s": {"url": "https://s.example/mcp", "auth": {"CLIENT_ID": "${env:ID}", "scopes": ["a", "b"]}}}}',
        {"url": "https://s.example/mcp", "auth": {"type": "oauth", "client_id": "${ID}", "scope": "a b"}},
    ),
]


@pytest.mark.parametrize(("name", "text", "made"), FILES)
def test_each_clients_own_words_are_understood(cli: CommandLine, tmp_path: Path, name: str, text: str, made: JsonObject) -> None:
    """Issue 14: Windsurf, Gemini CLI, opencode, VS Code, Codex, Zed, Continue and Cursor; no token is lost on the way; D-37."""
    assert added(cli, given(tmp_path / name, text)) == {"s": made}


def test_what_is_good_in_a_file_is_added_and_the_rest_is_named(cli: CommandLine, tmp_path: Path) -> None:
    """Issue 14: one entry that cannot be used costs that entry alone, with its reason, and the exit code says so; D-37, D-04."""
    added(cli, "--id", "old", "--", "one")
    entries: JsonObject = {
        "good": {"command": "x"},
        "brain": {"command": "x"},
        "old": {"command": "two"},
        "nothing": {"description": "no more than that"},
        "extension": {"source": "extension", "settings": {}},
        "hidden": {"command": "x", "envFile": "${workspaceFolder}/.env"},
        "kept": {"command": "x", "env": {"TOKEN": "{file:~/.token}"}},
        "editor": {"command": "x", "args": ["${workspaceFolder}/a"]},
        "text": "x",
    }

    result = cli.run("servers", "add", "--json", given(tmp_path / "mcp.json", {"mcpServers": entries}))
    told = cast("dict[str, dict[str, object]]", json.loads(result.stdout))
    nothing = cli.run("servers", "add", given(tmp_path / "none.json", {"mcpServers": {"nothing": {}}}))

    assert result.exit_code == 1
    assert told["added"] == {"good": {"command": "x"}}
    assert told["refused"].keys() == entries.keys() - {"good"}
    reasons = {"brain": "reserved", "old": "--replace", "nothing": "neither", "extension": "extension", "hidden": "envFile",
               "kept": "~/.token", "editor": "workspaceFolder", "text": "object"}  # fmt: skip
    assert {name for name, part in reasons.items() if part not in str(told["refused"][name])} == set()
    assert set(cli.read_entries()) == {"old", "good"}
    assert (nothing.exit_code, isinstance(nothing.exception, RookeryError)) == (1, True)


def test_servers_of_the_project_in_whose_folder_one_is_are_added(cli: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Issue 14: `~/.claude.json` has servers of its user and of each project; those of other projects are named; D-37."""
    inside = tmp_path / "mine" / "src"
    inside.mkdir(parents=True)
    projects: JsonObject = {str(tmp_path / name): {"mcpServers": {"own": {"command": f"of-{name}"}}} for name in ("mine", "other")}
    document: JsonObject = {
        "mcpServers": {"all": {"command": "a"}, "own": {"command": "b"}},
        "projects": {**projects, "/empty": {"mcpServers": {}}},
    }
    file = given(tmp_path / ".claude.json", document)

    monkeypatch.chdir(inside)
    result = cli.run("servers", "add", "--json", file)
    monkeypatch.chdir("/")
    nowhere = cli.run("servers", "add", "--dry-run", "--json", given(tmp_path / ".claude.json", {"projects": projects}))

    assert result.exit_code == 0, result.output
    assert {key: entry["command"] for key, entry in cli.read_entries().items()} == {"all": "a", "own": "of-mine"}
    assert f"other projects ({tmp_path / 'other'})" in result.stderr
    assert "/empty" not in result.stderr
    assert nowhere.exit_code == 1
    assert str(tmp_path / "mine") in nowhere.stderr


def test_variables_that_are_not_set_are_named(cli: CommandLine, tmp_path: Path) -> None:
    """Issue 14: an entry without its token starts and is refused later; so each name is told when it is added; D-37."""
    entry = {"url": "https://b.example/mcp", "headers": {"A": "${NOT_SET_HERE}", "B": "${ALSO_NOT_SET:-default}"}}

    answer = cast("JsonObject", cli.run_json("servers", "add", "--json", given(tmp_path / "mcp.json", {"mcpServers": {"b": entry}})))
    listed = cast("list[JsonObject]", cli.run_json("servers", "list", "--json"))

    assert answer["needs"] == {"NOT_SET_HERE": ""}
    assert "NOT_SET_HERE" in str(listed[0]["fault"])


def test_variables_of_other_clients_become_ours(cli: CommandLine, tmp_path: Path) -> None:
    """D-37: VS Code asks its user, Cursor reads the environment; Rookery does the latter."""
    entry = {"url": "https://b.example/mcp", "headers": {"Authorization": "Bearer ${input:gh-token}", "X-Team": "${env:TEAM}"}}

    made = added(cli, given(tmp_path / "mcp.json", {"servers": {"b": entry}}))

    assert made["b"]["headers"] == {"Authorization": "Bearer ${GH_TOKEN}", "X-Team": "${TEAM}"}


@pytest.mark.parametrize(
    ("words", "made"),
    [
        (["https://mcp.linear.app/mcp"], {"linear": {"url": "https://mcp.linear.app/mcp"}}),
        (["--sse", "https://a.b/sse"], {"a": {"url": "https://a.b/sse", "type": "sse"}}),
        (["--header", "X-Team: a b", "https://a.b/"], {"a": {"url": "https://a.b/", "headers": {"X-Team": "a b"}}}),
        (["http://127.0.0.1:9/mcp"], {"server": {"url": "http://127.0.0.1:9/mcp"}}),
        (["--", "uvx", "mcp-server-git", "-r", "."], {"git": {"command": "uvx", "args": ["mcp-server-git", "-r", "."]}}),
        (["--", "npx", "-y", "@acme/server-maps@2"], {"maps": {"command": "npx", "args": ["-y", "@acme/server-maps@2"]}}),
        (["--", "python", "/srv/my tools.py"], {"my-tools": {"command": "python", "args": ["/srv/my tools.py"]}}),
        (["--env", "A=b=c", "--id", "me", "--", "run-me"], {"me": {"command": "run-me", "env": {"A": "b=c"}}}),
        (["npx", "-y", "mcp-maps", "--id", "m"], {"m": {"command": "npx", "args": ["-y", "mcp-maps"]}}),
        (["npx -y mcp-maps"], {"maps": {"command": "npx", "args": ["-y", "mcp-maps"]}}),
        (["python3 '/x/my odd.py' -v", "--id", "a"], {"a": {"command": "python3", "args": ["/x/my odd.py", "-v"]}}),
    ],
)
def test_an_address_or_a_command_becomes_an_entry_with_a_name(cli: CommandLine, words: list[str], made: object) -> None:
    """D-37: named after its host, package or script, unless it is given an id."""
    assert added(cli, *words) == made


def test_the_rest_of_the_file_stays_as_it_is(cli: CommandLine, tmp_path: Path) -> None:
    """D-31: other entries, other fields, their order, the file's mode, and a link that the file is."""
    real = tmp_path / "real.json"
    given(real, {"note": 1, "mcpServers": {"z": {"command": "z", "theirs": True}, "a": {"command": "a"}}, "last": [None]})
    real.chmod(0o640)
    cli.file.symlink_to(real)

    added(cli, "--id", "new", "--", "new")
    cli.run("servers", "remove", "a", "--yes")

    document = json.loads(real.read_text(encoding="utf-8"))
    assert list(document) == ["note", "mcpServers", "last"]
    assert document["mcpServers"] == {"z": {"command": "z", "theirs": True}, "new": {"command": "new"}}
    assert (real.stat().st_mode & 0o777, cli.file.is_symlink()) == (0o640, True)


def test_several_who_edit_at_once_lose_nothing(tmp_path: Path) -> None:
    """D-31: each edit is made to what the one before left."""
    path = tmp_path / "servers.json"

    def add(number: int) -> None:
        edit_entries(path, lambda entries: entries.update({f"s{number}": {"command": "x"}}))

    threads = [threading.Thread(target=add, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)

    assert len(json.loads(path.read_text(encoding="utf-8"))["mcpServers"]) == 16
    assert [each.name for each in tmp_path.iterdir()] == ["servers.json"]


def test_a_broken_file_is_left_as_it_is(cli: CommandLine) -> None:
    """D-31: a command does not repair a file that is being written, which would lose half of it."""
    cli.file.write_text('{"mcpServers": {', encoding="utf-8")

    result = cli.run("servers", "add", "--id", "new", "--", "new")

    assert isinstance(result.exception, RookeryError)
    assert cli.file.read_text(encoding="utf-8") == '{"mcpServers": {'
    with pytest.raises(InvalidServersFile):
        edit_entries(cli.file, lambda entries: entries.clear())


@pytest.mark.parametrize(
    "words",
    [
        ["--id", "brain", "--", "x"],
        ["ftp://a.b/", "--id", "x", "--header", "A: b"],
        ["--env", "A", "--", "x"],
        ["https://a.b/mcp", "--env", "A=b"],
        ["no-such-file.json"],
        ["https://a.b/mcp", "--header", "A: ü"],
        ["https://a.b/mcp", "--hedaer", "A: b"],
        ["--hedaer", "A: b", "https://a.b/mcp"],
        ["npx 'x"],
        ["  "],
    ],
)
def test_what_cannot_be_added_is_refused_and_nothing_is_written(cli: CommandLine, words: list[str]) -> None:
    """D-04: exit code 2 for what was typed wrong, 1 for what cannot be."""
    result = cli.run("servers", "add", *words)

    assert result.exit_code in {1, 2}
    assert not cli.file.exists()


def test_an_entry_is_replaced_only_when_one_says_so(cli: CommandLine) -> None:
    """D-04: what destroys is asked for."""
    added(cli, "--id", "a", "--", "one")
    refused = cli.run("servers", "add", "--id", "a", "--", "two")
    dry = cli.run("servers", "add", "--id", "a", "--replace", "--dry-run", "--", "two")

    assert (refused.exit_code, dry.exit_code, cli.read_entries()["a"]["command"]) == (1, 0, "one")
    assert added(cli, "--replace", "--id", "a", "--", "two") == {"a": {"command": "two"}}


def test_the_list_shows_no_secret_and_says_what_is_wrong(cli: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    """D-37: an entry as it was written, `${NAME}` not filled in; one that cannot be used has its fault."""
    monkeypatch.setenv("TICKETS_KEY", "s3cret")
    added(cli, "--id", "a", "--", "run", "--key", "${TICKETS_KEY}")
    added(cli, "--id", "b", "--", "run", "${NOT_SET_ANYWHERE}")

    listed = {each["id"]: each for each in cast("list[JsonObject]", cli.run_json("servers", "list", "--json"))}
    table = cli.run("servers", "list")

    assert (listed["a"]["where"], listed["a"]["fault"]) == ("run --key '${TICKETS_KEY}'", None)
    assert "NOT_SET_ANYWHERE" in str(listed["b"]["fault"])
    assert "s3cret" not in table.output


def test_a_check_starts_a_server_and_says_what_is_wrong_in_words(cli: CommandLine) -> None:
    """D-37: it is started, its tools are listed, and exit code 1 tells that one of them cannot be used."""
    added(cli, "--id", "good", "--", *ODD)
    added(cli, "--id", "gone", "--", "no-such-program-anywhere")
    added(cli, "--id", "dies", "--", sys.executable, "-c", "raise SystemExit('no licence found')")
    added(cli, "--id", "unset", "--", "run", "${NOT_SET_ANYWHERE}")

    good = cast("list[JsonObject]", cli.run_json("servers", "check", "good", "--json"))
    everything = cli.run("servers", "check", "--json")
    checked = {each["id"]: each for each in cast("list[JsonObject]", json.loads(everything.stdout))}

    assert (good[0]["ok"], "echo" in cast("list[str]", good[0]["tools"])) == (True, True)
    assert everything.exit_code == 1
    assert {name: each["ok"] for name, each in checked.items()} == {"good": True, "gone": False, "dies": False, "unset": False}
    assert "no-such-program-anywhere" in str(checked["gone"]["error"])
    assert "no licence found" in str(checked["dies"]["error"])
    assert all(each["advice"] for each in checked.values() if not each["ok"])
    assert cli.run("servers", "check", "nobody").exit_code == 1


def test_nothing_is_removed_unasked(cli: CommandLine) -> None:
    """D-04: what destroys needs --yes off a terminal, and has --dry-run."""
    added(cli, "--id", "a", "--", "one")

    codes = [cli.run("servers", "remove", "a", *more).exit_code for more in ([], ["--dry-run"], ["--yes"], ["--yes"])]

    assert (codes, cli.read_entries()) == ([2, 0, 0, 1], {})


def test_what_a_killed_edit_left_behind_stands_in_nobodys_way(cli: CommandLine) -> None:
    """D-37: in a container every process has the same number as the one before it."""
    for left in (".new", f".{os.getpid()}"):
        cli.file.with_name(f".{cli.file.name}{left}").write_text("half of a fi", encoding="utf-8")

    assert cli.run("servers", "add", "http://127.0.0.1:9/mcp", "--id", "it").exit_code == 0
    assert list(cli.read_entries()) == ["it"]


def test_a_server_whose_program_is_missing_is_listed_as_offline(cli: CommandLine) -> None:
    """Issue 14: a list that calls it available says nothing of what everybody will meet; D-33."""
    added(cli, "--id", "here", "--", sys.executable, "-V")
    added(cli, "--id", "gone", "--", "no-such-program-anywhere")
    added(cli, "--id", "far", "https://a.b/mcp")

    listed = cast("list[JsonObject]", cli.run_json("servers", "list", "--json"))

    assert {str(each["id"]): each["health"] for each in listed} == {"here": "unknown", "gone": "offline", "far": "unknown"}
    assert "no-such-program-anywhere" in str(next(each["says"] for each in listed if each["id"] == "gone"))


def test_the_list_shows_the_health_that_a_running_server_knows(cli: CommandLine, model_folder: Path) -> None:
    """Issue 14: the list said available, and later unknown, of servers whose health the running Rookery knew; D-33."""
    added(cli, "--id", "used", "--", *ODD)
    added(cli, "--id", "ends", "--", sys.executable, "-c", "raise SystemExit(3)")
    (cli.settings.data_dir / "models").symlink_to(model_folder / "models")
    server = Server(cli.settings.data_dir)
    try:
        for name in ("used", "ends"):
            server.client.get(f"/api/v1/mcp/servers/{name}/tools")
        running = cast("list[JsonObject]", cli.run_json("servers", "list", "--json"))
    finally:
        server.stop()
    ended = cast("list[JsonObject]", cli.run_json("servers", "list", "--json"))

    assert {str(each["id"]): each["health"] for each in running} == {"used": "online", "ends": "offline"}
    assert {str(each["id"]): each["health"] for each in ended} == {"used": "unknown", "ends": "unknown"}


def test_a_check_names_the_error_and_shows_the_last_lines(cli: CommandLine, tmp_path: Path) -> None:
    """Issue 14: Node.js prints its version after an uncaught exception, and that was all that was shown; D-37."""
    script = tmp_path / "broken.mjs"
    script.write_text("console.error('line one'); throw new TypeError('no such directory: zod/v4');\n")
    added(cli, "--id", "broken", "--", real_servers.node(), str(script))

    (checked,) = cast("list[JsonObject]", json.loads(cli.run("servers", "check", "--json").stdout))
    shown = cli.run("servers", "check", "--verbose")

    assert checked["error"] == "The server exited with code 1: TypeError: no such directory: zod/v4"
    lines = cast("list[str]", checked["stderr"])
    assert len(lines) <= 10
    assert lines[-1].startswith("Node.js v")
    assert "broken | Node.js v" in shown.stderr
