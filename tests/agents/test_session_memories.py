"""The fate of session memories when their session ends (D-53)."""

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


async def jot(caller: Caller, session: str, content: str, **fields: object) -> str:
    """Remember something for the session alone."""
    body = {"type": "observation", "content": content, "memory_scope": "session", "session_id": session} | fields
    return str(parse_body(await caller.post("/v1/brain/remember", body), 201)["id"])


async def state(caller: Caller, memory: str) -> tuple[object, object]:
    """Return a memory's scope, and whether it is archived."""
    shown = parse_body(await caller.get(f"{MEMORIES}/{memory}"))
    return shown["memory_scope"], shown["state"] == "archived"


async def test_memories_end_with_a_session_that_completed_or_failed(instance: Instance) -> None:
    """D-53: archived when their session completes or fails; kept when it is handed off; others' are not touched."""
    sessions = {status: await start_session_id(instance.agent) for status in ("completed", "failed", "handed_off")}
    memories = {status: await jot(instance.agent, session, status) for status, session in sessions.items()}
    other = await jot(instance.agent, await start_session_id(instance.agent), "other")
    project = await instance.admin.remember("stays", session_id=sessions["completed"])

    for status, session in sessions.items():
        await end_session(instance.agent, session, status=status)

    archived = {status: (await state(instance.agent, memory))[1] for status, memory in memories.items()}
    assert archived == {"completed": True, "failed": True, "handed_off": False}
    assert await state(instance.agent, other) == ("session", False)
    assert await state(instance.agent, str(project["id"])) == ("project", False)


async def test_what_is_worth_keeping_is_promoted(instance: Instance) -> None:
    """D-53: end takes promote: true, or ids: these become the project's, with the session's org and project, and are recalled there."""
    session = await start_session_id(instance.agent, org="acme", project="web")
    kept, gone = await jot(instance.agent, session, "Herons nest in May."), await jot(instance.agent, session, "Scratch.")
    foreign = await jot(instance.agent, await start_session_id(instance.agent), "not of it")

    wrong = await instance.agent.post(f"{SESSIONS}/{session}/end", {"promote": [kept, foreign]})
    assert (error_of(wrong), list(wrong.json()["errors"])) == ((422, "validation_error"), ["promote"])
    await end_session(instance.agent, session, promote=[kept])

    assert await state(instance.agent, kept) == ("project", False)
    assert await state(instance.agent, gone) == ("session", True)
    shown = parse_body(await instance.agent.get(f"{MEMORIES}/{kept}"))
    assert (shown["org"], shown["project"]) == ("acme", "web")

    async def found() -> bool:
        hits = get_list(parse_body(await instance.agent.get("/v1/brain/search?q=herons&org=acme&project=web")), "hits")
        return [each["id"] for each in hits] == [kept]

    await eventually(found)

    every = await start_session_id(instance.agent)
    both = [await jot(instance.agent, every, "one"), await jot(instance.agent, every, "two")]
    await end_session(instance.agent, every, promote=True)
    assert [await state(instance.agent, each) for each in both] == [("project", False)] * 2


async def test_promoting_needs_the_right_to_write_memories(instance: Instance) -> None:
    """D-23, D-53: sessions.write alone makes nothing of a session the project's."""
    caller = await instance.agent_key("sessions.write")
    session = await start_session_id(caller)

    assert error_of(await caller.post(f"{SESSIONS}/{session}/end", {"promote": True})) == (403, "permission_denied")
    assert (await end_session(caller, session))["status"] == "completed"


async def test_a_session_that_was_handed_off_keeps_its_memories_for_its_successor(clocked_instance: Instance, clock: FakeClock) -> None:
    """D-53: until the successor ends, or seven days; the successor begins with them."""
    first, forgotten = await start_session_id(clocked_instance.agent), await start_session_id(clocked_instance.agent)
    memory, old = (
        await jot(clocked_instance.agent, first, "The cache is cold."),
        await jot(clocked_instance.agent, forgotten, "Nobody asked."),
    )
    for session in (first, forgotten):
        await end_session(clocked_instance.agent, session, status="handed_off")
    clock.advance(days=6)
    resumed = parse_body(await clocked_instance.agent.post(f"{SESSIONS}/{first}/resume"), 201)
    assert [each["id"] for each in get_list(get_nested(resumed, "boot", "memories"), "session")] == [memory]

    clock.advance(hours=23)
    await clocked_instance.rookery.agents.sessions.sweeper.sweep()
    assert [await state(clocked_instance.agent, each) for each in (memory, old)] == [("session", False)] * 2
    await end_session(clocked_instance.agent, str(get_nested(resumed, "session")["id"]))
    await clocked_instance.rookery.agents.sessions.sweeper.sweep()
    assert [(await state(clocked_instance.agent, each))[1] for each in (memory, old)] == [True, False]
    clock.advance(hours=1)
    await clocked_instance.rookery.agents.sessions.sweeper.sweep()
    assert await state(clocked_instance.agent, old) == ("session", True)


async def test_memories_of_an_open_session_do_not_expire(clocked_instance: Instance, clock: FakeClock) -> None:
    """D-53: a session_id that is no Rookery session lives until expires_in, seven days by default; one that is, as long as it is open."""
    session = await start_session_id(clocked_instance.agent)
    ours, others = await jot(clocked_instance.agent, session, "ours"), await jot(clocked_instance.agent, "elsewhere-1", "theirs")
    short = await jot(clocked_instance.agent, session, "an hour", expires_in=1)

    async def expiry(memory: str) -> object:
        return parse_body(await clocked_instance.agent.get(f"{MEMORIES}/{memory}"))["expires_at"]

    assert [await expiry(ours), await expiry(others) is None, await expiry(short) is None] == [None, False, False]
    batch: Json = {"memories": [{"type": "fact", "content": "b", "memory_scope": "session", "session_id": session}]}
    stored = get_list(parse_body(await clocked_instance.agent.post("/v1/brain/remember/batch", batch)), "results")
    assert get_nested(stored[0], "memory")["expires_at"] is None
    await end_session(clocked_instance.agent, session)
    assert await expiry(await jot(clocked_instance.agent, session, "late")) is not None


async def test_many_memories_are_put_away_in_parts(instance: Instance) -> None:
    """D-53: ending does not hold up others: what is more than 200 goes with the next sweep."""
    session = await start_session_id(instance.agent)
    drafts = [{"type": "fact", "content": f"n{each}", "memory_scope": "session", "session_id": session} for each in range(230)]
    parse_body(await instance.agent.post("/v1/brain/remember/batch", {"memories": drafts}))

    async def left() -> int:
        return int(str(get_nested(parse_body(await instance.agent.get(f"{MEMORIES}?session_id={session}")), "meta")["total"]))

    await end_session(instance.agent, session)
    assert await left() == 30
    await instance.rookery.agents.sessions.sweeper.sweep()
    assert await left() == 0
    assert get_nested(await start_session(instance.agent), "session")["status"] == "active"
