"""Lists that belong to the holder of a session, incomplete lists, and servers that announce changes all the time."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from rookery.access.models import Caller
from rookery.tools.call_options import CallOptions
from rookery.tools.errors import ToolNotFound
from rookery.tools.list_refresher import MAX_INTERVAL_S, ChangePacer
from rookery.tools.models import HealthStatus, Server, ServerFeatures, SessionIsolation
from rookery.tools.ports import RequestOptions
from rookery.tools.servers.server_check import ServerChecker
from tests.conftest import eventually
from tests.tools.conftest import Start, write
from tests.tools.makers import CONNECTORS, Tools, make_caller, make_http_server, make_odd_entry
from tests.tools.refusing_server import RefusingServer, run_refusing_server

ANNA, BEN = make_caller(key_id="anna"), make_caller(key_id="ben")
OTHER_WORKSPACE = make_caller(key_id="carl", workspace_id=2, public_workspace_id=2)
LOGIN = {"x-upstream-authorization": "Bearer anna"}
FORWARDED = ["X-Upstream-Authorization as Authorization"]
OPENING = ["server/discover", "initialize", "notifications/initialized", "tools/list", "slow", "quick", "write"]
"""The methods and tools of `refusing.py` that need a login, where every request does."""


def list_names(tools: Tools, server: Server, caller: Caller, session_id: str | None = None) -> set[str]:
    """Return the names of the tools and prompts that a caller sees."""
    listed = {tool.name for tool in tools.catalogue.list_tools(caller, server, session_id)}
    return listed | {str(prompt["name"]) for prompt in tools.catalogue.get_features(server, caller, session_id).prompts}


@pytest.mark.parametrize(
    ("isolation", "other", "session_ids"),
    [
        ("per_workspace", OTHER_WORKSPACE, (None, None)),
        ("per_key", BEN, (None, None)),
        ("per_session", ANNA, ("one", "two")),
        ("per_session", BEN, ("one", "one")),
    ],
)
async def test_what_one_holder_enabled_is_its_own(
    start: Start, isolation: str, other: Caller, session_ids: tuple[str | None, str | None]
) -> None:
    """Tools and prompts that a call enabled are listed for the holder of the session, whatever others do."""
    tools = await start({"odd": make_odd_entry(isolation=isolation)})
    odd = tools.catalogue.get_server(ANNA, "odd")
    own, foreign = (CallOptions(session_id=session_id) for session_id in session_ids)

    assert (await tools.runner.call(ANNA, "odd", "grow", {}, options=own)).error is None
    await eventually(lambda: {"late", "grown"} <= list_names(tools, odd, ANNA, own.session_id))
    assert not {"late", "grown"} & list_names(tools, odd, other, foreign.session_id)
    with pytest.raises(ToolNotFound):
        await tools.runner.call(other, "odd", "late", {}, options=foreign)

    assert {"late", "grown"} <= list_names(tools, odd, ANNA, own.session_id)
    assert (await tools.runner.call(ANNA, "odd", "late", {}, options=own)).error is None
    assert not {"late", "grown"} & list_names(tools, odd, other, foreign.session_id)


async def test_a_workspace_with_many_holders_takes_no_list_from_another(start: Start) -> None:
    """At the limit, the workspace with the most lists loses its oldest, which is listed again when its holder needs it."""
    tools = await start({"odd": make_odd_entry(isolation="per_session")}, max_own_lists=3)
    odd = tools.catalogue.get_server(ANNA, "odd")
    holders = [(OTHER_WORKSPACE, "their own"), (ANNA, "one"), (BEN, "one"), (ANNA, "two"), (BEN, "two")]

    for caller, session_id in holders:
        assert (await tools.runner.call(caller, "odd", "grow", {}, options=CallOptions(session_id=session_id))).error is None
        await eventually(partial(has_late, tools, odd, caller, session_id))
    has_list = [has_late(tools, odd, *holder) for holder in holders]
    await tools.catalogue.wait_all_listed(ANNA, CallOptions(session_id="one"))
    has_list_again = [has_late(tools, odd, *holder) for holder in holders]

    assert has_list == [True, False, False, True, True]
    assert has_list_again == [True, True, False, False, True]
    assert not tools.catalogue.is_current(odd, BEN, "one")
    await tools.catalogue.wait_listed(odd, BEN, CallOptions(session_id="one"))
    assert has_late(tools, odd, BEN, "one")
    assert (await tools.runner.call(ANNA, "odd", "late", {}, options=CallOptions(session_id="two"))).error is None
    assert has_late(tools, odd, OTHER_WORKSPACE, "their own")


def has_late(tools: Tools, server: Server, caller: Caller, session_id: str) -> bool:
    """Return whether a caller sees the tool that `grow` adds."""
    return "late" in list_names(tools, server, caller, session_id)


async def test_a_shared_session_has_one_list(start: Start) -> None:
    """With `shared`, what one caller changed is there for all."""
    tools = await start({"odd": make_odd_entry(isolation="shared")})
    odd = tools.catalogue.get_server(ANNA, "odd")

    assert (await tools.runner.call(ANNA, "odd", "grow", {})).error is None

    await eventually(lambda: "late" in list_names(tools, odd, OTHER_WORKSPACE))


async def test_a_tool_that_was_enabled_without_a_notification_can_be_called(start: Start) -> None:
    """An unlisted tool is looked for in the caller's own session, also right after a list."""
    tools = await start({"odd": make_odd_entry("--quiet", isolation="per_key")})

    assert (await tools.runner.call(ANNA, "odd", "grow", {})).error is None
    assert (await tools.runner.call(ANNA, "odd", "late", {})).error is None


@pytest.mark.parametrize(("flag", "kind"), [("--no-prompts", "prompts"), ("--no-tools", "tools")])
async def test_one_list_that_fails_hides_no_other(start: Start, flag: str, kind: str) -> None:
    """Real tool servers, 4: the lists that came are used, the server is degraded with the reason, and calls go through."""
    tools = await start({"odd": make_odd_entry(flag)})
    odd = tools.catalogue.get_server(ANNA, "odd")
    await eventually(lambda: tools.catalogue.is_known(odd))

    state = tools.sessions.get_health_state(odd)
    assert state.health is HealthStatus.DEGRADED
    assert state.last_error == f"Its {kind} could not be listed: the store of {kind} is down"
    assert tools.catalogue.get_features(odd).resources
    assert (await tools.runner.call(ANNA, "odd", "echo", {"text": "here"})).error is None


async def test_a_list_that_fails_later_keeps_its_items(start: Start, file: Path) -> None:
    """Real tool servers, 4: prompts that were listed before stay listed while their list fails."""
    tools = await start({"odd": make_odd_entry()})
    odd = tools.catalogue.get_server(ANNA, "odd")
    await eventually(lambda: "greet" in list_names(tools, odd, ANNA))

    write(file, odd=make_odd_entry("--no-prompts"))

    await eventually(lambda: tools.sessions.get_health_state(tools.catalogue.get_server(ANNA, "odd")).health is HealthStatus.DEGRADED)
    assert "greet" in list_names(tools, tools.catalogue.get_server(ANNA, "odd"), ANNA)


async def test_an_edited_entry_serves_its_old_list_until_the_new_one_is_there(start: Start, file: Path, tmp_path: Path) -> None:
    """Another argument or variable starts the server again, and nobody misses its tools meanwhile."""
    tools = await start({"odd": make_odd_entry()})
    await eventually(lambda: "echo" in list_names(tools, tools.catalogue.get_server(ANNA, "odd"), ANNA))
    gate = tmp_path / "gate"

    write(file, odd=make_odd_entry("--task", env={"ODD_GATE": str(gate)}))
    await eventually(lambda: any(session.is_open for session in tools.sessions.list_sessions("odd")))
    edited = tools.catalogue.get_server(ANNA, "odd")
    assert "echo" in list_names(tools, edited, ANNA)
    gate.touch()

    await eventually(lambda: tools.catalogue.list_task_tool_names(ANNA, edited) == ["long"])


async def test_an_edited_entry_that_does_not_start_loses_its_list(start: Start, file: Path) -> None:
    """The old list ends with the failure of the new start."""
    tools = await start({"odd": make_odd_entry()})
    await eventually(lambda: "echo" in list_names(tools, tools.catalogue.get_server(ANNA, "odd"), ANNA))

    write(file, odd=make_odd_entry("--exit"))

    await eventually(lambda: not list_names(tools, tools.catalogue.get_server(ANNA, "odd"), ANNA))


async def test_a_caller_waits_for_all_servers_that_start(start: Start, tmp_path: Path) -> None:
    """Clients that list once see a server that is still starting; one that failed is not waited for."""
    gate = tmp_path / "gate"
    entries = {"slow": make_odd_entry(env={"ODD_GATE": str(gate)}), "dead": make_odd_entry("--exit")}
    tools = await start(entries)
    slow, dead = (tools.catalogue.get_server(ANNA, name) for name in entries)
    await eventually(lambda: tools.sessions.get_health_state(dead).health is HealthStatus.OFFLINE)
    await eventually(lambda: any(session.is_open for session in tools.sessions.list_sessions("slow")))

    assert tools.catalogue.list_starting(ANNA) == [slow]
    gate.touch()
    await tools.catalogue.wait_all_listed(ANNA, CallOptions())

    assert "echo" in list_names(tools, slow, ANNA)


@pytest.mark.parametrize("flags", [("--restless",), ("--restless", "--alternating")])
async def test_a_restless_server_is_closed_when_it_is_idle(start: Start, flags: tuple[str, ...]) -> None:
    """A list is no use of the server, so that `idle_s` holds, whatever it announces."""
    tools = await start({"odd": make_odd_entry(*flags, idle_s=1)})
    assert (await tools.runner.call(ANNA, "odd", "pid", {})).error is None

    await eventually(lambda: not tools.sessions.list_sessions("odd"))


def test_notifications_without_a_change_slow_the_next_list_down() -> None:
    """The interval doubles from 1 s to 5 minutes, and a change resets it."""
    pacer, now, intervals = ChangePacer(), 1000.0, list[float]()
    for _ in range(12):
        start = pacer.compute_start(now)
        intervals.append(start - now)
        pacer.record_start(start)
        pacer.record_result(start, has_changed=False)
        now = start

    assert intervals == [0, 2, 4, 8, 16, 32, 64, 128, 256, MAX_INTERVAL_S, MAX_INTERVAL_S, MAX_INTERVAL_S]
    pacer.record_result(now, has_changed=True)
    assert pacer.compute_start(now) == now + 1


def test_a_server_that_changes_for_ever_is_listed_ever_more_rarely() -> None:
    """After ten changes within a minute, changes slow the lists down too."""
    pacer, now, lists = ChangePacer(), 0.0, 0
    while now < 3600:
        now = pacer.compute_start(now)
        pacer.record_start(now)
        pacer.record_result(now, has_changed=True)
        lists += 1

    assert lists < 3600 / 4


@pytest.fixture
def upstream() -> Iterator[RefusingServer]:
    """A server that wants Anna's login with every request."""
    with run_refusing_server(tokens=["Bearer anna"], guarded=OPENING) as running:
        yield running


@pytest.mark.parametrize("path", ["/mcp", "/sse"])
@pytest.mark.parametrize("isolation", ["per_key", "per_session", "per_workspace", "shared"])
async def test_a_callers_login_opens_and_lists_its_session(start: Start, upstream: RefusingServer, path: str, isolation: str) -> None:
    """Without a caller nothing is wrong with such a server; the first caller with a login lists and calls it."""
    tools = await start({"it": upstream.make_entry(path, forward_headers=FORWARDED, isolation=isolation)})
    server = tools.catalogue.get_server(ANNA, "it")
    await eventually(lambda: tools.sessions.get_health_state(server).last_error)

    state = tools.sessions.get_health_state(server)
    assert state.health is HealthStatus.UNKNOWN
    assert "X-Upstream-Authorization" in state.last_error
    refused = await tools.runner.call(BEN, "it", "quick", {})
    assert "X-Upstream-Authorization" in str(refused.error)
    outcome = await tools.runner.call(ANNA, "it", "quick", {}, options=CallOptions(headers=LOGIN))
    assert (outcome.error, b"Bearer anna" in (outcome.result or b"")) == (None, True)
    await eventually(lambda: "quick" in list_names(tools, server, ANNA))
    assert tools.sessions.failure_counts["it"] == 0


async def test_a_list_with_the_callers_login_shows_the_tools(start: Start, upstream: RefusingServer) -> None:
    """`tools/list` of a client with the header lists the server with it, also if only lists need the login."""
    upstream.control(guarded=["tools/list"])
    tools = await start({"it": upstream.make_entry(forward_headers=FORWARDED, isolation="per_key")})
    server = tools.catalogue.get_server(ANNA, "it")
    await eventually(lambda: tools.sessions.get_health_state(server).last_error)
    assert tools.sessions.get_health_state(server).health is HealthStatus.UNKNOWN

    await tools.catalogue.wait_all_listed(ANNA, CallOptions(headers=LOGIN))

    assert "quick" in list_names(tools, server, ANNA)
    assert list_names(tools, server, BEN) == set()


async def test_one_callers_rejected_login_delays_no_other(start: Start, upstream: RefusingServer) -> None:
    """Twelve rejected attempts to open the session count nothing; the next caller with a login opens it."""
    tools = await start({"it": upstream.make_entry(forward_headers=FORWARDED, isolation="shared")})
    expired = CallOptions(headers={"x-upstream-authorization": "Bearer expired"})

    for _ in range(12):
        outcome = await tools.runner.call(BEN, "it", "quick", {}, options=expired)
        assert "rejected the login in X-Upstream-Authorization (401)" in str(outcome.error)

    assert (await tools.runner.call(ANNA, "it", "quick", {}, options=CallOptions(headers=LOGIN))).error is None
    assert tools.sessions.count_open_breakers("it") == 0


async def test_a_check_without_a_caller_is_no_failure_of_such_a_server(upstream: RefusingServer) -> None:
    """The check names the header; with the login of a caller it lists the tools, and stores them for nobody else."""
    stored: list[Server] = []

    async def store(server: Server, features: ServerFeatures) -> None:
        stored.append(server)

    checker = ServerChecker(CONNECTORS, on_features=store)
    server = make_http_server(f"{upstream.url}/mcp", forward_headers=tuple(FORWARDED), isolation=SessionIsolation.PER_KEY)

    without = await checker.check(server)
    rejected = await checker.check(server, opener=make_opener(server, "Bearer expired"))
    accepted = await checker.check(server, opener=make_opener(server, "Bearer anna"))

    assert without.error is None
    assert "X-Upstream-Authorization" in "".join(without.warnings)
    assert "rejected the login in X-Upstream-Authorization (401)" in str(rejected.error)
    assert "quick" in accepted.tool_names
    assert stored == []


def make_opener(server: Server, authorization: str) -> RequestOptions:
    """Return a caller with a login."""
    return CallOptions(headers={"x-upstream-authorization": authorization}).to_request_options(server, ANNA, on_progress=None)


async def test_an_entry_that_was_edited_while_rookery_was_stopped_shows_its_old_list(start: Start, file: Path, tmp_path: Path) -> None:
    """The stored list of the same program is shown until the new start has listed it; that of another program is not."""
    first = await start({"odd": make_odd_entry(), "other": make_odd_entry()})
    for name in ("odd", "other"):
        server = first.catalogue.get_server(ANNA, name)
        await eventually(lambda server=server: "echo" in list_names(first, server, ANNA))
    await first.aclose()
    gate = tmp_path / "gate"
    write(file, odd=make_odd_entry("--task", env={"ODD_GATE": str(gate)}), other={"command": "sleep", "args": ["60"]})

    again = await start()

    odd, other = (again.catalogue.get_server(ANNA, name) for name in ("odd", "other"))
    assert "echo" in list_names(again, odd, ANNA)
    assert list_names(again, other, ANNA) == set()
    gate.touch()
    await eventually(lambda: again.catalogue.list_task_tool_names(ANNA, odd) == ["long"])
