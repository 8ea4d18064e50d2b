"""`rookery connect`: shows, writes and removes the set-up of each client, and keeps the rest of its files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest

from rookery.connect.client_files import BACKUP_SUFFIX
from rookery.connect.clients import CONFIGS, Places, locate_file
from rookery.tools.discovery.client_guides import SetupTarget, list_setups
from tests.connect.command_line import ConnectCommand, get_error
from tests.deadlines import HANG_S

TARGET = SetupTarget(name="rookery", url="http://h/mcp", api="http://h/api/v1/mcp")
URL = "http://127.0.0.1:8400/mcp"
HOOK_CLIENTS = tuple(client for client, config in CONFIGS.items() if config.hook_files)


def read_files(*folders: Path) -> dict[Path, bytes]:
    """Return the content of every file below the folders, without backups."""
    files = (path for folder in folders for path in folder.rglob("*") if path.is_file())
    return {path: path.read_bytes() for path in files if not path.name.endswith(BACKUP_SUFFIX)}


def test_it_prints_the_set_up_and_opens_no_store(tmp_path: Path) -> None:
    """Standard output has only the text, with the configured address; no store is created, and nothing is warned of."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ROOKERY_")}
    environment |= {"ROOKERY_PORT": "9123", "ROOKERY_KEY": "the key itself"}
    command = [sys.executable, "-m", "rookery", "--data-dir", str(tmp_path / "data"), "connect", "claude-code"]

    process = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=HANG_S, check=True)

    assert json.loads(process.stdout)["mcpServers"]["rookery"]["url"] == "http://127.0.0.1:9123/mcp"
    assert "the key itself" not in process.stdout + process.stderr
    assert "warning" not in process.stderr
    assert list(tmp_path.iterdir()) == []


def test_it_prints_the_set_up_of_one_server_or_of_search_mode(command: ConnectCommand) -> None:
    """The configured address has the path of the server or the mode of the search."""
    command.settings = replace(command.settings, mcp_url="https://agents.example.org")

    one_server = cast("dict[str, str]", command.run_json("vscode", "--server", "time"))
    search = command.run("codex", "--search")

    assert '"https://agents.example.org/mcp/time"' in one_server["text"]
    assert tomllib.loads(search.stdout)["mcp_servers"]["rookery"]["url"] == "https://agents.example.org/mcp?mode=search"


def test_it_shows_the_file_of_the_chosen_scope(command: ConnectCommand) -> None:
    """Claude Code has a file for a project and one for all projects of a user."""
    assert command.run_json("claude-code")["file"] == ".mcp.json"
    of_user = command.run_json("claude-code", "--user")
    assert of_user["file"] == "~/.claude.json"
    assert "--scope user" in str(of_user["command"])
    assert command.run_json("codex", "--project")["file"] == ".codex/config.toml"


def test_it_writes_into_each_clients_file_and_keeps_the_rest(command: ConnectCommand, project: Path, home: Path) -> None:
    """A second write changes nothing; other servers, TOML comments and the file mode stay; no file has the key."""
    (project / ".mcp.json").write_text('{"mcpServers": {"mine": {"command": "x"}}, "other": 1}')
    (project / ".mcp.json").chmod(0o640)
    codex = home / ".codex" / "config.toml"
    codex.parent.mkdir(parents=True)
    codex.write_text('model = "m"  # mine\n\n[mcp_servers.rookery]\nurl = "http://old"\n\n[mcp_servers.mine]\ncommand = "x"\n')

    for client in CONFIGS:
        assert command.run_json(client, "--write", "--no-key")["changed"] != []
        assert command.run_json(client, "--write", "--no-key")["changed"] == []

    claude = json.loads((project / ".mcp.json").read_text())
    assert (set(claude["mcpServers"]), claude["other"]) == ({"mine", "rookery"}, 1)
    assert (project / ".mcp.json").stat().st_mode & 0o777 == 0o640
    assert json.loads((project / ".cursor/mcp.json").read_text())["mcpServers"]["rookery"]["url"] == URL
    assert len(json.loads((project / ".vscode/mcp.json").read_text())["inputs"]) == 1
    windsurf = json.loads((home / ".codeium/windsurf/mcp_config.json").read_text())["mcpServers"]["rookery"]
    gemini = json.loads((home / ".gemini/settings.json").read_text())["mcpServers"]["rookery"]
    zed = json.loads((home / ".config/zed/settings.json").read_text())["context_servers"]["rookery"]
    desktop = json.loads((home / ".config/Claude/claude_desktop_config.json").read_text())["mcpServers"]["rookery"]
    assert windsurf == {"serverUrl": URL, "headers": {"Authorization": "Bearer ${env:ROOKERY_KEY}"}}
    assert gemini == {"httpUrl": URL, "headers": {"Authorization": "Bearer ${ROOKERY_KEY}"}}
    assert zed == {"url": URL, "headers": {"Authorization": "Bearer YOUR_KEY"}}
    assert (desktop["command"], desktop["args"][:3]) == ("npx", ["-y", "mcp-remote", URL])
    tables = tomllib.loads(codex.read_text())
    helper = tables["mcp_servers"]["rookery"].pop("http_headers_helper")
    assert tables["mcp_servers"]["rookery"] == {"url": URL}
    printed = subprocess.run(
        ["/bin/sh", "-c", helper], env={"HOME": str(home), "ROOKERY_KEY": "k"}, capture_output=True, timeout=HANG_S, check=True
    )
    assert json.loads(printed.stdout) == {"Authorization": "Bearer k"}
    opencode = json.loads((home / ".config/opencode/opencode.json").read_text())["mcp"]["rookery"]
    qwen = json.loads((home / ".qwen/settings.json").read_text())["mcpServers"]["rookery"]
    copilot = json.loads((home / ".copilot/mcp-config.json").read_text())["mcpServers"]["rookery"]
    cline = json.loads((home / ".cline/data/settings/cline_mcp_settings.json").read_text())["mcpServers"]["rookery"]
    bearer = {"Authorization": "Bearer ${ROOKERY_KEY}"}
    assert opencode == {"type": "remote", "oauth": False, "url": URL, "headers": {"Authorization": "Bearer {env:ROOKERY_KEY}"}}
    assert qwen == {"httpUrl": URL, "headers": bearer}
    assert copilot == {"type": "http", "tools": ["*"], "url": URL, "headers": bearer}
    assert cline == {"transport": {"type": "streamableHttp", "url": URL, "headers": {"Authorization": "Bearer YOUR_KEY"}}}
    assert (tables["mcp_servers"]["mine"], "# mine" in codex.read_text()) == ({"command": "x"}, True)
    for content in read_files(project, home).values():
        assert b"the key itself" not in content


def test_codex_reads_the_key_from_a_file(command: ConnectCommand, home: Path) -> None:
    """Its background server keeps the variables of its first start. A second run leaves the file, and `--remove` says so."""
    config, key = home / ".codex" / "config.toml", home / ".codex" / "rookery.key"
    config.parent.mkdir()
    config.write_text('[mcp_servers.rookery]\nurl = "http://old"\nbearer_token_env_var = "ROOKERY_KEY"\nenabled = true\n')
    command.variables = {**command.variables, "ROOKERY_KEY": "the key of codex"}
    written = command.run("codex", "--write", "--hooks")
    command.variables = {**command.variables, "ROOKERY_KEY": "the key of another client"}

    again = command.run_json("codex", "--write", "--hooks")
    entry = tomllib.loads(config.read_text())["mcp_servers"]["rookery"]
    printed = subprocess.run(
        ["/bin/sh", "-c", entry["http_headers_helper"]], env={"HOME": str(home)}, capture_output=True, timeout=HANG_S, check=True
    )

    assert entry.keys() == {"url", "enabled", "http_headers_helper"}
    assert json.loads(printed.stdout) == {"Authorization": "Bearer the key of codex"}
    assert (key.read_text(), key.stat().st_mode & 0o777) == ("the key of codex\n", 0o600)
    assert "the key of codex" not in written.output
    assert again["changed"] == []
    assert "--key-file '~/.codex/rookery.key'" in (home / ".codex" / "hooks.json").read_text()
    assert f"{key} keeps the key. Delete it once you have revoked the key." in cast(
        "list[str]", command.run_json("codex", "--remove")["notices"]
    )


def test_the_entry_and_the_hooks_of_one_file_are_written_together(command: ConnectCommand, home: Path) -> None:
    """Gemini CLI and Qwen Code have both in their settings. One backup has the content before."""
    file = home / ".gemini" / "settings.json"
    file.parent.mkdir()
    file.write_text('{"theme": "mine"}')

    written = command.run_json("gemini", "--write", "--hooks", "--no-key")
    settings = json.loads(file.read_text())

    assert written["changed"] == [str(file)]
    assert set(settings) == {"theme", "mcpServers", "hooks"}
    assert file.with_name(file.name + BACKUP_SUFFIX).read_text() == '{"theme": "mine"}'
    command.run("gemini", "--remove")
    assert json.loads(file.read_text()) == {"theme": "mine"}


def test_a_second_search_is_mentioned(command: ConnectCommand) -> None:
    """Claude Code and Qwen Code give their model a search for tools of their own."""
    assert "its model searches twice" in command.run("qwen-code", "--search").stderr
    assert "searches twice" not in command.run("gemini", "--search").stderr + command.run("qwen-code").stderr


def test_files_of_this_machine_that_git_does_not_ignore_are_mentioned(command: ConnectCommand, project: Path) -> None:
    """Only Claude Code itself lets git ignore `.claude/settings.local.json`, and backups stay in the repository."""
    subprocess.run(["git", "init", "-q"], check=True, timeout=HANG_S)
    (project / ".mcp.json").write_text("{}")

    notices = str(command.run_json("claude-code", "--write", "--hooks")["notices"])
    findings = cast("list[dict[str, object]]", command.run_json("claude-code", "--check")["findings"])
    (project / ".git" / "info" / "exclude").write_text(f".claude/settings.local.json\n*{BACKUP_SUFFIX}\n")
    ignored = cast("list[dict[str, object]]", command.run_json("claude-code", "--check")["findings"])

    exposed = [project / ".claude" / "settings.local.json", project / f".mcp.json{BACKUP_SUFFIX}"]
    assert all(f"git does not ignore {file}" in notices for file in exposed)
    assert [finding["file"] for finding in findings if finding["code"] == "not_ignored"] == [str(file) for file in exposed]
    assert "not_ignored" not in [finding["code"] for finding in ignored]


@pytest.mark.skipif(sys.prefix == sys.base_prefix, reason="not in a virtual environment")
def test_hooks_start_the_program_of_a_virtual_environment_by_its_path(tmp_path: Path, home: Path, project: Path) -> None:
    """The environment is on PATH only in shells that have activated it; a program elsewhere on PATH is named alone."""
    program = Path(sys.executable).with_name("rookery")
    elsewhere = tmp_path / "bin" / "rookery"
    elsewhere.parent.mkdir()
    elsewhere.symlink_to(program)
    for folder, words in ((program.parent, str(program)), (elsewhere.parent, "rookery")):
        command = ConnectCommand(tmp_path / "data", home, PATH=str(folder))
        diff = str(command.run_json("codex", "--hooks", "--no-key", "--dry-run")["diff"])

        assert f'"command": "{words} hook session-start' in diff
    assert list(project.iterdir()) == []


@pytest.mark.parametrize("client", ["cursor", "codex"])
def test_an_entry_of_another_program_is_replaced_with_a_notice(command: ConnectCommand, home: Path, client: str) -> None:
    """The user learns that an entry of this name is gone; no client gets an entry with a command and an address."""
    places = Places(home=home, project=home, platform=sys.platform, environ={})
    file = locate_file(CONFIGS[client].id, "user", places)
    file.parent.mkdir(parents=True)
    file.write_text(
        '[mcp_servers.rookery]\ncommand = "other"\n\n[mcp_servers.mine]\ncommand = "x"\n'
        if client == "codex"
        else '{"mcpServers": {"rookery": {"command": "other"}, "mine": {"command": "x"}}}'
    )
    written = command.run_json(client, "--user", "--write", "--no-key")
    text = file.read_text()
    entries = tomllib.loads(text)["mcp_servers"] if client == "codex" else json.loads(text)["mcpServers"]

    assert (entries["mine"], entries["rookery"]["url"], "command" in entries["rookery"]) == ({"command": "x"}, URL, False)
    assert "was another one and is replaced" in str(written["notices"])
    assert command.run_json(client, "--user", "--write", "--no-key")["notices"] == []


def test_the_placeholder_of_a_key_is_mentioned(command: ConnectCommand, home: Path) -> None:
    """Claude Desktop and Zed read the key from their file, so the user must put one there."""
    written = command.run_json("zed", "--write", "--no-key")

    assert written["notices"] == [f"Put a key in place of YOUR_KEY in {home / '.config/zed/settings.json'}."]
    assert command.run_json("zed", "--write", "--no-key")["notices"] == []


@pytest.mark.parametrize("client", CONFIGS)
@pytest.mark.parametrize("scope", ["--project", "--user"])
def test_remove_undoes_write_and_nothing_else(command: ConnectCommand, project: Path, home: Path, client: str, scope: str) -> None:
    """Files that were there have every byte as before; a dry run shows the changes of both and writes nothing."""
    if scope.removeprefix("--") not in CONFIGS[client].scopes:
        assert "has no files of a project" in get_error(command.run(client, "--write", scope))
        return
    places = Places(home=home, project=project, platform=sys.platform, environ={})
    file = locate_file(CONFIGS[client].id, "project" if scope == "--project" else "user", places)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(b'# mine\nmodel = "m"\n' if client == "codex" else b'{\r\n  // mine\r\n  "theme": "dark",\r\n}\r\n')
    hooks = ("--hooks",) if client in HOOK_CLIENTS else ()
    before = read_files(project, home)

    would_write = command.run_json(client, scope, *hooks, "--no-key", "--dry-run")
    assert read_files(project, home) == before
    written = command.run_json(client, scope, *hooks, "--no-key", "--write")
    after = read_files(project, home)
    assert written["changed"] == would_write["files"]
    assert "+" in str(would_write["diff"])
    again = command.run_json(client, scope, *hooks, "--no-key", "--write")
    would_remove = command.run_json(client, scope, "--remove", "--dry-run")
    assert (again["changed"], read_files(project, home)) == ([], after)
    removed = command.run_json(client, scope, "--remove")

    assert (
        set(cast("list[str]", removed["changed"]))
        == set(cast("list[str]", would_remove["files"]))
        == set(cast("list[str]", written["changed"]))
    )
    rest = read_files(project, home)
    assert rest[file] == before[file]
    assert {content.strip() for path, content in rest.items() if path != file} <= {b"{}", b'{\n  "version": 1\n}'}
    assert command.run_json(client, scope, "--remove")["changed"] == []


def test_hooks_are_added_only_on_request_and_then_kept_up_to_date(command: ConnectCommand, project: Path) -> None:
    """`--write` alone sends nothing of a conversation anywhere; a server that moved is followed."""
    file = project / ".claude" / "settings.local.json"
    command.run("claude-code", "--write")
    assert not file.exists()
    command.run("claude-code", "--write", "--hooks")
    assert "http://127.0.0.1:8400/api/agent/hooks/claude-code/stop" in file.read_text()

    command.settings = replace(command.settings, port=9000)
    command.run("claude-code", "--write")

    assert "8400" not in file.read_text() + (project / ".mcp.json").read_text()
    command.run("claude-code", "--write", "--no-hooks")
    assert file.read_text() == "{}\n"
    assert "9000" in (project / ".mcp.json").read_text()


def test_a_server_that_another_scope_has_is_not_doubled(command: ConnectCommand, project: Path, home: Path) -> None:
    """Two entries of one server double its tools, and two sets of hooks run twice."""
    command.run("claude-code", "--user", "--write", "--hooks")

    second = command.run_json("claude-code", "--project", "--write", "--hooks")

    assert second["changed"] == []
    notices = " ".join(cast("list[str]", second["notices"]))
    assert f"{home}/.claude.json (scope user) has rookery" in notices
    assert f"{home}/.claude/settings.json has the hooks already" in notices
    assert read_files(project) == {}


def test_an_entry_of_that_name_that_is_not_ours_is_not_removed(command: ConnectCommand, project: Path) -> None:
    """The marker of an entry is where it reads its key."""
    text = '{"mcpServers": {"rookery": {"url": "http://127.0.0.1:8400/mcp", "headers": {"Authorization": "Basic mine"}}}}'
    (project / ".mcp.json").write_text(text)

    removed = command.run_json("claude-code", "--remove")

    assert removed["changed"] == []
    assert "Remove it by hand" in str(removed["notices"])
    assert (project / ".mcp.json").read_text() == text


def test_a_rule_tells_cursor_when_to_use_the_memory(command: ConnectCommand, project: Path) -> None:
    """Cursor cannot add the text of a hook to each prompt; the user's own words in the file stay."""
    command.run("cursor", "--write", "--hooks", "--server", "brain")
    rule = project / ".cursor" / "rules" / "rookery.mdc"
    text = rule.read_text()
    assert text.startswith("---\n")
    assert "alwaysApply: true" in text
    assert "call `recall`" in text
    assert len(text.splitlines()) <= 15
    rule.write_text(text + "My own rule.\n")

    command.run("cursor", "--write", "--hooks", "--server", "brain")
    assert rule.read_text() == text + "My own rule.\n"
    command.run("cursor", "--remove", "--server", "brain")

    assert rule.read_text() == "---\ndescription: The shared memory of this project\nalwaysApply: true\n---\n\nMy own rule.\n"


def test_a_server_that_servers_json_lacks_gets_a_notice_with_the_nearest_one(command: ConnectCommand) -> None:
    """A mistyped `--server` gave a configuration that fails in the client."""
    mistyped = command.run("cursor", "--server", "brian")
    built_in = command.run("cursor", "--server", "brain")

    assert (mistyped.exit_code, built_in.exit_code) == (0, 0)
    assert "servers.json has no server 'brian'. Did you mean 'brain'?" in " ".join(mistyped.stderr.split())
    assert "has no server" not in built_in.stderr


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("nope",), 2, "Unknown client"),
        (("curl", "--write"), 2, "no file"),
        (("zed", "--project"), 2, "no files of a project"),
        (("cursor", "--server", "a/b"), 2, "is not a valid server id"),
        (("cursor", "--server", "a", "--search"), 2, "either --server or --search"),
        (("cursor", "--url", "ftp://h"), 2, "--url takes the address of a server"),
        (("cursor", "--check", "--remove"), 2, "--check changes nothing"),
        (("cursor", "--file", "broken.json", "--write"), 1, "broken.json: line 2, column 3"),
        (("cursor", "--file", "broken.json", "--dry-run"), 1, "line 2, column 3"),
        (("cursor", "--file", "broken.json", "--remove"), 1, "line 2, column 3"),
        (("cursor", "--file", "listed.json", "--write"), 1, '"mcpServers" is not an object'),
        (("codex", "--file", "broken.toml", "--write"), 1, "line 2, column 6"),
        (("codex", "--file", "number.toml", "--write"), 1, '"mcp_servers" is not a table'),
        (("cursor", "--file", "latin.json", "--write"), 1, "is not UTF-8"),
        (("cursor", "--file", "folder", "--write"), 1, "cannot be read"),
        (("cursor", "--write", "--hooks"), 1, "hooks.json: line 1, column 2"),
    ],
)
def test_an_impossible_change_is_reported_and_changes_nothing(
    command: ConnectCommand, project: Path, arguments: tuple[str, ...], code: int, message: str
) -> None:
    """Exit code 2 for wrong usage, 1 for a file that cannot be edited; every file stays as it is, also the other ones."""
    files = {
        "broken.json": b'{"mcpServers":\n  oops}',
        "listed.json": b'{"mcpServers": []}',
        "broken.toml": b'a = 1\nb = "\n',
        "number.toml": b"mcp_servers = 1\n",
        "latin.json": '{"name": "Zoë"}'.encode("latin-1"),
        ".cursor/hooks.json": b"{hooks: 1}",
        "folder/file": b"",
    }
    for name, content in files.items():
        (project / name).parent.mkdir(exist_ok=True)
        (project / name).write_bytes(content)

    result = command.run(*arguments)

    error = get_error(result)
    assert (result.exit_code, message in error) == (code, True), error
    assert read_files(project) == {project / name: content for name, content in files.items()}


def test_printed_and_written_files_are_the_same() -> None:
    """The page shows the file that `--write` without a scope writes."""
    places = Places(home=Path("/h"), project=Path("/project"), platform="linux", environ={})
    shorten: Callable[[Path], str] = lambda path: str(path).replace("/project/", "").replace("/h/", "~/")  # noqa: E731 - two places

    for setup in list_setups(TARGET):
        if setup.file is not None and setup.client != "claude-desktop":  # its place depends on the system
            config = CONFIGS[setup.client]
            assert shorten(locate_file(config.id, config.default_scope, places)) == setup.file
    assert {setup.client for setup in list_setups(TARGET) if setup.file is not None} == set(CONFIGS)


@pytest.mark.parametrize(
    ("client", "platform", "environ", "file"),
    [
        ("vscode", "linux", {}, "/h/.config/Code/User/mcp.json"),
        ("vscode", "darwin", {}, "/h/Library/Application Support/Code/User/mcp.json"),
        ("claude-desktop", "darwin", {}, "/h/Library/Application Support/Claude/claude_desktop_config.json"),
        ("claude-desktop", "linux", {"XDG_CONFIG_HOME": "/xdg"}, "/xdg/Claude/claude_desktop_config.json"),
        ("zed", "darwin", {}, "/h/.config/zed/settings.json"),
        ("codex", "linux", {"CODEX_HOME": "/codex"}, "/codex/config.toml"),
        ("claude-code", "linux", {"CLAUDE_CONFIG_DIR": "/claude"}, "/claude/.claude.json"),
    ],
)
def test_a_file_is_where_the_client_of_that_system_reads_it(client: str, platform: str, environ: dict[str, str], file: str) -> None:
    """Clients have different folders on Linux and macOS, and variables that move them."""
    places = Places(home=Path("/h"), project=Path("/project"), platform=platform, environ=environ)

    assert locate_file(CONFIGS[client].id, "user", places) == Path(file)
