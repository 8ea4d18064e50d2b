"""Calls and the sessions below them, on real processes."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import psutil
import pytest

from rookery.access.models import Caller
from rookery.kernel.errors import EngineUnavailable, PermissionDenied, RookeryError
from rookery.kernel.events import EventBus
from rookery.kernel.http.operation_tools import RenderedOutput
from rookery.kernel.working_context import CallSession
from rookery.tools.call_options import CallOptions
from rookery.tools.errors import ArgumentsInvalid, ServerNotFound, TestKeyRefused, ToolDisabled, ToolNotFound
from rookery.tools.events import ServerHealthChanged, ToolCalled
from rookery.tools.models import CallRecord
from rookery.tools.store import calls as store
from rookery.tools.supervision.upstream_session import SupervisionTimeouts
from tests.conftest import eventually
from tests.deadlines import HANG_S
from tests.stopwatch import Stopwatch
from tests.tools.conftest import Start, write
from tests.tools.makers import CALLER, OTHER, Tools, call, call_text, is_alive, make_caller, make_odd_entry


async def list_rows(tools: Tools, workspace_id: int = 1) -> list[CallRecord]:
    """Return the rows of a workspace, the latest first."""
    await tools.call_buffer.flush()
    return await tools.db.read(lambda tx: store.CALLS.find_all(tx, workspace_id, "-called_at", "-id"))


# Results and stored rows.


async def test_a_call_returns_the_whole_result_and_writes_a_row(start: Start) -> None:
    """A call returns the complete result and writes one row."""
    tools = await start({"odd": make_odd_entry()})

    outcome = await call(tools, "echo", text="hi")

    assert json.loads(outcome.result or b"") == {
        "content": [{"type": "text", "text": "hi"}],
        "structuredContent": {"text": "hi"},
        "isError": False,
    }
    (row,) = await list_rows(tools)
    assert (row.server_id, row.tool, row.key_id, row.success, row.code) == ("odd", "echo", "key-1", True, None)
    assert (row.arguments_bytes, row.request_id) == (len('{"text":"hi"}'), "req_test")
    assert row.result_bytes == len(outcome.result or b"")
    assert tools.limits.spent == ["odd/echo"]


@pytest.mark.parametrize(
    ("tool", "arguments", "code", "error"),
    [
        ("error", {}, "tool_execution_error", "it did not work"),
        ("refuse", {}, "tool_execution_error", "not today"),
        ("wrong", {}, "tool_execution_error", "invalid result"),
        ("large", {"bytes": 11 * 1024 * 1024}, "result_too_large", "10 MiB"),
        ("large", {"bytes": 10 * 1024 * 1024}, "result_too_large", "10 MiB"),
        ("unreadable", {"how": "deep"}, "tool_execution_error", "invalid JSON"),
        ("unreadable", {"how": "surrogate"}, "tool_execution_error", "invalid JSON"),
        ("unreadable", {"how": "bytes"}, "tool_execution_error", "invalid JSON"),
        ("unreadable", {"how": "cut"}, "tool_execution_error", "invalid JSON"),
        ("crash", {}, "server_unavailable", "exited with code 7"),
    ],
)
async def test_a_failure_of_a_tool_is_an_outcome(start: Start, tool: str, arguments: dict[str, object], code: str, error: str) -> None:
    """The outcome has one of four codes, and the call has a row."""
    tools = await start({"odd": make_odd_entry()})

    outcome = await tools.runner.call(CALLER, "odd", tool, arguments)

    assert outcome.code == code
    assert error in str(outcome.error)
    assert [row.code for row in await list_rows(tools)] == [code]
    assert await call_text(tools, "echo", text="still running") == "still running"


async def test_a_failed_call_keeps_its_result(start: Start) -> None:
    """The result of a failed call is returned beside the error."""
    tools = await start({"odd": make_odd_entry()})

    outcome = await call(tools, "error")

    assert json.loads(outcome.result or b"") == {"content": [{"type": "text", "text": "it did not work"}], "isError": True}


async def test_invalid_arguments_never_reach_the_server(start: Start) -> None:
    """Invalid arguments are rejected before the server is called."""
    tools = await start({"odd": make_odd_entry()})
    await call_text(tools, "echo", text="hi")

    with pytest.raises(ArgumentsInvalid) as error:
        await call(tools, "strict", kind="c", points=[{"x": 1.5}])

    assert set(error.value.detail["errors"]) == {"/kind", "/points/0/x"}  # pyright: ignore[reportArgumentType] - a mapping
    assert [row.code for row in await list_rows(tools)] == ["invalid_arguments", None]
    assert await call_text(tools, "strict", kind="a", points=[{"x": 1, "y": None}]) == "ok"
    assert await call_text(tools, "far", a=1) == "ok"


async def test_unknown_names_are_not_found_and_write_no_row(start: Start) -> None:
    """Unknown names return server_not_found or tool_not_found and write no row."""
    tools = await start({"odd": make_odd_entry()})

    with pytest.raises(ServerNotFound):
        await call(tools, "echo", server="even")
    with pytest.raises(ToolNotFound):
        await call(tools, "ecco")

    assert await list_rows(tools) == []


async def test_an_error_about_an_unknown_name_suggests_the_nearest_one_that_the_key_may_see(start: Start) -> None:
    """Most wrong calls are typos. A name outside the allow-list of the key is never suggested."""
    tools = await start({"clock": make_odd_entry(), "clocks": make_odd_entry()})
    outcome = await call(tools, "echo", server="clock", text="hi")
    assert outcome.error is None

    with pytest.raises(ServerNotFound, match=r"^The server 'clocl' does not exist; did you mean 'clock'\?$"):
        await call(tools, "echo", server="clocl")
    with pytest.raises(ServerNotFound, match=r"^The server 'cloks' does not exist; did you mean 'clocks'\?$"):
        await call(tools, "echo", server="cloks", caller=make_caller(servers=frozenset({"clocks"})))
    with pytest.raises(ServerNotFound, match=r"^The server 'clocl' does not exist\.$"):
        await call(tools, "echo", server="clocl", caller=make_caller(servers=frozenset({"other"})))
    with pytest.raises(ToolNotFound, match=r"^The server 'clock' has no tool 'ecoh'; did you mean 'echo'\?$"):
        await call(tools, "ecoh", server="clock")


async def test_a_forbidden_call_writes_a_row_only_if_the_tool_exists(start: Start) -> None:
    """Forbidden calls are recorded; made-up tool names are not."""
    tools = await start({"odd": make_odd_entry()})
    await call_text(tools, "echo", text="hi")
    outsider = make_caller(servers=frozenset({"other"}))

    for tool in ("echo", "ecco"):
        with pytest.raises(PermissionDenied):
            await call(tools, tool, caller=outsider)

    assert [(row.tool, row.code) for row in await list_rows(tools)] == [("echo", "permission_denied"), ("echo", None)]


async def test_an_overlong_tool_name_reaches_no_server(start: Start) -> None:
    """Names have at most 128 characters, and no row stores a made-up name."""
    tools = await start({"odd": make_odd_entry("--exit")})

    with pytest.raises(ToolNotFound):
        await call(tools, "x" * 100_000)

    assert await list_rows(tools) == []


async def test_a_tool_added_since_the_last_list_is_found(start: Start) -> None:
    """The catalogue is refreshed on `list_changed`."""
    tools = await start({"odd": make_odd_entry()})
    await call_text(tools, "grow")

    async def has_late_tool() -> bool:
        odd = tools.catalogue.get_server(CALLER, "odd")
        return tools.catalogue.find_tool(odd, "late", CALLER) is not None

    await eventually(has_late_tool)
    assert await call_text(tools, "late") == "ok"


# Timeouts.


async def test_a_tool_that_takes_too_long_is_cancelled(start: Start, tmp_path: Path) -> None:
    """Timeouts are set per tool and per server."""
    marker = tmp_path / "cancelled"
    tools = await start({"odd": make_odd_entry(tools={"timeouts": {"sl*": 0.2}})})

    outcome = await call(tools, "slow", seconds=30, mark=str(marker))

    assert outcome.code == "tool_timeout"
    await eventually(marker.exists)
    assert await call_text(tools, "echo", text="hi") == "hi"


async def test_progress_restarts_the_timeout(start: Start) -> None:
    """A progress notification restarts the timeout."""
    tools = await start({"odd": make_odd_entry(timeout_s=3)})

    assert await call_text(tools, "progress", steps=35, pause=0.1) == "done"


async def test_a_caller_that_leaves_cancels_the_tool_and_the_call_has_a_row(start: Start, tmp_path: Path) -> None:
    """A call whose caller leaves is cancelled upstream and recorded."""
    marker = tmp_path / "cancelled"
    tools = await start({"odd": make_odd_entry()})
    await call_text(tools, "echo", text="hi")

    task = asyncio.create_task(call(tools, "slow", seconds=HANG_S, mark=str(marker)))
    await eventually(tmp_path.joinpath("cancelled.started").exists)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    await eventually(marker.exists)
    assert (await list_rows(tools))[0].code == "client_left"


# Crashes.


async def test_a_killed_server_fails_only_the_calls_in_flight_and_recovers_within_a_second(start: Start, tmp_path: Path) -> None:
    """The server is killed under concurrent callers."""
    tools = await start({"odd": make_odd_entry(max_concurrency=8)})
    pid = int(await call_text(tools, "pid"))
    in_flight = [asyncio.create_task(call(tools, "slow", seconds=30, mark=str(tmp_path / "x"))) for _ in range(8)]
    await eventually(lambda: sum(session.in_flight for session in tools.sessions.list_sessions("odd")) == 8)

    with Stopwatch() as watch:
        os.kill(pid, signal.SIGKILL)
        assert int(await call_text(tools, "pid")) != pid

    assert watch.reference_s < 1
    assert {(await task).code for task in in_flight} == {"server_unavailable"}


async def test_a_lost_call_of_a_read_only_tool_is_retried_once(start: Start, tmp_path: Path) -> None:
    """A lost call of a read-only tool is retried once."""
    tools = await start({"odd": make_odd_entry()})

    assert await call_text(tools, "crash_once", mark=str(tmp_path / "crashed")) == "back again"


async def test_a_session_that_crashed_while_idle_is_reopened_for_any_tool(start: Start) -> None:
    """A call that certainly did not run may be retried."""
    tools = await start({"odd": make_odd_entry()})
    pid = int(await call_text(tools, "pid"))

    for _ in range(3):
        os.kill(pid, signal.SIGKILL)
        await eventually(lambda pid=pid: not psutil.pid_exists(pid))  # reaped, so that no thread of it holds the pipe
        assert await call_text(tools, "count") == "1"
        pid = int(await call_text(tools, "pid"))


async def test_a_crash_loop_backs_off_and_fails_calls_at_once(start: Start) -> None:
    """back-off, and a breaker for crash loops."""
    tools = await start(
        {"odd": make_odd_entry("--exit")}, timing=SupervisionTimeouts(connect_timeout_s=5, initial_backoff_s=5, max_caller_wait_s=0.1)
    )
    for _ in range(3):
        await call(tools, "echo", text="hi")

    with Stopwatch() as watch:
        outcome = await call(tools, "echo", text="hi")

    assert outcome.code == "server_unavailable"
    assert "cannot find my configuration" in str(outcome.error)
    assert re.search(rf"[.!?…] The next attempt is in {outcome.retry_after_s} s\.$", str(outcome.error))
    assert 1 < (outcome.retry_after_s or 0) <= 10
    assert watch.reference_s < 0.5


async def test_a_dead_server_delays_neither_other_servers_nor_the_start(start: Start) -> None:
    """A dead server delays neither other servers nor the start."""
    with Stopwatch() as watch:
        tools = await start({"dead": make_odd_entry("--hang", "--deaf"), "gone": {"command": "no-such-program"}, "odd": make_odd_entry()})
        assert await call_text(tools, "echo", text="hi") == "hi"

    assert watch.reference_s < 4
    outcome = await call(tools, "echo", server="gone", text="hi")
    assert outcome.code == "server_unavailable"
    assert "no-such-program" in str(outcome.error)


async def test_a_call_to_a_server_never_listed_waits_for_its_connect_timeout(start: Start) -> None:
    """A call to a server that was never listed waits for its connect time-out and is not a 404."""
    tools = await start({"dead": make_odd_entry("--hang")}, timing=SupervisionTimeouts(connect_timeout_s=0.5))

    outcome = await call(tools, "anything", server="dead")

    assert outcome.code == "server_unavailable"
    assert "did not answer within 0.5 s" in str(outcome.error)


# Isolation.


@pytest.mark.parametrize(
    ("isolation", "second", "shares"),
    [
        ("shared", OTHER, True),
        ("per_workspace", OTHER, False),
        ("per_workspace", make_caller(key_id="key-3"), True),
        ("per_key", make_caller(key_id="key-3"), False),
        ("per_key", CALLER, True),
    ],
)
async def test_the_isolation_of_an_entry_decides_who_shares_a_session(start: Start, isolation: str, second: Caller, shares: bool) -> None:
    """Two workspaces share a session only with `shared`."""
    tools = await start({"odd": make_odd_entry(isolation=isolation)})

    first_pid = await call_text(tools, "pid")
    second_pid = await call_text(tools, "pid", caller=second)

    assert (first_pid == second_pid) is shares


async def test_an_agent_session_has_its_own_upstream_session(start: Start) -> None:
    """With `per_session`, an agent session has its own upstream session, closed at its end."""
    tools = await start({"odd": make_odd_entry(isolation="per_session")})
    outcomes = [
        await tools.runner.call(CALLER, "odd", "pid", {}, options=CallOptions(session_id=session_id))
        for session_id in ("sess_1", "sess_2", "sess_1")
    ]
    pids = [json.loads(outcome.result or b"")["content"][0]["text"] for outcome in outcomes]

    tools.sessions.close_agent_session(1, "sess_1")

    assert pids[0] == pids[2] != pids[1]
    await eventually(lambda: not is_alive(int(pids[0])))
    assert is_alive(int(pids[1]))


async def test_another_workspace_never_shares_an_agent_session(start: Start) -> None:
    """Two workspaces share a session only with `shared`, whatever session id a caller sends."""
    tools = await start({"odd": make_odd_entry(isolation="per_session")})

    outcomes = [await tools.runner.call(caller, "odd", "pid", {}, options=CallOptions(session_id="sess_1")) for caller in (CALLER, OTHER)]

    assert len({outcome.result for outcome in outcomes}) == 2


async def test_another_key_never_shares_an_agent_session(start: Start) -> None:
    """With `per_session`, two keys share no upstream session, even with the same session id."""
    tools = await start({"odd": make_odd_entry(isolation="per_session")})
    second = make_caller(key_id="key-2")

    outcomes = [await tools.runner.call(caller, "odd", "pid", {}, options=CallOptions(session_id="sess_1")) for caller in (CALLER, second)]

    assert len({outcome.result for outcome in outcomes}) == 2


async def test_calls_that_run_while_their_servers_entry_changes_finish(start: Start, file: Path, tmp_path: Path) -> None:
    """Calls accepted before an edit, queued ones too, are answered by the session that accepted them."""
    tools = await start({"odd": make_odd_entry(max_concurrency=2)})
    running = [asyncio.create_task(call(tools, "slow", seconds=HANG_S, mark=str(tmp_path / "x"))) for _ in range(4)]
    await eventually(lambda: sum(session.load for session in tools.sessions.list_sessions("odd")) == 4)
    (old,) = (session for session in tools.sessions.list_sessions("odd") if session.load)
    assert old.in_flight == 2

    write(file, odd=make_odd_entry(tagline="Edited"))
    await eventually(lambda: tools.catalogue.get_server(CALLER, "odd").tagline == "Edited")
    assert await call_text(tools, "echo", text="a new session") == "a new session"
    write(file)
    await eventually(lambda: tools.catalogue.list_servers(CALLER) == [])
    tmp_path.joinpath("x.end").touch()

    assert [outcome.error for outcome in await asyncio.gather(*running)] == [None] * 4
    await eventually(lambda: not old.in_flight and not old.is_open)


async def test_a_call_and_a_change_of_health_are_announced(start: Start) -> None:
    """`ToolCalled` follows the row on disk; `ServerHealthChanged` is sent once per change."""
    bus, events = EventBus(), list[ToolCalled | ServerHealthChanged]()
    bus.subscribe(ToolCalled, events.append)
    bus.subscribe(ServerHealthChanged, events.append)
    tools = await start({"odd": make_odd_entry()}, bus=bus)

    await call(tools, "echo", text="hi")
    await call(tools, "crash")
    await tools.call_buffer.flush()

    calls = [event for event in events if isinstance(event, ToolCalled)]
    assert [(event.workspace_id, event.tool, event.success, event.code) for event in calls] == [
        (1, "echo", True, None),
        (1, "crash", False, "server_unavailable"),
    ]
    # The caller may notice a crash before the task of the session does.
    await eventually(lambda: sum(isinstance(event, ServerHealthChanged) for event in events) >= 2)
    health = [(event.server, event.health) for event in events if isinstance(event, ServerHealthChanged)]
    assert health[:2] == [("odd", "online"), ("odd", "offline")]
    assert any("going down" in str(event.reason) for event in events if isinstance(event, ServerHealthChanged))


async def test_secrets_filled_into_the_file_are_never_shown(start: Start) -> None:
    """A secret in an argument is redacted as one in the environment is, also in what the server prints."""
    tools = await start({"odd": make_odd_entry("--say", "${TOKEN}", "--exit")}, environment={"TOKEN": "hunter2hunter2"})

    outcome = await call(tools, "echo", text="hi")

    assert "***" in str(outcome.error)
    assert "hunter2" not in str(outcome.error)


async def test_an_idle_session_is_closed_and_reopened(start: Start) -> None:
    """A session is closed after `idle_s` and reopened by the next call."""
    tools = await start({"odd": make_odd_entry(idle_s=0.1)})
    pid = int(await call_text(tools, "pid"))

    await eventually(lambda: not is_alive(pid))

    assert int(await call_text(tools, "pid")) != pid


# Permissions.


@pytest.mark.parametrize(
    ("caller", "tool", "error"),
    [
        (make_caller(servers=frozenset({"else"})), "echo", PermissionDenied),
        (make_caller(tools=("else/*",)), "echo", PermissionDenied),
        (make_caller(tools=("odd/e*",)), "pid", PermissionDenied),
        (make_caller(environment="test"), "count", TestKeyRefused),
        (CALLER, "refuse", ToolDisabled),
    ],
)
async def test_a_call_that_the_key_or_the_operator_forbids_is_rejected(
    start: Start, caller: Caller, tool: str, error: type[RookeryError]
) -> None:
    """Calls that the key or the operator forbids are rejected."""
    tools = await start({"odd": make_odd_entry(tools={"deny": ["refuse"]})})
    await call_text(tools, "echo", text="hi")

    with pytest.raises(error):
        await call(tools, tool, caller=caller)


async def test_a_test_key_may_call_only_read_only_tools_and_sandboxes(start: Start) -> None:
    """A test key may call read-only tools and sandbox servers only."""
    tools = await start({"odd": make_odd_entry(), "sand": make_odd_entry(sandbox=True)})
    test = make_caller(environment="test", workspace_id=99)

    assert await call_text(tools, "echo", caller=test, text="hi") == "hi"
    assert await call_text(tools, "count", server="sand", caller=test) == "1"


async def test_a_server_of_other_workspaces_does_not_exist(start: Start) -> None:
    """An entry with `workspaces` is invisible to other workspaces."""
    tools = await start({"odd": make_odd_entry(workspaces=[2])})

    with pytest.raises(ServerNotFound):
        await call(tools, "echo", text="hi")
    assert await call_text(tools, "echo", caller=OTHER, text="hi") == "hi"
    assert tools.catalogue.list_servers(CALLER) == []


async def test_a_disabled_server_is_not_listed_and_rejects_calls(start: Start) -> None:
    """A disabled server is not listed and rejects calls."""
    tools = await start({"odd": make_odd_entry(enabled=False)})

    with pytest.raises(ToolDisabled):
        await call(tools, "echo", text="hi")
    assert tools.catalogue.list_servers(CALLER) == []


# Built-in servers.


@dataclass(frozen=True, slots=True, kw_only=True)
class NestTool:
    """A tool of the built-in server below."""

    name: str
    description: str = "Does something."
    required_scope: str
    input_schema: Mapping[str, object]
    output_schema: Mapping[str, object] = field(default_factory=lambda: {"type": "object"})
    annotations: Mapping[str, object]
    meta: Mapping[str, object] = field(default_factory=dict[str, object])

    @property
    def accepted_schema(self) -> Mapping[str, object]:
        """The published schema, which lists all arguments."""
        return self.input_schema


class Nest:
    """A built-in server as another domain would write it."""

    id = "nest"
    name = "Nest"
    tagline = "For tests"
    description = "A built-in server for tests"

    def tools(self) -> list[NestTool]:
        """Return its tools."""
        schema = {"type": "object", "properties": {"how": {"type": "string"}}, "additionalProperties": False}
        return [
            NestTool(name="look", required_scope="brain:read", input_schema=schema, annotations={"readOnlyHint": True}),
            NestTool(name="lay", required_scope="brain:write", input_schema=schema, annotations={}),
        ]

    async def call(
        self, tool: str, arguments: Mapping[str, object], caller: Caller, *, session: CallSession | None = None
    ) -> Mapping[str, object]:
        """Return the tool and the caller's workspace, or fail as `how` says."""
        del session
        if arguments.get("how") == "badly":
            raise EngineUnavailable("nest", "it fell down")
        if arguments.get("how") == "by mistake":
            raise ZeroDivisionError
        if arguments.get("how") == "elsewhere":
            raise PermissionDenied("brain:admin")
        return {"tool": tool, "workspace": caller.workspace_id}

    def render(self, tool: str, output: Mapping[str, object], arguments: Mapping[str, object]) -> RenderedOutput:
        """Return the whole result."""
        return RenderedOutput(json.dumps(output), output)

    def compact(self, tool: str, text: str, structured: Mapping[str, object]) -> Mapping[str, object]:
        """Return the whole result."""
        return structured


async def test_a_built_in_server_acts_as_its_caller(start: Start) -> None:
    """A built-in server acts with the rights of its caller."""
    tools = await start(builtins=[Nest()])
    test = make_caller(environment="test", workspace_id=99)

    outcome = await call(tools, "lay", server="nest", caller=test)

    assert json.loads(outcome.result or b"")["structuredContent"] == {"tool": "lay", "workspace": 99}


async def test_arguments_of_a_built_in_server_are_in_no_row(start: Start) -> None:
    """A forgotten memory must not survive in the arguments of the call that stored it."""
    tools = await start({"odd": make_odd_entry()}, builtins=[Nest()], keep_arguments=True)
    await call(tools, "lay", server="nest", how="quietly")
    await call_text(tools, "echo", text="hi")

    assert [row.arguments for row in await list_rows(tools)] == ['{"text":"hi"}', None]


async def test_a_built_in_tool_needs_the_scope_of_its_route(start: Start) -> None:
    """Without the scope a tool is not listed, and a call of it is 403."""
    tools = await start(builtins=[Nest()])
    reader = make_caller(scopes=frozenset({"brain:read"}))
    nest = tools.catalogue.get_server(reader, "nest")
    await tools.catalogue.wait_listed(nest)

    with pytest.raises(RookeryError) as error:
        await call(tools, "lay", server="nest", caller=reader)

    assert (error.value.status, error.value.code) == (403, "scope_missing")
    assert [tool.name for tool in tools.catalogue.list_tools(reader, nest)] == ["look"]


async def test_a_built_in_tool_fails_as_a_tool_but_denied_permissions_are_errors_of_the_caller(start: Start) -> None:
    """Failures of a built-in tool are tool errors; denied permissions are the caller's errors."""
    tools = await start(builtins=[Nest()])

    failed = await call(tools, "look", server="nest", how="badly")

    assert failed.code == "tool_execution_error"
    assert "it fell down" in str(failed.error)
    with pytest.raises(PermissionDenied):
        await call(tools, "look", server="nest", how="elsewhere")


async def test_a_bug_in_a_built_in_server_still_writes_a_row(start: Start) -> None:
    """Every call has a row, whatever its outcome."""
    tools = await start(builtins=[Nest()])

    with pytest.raises(ZeroDivisionError):
        await call(tools, "look", server="nest", how="by mistake")

    assert [(row.tool, row.code) for row in await list_rows(tools)] == [("look", "internal_error")]
