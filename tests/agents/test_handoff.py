"""Hand-offs: a session's hand-off is offered to later sessions until one of them takes it."""

from __future__ import annotations

from typing import cast

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
from tests.conftest import Caller, FakeClock, Instance

NOTES: Json = {
    "summary": "Half done.",
    "completed": ["schema"],
    "remaining": ["api", "docs"],
    "blockers": "no staging key",
    "decisions": ["SQLite first"],
    "next_steps": ["write the api"],
    "refs": {"branch": "feat/x", "files": ["a.py"]},
}


async def start_with_offer(caller: Caller, plan: str, **fields: object) -> tuple[str, Json | None]:
    """Start a session on the plan; return its id and the offered hand-off."""
    response = await start_session(caller, plan=plan, **fields)
    return str(get_nested(response, "session")["id"]), cast("Json | None", get_nested(response, "boot")["handoff"])


async def hand_off(caller: Caller, plan: str, agent_id: str = "kim") -> str:
    """Start a session, end it with a hand-off, and return its id."""
    session = await start_session_id(caller, plan=plan, agent_id=agent_id)
    assert (await end_session(caller, session, handoff=NOTES))["status"] == "handed_off"
    return session


async def test_a_hand_off_is_offered_to_each_session_on_the_plan(clocked_instance: Instance, clock: FakeClock) -> None:
    """With its age, and to no session on another plan."""
    plan, other_plan = await make_plan(clocked_instance), await make_plan(clocked_instance)
    writer = await hand_off(clocked_instance.admin, plan)
    clock.advance(minutes=5)

    _, first = await start_with_offer(clocked_instance.admin, plan, agent_id="lee")
    _, second = await start_with_offer(clocked_instance.admin, plan, agent_id="mo")
    _, elsewhere = await start_with_offer(clocked_instance.admin, other_plan, agent_id="lee")

    assert first == second
    assert first is not None
    assert (first["session_id"], first["agent_id"], first["age_s"], first["delivery"]) == (writer, "kim", 300.0, "pending")
    assert {name: first[name] for name in NOTES} == {**NOTES, "blockers": ["no staging key"]}
    assert elsewhere is None
    assert get_nested(await start_session(clocked_instance.admin, agent_id="lee"), "boot")["handoff"] is None


async def test_an_acknowledged_hand_off_is_no_longer_offered(instance: Instance) -> None:
    """The writer's session shows which session took it and how. Only an offered hand-off can be acknowledged."""
    for outcome in ("loaded", "ignored_stale"):
        plan = await make_plan(instance)
        earlier_session = await start_session_id(instance.admin, plan=plan, agent_id="early")
        writer = await hand_off(instance.admin, plan)
        reader, offer = await start_with_offer(instance.admin, plan, agent_id="lee")
        assert offer is not None

        parse_body(await instance.admin.send("PATCH", f"{SESSIONS}/{reader}", {"acknowledge_handoff": outcome}))

        assert (await start_with_offer(instance.admin, plan, agent_id="mo"))[1] is None
        handoff = get_nested(await get_session(instance.admin, writer), "handoff")
        assert (handoff["delivery"], handoff["taken_by"]) == (outcome, reader)
        without_offer = await instance.admin.send("PATCH", f"{SESSIONS}/{earlier_session}", {"acknowledge_handoff": outcome})
        assert error_of(without_offer) == (409, "no_handoff_offered")


async def test_completing_a_task_takes_the_hand_off(instance: Instance) -> None:
    """The hand-off is offered until a session completes a task."""
    plan = await make_plan(instance, "first", "second")
    writer = await hand_off(instance.admin, plan)
    reader, _ = await start_with_offer(instance.admin, plan, agent_id="lee")
    task = parse_body(await instance.admin.post("/api/agent/tasks/claim-next", {"plan": plan, "session_id": reader}))
    token = get_nested(task, "claim")["token"] if "token" in get_nested(task, "claim") else task["claim_token"]

    assert (await start_with_offer(instance.admin, plan, agent_id="mo"))[1] is not None
    parse_body(await instance.admin.post(f"/api/agent/tasks/{task['id']}/complete", {"claim_token": token, "result": "done"}))

    assert (await start_with_offer(instance.admin, plan, agent_id="pat"))[1] is None
    handoff = get_nested(await get_session(instance.admin, writer), "handoff")
    assert (handoff["delivery"], handoff["taken_by"]) == ("task_completed", reader)
    assert get_nested(await get_session(instance.admin, reader), "stats")["tasks_completed"] == 1


async def test_a_forced_completion_does_not_take_the_hand_off(instance: Instance) -> None:
    """A forced completion is outside a session, so the hand-off is still offered."""
    plan = await make_plan(instance, "first")
    await hand_off(instance.admin, plan)
    reader, _ = await start_with_offer(instance.admin, plan, agent_id="lee")
    task = parse_body(await instance.admin.post("/api/agent/tasks/claim-next", {"plan": plan, "session_id": reader}))

    parse_body(await instance.admin.post(f"/api/agent/tasks/{task['id']}/complete", {"force": True}))

    last_event = get_list(parse_body(await instance.admin.get(f"/api/agent/plans/{plan}/events")))[-1]
    assert (last_event["type"], last_event["session_id"], get_nested(last_event, "data", "holder")["session_id"]) == (
        "task.completed",
        None,
        reader,
    )
    assert (await start_with_offer(instance.admin, plan, agent_id="mo"))[1] is not None
    assert get_nested(await get_session(instance.admin, reader), "stats")["tasks_completed"] == 0


async def test_writing_a_hand_off_takes_the_previous_one(instance: Instance) -> None:
    """Later sessions get the new one."""
    plan = await make_plan(instance)
    writer = await hand_off(instance.admin, plan)
    reader, _ = await start_with_offer(instance.admin, plan, agent_id="lee")

    await end_session(instance.admin, reader, handoff={"summary": "Nearly done."})

    _, offer = await start_with_offer(instance.admin, plan, agent_id="mo")
    assert offer is not None
    assert (offer["session_id"], offer["summary"]) == (reader, "Nearly done.")
    assert get_nested(await get_session(instance.admin, writer), "handoff")["delivery"] == "own_handoff"


async def test_a_hand_off_of_an_open_session_survives_a_crash(instance: Instance) -> None:
    """An open session may write its hand-off repeatedly; the next session gets the last one."""
    plan = await make_plan(instance)
    open_session = await start_session_id(instance.admin, plan=plan, agent_id="kim")
    for summary in ("Began.", "Schema is there."):
        parse_body(await instance.admin.send("PATCH", f"{SESSIONS}/{open_session}", {"handoff": {"summary": summary}}))
    await append_event(instance.admin, open_session, type="checkpoint", message="migrated", state={"migration": 12})

    response = get_nested(await start_session(instance.admin, plan=plan, agent_id="lee"), "boot")

    assert get_nested(response, "handoff")["summary"] == "Schema is there."
    checkpoint = get_nested(response, "checkpoint")
    assert (checkpoint["state"], checkpoint["agent_id"], checkpoint["session_id"]) == ({"migration": 12}, "kim", open_session)


async def test_a_resumed_session_gets_the_hand_off_of_its_predecessor(instance: Instance) -> None:
    """With the checkpoint, also without a plan, and only from that session."""
    first = await start_session_id(instance.agent)
    await append_event(instance.agent, first, type="checkpoint", state={"step": 1})
    await append_event(instance.agent, first, type="checkpoint", state={"step": 2})
    await end_session(instance.agent, first, status="handed_off", summary="Look at step 3.")
    await start_session(instance.agent)

    boot = get_nested(parse_body(await instance.agent.post(f"{SESSIONS}/{first}/resume", {}), 201), "boot")

    assert get_nested(boot, "handoff")["summary"] == "Look at step 3."
    assert get_nested(boot, "checkpoint")["state"] == {"step": 2}


async def test_a_hand_off_of_another_workspace_is_never_offered(instance: Instance) -> None:
    """workspace_id is a hard tenant boundary."""
    plan = await make_plan(instance)
    await hand_off(instance.admin, plan)
    other_workspace = await instance.workspace("other")
    other_caller = await instance.api_key(workspace_id=other_workspace)
    await make_plan(instance, workspace_id=other_workspace)

    assert (await start_with_offer(other_caller, plan))[1] is None
