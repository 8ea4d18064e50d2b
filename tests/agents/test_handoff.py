"""Hand-offs: what one session leaves is offered to the next ones until one of them takes it (D-62)."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import cast

import pytest

from tests.agents.session_makers import (
    SESSIONS,
    Json,
    append_event,
    end_session,
    error_of,
    get_list,
    get_nested,
    get_session,
    make_plan,
    parse_body,
    start_session,
    start_session_id,
)
from tests.conftest import Caller, FakeClock, Instance, Settings, run_instance

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
async def clocked_instance(settings: Settings, clock: FakeClock) -> AsyncIterator[Instance]:
    """A running server whose clock is the test's."""
    async with run_instance(settings, clock) as opened:
        yield opened


async def offered(caller: Caller, plan: str, **fields: object) -> tuple[str, Json | None]:
    """Start a session on the plan; return its id and the hand-off that it is offered."""
    answer = await start_session(caller, plan=plan, **fields)
    return str(get_nested(answer, "session")["id"]), cast("Json | None", get_nested(answer, "boot")["handoff"])


async def handed(caller: Caller, plan: str, agent_id: str = "kim") -> str:
    """Work on the plan and hand it off."""
    session = await start_session_id(caller, plan=plan, agent_id=agent_id)
    assert (await end_session(caller, session, handoff=NOTES))["status"] == "handed_off"
    return session


async def test_a_hand_off_is_offered_with_its_age_to_each_start_on_the_plan(clocked_instance: Instance, clock: FakeClock) -> None:
    """D-62: with its age, to each start on the plan, and to no other plan's."""
    plan, other = await make_plan(clocked_instance), await make_plan(clocked_instance)
    writer = await handed(clocked_instance.admin, plan)
    clock.advance(minutes=5)

    _, first = await offered(clocked_instance.admin, plan, agent_id="lee")
    _, second = await offered(clocked_instance.admin, plan, agent_id="mo")
    _, elsewhere = await offered(clocked_instance.admin, other, agent_id="lee")

    assert first == second
    assert first is not None
    assert (first["session_id"], first["agent_id"], first["age_s"], first["delivery"]) == (writer, "kim", 300.0, "pending")
    assert {name: first[name] for name in NOTES} == {**NOTES, "blockers": ["no staging key"]}
    assert elsewhere is None
    assert get_nested(await start_session(clocked_instance.admin, agent_id="lee"), "boot")["handoff"] is None


async def test_a_hand_off_that_is_acknowledged_is_offered_no_more(instance: Instance) -> None:
    """D-62: offered until a session acknowledges it; the writer's session shows by whom and how; only offered ones can be acknowledged."""
    for how in ("loaded", "ignored_stale"):
        plan = await make_plan(instance)
        early = await start_session_id(instance.admin, plan=plan, agent_id="early")
        writer = await handed(instance.admin, plan)
        reader, offer = await offered(instance.admin, plan, agent_id="lee")
        assert offer is not None

        parse_body(await instance.admin.send("PATCH", f"{SESSIONS}/{reader}", {"acknowledge_handoff": how}))

        assert (await offered(instance.admin, plan, agent_id="mo"))[1] is None
        taken = get_nested(await get_session(instance.admin, writer), "handoff")
        assert (taken["delivery"], taken["taken_by"]) == (how, reader)
        nothing = await instance.admin.send("PATCH", f"{SESSIONS}/{early}", {"acknowledge_handoff": how})
        assert error_of(nothing) == (409, "no_handoff_offered")


async def test_who_goes_on_with_the_work_has_taken_the_hand_off(instance: Instance) -> None:
    """D-62: until a session completes a task."""
    plan = await make_plan(instance, "first", "second")
    writer = await handed(instance.admin, plan)
    reader, _ = await offered(instance.admin, plan, agent_id="lee")
    task = parse_body(await instance.admin.post("/api/agent/tasks/claim-next", {"plan": plan, "session_id": reader}))
    token = get_nested(task, "claim")["token"] if "token" in get_nested(task, "claim") else task["claim_token"]

    assert (await offered(instance.admin, plan, agent_id="mo"))[1] is not None
    parse_body(await instance.admin.post(f"/api/agent/tasks/{task['id']}/complete", {"claim_token": token, "result": "done"}))

    assert (await offered(instance.admin, plan, agent_id="pat"))[1] is None
    taken = get_nested(await get_session(instance.admin, writer), "handoff")
    assert (taken["delivery"], taken["taken_by"]) == ("task_completed", reader)
    assert get_nested(await get_session(instance.admin, reader), "stats")["tasks_completed"] == 1


async def test_what_is_completed_by_force_is_not_the_session_s_work(instance: Instance) -> None:
    """D-61, D-62: a forced claim happens outside a session: the hand-off is still offered."""
    plan = await make_plan(instance, "first")
    await handed(instance.admin, plan)
    reader, _ = await offered(instance.admin, plan, agent_id="lee")
    task = parse_body(await instance.admin.post("/api/agent/tasks/claim-next", {"plan": plan, "session_id": reader}))

    parse_body(await instance.admin.post(f"/api/agent/tasks/{task['id']}/complete", {"force": True}))

    last = get_list(parse_body(await instance.admin.get(f"/api/agent/plans/{plan}/events")))[-1]
    assert (last["type"], last["session_id"], get_nested(last, "data", "holder")["session_id"]) == ("task.completed", None, reader)
    assert (await offered(instance.admin, plan, agent_id="mo"))[1] is not None
    assert get_nested(await get_session(instance.admin, reader), "stats")["tasks_completed"] == 0


async def test_who_writes_a_hand_off_has_taken_the_one_before(instance: Instance) -> None:
    """D-62: until a session writes its own; the next ones are offered that."""
    plan = await make_plan(instance)
    writer = await handed(instance.admin, plan)
    reader, _ = await offered(instance.admin, plan, agent_id="lee")

    await end_session(instance.admin, reader, handoff={"summary": "Nearly done."})

    _, offer = await offered(instance.admin, plan, agent_id="mo")
    assert offer is not None
    assert (offer["session_id"], offer["summary"]) == (reader, "Nearly done.")
    assert get_nested(await get_session(instance.admin, writer), "handoff")["delivery"] == "own_handoff"


async def test_a_hand_off_written_on_the_way_outlives_a_crash(instance: Instance) -> None:
    """D-62: an open session may write its hand-off repeatedly; the next session is offered the last one."""
    plan = await make_plan(instance)
    crashed = await start_session_id(instance.admin, plan=plan, agent_id="kim")
    for summary in ("Began.", "Schema is there."):
        parse_body(await instance.admin.send("PATCH", f"{SESSIONS}/{crashed}", {"handoff": {"summary": summary}}))
    await append_event(instance.admin, crashed, type="checkpoint", message="migrated", state={"migration": 12})

    answer = get_nested(await start_session(instance.admin, plan=plan, agent_id="lee"), "boot")

    assert get_nested(answer, "handoff")["summary"] == "Schema is there."
    checkpoint = get_nested(answer, "checkpoint")
    assert (checkpoint["state"], checkpoint["agent_id"], checkpoint["session_id"]) == ({"migration": 12}, "kim", crashed)


async def test_a_successor_is_given_what_its_predecessor_left(instance: Instance) -> None:
    """D-62: resuming delivers hand-off and checkpoint without a plan too, and of that session alone."""
    first = await start_session_id(instance.agent)
    await append_event(instance.agent, first, type="checkpoint", state={"step": 1})
    await append_event(instance.agent, first, type="checkpoint", state={"step": 2})
    await end_session(instance.agent, first, status="handed_off", summary="Look at step 3.")
    await start_session(instance.agent)

    boot = get_nested(parse_body(await instance.agent.post(f"{SESSIONS}/{first}/resume", {}), 201), "boot")

    assert get_nested(boot, "handoff")["summary"] == "Look at step 3."
    assert get_nested(boot, "checkpoint")["state"] == {"step": 2}


async def test_a_hand_off_of_another_workspace_is_never_offered(instance: Instance) -> None:
    """Spec 2.8: workspace_id is a hard tenant boundary."""
    plan = await make_plan(instance)
    await handed(instance.admin, plan)
    other = await instance.workspace("other")
    stranger = await instance.api_key(workspace_id=other)
    await make_plan(instance, workspace_id=other)

    assert (await offered(stranger, plan))[1] is None
