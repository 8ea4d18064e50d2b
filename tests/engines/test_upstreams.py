"""Every kind of upstream behind the one port: real servers, a misbehaving one, and what is left of their processes."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import psutil
import pytest

from rookery.engines import upstreams
from rookery.engines.upstreams.process import ServerProcess, find_error_line
from rookery.tools.errors import ConnectFailed, ConnectionLost, InvalidResult, ResultTooLarge, UpstreamErrorResponse
from rookery.tools.models import CommandTarget, Server
from rookery.tools.ports import RequestOptions, UpstreamConnection
from tests.conftest import eventually
from tests.tools.makers import (
    BIN,
    SERVERS,
    count_open_files,
    free_port,
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


def nothing() -> None:
    """Hear of a change and do nothing."""


def connect(server: Server) -> AbstractAsyncContextManager[UpstreamConnection]:
    """Return a session to enter."""
    return CONNECTORS[server.kind].connect(server, on_changed=nothing)


async def call(connection: UpstreamConnection, tool: str, **arguments: object) -> dict[str, object]:
    """Call a tool."""
    return await connection.request("tools/call", {"name": tool, "arguments": arguments}, RequestOptions(caller=CALLER))


@pytest.fixture(scope="module")
def legacy() -> Iterator[str]:
    """The address of a server of the handshake era over HTTP."""
    with subprocess.Popen([sys.executable, "-I", "-S", str(SERVERS / "legacy.py")], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        process.kill()


@pytest.fixture(scope="module", params=["http", "sse"])
def served(request: pytest.FixtureRequest) -> Iterator[str]:
    """The address of a server by the official SDK over HTTP: Streamable HTTP, and the older SSE."""
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
async def nothing_is_left() -> AsyncIterator[None]:
    """D-32: whatever a test does with stdio servers, no process of theirs outlives its sessions."""
    before = {each.pid for each in list_children()}
    yield
    await eventually(lambda: {each.pid for each in list_children()} <= before)


# Real servers.


async def test_the_time_server_lists_and_answers_its_tools() -> None:
    """Spec 1, D-32: a real server from the index, in the stateless era."""
    server = Server(id="time", name="time", target=CommandTarget(command=str(BIN / "mcp-server-time"), args=("--local-timezone", "UTC")))

    async with connect(server) as time_server:
        offer = await time_server.list_features()
        result = await call(time_server, "get_current_time", timezone="UTC")

    assert [tool["name"] for tool in offer.tools] == ["get_current_time", "convert_time"]
    assert offer.resources == offer.templates == offer.prompts == ()
    assert result["isError"] is False
    assert isinstance(result["structuredContent"], dict)
    assert '"timezone": "UTC"' in text_of(result)


async def test_the_git_server_works_on_a_real_repository(tmp_path: Path) -> None:
    """Spec 1, D-32: a second real server, with side effects."""
    await asyncio.to_thread(subprocess.run, ["git", "init", "-q", str(tmp_path)], check=True)
    (tmp_path / "note.txt").write_text("hello")
    target = CommandTarget(command=str(BIN / "mcp-server-git"), args=("--repository", str(tmp_path)))

    async with connect(Server(id="git", name="git", target=target)) as git:
        added = await call(git, "git_add", repo_path=str(tmp_path), files=["note.txt"])
        status = await call(git, "git_status", repo_path=str(tmp_path))

    assert added["isError"] is False
    assert "note.txt" in text_of(status)


async def test_a_server_over_http_answers_as_one_over_pipes_does(served: str) -> None:
    """D-32: Streamable HTTP and SSE through the same port."""
    async with connect(make_http_server(served)) as session:
        offer = await session.list_features()
        result = await call(session, "add", a=2, b=3)
        content = await session.request("resources/read", {"uri": "memo://insights"}, RequestOptions(caller=CALLER))

    assert {"pid", "add", "large", "crash", "headers"} == {tool["name"] for tool in offer.tools}
    assert offer.resources[0]["uri"] == "memo://insights"
    assert text_of(result) == "5"
    assert content["contents"] == [{"uri": "memo://insights", "mimeType": "text/plain", "text": "everything is fine"}]


# What a server over HTTP may do wrong.


async def test_a_session_that_the_upstream_forgot_is_told_as_lost_and_not_handled(legacy: str) -> None:
    """Notes on MCP 5: -32600 "Session not found" would stay for ever; the request was not looked at, so it may be repeated."""
    async with connect(make_http_server(f"{legacy}/mcp")) as session:
        await call(session, "forget")

        with pytest.raises(ConnectionLost) as lost:
            await call(session, "write")

        assert lost.value.was_handled is False
        assert await asyncio.wait_for(session.wait_closed(), 1)


async def test_an_answer_that_breaks_off_costs_that_call_alone(legacy: str) -> None:
    """D-32: one failed request must not end the session with its other calls."""
    async with connect(make_http_server(f"{legacy}/mcp")) as session:
        with pytest.raises(ConnectionLost) as lost:
            await call(session, "half")

        assert lost.value.was_handled is True
        assert text_of(await call(session, "write")) == "ok"


async def test_an_upstream_that_asks_without_end_and_takes_no_answer_is_given_up(legacy: str) -> None:
    """D-32, D-82: a workspace's own server must not have the platform hold its unread answers, a task each."""
    before, most = len(asyncio.all_tasks()), 0

    async def watch() -> None:
        nonlocal most
        while True:
            most = max(most, len(asyncio.all_tasks()))
            await asyncio.sleep(0.01)

    watching = asyncio.create_task(watch())
    async with connect(make_http_server(f"{legacy}/mcp")) as session:
        waiting = asyncio.create_task(call(session, "flood"))
        assert "without reading the results" in await asyncio.wait_for(session.wait_closed(), 20)
    with pytest.raises(ConnectionLost, match="without reading the results"):
        await waiting
    watching.cancel()

    assert most - before < 300


async def test_a_result_over_http_larger_than_10_mib_is_refused_and_the_session_goes_on(legacy: str) -> None:
    """A result over 10 MiB is rejected and the session stays open (D-34)."""
    async with connect(make_http_server(f"{legacy}/mcp")) as session:
        with pytest.raises(ResultTooLarge):
            await call(session, "large")

        assert text_of(await call(session, "write")) == "ok"


@pytest.mark.parametrize(("path", "needs_login"), [("login", True), ("down", False), ("junk", False), ("half", False)])
async def test_an_address_that_is_no_server_fails_to_connect_in_words(legacy: str, path: str, needs_login: bool) -> None:
    """D-33: needs_login is told from offline."""
    with pytest.raises(ConnectFailed) as failed:
        await asyncio.wait_for(connect(make_http_server(f"{legacy}/{path}")).__aenter__(), 10)

    assert failed.value.needs_login is needs_login
    assert str(failed.value)


async def test_nobody_at_the_address_fails_to_connect_in_words() -> None:
    """A refused connection raises an error that names the cause (D-32)."""
    with pytest.raises(ConnectFailed, match="No connection to"):
        await connect(make_http_server(f"http://127.0.0.1:{free_port()}/mcp")).__aenter__()


async def test_the_headers_of_an_entry_go_to_the_upstream(legacy: str) -> None:
    """The headers of a server entry are sent to the upstream (D-31)."""
    server = make_http_server(f"{legacy}/mcp")
    target = type(server.target)(url=f"{legacy}/mcp", headers={"X-Key": "made up"})  # pyright: ignore[reportCallIssue] - an Address

    async with connect(Server(id="served", name="served", target=target)) as session:
        assert text_of(await call(session, "header")) == "made up"


# What a server over pipes may do wrong.


async def test_noise_on_stdout_costs_nothing() -> None:
    """Notes on MCP 3: a print() in a server must not cost its session."""
    async with connect(make_odd_server("--noise")) as session:
        assert text_of(await call(session, "echo", text="hi")) == "hi"


async def test_a_flood_of_messages_leaves_others_their_turn() -> None:
    """D-32: one server does not delay another: after some messages other waiting readers have a turn."""
    ours, theirs = socket.socketpair()
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    with ours, theirs:
        child = ServerProcess((), ours)
        child.pid = 1
        child.pipe_data_received(1, b'{"jsonrpc": "2.0", "method": "notifications/message"}\n' * 1000)
        waiting = asyncio.create_task(other())
        for _ in range(1000):
            await child.next_message()
        waiting.cancel()

    assert turns >= 50


async def test_who_subscribes_and_leaves_over_and_over_leaves_no_stream_behind() -> None:
    """D-36: in the later era a subscription is a stream upstream; it ends with the last who hears of the resource."""
    everything = CommandTarget(command=sys.executable, args=("-m", "tests.conformance.everything"), cwd=str(ROOT))
    uri: dict[str, object] = {"uri": "test://watched-resource"}
    async with connect(Server(id="later", name="later", target=everything)) as session:
        before = len(asyncio.all_tasks())
        for _ in range(20):
            asking = RequestOptions(caller=CALLER, on_update=lambda _: None)
            await session.request("resources/subscribe", uri, asking)
            await session.request("resources/unsubscribe", uri, asking)

        await eventually(lambda: len(asyncio.all_tasks()) < before + 5)  # one or two of the session's own came since


async def test_everything_is_listed_over_all_pages_and_as_it_came() -> None:
    """D-34: schemas pass through unchanged, their nulls and vendors' fields too."""
    async with connect(make_odd_server()) as session:
        offer = await session.list_features()

    assert len({str(tool["name"]) for tool in offer.tools}) == len(offer.tools) > 16  # of more than two pages
    strict = next(tool for tool in offer.tools if tool["name"] == "strict")["inputSchema"]
    assert isinstance(strict, dict)
    assert strict["x-vendor"] == {"kept": None}
    assert strict["properties"]["kind"] == {"enum": ["a", "b"], "default": None}
    assert len(offer.resources) == 5
    assert offer.templates == ({"uriTemplate": "demo://resource/{id}", "name": "Any resource"},)
    assert offer.instructions == "Be careful."


async def test_a_method_that_the_upstream_does_not_know_lists_nothing() -> None:
    """Notes on MCP 5: resources without templates answer -32601."""
    async with connect(make_odd_server("--no-templates")) as session:
        offer = await session.list_features()

    assert offer.templates == ()
    assert len(offer.resources) == 5


async def test_a_crash_fails_the_call_with_the_servers_last_words_but_not_its_secrets() -> None:
    """D-32: noticed at once; keys never in messages."""
    async with connect(make_odd_server(env={"ODD_SECRET": "very-secret-key"})) as session:
        with pytest.raises(ConnectionLost) as lost:
            await call(session, "crash")

        assert str(lost.value) == "The server exited with code 7: going down with ***"
        assert lost.value.was_handled is True
        with pytest.raises(ConnectionLost) as again:
            await call(session, "echo", text="hi")
        assert again.value.was_handled is False


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        (["Traceback (most recent call last):", 'File "a.py", line 1', "ModuleNotFoundError: No module named 'x'"], 2),
        (["throw new Error('x')", "Error [ERR_X]: Directory import", "at new NodeError (node:internal)", "Node.js v20.20.2"], 1),
        (["npm error code E404", "npm error 404 Not Found - GET nope", "npm error A complete log of this run can be found in: x"], 1),
        (["starting", "error: no such option --x", "usage: x"], 1),
        (["one", "two"], 1),
    ],
)
async def test_the_line_that_names_the_error_is_found(lines: list[str], found: int) -> None:
    """Issue 14: the last line was shown, which is the version of Node.js or the path of npm's log; D-32."""
    assert find_error_line([*lines, ""]) == lines[found]
    assert not find_error_line([])


async def test_an_idle_crash_is_noticed_without_a_call() -> None:
    """The crash of an idle server is detected before the next call (notes on MCP 5)."""
    async with connect(make_odd_server()) as session:
        os.kill(int(text_of(await call(session, "pid"))), signal.SIGKILL)

        assert await asyncio.wait_for(session.wait_closed(), 5) == "The server was killed by signal 9"


async def test_a_result_larger_than_10_mib_is_refused_and_the_session_goes_on() -> None:
    """A result over 10 MiB is rejected and the session stays open (D-34)."""
    async with connect(make_odd_server()) as session:
        with pytest.raises(ResultTooLarge):
            await call(session, "large", bytes=11 * 1024 * 1024)
        whole = await call(session, "large", bytes=9 * 1024 * 1024)

    assert len(text_of(whole)) == 9 * 1024 * 1024


async def test_what_is_no_result_is_an_error_and_not_a_crash() -> None:
    """D-34: an upstream's nonsense is an upstream's failure."""
    async with connect(make_odd_server()) as session:
        with pytest.raises(InvalidResult):
            await call(session, "wrong")
        with pytest.raises(UpstreamErrorResponse, match="not today"):
            await call(session, "refuse")

        assert text_of(await call(session, "echo", text="hi")) == "hi"


async def test_a_call_that_is_cancelled_is_cancelled_upstream(tmp_path: Path) -> None:
    """D-34: a caller that leaves cancels upstream; the session stays usable."""
    mark = tmp_path / "cancelled"
    async with connect(make_odd_server()) as session:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(call(session, "slow", seconds=20, mark=str(mark)), 0.1)

        await eventually(mark.exists)
        assert text_of(await call(session, "echo", text="hi")) == "hi"


async def test_progress_is_told_while_a_tool_runs() -> None:
    """D-34: timeouts are reset by it."""
    heard: list[tuple[float, float | None, str | None]] = []

    async def hear(done: float, total: float | None, message: str | None) -> None:
        heard.append((done, total, message))

    async with connect(make_odd_server()) as session:
        params: dict[str, object] = {"name": "progress", "arguments": {"steps": 2, "pause": 0.01}}
        await session.request("tools/call", params, RequestOptions(caller=CALLER, on_progress=hear))

    assert heard == [(1.0, 2.0, "step 1"), (2.0, 2.0, "step 2")]


async def test_a_changed_list_is_heard_of() -> None:
    """D-32: refresh on list_changed."""
    changes: list[int] = []
    async with CONNECTORS["stdio"].connect(make_odd_server(), on_changed=lambda: changes.append(1)) as session:
        await call(session, "grow")

        await eventually(lambda: changes)


async def test_a_child_sees_only_the_variables_it_was_given(monkeypatch: pytest.MonkeyPatch) -> None:
    """Notes on MCP 5: our own secrets are not our tools'."""
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
async def test_a_command_that_is_no_server_fails_to_connect_in_words(server: Server, words: str) -> None:
    """D-32: what to mend is in the error."""
    with pytest.raises(ConnectFailed, match=words):
        await connect(server).__aenter__()


# What is left of processes.


async def test_a_server_that_ignores_every_request_to_end_is_ended_with_its_children() -> None:
    """D-32: the whole process group is closed, within 5 seconds."""
    async with connect(make_odd_server("--deaf", "--grandchild")) as session:
        pids = [int(text_of(await call(session, "pid"))), int(text_of(await call(session, "spawn")))]
        started = time.monotonic()

    assert time.monotonic() - started < 5
    assert not any(is_alive(pid) for pid in pids)


async def test_giving_up_on_a_server_that_hangs_leaves_nothing_behind() -> None:
    """D-32: the connect is bounded, also for one that never answers."""
    before = len(list_children())
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.3):
            await connect(make_odd_server("--hang", "--deaf")).__aenter__()

    await eventually(lambda: len(list_children()) == before)


async def test_a_killed_warden_does_not_leave_its_server_behind() -> None:
    """D-32: no orphan, ever."""
    async with connect(make_odd_server("--deaf")) as session:
        pid = int(text_of(await call(session, "pid")))
        warden = psutil.Process(pid).parent()
        assert warden is not None
        warden.kill()
        await asyncio.wait_for(session.wait_closed(), 5)

    await eventually(lambda: not is_alive(pid))


async def test_a_killed_rookery_leaves_no_server_behind() -> None:
    """D-32: kill -9 of the whole platform; the servers ignore SIGTERM and the end of stdin, and have children of their own."""
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
async def test_a_killed_rookery_leaves_no_stopped_process_behind(stopped: str) -> None:
    """Issue 14: after kill -9 of Rookery a guard process that was stopped (SIGSTOP) lived on; D-32: no orphan, ever."""
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

    await eventually(lambda: not is_alive(server) and not is_alive(guard), within_s=5)


async def test_a_program_that_downloads_is_asked_to_end_and_given_time(tmp_path: Path) -> None:
    """Issue 14: npx was killed in mid-install, and its half-installed package failed for ever; D-32."""
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
            pytest.fail("it answers nothing")

    starting = asyncio.create_task(start())
    await eventually(lambda: mark.exists() and mark.read_text() == "half")
    starting.cancel()
    await asyncio.gather(starting, return_exceptions=True)

    await eventually(lambda: mark.read_text() == "undone")


async def test_twenty_restarts_leave_no_process_and_no_descriptor() -> None:
    """Notes on MCP 3.1: what every tracker complains of."""
    async with connect(make_odd_server()) as session:
        await call(session, "pid")
    before, running = count_open_files(), {each.pid for each in list_children()}

    for _ in range(20):
        async with connect(make_odd_server()) as session:
            await call(session, "pid")

    assert count_open_files() <= before
    assert {each.pid for each in list_children()} <= running
