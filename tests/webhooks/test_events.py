"""Webhook payloads equal the next GET, written in the transaction of the change (D-80, D-81)."""

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

_OF_INDEXING = {"indexed", "indexed_at", "state", "effective_confidence"}
"""What changes once the memory is in the indexes, and with the time."""


@pytest.fixture
async def tooled(settings: Settings) -> AsyncIterator[Instance]:
    """A running server with tool servers that misbehave: one for all, and one of which each workspace has its own."""
    own = make_odd_entry(isolation="per_workspace")
    settings.servers_file.write_text(
        json.dumps({"mcpServers": {"odd": make_odd_entry(), "own": own, "theirs": make_odd_entry(workspaces=[999])}})
    )
    async with run_instance(settings) as opened:
        yield opened


async def test_memories_are_told_without_their_content_unless_it_is_asked_for(instance: Instance) -> None:
    """D-80, D-81: stored, archived, restored, superseded, deleted; each as the next GET gives it."""
    plain, whole = (
        await record_events(instance.admin, "memory.*"),
        await record_events(instance.admin, "memory.stored", include_content=True),
    )
    other = await record_events(instance.admin, "plan.*", "tool.called")
    made = await instance.admin.remember("Ships on Tuesday.", tags=["ship"], org="acme")
    shown = await get(instance.admin, f"{_MEMORIES}/{made['id']}")
    (stored,), (in_full,) = await plain.list_payloads("memory.stored"), await whole.list_payloads()

    assert (stored["type"], stored["workspace_id"]) == ("memory.stored", instance.workspace_id)
    assert str(stored["id"]).startswith("evt_")
    assert without(stored["data"], _OF_INDEXING) == without(shown, {*_OF_INDEXING, "content", "metadata"})
    assert without(in_full["data"], _OF_INDEXING) == without(shown, _OF_INDEXING)
    assert in_full["id"] == stored["id"]  # one event, told in two ways

    await payloads_of(instance.admin, "POST", f"{_MEMORIES}/{made['id']}/archive")
    archived = await get(instance.admin, f"{_MEMORIES}/{made['id']}")
    assert without(await plain.only_data("memory.archived"), {"effective_confidence"}) == without(
        archived, {"effective_confidence", "content", "metadata"}
    )
    await payloads_of(instance.admin, "POST", f"{_MEMORIES}/{made['id']}/restore")
    restored = await get(instance.admin, f"{_MEMORIES}/{made['id']}")
    assert without(await plain.only_data("memory.restored"), _OF_INDEXING) == without(restored, {*_OF_INDEXING, "content", "metadata"})

    new = await instance.admin.remember("Ships on Wednesday.", supersedes_id=made["id"])
    history = await get(instance.admin, f"{_MEMORIES}/{new['id']}/history")
    assert await plain.only_data("memory.superseded") == cast("list[Json]", history["data"])[0]
    alone = await instance.admin.remember("Nobody knows why.")
    assert (await instance.admin.send("DELETE", f"{_MEMORIES}/{alone['id']}")).status_code == 204
    gone = await plain.only_data("memory.deleted")
    assert (gone["id"], gone["memory"], gone["superseded_by"]) == (alone["id"], None, None)
    assert "Nobody knows why." not in json.dumps(await plain.list_payloads())
    assert await other.list_payloads() == []


async def test_what_a_deleted_memory_said_is_in_no_delivery_log(instance: Instance) -> None:
    """D-41: deleting or replacing a memory removes it from stored events, also for endpoints without content."""
    whole = await record_events(instance.admin, "memory.*", include_content=True)
    old = await instance.admin.remember("The safe opens with 4711.", org="acme")
    await payloads_of(instance.admin, "POST", f"{_MEMORIES}/{old['id']}/archive")
    await payloads_of(instance.admin, "POST", f"{_MEMORIES}/{old['id']}/restore")
    plain = await record_events(instance.admin, "memory.stored")
    new = await instance.admin.remember("The safe opens with 4712.", supersedes_id=old["id"])
    kept = await instance.admin.remember("The safe is green.")
    assert "with 4712." in json.dumps(await whole.list_payloads())
    assert "with 4711." not in json.dumps(await whole.list_payloads())

    assert (await instance.admin.send("DELETE", f"{_MEMORIES}/{new['id']}")).status_code == 204

    heard = await whole.list_payloads()
    assert "safe opens" not in json.dumps(heard)
    shown = [without(await get(instance.admin, f"{_MEMORIES}/{kept['id']}"), _OF_INDEXING)]
    assert [without(event["data"], _OF_INDEXING) for event in heard if "content" in cast("Json", event["data"])] == shown
    assert [cast("Json", event["data"])["id"] for event in await plain.list_payloads()] == [new["id"], kept["id"]]


async def test_what_an_operators_command_does_to_memories_is_told(instance: Instance) -> None:
    """Spec 4.4, D-80: also beside the server; a re-index tells each workspace of its own memories alone."""
    other = await instance.workspace("other")
    key = await instance.api_key(workspace_id=other)
    ours, theirs = await record_events(instance.admin, "memory.reindexed"), await record_events(key, "*")
    for number in range(3):
        await instance.admin.remember(f"heron {number}", org="acme")
    await key.remember("one heron")

    async with build_platform(instance.rookery.settings).open_for_command() as command:
        report = await command.reindexer.reindex(ReindexRequest())

    assert report.successes == 4
    data = await ours.only_data("memory.reindexed")
    assert without(data, {"duration_s", "completed_at"}) == {"org": None, "project": None, "count": 3}
    assert (await theirs.only_data("memory.reindexed"))["count"] == 1


async def test_agent_work_is_told_as_its_get_gives_it(instance: Instance) -> None:
    """D-60, D-62, D-64, D-81: at the end of each request's transaction, when all that follows from it is done too."""
    ear = await record_events(instance.admin, "plan.*", "phase.*", "task.*", "session.*")
    agent = instance.admin
    body = {"title": "Ship it", "status": "active", "phases": [{"name": "work", "tasks": [{"name": "only"}]}]}
    plan = await payloads_of(agent, "POST", f"{_AGENTS}/plans", body)
    phase = cast("list[Json]", plan["phases"])[0]
    task = cast("list[Json]", phase["tasks"])[0]
    at_plan, at_task = f"{_AGENTS}/plans/{plan['slug']}", f"{_AGENTS}/tasks/{task['id']}"
    at_phase = f"{at_plan}/phases/{phase['id']}"

    assert await ear.only_data("plan.created") == await get(agent, f"{at_plan}?include=none")
    session = cast(
        "Json", (await payloads_of(agent, "POST", f"{_AGENTS}/sessions", {"agent_type": "coder", "plan": plan["slug"]}))["session"]
    )
    at_session = f"{_AGENTS}/sessions/{session['id']}"
    assert await ear.only_data("session.started") == await get(agent, at_session)
    claimed = await payloads_of(agent, "POST", f"{at_task}/claim", {"session_id": session["id"]})
    assert await ear.only_data("task.claimed") == await get(agent, at_task)
    assert str(claimed["claim_token"]) not in json.dumps(await ear.list_payloads())
    assert without(await ear.only_data("phase.started"), {"tasks"}) == without(await get(agent, at_phase), {"tasks"})
    checkpoint = {"note": "halfway", "context": {"password": "hunter2-hunter2"}}
    await payloads_of(agent, "POST", f"{at_phase}/checkpoints", checkpoint)
    noted = cast("list[Json]", (await ear.only_data("phase.checkpoint"))["checkpoints"])
    shown = cast("list[Json]", (await get(agent, at_phase))["checkpoints"])
    assert noted == [without(shown[0], {"context"})]
    await payloads_of(agent, "POST", f"{at_session}/events", {"message": "hello"})
    await payloads_of(agent, "POST", f"{at_task}/complete", {"claim_token": claimed["claim_token"], "result": "Done."})
    assert await ear.only_data("task.completed") == await get(agent, at_task)
    await payloads_of(agent, "POST", f"{at_session}/end", {"summary": "All done."})
    assert await ear.only_data("session.ended") == await get(agent, at_session)
    added = await payloads_of(agent, "POST", f"{at_phase}/tasks", {"name": "another"})
    assert (await agent.send("DELETE", f"{_AGENTS}/tasks/{added['id']}")).status_code == 204
    assert await ear.only_data("task.deleted") == {"id": added["id"], "plan_id": plan["id"]}
    assert "hunter2" not in json.dumps(await ear.list_payloads())
    assert await ear.list_types() == [
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


async def test_tool_calls_are_told_to_those_who_name_them_and_failures_to_all(tooled: Instance) -> None:
    """D-38, D-80: `*` does not mean tool.called; a call is told as the list of calls shows it."""
    named, everything = await record_events(tooled.admin, "tool.called"), await record_events(tooled.admin, "*")
    await call(tooled.admin, "echo", text="hi")
    await call(tooled.admin, "error")

    async def both() -> list[Json]:
        return heard if len(heard := await named.list_payloads()) == 2 else []

    heard = cast("list[Json]", await eventually(both))
    rows = cast("list[Json]", (await get(tooled.admin, f"{_AGENTS}/tools/calls"))["data"])
    assert [event["data"] for event in heard] == rows[::-1]
    failed = await everything.only_data("tool.failed")
    assert failed == next(row for row in rows if not row["success"])
    assert "tool.called" not in await everything.list_types()


async def test_servers_that_go_and_come_are_told_to_those_who_see_them(tooled: Instance) -> None:
    """D-33, D-80: as each tenant's GET gives it, but for what needs servers:read; down and up again at once are both told."""
    await call(tooled.admin, "echo", text="hi")
    ours, deaf = await record_events(tooled.admin, "server.*"), await record_events(tooled.admin, "memory.*")

    await call(tooled.admin, "crash")
    offline = await ours.first_data("server.offline")
    await call(tooled.admin, "echo", text="hi")

    online = await ours.first_data("server.online")
    shown = await get(await tooled.api_key("mcp:*", "brain:*"), "/api/v1/mcp/servers/odd")
    assert _without_vast(online) == _without_vast(shown)
    assert (offline["id"], offline["health"], offline["last_error"], offline["standing"]) == ("odd", "offline", None, None)
    assert await deaf.list_payloads() == []


async def test_a_workspace_with_a_tool_server_of_its_own_hears_of_that_one_alone(tooled: Instance) -> None:
    """D-32, D-33, D-80: where each has its own process, a crash is told to the workspace whose it was, though another's still runs."""
    other = await tooled.api_key(workspace_id=await tooled.workspace("other"))
    for caller in (tooled.admin, other):
        await call(caller, "echo", server="own", text="hi")
    ours, theirs = [await record_events(caller, "server.*") for caller in (tooled.admin, other)]

    await call(tooled.admin, "crash", server="own")
    assert (await ours.first_data("server.offline"))["id"] == "own"
    await call(tooled.admin, "echo", server="own", text="hi")
    assert (await ours.first_data("server.online"))["id"] == "own"
    await call(other, "crash", server="own")

    assert (await theirs.first_data("server.offline"))["id"] == "own"
    assert [each for each in await ours.list_types() if each == "server.offline"] == ["server.offline"]


async def test_keys_are_told_of_without_their_secrets(instance: Instance) -> None:
    """D-26, D-80, D-81: made, rotated, revoked, deleted, both kinds; no secret and no address in any of it."""
    ear = await record_events(instance.admin, "key.*")
    made = await payloads_of(instance.admin, "POST", _KEYS, {"name": "CI", "scopes": ["brain:read"]})
    assert await ear.only_data("key.created") == without(await get(instance.admin, f"{_KEYS}/{made['id']}"), {"last_used_ip"})
    new = await payloads_of(instance.admin, "POST", f"{_KEYS}/{made['id']}/rotate", {})
    rotated = await ear.only_data("key.rotated")
    assert rotated == without(await get(instance.admin, f"{_KEYS}/{made['id']}"), {"last_used_ip"})
    assert rotated["delete_after"] is not None
    assert (await instance.admin.send("DELETE", f"{_KEYS}/{new['id']}")).status_code == 204
    assert (await ear.only_data("key.revoked"))["id"] == new["id"]
    agent = await payloads_of(instance.admin, "POST", "/api/v1/agent-keys", {"name": "bee", "permissions": ["plans.read"]})
    await payloads_of(instance.admin, "POST", f"/api/v1/agent-keys/{agent['id']}/revoke")
    revoked = cast("Json", (await ear.list_payloads("key.revoked"))[-1]["data"])
    assert revoked == without(await get(instance.admin, f"/api/v1/agent-keys/{agent['id']}"), {"last_used_ip", "ip_list"})
    assert revoked["status"] == "Revoked"
    everything = json.dumps(await ear.list_payloads())
    assert await ear.list_types() == ["key.created", "key.rotated", "key.created", "key.revoked", "key.created", "key.revoked"]
    for secret in (made["plaintext_key"], new["plaintext_key"], agent["key"]):
        assert str(secret) not in everything


async def test_the_end_of_a_key_by_time_is_told_once(settings: Settings) -> None:
    """D-21, D-26, D-80: an expiry, another after an extension, and the end of a grace period, found by any process."""
    clock = FakeClock()
    async with run_instance(settings, clock) as instance:
        ear = await record_events(instance.admin, "key.*")
        rings = instance.rookery.access.api_keys, instance.rookery.access.agent_keys
        agent = await payloads_of(
            instance.admin,
            "POST",
            "/api/v1/agent-keys",
            {"name": "bee", "permissions": ["plans.read"], "expires_at": "2026-11-21T10:00:00Z"},
        )
        gone = await payloads_of(
            instance.admin, "POST", _KEYS, {"name": "gone", "scopes": ["brain:read"], "expires_at": "2026-11-21T10:00:00Z"}
        )
        old = await payloads_of(instance.admin, "POST", _KEYS, {"name": "old", "scopes": ["brain:read"]})
        await payloads_of(instance.admin, "POST", f"{_KEYS}/{old['id']}/rotate", {"grace_period_hours": 1})

        async def pass_time(minutes: int) -> list[object]:
            clock.advance(minutes=minutes)
            before = len(await ear.list_payloads("key.expired"))
            for ring in (*rings, *rings):
                await ring.announce_expired()
                await ring.delete_past_grace()
            return [cast("Json", event["data"])["id"] for event in (await ear.list_payloads("key.expired"))[before:]]

        assert await pass_time(29) == []
        assert await pass_time(1) == [gone["id"], agent["id"]]
        assert await pass_time(10) == []
        await payloads_of(instance.admin, "POST", f"/api/v1/agent-keys/{agent['id']}/extend", {"expires_at": "2026-11-21T10:20:00Z"})
        assert await pass_time(10) == [agent["id"]]
        assert await pass_time(20) == [old["id"]]
        await rings[0].prune(by=OPERATOR)
        assert await pass_time(60) == []


async def test_the_sandbox_hears_of_its_own_alone_under_its_parents_number(instance: Instance) -> None:
    """D-25, D-81: a test key's endpoint is told of the sandbox, a live one's of the workspace; both show the workspace's id."""
    test = await instance.api_key(environment="test")
    ours, sandboxed = await record_events(instance.admin, "memory.*", "key.*"), await record_events(test, "memory.*", "key.*")
    live = await instance.admin.remember("Real.")
    tried = await test.remember("Tried out.")
    made = await payloads_of(test, "POST", _KEYS, {"name": "inner", "scopes": ["brain:read"]})
    await payloads_of(instance.admin, "POST", _KEYS, {"name": "outer", "scopes": ["brain:read"]})

    assert [cast("Json", event["data"])["id"] for event in await ours.list_payloads("memory.stored")] == [live["id"]]
    (event,) = await sandboxed.list_payloads("memory.stored")
    assert (cast("Json", event["data"])["id"], event["workspace_id"]) == (tried["id"], instance.workspace_id)
    assert cast("Json", event["data"])["workspace_id"] == instance.workspace_id
    assert (await sandboxed.only_data("key.created"))["id"] == made["id"]
    assert len(await ours.list_payloads("key.created")) == 2


async def get(caller: Caller, path: str) -> Json:
    """Return what GET *path* answers."""
    return await payloads_of(caller, "GET", path)


async def payloads_of(caller: Caller, method: str, path: str, body: object = None) -> Json:
    """Send a request that must succeed, and return the answer."""
    answer = await caller.send(method, path, body)
    assert answer.status_code in {200, 201}, answer.text
    return cast("Json", answer.json())


def without(fields: object, names: set[str]) -> Json:
    """Return *fields* but for those of *names*."""
    return {name: value for name, value in cast("Mapping[str, object]", fields).items() if name not in names}


def _without_vast(server: Json) -> Json:
    """Return what is told of the server, but for a number past 64 bits, which events tell as a double."""
    tools = cast("list[Json]", server["tools"])
    return {**without(server, {"seen_at"}), "tools": [tool for tool in tools if tool["name"] != "vast"]}


async def call(caller: Caller, tool: str, *, server: str = "odd", **arguments: object) -> None:
    """Call a tool of a server that misbehaves, whatever comes of it."""
    await caller.post("/api/v1/mcp/tools/call", {"server": server, "tool": tool, "arguments": arguments})
