"""Every kind of upstream: real servers, a misbehaving one, and the end of their processes."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import psutil
import pytest

from rookery.engines import upstreams
from rookery.engines.upstreams.input_pipe import InputPipe
from rookery.engines.upstreams.process import ServerProcess
from rookery.tools.errors import ConnectFailed, ConnectionLost, InvalidResult, ResultTooLarge, UpstreamErrorResponse
from rookery.tools.models import CommandTarget, Server
from rookery.tools.ports import RequestOptions, UpstreamConnection
from rookery.tools.process_output import find_error_line
from tests.conftest import eventually
from tests.deadlines import HANG_S
from tests.postgres import free_port
from tests.stopwatch import Stopwatch
from tests.tools.makers import (
    BIN,
    SERVERS,
    count_open_files,
    is_alive,
    list_children,
    make_caller,
    make_http_server,
    make_odd_server,
    text_of,
)

CALLER = make_caller()
ROOT = Path(__file__).resolve().parents[2]
CONNECTORS = upstreams.open([])


def ignore_change() -> None:
    """Ignore a change of the features."""


def connect(server: Server) -> AbstractAsyncContextManager[UpstreamConnection]:
    """Return a session as a context manager."""
    return CONNECTORS[server.kind].connect(server, on_changed=ignore_change)


async def call(connection: UpstreamConnection, tool: str, **arguments: object) -> dict[str, object]:
    """Call a tool."""
    return await connection.request("tools/call", {"name": tool, "arguments": arguments}, RequestOptions(caller=CALLER))


@pytest.fixture(scope="module")
def legacy_url() -> Iterator[str]:
    """Yield the URL of a server with the older protocol over HTTP."""
    with subprocess.Popen([sys.executable, "-I", "-S", str(SERVERS / "legacy.py")], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        process.kill()


@pytest.fixture(scope="module", params=["http", "sse"])
def sdk_server_url(request: pytest.FixtureRequest) -> Iterator[str]:
    """Yield the URL of a server of the official SDK, with Streamable HTTP and with the older SSE."""
    port = free_port()
    command = [sys.executable, str(SERVERS / "served.py"), str(port), request.param]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if b"running on" in line:
                break
        yield f"http://127.0.0.1:{port}/{'mcp' if request.param == 'http' else 'sse'}"
        process.kill()


@pytest.fixture(autouse=True)
async def require_no_processes_left() -> AsyncIterator[None]:
    """Fail if a process of a stdio server outlives the test."""
    pids_before = {child.pid for child in list_children()}
    yield
    await eventually(lambda: {child.pid for child in list_children()} <= pids_before)


# Real servers


async def test_the_tools_of_the_time_server_can_be_listed_and_called() -> None:
    """The server is a real one with the stateless protocol."""
    server = Server(id="time", name="time", target=CommandTarget(command=str(BIN / "mcp-server-time"), args=("--local-timezone", "UTC")))

    async with connect(server) as time_server:
        features = await time_server.list_features()
        result = await call(time_server, "get_current_time", timezone="UTC")

    assert [tool["name"] for tool in features.tools] == ["get_current_time", "convert_time"]
    assert features.resources == features.templates == features.prompts == ()
    assert result["isError"] is False
    assert isinstance(result["structuredContent"], dict)
    assert '"timezone": "UTC"' in text_of(result)


async def test_the_git_server_works_on_a_real_repository(tmp_path: Path) -> None:
    """The server is a second real one, with side effects."""
    await asyncio.to_thread(subprocess.run, ["git", "init", "-q", str(tmp_path)], check=True)
    (tmp_path / "note.txt").write_text("hello")
    target = CommandTarget(command=str(BIN / "mcp-server-git"), args=("--repository", str(tmp_path)))

    async with connect(Server(id="git", name="git", target=target)) as git:
        add_result = await call(git, "git_add", repo_path=str(tmp_path), files=["note.txt"])
        status = await call(git, "git_status", repo_path=str(tmp_path))

    assert add_result["isError"] is False
    assert "note.txt" in text_of(status)


async def test_a_server_over_http_works_like_one_over_pipes(sdk_server_url: str) -> None:
    """Streamable HTTP and SSE have the same port."""
    async with connect(make_http_server(sdk_server_url)) as session:
        features = await session.list_features()
        result = await call(session, "add", a=2, b=3)
        content = await session.request("resources/read", {"uri": "memo://insights"}, RequestOptions(caller=CALLER))

    assert {"pid", "add", "large", "crash", "headers"} == {tool["name"] for tool in features.tools}
    assert features.resources[0]["uri"] == "memo://insights"
    assert text_of(result) == "5"
    assert content["contents"] == [{"uri": "memo://insights", "mimeType": "text/plain", "text": "everything is fine"}]


# Faults of servers over HTTP


async def test_a_session_unknown_to_the_upstream_is_lost_and_the_call_was_not_handled(legacy_url: str) -> None:
    """The upstream did not process the call, so it may be repeated in a new session."""
    async with connect(make_http_server(f"{legacy_url}/mcp")) as session:
        await call(session, "forget")

        with pytest.raises(ConnectionLost) as error:
            await call(session, "write")

        assert error.value.was_handled is False
        assert await asyncio.wait_for(session.wait_closed(), HANG_S)


async def test_a_truncated_response_fails_only_its_call(legacy_url: str) -> None:
    """One failed request must not end the session."""
    async with connect(make_http_server(f"{legacy_url}/mcp")) as session:
        with pytest.raises(ConnectionLost) as error:
            await call(session, "half")

        assert error.value.was_handled is True
        assert text_of(await call(session, "write")) == "ok"


async def test_an_upstream_that_sends_endless_requests_is_disconnected(legacy_url: str) -> None:
    """A server that does not read the results must not fill the platform with tasks."""
    count_before, max_tasks = len(asyncio.all_tasks()), 0

    async def watch() -> None:
        nonlocal max_tasks
        while True:
            max_tasks = max(max_tasks, len(asyncio.all_tasks()))
            await asyncio.sleep(0.01)

    watch_task = asyncio.create_task(watch())
    async with connect(make_http_server(f"{legacy_url}/mcp")) as session:
        pending = asyncio.create_task(call(session, "flood"))
        assert "without reading the results" in await asyncio.wait_for(session.wait_closed(), HANG_S)
    with pytest.raises(ConnectionLost, match="without reading the results"):
        await pending
    watch_task.cancel()

    assert max_tasks - count_before < 300


async def test_a_result_over_http_larger_than_10_mib_is_rejected(legacy_url: str) -> None:
    """A result over 10 MiB is rejected and the session stays open."""
    async with connect(make_http_server(f"{legacy_url}/mcp")) as session:
        with pytest.raises(ResultTooLarge):
            await call(session, "large")

        assert text_of(await call(session, "write")) == "ok"


@pytest.mark.parametrize(("path", "needs_login"), [("login", True), ("down", False), ("junk", False), ("half", False)])
async def test_a_url_without_an_mcp_server_fails_to_connect_with_a_reason(legacy_url: str, path: str, needs_login: bool) -> None:
    """The error distinguishes a required login from an unreachable server."""
    with pytest.raises(ConnectFailed) as error:
        await asyncio.wait_for(connect(make_http_server(f"{legacy_url}/{path}")).__aenter__(), HANG_S)

    assert error.value.needs_login is needs_login
    assert str(error.value)


async def test_a_refused_connection_is_reported() -> None:
    """The error names the address with its port, and the cause."""
    port = free_port()
    with pytest.raises(ConnectFailed, match=f"No connection to 127.0.0.1:{port}: the connection was refused"):
        await connect(make_http_server(f"http://127.0.0.1:{port}/mcp")).__aenter__()


async def test_the_configured_headers_are_sent_to_the_upstream(legacy_url: str) -> None:
    """The headers of a server entry are sent to the upstream."""
    server = make_http_server(f"{legacy_url}/mcp")
    target = type(server.target)(url=f"{legacy_url}/mcp", headers={"X-Key": "made up"})  # pyright: ignore[reportCallIssue] - an HTTP target

    async with connect(Server(id="served", name="served", target=target)) as session:
        assert text_of(await call(session, "header")) == "made up"


# Faults of servers over pipes


async def test_noise_on_stdout_is_ignored() -> None:
    """A print() in a server must not end its session."""
    async with connect(make_odd_server("--noise")) as session:
        assert text_of(await call(session, "echo", text="hi")) == "hi"


async def test_a_flood_of_messages_does_not_block_other_tasks() -> None:
    """Other tasks run after some messages, so that one server does not delay another."""
    our_socket, their_socket = socket.socketpair()
    turns = 0

    async def run_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    with our_socket, their_socket:
        child = ServerProcess((), our_socket, InputPipe())
        child.pid = 1
        child.pipe_data_received(1, b'{"jsonrpc": "2.0", "method": "notifications/message"}\n' * 1000)
        pending = asyncio.create_task(run_turns())
        for _ in range(1000):
            await child.next_message()
        pending.cancel()

    assert turns >= 50


async def test_repeated_subscriptions_leave_no_stream() -> None:
    """In the newer protocol a subscription is a stream, which ends with its last subscriber."""
    everything = CommandTarget(command=sys.executable, args=("-m", "tests.conformance.everything"), cwd=str(ROOT))
    uri: dict[str, object] = {"uri": "test://watched-resource"}
    async with connect(Server(id="later", name="later", target=everything)) as session:
        count_before = len(asyncio.all_tasks())
        for _ in range(20):
            options = RequestOptions(caller=CALLER, on_update=lambda _: None)
            await session.request("resources/subscribe", uri, options)
            await session.request("resources/unsubscribe", uri, options)

        await eventually(lambda: len(asyncio.all_tasks()) < count_before + 5)  # the session itself may have added one or two


async def test_features_are_listed_over_all_pages_and_unchanged() -> None:
    """Schemas pass through unchanged, including nulls and fields of vendors."""
    async with connect(make_odd_server()) as session:
        features = await session.list_features()

    assert len({str(tool["name"]) for tool in features.tools}) == len(features.tools) > 16  # more than two pages
    strict = next(tool for tool in features.tools if tool["name"] == "strict")["inputSchema"]
    assert isinstance(strict, dict)
    assert strict["x-vendor"] == {"kept": None}
    assert strict["properties"]["kind"] == {"enum": ["a", "b"], "default": None}
    assert len(features.resources) == 5
    assert features.templates == ({"uriTemplate": "demo://resource/{id}", "name": "Any resource"},)
    assert features.instructions == "Be careful."


async def test_a_method_that_the_upstream_lacks_gives_an_empty_list() -> None:
    """Servers without resource templates respond with -32601."""
    async with connect(make_odd_server("--no-templates")) as session:
        features = await session.list_features()

    assert features.templates == ()
    assert len(features.resources) == 5


async def test_a_crash_fails_the_call_with_the_last_output_without_secrets() -> None:
    """The crash is detected immediately, and the message contains no keys."""
    async with connect(make_odd_server(env={"ODD_SECRET": "very-secret-key"})) as session:
        with pytest.raises(ConnectionLost) as error:
            await call(session, "crash")

        assert str(error.value) == "The server exited with code 7: going down with ***"
        assert error.value.was_handled is True
        with pytest.raises(ConnectionLost) as second_error:
            await call(session, "echo", text="hi")
        assert second_error.value.was_handled is False


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (["Traceback (most recent call last):", 'File "a.py", line 1', "ModuleNotFoundError: No module named 'x'"], 2),
        (["throw new Error('x')", "Error [ERR_X]: Directory import", "at new NodeError (node:internal)", "Node.js v20.20.2"], 1),
        (["npm error code E404", "npm error 404 Not Found - GET nope", "npm error A complete log of this run can be found in: x"], 1),
        (["starting", "error: no such option --x", "usage: x"], 1),
        (["one", "two"], 1),
    ],
)
async def test_the_line_that_names_the_error_is_found(lines: list[str], expected: int) -> None:
    """The last line is often the version of Node.js or the path of npm's log instead."""
    assert find_error_line([*lines, ""]) == lines[expected]
    assert not find_error_line([])


async def test_a_crash_without_a_call_is_detected() -> None:
    """The crash of an idle server is detected before the next call."""
    async with connect(make_odd_server()) as session:
        os.kill(int(text_of(await call(session, "pid"))), signal.SIGKILL)

        assert await asyncio.wait_for(session.wait_closed(), HANG_S) == "The server was killed by signal 9"


async def test_a_result_larger_than_10_mib_is_rejected() -> None:
    """A result over 10 MiB is rejected and the session stays open."""
    async with connect(make_odd_server()) as session:
        with pytest.raises(ResultTooLarge):
            await call(session, "large", bytes=11 * 1024 * 1024)
        result = await call(session, "large", bytes=9 * 1024 * 1024)

    assert len(text_of(result)) == 9 * 1024 * 1024


async def test_an_invalid_result_is_an_upstream_error() -> None:
    """The session still works afterwards."""
    async with connect(make_odd_server()) as session:
        with pytest.raises(InvalidResult):
            await call(session, "wrong")
        with pytest.raises(UpstreamErrorResponse, match="not today"):
            await call(session, "refuse")

        assert text_of(await call(session, "echo", text="hi")) == "hi"


async def test_a_call_that_is_cancelled_is_cancelled_upstream(tmp_path: Path) -> None:
    """A cancelled call is cancelled upstream, and the session stays usable."""
    mark = tmp_path / "cancelled"
    async with connect(make_odd_server()) as session:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(call(session, "slow", seconds=20, mark=str(mark)), 0.1)

        await eventually(mark.exists)
        assert text_of(await call(session, "echo", text="hi")) == "hi"


async def test_progress_is_reported_while_a_tool_runs() -> None:
    """Progress resets the timeout."""
    notices: list[tuple[float, float | None, str | None]] = []

    async def on_progress(done: float, total: float | None, message: str | None) -> None:
        notices.append((done, total, message))

    async with connect(make_odd_server()) as session:
        params: dict[str, object] = {"name": "progress", "arguments": {"steps": 2, "pause": 0.01}}
        await session.request("tools/call", params, RequestOptions(caller=CALLER, on_progress=on_progress))

    assert notices == [(1.0, 2.0, "step 1"), (2.0, 2.0, "step 2")]


async def test_a_changed_list_calls_the_callback() -> None:
    """list_changed triggers a refresh."""
    changes: list[int] = []
    async with CONNECTORS["stdio"].connect(make_odd_server(), on_changed=lambda: changes.append(1)) as session:
        await call(session, "grow")

        await eventually(lambda: changes)


async def test_a_server_gets_only_its_own_environment_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """The platform's secrets are not passed to servers."""
    monkeypatch.setenv("ROOKERY_SECRET_KEY", "ours alone")
    async with connect(make_odd_server(env={"ITS_OWN": "1"})) as session:
        names = text_of(await call(session, "env"))

    assert "ITS_OWN" in names
    assert "PATH" in names
    assert "ROOKERY" not in names


@pytest.mark.parametrize(
    ("server", "words"),
    [
        (make_odd_server("--exit"), "exited with code 3: cannot find my configuration"),
        (Server(id="x", name="x", target=CommandTarget(command="no-such-program")), "program 'no-such-program' was not found"),
        (Server(id="x", name="x", target=CommandTarget(command="sh", cwd="/no/such/folder")), "'/no/such/folder' does not exist"),
        (Server(id="x", name="x", target=CommandTarget(command="echo", args=("not a server",))), "exited with code 0"),
    ],
)
async def test_a_command_that_is_not_a_server_fails_to_connect_with_a_reason(server: Server, words: str) -> None:
    """The error names the cause."""
    with pytest.raises(ConnectFailed, match=words):
        await connect(server).__aenter__()


# The end of processes


async def test_a_server_that_ignores_signals_is_killed_with_its_children() -> None:
    """The whole process group is killed within 5 seconds."""
    async with connect(make_odd_server("--deaf", "--grandchild")) as session:
        pids = [int(text_of(await call(session, "pid"))), int(text_of(await call(session, "spawn")))]
        watch = Stopwatch().start()
    watch.stop()

    assert watch.reference_s < 5
    assert not any(is_alive(pid) for pid in pids)


async def test_a_cancelled_connect_to_a_hanging_server_leaves_no_process() -> None:
    """The connect has a time limit, also for a server that never responds."""
    count_before = len(list_children())
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.3):
            await connect(make_odd_server("--hang", "--deaf")).__aenter__()

    await eventually(lambda: len(list_children()) == count_before)


async def test_a_killed_guard_process_leaves_no_server() -> None:
    """No server process is ever orphaned."""
    async with connect(make_odd_server("--deaf")) as session:
        pid = int(text_of(await call(session, "pid")))
        guard = psutil.Process(pid).parent()
        assert guard is not None
        guard.kill()
        await asyncio.wait_for(session.wait_closed(), HANG_S)

    await eventually(lambda: not is_alive(pid))


async def test_a_killed_rookery_leaves_no_server() -> None:
    """The servers ignore SIGTERM and the end of stdin, and have child processes."""
    code = (
        "import asyncio\n"
        "from tests.engines.test_upstreams import call, connect, make_odd_server, text_of\n"
        "async def main():\n"
        "    async with connect(make_odd_server('--deaf', '--grandchild')) as one, connect(make_odd_server('--deaf')) as two:\n"
        "        print(*[text_of(await call(each, name)) for each in (one, two) for name in ('pid', 'spawn')], flush=True)\n"
        "        await asyncio.sleep(60)\n"
        "asyncio.run(main())\n"
    )
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", code, stdout=asyncio.subprocess.PIPE, cwd=SERVERS.parents[2])
    assert process.stdout is not None
    pids = [int(word) for word in (await process.stdout.readline()).split()]
    assert len(pids) == 4
    assert all(is_alive(pid) for pid in pids)

    process.kill()
    await process.wait()

    await eventually(lambda: not any(is_alive(pid) for pid in pids))


@pytest.mark.parametrize("stopped", ["server", "guard", "both"])
async def test_a_killed_rookery_leaves_no_stopped_process(stopped: str) -> None:
    """A guard process that was stopped (SIGSTOP) survived kill -9 of Rookery."""
    code = (
        "import asyncio\n"
        "from tests.engines.test_upstreams import connect, make_odd_server\n"
        "async def main():\n"
        "    async with connect(make_odd_server()) as session:\n"
        "        print(session.info.pid, flush=True)\n"
        "        await asyncio.sleep(60)\n"
        "asyncio.run(main())\n"
    )
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", code, stdout=asyncio.subprocess.PIPE, cwd=SERVERS.parents[2])
    assert process.stdout is not None
    server = int(await process.stdout.readline())
    guard = psutil.Process(server).ppid()
    for pid in {"server": [server], "guard": [guard], "both": [server, guard]}[stopped]:
        os.kill(pid, signal.SIGSTOP)

    process.kill()
    await process.wait()

    await eventually(lambda: not is_alive(server) and not is_alive(guard))


async def test_a_program_that_downloads_gets_sigterm_and_time_to_exit(tmp_path: Path) -> None:
    """Npx was killed during an install, and its partial package failed forever."""
    mark, npx = tmp_path / "mark", tmp_path / "npx"
    npx.write_text(
        f"#!{sys.executable}\n"
        "import pathlib, signal, sys, time\n"
        "def end(number, frame):\n"
        "    time.sleep(2.5)\n"
        f"    pathlib.Path({str(mark)!r}).write_text('undone')\n"
        "    sys.exit(1)\n"
        "signal.signal(signal.SIGTERM, end)\n"
        f"pathlib.Path({str(mark)!r}).write_text('half')\n"
        "while True:\n"
        "    time.sleep(0.1)\n"
    )
    npx.chmod(0o755)

    async def start() -> None:
        async with connect(Server(id="fetched", name="fetched", target=CommandTarget(command=str(npx)))):
            pytest.fail("it does not respond")

    start_task = asyncio.create_task(start())
    await eventually(lambda: mark.exists() and mark.read_text() == "half")
    start_task.cancel()
    await asyncio.gather(start_task, return_exceptions=True)

    await eventually(lambda: mark.read_text() == "undone")


async def test_twenty_restarts_leave_no_process_and_no_file_descriptor() -> None:
    """Leaked processes are a frequent defect of MCP clients."""
    async with connect(make_odd_server()) as session:
        await call(session, "pid")
    files_before, pids_before = count_open_files(), {child.pid for child in list_children()}

    for _ in range(20):
        async with connect(make_odd_server()) as session:
            await call(session, "pid")

    assert count_open_files() <= files_before
    assert {child.pid for child in list_children()} <= pids_before
