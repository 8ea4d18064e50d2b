"""Hand-offs: what one session leaves is offered to the next ones until one of them takes it (D-62)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import cast

import pytest

from tests.agents.session_makers import SESSIONS, Json, end, inside, items, make_plan, note, refused, show, start, started, told
from tests.conftest import Caller, FakeClock, House, Settings, open_house

NOTES: Json = {
    "summary": "Half done.",
    "completed": ["schema"],
    "remaining": ["api", "docs"],
    "blockers": "no staging key",
    "decisions": ["SQLite first"],
    "next_steps": ["write the api"],
    "refs": {"branch": "feat/x", "files": ["a.py"]},
}


@pytest.fixture
async def timed(settings: Settings, clock: FakeClock) -> AsyncIterator[House]:
    """A running server whose clock is the test's."""
    async with open_house(settings, clock) as opened:
        yield opened


async def offered(caller: Caller, plan: str, **fields: object) -> tuple[str, Json | None]:
    """Start a session on the plan; return its id and the hand-off that it is offered."""
    answer = await start(caller, plan=plan, **fields)
    return str(inside(answer, "session")["id"]), cast("Json | None", inside(answer, "boot")["handoff"])


async def handed(caller: Caller, plan: str, agent_id: str = "kim") -> str:
    """Work on the plan and hand it off."""
    session = await started(caller, plan=plan, agent_id=agent_id)
    assert (await end(caller, session, handoff=NOTES))["status"] == "handed_off"
    return session


async def test_a_hand_off_is_offered_with_its_age_to_each_start_on_the_plan(timed: House, clock: FakeClock) -> None:
    """D-62: with its age, to each start on the plan, and to no other plan's."""
    plan, other = await make_plan(timed), await make_plan(timed)
    writer = await handed(timed.admin, plan)
    clock.advance(minutes=5)

    _, first = await offered(timed.admin, plan, agent_id="lee")
    _, second = await offered(timed.admin, plan, agent_id="mo")
    _, elsewhere = await offered(timed.admin, other, agent_id="lee")

    assert first == second
    assert first is not None
    assert (first["session_id"], first["agent_id"], first["age_s"], first["delivery"]) == (writer, "kim", 300.0, "pending")
    assert {name: first[name] for name in NOTES} == {**NOTES, "blockers": ["no staging key"]}
    assert elsewhere is None
    assert inside(await start(timed.admin, agent_id="lee"), "boot")["handoff"] is None


async def test_a_hand_off_that_is_acknowledged_is_offered_no_more(house: House) -> None:
    """D-62: until a session acknowledges it; the writer's session tells by whom and how; nobody acknowledges what was not offered."""
    for how in ("loaded", "ignored_stale"):
        plan = await make_plan(house)
        early = await started(house.admin, plan=plan, agent_id="early")
        writer = await handed(house.admin, plan)
        reader, offer = await offered(house.admin, plan, agent_id="lee")
        assert offer is not None

        told(await house.admin.send("PATCH", f"{SESSIONS}/{reader}", {"acknowledge_handoff": how}))

        assert (await offered(house.admin, plan, agent_id="mo"))[1] is None
        taken = inside(await show(house.admin, writer), "handoff")
        assert (taken["delivery"], taken["taken_by"]) == (how, reader)
        nothing = await house.admin.send("PATCH", f"{SESSIONS}/{early}", {"acknowledge_handoff": how})
        assert refused(nothing) == (409, "no_handoff_offered")


async def test_who_goes_on_with_the_work_has_taken_the_hand_off(house: House) -> None:
    """D-62: until a session completes a task."""
    plan = await make_plan(house, "first", "second")
    writer = await handed(house.admin, plan)
    reader, _ = await offered(house.admin, plan, agent_id="lee")
    task = told(await house.admin.post("/api/agent/tasks/claim-next", {"plan": plan, "session_id": reader}))
    token = inside(task, "claim")["token"] if "token" in inside(task, "claim") else task["claim_token"]

    assert (await offered(house.admin, plan, agent_id="mo"))[1] is not None
    told(await house.admin.post(f"/api/agent/tasks/{task['id']}/complete", {"claim_token": token, "result": "done"}))

    assert (await offered(house.admin, plan, agent_id="pat"))[1] is None
    taken = inside(await show(house.admin, writer), "handoff")
    assert (taken["delivery"], taken["taken_by"]) == ("task_completed", reader)
    assert inside(await show(house.admin, reader), "stats")["tasks_completed"] == 1


async def test_what_is_completed_by_force_is_not_the_session_s_work(house: House) -> None:
    """D-61, D-62: whoever takes a task from its holder by force did it in no session: the hand-off is offered still."""
    plan = await make_plan(house, "first")
    await handed(house.admin, plan)
    reader, _ = await offered(house.admin, plan, agent_id="lee")
    task = told(await house.admin.post("/api/agent/tasks/claim-next", {"plan": plan, "session_id": reader}))

    told(await house.admin.post(f"/api/agent/tasks/{task['id']}/complete", {"force": True}))

    last = items(told(await house.admin.get(f"/api/agent/plans/{plan}/events")))[-1]
    assert (last["type"], last["session_id"], inside(last, "data", "holder")["session_id"]) == ("task.completed", None, reader)
    assert (await offered(house.admin, plan, agent_id="mo"))[1] is not None
    assert inside(await show(house.admin, reader), "stats")["tasks_completed"] == 0


async def test_who_writes_a_hand_off_has_taken_the_one_before(house: House) -> None:
    """D-62: until a session writes its own; the next ones are offered that."""
    plan = await make_plan(house)
    writer = await handed(house.admin, plan)
    reader, _ = await offered(house.admin, plan, agent_id="lee")

    await end(house.admin, reader, handoff={"summary": "Nearly done."})

    _, offer = await offered(house.admin, plan, agent_id="mo")
    assert offer is not None
    assert (offer["session_id"], offer["summary"]) == (reader, "Nearly done.")
    assert inside(await show(house.admin, writer), "handoff")["delivery"] == "own_handoff"


async def test_a_hand_off_written_on_the_way_outlives_a_crash(house: House) -> None:
    """D-62: an open session may write its hand-off, and write it again; whoever starts next is offered the last one."""
    plan = await make_plan(house)
    crashed = await started(house.admin, plan=plan, agent_id="kim")
    for summary in ("Began.", "Schema is there."):
        told(await house.admin.send("PATCH", f"{SESSIONS}/{crashed}", {"handoff": {"summary": summary}}))
    await note(house.admin, crashed, type="checkpoint", message="migrated", state={"migration": 12})

    answer = inside(await start(house.admin, plan=plan, agent_id="lee"), "boot")

    assert inside(answer, "handoff")["summary"] == "Schema is there."
    checkpoint = inside(answer, "checkpoint")
    assert (checkpoint["state"], checkpoint["agent_id"], checkpoint["session_id"]) == ({"migration": 12}, "kim", crashed)


async def test_a_successor_is_given_what_its_predecessor_left(house: House) -> None:
    """D-62: resuming delivers hand-off and checkpoint without a plan too, and of that session alone."""
    first = await started(house.agent)
    await note(house.agent, first, type="checkpoint", state={"step": 1})
    await note(house.agent, first, type="checkpoint", state={"step": 2})
    await end(house.agent, first, status="handed_off", summary="Look at step 3.")
    await start(house.agent)

    boot = inside(told(await house.agent.post(f"{SESSIONS}/{first}/resume", {}), 201), "boot")

    assert inside(boot, "handoff")["summary"] == "Look at step 3."
    assert inside(boot, "checkpoint")["state"] == {"step": 2}


async def test_a_hand_off_of_another_workspace_is_never_offered(house: House) -> None:
    """Spec 2.8: workspace_id is a hard tenant boundary."""
    plan = await make_plan(house)
    await handed(house.admin, plan)
    other = await house.workspace("other")
    stranger = await house.api_key(workspace_id=other)
    await make_plan(house, workspace_id=other)

    assert (await offered(stranger, plan))[1] is None
