"""The catalogue: stored snapshots, their refresh, and the watched servers file."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path

import pytest

from rookery.access.models import Caller
from rookery.kernel.clock import utc_now
from rookery.kernel.db import Database
from rookery.kernel.errors import NotFound
from rookery.tools.errors import PromptFailed, PromptNotFound, ResourceFailed, ServerUnavailable
from rookery.tools.models import MAX_FEATURES_PER_KIND, CallRecord, FeatureSnapshot, HealthStatus, ServerFeatures
from rookery.tools.store import calls as stored_calls
from rookery.tools.store import catalogue as store
from rookery.tools.supervision.upstream_session import SupervisionTimeouts
from tests.conftest import eventually
from tests.stopwatch import Stopwatch
from tests.tools.conftest import Start, write
from tests.tools.makers import Tools, list_children, make_caller, make_odd_entry

CALLER = make_caller()
SHARED_RESOURCES = {"Insights", "Its own scheme", "A file", "A book", "Listed, but broken"}
"""The names of the resources that odd.py lists at its start."""


def list_server_ids(tools: Tools) -> list[str]:
    """Return the ids of all listed servers."""
    return [server.id for server in tools.catalogue.list_servers(CALLER)]


def list_tool_names(tools: Tools, server_id: str) -> set[str]:
    """Return the names of the listed tools of a server."""
    return {tool.name for tool in tools.catalogue.list_tools(CALLER, tools.catalogue.get_server(CALLER, server_id))}


async def wait_listed(tools: Tools, server_id: str = "odd") -> None:
    """Wait until a server was listed."""
    await tools.catalogue.wait_listed(tools.catalogue.get_server(CALLER, server_id))


async def test_every_server_is_listed_once_at_the_start_and_a_lazy_one_is_closed_again(start: Start) -> None:
    """Every server is listed once at the start; lazy ones are closed afterwards."""
    before = {child.pid for child in list_children()}
    tools = await start({"odd": make_odd_entry()})

    await eventually(lambda: "echo" in list_tool_names(tools, "odd"))
    await eventually(lambda: {child.pid for child in list_children()} <= before)
    odd = tools.catalogue.get_server(CALLER, "odd")
    assert tools.sessions.get_health_state(odd).health is HealthStatus.ONLINE


async def test_an_eager_server_stays_open_and_serves_its_first_caller(start: Start) -> None:
    """An eager server stays open and serves its first caller."""
    tools = await start({"odd": make_odd_entry(lifecycle="eager")})
    await wait_listed(tools)
    (session,) = tools.sessions.list_sessions("odd")

    outcome = await tools.runner.call(CALLER, "odd", "echo", {"text": "hi"})

    assert outcome.error is None
    assert tools.sessions.list_sessions("odd") == [session]


async def test_a_stored_list_is_served_while_the_server_is_down_and_after_a_restart(start: Start, file: Path) -> None:
    """Lists come from the store and never wait."""
    first = await start({"odd": make_odd_entry()})
    await wait_listed(first)
    await eventually(lambda: first.db.read(lambda tx: store.find_snapshot(tx, "odd")))
    await first.aclose()

    restarted = await start({"odd": make_odd_entry()})

    with Stopwatch() as watch:
        assert "echo" in list_tool_names(restarted, "odd")
        await wait_listed(restarted)
    assert watch.reference_s < 0.1


async def test_a_restart_lists_servers_again_after_its_start(start: Start) -> None:
    """The processes of tool servers do not delay the first requests."""
    first = await start({"odd": make_odd_entry()})
    await wait_listed(first)
    await eventually(lambda: first.db.read(lambda tx: store.find_snapshot(tx, "odd")))
    await first.aclose()

    restarted = await start({"odd": make_odd_entry()})

    server = restarted.catalogue.get_server(CALLER, "odd")
    stored_at = first.catalogue.seen_at(server)
    assert (restarted.catalogue.seen_at(server), restarted.sessions.list_sessions("odd")) == (stored_at, [])
    await eventually(lambda: restarted.catalogue.seen_at(server) != stored_at)
    assert "echo" in list_tool_names(restarted, "odd")


async def test_an_eager_server_is_opened_by_a_restart(start: Start) -> None:
    """`eager` opens the session at the start, also if the list is stored."""
    entry = make_odd_entry(lifecycle="eager")
    first = await start({"odd": entry})
    await wait_listed(first)
    await eventually(lambda: first.db.read(lambda tx: store.find_snapshot(tx, "odd")))
    await first.aclose()

    restarted = await start({"odd": entry})

    assert restarted.catalogue.refresh(restarted.catalogue.get_server(CALLER, "odd")) is not None
    await eventually(lambda: [session for session in restarted.sessions.list_sessions("odd") if session.is_open])


async def test_the_first_list_of_a_server_waits_a_limited_time_for_it(start: Start) -> None:
    """The limit is 5 seconds; here it is 0.2."""
    tools = await start({"odd": make_odd_entry(), "dead": make_odd_entry("--hang")}, first_list_timeout_s=0.2)

    with Stopwatch() as watch:
        await wait_listed(tools, "dead")

    assert watch.elapsed_s > 0.15
    assert watch.reference_s < 2
    assert list_tool_names(tools, "dead") == set()


async def test_an_edit_of_the_file_applies_at_once_and_only_to_changed_entries(start: Start, file: Path) -> None:
    """An edit of the servers file applies without a restart, to the changed entries only."""
    tools = await start({"odd": make_odd_entry(), "old": make_odd_entry()})
    assert (await tools.runner.call(CALLER, "odd", "count", {})).error is None

    write(file, odd=make_odd_entry(), new=make_odd_entry(tagline="New here"))

    await eventually(lambda: list_server_ids(tools) == ["odd", "new"])
    await eventually(lambda: "echo" in list_tool_names(tools, "new"))
    outcome = await tools.runner.call(CALLER, "odd", "count", {})
    assert b'"2"' in (outcome.result or b"")
    assert tools.sessions.list_sessions("old") == [] or all(session.is_stopping for session in tools.sessions.list_sessions("old"))


async def test_a_schema_past_64_bits_is_stored_and_returned_unchanged(start: Start, file: Path) -> None:
    """Schemas pass through unchanged: the catalogue is stored."""
    first = await start({"odd": make_odd_entry()})
    await eventually(lambda: "vast" in list_tool_names(first, "odd"))
    await eventually(lambda: first.db.read(store.list_snapshots))
    await first.aclose()
    write(file, odd=make_odd_entry())
    second = await start()

    tool = second.catalogue.find_tool(second.catalogue.get_server(CALLER, "odd"), "vast")

    assert tool is not None
    assert tool.definition["inputSchema"] == {"type": "object", "maxProperties": 10**30}


async def test_a_server_is_online_again_after_its_next_successful_list(start: Start) -> None:
    """Health is the current state of a server."""
    tools = await start({"odd": make_odd_entry()})
    server = tools.catalogue.get_server(CALLER, "odd")
    await tools.runner.call(CALLER, "odd", "pid", {})
    tools.sessions.record_health(server, HealthStatus.DEGRADED, "listing failed")

    await tools.runner.call(CALLER, "odd", "grow", {})

    await eventually(lambda: tools.sessions.get_health_state(server).health is HealthStatus.ONLINE)


async def test_the_stored_features_of_a_server_are_limited(start: Start) -> None:
    """A server may list any number of tools; only the first MAX_FEATURES_PER_KIND are stored and callable."""
    tools = await start({"odd": make_odd_entry("--many")})
    server = tools.catalogue.get_server(CALLER, "odd")
    await eventually(lambda: tools.catalogue.is_known(server))

    tools_listed = tools.catalogue.list_tools(CALLER, server)
    assert (len(tools_listed), tools_listed[0].name) == (MAX_FEATURES_PER_KIND, "echo")


async def test_a_changed_entry_restarts_its_server(start: Start, file: Path) -> None:
    """A changed entry restarts its server."""
    tools = await start({"odd": make_odd_entry()})
    assert (await tools.runner.call(CALLER, "odd", "count", {})).error is None

    write(file, odd=make_odd_entry(timeout_s=5))
    await eventually(lambda: tools.catalogue.get_server(CALLER, "odd").timeout_s == 5)

    outcome = await tools.runner.call(CALLER, "odd", "count", {})
    assert b'"1"' in (outcome.result or b"")


async def test_an_invalid_edit_keeps_the_old_entries_and_reports_why(start: Start, file: Path) -> None:
    """An invalid edit keeps the old entries and reports the reason."""
    tools = await start({"odd": make_odd_entry()})

    file.write_text('{"mcpServers": {')
    await eventually(lambda: tools.catalogue.file_state.error)

    assert list_server_ids(tools) == ["odd"]
    assert "servers.json is not valid JSON" in str(tools.catalogue.file_state.error)
    write(file, odd=make_odd_entry(), more=make_odd_entry())
    await eventually(lambda: list_server_ids(tools) == ["odd", "more"])
    assert tools.catalogue.file_state.error is None


async def test_a_servers_file_may_be_created_and_deleted_at_run_time(start: Start, file: Path) -> None:
    """The servers file may be missing."""
    tools = await start()
    assert list_server_ids(tools) == []

    write(file, odd=make_odd_entry())
    await eventually(lambda: list_server_ids(tools) == ["odd"])
    file.unlink()
    await eventually(lambda: list_server_ids(tools) == [])


async def test_a_server_with_a_new_target_does_not_inherit_the_old_list(start: Start, file: Path) -> None:
    """A snapshot belongs to the target that it was taken of."""
    tools = await start({"odd": make_odd_entry()})
    await wait_listed(tools)

    write(file, odd={"command": "sleep", "args": ["60"]})
    await eventually(lambda: list_tool_names(tools, "odd") == set())


async def test_the_health_of_a_broken_server_includes_the_reason(start: Start) -> None:
    """The health of a broken server includes the reason."""
    tools = await start({"odd": make_odd_entry("--exit"), "unset": {"command": "x", "args": ["${NOT_SET}"]}})
    broken = tools.catalogue.get_server(CALLER, "odd")

    await eventually(lambda: tools.sessions.get_health_state(broken).health is HealthStatus.OFFLINE)

    assert "cannot find my configuration" in tools.sessions.get_health_state(broken).last_error
    unset = tools.sessions.get_health_state(tools.catalogue.get_server(CALLER, "unset"))
    assert (unset.health, unset.last_error) == (HealthStatus.OFFLINE, "The environment variable NOT_SET is not set.")


# Resources and prompts.


@pytest.mark.parametrize(
    ("uri", "upstream"),
    [
        ("odd://memo/insights", "memo://insights"),
        ("odd://own/thing", "odd://own/thing"),
        ("odd://file//a%20b.txt", "file:///a%20b.txt"),
        ("odd://file//a b.txt", "file:///a%20b.txt"),
        ("odd://urn:isbn:9780131103627", "urn:isbn:9780131103627"),
        ("odd://demo/resource/42", "demo://resource/42"),
    ],
)
async def test_a_resource_is_read_by_its_gateway_uri(start: Start, uri: str, upstream: str) -> None:
    """Cases: listed, of the server's own scheme, with escapes, and matched only by a template."""
    tools = await start({"odd": make_odd_entry()})

    _, content = await tools.resources.read(CALLER, uri)

    assert f"content of {upstream}" in str(content)
    assert "odd://" in str(content["contents"])


async def test_failures_to_read_a_resource_have_distinct_errors(start: Start) -> None:
    """Unknown 404; upstream failure 500 resource_error, server_unavailable."""
    tools = await start({"odd": make_odd_entry(), "gone": {"command": "no-such-program"}})

    with pytest.raises(NotFound):
        await tools.resources.read(CALLER, "odd://memo/nothing")
    with pytest.raises(NotFound):
        await tools.resources.read(CALLER, "even://memo/insights")
    with pytest.raises(ResourceFailed, match="on fire"):
        await tools.resources.read(CALLER, "odd://demo/broken")
    with pytest.raises(ServerUnavailable, match="no-such-program"):
        await tools.resources.read(CALLER, "gone://memo/insights")


async def test_resource_names_of_one_workspace_are_hidden_from_others(start: Start) -> None:
    """Each workspace has its own session and list; without a session it sees the shared list."""
    tools = await start({"odd": make_odd_entry()})
    await wait_listed(tools)
    own, other = CALLER, make_caller(workspace_id=2, public_workspace_id=2, key_id="key-2")
    odd = tools.catalogue.get_server(CALLER, "odd")

    def titles(caller: Caller) -> set[object]:
        return {resource["name"] for resource in tools.resources.list_resources(odd, caller)} - SHARED_RESOURCES

    for caller, title in ((own, "merger"), (other, "lawsuit")):
        assert (await tools.runner.call(caller, "odd", "jot", {"title": title})).code is None
    await eventually(lambda: (titles(own), titles(other)) == ({"merger"}, {"lawsuit"}))
    await eventually(lambda: tools.db.read(lambda tx: store.find_snapshot(tx, "odd")))

    assert titles(make_caller(workspace_id=3, public_workspace_id=3)) == set()
    await tools.aclose()
    restarted = await start()
    assert {resource["name"] for resource in restarted.resources.list_resources(odd, own)} == SHARED_RESOURCES


async def test_a_workspace_lists_resources_by_its_own_session(start: Start) -> None:
    """Another workspace listed first; the next workspace gets its own list instead of an empty one."""
    tools = await start({"odd": make_odd_entry()})
    odd = tools.catalogue.get_server(CALLER, "odd")
    assert (await tools.runner.call(CALLER, "odd", "jot", {"title": "merger"})).code is None
    other = make_caller(workspace_id=2, public_workspace_id=2, key_id="key-2")

    await tools.catalogue.wait_listed(odd, other)

    assert {resource["name"] for resource in tools.resources.list_resources(odd, other)} == SHARED_RESOURCES


async def test_a_prompt_is_filled_in(start: Start) -> None:
    """A prompt is returned with its arguments filled in."""
    tools = await start({"odd": make_odd_entry()})
    odd = tools.catalogue.get_server(CALLER, "odd")

    assert "Hello you" in str(await tools.resources.get_prompt(CALLER, odd, "greet", {"who": "you"}))
    with pytest.raises(PromptNotFound):
        await tools.resources.get_prompt(CALLER, odd, "insult", {})
    with pytest.raises(PromptFailed, match="who is missing"):
        await tools.resources.get_prompt(CALLER, odd, "greet", {})


# Concurrency and shutdown.


async def test_closing_is_quick_and_leaves_no_process(start: Start) -> None:
    """Closing takes under 5 s with connecting, unresponsive and idle servers."""
    servers = {
        "dead": make_odd_entry("--hang", "--deaf"),
        "deaf": make_odd_entry("--deaf", "--grandchild", lifecycle="eager"),
        "odd": make_odd_entry(lifecycle="eager"),
    }
    before = {child.pid for child in list_children()}
    tools = await start(servers, timing=SupervisionTimeouts(connect_timeout_s=60))
    await wait_listed(tools)
    await wait_listed(tools, "deaf")

    with Stopwatch() as watch:
        await tools.aclose()

    assert watch.reference_s < 5
    assert {child.pid for child in list_children()} <= before


async def test_many_callers_of_many_servers_get_their_own_results(start: Start) -> None:
    """Concurrent callers of several servers each receive their own result."""
    tools = await start({f"odd-{n}": make_odd_entry() for n in range(3)})

    async def gets_own_result(n: int) -> bool:
        outcome = await tools.runner.call(make_caller(workspace_id=n % 2), f"odd-{n % 3}", "echo", {"text": str(n)})
        return f'"text":"{n}"'.encode() in (outcome.result or b"")

    assert all(await asyncio.gather(*[gets_own_result(n) for n in range(60)]))


async def test_rows_and_snapshots_are_read_as_they_were_written(database: Database) -> None:
    """Both dialects return the stored values unchanged."""
    at = utc_now()
    features = ServerFeatures(
        tools=({"name": "é", "inputSchema": {"default": None}},), required_scopes={"é": "brain:read"}, instructions="Well"
    )
    snapshot = FeatureSnapshot(server_key="s", fingerprint="f", features=features, seen_at=at)
    row = CallRecord(
        id="1",
        workspace_id=1,
        server_id="s",
        tool="t",
        key_id="k",
        key_kind="agent",
        agent_id="a",
        session_id=None,
        success=False,
        code="tool_timeout",
        duration_ms=1.5,
        arguments_bytes=2,
        result_bytes=0,
        request_id="r",
        called_at=at,
        cached=True,
        error="It took too long.",
        arguments='{"a": "é"}',
    )

    await database.write(
        lambda tx: store.save_snapshot(tx, FeatureSnapshot(server_key="s", fingerprint="old", features=ServerFeatures(), seen_at=at))
    )
    await database.write(lambda tx: store.save_snapshot(tx, snapshot))
    await database.write(lambda tx: stored_calls.CALLS.add(tx, row, row))

    assert await database.read(store.list_snapshots) == [snapshot]
    assert await database.read(lambda tx: stored_calls.CALLS.find_all(tx, 1, "-called_at", "-id")) == [row]
    assert await database.read(lambda tx: stored_calls.CALLS.find_all(tx, 2, "-called_at", "-id")) == []


async def test_a_server_that_floods_change_notifications_is_listed_once_a_second(start: Start) -> None:
    """A flood of `list_changed` causes neither a flood of lists nor unbounded memory."""
    tools = await start({"odd": make_odd_entry()})
    await wait_listed(tools)

    async def count_lists() -> int:
        outcome = await tools.runner.call(CALLER, "odd", "lists", {})
        return int(json.loads(outcome.result or b"")["content"][0]["text"])

    before, started = await count_lists(), time.monotonic()
    await tools.runner.call(CALLER, "odd", "flood", {"method": "tools/list_changed", "count": 20_000})

    async def was_listed() -> bool:
        return await count_lists() > before

    await eventually(was_listed)
    during, took_s = await count_lists(), time.monotonic() - started

    assert during <= before + 2 + took_s
