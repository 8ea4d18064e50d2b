"""What becomes of session memories when their session ends (D-53)."""

from __future__ import annotations

from tests.agents.session_makers import SESSIONS, Json, end, inside, items, refused, start, started, told
from tests.conftest import Caller, FakeClock, House, eventually

MEMORIES = "/v1/brain/memories"


async def jot(caller: Caller, session: str, content: str, **fields: object) -> str:
    """Remember something for the session alone."""
    body = {"type": "observation", "content": content, "memory_scope": "session", "session_id": session} | fields
    return str(told(await caller.post("/v1/brain/remember", body), 201)["id"])


async def state(caller: Caller, memory: str) -> tuple[object, object]:
    """Return a memory's scope, and whether it is archived."""
    shown = told(await caller.get(f"{MEMORIES}/{memory}"))
    return shown["memory_scope"], shown["state"] == "archived"


async def test_memories_end_with_a_session_that_completed_or_failed(house: House) -> None:
    """D-53: archived when their session completes or fails; kept when it is handed off; others' are not touched."""
    sessions = {status: await started(house.agent) for status in ("completed", "failed", "handed_off")}
    memories = {status: await jot(house.agent, session, status) for status, session in sessions.items()}
    other = await jot(house.agent, await started(house.agent), "other")
    project = await house.admin.remember("stays", session_id=sessions["completed"])

    for status, session in sessions.items():
        await end(house.agent, session, status=status)

    archived = {status: (await state(house.agent, memory))[1] for status, memory in memories.items()}
    assert archived == {"completed": True, "failed": True, "handed_off": False}
    assert await state(house.agent, other) == ("session", False)
    assert await state(house.agent, str(project["id"])) == ("project", False)


async def test_what_is_worth_keeping_is_promoted(house: House) -> None:
    """D-53: end takes promote: true, or ids: these become the project's, with the session's org and project, and are recalled there."""
    session = await started(house.agent, org="acme", project="web")
    kept, gone = await jot(house.agent, session, "Herons nest in May."), await jot(house.agent, session, "Scratch.")
    foreign = await jot(house.agent, await started(house.agent), "not of it")

    wrong = await house.agent.post(f"{SESSIONS}/{session}/end", {"promote": [kept, foreign]})
    assert (refused(wrong), list(wrong.json()["errors"])) == ((422, "validation_error"), ["promote"])
    await end(house.agent, session, promote=[kept])

    assert await state(house.agent, kept) == ("project", False)
    assert await state(house.agent, gone) == ("session", True)
    shown = told(await house.agent.get(f"{MEMORIES}/{kept}"))
    assert (shown["org"], shown["project"]) == ("acme", "web")

    async def found() -> bool:
        hits = items(told(await house.agent.get("/v1/brain/search?q=herons&org=acme&project=web")), "hits")
        return [each["id"] for each in hits] == [kept]

    await eventually(found)

    every = await started(house.agent)
    both = [await jot(house.agent, every, "one"), await jot(house.agent, every, "two")]
    await end(house.agent, every, promote=True)
    assert [await state(house.agent, each) for each in both] == [("project", False)] * 2


async def test_promoting_needs_the_right_to_write_memories(house: House) -> None:
    """D-23, D-53: sessions.write alone makes nothing of a session the project's."""
    caller = await house.agent_key("sessions.write")
    session = await started(caller)

    assert refused(await caller.post(f"{SESSIONS}/{session}/end", {"promote": True})) == (403, "permission_denied")
    assert (await end(caller, session))["status"] == "completed"


async def test_a_session_that_was_handed_off_keeps_its_memories_for_its_successor(timed: House, clock: FakeClock) -> None:
    """D-53: until the successor ends, or seven days; the successor begins with them."""
    first, forgotten = await started(timed.agent), await started(timed.agent)
    memory, old = await jot(timed.agent, first, "The cache is cold."), await jot(timed.agent, forgotten, "Nobody asked.")
    for session in (first, forgotten):
        await end(timed.agent, session, status="handed_off")
    clock.advance(days=6)
    resumed = told(await timed.agent.post(f"{SESSIONS}/{first}/resume"), 201)
    assert [each["id"] for each in items(inside(resumed, "boot", "memories"), "session")] == [memory]

    clock.advance(hours=23)
    await timed.rookery.agents.sessions.sweeper.sweep()
    assert [await state(timed.agent, each) for each in (memory, old)] == [("session", False)] * 2
    await end(timed.agent, str(inside(resumed, "session")["id"]))
    await timed.rookery.agents.sessions.sweeper.sweep()
    assert [(await state(timed.agent, each))[1] for each in (memory, old)] == [True, False]
    clock.advance(hours=1)
    await timed.rookery.agents.sessions.sweeper.sweep()
    assert await state(timed.agent, old) == ("session", True)


async def test_memories_of_an_open_session_do_not_expire(timed: House, clock: FakeClock) -> None:
    """D-53: a session_id that is no Rookery session lives until expires_in, seven days by default; one that is, as long as it is open."""
    session = await started(timed.agent)
    ours, others = await jot(timed.agent, session, "ours"), await jot(timed.agent, "elsewhere-1", "theirs")
    short = await jot(timed.agent, session, "an hour", expires_in=1)

    async def expiry(memory: str) -> object:
        return told(await timed.agent.get(f"{MEMORIES}/{memory}"))["expires_at"]

    assert [await expiry(ours), await expiry(others) is None, await expiry(short) is None] == [None, False, False]
    batch: Json = {"memories": [{"type": "fact", "content": "b", "memory_scope": "session", "session_id": session}]}
    stored = items(told(await timed.agent.post("/v1/brain/remember/batch", batch)), "results")
    assert inside(stored[0], "memory")["expires_at"] is None
    await end(timed.agent, session)
    assert await expiry(await jot(timed.agent, session, "late")) is not None


async def test_many_memories_are_put_away_in_parts(house: House) -> None:
    """D-53: ending does not hold up others: what is more than 200 goes with the next sweep."""
    session = await started(house.agent)
    drafts = [{"type": "fact", "content": f"n{each}", "memory_scope": "session", "session_id": session} for each in range(230)]
    told(await house.agent.post("/v1/brain/remember/batch", {"memories": drafts}))

    async def left() -> int:
        return int(str(inside(told(await house.agent.get(f"{MEMORIES}?session_id={session}")), "meta")["total"]))

    await end(house.agent, session)
    assert await left() == 30
    await house.rookery.agents.sessions.sweeper.sweep()
    assert await left() == 0
    assert inside(await start(house.agent), "session")["status"] == "active"
