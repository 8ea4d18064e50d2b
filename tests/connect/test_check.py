"""`rookery connect --check` against a running server: what keeps a client from working is found and named."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import cast

import httpx2
import pytest

from rookery.connect.codex_checks import hash_hook
from rookery.connect.hook_entries import find_hooks
from tests.connect.command_line import ConnectCommand, get_error
from tests.deadlines import HANG_S
from tests.processes import Server, run_server


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A running server."""
    with run_server(tmp_path_factory.mktemp("server") / "data") as running:
        yield running


@pytest.fixture
def command(server: Server, home: Path, project: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ConnectCommand]:
    """
    The command on the data folder of the server, in the shell of a client whose key is set, on the host laptop.

    Its new keys are deleted at the end.
    """
    monkeypatch.setattr("socket.gethostname", lambda: "laptop")
    old_ids = {key["id"] for key in server.client.get("/api/v1/agent-keys").raise_for_status().json()["data"]}
    yield ConnectCommand(server.folder, home, ROOKERY_KEY=server.keys["agent_key"])
    for key in server.client.get("/api/v1/agent-keys").raise_for_status().json()["data"]:
        if key["id"] not in old_ids:
            server.client.delete(f"/api/v1/agent-keys/{key['id']}").raise_for_status()


def approve(home: Path, project: Path) -> None:
    """Store the approval that Claude Code asks its user for."""
    (home / ".claude.json").write_text(json.dumps({"projects": {str(project): {"enabledMcpjsonServers": ["rookery"]}}}))


def trust_codex_hooks(home: Path) -> None:
    """Store the trust that Codex asks its user for in /hooks."""
    file = home / ".codex" / "hooks.json"
    names = {"SessionStart": "session_start", "UserPromptSubmit": "user_prompt_submit", "Stop": "stop", "SessionEnd": "session_end"}
    states = "".join(
        f'\n[hooks.state."{file}:{names[hook.event]}:{hook.place[2]}:{hook.place[-1]}"]\n'
        f'trusted_hash = "{hash_hook(names[hook.event], hook.handler)}"\n'
        for hook in find_hooks(file.read_text())
    )
    config = home / ".codex" / "config.toml"
    config.write_text(config.read_text() + states)


def trust_folder(home: Path, project: Path) -> None:
    """Store the trust that Gemini CLI asks its user for."""
    (home / ".gemini").mkdir(exist_ok=True)
    (home / ".gemini" / "trustedFolders.json").write_text(json.dumps({str(project): "TRUST_FOLDER"}))


@pytest.mark.parametrize("client", ["claude-code", "cursor", "codex", "windsurf", "gemini", "opencode", "qwen-code", "copilot"])
def test_a_client_that_was_just_connected_has_no_problem(command: ConnectCommand, home: Path, project: Path, client: str) -> None:
    """The check speaks MCP with the key of the variable and counts the tools."""
    trust_folder(home, project)
    command.run(client, "--write", "--user" if client == "claude-code" else "--no-key")

    report = command.run_json(client, "--check")

    assert (report["ok"], report["findings"]) == (True, [])
    assert cast("int", report["tools"]) > 10


def test_the_hooks_of_claude_code_are_checked_with_their_route(command: ConnectCommand) -> None:
    """The route is called without a session, so nothing is recorded."""
    command.run("claude-code", "--user", "--write", "--hooks")

    assert command.check("claude-code") == set()
    assert command.run("claude-code", "--check").stdout.splitlines()[-1] == "Claude Code is connected."


def test_hooks_that_the_user_has_switched_off_are_a_note(command: ConnectCommand) -> None:
    """It was the user's decision, and the hooks are right."""
    command.run("claude-code", "--user", "--write", "--hooks")
    command.variables = {**command.variables, "ROOKERY_HOOKS": "off"}

    report = command.run_json("claude-code", "--check")

    assert report["ok"] is True
    assert [finding["code"] for finding in cast("list[dict[str, object]]", report["findings"])] == ["hooks_off"]


@pytest.mark.parametrize("client", ["claude-code", "vscode", "codex", "zed"])
def test_a_client_that_is_not_connected_is_reported(command: ConnectCommand, client: str) -> None:
    """Hooks are asked for, so they are missing too; Zed has none."""
    expected = {"missing"} if client == "zed" else {"missing", "hooks_missing"}

    assert command.check(client, "--hooks") == expected
    assert command.check(client) == {"missing"}


def test_a_wrong_key_is_reported_and_not_shown(command: ConnectCommand, server: Server) -> None:
    """A key that was revoked, or is of another server."""
    command.run("codex", "--write", "--no-key")
    key = "ak_" + "0Wrong0Key" * 3 + "00"
    command.variables = {**command.variables, "ROOKERY_KEY": key}

    result = command.run("codex", "--check")

    assert result.exit_code == 1
    assert key not in result.output
    assert command.check("codex") == {"key_refused"}
    command.variables = {**command.variables, "ROOKERY_KEY": "not even a key"}
    assert command.check("codex") == {"key_refused"}


def test_a_key_without_the_scope_is_reported(command: ConnectCommand, server: Server) -> None:
    """It may see no tool, so the session does not begin."""
    body = {"name": "no tools", "permissions": ["docs:read"]}
    key = str(server.client.post("/api/v1/agent-keys", json=body).raise_for_status().json()["key"])
    command.run("claude-code", "--user", "--write", "--hooks")
    command.variables = {**command.variables, "ROOKERY_KEY": key}

    assert command.check("claude-code") == {"key_lacks_scope"}


def test_a_variable_without_a_key_is_reported(command: ConnectCommand) -> None:
    """VS Code has a store of its own, so there it is only a note."""
    command.run("cursor", "--write")
    command.run("vscode", "--write")
    command.variables = {**command.variables, "ROOKERY_KEY": None}

    assert command.check("cursor") == {"key_unset"}
    assert command.check("vscode") == set()


def test_hooks_without_a_key_are_reported(command: ConnectCommand) -> None:
    """The hooks of VS Code do not have the key that VS Code stores, and send nothing without one."""
    command.run("vscode", "--write", "--hooks")
    command.variables = {**command.variables, "ROOKERY_KEY": None}

    assert command.check("vscode") == {"key_unset"}


def test_a_stopped_server_is_reported(command: ConnectCommand) -> None:
    """The check ends with the reason and not with an exception."""
    with socket.socket() as unheard:  # it does not listen, and nobody else gets its port
        unheard.bind(("127.0.0.1", 0))
        port = cast("int", unheard.getsockname()[1])
        command.run("codex", "--write", "--no-key", "--url", f"http://127.0.0.1:{port}")

        assert command.check("codex", "--url", f"http://127.0.0.1:{port}") == {"unreachable"}


def test_another_server_at_the_address_is_reported(command: ConnectCommand, server: Server) -> None:
    """An address below which there is no MCP."""
    command.run("codex", "--write", "--no-key", "--url", f"{server.url}/docs")

    assert command.check("codex", "--url", f"{server.url}/docs") == {"unexpected_answer"}


def test_what_others_wrote_does_not_control_the_terminal(command: ConnectCommand, home: Path) -> None:
    """A file may come with a repository: an escape sequence in it is shown and does nothing, and half an emoji ends no command."""
    command.run("cursor", "--write", "--no-key")
    file = home.parent / "project" / ".cursor" / "mcp.json"
    file.write_text(re.sub(r'"url": "[^"]*"', r'"url": "http://other/\\u001b[2J\\n\\ud83d"', file.read_text()))

    result = command.run("cursor", "--check")

    assert r"has the address http://other/\x1b[2J\n\ud83d, but the server is at" in result.output
    assert "\x1b" not in result.output
    assert "wrong_address" in command.check("cursor")


def test_an_old_address_is_reported_and_the_key_is_not_sent_there(command: ConnectCommand, server: Server) -> None:
    """The file of a project comes from others: the key goes only to the address of the settings."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        other.settimeout(0)
        port = cast("int", other.getsockname()[1])
        without_key = ConnectCommand(command.settings.data_dir, command.home)
        without_key.run("cursor", "--write", "--hooks", "--no-key", "--url", f"http://127.0.0.1:{port}")

        assert command.check("cursor") == {"wrong_address"}
        with pytest.raises(BlockingIOError):
            other.accept()


def test_an_entry_that_another_file_covers_is_reported(command: ConnectCommand, home: Path, project: Path) -> None:
    """Claude Code prefers the entry for one project, then that of the project's file, then that of the user."""
    command.run("claude-code", "--user", "--write")
    command.run("claude-code", "--project", "--write", "--url", "http://127.0.0.1:1")

    assert command.check("claude-code", "--user") == {"shadowed"}
    assert command.check("claude-code") == {"wrong_address", "untrusted"}

    content = json.loads((home / ".claude.json").read_text())
    content["projects"] = {str(project): {"mcpServers": {"rookery": {"type": "http", "url": "http://127.0.0.1:2/mcp"}}}}
    (home / ".claude.json").write_text(json.dumps(content))
    assert command.check("claude-code", "--project") == {"shadowed", "wrong_address", "untrusted"}
    assert command.check("claude-code") == {"foreign_entry", "wrong_address"}


def test_a_server_that_the_user_has_not_approved_is_reported(command: ConnectCommand, home: Path, project: Path) -> None:
    """Claude Code runs no server of `.mcp.json` before its user agrees, and none that he rejects."""
    command.run("claude-code", "--write")
    assert command.check("claude-code") == {"untrusted"}
    approve(home, project)
    assert command.check("claude-code") == set()
    (project / ".claude").mkdir()
    (project / ".claude" / "settings.json").write_text('{"disabledMcpjsonServers": ["rookery"]} // comment')
    assert command.check("claude-code") == {"disabled"}


def test_hooks_that_codex_does_not_trust_are_reported(command: ConnectCommand, home: Path) -> None:
    """Codex runs a hook only after its user has trusted it in /hooks; the command says so when it writes them."""
    steps = cast("list[str]", command.run_json("codex", "--write", "--hooks")["notices"])
    assert "Codex runs these hooks only after you trust them. It asks when it starts; or open /hooks in Codex." in steps
    assert command.check("codex") == {"untrusted"}
    trust_codex_hooks(home)
    assert command.check("codex") == set()
    config = home / ".codex" / "config.toml"
    trusted = config.read_text()
    config.write_text(trusted.replace("trusted_hash", "enabled = false\ntrusted_hash", 1))
    assert command.check("codex") == {"disabled"}
    config.write_text(trusted)
    command.run("codex", "--write", "--url", "http://127.0.0.1:1", "--no-key")
    moved = command.run("codex", "--check", "--url", "http://127.0.0.1:1", "--json").stdout
    assert "These hooks have changed since you trusted them" in moved
    assert "keeps the key" in str(command.run_json("codex", "--remove")["notices"])


def test_a_folder_that_the_client_does_not_trust_is_reported(command: ConnectCommand, home: Path, project: Path) -> None:
    """Gemini CLI disables all servers there, also those of its user. The longest path that covers the folder counts."""
    file = home / ".gemini" / "trustedFolders.json"
    command.run("gemini", "--write")
    assert command.check("gemini") == {"untrusted"}
    trust_folder(home, project)
    assert command.check("gemini") == set()
    for rules, problems in (
        ({str(project.parent): "TRUST_FOLDER"}, set[str]()),
        ({str(project / "below"): "TRUST_PARENT"}, set[str]()),
        ({str(project.parent): "TRUST_FOLDER", str(project): "DO_NOT_TRUST"}, {"untrusted"}),
        ({str(project / "below"): "TRUST_FOLDER"}, {"untrusted"}),
    ):
        file.write_text(json.dumps(rules))
        assert command.check("gemini") == problems, rules
    command.variables = {**command.variables, "GEMINI_CLI_TRUST_WORKSPACE": "true"}
    assert command.check("gemini") == set()


def test_qwen_code_asks_for_trust_only_if_a_setting_says_so(command: ConnectCommand, home: Path, project: Path) -> None:
    """And it starts a server of a project only after its user has approved it. Files as Qwen Code 0.24.4 writes them."""
    command.run("qwen-code", "--write")
    file = home / ".qwen" / "settings.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), "security": {"folderTrust": {"enabled": True}}}))
    assert command.check("qwen-code") == {"untrusted"}
    file.unlink()
    command.run("qwen-code", "--write", "--project")
    assert command.check("qwen-code") == {"untrusted"}
    approvals = {str(project): {"rookery": {"hash": "cdbe494c", "status": "approved"}}}
    (home / ".qwen" / "mcpApprovals.json").write_text(json.dumps(approvals))
    assert command.check("qwen-code") == set()
    (home / ".qwen" / "mcpApprovals.json").write_text(json.dumps(approvals).replace("approved", "rejected"))
    assert command.check("qwen-code") == {"disabled"}


def test_projects_that_codex_and_copilot_do_not_trust_are_reported(command: ConnectCommand, home: Path, project: Path) -> None:
    """Both ignore the file of such a project without a word."""
    command.run("codex", "--write", "--project")
    command.run("copilot", "--write", "--project")
    assert command.check("codex") == command.check("copilot") == {"untrusted"}
    (home / ".codex" / "config.toml").write_text(f'[projects."{project}"]\ntrust_level = "trusted"\n')
    (home / ".copilot").mkdir()
    (home / ".copilot" / "config.json").write_text(json.dumps({"trustedFolders": [str(project.parent)]}))
    assert command.check("codex") == command.check("copilot") == set()


@pytest.mark.parametrize(
    ("client", "file", "settings"),
    [
        ("gemini", ".gemini/settings.json", {"mcp": {"excluded": ["rookery"]}}),
        ("qwen-code", ".qwen/settings.json", {"mcp": {"excluded": ["rook*"]}}),
        ("qwen-code", ".qwen/settings.json", {"mcp": {"allowed": ["other"]}}),
        ("copilot", ".copilot/settings.json", {"disabledMcpServers": ["rookery"]}),
    ],
)
def test_a_server_that_a_setting_disables_is_reported(
    command: ConnectCommand, home: Path, project: Path, client: str, *, file: str, settings: dict[str, object]
) -> None:
    """The entry stays as it is. `copilot mcp disable` writes such a list."""
    trust_folder(home, project)
    command.run(client, "--write")
    path = home / file
    path.write_text(json.dumps({**(json.loads(path.read_text()) if path.exists() else {}), **settings}))

    assert command.check(client) == {"disabled"}


def test_a_key_that_another_program_wrote_into_the_file_is_reported(command: ConnectCommand, home: Path, project: Path) -> None:
    """`gemini mcp add` and `qwen mcp add` write the file back with the value of each variable. Others may read a project's."""
    trust_folder(home, project)
    key = str(command.variables["ROOKERY_KEY"])
    for scope, problems in (("--user", set[str]()), ("--project", {"key_in_file"})):
        file = (home if scope == "--user" else project) / ".gemini" / "settings.json"
        command.run("gemini", scope, "--write")
        file.write_text(file.read_text().replace("${ROOKERY_KEY}", key))
        report = command.run_json("gemini", scope, "--check")
        assert "key_in_file" in str(report["findings"])
        assert key not in str(report)
        assert command.check("gemini", scope) == problems

        written = command.run_json("gemini", scope, "--write")

        assert "${ROOKERY_KEY}" in file.read_text()
        assert "had the key in clear" in str(written["notices"])
        assert key not in file.with_name(f"{file.name}.rookery-backup").read_text()
        assert command.check("gemini", scope) == set()
        command.run("gemini", scope, "--remove")


def test_the_key_of_a_file_is_the_one_that_is_checked(command: ConnectCommand, home: Path) -> None:
    """Codex uses it, whatever the variable of the shell is. A rotation has an effect as soon as the file has the new key."""
    command.run("codex", "--write")
    file, key = home / ".codex" / "rookery.key", str(command.variables["ROOKERY_KEY"])
    assert file.read_text() == f"{key}\n"
    command.variables = {**command.variables, "ROOKERY_KEY": None}
    assert command.check("codex") == set()
    file.write_text("ak_" + "0Wrong0Key" * 3 + "00")
    assert command.check("codex") == {"key_refused"}
    file.unlink()
    assert command.check("codex") == {"key_unset"}


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux shows the environment of another process")
def test_the_background_server_of_codex_is_compared_with_the_shell(command: ConnectCommand, home: Path) -> None:
    """It runs hooks and connects with the environment of its first start."""
    command.run("codex", "--write", "--hooks", "--no-key")
    trust_codex_hooks(home)
    key, state = str(command.variables["ROOKERY_KEY"]), home / ".codex" / "app-server-daemon" / "daemon.pid"
    state.parent.mkdir()

    def check(**environment: str) -> dict[str, bool]:
        sleep = [sys.executable, "-c", "import sys; print(flush=True); sys.stdin.read()", "app-server"]
        with subprocess.Popen(sleep, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            process.stdout.readline()
            state.write_text(json.dumps({"pid": process.pid, "processStartTime": "Sat Nov 28 22:39:00 2026"}))
            findings = cast("list[dict[str, object]]", command.run_json("codex", "--check")["findings"])
            process.terminate()
        return {str(finding["code"]): bool(finding["is_problem"]) for finding in findings}

    assert check() == {"stale_environment": True}
    assert check(ROOKERY_KEY="another") == {"stale_environment": True}
    assert check(ROOKERY_KEY=key) == {}
    assert check(ROOKERY_KEY=key, ROOKERY_HOOKS="off") == {"stale_environment": True}
    command.run("codex", "--write", "--hooks")
    assert check() == {}, "the key is in a file"
    command.variables = {**command.variables, "ROOKERY_HOOKS": "off"}
    assert check() == {"hooks_off": False, "background_server": False}
    assert command.check("codex") == set(), "its process has ended"


def test_the_hash_of_a_hook_is_that_of_codex() -> None:
    """As `hooks/list` of the app-server of codex-cli 0.169.0 returned them for files that this command wrote."""
    command = "rookery hook session-start --client codex --url http://127.0.0.1:18431"
    start = {"type": "command", "command": command, "timeout": 5}
    stop = {**start, "command": command.replace("session-start", "stop")}

    assert hash_hook("session_start", start) == "sha256:ec535a775ffcd17817243fd5ee9c11d033c874d49746f4d392981b79394ac393"
    assert hash_hook("stop", stop) == "sha256:dacb325b56cd6dad3604fc4cd375f2d0d292139fe7597c0b8798b23c706ad7fd"
    assert hash_hook("stop", {**stop, "unknown": 1}) is None


@pytest.mark.parametrize(
    ("settings", "code"),
    [
        ({"disableAllHooks": True}, "disabled"),
        ({"allowedHttpHookUrls": ["https://hooks.example.com/*"]}, "hooks_blocked"),
        ({"httpHookAllowedEnvVars": ["OTHER"]}, "hooks_blocked"),
        ({"enabledPlugins": {"rookery@market": True}}, "plugin"),
        ({"allowedHttpHookUrls": ["http://127.0.0.1:*"], "httpHookAllowedEnvVars": ["ROOKERY_KEY"]}, None),
    ],
)
def test_settings_of_claude_code_that_keep_hooks_from_running_are_reported(
    command: ConnectCommand, home: Path, settings: dict[str, object], code: str | None
) -> None:
    """They make a client ignore a file that is right."""
    command.run("claude-code", "--user", "--write", "--hooks")
    file = home / ".claude" / "settings.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **settings}))

    assert command.check("claude-code") == ({code} if code else set())


def test_hooks_that_are_incomplete_or_start_a_missing_program_are_reported(command: ConnectCommand, home: Path) -> None:
    """An older version wrote fewer hooks, or the environment of `rookery` was moved."""
    command.run("claude-code", "--user", "--write", "--hooks")
    file = home / ".claude" / "settings.json"
    settings = json.loads(file.read_text())
    del settings["hooks"]["Stop"]
    settings["hooks"]["SessionStart"][0]["hooks"][0]["command"] = "/gone/rookery"
    file.write_text(json.dumps(settings))

    assert command.check("claude-code") == {"hooks_incomplete", "program_missing"}
    command.run("claude-code", "--user", "--write")
    assert command.check("claude-code") == set()


def test_a_file_that_cannot_be_read_is_reported(command: ConnectCommand, project: Path) -> None:
    """The client cannot read it either."""
    (project / ".cursor").mkdir()
    (project / ".cursor" / "mcp.json").write_text("{oops}")

    assert command.check("cursor") == {"unreadable"}


@pytest.mark.parametrize(
    ("client", "file"),
    [
        ("zed", ".config/zed/settings.json"),
        ("claude-desktop", ".config/Claude/claude_desktop_config.json"),
        ("cline", ".cline/data/settings/cline_mcp_settings.json"),
    ],
)
def test_a_client_that_keeps_its_key_gets_one_of_its_own(command: ConnectCommand, home: Path, client: str, file: str) -> None:
    """The new file is readable by its owner only; a second run changes nothing; a placeholder is a problem."""
    command.run(client, "--write", "--no-key")
    assert command.check(client) == {"key_unset"}

    text = command.run(client, "--write").stdout
    content = (home / file).read_text()

    assert "YOUR_KEY" not in content
    assert "ak_" not in text
    assert command.check(client) == set()
    assert command.run_json(client, "--write")["changed"] == []
    assert (home / file).read_text() == content


@pytest.mark.parametrize(("mode", "is_mentioned"), [(0o600, False), (0o644, True)])
def test_a_key_in_a_file_that_others_can_read_is_mentioned(command: ConnectCommand, home: Path, mode: int, *, is_mentioned: bool) -> None:
    """The mode of the user's file stays, so the user decides."""
    file = home / ".config/zed/settings.json"
    file.parent.mkdir(parents=True)
    file.write_text("{}")
    file.chmod(mode)
    written = command.run_json("zed", "--write")

    assert "Bearer ak_" in file.read_text()
    assert (f"chmod 600 {file}" in str(written["notices"])) == is_mentioned


def test_a_file_in_a_repository_gets_no_key(command: ConnectCommand, home: Path, tmp_path: Path) -> None:
    """Settings are often linked to a repository of dotfiles. The key is shown instead, once."""
    dotfiles = tmp_path / "dotfiles"
    (dotfiles / ".git").mkdir(parents=True)
    (home / ".config" / "zed").mkdir(parents=True)
    (home / ".config" / "zed" / "settings.json").symlink_to(dotfiles / "zed.json")
    server_key = command.run_json("claude-desktop", "--write", "--file", str(dotfiles / "desktop.json"))

    command.run("zed", "--write")

    assert "YOUR_KEY" in (dotfiles / "zed.json").read_text()
    assert "YOUR_KEY" in (dotfiles / "desktop.json").read_text()
    assert "in a git repository" in str(server_key["notices"])


def test_a_key_of_the_client_is_created_once_and_has_few_permissions(command: ConnectCommand, server: Server, tmp_path: Path) -> None:
    """It belongs to one client on one machine; nothing is rotated, and it is shown only by the run that creates it."""
    command.variables = {**command.variables, "ROOKERY_KEY": None}

    first = command.run("gemini", "--write")
    second = command.run_json("gemini", "--write")

    key = first.stdout.rpartition("export ROOKERY_KEY=")[2].strip()
    me = httpx2.get(f"{server.url}/api/v1/whoami", headers={"Authorization": f"Bearer {key}"}, timeout=HANG_S).json()
    assert me["name"] == f"gemini on {socket.gethostname()}"
    assert str(me["agent_id"]).startswith("gemini-")
    assert set(me["permissions"]) == {"mcp:read", "mcp:write", "brain:read", "brain:write", "sessions.read", "sessions.write", "plans.read"}
    assert "key" not in second
    assert "has a key already" in str(second["notices"])


@pytest.mark.parametrize("host", ["4f1c0a7be2d1", "codespaces-9be2d1"])
def test_a_container_with_a_random_name_gets_the_agent_of_its_project(
    command: ConnectCommand, project: Path, monkeypatch: pytest.MonkeyPatch, host: str
) -> None:
    """Rebuilt containers are one agent, and a line says how to choose its name."""
    command.variables = {**command.variables, "ROOKERY_KEY": None}
    (project / ".git").mkdir()
    monkeypatch.setattr("socket.gethostname", lambda: host)
    first = command.run_json("claude-code", "--write")
    assert "key" in first
    assert f"The name of this host, {host}, is random, so the agent is claude-code-project." in str(first["notices"])
    monkeypatch.setattr("socket.gethostname", lambda: "9be2d14f1c0a")
    second = command.run_json("claude-code", "--write")
    assert "key" not in second
    assert "The agent claude-code-project has a key already" in str(second["notices"])


def test_the_name_of_the_agent_can_be_given(command: ConnectCommand, project: Path) -> None:
    """`--name`, or `agent` in `.rookery.toml`, in place of the name of the host."""
    command.variables = {**command.variables, "ROOKERY_KEY": None}
    (project / ".rookery.toml").write_text('agent = "Kim\'s box"\n')
    assert "key" in command.run_json("claude-code", "--write")
    assert "The agent claude-code-kim-s-box has a key" in str(command.run_json("claude-code", "--write")["notices"])
    assert "key" in command.run_json("claude-code", "--write", "--name", "ci")
    assert "The agent claude-code-ci has a key" in str(command.run_json("claude-code", "--write", "--name", "claude-code-ci")["notices"])
    (project / ".rookery.toml").write_text("agent =")
    assert "Correct .rookery.toml, or use --name." in get_error(command.run("claude-code", "--write"))


def test_a_key_is_shown_if_the_file_cannot_be_written(command: ConnectCommand, project: Path) -> None:
    """The key exists by then, and a later run could not show it."""
    (project / ".mcp.json").write_text("{}")
    (project / ".mcp.json.rookery-backup").mkdir()
    command.variables = {**command.variables, "ROOKERY_KEY": None}

    result = command.run("claude-code", "--write")

    assert ".mcp.json cannot be written" in get_error(result)
    assert result.stdout.startswith("ak_")
    assert (project / ".mcp.json").read_text() == "{}"


@pytest.mark.usefixtures("command")
def test_a_key_is_created_over_http_by_a_key_that_may(server: Server, home: Path, tmp_path: Path) -> None:
    """The server runs on another machine: its key of ROOKERY_KEY creates the one of this client, if it may."""
    elsewhere = ConnectCommand(tmp_path / "no data", home, ROOKERY_KEY=server.keys["api_key"])

    created = elsewhere.run_json("windsurf", "--write", "--url", server.url)
    again = elsewhere.run_json("windsurf", "--write", "--url", server.url)
    elsewhere.variables = {**elsewhere.variables, "ROOKERY_KEY": str(created["key"])}
    with_own = elsewhere.run_json("windsurf", "--write", "--url", server.url)

    assert created["url"] == f"{server.url}/mcp"
    assert elsewhere.check("windsurf", "--url", server.url) == set()
    assert ("key" in again, "has a key already" in str(again["notices"])) == (False, True)
    assert ("key" in with_own, [text for text in cast("list[str]", with_own["notices"]) if "tokens" not in text]) == (False, [])


def test_without_a_store_and_without_a_key_the_command_says_how_to_get_one(home: Path, project: Path, tmp_path: Path) -> None:
    """The file is written all the same; no store is created."""
    elsewhere = ConnectCommand(tmp_path / "no data", home)

    local = elsewhere.run_json("cursor", "--write")
    remote = elsewhere.run_json("codex", "--write", "--url", "https://agents.example.org")

    assert "No key was created" in str(local["notices"])
    assert "Set ROOKERY_KEY to a key of https://agents.example.org" in str(remote["notices"])
    assert not (tmp_path / "no data").exists()
    assert "agents.example.org/mcp" in (home / ".codex" / "config.toml").read_text()
    assert "Traceback" not in get_error(elsewhere.run("cursor", "--write"))
