"""The session pool: replicas, back-off and breaker, start and stop, and health reports."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rookery.access.models import Caller
from rookery.kernel.config import Settings
from rookery.tools.errors import ServerBusy
from rookery.tools.models import CallOutcome, CommandTarget, HealthStatus, Server, SessionIsolation, SessionLifecycle
from rookery.tools.supervision.circuit_breaker import CircuitBreaker, SupervisionTimeouts
from rookery.tools.supervision.health import percentile
from rookery.tools.supervision.session_pool import SessionPool
from tests.conftest import Caller as KeyedCaller
from tests.conftest import eventually, run_instance
from tests.deadlines import HANG_S
from tests.tools.conftest import Start
from tests.tools.makers import (
    CALLER,
    CONNECTORS,
    OTHER,
    SERVERS,
    SHORT_TIMEOUTS,
    call,
    call_text,
    is_alive,
    list_children,
    make_odd_entry,
    make_odd_server,
)

pytestmark = pytest.mark.embedded_store  # nothing here depends on the dialect


# Replicas.


async def test_concurrent_calls_are_spread_over_as_few_replicas_as_needed(start: Start, tmp_path: Path) -> None:
    """Each call goes to the session with the fewest calls in flight."""
    tools = await start({"odd": make_odd_entry(replicas=3, max_concurrency=8)})
    await call_text(tools, "pid")
    slow: list[asyncio.Task[CallOutcome]] = []
    for in_flight, open_sessions in ((1, 1), (2, 2), (3, 2), (4, 3)):
        slow.append(asyncio.create_task(call(tools, "slow", seconds=30, mark=str(tmp_path / "x"))))
        await eventually(lambda in_flight=in_flight: sum(session.in_flight for session in tools.sessions.list_sessions("odd")) == in_flight)
        await eventually(
            lambda open_sessions=open_sessions: sum(session.is_open for session in tools.sessions.list_sessions("odd")) == open_sessions
        )

    more = [asyncio.create_task(call(tools, "slow", seconds=30, mark=str(tmp_path / "x"))) for _ in range(5)]
    await eventually(lambda: sum(session.in_flight for session in tools.sessions.list_sessions("odd")) == 9)

    assert sorted(session.in_flight for session in tools.sessions.list_sessions("odd")) == [3, 3, 3]
    assert len({session.get_health().pid for session in tools.sessions.list_sessions("odd")}) == 3
    for task in (*slow, *more):
        task.cancel()
    await asyncio.gather(*slow, *more, return_exceptions=True)


async def test_sequential_calls_need_one_replica(start: Start) -> None:
    """Replicas start only when they are needed."""
    tools = await start({"odd": make_odd_entry(replicas=3)})

    pids = {await call_text(tools, "pid") for _ in range(10)}

    assert len(pids) == len(tools.sessions.list_sessions("odd")) == 1


async def test_a_replica_that_dies_fails_only_its_own_calls(start: Start, tmp_path: Path) -> None:
    """The other replicas continue, and the server is not offline."""
    tools = await start({"odd": make_odd_entry(replicas=2, lifecycle="eager", max_concurrency=2)})
    await call_text(tools, "pid")
    await eventually(lambda: [session.is_open for session in tools.sessions.list_sessions("odd")] == [True, True])
    tasks = [asyncio.create_task(call(tools, "slow", seconds=HANG_S, mark=str(tmp_path / "x"))) for _ in range(4)]
    await eventually(lambda: [session.in_flight for session in tools.sessions.list_sessions("odd")] == [2, 2])
    (server,) = tools.catalogue.list_servers(CALLER)
    pid = tools.sessions.list_sessions("odd")[0].get_health().pid
    assert pid is not None

    os.kill(pid, signal.SIGKILL)
    await eventually(lambda: tools.sessions.list_sessions("odd")[0].restarts == 1)
    tmp_path.joinpath("x.end").touch()
    codes = [(await task).code for task in tasks]

    assert sorted(map(str, codes)) == ["None", "None", "server_unavailable", "server_unavailable"]
    assert [session.is_open for session in tools.sessions.list_sessions("odd")] == [True, True]
    assert tools.sessions.get_health_state(server).health is HealthStatus.ONLINE


@pytest.mark.parametrize("isolation", ["per_workspace", "shared"])
async def test_an_eager_server_starts_and_restarts_all_its_replicas(start: Start, isolation: str) -> None:
    """An eager server has all its replicas from the first caller on and restarts without a call."""
    tools = await start({"odd": make_odd_entry(replicas=2, lifecycle="eager", isolation=isolation)})
    await call_text(tools, "pid")
    await eventually(lambda: [session.is_open for session in tools.sessions.list_sessions("odd")] == [True, True])
    pids = {session.get_health().pid for session in tools.sessions.list_sessions("odd")}

    for pid in pids:
        assert pid is not None
        os.kill(pid, signal.SIGKILL)

    await eventually(lambda: not pids & {session.get_health().pid for session in tools.sessions.list_sessions("odd") if session.is_open})
    await eventually(lambda: [session.is_open for session in tools.sessions.list_sessions("odd")] == [True, True])


async def test_workspaces_do_not_share_replicas(start: Start) -> None:
    """Two workspaces never share a session, whatever the number of replicas."""
    tools = await start({"odd": make_odd_entry(replicas=2)})

    async def pids(caller: Caller) -> set[str]:
        return set(await asyncio.gather(*(call_text(tools, "pid", caller=caller) for _ in range(8))))

    own, others = await pids(CALLER), await pids(OTHER)

    assert not own & others


# Limits.


async def test_a_workspace_over_its_session_limit_closes_the_least_recently_used() -> None:
    """Callers choose their session ids (X-Session-ID), so processes per workspace are limited."""
    server = make_odd_server(isolation=SessionIsolation.PER_SESSION)
    sessions = SessionPool(CONNECTORS, timeouts=SHORT_TIMEOUTS, max_per_workspace=2)
    await sessions.start()
    try:
        first, second = (sessions.get_session(server, CALLER, name) for name in ("sess_1", "sess_2"))
        for session in (first, second):
            await session.get_connection()
        async with second.slot():
            third = sessions.get_session(server, CALLER, "sess_3")
            async with third.slot():
                await third.get_connection()
                with pytest.raises(ServerBusy):
                    sessions.get_session(server, CALLER, "sess_4")
                assert sessions.get_session(server, OTHER, "sess_4") is not third

        assert first.is_stopping
        assert not second.is_stopping
        assert sessions.get_session(server, CALLER, "sess_2") is second
        assert sessions.get_session(server, CALLER, "sess_4") is not None
    finally:
        await sessions.aclose()


async def test_the_sessions_of_all_servers_that_a_workspace_added_are_limited() -> None:
    """A hundred servers with 64 sessions each would use the resources of all others."""
    servers = [
        make_odd_server(id=f"own-{number}", owner=CALLER.workspace_id, replicas=3, lifecycle=SessionLifecycle.EAGER) for number in range(3)
    ]
    sessions = SessionPool(CONNECTORS, timeouts=SHORT_TIMEOUTS, max_with_own_servers=4)
    await sessions.start()
    try:
        first = sessions.get_session(servers[0], CALLER, None)
        async with first.slot():
            for session in sessions.list_sessions(servers[0].key):
                await session.get_connection()
            second = sessions.get_session(servers[1], CALLER, None)
            await second.get_connection()
            assert [len(sessions.list_sessions(server.key)) for server in servers[:2]] == [3, 1]
            async with second.slot():
                third = sessions.get_session(servers[2], CALLER, None)
                assert not first.is_stopping
                assert not second.is_stopping
                assert not third.is_stopping
        stranger = make_odd_server(id="own-1", owner=OTHER.workspace_id)
        assert sessions.get_session(stranger, OTHER, None) is not None
    finally:
        await sessions.aclose()


# Crash loops.


async def test_a_crash_loop_opens_the_breaker_and_one_probe_closes_it(start: Start) -> None:
    """The breaker also opens for a server that responds between its crashes; calls fail at once with the reason."""
    timing = SupervisionTimeouts(connect_timeout_s=10, initial_backoff_s=0.01, max_failures=4, open_duration_s=3, max_caller_wait_s=0.2)
    tools = await start({"odd": make_odd_entry()}, timing=timing)
    for _ in range(4):
        assert await call_text(tools, "echo", text="hi") == "hi"
        assert (await call(tools, "crash")).code == "server_unavailable"

    rejected = await call(tools, "echo", text="hi")
    (server,) = tools.catalogue.list_servers(CALLER)
    health_state, server_health = tools.sessions.get_health_state(server, 1), tools.sessions.get_server_health(server, 1)

    assert rejected.code == "server_unavailable"
    assert "exited with code 7" in str(rejected.error)
    assert f"attempts are paused: the next attempt is in {rejected.retry_after_s} s." in str(rejected.error)
    assert health_state.health is HealthStatus.OFFLINE
    assert server_health.state == "waiting"
    assert 0 < (server_health.sessions[0].retry_s or 0) <= 3

    await eventually(lambda: tools.sessions.get_server_health(server, 1).state == "closed")
    pids = await asyncio.gather(*(call_text(tools, "pid") for _ in range(4)))
    assert len(set(pids)) == 1
    assert tools.sessions.get_health_state(server, 1).health is HealthStatus.ONLINE


async def test_a_list_of_one_workspace_does_not_hide_the_crash_of_another(start: Start) -> None:
    """A list that succeeds in the session of one workspace says nothing about the process of another, which is offline."""
    tools = await start({"odd": make_odd_entry()}, timing=SupervisionTimeouts(connect_timeout_s=10, max_failures=2, open_duration_s=60))
    await call_text(tools, "echo", text="hi", caller=OTHER)
    for _ in range(2):
        await call(tools, "crash")
    (server,) = tools.catalogue.list_servers(CALLER)
    await eventually(lambda: tools.sessions.get_health_state(server, 1).health is HealthStatus.OFFLINE)

    await call_text(tools, "grow", caller=OTHER)
    await eventually(lambda: tools.catalogue.find_tool(server, "late", OTHER) is not None)

    assert tools.sessions.get_health_state(server, 1).health is HealthStatus.OFFLINE
    assert tools.sessions.get_health_state(server, 2).health is HealthStatus.ONLINE
    assert tools.sessions.get_health_state(server).health is HealthStatus.DEGRADED


async def test_a_crash_in_one_workspace_does_not_affect_others(start: Start) -> None:
    """Breakers, health and the last error belong to one workspace."""
    tools = await start(
        {"odd": make_odd_entry("--say", env={"ODD_SECRET": "secret"})},
        timing=SupervisionTimeouts(connect_timeout_s=10, max_failures=2, open_duration_s=60),
    )
    await call_text(tools, "echo", text="hi", caller=OTHER)
    for _ in range(2):
        await call(tools, "crash")
    (server,) = tools.catalogue.list_servers(CALLER)
    await eventually(lambda: tools.sessions.get_health_state(server, 1).health is HealthStatus.OFFLINE)

    assert (await call(tools, "echo", text="hi")).code == "server_unavailable"
    assert await call_text(tools, "echo", text="hi", caller=OTHER) == "hi"
    assert tools.sessions.get_health_state(server, 2).health is HealthStatus.ONLINE
    assert tools.sessions.get_health_state(server, 2).last_error == ""
    assert [session.last_error for session in tools.sessions.get_server_health(server, 2).sessions] == [""]
    assert tools.sessions.get_health_state(server).health is HealthStatus.DEGRADED


TIMING = SupervisionTimeouts(max_failures=3)
FAILURES = st.lists(st.tuples(st.floats(0, 200), st.none() | st.floats(0, 200)), max_size=40)
"""For each failure: the delay after the end of the last wait, and the lifetime of the session."""


@given(FAILURES)
def test_no_sequence_of_failures_opens_sessions_without_bound(failures: list[tuple[float, float | None]]) -> None:
    """Attempts per window and the delays are bounded; only a stable session closes the breaker."""
    breaker, now = CircuitBreaker(TIMING), 1000.0
    times: list[float] = []
    for gap, lifetime_s in failures:
        now = max(now, breaker.not_before) + gap
        before = breaker.trip_count
        delay = breaker.record_failure(now, lifetime_s)
        times.append(now)

        assert 0 <= delay <= TIMING.max_open_duration_s
        assert breaker.not_before == now + delay
        if before and (lifetime_s is None or lifetime_s < TIMING.failure_window_s):
            assert breaker.trip_count == before + 1
            assert delay >= TIMING.open_duration_s
    stable = {number for number, (_, lifetime_s) in enumerate(failures) if lifetime_s is not None and lifetime_s >= TIMING.failure_window_s}
    for number in range(len(times) - TIMING.max_failures):
        window = range(number, number + TIMING.max_failures + 1)
        if not stable.intersection(window):
            assert times[window[-1]] - times[number] >= TIMING.open_duration_s


@given(st.lists(st.floats(0, 1e6), min_size=1), st.floats(0.01, 1))
def test_a_percentile_is_the_smallest_value_that_this_share_does_not_exceed(values: list[float], share: float) -> None:
    """Exact, by nearest rank."""
    result = percentile(values, share)

    assert result in values
    assert sum(value <= result for value in values) >= share * len(values) - 1e-9
    assert sum(value < result for value in values) < share * len(values)


# Misbehaving servers.


async def test_a_tool_without_a_usable_schema_does_not_hide_the_others(start: Start) -> None:
    """One invalid tool must not hide the whole list of its server."""
    tools = await start({"odd": make_odd_entry("--bad-schema")})

    assert await call_text(tools, "echo", text="hi") == "hi"
    (server,) = tools.catalogue.list_servers(CALLER)
    names = {tool.name for tool in tools.catalogue.list_tools(CALLER, server)}
    assert {"echo", "pid", "strict"} <= names
    assert tools.sessions.get_health_state(server).health is HealthStatus.ONLINE


async def test_a_result_of_50_mb_fails_only_its_call(start: Start) -> None:
    """A result over 10 MiB is discarded while it arrives, and other calls continue."""
    tools = await start({"odd": make_odd_entry()})
    await call_text(tools, "pid")

    large = asyncio.create_task(call(tools, "large", bytes=50_000_000))
    assert await call_text(tools, "echo", text="meanwhile") == "meanwhile"

    assert (await large).code == "result_too_large"
    assert await call_text(tools, "echo", text="after") == "after"


async def test_a_start_that_hangs_is_aborted_and_leaves_no_process(start: Start) -> None:
    """The time to connect is limited, and processes of hung starts are killed."""
    before = {child.pid for child in list_children()}
    tools = await start(
        {"odd": make_odd_entry("--hang", "--deaf", "--grandchild")}, timing=SupervisionTimeouts(connect_timeout_s=0.4, initial_backoff_s=60)
    )

    outcome = await call(tools, "echo", text="hi")

    assert outcome.code == "server_unavailable"
    assert "did not answer within 0.4 s" in str(outcome.error)
    await eventually(lambda: {child.pid for child in list_children()} <= before)


async def test_start_timeout_s_limits_the_start(start: Start) -> None:
    """The error names `start_timeout_s`."""
    tools = await start(
        {"dead": make_odd_entry("--hang", start_timeout_s=1)}, timing=SupervisionTimeouts(connect_timeout_s=60, initial_backoff_s=60)
    )

    error = await eventually(lambda: tools.sessions.get_health_state(tools.catalogue.get_server(CALLER, "dead")).last_error)

    assert "within 1 s" in error
    assert "start_timeout_s" in error


@pytest.mark.parametrize(
    ("command", "limit_s"),
    [("npx", 120), ("/usr/bin/uvx", 120), ("C:\\node\\npx.cmd", 120), ("docker", 120), ("python3", None), ("mcp-npx", None)],
)
def test_a_program_that_downloads_has_a_longer_start_timeout(command: str, limit_s: float | None) -> None:
    """`npx -y …` may need more than 30 s to install a package."""
    server = Server(id="a", name="a", target=CommandTarget(command=command))

    assert server.effective_start_timeout_s == limit_s
    assert replace(server, start_timeout_s=5).effective_start_timeout_s == 5


async def test_a_slow_server_keeps_its_process(start: Start, tmp_path: Path) -> None:
    """A server that responds to the probe after a timeout is not restarted."""
    tools = await start(
        {"odd": make_odd_entry(tools={"timeouts": {"slow": 0.3}})},
        timing=SupervisionTimeouts(connect_timeout_s=10, probe_timeout_s=HANG_S),
    )
    pid = int(await call_text(tools, "pid"))
    lists = int(await call_text(tools, "lists"))

    assert (await call(tools, "slow", seconds=HANG_S, mark=str(tmp_path / "unused"))).code == "tool_timeout"

    async def was_probed() -> bool:
        return int(await call_text(tools, "lists")) > lists

    await eventually(was_probed)
    assert int(await call_text(tools, "pid")) == pid


async def test_a_server_that_no_longer_responds_is_restarted(start: Start) -> None:
    """A frozen server is restarted after a timeout."""
    tools = await start(
        {"odd": make_odd_entry(tools={"timeouts": {"count": 0.3}})},
        timing=SupervisionTimeouts(connect_timeout_s=10, probe_timeout_s=1),
    )
    pid = int(await call_text(tools, "pid"))

    os.kill(pid, signal.SIGSTOP)
    assert (await call(tools, "count")).code == "tool_timeout"

    await eventually(lambda: not is_alive(pid))
    assert int(await call_text(tools, "pid")) != pid
    assert tools.sessions.list_sessions("odd")[0].restarts == 1


# Health reports.


async def test_the_health_of_a_server_has_its_process_and_its_durations(start: Start, tmp_path: Path) -> None:
    """Health has state, pid, protocol version, uptime, restarts, last error, calls in flight, p50 and p95."""
    tools = await start({"odd": make_odd_entry()})
    (server,) = tools.catalogue.list_servers(CALLER)
    assert tools.sessions.get_server_health(server, 1).state in {"closed", "opening", "open"}
    pid = int(await call_text(tools, "pid"))
    for _ in range(3):
        await call_text(tools, "echo", text="hi")
    slow = asyncio.create_task(call(tools, "slow", seconds=30, mark=str(tmp_path / "x")))
    await eventually(lambda: tools.sessions.get_server_health(server, 1).in_flight == 1)

    server_health = tools.sessions.get_server_health(server, 1)
    (session,) = server_health.sessions
    assert (session.state, session.pid, session.protocol_version, session.software, session.restarts) == (
        "open",
        pid,
        "2025-06-18",
        "odd 1",
        0,
    )
    assert (session.uptime_s or 0) > 0
    assert len(session.durations_ms) == 4
    assert 0 < (server_health.p50_ms or 0) <= (server_health.p95_ms or 0)

    psutil.Process(pid).kill()
    assert (await slow).code == "server_unavailable"
    assert int(await call_text(tools, "pid")) != pid
    assert tools.sessions.get_server_health(server, 1).restarts == 1
    assert tools.sessions.get_server_health(server, 2).sessions == ()


async def test_the_health_over_http_needs_servers_read(settings: Settings) -> None:
    """`standing` is null without servers:read."""
    settings.servers_file.write_text(json.dumps({"mcpServers": {"odd": make_odd_entry()}}))
    async with run_instance(settings) as instance:
        without_scope, with_scope = await instance.api_key("mcp:read", "mcp:write"), await instance.api_key("mcp:read", "servers:read")
        other = await instance.api_key("mcp:read", "servers:read", workspace_id=await instance.workspace("other"))
        url = "/api/v1/mcp/servers/odd"
        response = await without_scope.post("/api/v1/mcp/tools/call", {"server": "odd", "tool": "pid", "arguments": {}})

        async def has_uptime() -> bool:
            return bool((await with_scope.get(url)).json()["standing"]["sessions"][0]["uptime_s"])  # in hundredths

        await eventually(has_uptime)
        hidden, visible, of_other = [(await key.get(url)).json()["standing"] for key in (without_scope, with_scope, other)]

    assert hidden is None
    (session,) = visible["sessions"]
    assert session["pid"] == int(response.json()["result"]["content"][0]["text"])
    assert session["uptime_s"] > 0
    assert {"state": "open", "restarts": 0, "in_flight": 0, "queued": 0}.items() <= visible.items()
    assert 0 < visible["p50_ms"] <= visible["p95_ms"]
    # Nothing of the first workspace; a session may exist that listed the tools and that a first call takes over.
    assert {"restarts": 0, "in_flight": 0, "queued": 0, "p50_ms": None, "p95_ms": None}.items() <= of_other.items()
    assert session["pid"] not in {entry["pid"] for entry in of_other["sessions"]}
    assert of_other["state"] == ("open" if of_other["sessions"] else "closed")


async def test_the_list_of_servers_has_the_reason_for_keys_that_may_read_it(settings: Settings) -> None:
    """`last_error` in the list needs servers:read, as on the page of the server."""
    broken = {"command": sys.executable, "args": ["-c", "import sys; sys.exit('no licence\\nfound')"]}
    settings.servers_file.write_text(json.dumps({"mcpServers": {"broken": broken, "faulty": {"command": 7}, "odd": make_odd_entry()}}))
    async with run_instance(settings) as instance:
        without_scope, with_scope = await instance.api_key("mcp:read"), await instance.api_key("mcp:read", "servers:read")

        async def list_errors(key: KeyedCaller) -> dict[str, str | None]:
            servers = (await key.get("/api/v1/mcp/servers")).json()["servers"]
            return {server["id"]: server["last_error"] for server in servers if server["id"] in {"broken", "faulty", "odd"}}

        async def find_reason() -> str | None:
            return (await list_errors(with_scope))["broken"]

        reason = await eventually(find_reason)
        visible, hidden = await list_errors(with_scope), await list_errors(without_scope)
        public = (await instance.caller(None).get("/servers")).json()["servers"]

    assert "found" in str(reason)
    assert "\n" not in str(reason)
    assert (visible["faulty"], visible["odd"]) == ("command must be a text.", None)
    assert set(hidden.values()) == {None}
    assert all(server["last_error"] is None for server in public)


async def test_a_shared_server_is_visible_to_all_and_a_lazy_one_stops_when_idle(start: Start, tmp_path: Path) -> None:
    """An idle shared session ends after idle_s."""
    tools = await start({"odd": make_odd_entry(isolation="shared", idle_s=0.2)})
    (server,) = tools.catalogue.list_servers(CALLER)
    running = asyncio.create_task(call(tools, "slow", seconds=HANG_S, mark=str(tmp_path / "x")))
    await eventually(lambda: tools.sessions.get_server_health(server, 1).in_flight == 1)
    pid = int(await call_text(tools, "pid"))

    assert [session.pid for session in tools.sessions.get_server_health(server, 2).sessions] == [pid]
    tmp_path.joinpath("x.end").touch()
    assert (await running).error is None
    await eventually(lambda: not is_alive(pid))
    await eventually(lambda: tools.sessions.get_server_health(server, 1).sessions == ())
    assert tools.sessions.get_server_health(server, 1).state == "closed"
    assert server.lifecycle is SessionLifecycle.LAZY


async def test_the_reason_of_a_broken_session_is_its_last_error(start: Start) -> None:
    """A response that breaks off ends the session, and its last error names that, not only the end of the session."""
    with subprocess.Popen([sys.executable, "-I", "-S", str(SERVERS / "legacy.py")], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            tools = await start({"served": {"url": f"http://127.0.0.1:{int(process.stdout.readline())}/mcp"}})
            (server,) = tools.catalogue.list_servers(CALLER)
            outcome = await call(tools, "half", server="served")
            await eventually(lambda: tools.sessions.get_health_state(server).last_error)
        finally:
            process.kill()

    assert outcome.code == "server_unavailable"
    assert tools.sessions.get_health_state(server).last_error == outcome.error


async def test_a_server_that_does_not_read_its_input_is_closed(start: Start) -> None:
    """Unread messages are buffered up to 64 MiB; then the session closes, and the next call opens a new one."""
    tools = await start({"odd": make_odd_entry()})

    outcome = await call(tools, "unread")
    next_outcome = await call(tools, "echo", text="hi")

    assert outcome.code == "server_unavailable"
    assert "does not read" in str(outcome.error)
    assert next_outcome.error is None
