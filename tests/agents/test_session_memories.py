"""Session memories when their session ends."""

from __future__ import annotations

from tests.agents.session_makers import (
    SESSIONS,
    Json,
    end_session,
    error_of,
    get_list,
    get_nested,
    parse_body,
    start_session,
    start_session_id,
)
from tests.conftest import Caller, FakeClock, Instance, eventually

MEMORIES = "/v1/brain/memories"


async def remember(caller: Caller, session: str, content: str, **fields: object) -> str:
    """Store a memory in the scope of the session."""
    body = {"type": "observation", "content": content, "memory_scope": "session", "session_id": session} | fields
    return str(parse_body(await caller.post("/v1/brain/remember", body), 201)["id"])


async def scope_and_archived(caller: Caller, memory: str) -> tuple[object, object]:
    """Return a memory's scope, and whether it is archived."""
    memory_ = parse_body(await caller.get(f"{MEMORIES}/{memory}"))
    return memory_["memory_scope"], memory_["state"] == "archived"


async def test_memories_of_a_completed_or_failed_session_are_archived(instance: Instance) -> None:
    """Memories of a handed-off session are kept, and those of other sessions are not changed."""
    sessions = {status: await start_session_id(instance.agent) for status in ("completed", "failed", "handed_off")}
    memories = {status: await remember(instance.agent, session, status) for status, session in sessions.items()}
    other = await remember(instance.agent, await start_session_id(instance.agent), "other")
    project = await instance.admin.remember("stays", session_id=sessions["completed"])

    for status, session in sessions.items():
        await end_session(instance.agent, session, status=status)

    archived = {status: (await scope_and_archived(instance.agent, memory))[1] for status, memory in memories.items()}
    assert archived == {"completed": True, "failed": True, "handed_off": False}
    assert await scope_and_archived(instance.agent, other) == ("session", False)
    assert await scope_and_archived(instance.agent, str(project["id"])) == ("project", False)


async def test_memories_can_be_promoted_to_the_project(instance: Instance) -> None:
    """End accepts promote: true, or ids. Promoted memories get the session's org and project, and are recalled there."""
    session = await start_session_id(instance.agent, org="acme", project="web")
    promoted, not_promoted = (
        await remember(instance.agent, session, "Herons nest in May."),
        await remember(instance.agent, session, "Scratch."),
    )
    other_memory = await remember(instance.agent, await start_session_id(instance.agent), "not of it")

    response = await instance.agent.post(f"{SESSIONS}/{session}/end", {"promote": [promoted, other_memory]})
    assert (error_of(response), list(response.json()["errors"])) == ((422, "validation_error"), ["promote"])
    await end_session(instance.agent, session, promote=[promoted])

    assert await scope_and_archived(instance.agent, promoted) == ("project", False)
    assert await scope_and_archived(instance.agent, not_promoted) == ("session", True)
    fetched = parse_body(await instance.agent.get(f"{MEMORIES}/{promoted}"))
    assert (fetched["org"], fetched["project"]) == ("acme", "web")

    async def is_searchable() -> bool:
        hits = get_list(parse_body(await instance.agent.get("/v1/brain/search?q=herons&org=acme&project=web")), "hits")
        return [hit["id"] for hit in hits] == [promoted]

    await eventually(is_searchable)

    second_session = await start_session_id(instance.agent)
    memories = [await remember(instance.agent, second_session, "one"), await remember(instance.agent, second_session, "two")]
    await end_session(instance.agent, second_session, promote=True)
    assert [await scope_and_archived(instance.agent, memory) for memory in memories] == [("project", False)] * 2


async def test_promoting_needs_the_permission_to_write_memories(instance: Instance) -> None:
    """sessions.write alone does not promote memories."""
    caller = await instance.agent_key("sessions.write")
    session = await start_session_id(caller)

    assert error_of(await caller.post(f"{SESSIONS}/{session}/end", {"promote": True})) == (403, "permission_denied")
    assert (await end_session(caller, session))["status"] == "completed"


async def test_a_handed_off_session_keeps_its_memories_for_its_successor(clocked_instance: Instance, clock: FakeClock) -> None:
    """Until the successor ends, or for seven days; the successor starts with them."""
    first, not_resumed = await start_session_id(clocked_instance.agent), await start_session_id(clocked_instance.agent)
    memory, other_memory = (
        await remember(clocked_instance.agent, first, "The cache is cold."),
        await remember(clocked_instance.agent, not_resumed, "Nobody asked."),
    )
    for session in (first, not_resumed):
        await end_session(clocked_instance.agent, session, status="handed_off")
    clock.advance(days=6)
    resumption = parse_body(await clocked_instance.agent.post(f"{SESSIONS}/{first}/resume"), 201)
    assert [listed["id"] for listed in get_list(get_nested(resumption, "boot", "memories"), "session")] == [memory]

    clock.advance(hours=23)
    await clocked_instance.rookery.agents.sessions.sweeper.sweep()
    assert [await scope_and_archived(clocked_instance.agent, memory_id) for memory_id in (memory, other_memory)] == [("session", False)] * 2
    await end_session(clocked_instance.agent, str(get_nested(resumption, "session")["id"]))
    await clocked_instance.rookery.agents.sessions.sweeper.sweep()
    assert [(await scope_and_archived(clocked_instance.agent, memory_id))[1] for memory_id in (memory, other_memory)] == [True, False]
    clock.advance(hours=1)
    await clocked_instance.rookery.agents.sessions.sweeper.sweep()
    assert await scope_and_archived(clocked_instance.agent, other_memory) == ("session", True)


async def test_memories_of_an_open_session_do_not_expire(clocked_instance: Instance, clock: FakeClock) -> None:
    """Without a Rookery session, a session memory expires after expires_in, by default seven days. In an open session it stays."""
    session = await start_session_id(clocked_instance.agent)
    own_memory, unknown_session_memory = (
        await remember(clocked_instance.agent, session, "ours"),
        await remember(clocked_instance.agent, "elsewhere-1", "theirs"),
    )
    expiring_memory = await remember(clocked_instance.agent, session, "an hour", expires_in=1)

    async def expires_at(memory: str) -> object:
        return parse_body(await clocked_instance.agent.get(f"{MEMORIES}/{memory}"))["expires_at"]

    assert [await expires_at(own_memory), await expires_at(unknown_session_memory) is None, await expires_at(expiring_memory) is None] == [
        None,
        False,
        False,
    ]
    batch: Json = {"memories": [{"type": "fact", "content": "b", "memory_scope": "session", "session_id": session}]}
    stored = get_list(parse_body(await clocked_instance.agent.post("/v1/brain/remember/batch", batch)), "results")
    assert get_nested(stored[0], "memory")["expires_at"] is None
    await end_session(clocked_instance.agent, session)
    assert await expires_at(await remember(clocked_instance.agent, session, "late")) is not None


async def test_many_memories_are_archived_in_batches(instance: Instance) -> None:
    """Ending a session does not block others: memories beyond 200 are archived by the next periodic run."""
    session = await start_session_id(instance.agent)
    drafts = [{"type": "fact", "content": f"n{number}", "memory_scope": "session", "session_id": session} for number in range(230)]
    parse_body(await instance.agent.post("/v1/brain/remember/batch", {"memories": drafts}))

    async def count_left() -> int:
        return int(str(get_nested(parse_body(await instance.agent.get(f"{MEMORIES}?session_id={session}")), "meta")["total"]))

    await end_session(instance.agent, session)
    assert await count_left() == 30
    await instance.rookery.agents.sessions.sweeper.sweep()
    assert await count_left() == 0
    assert get_nested(await start_session(instance.agent), "session")["status"] == "active"
