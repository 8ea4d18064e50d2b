"""`rookery servers`."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from rookery.kernel.errors import RookeryError
from rookery.tools.models import JsonObject
from rookery.tools.servers.file_edits import edit_entries
from rookery.tools.servers.servers_file import InvalidServersFile
from tests import real_servers
from tests.conftest import eventually
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


def write_file(path: Path, document: object) -> str:
    """Write a file; return its path."""
    path.write_text(document if isinstance(document, str) else json.dumps(document), encoding="utf-8")
    return str(path)


def add_servers(cli: CommandLine, *arguments: str) -> dict[str, JsonObject]:
    """Add servers; return the new entries."""
    output = cast("dict[str, dict[str, JsonObject]]", cli.run_json("servers", "add", "--json", *arguments))
    assert output["added"].items() <= cli.read_entries().items()
    return output["added"]


def test_a_servers_json_of_the_registry_becomes_an_entry(cli: CommandLine, tmp_path: Path) -> None:
    """User input becomes an environment variable; no secret is written into the file."""
    output = cli.run_json("servers", "add", "--json", write_file(tmp_path / "server.json", REGISTRY))

    assert output == {
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
        "warnings": cast("JsonObject", output)["warnings"],  # npx may be missing
        "file": str(cli.file),
        "dry_run": False,
    }


def test_a_remote_server_of_the_registry_becomes_an_address(cli: CommandLine, tmp_path: Path) -> None:
    """The format of the registry's API, under `server`, is accepted too."""
    assert add_servers(cli, write_file(tmp_path / "server.json", REMOTE))["search"] == {
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
    """The formats of Claude, Cursor, VS Code and Codex are accepted."""
    entries = add_servers(cli, write_file(tmp_path / name, document))

    assert (entries["a"]["command"], entries["b"]["url"]) == ("a", "https://b.example/mcp")


@pytest.mark.parametrize(
    ("name", "text", "message"),
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
def test_an_unreadable_file_is_rejected_with_a_reason(cli: CommandLine, tmp_path: Path, name: str, text: str, message: str) -> None:
    """The message contains no line of the file, which may contain a token."""
    (tmp_path / name).write_text(text, encoding="utf-8")

    result = cli.run("servers", "add", str(tmp_path / name))

    assert isinstance(result.exception, RookeryError)
    assert message in str(result.exception)
    assert "private" not in str(result.exception)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("config.yaml", "mcpServers:\n- name: s\n  command: s\n  env:\n    SINCE: 2026-11-22"),
        ("config.toml", '[mcp_servers.s]\ncommand = "s"\nenv = {SINCE = 2026-11-22}'),
    ],
)
def test_a_date_is_kept_as_text(cli: CommandLine, tmp_path: Path, name: str, text: str) -> None:
    """YAML and TOML have dates; environment variables are texts."""
    (tmp_path / name).write_text(text, encoding="utf-8")

    assert add_servers(cli, str(tmp_path / name))["s"]["env"] == {"SINCE": "2026-11-22"}


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


@pytest.mark.parametrize(("name", "text", "entry"), FILES)
def test_the_own_fields_of_each_client_are_converted(cli: CommandLine, tmp_path: Path, name: str, text: str, entry: JsonObject) -> None:
    """Files of Windsurf, Gemini CLI, opencode, VS Code, Codex, Zed, Continue and Cursor; tokens become variables."""
    assert add_servers(cli, write_file(tmp_path / name, text)) == {"s": entry}


def test_valid_entries_of_a_file_are_added_and_the_rest_reported(cli: CommandLine, tmp_path: Path) -> None:
    """An unusable entry is reported with its reason and exit code 1; the others are added."""
    add_servers(cli, "--id", "old", "--", "one")
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

    result = cli.run("servers", "add", "--json", write_file(tmp_path / "mcp.json", {"mcpServers": entries}))
    output = cast("dict[str, dict[str, object]]", json.loads(result.stdout))
    nothing = cli.run("servers", "add", write_file(tmp_path / "none.json", {"mcpServers": {"nothing": {}}}))

    assert result.exit_code == 1
    assert output["added"] == {"good": {"command": "x"}}
    assert output["refused"].keys() == entries.keys() - {"good"}
    reasons = {"brain": "reserved", "old": "--replace", "nothing": "neither", "extension": "extension", "hidden": "envFile",
               "kept": "~/.token", "editor": "workspaceFolder", "text": "object"}  # fmt: skip
    assert {name for name, part in reasons.items() if part not in str(output["refused"][name])} == set()
    assert set(cli.read_entries()) == {"old", "good"}
    assert (nothing.exit_code, isinstance(nothing.exception, RookeryError)) == (1, True)


def test_servers_of_the_current_project_are_added(cli: CommandLine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`~/.claude.json` has servers of its user and of each project; those of other projects are reported."""
    inside = tmp_path / "mine" / "src"
    inside.mkdir(parents=True)
    projects: JsonObject = {str(tmp_path / name): {"mcpServers": {"own": {"command": f"of-{name}"}}} for name in ("mine", "other")}
    document: JsonObject = {
        "mcpServers": {"all": {"command": "a"}, "own": {"command": "b"}},
        "projects": {**projects, "/empty": {"mcpServers": {}}},
    }
    file = write_file(tmp_path / ".claude.json", document)

    monkeypatch.chdir(inside)
    result = cli.run("servers", "add", "--json", file)
    monkeypatch.chdir("/")
    outside = cli.run("servers", "add", "--dry-run", "--json", write_file(tmp_path / ".claude.json", {"projects": projects}))

    assert result.exit_code == 0, result.output
    assert {key: entry["command"] for key, entry in cli.read_entries().items()} == {"all": "a", "own": "of-mine"}
    assert f"other projects ({tmp_path / 'other'})" in result.stderr
    assert "/empty" not in result.stderr
    assert outside.exit_code == 1
    assert str(tmp_path / "mine") in outside.stderr


def test_variables_that_are_not_set_are_named(cli: CommandLine, tmp_path: Path) -> None:
    """An entry without its token starts and fails later, so `add` names each unset variable."""
    entry = {"url": "https://b.example/mcp", "headers": {"A": "${NOT_SET_HERE}", "B": "${ALSO_NOT_SET:-default}"}}

    output = cast("JsonObject", cli.run_json("servers", "add", "--json", write_file(tmp_path / "mcp.json", {"mcpServers": {"b": entry}})))
    servers = cast("list[JsonObject]", cli.run_json("servers", "list", "--json"))

    assert output["needs"] == {"NOT_SET_HERE": ""}
    assert "NOT_SET_HERE" in str(servers[0]["fault"])


def test_variables_of_other_clients_become_environment_variables(cli: CommandLine, tmp_path: Path) -> None:
    """VS Code prompts its user, Cursor reads the environment; Rookery reads the environment."""
    entry = {"url": "https://b.example/mcp", "headers": {"Authorization": "Bearer ${input:gh-token}", "X-Team": "${env:TEAM}"}}

    entries = add_servers(cli, write_file(tmp_path / "mcp.json", {"servers": {"b": entry}}))

    assert entries["b"]["headers"] == {"Authorization": "Bearer ${GH_TOKEN}", "X-Team": "${TEAM}"}


@pytest.mark.parametrize(
    ("arguments", "entries"),
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
def test_an_address_or_a_command_becomes_an_entry_with_a_name(cli: CommandLine, arguments: list[str], entries: object) -> None:
    """Named after its host, package or script, unless it is given an id."""
    assert add_servers(cli, *arguments) == entries


def test_the_rest_of_the_file_stays_unchanged(cli: CommandLine, tmp_path: Path) -> None:
    """Other entries, other fields, their order, the file mode and a symbolic link stay."""
    real = tmp_path / "real.json"
    write_file(real, {"note": 1, "mcpServers": {"z": {"command": "z", "theirs": True}, "a": {"command": "a"}}, "last": [None]})
    real.chmod(0o640)
    cli.file.symlink_to(real)

    add_servers(cli, "--id", "new", "--", "new")
    cli.run("servers", "remove", "a", "--yes")

    document = json.loads(real.read_text(encoding="utf-8"))
    assert list(document) == ["note", "mcpServers", "last"]
    assert document["mcpServers"] == {"z": {"command": "z", "theirs": True}, "new": {"command": "new"}}
    assert (real.stat().st_mode & 0o777, cli.file.is_symlink()) == (0o640, True)


def test_concurrent_edits_lose_nothing(tmp_path: Path) -> None:
    """Each edit applies to the result of the one before."""
    path = tmp_path / "servers.json"

    def add(number: int) -> None:
        edit_entries(path, lambda entries: entries.update({f"s{number}": {"command": "x"}}))

    threads = [threading.Thread(target=add, args=(number,)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)

    assert len(json.loads(path.read_text(encoding="utf-8"))["mcpServers"]) == 16
    assert [file.name for file in tmp_path.iterdir()] == ["servers.json"]


def test_an_invalid_file_is_left_unchanged(cli: CommandLine) -> None:
    """A command never overwrites a file that it cannot parse."""
    cli.file.write_text('{"mcpServers": {', encoding="utf-8")

    result = cli.run("servers", "add", "--id", "new", "--", "new")

    assert isinstance(result.exception, RookeryError)
    assert cli.file.read_text(encoding="utf-8") == '{"mcpServers": {'
    with pytest.raises(InvalidServersFile):
        edit_entries(cli.file, lambda entries: entries.clear())


@pytest.mark.parametrize(
    "arguments",
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
def test_an_invalid_server_is_rejected_and_nothing_is_written(cli: CommandLine, arguments: list[str]) -> None:
    """Exit code 2 for wrong usage, 1 for an impossible entry."""
    result = cli.run("servers", "add", *arguments)

    assert result.exit_code in {1, 2}
    assert not cli.file.exists()


def test_an_entry_is_replaced_only_with_replace(cli: CommandLine) -> None:
    """Destructive changes need an option."""
    add_servers(cli, "--id", "a", "--", "one")
    rejected = cli.run("servers", "add", "--id", "a", "--", "two")
    dry_run = cli.run("servers", "add", "--id", "a", "--replace", "--dry-run", "--", "two")

    assert (rejected.exit_code, dry_run.exit_code, cli.read_entries()["a"]["command"]) == (1, 0, "one")
    assert add_servers(cli, "--replace", "--id", "a", "--", "two") == {"a": {"command": "two"}}


def test_the_list_shows_no_secret_and_reports_faults(cli: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Entries are shown as written, with `${NAME}` not replaced; an unusable one has its fault."""
    monkeypatch.setenv("TICKETS_KEY", "s3cret")
    add_servers(cli, "--id", "a", "--", "run", "--key", "${TICKETS_KEY}")
    add_servers(cli, "--id", "b", "--", "run", "${NOT_SET_ANYWHERE}")

    forwarding: JsonObject = {"forward_headers": ["X-Tenant"], "forward_meta": ["claudecode/*"], "max_concurrency": 3}
    entries = cli.read_entries() | {"c": {"url": "https://mcp.example.org/mcp", **forwarding}}
    cli.file.write_text(json.dumps({"mcpServers": entries}))

    servers = {server["id"]: server for server in cast("list[JsonObject]", cli.run_json("servers", "list", "--json"))}
    table = cli.run("servers", "list")

    assert [servers[name]["max_concurrency"] for name in ("a", "c")] == [1, 3]
    assert [servers[name]["forwards"] for name in ("a", "c")] == [[], ["X-Tenant", "_meta claudecode/*"]]
    assert "3\tX-Tenant, _meta claudecode/*" in table.output
    assert (servers["a"]["where"], servers["a"]["fault"]) == ("run --key '${TICKETS_KEY}'", None)
    assert "NOT_SET_ANYWHERE" in str(servers["b"]["fault"])
    assert "s3cret" not in table.output


def test_a_check_starts_a_server_and_reports_its_error(cli: CommandLine) -> None:
    """The check lists the tools; exit code 1 means that a server cannot be used."""
    add_servers(cli, "--id", "good", "--", *ODD)
    add_servers(cli, "--id", "gone", "--", "no-such-program-anywhere")
    add_servers(cli, "--id", "dies", "--", sys.executable, "-c", "raise SystemExit('no licence found')")
    add_servers(cli, "--id", "unset", "--", "run", "${NOT_SET_ANYWHERE}")

    good = cast("list[JsonObject]", cli.run_json("servers", "check", "good", "--json"))
    everything = cli.run("servers", "check", "--json")
    checks = {check["id"]: check for check in cast("list[JsonObject]", json.loads(everything.stdout))}

    assert (good[0]["ok"], "echo" in cast("list[str]", good[0]["tools"])) == (True, True)
    assert everything.exit_code == 1
    assert {name: check["ok"] for name, check in checks.items()} == {"good": True, "gone": False, "dies": False, "unset": False}
    assert "no-such-program-anywhere" in str(checks["gone"]["error"])
    assert "no licence found" in str(checks["dies"]["error"])
    assert all(check["advice"] for check in checks.values() if not check["ok"])
    assert cli.run("servers", "check", "nobody").exit_code == 1


def test_a_removal_needs_confirmation(cli: CommandLine) -> None:
    """A destructive command needs --yes without a terminal, and has --dry-run."""
    add_servers(cli, "--id", "a", "--", "one")

    codes = [cli.run("servers", "remove", "a", *options).exit_code for options in ([], ["--dry-run"], ["--yes"], ["--yes"])]

    assert (codes, cli.read_entries()) == ([2, 0, 0, 1], {})


def test_leftover_files_of_a_killed_edit_are_ignored(cli: CommandLine) -> None:
    """In a container a new process often has the pid of the one before."""
    for suffix in (".new", f".{os.getpid()}"):
        cli.file.with_name(f".{cli.file.name}{suffix}").write_text("half of a fi", encoding="utf-8")

    assert cli.run("servers", "add", "http://127.0.0.1:9/mcp", "--id", "it").exit_code == 0
    assert list(cli.read_entries()) == ["it"]


def test_a_server_whose_program_is_missing_is_listed_as_offline(cli: CommandLine) -> None:
    """The list must not show an unusable server as available."""
    add_servers(cli, "--id", "here", "--", sys.executable, "-V")
    add_servers(cli, "--id", "gone", "--", "no-such-program-anywhere")
    add_servers(cli, "--id", "far", "https://a.b/mcp")

    servers = cast("list[JsonObject]", cli.run_json("servers", "list", "--json"))

    assert {str(server["id"]): server["health"] for server in servers} == {"here": "unknown", "gone": "offline", "far": "unknown"}
    assert "no-such-program-anywhere" in str(next(server["says"] for server in servers if server["id"] == "gone"))


def test_the_list_shows_the_health_of_a_running_rookery(cli: CommandLine, model_folder: Path) -> None:
    """The list shows the health from a running Rookery, and `unknown` without one."""
    add_servers(cli, "--id", "used", "--", *ODD)
    add_servers(cli, "--id", "ends", "--", sys.executable, "-c", "raise SystemExit(3)")
    add_servers(cli, "--id", "partial", "--", *ODD, "--no-prompts")
    add_servers(cli, "--id", "empty", "--", *ODD, "--empty")
    (cli.settings.data_dir / "models").symlink_to(model_folder / "models")
    server = Server(cli.settings.data_dir)

    def get_health(name: str) -> str:
        return str(server.client.get(f"/api/v1/mcp/servers/{name}").json()["health"])

    def list_servers() -> dict[str, JsonObject]:
        return {str(entry["id"]): entry for entry in cast("list[JsonObject]", cli.run_json("servers", "list", "--json"))}

    def list_with_reasons() -> dict[str, JsonObject]:
        servers = list_servers()
        return servers if all("servers check" not in str(servers[name]["says"] or "servers check") for name in reasons) else {}

    reasons = ("ends", "partial", "empty")
    try:
        asyncio.run(eventually(lambda: {get_health(name) for name in ("used", "ends")} == {"online", "offline"}))
        running = asyncio.run(eventually(list_with_reasons))
        mode = (cli.settings.data_dir / "tool-servers.json").stat().st_mode & 0o777
    finally:
        server.stop()
    stopped = list_servers()

    assert {name: entry["health"] for name, entry in running.items()} == {
        "used": "online", "ends": "offline", "partial": "degraded", "empty": "online"
    }  # fmt: skip
    assert "exited with code 3" in str(running["ends"]["says"])
    assert "the store of prompts is down" in str(running["partial"]["says"])
    assert "lists no tools" in str(running["empty"]["says"])
    assert running["used"]["says"] is None
    assert mode == 0o600
    assert {entry["health"] for entry in stopped.values()} == {"unknown"}
    assert not (cli.settings.data_dir / "tool-servers.json").exists()


def test_a_check_names_the_error_and_shows_the_last_lines(cli: CommandLine, tmp_path: Path) -> None:
    """Node.js prints its version last after an uncaught exception, so the error is found in earlier lines."""
    script = tmp_path / "broken.mjs"
    script.write_text("console.error('line one'); throw new TypeError('no such directory: zod/v4');\n")
    add_servers(cli, "--id", "broken", "--", real_servers.node(), str(script))

    (check,) = cast("list[JsonObject]", json.loads(cli.run("servers", "check", "--json").stdout))
    verbose = cli.run("servers", "check", "--verbose")

    assert check["error"] == "The server exited with code 1: TypeError: no such directory: zod/v4"
    lines = cast("list[str]", check["stderr"])
    assert len(lines) <= 10
    assert lines[-1].startswith("Node.js v")
    assert "broken | Node.js v" in verbose.stderr


@pytest.mark.parametrize(
    ("command", "sharing", "advice"),
    [
        (["uvx", "mcp-server-git"], "All keys of the workspace share one session.", "one at a time"),
        (["npx", "-y", "@modelcontextprotocol/server-memory"], "one knowledge graph", "no absolute MEMORY_FILE_PATH"),
        (["npx", "-y", "@playwright/mcp@latest"], "one browser with its pages", '"isolation": "per_key" in its entry and add "--isolated"'),
        (["chrome-devtools-mcp", "--headless"], "one browser with its pages", '"isolation": "per_key"'),
        (["npx.cmd", "@wonderwhy-er/desktop-commander@0.2.52"], "its terminals", '"isolation": "per_key"'),
        (["node", "/x/node_modules/@modelcontextprotocol/server-sequential-thinking/dist/index.js"], "history of thoughts", "per_key"),
        (["docker", "run", "-i", "--rm", "mcp/memory"], "one knowledge graph", "its container has no volume"),
        (["docker", "run", "-i", "mcp/playwright"], "one browser with its pages", '"isolation": "per_key"'),
        (["bash", "-c", "npx -y @modelcontextprotocol/server-memory"], "one knowledge graph", "no absolute MEMORY_FILE_PATH"),
        (["env", "A=1", "npx", "@modelcontextprotocol/server-puppeteer"], "one browser with its pages", '"isolation": "per_key"'),
        (["npx", "@executeautomation/playwright-mcp-server"], "one browser with its pages", '"isolation": "per_key" in its entry to'),
        (["npx", "@browsermcp/mcp@latest"], "the browser of the person", "a second process of it ends the first"),
        (["mcp-server-filesystem", "/srv/chrome-devtools-mcp"], "All keys of the workspace share one session. Calls", "one at a time"),
        (["https://mcp.acme.example/mcp"], "All keys of the workspace share one session.", "At most 64 calls run at once in a session."),
    ],
)
def test_adding_a_server_says_what_its_callers_share(cli: CommandLine, command: list[str], sharing: str, advice: str) -> None:
    """Nobody expects that one key reads the browser page of another."""
    words = command if command[0].startswith("https:") else ["--", *command]
    added = cast("dict[str, dict[str, str]]", cli.run_json("servers", "add", "--id", "new", "--dry-run", "--json", *words))
    notice = next(line for line in cli.run("servers", "add", "--id", "new", *words).stderr.splitlines() if line.startswith("new: "))

    assert sharing in notice
    assert advice in notice
    assert added.get("sharing", {}).get("new") == (notice.removeprefix("new: ") if "They share" in notice else None)


def test_a_check_says_what_callers_share_and_which_fields_lose_state(cli: CommandLine, tmp_path: Path) -> None:
    """The memory server loses changes that overlap, and no session separates its callers."""
    entry = real_servers.memory(tmp_path / "graph.json")
    other: JsonObject = {"command": entry["command"], "args": entry["args"], "isolation": "per_key"}
    write_file(cli.file, {"mcpServers": {"memory": entry, "opened": {**entry, "max_concurrency": 8}, "other": other}})

    checks = {str(check["id"]): check for check in cast("list[JsonObject]", cli.run_json("servers", "check", "--json"))}
    printed = cli.run("servers", "check")

    assert checks["memory"]["warnings"] == []
    assert "one knowledge graph" in str(checks["memory"]["sharing"])
    assert "one at a time" in str(checks["memory"]["concurrency"])
    assert "max_concurrency 8 loses changes" in str(checks["opened"]["warnings"])
    assert "isolation per_key separates nothing" in str(checks["other"]["warnings"])
    assert "no absolute MEMORY_FILE_PATH" in str(checks["other"]["warnings"])
    assert f"memory, opened: {checks['memory']['sharing']}" in printed.stderr


def test_variables_of_the_command_line_name_the_file_of_a_server(cli: CommandLine, tmp_path: Path) -> None:
    """`env A=1 npx …` sets the same variable as the entry's `env`."""
    words = ["env", f"MEMORY_FILE_PATH={tmp_path / 'graph.json'}", "npx", "-y", "@modelcontextprotocol/server-memory"]

    assert "Warning" not in cli.run("servers", "add", "--id", "memory", "--", *words).stderr


def test_several_server_processes_are_named_where_state_is_shared(cli: CommandLine) -> None:
    """Each process of `serve --workers` starts its own browser."""
    write_file(cli.file, {"mcpServers": {"everything": real_servers.everything(), "git": {"command": "uvx", "args": ["mcp-server-git"]}}})
    words = ["--dry-run", "--id", "new", "--", "npx", "@modelcontextprotocol/server-puppeteer"]

    cli.settings = replace(cli.settings, workers=2)
    added = cli.run("servers", "add", *words).stderr
    checks = cast("list[JsonObject]", cli.run_json("servers", "check", "everything", "--json"))

    assert "All keys of the workspace share one session in each of the 2 server processes." in added
    assert "Warning: each of the 2 server processes keeps one browser" in added
    assert "each of the 2 server processes keeps the resources" in str(checks[0]["warnings"])


def test_a_missing_program_is_reported_when_it_is_added(cli: CommandLine) -> None:
    """The server is added all the same, because the program may come later."""
    added = cli.run("servers", "add", "--id", "gone", "--", "no-such-program-anywhere", "${NOT_SET}")
    moved = cli.run("servers", "add", "--id", "moved", "--", "${NO_SUCH_FOLDER}/run")

    assert (added.exit_code, "gone" in cli.read_entries()) == (0, True)
    assert "gone: The program 'no-such-program-anywhere' was not found" in added.stderr
    assert (moved.exit_code, "was not found" in moved.stderr) == (0, False), "the place is not known yet"


TOKEN = "a8F3k29dLq02mZp1"


@pytest.mark.parametrize(
    ("arguments", "places"),
    [
        (["--", "run", "--access-token", f"sbp_{TOKEN * 2}"], {"args: --access-token": "ACCESS_TOKEN"}),
        (["--", "run", f"--api-key={TOKEN}"], {"args: --api-key": "API_KEY"}),
        (["--", "run", "-e", f"BOARD_SECRET={TOKEN}"], {"args: BOARD_SECRET": "BOARD_SECRET"}),
        (["--", "run", f"ghp_{TOKEN * 2}"], {"args": "TOKEN"}),
        (["--env", f"BOARD_TOKEN={TOKEN}", "--", "run"], {"env.BOARD_TOKEN": "BOARD_TOKEN"}),
        (["--env", f"ANYTHING=sk-{TOKEN}", "--", "run"], {"env.ANYTHING": "ANYTHING"}),
        (["--header", f"Authorization: Bearer {TOKEN}", "https://h.example/mcp"], {"headers.Authorization": "TOKEN"}),
        ([f"https://h.example/mcp?api_key={TOKEN}"], {"url: api_key": "API_KEY"}),
        (["--", "run", "--access-token", "${BOARD_TOKEN}", "--token-file", "/run/secrets/a8F3k29dLq02", "--keyboard", TOKEN], {}),
        (["--", "run", "--key", "/etc/ssl/private/a8F3k29d.pem", "--secret", "none", "--project", TOKEN, "--tokens", "1000000"], {}),
        (["--env", "AUTH=disabled", "--env", "API_KEY=changeme", "--", "run", "--password-store", "https://a8F3k29dLq02.example"], {}),
        (["--header", "Authorization: Bearer ${BOARD_TOKEN}", "https://h.example/mcp"], {}),
    ],
)
def test_secrets_in_plain_text_are_reported_without_their_value(cli: CommandLine, arguments: list[str], places: dict[str, str]) -> None:
    """The warning names the place and the variable to write instead. Words, paths and variables are no secrets."""
    output = cast("dict[str, dict[str, list[str]]]", cli.run_json("servers", "add", "--json", "--id", "it", *arguments))
    warnings = [warning for warning in output["warnings"].get("it", []) if "looks like a secret" in warning]

    assert len(warnings) == len(places)
    for warning, (place, variable) in zip(warnings, places.items(), strict=True):
        assert warning.startswith(f"{place} looks like a secret")
        assert f"'${{{variable}}}'" in warning
        assert TOKEN not in warning
