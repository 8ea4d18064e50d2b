"""The session pool: replicas, back-off and breaker, start and stop, and health reports (D-12, D-32, D-33)."""

from __future__ import annotations

import asyncio
import json
import os
import signal
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
from tests.conftest import eventually, run_instance
from tests.tools.conftest import Start
from tests.tools.makers import CONNECTORS, SHORT_TIMEOUTS, Tools, is_alive, list_children, make_caller, make_odd_entry, make_odd_server

CALLER = make_caller()
OTHER = make_caller(workspace_id=2, public_workspace_id=2, key_id="key-2")


async def call(tools: Tools, tool: str, *, server: str = "odd", caller: Caller = CALLER, **arguments: object) -> CallOutcome:
    """Call a tool."""
    return await tools.runner.call(caller, server, tool, arguments)


async def said(tools: Tools, tool: str, *, server: str = "odd", caller: Caller = CALLER, **arguments: object) -> str:
    """Call a tool that succeeds, and return its text."""
    outcome = await call(tools, tool, server=server, caller=caller, **arguments)
    assert outcome.error is None
    return str(json.loads(outcome.result or b"")["content"][0]["text"])


@pytest.fixture
def database_url() -> str:
    """The embedded store alone: nothing here differs by dialect."""
    return "embedded:"


# Replicas.


async def test_calls_at_once_are_spread_over_the_replicas_and_no_more_are_started(start: Start, tmp_path: Path) -> None:
    """D-32: replicas; each call goes to the session with the least to do."""
    tools = await start({"odd": make_odd_entry(replicas=3)})
    await said(tools, "pid")
    slow: list[asyncio.Task[CallOutcome]] = []
    for running, wanted in ((1, 1), (2, 2), (3, 2), (4, 3)):
        slow.append(asyncio.create_task(call(tools, "slow", seconds=30, mark=str(tmp_path / "x"))))
        await eventually(lambda running=running: sum(session.in_flight for session in tools.sessions.list_sessions("odd")) == running)
        await eventually(lambda wanted=wanted: sum(session.is_open for session in tools.sessions.list_sessions("odd")) == wanted)

    more = [asyncio.create_task(call(tools, "slow", seconds=30, mark=str(tmp_path / "x"))) for _ in range(5)]
    await eventually(lambda: sum(session.in_flight for session in tools.sessions.list_sessions("odd")) == 9)

    assert sorted(session.in_flight for session in tools.sessions.list_sessions("odd")) == [3, 3, 3]
    assert len({session.get_health().pid for session in tools.sessions.list_sessions("odd")}) == 3
    for task in (*slow, *more):
        task.cancel()
    await asyncio.gather(*slow, *more, return_exceptions=True)


async def test_one_caller_after_another_needs_one_replica(start: Start) -> None:
    """D-32: what is not needed is not started, though the entry allows it."""
    tools = await start({"odd": make_odd_entry(replicas=3)})

    pids = {await said(tools, "pid") for _ in range(10)}

    assert len(pids) == len(tools.sessions.list_sessions("odd")) == 1


async def test_a_replica_that_dies_costs_its_own_calls_alone(start: Start, tmp_path: Path) -> None:
    """D-32, D-33: the others go on, and the server is degraded, not offline."""
    tools = await start({"odd": make_odd_entry(replicas=2, lifecycle="eager")})
    await said(tools, "pid")
    await eventually(lambda: [session.is_open for session in tools.sessions.list_sessions("odd")] == [True, True])
    tasks = [asyncio.create_task(call(tools, "slow", seconds=2, mark=str(tmp_path / "x"))) for _ in range(4)]
    await eventually(lambda: [session.in_flight for session in tools.sessions.list_sessions("odd")] == [2, 2])
    (server,) = tools.catalogue.list_servers(CALLER)
    pid = tools.sessions.list_sessions("odd")[0].get_health().pid
    assert pid is not None

    os.kill(pid, signal.SIGKILL)
    await eventually(lambda: tools.sessions.list_sessions("odd")[0].restarts == 1)
    codes = [(await task).code for task in tasks]

    assert sorted(map(str, codes)) == ["None", "None", "server_unavailable", "server_unavailable"]
    assert [session.is_open for session in tools.sessions.list_sessions("odd")] == [True, True]
    assert tools.sessions.get_health_state(server).health is HealthStatus.ONLINE


@pytest.mark.parametrize("isolation", ["per_workspace", "shared"])
async def test_an_eager_server_has_all_its_replicas_from_its_first_caller_on_and_comes_back_without_one(
    start: Start, isolation: str
) -> None:
    """An eager server has all its replicas from the first caller on and restarts without a call (D-32)."""
    tools = await start({"odd": make_odd_entry(replicas=2, lifecycle="eager", isolation=isolation)})
    await said(tools, "pid")
    await eventually(lambda: [session.is_open for session in tools.sessions.list_sessions("odd")] == [True, True])
    pids = {session.get_health().pid for session in tools.sessions.list_sessions("odd")}

    for pid in pids:
        assert pid is not None
        os.kill(pid, signal.SIGKILL)

    await eventually(lambda: not pids & {session.get_health().pid for session in tools.sessions.list_sessions("odd") if session.is_open})
    await eventually(lambda: [session.is_open for session in tools.sessions.list_sessions("odd")] == [True, True])


async def test_replicas_stay_within_the_holder_that_the_isolation_names(start: Start) -> None:
    """D-32: two workspaces never share a session, however many replicas there are."""
    tools = await start({"odd": make_odd_entry(replicas=2)})

    async def pids(caller: Caller) -> set[str]:
        return set(await asyncio.gather(*(said(tools, "pid", caller=caller) for _ in range(8))))

    mine, theirs = await pids(CALLER), await pids(OTHER)

    assert not mine & theirs


# Bounds.


async def test_a_workspace_holds_so_many_sessions_and_the_one_unused_for_longest_gives_way() -> None:
    """D-32: callers name their sessions themselves (X-Session-ID); not each name may be a process for ever."""
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


async def test_a_workspace_holds_so_many_sessions_with_all_servers_that_it_added() -> None:
    """D-31, D-32: a hundred servers of 64 sessions each would take what all others need, too."""
    servers = [
        make_odd_server(id=f"own-{number}", owner=CALLER.workspace_id, replicas=3, lifecycle=SessionLifecycle.EAGER) for number in range(3)
    ]
    sessions = SessionPool(CONNECTORS, timeouts=SHORT_TIMEOUTS, max_with_own_servers=4)
    await sessions.start()
    try:
        first = sessions.get_session(servers[0], CALLER, None)
        async with first.slot():
            for each in sessions.list_sessions(servers[0].key):
                await each.get_connection()
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


async def test_what_crashes_over_and_over_is_left_alone_and_comes_back_by_one_probe(start: Start) -> None:
    """D-32: a breaker, also for a server that answers between its crashes; told in words, at once."""
    timing = SupervisionTimeouts(connect_timeout_s=10, initial_backoff_s=0.01, max_failures=4, open_duration_s=3, max_caller_wait_s=0.2)
    tools = await start({"odd": make_odd_entry()}, timing=timing)
    for _ in range(4):
        assert await said(tools, "echo", text="hi") == "hi"
        assert (await call(tools, "crash")).code == "server_unavailable"

    refused = await call(tools, "echo", text="hi")
    (server,) = tools.catalogue.list_servers(CALLER)
    condition, standing = tools.sessions.get_health_state(server, 1), tools.sessions.get_server_health(server, 1)

    assert refused.code == "server_unavailable"
    assert "exited with code 7" in str(refused.error)
    assert "attempts are paused: the next attempt is in" in str(refused.error)
    assert condition.health is HealthStatus.OFFLINE
    assert standing.state == "waiting"
    assert 0 < (standing.sessions[0].retry_s or 0) <= 3

    await eventually(lambda: tools.sessions.get_server_health(server, 1).state == "closed")
    several = await asyncio.gather(*(said(tools, "pid") for _ in range(4)))
    assert len(set(several)) == 1
    assert tools.sessions.get_health_state(server, 1).health is HealthStatus.ONLINE


async def test_one_workspace_that_crashes_its_session_takes_the_server_from_no_other(start: Start) -> None:
    """D-32, spec 2.8: breakers and health are a workspace's own, and so are the last words of its process."""
    tools = await start(
        {"odd": make_odd_entry("--say", env={"ODD_SECRET": "of nobody"})},
        timing=SupervisionTimeouts(connect_timeout_s=10, max_failures=2, open_duration_s=60),
    )
    await said(tools, "echo", text="hi", caller=OTHER)
    for _ in range(2):
        await call(tools, "crash")
    (server,) = tools.catalogue.list_servers(CALLER)
    await eventually(lambda: tools.sessions.get_health_state(server, 1).health is HealthStatus.OFFLINE)

    assert (await call(tools, "echo", text="hi")).code == "server_unavailable"
    assert await said(tools, "echo", text="hi", caller=OTHER) == "hi"
    assert tools.sessions.get_health_state(server, 2).health is HealthStatus.ONLINE
    assert tools.sessions.get_health_state(server, 2).last_error == ""
    assert [session.last_error for session in tools.sessions.get_server_health(server, 2).sessions] == [""]
    assert tools.sessions.get_health_state(server).health is HealthStatus.DEGRADED


TIMING = SupervisionTimeouts(max_failures=3)
FALLS = st.lists(st.tuples(st.floats(0, 200), st.none() | st.floats(0, 200)), max_size=40)
"""How long after the end of the last wait each failure comes, and how long the session had lived."""


@given(FALLS)
def test_no_row_of_failures_opens_sessions_without_end(falls: list[tuple[float, float | None]]) -> None:
    """D-32: attempts per window and the waits are bounded; only a stable session closes the breaker."""
    breaker, now = CircuitBreaker(TIMING), 1000.0
    at: list[float] = []
    for gap, lived in falls:
        now = max(now, breaker.not_before) + gap
        before = breaker.trip_count
        delay = breaker.record_failure(now, lived)
        at.append(now)

        assert 0 <= delay <= TIMING.max_open_duration_s
        assert breaker.not_before == now + delay
        if before and (lived is None or lived < TIMING.failure_window_s):
            assert breaker.trip_count == before + 1
            assert delay >= TIMING.open_duration_s
    calm = {number for number, (_, lived) in enumerate(falls) if lived is not None and lived >= TIMING.failure_window_s}
    for number in range(len(at) - TIMING.max_failures):
        several = range(number, number + TIMING.max_failures + 1)
        if not calm.intersection(several):
            assert at[several[-1]] - at[number] >= TIMING.open_duration_s


@given(st.lists(st.floats(0, 1e6), min_size=1), st.floats(0.01, 1))
def test_a_percentile_is_the_smallest_value_that_so_many_do_not_exceed(values: list[float], share: float) -> None:
    """D-38: exact, by nearest rank."""
    found = percentile(values, share)

    assert found in values
    assert sum(value <= found for value in values) >= share * len(values) - 1e-9
    assert sum(value < found for value in values) < share * len(values)


# What a server does wrong.


async def test_a_tool_without_a_usable_schema_does_not_cost_the_others(start: Start) -> None:
    """Notes on MCP, robustness: one bad tool used to hide a server's whole list."""
    tools = await start({"odd": make_odd_entry("--bad-schema")})

    assert await said(tools, "echo", text="hi") == "hi"
    (server,) = tools.catalogue.list_servers(CALLER)
    names = {tool.name for tool in tools.catalogue.list_tools(CALLER, server)}
    assert {"echo", "pid", "strict"} <= names
    assert tools.sessions.get_health_state(server).health is HealthStatus.ONLINE


async def test_a_result_of_50_mb_costs_its_call_alone(start: Start) -> None:
    """D-34: 10 MiB at most; it is thrown away as it comes, while others are answered."""
    tools = await start({"odd": make_odd_entry()})
    await said(tools, "pid")

    large = asyncio.create_task(call(tools, "large", bytes=50_000_000))
    assert await said(tools, "echo", text="meanwhile") == "meanwhile"

    assert (await large).code == "result_too_large"
    assert await said(tools, "echo", text="after") == "after"


async def test_a_start_that_hangs_is_given_up_and_leaves_nothing(start: Start) -> None:
    """D-32: the connect is bounded; notes on MCP 3.1: hung initialisations filled others' tables of processes."""
    before = {each.pid for each in list_children()}
    tools = await start(
        {"odd": make_odd_entry("--hang", "--deaf", "--grandchild")}, timing=SupervisionTimeouts(connect_timeout_s=0.4, initial_backoff_s=60)
    )

    outcome = await call(tools, "echo", text="hi")

    assert outcome.code == "server_unavailable"
    assert "did not answer within 0.4 s" in str(outcome.error)
    await eventually(lambda: {each.pid for each in list_children()} <= before)


async def test_a_start_may_take_as_long_as_the_entry_says(start: Start) -> None:
    """Issue 14: `start_timeout_s`; the error names it; D-32."""
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
def test_a_program_that_downloads_has_longer_to_start(command: str, limit_s: float | None) -> None:
    """Issue 14: `npx -y …` that needs more than 30 s to install was killed; D-32."""
    server = Server(id="a", name="a", target=CommandTarget(command=command))

    assert server.effective_start_timeout_s == limit_s
    assert replace(server, start_timeout_s=5).effective_start_timeout_s == 5


async def test_a_server_that_answers_nothing_any_more_is_started_anew(start: Start, tmp_path: Path) -> None:
    """Notes on MCP 3.2: gateways that let every call run into its timeout, for ever; one that is merely slow keeps its process."""
    tools = await start(
        {"odd": make_odd_entry(tools={"timeouts": {"slow": 0.3, "count": 0.3}})},
        timing=SupervisionTimeouts(connect_timeout_s=10, probe_timeout_s=3),
    )
    pid = int(await said(tools, "pid"))
    assert (await call(tools, "slow", seconds=1, mark=str(tmp_path / "unused"))).code == "tool_timeout"
    await eventually(lambda: tools.sessions.list_sessions("odd")[0].is_idle)
    assert int(await said(tools, "pid")) == pid

    os.kill(pid, signal.SIGSTOP)
    assert (await call(tools, "count")).code == "tool_timeout"

    await eventually(lambda: not is_alive(pid))
    assert int(await said(tools, "pid")) != pid
    assert tools.sessions.list_sessions("odd")[0].restarts == 1


# How it is told.


async def test_how_a_server_does_is_told_with_its_process_and_its_times(start: Start, tmp_path: Path) -> None:
    """Issue 4: state, pid, era, uptime, restarts, last error, in flight, p50 and p95."""
    tools = await start({"odd": make_odd_entry()})
    (server,) = tools.catalogue.list_servers(CALLER)
    assert tools.sessions.get_server_health(server, 1).state in {"closed", "opening", "open"}
    pid = int(await said(tools, "pid"))
    for _ in range(3):
        await said(tools, "echo", text="hi")
    slow = asyncio.create_task(call(tools, "slow", seconds=30, mark=str(tmp_path / "x")))
    await eventually(lambda: tools.sessions.get_server_health(server, 1).in_flight == 1)

    standing = tools.sessions.get_server_health(server, 1)
    (session,) = standing.sessions
    assert (session.state, session.pid, session.protocol_version, session.software, session.restarts) == (
        "open",
        pid,
        "2025-06-18",
        "odd 1",
        0,
    )
    assert (session.uptime_s or 0) > 0
    assert len(session.durations_ms) == 4
    assert 0 < (standing.percentile_ms(0.5) or 0) <= (standing.percentile_ms(0.95) or 0)

    psutil.Process(pid).kill()
    assert (await slow).code == "server_unavailable"
    assert int(await said(tools, "pid")) != pid
    assert tools.sessions.get_server_health(server, 1).restarts == 1
    assert tools.sessions.get_server_health(server, 2).sessions == ()


async def test_over_http_how_a_server_does_is_told_to_keys_that_may_see_servers(settings: Settings) -> None:
    """D-12: what supervision knows needs servers:read; issue 4."""
    settings.servers_file.write_text(json.dumps({"mcpServers": {"odd": make_odd_entry()}}))
    async with run_instance(settings) as instance:
        some, more = await instance.api_key("mcp:read", "mcp:write"), await instance.api_key("mcp:read", "servers:read")
        other = await instance.api_key("mcp:read", "servers:read", workspace_id=await instance.workspace("other"))
        url = "/api/v1/mcp/servers/odd"
        answer = await some.post("/api/v1/mcp/tools/call", {"server": "odd", "tool": "pid", "arguments": {}})

        told, shown, theirs = [(await key.get(url)).json()["standing"] for key in (some, more, other)]

    assert told is None
    (session,) = shown["sessions"]
    assert session["pid"] == int(answer.json()["result"]["content"][0]["text"])
    assert session["uptime_s"] > 0
    assert {"state": "open", "restarts": 0, "in_flight": 0, "queued": 0}.items() <= shown.items()
    assert 0 < shown["p50_ms"] <= shown["p95_ms"]
    # Nothing of the first workspace's; there may be a session of nobody's yet, opened to list the tools, which a first call takes over.
    assert {"restarts": 0, "in_flight": 0, "queued": 0, "p50_ms": None, "p95_ms": None}.items() <= theirs.items()
    assert session["pid"] not in {each["pid"] for each in theirs["sessions"]}
    assert theirs["state"] == ("open" if theirs["sessions"] else "closed")


async def test_a_shared_server_is_told_to_all_and_a_lazy_one_goes_when_it_is_idle(start: Start) -> None:
    """D-32: isolation shared, idle_s."""
    tools = await start({"odd": make_odd_entry(isolation="shared", idle_s=0.2)})
    pid = int(await said(tools, "pid"))
    (server,) = tools.catalogue.list_servers(CALLER)

    assert [session.pid for session in tools.sessions.get_server_health(server, 2).sessions] == [pid]
    await eventually(lambda: not is_alive(pid))
    await eventually(lambda: tools.sessions.get_server_health(server, 1).sessions == ())
    assert tools.sessions.get_server_health(server, 1).state == "closed"
    assert server.lifecycle is SessionLifecycle.LAZY


async def test_a_server_that_reads_nothing_of_what_it_is_sent_is_given_up(start: Start) -> None:
    """D-32: what it does not read waits here; past 64 MiB its session is over, and the next call finds a new one."""
    tools = await start({"odd": make_odd_entry()})

    outcome = await call(tools, "unread")
    again = await call(tools, "echo", text="hi")

    assert outcome.code == "server_unavailable"
    assert "does not read" in str(outcome.error)
    assert again.error is None
