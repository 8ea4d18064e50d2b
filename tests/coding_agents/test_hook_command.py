"""`rookery hook` as clients run it: exit code, streams, deadline, and what it imports."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import cast
from urllib.parse import parse_qsl, urlsplit

import pytest

from rookery.agents.schemas.agent_hooks import HookQuery
from rookery.coding_agents.hook_command import HookOptions, find_folder, parse_options
from rookery.connect.hook_entries import HookTarget, build_hooks
from tests.deadlines import HANG_S
from tests.stopwatch import Stopwatch

ANSWER = {"hookSpecificOutput": {"hookEventName": "SessionStart", "additionalContext": "<rookery_memory>\n…\n</rookery_memory>"}}
KEY = "ak_" + "k" * 32

_RUN_WITH_LATE_DEADLINE = f"""
import runpy
from rookery.coding_agents import hook_command
hook_command.DEADLINE_S = {HANG_S}
runpy.run_module("rookery", run_name="__main__")
"""
"""`python -m rookery`, which on a slow machine still has an answer after the second that a client waits for it."""


class HookServer(ThreadingHTTPServer):
    """A server that records requests and sends one answer."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.status, self.body = 200, json.dumps(ANSWER).encode()
        self.requests: list[tuple[str, str, object]] = []

    @property
    def url(self) -> str:
        """The URL of the server."""
        return f"http://127.0.0.1:{self.server_address[1]}"


class _Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        server = cast("HookServer", self.server)
        body = self.rfile.read(int(self.headers["Content-Length"]))
        server.requests.append((self.path, str(self.headers["Authorization"]), json.loads(body)))
        self.send_response(server.status)
        self.send_header("Content-Length", str(len(server.body)))
        self.end_headers()
        self.wfile.write(server.body)

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""


@pytest.fixture
def server() -> Iterator[HookServer]:
    """A running server."""
    with HookServer() as running:
        thread = Thread(target=running.serve_forever, daemon=True)
        thread.start()
        yield running
        running.shutdown()
        thread.join(HANG_S)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder with a project."""
    (tmp_path / ".rookery.toml").write_text('project = "web"\norg = "acme"\n')
    return tmp_path


def run_hook(*arguments: str, stdin: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run `rookery hook` in *folder*, with a deadline that no test reaches."""
    return _run("-c", _RUN_WITH_LATE_DEADLINE, "hook", *arguments, stdin=stdin, folder=folder, variables=variables)


def run_hook_with_its_deadline(*arguments: str, stdin: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run `rookery hook` in *folder* as a client does."""
    return _run("-m", "rookery", "hook", *arguments, stdin=stdin, folder=folder, variables={})


def _run(*words: str, stdin: str, folder: Path, variables: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    environment = {"ROOKERY_KEY": KEY, **variables}
    command = [sys.executable, *words]
    return subprocess.run(command, input=stdin, capture_output=True, text=True, cwd=folder, env=environment, timeout=HANG_S, check=False)


def test_an_event_is_sent_with_its_project_and_the_answer_is_printed(server: HookServer, folder: Path) -> None:
    """The payload on standard input, the project from the machine of the agent, the answer of the server as it is."""
    payload = {"session_id": "c1", "source": "startup", "cwd": str(folder), "odd": [None, {"x": 1}]}
    done = run_hook("session-start", "--client", "claude-code", "--url", f"{server.url}/rookery/", stdin=json.dumps(payload), folder=folder)

    assert (done.returncode, done.stderr, json.loads(done.stdout)) == (0, "", ANSWER)
    ((path, authorization, body),) = server.requests
    assert urlsplit(path).path == "/rookery/api/agent/hooks/claude-code/session-start"
    query = dict(parse_qsl(urlsplit(path).query))
    assert len(query.pop("folder")) == 32
    assert query == {"project": "web", "org": "acme", "is_named": "true"}
    assert (authorization, body) == (f"Bearer {KEY}", payload)


@pytest.mark.parametrize("char", ["x", "\u5428", "\x01", "\U0001f600"])
def test_a_prompt_of_any_length_is_sent_with_its_end(server: HookServer, folder: Path, char: str) -> None:
    """More than 1 MiB takes long to send, so a payload loses the middle of its texts, and what no client fills with text."""
    payload = {"session_id": "c1", "prompt": f"First words. {char * 1_000_000} How many tons?", "odd": ["y" * 1_000_000]}
    run_hook("prompt", "--client", "codex", "--url", server.url, stdin=json.dumps(payload), folder=folder)
    ((_, _, body),) = server.requests
    sent = cast("dict[str, str]", body)
    assert len(json.dumps(sent, ensure_ascii=False).encode()) < 1024 * 1024
    assert sent["session_id"] == "c1"
    assert sent["prompt"].startswith("First words.")
    assert sent["prompt"].endswith("How many tons?")


def test_a_project_is_sent_as_the_route_takes_it(server: HookServer, folder: Path) -> None:
    """The route rejects a name that is too long or has a line break, and the rejection is shown to nobody."""
    (folder / ".rookery.toml").write_text(f'project = " {"w" * 300}"\norg = "acme\\nEU\\u0000{"x" * 100}"\n')
    run_hook("stop", "--client", "codex", "--url", server.url, stdin="{}", folder=folder)
    ((path, _, _),) = server.requests
    query = HookQuery.model_validate(dict(parse_qsl(urlsplit(path).query)))
    assert (query.project, query.org) == ("w" * 255, f"acme EU {'x' * 92}")


def test_an_answer_is_printed_in_utf_8_in_any_locale(server: HookServer, folder: Path) -> None:
    """Clients read UTF-8; a terminal with another encoding, as on Windows, does not lose the answer."""
    server.body = json.dumps(ANSWER | {"systemMessage": "ж 😀"}, ensure_ascii=False).encode()
    done = run_hook("stop", "--client", "codex", "--url", server.url, stdin="{}", folder=folder, PYTHONIOENCODING="ascii")
    assert json.loads(done.stdout)["systemMessage"] == "ж 😀"


def test_the_url_and_the_key_come_from_variables_or_a_file(server: HookServer, folder: Path) -> None:
    """An own key per client, by environment variable; a file for clients that pass on none."""
    (folder / "key").write_text("ak_from_file\n")
    run_hook(
        "stop", "--client=codex", "--key-variable", "OTHER_KEY", stdin="{}", folder=folder, OTHER_KEY="ak_other", ROOKERY_URL=server.url
    )
    run_hook("stop", "--client=codex", "--key-file", "key", "--url", server.url, stdin="{}", folder=folder)
    assert [authorization for _, authorization, _ in server.requests] == ["Bearer ak_other", "Bearer ak_from_file"]


def test_nothing_is_printed_for_an_empty_or_wrong_answer(server: HookServer, folder: Path) -> None:
    """Prints the answer or nothing, exit code 0 and an empty standard error in any case."""
    for status, body in ((200, b"{}"), (200, b"[]"), (200, b"<html>"), (401, b'{"error":"unauthorised"}'), (500, b""), (302, b"{}")):
        server.status, server.body = status, body
        done = run_hook("end", "--client", "cursor", "--url", server.url, stdin='{"session_id":"c1"}', folder=folder)
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert len(server.requests) == 6


@pytest.mark.parametrize(
    ("arguments", "stdin", "variables"),
    [
        (("stop", "--client", "emacs"), "{}", {}),
        (("pre-tool-use", "--client", "codex"), "{}", {}),
        ((), "{}", {}),
        (("stop", "--client"), "{}", {}),
        (("stop", "--client", "codex", "--surprise", "1"), "{}", {}),
        (("stop", "--client", "codex"), "no JSON", {}),
        (("stop", "--client", "codex"), "[1]", {}),
        (("stop", "--client", "codex"), "", {}),
        (("stop", "--client", "codex"), "{}", {"ROOKERY_HOOKS": "off"}),
        (("stop", "--client", "codex"), "{}", {"ROOKERY_KEY": ""}),
        (("stop", "--client", "codex", "--key-file", "/nowhere/key"), "{}", {"ROOKERY_KEY": ""}),
    ],
)
def test_nothing_is_sent_and_nothing_is_said(
    server: HookServer, folder: Path, arguments: tuple[str, ...], stdin: str, variables: dict[str, str]
) -> None:
    """Always exit 0, nothing on standard error; ROOKERY_HOOKS=off, a missing key and wrong input send nothing."""
    done = run_hook(*arguments, stdin=stdin, folder=folder, **{"ROOKERY_URL": server.url, **variables})
    assert (done.returncode, done.stdout, done.stderr, server.requests) == (0, "", "", [])


def test_a_folder_that_is_switched_off_or_has_no_project_sends_nothing(server: HookServer, tmp_path: Path) -> None:
    """`hooks = false` in .rookery.toml, and folders without a project."""
    assert run_hook("stop", "--client", "codex", "--url", server.url, stdin="{}", folder=tmp_path).stdout == ""
    (tmp_path / ".rookery.toml").write_text('project = "web"\nhooks = false\n')
    assert run_hook("stop", "--client", "codex", "--url", server.url, stdin="{}", folder=tmp_path).stdout == ""
    assert server.requests == []


def test_a_server_that_does_not_answer_costs_at_most_the_deadline(folder: Path) -> None:
    """Own deadline of 1 s, exit 0, nothing on standard error, also if the server accepts and never answers, or is not there."""
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        arguments = "session-start", "--client", "codex", "--url", f"http://127.0.0.1:{silent.getsockname()[1]}"
        with Stopwatch() as stopwatch:
            done = run_hook_with_its_deadline(*arguments, stdin='{"session_id":"c1"}', folder=folder)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert stopwatch.elapsed_s >= 0.9
    assert stopwatch.reference_s < 2.5
    done = run_hook_with_its_deadline(*arguments, stdin='{"session_id":"c1"}', folder=folder)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_a_client_that_keeps_standard_input_open_is_not_waited_for(folder: Path) -> None:
    """The deadline covers the read of the payload too."""
    command = [sys.executable, "-m", "rookery", "hook", "stop", "--client", "vscode"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=folder, env={}) as process:
        assert process.wait(HANG_S) == 0
        assert process.stdout is not None
        assert process.stderr is not None
        assert (process.stdout.read(), process.stderr.read()) == (b"", b"")


def test_a_client_that_drops_the_arguments_is_not_stopped() -> None:
    """VS Code runs hooks of Claude Code without `args`, so only the program. It stops the agent for an exit code of 2."""
    handler = build_hooks("claude-code", HookTarget(url="http://h"))["SessionStart"]
    command = [sys.executable, "-m", str(handler["command"])]
    done = subprocess.run(command, input='{"sessionId": "c1"}', capture_output=True, text=True, env={}, timeout=HANG_S, check=False)
    assert done.returncode not in {0, 2}  # for 0, Claude Code would add the help to the conversation
    assert done.stderr == ""


def test_a_key_file_that_does_not_exist_leaves_the_variable(server: HookServer, folder: Path) -> None:
    """A container may have the variable alone."""
    run_hook("stop", "--client", "codex", "--url", server.url, "--key-file", str(folder / "none"), stdin="{}", folder=folder)

    assert server.requests[0][1] == f"Bearer {KEY}"


def test_only_copilot_cli_sends_what_vs_code_cannot_use(server: HookServer, folder: Path) -> None:
    """Both run the hooks of one file, and only Copilot CLI adds a text to a prompt; it sets COPILOT_CLI for its hooks."""
    for event in ("prompt", "end", "session-start"):
        run_hook(event, "--client", "vscode", "--url", server.url, stdin="{}", folder=folder)
    assert [urlsplit(path).path.rpartition("/")[2] for path, _, _ in server.requests] == ["session-start"]

    run_hook("prompt", "--client", "vscode", "--url", server.url, stdin="{}", folder=folder, COPILOT_CLI="1")
    assert len(server.requests) == 2


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux shows the environment of another process")
@pytest.mark.parametrize(
    ("switch", "arguments", "is_here", "is_sent"),
    [
        ("off", [], True, False),
        ("on", [], True, True),
        ("off", [], False, True),
        ("off", ["--cd=/elsewhere"], False, False),
    ],
)
def test_a_terminal_of_codex_switches_the_hooks_of_its_folder_off(
    server: HookServer, folder: Path, switch: str, arguments: list[str], *, is_here: bool, is_sent: bool
) -> None:
    """The background server of Codex runs the hooks, and does not have the variables of the terminal."""
    program = folder / "codex"
    program.symlink_to(sys.executable)
    elsewhere = folder / "elsewhere"
    elsewhere.mkdir()
    code = "import sys; print(flush=True); sys.stdin.read()"
    terminal = subprocess.Popen(
        [program, "-c", code, *arguments],
        cwd=folder if is_here else elsewhere,
        env={"ROOKERY_HOOKS": switch},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with terminal:
        assert terminal.stdout is not None
        terminal.stdout.readline()
        run_hook("stop", "--client", "codex", "--url", server.url, stdin=json.dumps({"cwd": str(folder)}), folder=folder)
        run_hook("stop", "--client", "gemini", "--url", server.url, stdin=json.dumps({"cwd": str(folder)}), folder=folder)
        terminal.terminate()

    clients = [urlsplit(path).path.split("/")[4] for path, _, _ in server.requests]
    assert clients == (["codex", "gemini"] if is_sent else ["gemini"])


def test_a_hook_imports_neither_the_server_nor_the_command_line(folder: Path) -> None:
    """Fast start. Only the standard library and the modules of hooks are imported."""
    code = (
        "import sys, rookery.__main__\n"
        "from rookery.coding_agents import hook_command\n"
        "print(*sorted(name for name in sys.modules if name.startswith('rookery')))\n"
        "print(*sorted({'typer', 'rich', 'pydantic', 'structlog', 'asyncio', 'sqlalchemy', 'urllib.request'} & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=folder, check=True, timeout=HANG_S)
    names, others = done.stdout.splitlines()
    assert names.split() == [
        "rookery",
        "rookery.__main__",
        "rookery.coding_agents",
        "rookery.coding_agents.git_config",
        "rookery.coding_agents.hook_command",
        "rookery.coding_agents.hook_declarations",
        "rookery.coding_agents.projects",
        "rookery.coding_agents.repositories",
        "rookery.coding_agents.terminals",
    ]
    assert others == ""


def test_options_and_folders_are_read() -> None:
    """Options in both spellings; the folder as each client sends it."""
    expected = HookOptions(event="prompt", client="codex", url="http://a=b")
    assert parse_options(["prompt", "--client", "codex", "--url", "http://a=b"]) == expected
    assert parse_options(["prompt", "--client=codex", "--url=http://a=b"]) == expected
    assert parse_options(["prompt", "codex"]) is None
    assert find_folder({"cwd": "/a"}, {"CLAUDE_PROJECT_DIR": "/b"}) == Path("/a")
    assert find_folder({"workspace_roots": ["/c", "/d"]}, {}) == Path("/c")
    assert find_folder({"workspace_roots": []}, {"CURSOR_PROJECT_DIR": "/e"}) == Path("/e")
    assert find_folder({"cwd": 3}, {}) == Path.cwd()
