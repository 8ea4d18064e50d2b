"""The brakes (D-33): what an operator stops is refused from the next call on."""

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


def what(workspace_id: int, server_id: str = "", tool: str = "", reason: str = "") -> ToolStop:
    """Name what to stop."""
    return ToolStop(workspace_id=workspace_id, server_id=server_id, tool=tool, reason=reason, stopped_at=AT)


async def call(caller: Caller, tool: str = "search") -> httpx2.Response:
    """Call a tool of the built-in server."""
    return await caller.post("/api/v1/mcp/tools/call", {"server": "brain", "tool": tool, "arguments": {"query": "x"}})


@pytest.fixture
async def other(instance: Instance, settings: Settings) -> AsyncIterator[Instance]:
    """Another server on the same store, as a second process is."""
    async with run_instance(settings) as opened:
        yield opened


@pytest.mark.parametrize("target", [("", ""), ("brain", ""), ("brain", "search")])
async def test_the_very_next_call_is_refused_in_every_process(instance: Instance, other: Instance, target: tuple[str, str]) -> None:
    """D-33: a tool, a server, or all of a workspace; whichever process is asked, without a wait."""
    callers = [instance.admin, other.caller(instance.admin.key), await instance.api_key(environment="test")]
    brakes = instance.rookery.tools.kill_switch
    for _ in range(2):
        assert [(await call(caller)).status_code for caller in callers] == [200, 200, 200]
        await brakes.stop(what(instance.workspace_id, *target, reason="it deletes things"), actor=OPERATOR)
        refused = [await call(caller) for caller in callers]
        assert [(answer.status_code, answer.json()["error"]) for answer in refused] == [(403, "disabled")] * 3
        assert all("it deletes things" in answer.json()["message"] for answer in refused)
        assert await brakes.start(what(instance.workspace_id, *target), actor=OPERATOR)

    assert not await brakes.start(what(instance.workspace_id, *target), actor=OPERATOR)


async def test_others_go_on(instance: Instance) -> None:
    """D-33: another tool, another server, another workspace."""
    stranger = await instance.api_key(workspace_id=await instance.workspace("other"))
    brakes = instance.rookery.tools.kill_switch

    await brakes.stop(what(instance.workspace_id, "brain", "recall"), actor=OPERATOR)
    assert [(await call(instance.admin)).status_code, (await call(instance.admin, "recall")).status_code] == [200, 403]
    await brakes.stop(what(instance.workspace_id), actor=OPERATOR)
    assert [(await call(caller)).status_code for caller in (instance.admin, stranger)] == [403, 200]
    await brakes.stop(what(ALL_WORKSPACES, "brain"), actor=OPERATOR)
    assert (await call(stranger)).status_code == 403


async def test_a_stop_outlives_the_process(settings: Settings) -> None:
    """D-33: a stopped tool or server stays stopped until it is started again."""
    async with run_instance(settings) as instance:
        key, workspace_id = instance.admin.key, instance.workspace_id
        await instance.rookery.tools.kill_switch.stop(what(workspace_id), actor=OPERATOR)
    async with run_instance(settings) as instance:
        assert (await call(instance.caller(key))).status_code == 403
        assert [each.workspace_id for each in await instance.rookery.tools.kill_switch.list_stops()] == [workspace_id]


async def test_resources_and_prompts_of_a_stopped_server_are_refused_too(instance: Instance) -> None:
    """D-33: a server is stopped whole; its lists stay, so that one can see what is stopped."""
    entries = {"mcpServers": {"odd": make_odd_entry()}}
    instance.rookery.settings.servers_file.write_text(json.dumps(entries), encoding="utf-8")

    async def read() -> tuple[int, object]:
        answer = await instance.admin.get("/api/v1/mcp/resources/odd://memo/insights")
        return answer.status_code, answer.json().get("error")

    async def is_read() -> bool:
        return (await read())[0] == 200

    await eventually(is_read)
    await instance.rookery.tools.kill_switch.stop(what(instance.workspace_id, "odd"), actor=OPERATOR)

    listed = (await instance.admin.get("/api/v1/mcp/servers/odd/resources")).json()
    prompt = await instance.admin.post("/api/v1/mcp/servers/odd/prompts/greet", {"arguments": {"name": "Ann"}})
    assert listed["count"] > 0
    assert await read() == (403, "disabled")
    assert (prompt.status_code, prompt.json()["error"]) == (403, "disabled")


async def test_stopping_and_starting_are_in_the_audit_log(instance: Instance) -> None:
    """D-29: who stopped what, and why."""
    await instance.rookery.tools.kill_switch.stop(
        what(instance.workspace_id, "brain", "search", "why not"), actor=Actor(kind="operator", name="ann")
    )
    await instance.rookery.tools.kill_switch.start(what(instance.workspace_id, "brain", "search"), actor=OPERATOR)

    started, stopped = (await instance.admin.get("/api/v1/audit?per_page=2")).json()["data"]
    assert (started["action"], stopped["action"]) == ("tools.started", "tools.stopped")
    assert (stopped["actor"]["name"], stopped["subject"]["id"], stopped["after"]["reason"]) == ("ann", "brain/search", "why not")


workspaces, servers, tools = st.sampled_from([1, 2]), st.sampled_from(["a", "b"]), st.sampled_from(["x", "y"])
targets = st.tuples(st.sampled_from([ALL_WORKSPACES, 1, 2]), st.just(""), st.just("")) | st.tuples(
    st.sampled_from([ALL_WORKSPACES, 1, 2]), servers, st.sampled_from(["", "x", "y"])
)
steps = st.lists(st.tuples(st.booleans(), targets), max_size=8)


@given(steps)
async def test_a_call_is_refused_exactly_while_something_that_it_is_part_of_is_stopped(
    database: Database, steps: Sequence[tuple[bool, tuple[int, str, str]]]
) -> None:
    """D-33: whatever is stopped and started, in whatever order, told by a second process."""
    brakes, elsewhere = (KillSwitch(database, AuditLog(database, utc_now), utc_now) for _ in range(2))
    for left in await brakes.list_stops():
        await brakes.start(left, actor=OPERATOR)
    stopped = set[tuple[int, str, str]]()
    for is_stop, target in steps:
        if is_stop:
            await brakes.stop(what(*target), actor=OPERATOR)
            stopped.add(target)
        else:
            assert await brakes.start(what(*target), actor=OPERATOR) == (target in stopped)
            stopped.discard(target)
        for workspace_id in (1, 2):
            for server in ("a", "b"):
                for tool in ("x", "y"):
                    parts = {(at, *part) for at in (ALL_WORKSPACES, workspace_id) for part in (("", ""), (server, ""), (server, tool))}
                    assert await _is_refused(elsewhere, workspace_id, server, tool) == bool(parts & stopped)


async def _is_refused(brakes: KillSwitch, workspace_id: int, server: str, tool: str) -> bool:
    try:
        await brakes.require_enabled(make_caller(workspace_id=workspace_id, public_workspace_id=workspace_id), server, tool)
    except ToolDisabled:
        return True
    return False
