"""Webhook payloads equal the next GET, written in the transaction of the change."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from typing import cast

import pytest

from rookery.kernel.config import Settings
from rookery.memory.maintenance.reindexing import ReindexRequest
from rookery.wiring import build_platform
from tests.conftest import OPERATOR, Caller, FakeClock, Instance, eventually, run_instance
from tests.tools.makers import make_odd_entry
from tests.webhooks.event_recorder import record_events

Json = dict[str, object]

_MEMORIES = "/v1/brain/memories"
_AGENTS = "/api/agent"
_KEYS = "/api/v1/api-keys"

_INDEXING_FIELDS = {"indexed", "indexed_at", "state", "effective_confidence"}
"""Fields that change when the memory is indexed, or with time."""


@pytest.fixture
async def instance_with_tools(settings: Settings) -> AsyncIterator[Instance]:
    """A running server with tool servers that misbehave: one shared, and one with a process per workspace."""
    own = make_odd_entry(isolation="per_workspace")
    settings.servers_file.write_text(
        json.dumps({"mcpServers": {"odd": make_odd_entry(), "own": own, "theirs": make_odd_entry(workspaces=[999])}})
    )
    async with run_instance(settings) as instance:
        yield instance


async def test_memory_events_have_no_content_unless_requested(instance: Instance) -> None:
    """Stored, archived, restored, superseded and deleted; each equals the next GET."""
    plain, whole = (
        await record_events(instance.admin, "memory.*"),
        await record_events(instance.admin, "memory.stored", include_content=True),
    )
    other = await record_events(instance.admin, "plan.*", "tool.called")
    memory = await instance.admin.remember("Ships on Tuesday.", tags=["ship"], org="acme")
    public = await get(instance.admin, f"{_MEMORIES}/{memory['id']}")
    (stored_event,), (full_event,) = await plain.list_payloads("memory.stored"), await whole.list_payloads()

    assert (stored_event["type"], stored_event["workspace_id"]) == ("memory.stored", instance.workspace_id)
    assert str(stored_event["id"]).startswith("evt_")
    assert without(stored_event["data"], _INDEXING_FIELDS) == without(public, {*_INDEXING_FIELDS, "content", "metadata"})
    assert without(full_event["data"], _INDEXING_FIELDS) == without(public, _INDEXING_FIELDS)
    assert full_event["id"] == stored_event["id"]  # one event in two forms

    await send(instance.admin, "POST", f"{_MEMORIES}/{memory['id']}/archive")
    archived = await get(instance.admin, f"{_MEMORIES}/{memory['id']}")
    assert without(await plain.only_data("memory.archived"), {"effective_confidence"}) == without(
        archived, {"effective_confidence", "content", "metadata"}
    )
    await send(instance.admin, "POST", f"{_MEMORIES}/{memory['id']}/restore")
    restored = await get(instance.admin, f"{_MEMORIES}/{memory['id']}")
    assert without(await plain.only_data("memory.restored"), _INDEXING_FIELDS) == without(
        restored, {*_INDEXING_FIELDS, "content", "metadata"}
    )

    new = await instance.admin.remember("Ships on Wednesday.", supersedes_id=memory["id"])
    history = await get(instance.admin, f"{_MEMORIES}/{new['id']}/history")
    assert await plain.only_data("memory.superseded") == cast("list[Json]", history["data"])[0]
    unrelated = await instance.admin.remember("Nobody knows why.")
    assert (await instance.admin.send("DELETE", f"{_MEMORIES}/{unrelated['id']}")).status_code == 204
    deleted = await plain.only_data("memory.deleted")
    assert (deleted["id"], deleted["memory"], deleted["superseded_by"]) == (unrelated["id"], None, None)
    assert "Nobody knows why." not in json.dumps(await plain.list_payloads())
    assert await other.list_payloads() == []


async def test_a_deleted_memory_is_in_no_delivery_log(instance: Instance) -> None:
    """Deleting or replacing a memory removes it from stored events, also for endpoints without content."""
    whole = await record_events(instance.admin, "memory.*", include_content=True)
    old = await instance.admin.remember("The safe opens with 4711.", org="acme")
    await send(instance.admin, "POST", f"{_MEMORIES}/{old['id']}/archive")
    await send(instance.admin, "POST", f"{_MEMORIES}/{old['id']}/restore")
    plain = await record_events(instance.admin, "memory.stored")
    new = await instance.admin.remember("The safe opens with 4712.", supersedes_id=old["id"])
    remaining = await instance.admin.remember("The safe is green.")
    assert "with 4712." in json.dumps(await whole.list_payloads())
    assert "with 4711." not in json.dumps(await whole.list_payloads())

    assert (await instance.admin.send("DELETE", f"{_MEMORIES}/{new['id']}")).status_code == 204

    payloads = await whole.list_payloads()
    assert "safe opens" not in json.dumps(payloads)
    expected = [without(await get(instance.admin, f"{_MEMORIES}/{remaining['id']}"), _INDEXING_FIELDS)]
    assert [without(event["data"], _INDEXING_FIELDS) for event in payloads if "content" in cast("Json", event["data"])] == expected
    assert [cast("Json", event["data"])["id"] for event in await plain.list_payloads()] == [new["id"], remaining["id"]]


async def test_a_command_that_changes_memories_sends_events(instance: Instance) -> None:
    """Also beside a running server; a re-index sends each workspace an event about its own memories."""
    other = await instance.workspace("other")
    key = await instance.api_key(workspace_id=other)
    own, others = await record_events(instance.admin, "memory.reindexed"), await record_events(key, "*")
    for number in range(3):
        await instance.admin.remember(f"heron {number}", org="acme")
    await key.remember("one heron")

    async with build_platform(instance.rookery.settings).open_for_command() as command:
        report = await command.memory.reindexer.reindex(ReindexRequest())

    assert report.successes == 4
    data = await own.only_data("memory.reindexed")
    assert without(data, {"duration_s", "completed_at"}) == {"org": None, "project": None, "count": 3}
    assert (await others.only_data("memory.reindexed"))["count"] == 1


async def test_events_of_agent_work_equal_the_next_get(instance: Instance) -> None:
    """Events are built at the end of each request's transaction, after all consequences."""
    recorder = await record_events(instance.admin, "plan.*", "phase.*", "task.*", "session.*")
    agent = instance.admin
    body = {"title": "Ship it", "status": "active", "phases": [{"name": "work", "tasks": [{"name": "only"}]}]}
    plan = await send(agent, "POST", f"{_AGENTS}/plans", body)
    phase = cast("list[Json]", plan["phases"])[0]
    task = cast("list[Json]", phase["tasks"])[0]
    plan_path, task_path = f"{_AGENTS}/plans/{plan['slug']}", f"{_AGENTS}/tasks/{task['id']}"
    phase_path = f"{plan_path}/phases/{phase['id']}"

    assert await recorder.only_data("plan.created") == await get(agent, f"{plan_path}?include=none")
    session = cast("Json", (await send(agent, "POST", f"{_AGENTS}/sessions", {"agent_type": "coder", "plan": plan["slug"]}))["session"])
    session_path = f"{_AGENTS}/sessions/{session['id']}"
    assert await recorder.only_data("session.started") == await get(agent, session_path)
    claimed = await send(agent, "POST", f"{task_path}/claim", {"session_id": session["id"]})
    assert await recorder.only_data("task.claimed") == await get(agent, task_path)
    assert str(claimed["claim_token"]) not in json.dumps(await recorder.list_payloads())
    assert without(await recorder.only_data("phase.started"), {"tasks"}) == without(await get(agent, phase_path), {"tasks"})
    checkpoint = {"note": "halfway", "context": {"password": "hunter2-hunter2"}}
    await send(agent, "POST", f"{phase_path}/checkpoints", checkpoint)
    checkpoints = cast("list[Json]", (await recorder.only_data("phase.checkpoint"))["checkpoints"])
    stored = cast("list[Json]", (await get(agent, phase_path))["checkpoints"])
    assert checkpoints == [without(stored[0], {"context"})]
    await send(agent, "POST", f"{session_path}/events", {"message": "hello"})
    await send(agent, "POST", f"{task_path}/complete", {"claim_token": claimed["claim_token"], "result": "Done."})
    assert await recorder.only_data("task.completed") == await get(agent, task_path)
    await send(agent, "POST", f"{session_path}/end", {"summary": "All done."})
    assert await recorder.only_data("session.ended") == await get(agent, session_path)
    added = await send(agent, "POST", f"{phase_path}/tasks", {"name": "another"})
    assert (await agent.send("DELETE", f"{_AGENTS}/tasks/{added['id']}")).status_code == 204
    assert await recorder.only_data("task.deleted") == {"id": added["id"], "plan_id": plan["id"]}
    assert "hunter2" not in json.dumps(await recorder.list_payloads())
    assert await recorder.list_types() == [
        "plan.created",
        "session.started",
        "phase.started",
        "task.claimed",
        "phase.checkpoint",
        "session.noted",
        "task.completed",
        "session.ended",
        "task.created",
        "task.deleted",
    ]


async def test_tool_called_needs_an_explicit_subscription_and_tool_failed_does_not(instance_with_tools: Instance) -> None:
    """`*` does not include tool.called; the event equals the row in the list of calls."""
    named, everything = await record_events(instance_with_tools.admin, "tool.called"), await record_events(instance_with_tools.admin, "*")
    await call(instance_with_tools.admin, "echo", text="hi")
    await call(instance_with_tools.admin, "error")

    async def load_both() -> list[Json]:
        return payloads if len(payloads := await named.list_payloads()) == 2 else []

    payloads = cast("list[Json]", await eventually(load_both))
    rows = cast("list[Json]", (await get(instance_with_tools.admin, f"{_AGENTS}/tools/calls"))["data"])
    assert [event["data"] for event in payloads] == rows[::-1]
    failed = await everything.only_data("tool.failed")
    assert failed == next(row for row in rows if not row["success"])
    assert "tool.called" not in await everything.list_types()


async def test_server_health_events_go_to_workspaces_that_see_the_server(instance_with_tools: Instance) -> None:
    """Events equal each tenant's GET without fields that need servers:read; a quick recovery sends both events."""
    await call(instance_with_tools.admin, "echo", text="hi")
    recorder, other_recorder = (
        await record_events(instance_with_tools.admin, "server.*"),
        await record_events(instance_with_tools.admin, "memory.*"),
    )

    await call(instance_with_tools.admin, "crash")
    offline = await recorder.first_data("server.offline", id="odd")
    await call(instance_with_tools.admin, "echo", text="hi")

    online = await recorder.first_data("server.online", id="odd", after="server.offline")
    expected = await get(await instance_with_tools.api_key("mcp:*", "brain:*"), "/api/v1/mcp/servers/odd")
    assert _without_vast_tool(online) == _without_vast_tool(expected)
    assert (offline["health"], offline["last_error"], offline["standing"]) == ("offline", None, None)
    assert await other_recorder.list_payloads() == []


async def test_a_workspace_gets_health_events_of_its_own_process_only(instance_with_tools: Instance) -> None:
    """A crash sends an event to the workspace of that process only."""
    other = await instance_with_tools.api_key(workspace_id=await instance_with_tools.workspace("other"))
    for caller in (instance_with_tools.admin, other):
        await call(caller, "echo", server="own", text="hi")
    own, others = [await record_events(caller, "server.*") for caller in (instance_with_tools.admin, other)]

    await call(instance_with_tools.admin, "crash", server="own")
    await own.first_data("server.offline", id="own")
    await call(instance_with_tools.admin, "echo", server="own", text="hi")
    await own.first_data("server.online", id="own", after="server.offline")
    await call(other, "crash", server="own")

    await others.first_data("server.offline", id="own")
    assert [type_ for type_ in await own.list_types() if type_ == "server.offline"] == ["server.offline"]


async def test_key_events_contain_no_secrets(instance: Instance) -> None:
    """Events of both kinds of keys contain neither secrets nor addresses."""
    recorder = await record_events(instance.admin, "key.*")
    key = await send(instance.admin, "POST", _KEYS, {"name": "CI", "scopes": ["brain:read"]})
    assert await recorder.only_data("key.created") == without(await get(instance.admin, f"{_KEYS}/{key['id']}"), {"last_used_ip"})
    new = await send(instance.admin, "POST", f"{_KEYS}/{key['id']}/rotate", {})
    rotated = await recorder.only_data("key.rotated")
    assert rotated == without(await get(instance.admin, f"{_KEYS}/{key['id']}"), {"last_used_ip"})
    assert rotated["delete_after"] is not None
    assert (await instance.admin.send("DELETE", f"{_KEYS}/{new['id']}")).status_code == 204
    assert (await recorder.only_data("key.revoked"))["id"] == new["id"]
    agent = await send(instance.admin, "POST", "/api/v1/agent-keys", {"name": "bee", "permissions": ["plans.read"]})
    await send(instance.admin, "POST", f"/api/v1/agent-keys/{agent['id']}/revoke")
    revoked = cast("Json", (await recorder.list_payloads("key.revoked"))[-1]["data"])
    assert revoked == without(await get(instance.admin, f"/api/v1/agent-keys/{agent['id']}"), {"last_used_ip", "ip_list"})
    assert revoked["status"] == "Revoked"
    everything = json.dumps(await recorder.list_payloads())
    assert await recorder.list_types() == ["key.created", "key.rotated", "key.created", "key.revoked", "key.created", "key.revoked"]
    for secret in (key["plaintext_key"], new["plaintext_key"], agent["key"]):
        assert str(secret) not in everything


async def test_the_expiry_of_a_key_is_announced_once(settings: Settings) -> None:
    """An expiry, another after an extension, and the end of a grace period are each announced once."""
    clock = FakeClock()
    async with run_instance(settings, clock) as instance:
        recorder = await record_events(instance.admin, "key.*")
        key_services = instance.rookery.access.api_keys, instance.rookery.access.agent_keys
        agent = await send(
            instance.admin,
            "POST",
            "/api/v1/agent-keys",
            {"name": "bee", "permissions": ["plans.read"], "expires_at": "2026-11-21T10:00:00Z"},
        )
        expiring = await send(
            instance.admin, "POST", _KEYS, {"name": "gone", "scopes": ["brain:read"], "expires_at": "2026-11-21T10:00:00Z"}
        )
        old = await send(instance.admin, "POST", _KEYS, {"name": "old", "scopes": ["brain:read"]})
        await send(instance.admin, "POST", f"{_KEYS}/{old['id']}/rotate", {"grace_period_hours": 1})

        async def pass_time(minutes: int) -> list[object]:
            clock.advance(minutes=minutes)
            before = len(await recorder.list_payloads("key.expired"))
            for service in (*key_services, *key_services):
                await service.announce_expired()
                await service.delete_past_grace()
            return [cast("Json", event["data"])["id"] for event in (await recorder.list_payloads("key.expired"))[before:]]

        assert await pass_time(29) == []
        assert await pass_time(1) == [expiring["id"], agent["id"]]
        assert await pass_time(10) == []
        await send(instance.admin, "POST", f"/api/v1/agent-keys/{agent['id']}/extend", {"expires_at": "2026-11-21T10:20:00Z"})
        assert await pass_time(10) == [agent["id"]]
        assert await pass_time(20) == [old["id"]]
        await key_services[0].prune(by=OPERATOR)
        assert await pass_time(60) == []


async def test_sandbox_events_go_to_sandbox_endpoints_with_the_parents_id(instance: Instance) -> None:
    """Endpoints of a test key get events of the sandbox, live ones of the workspace; both have the workspace id."""
    test = await instance.api_key(environment="test")
    own, sandboxed = await record_events(instance.admin, "memory.*", "key.*"), await record_events(test, "memory.*", "key.*")
    live = await instance.admin.remember("Real.")
    sandbox_memory = await test.remember("Tried out.")
    sandbox_key = await send(test, "POST", _KEYS, {"name": "inner", "scopes": ["brain:read"]})
    await send(instance.admin, "POST", _KEYS, {"name": "outer", "scopes": ["brain:read"]})

    assert [cast("Json", event["data"])["id"] for event in await own.list_payloads("memory.stored")] == [live["id"]]
    (event,) = await sandboxed.list_payloads("memory.stored")
    assert (cast("Json", event["data"])["id"], event["workspace_id"]) == (sandbox_memory["id"], instance.workspace_id)
    assert cast("Json", event["data"])["workspace_id"] == instance.workspace_id
    assert (await sandboxed.only_data("key.created"))["id"] == sandbox_key["id"]
    assert len(await own.list_payloads("key.created")) == 2


async def get(caller: Caller, path: str) -> Json:
    """Return the body of GET *path*."""
    return await send(caller, "GET", path)


async def send(caller: Caller, method: str, path: str, body: object = None) -> Json:
    """Send a request that must succeed, and return its body."""
    response = await caller.send(method, path, body)
    assert response.status_code in {200, 201}, response.text
    return cast("Json", response.json())


def without(fields: object, names: set[str]) -> Json:
    """Return *fields* without those in *names*."""
    return {name: value for name, value in cast("Mapping[str, object]", fields).items() if name not in names}


def _without_vast_tool(server: Json) -> Json:
    """Return the fields of a server without the tool with a number past 64 bits, which events contain as a double."""
    tools = cast("list[Json]", server["tools"])
    return {**without(server, {"seen_at"}), "tools": [tool for tool in tools if tool["name"] != "vast"]}


async def call(caller: Caller, tool: str, *, server: str = "odd", **arguments: object) -> None:
    """Call a tool of a server that misbehaves, whatever the outcome."""
    await caller.post("/api/v1/mcp/tools/call", {"server": server, "tool": tool, "arguments": arguments})
