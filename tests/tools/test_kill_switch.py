"""The kill switch: a stopped tool or server rejects calls from the next one on."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime

import httpx2
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rookery.access.audit_log import AuditLog
from rookery.access.models import Actor
from rookery.kernel.clock import utc_now
from rookery.kernel.config import Settings
from rookery.kernel.db import Database
from rookery.tools.errors import ToolDisabled
from rookery.tools.models import ALL_WORKSPACES, ToolStop
from rookery.tools.servers.kill_switch import KillSwitch
from tests.conftest import OPERATOR, Caller, Instance, eventually, run_instance
from tests.tools.makers import make_caller, make_odd_entry

AT = datetime(2026, 11, 21, tzinfo=UTC)


def make_stop(workspace_id: int, server_id: str = "", tool: str = "", reason: str = "") -> ToolStop:
    """Make a stop of a tool, a server or a workspace."""
    return ToolStop(workspace_id=workspace_id, server_id=server_id, tool=tool, reason=reason, stopped_at=AT)


async def call(caller: Caller, tool: str = "search") -> httpx2.Response:
    """Call a tool of the built-in server."""
    return await caller.post("/api/v1/mcp/tools/call", {"server": "brain", "tool": tool, "arguments": {"query": "x"}})


@pytest.fixture
async def other(instance: Instance, settings: Settings) -> AsyncIterator[Instance]:
    """Another server on the same store, as a second process is."""
    async with run_instance(settings) as second:
        yield second


@pytest.mark.parametrize("target", [("", ""), ("brain", ""), ("brain", "search")])
async def test_the_next_call_is_rejected_in_every_process(instance: Instance, other: Instance, target: tuple[str, str]) -> None:
    """A stop of a tool, a server or a workspace applies at once in every process."""
    callers = [instance.admin, other.caller(instance.admin.key), await instance.api_key(environment="test")]
    kill_switch = instance.rookery.tools.kill_switch
    for _ in range(2):
        assert [(await call(caller)).status_code for caller in callers] == [200, 200, 200]
        await kill_switch.stop(make_stop(instance.workspace_id, *target, reason="it deletes things"), actor=OPERATOR)
        responses = [await call(caller) for caller in callers]
        assert [(response.status_code, response.json()["error"]) for response in responses] == [(403, "disabled")] * 3
        assert all("it deletes things" in response.json()["message"] for response in responses)
        assert await kill_switch.start(make_stop(instance.workspace_id, *target), actor=OPERATOR)

    assert not await kill_switch.start(make_stop(instance.workspace_id, *target), actor=OPERATOR)


async def test_a_stop_affects_nothing_else(instance: Instance) -> None:
    """Other tools, servers and workspaces keep working."""
    stranger = await instance.api_key(workspace_id=await instance.workspace("other"))
    kill_switch = instance.rookery.tools.kill_switch

    await kill_switch.stop(make_stop(instance.workspace_id, "brain", "recall"), actor=OPERATOR)
    assert [(await call(instance.admin)).status_code, (await call(instance.admin, "recall")).status_code] == [200, 403]
    await kill_switch.stop(make_stop(instance.workspace_id), actor=OPERATOR)
    assert [(await call(caller)).status_code for caller in (instance.admin, stranger)] == [403, 200]
    await kill_switch.stop(make_stop(ALL_WORKSPACES, "brain"), actor=OPERATOR)
    assert (await call(stranger)).status_code == 403


async def test_a_stop_outlives_the_process(settings: Settings) -> None:
    """A stopped tool or server stays stopped until it is started again."""
    async with run_instance(settings) as instance:
        key, workspace_id = instance.admin.key, instance.workspace_id
        await instance.rookery.tools.kill_switch.stop(make_stop(workspace_id), actor=OPERATOR)
    async with run_instance(settings) as instance:
        assert (await call(instance.caller(key))).status_code == 403
        assert [stop.workspace_id for stop in await instance.rookery.tools.kill_switch.list_stops()] == [workspace_id]


async def test_resources_and_prompts_of_a_stopped_server_are_rejected(instance: Instance) -> None:
    """A stop covers the whole server; its lists stay readable."""
    entries = {"mcpServers": {"odd": make_odd_entry()}}
    instance.rookery.settings.servers_file.write_text(json.dumps(entries), encoding="utf-8")

    async def read() -> tuple[int, object]:
        response = await instance.admin.get("/api/v1/mcp/resources/odd://memo/insights")
        return response.status_code, response.json().get("error")

    async def is_read() -> bool:
        return (await read())[0] == 200

    await eventually(is_read)
    await instance.rookery.tools.kill_switch.stop(make_stop(instance.workspace_id, "odd"), actor=OPERATOR)

    resources = (await instance.admin.get("/api/v1/mcp/servers/odd/resources")).json()
    prompt = await instance.admin.post("/api/v1/mcp/servers/odd/prompts/greet", {"arguments": {"name": "Ann"}})
    assert resources["count"] > 0
    assert await read() == (403, "disabled")
    assert (prompt.status_code, prompt.json()["error"]) == (403, "disabled")


async def test_stopping_and_starting_are_in_the_audit_log(instance: Instance) -> None:
    """The entry has who stopped what, and why."""
    await instance.rookery.tools.kill_switch.stop(
        make_stop(instance.workspace_id, "brain", "search", "why not"), actor=Actor(kind="operator", name="ann")
    )
    await instance.rookery.tools.kill_switch.start(make_stop(instance.workspace_id, "brain", "search"), actor=OPERATOR)

    started, stopped = (await instance.admin.get("/api/v1/audit?per_page=2")).json()["data"]
    assert (started["action"], stopped["action"]) == ("tools.started", "tools.stopped")
    assert (stopped["actor"]["name"], stopped["subject"]["id"], stopped["after"]["reason"]) == ("ann", "brain/search", "why not")


workspaces, servers, tools = st.sampled_from([1, 2]), st.sampled_from(["a", "b"]), st.sampled_from(["x", "y"])
targets = st.tuples(st.sampled_from([ALL_WORKSPACES, 1, 2]), st.just(""), st.just("")) | st.tuples(
    st.sampled_from([ALL_WORKSPACES, 1, 2]), servers, st.sampled_from(["", "x", "y"])
)
steps = st.lists(st.tuples(st.booleans(), targets), max_size=8)


@given(steps)
async def test_a_call_is_rejected_exactly_while_its_tool_server_or_workspace_is_stopped(
    database: Database, steps: Sequence[tuple[bool, tuple[int, str, str]]]
) -> None:
    """Checked by a second process after any sequence of stops and starts."""
    kill_switch, second_process = (KillSwitch(database, AuditLog(database, utc_now), utc_now) for _ in range(2))
    for stop in await kill_switch.list_stops():
        await kill_switch.start(stop, actor=OPERATOR)
    stopped = set[tuple[int, str, str]]()
    for is_stop, target in steps:
        if is_stop:
            await kill_switch.stop(make_stop(*target), actor=OPERATOR)
            stopped.add(target)
        else:
            assert await kill_switch.start(make_stop(*target), actor=OPERATOR) == (target in stopped)
            stopped.discard(target)
        for workspace_id in (1, 2):
            for server in ("a", "b"):
                for tool in ("x", "y"):
                    parts = {
                        (scope, *names) for scope in (ALL_WORKSPACES, workspace_id) for names in (("", ""), (server, ""), (server, tool))
                    }
                    assert await _is_rejected(second_process, workspace_id, server, tool) == bool(parts & stopped)


async def _is_rejected(kill_switch: KillSwitch, workspace_id: int, server: str, tool: str) -> bool:
    try:
        await kill_switch.require_enabled(make_caller(workspace_id=workspace_id, public_workspace_id=workspace_id), server, tool)
    except ToolDisabled:
        return True
    return False
