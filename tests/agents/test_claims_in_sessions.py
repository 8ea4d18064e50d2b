"""Claims in a session: the plan they choose from, the credential they need, and how a session is handed off."""

from __future__ import annotations

from typing import cast

from tests.agents.makers import claim, claim_next, get_json, make_plan, phase, tasks_of
from tests.agents.session_makers import end_session, error_of, get_session, parse_body, start_session, start_session_id
from tests.conftest import Caller, FakeClock, Instance

TASKS = "/api/agent/tasks"
SESSIONS = "/api/agent/sessions"
Json = dict[str, object]


async def _call(by: Caller, tool: str, **arguments: object) -> Json:
    response = await by.post("/api/v1/mcp/tools/call", {"server": "agents", "tool": tool, "arguments": arguments})
    assert response.status_code == 200, response.text
    return response.json()["result"]["structuredContent"]


async def test_claim_next_in_a_session_takes_tasks_of_its_plan(instance: Instance) -> None:
    """The session's plan is the default of claim-next, over HTTP and MCP."""
    await make_plan(instance.agent, phase("Old", "foreign 1", "foreign 2", "foreign 3"), title="Older plan")
    await make_plan(instance.agent, phase("New", "mine 1", "mine 2", "mine 3"), title="Newsletter")
    session = await start_session_id(instance.agent, plan="newsletter")

    first = await claim_next(instance.agent, session_id=session)
    assert first is not None
    assert first["name"] == "mine 1"
    completed = parse_body(
        await instance.agent.post(f"{TASKS}/{first['id']}/complete", {"claim_token": first["claim_token"], "claim_next": True})
    )
    next_task = cast("Json", completed["next"])
    assert (next_task["name"], cast("Json", cast("Json", next_task["claim"])["holder"])["session_id"]) == ("mine 2", session)
    by_tool = cast("Json", (await _call(instance.agent, "task_claim_next", session_id=session))["task"])
    assert by_tool["name"] == "mine 3"
    empty = await instance.agent.post(f"{TASKS}/claim-next", {"session_id": session})
    assert (empty.status_code, empty.headers["x-reason"], empty.headers["x-plan"]) == (204, "all_claimed", "newsletter")


async def test_claim_next_takes_tasks_of_any_plan_on_request(instance: Instance) -> None:
    """Null or `any` as the plan, or a session without a plan, means any active plan."""
    await make_plan(instance.agent, phase("Old", "a", "b", "c", "d"), title="Older plan")
    await make_plan(instance.agent, phase("New", "mine"), title="Newsletter")
    session, without_plan = await start_session_id(instance.agent, plan="newsletter"), await start_session_id(instance.agent)

    claimed_tasks = [
        await claim_next(instance.agent, session_id=session, plan=None),
        await claim_next(instance.agent, session_id=session, plan="any"),
        cast("Json", (await _call(instance.agent, "task_claim_next", session_id=session, plan="any"))["task"]),
        await claim_next(instance.agent, session_id=without_plan),
        await claim_next(instance.agent, session_id=without_plan, plan="newsletter"),
    ]
    assert [claimed_task and claimed_task["name"] for claimed_task in claimed_tasks] == ["a", "b", "c", "d", "mine"]


async def test_a_session_activates_its_draft_and_other_claims_get_its_name(instance: Instance) -> None:
    """A draft stays a draft until a claim names it. Without a plan, claim-next returns which draft has tasks."""
    draft = parse_body(await instance.agent.post("/api/agent/plans", {"title": "Newsletter", "phases": [phase("One", "write it")]}), 201)
    assert draft["status"] == "draft"
    empty = await instance.agent.post(f"{TASKS}/claim-next", {})
    assert (empty.status_code, empty.headers["x-reason"], empty.headers["x-plan"]) == (204, "plan_draft", "newsletter")
    by_tool = await _call(instance.agent, "task_claim_next")
    assert (by_tool["reason"], by_tool["plan"]) == ("plan_draft", "newsletter")

    session = await start_session_id(instance.agent, plan="newsletter")
    claimed_task = await claim_next(instance.agent, session_id=session)
    assert claimed_task is not None
    assert claimed_task["name"] == "write it"
    assert (await get_json(instance.agent, "/plans/newsletter"))["status"] == "active"


async def test_a_claim_accepts_its_session_as_credential(instance: Instance) -> None:
    """Heartbeat, release, fail and complete accept the session of the claim instead of the token."""
    await make_plan(instance.agent, phase("One", "a", "b"), title="Newsletter")
    session = await start_session_id(instance.agent, plan="newsletter")
    claimed_task = await claim_next(instance.agent, session_id=session)
    assert claimed_task is not None
    path, credential = f"{TASKS}/{claimed_task['id']}", {"session_id": session}
    assert parse_body(await instance.agent.post(f"{path}/heartbeat", credential))["status"] == "in_progress"
    assert parse_body(await instance.agent.post(f"{path}/release", credential))["status"] == "pending"
    await claim(instance.agent, claimed_task["id"], session_id=session)
    assert parse_body(await instance.agent.post(f"{path}/complete", {**credential, "claim_next": True}))["status"] == "completed"
    second = f"{TASKS}/{tasks_of(await get_json(instance.agent, '/plans/newsletter'))['b']['id']}"
    failed = await _call(instance.agent, "task_fail", task_id=second.rsplit("/", 1)[1], session_id=session, error="no ink")
    assert failed["status"] == "failed"
    without_credential = await instance.agent.post(f"{second}/complete", {})
    assert error_of(without_credential) == (422, "validation_error")
    assert "session_id" in without_credential.json()["errors"]["claim_token"][0]


async def test_another_session_is_no_credential(instance: Instance) -> None:
    """A session of another agent, or one that did not claim the task, ends no lease."""
    plan = await make_plan(instance.agent, phase("One", "a"), title="Newsletter")
    own_session, other_session = await start_session_id(instance.agent, plan="newsletter"), await start_session_id(instance.agent)
    other_agent = await instance.agent_key("phases.write", "sessions.write", agent_id="stranger")
    path = f"{TASKS}/{tasks_of(plan)['a']['id']}"
    await claim(instance.agent, tasks_of(plan)["a"]["id"], session_id=own_session)

    assert error_of(await instance.agent.post(f"{path}/complete", {"session_id": other_session})) == (409, "lease_lost")
    assert error_of(await other_agent.post(f"{path}/complete", {"session_id": own_session})) == (403, "permission_denied")
    with_force = await other_agent.post(f"{path}/complete", {"session_id": own_session, "force": True})
    assert with_force.status_code == 200, with_force.text
    events = cast("list[Json]", (await get_json(instance.agent, "/plans/newsletter/events"))["data"])
    assert cast("Json", events[-1]["data"] if events[-1]["type"] == "task.completed" else events[-2]["data"])["forced"] is True


async def test_a_wrong_token_and_an_expired_lease_have_different_messages(clocked_instance: Instance, clock: FakeClock) -> None:
    """A token of another claim does not get `your lease has ended` from any action. The code stays lease_lost."""
    plan = await make_plan(clocked_instance.agent, phase("One", "a", "b"), title="Newsletter")
    first, second = [await claim(clocked_instance.agent, tasks_of(plan)[name]["id"], ttl_s=600) for name in ("a", "b")]
    path = f"{TASKS}/{first['id']}"
    for verb, body in (("heartbeat", {}), ("complete", {}), ("release", {}), ("fail", {"error": "x"})):
        of_other = await clocked_instance.agent.post(f"{path}/{verb}", {"claim_token": second["claim_token"], **body})
        with_wrong_token = await clocked_instance.agent.post(f"{path}/{verb}", {"claim_token": "guessed", **body})
        assert error_of(of_other) == error_of(with_wrong_token) == (409, "lease_lost")
        assert "belongs to the claim of the task 'b'" in of_other.json()["message"]
        assert of_other.json()["token_task_id"] == second["id"]
        assert "does not match the current claim" in with_wrong_token.json()["message"]
        assert "has ended;" not in of_other.json()["message"] + with_wrong_token.json()["message"]
    clock.advance(seconds=601)
    after_expiry = await clocked_instance.agent.post(f"{path}/complete", {"claim_token": first["claim_token"]})
    assert "Your lease of the task 'a' has ended" in after_expiry.json()["message"]


async def test_an_empty_handoff_is_rejected(instance: Instance) -> None:
    """A hand-off without content is 422, at the end and in a change."""
    session = await start_session_id(instance.agent)
    for handoff in cast("list[object]", [{}, "", "  ", {"summary": " "}, {"completed": []}, {"refs": []}]):
        for response in (
            await instance.agent.post(f"{SESSIONS}/{session}/end", {"handoff": handoff}),
            await instance.agent.send("PATCH", f"{SESSIONS}/{session}", {"handoff": handoff}),
        ):
            assert error_of(response) == (422, "validation_error"), handoff
            assert "summary" in str(response.json()["errors"]), handoff
    assert (await get_session(instance.agent, session))["status"] == "active"


async def test_a_text_is_a_handoff_with_a_summary(instance: Instance) -> None:
    """A text as `handoff` becomes its summary, and `refs: []` stays empty."""
    session, other_session = await start_session_id(instance.agent), await start_session_id(instance.agent)
    handed_off = await end_session(instance.agent, session, handoff="The kettle is on.")
    assert (handed_off["status"], cast("Json", handed_off["handoff"])["summary"]) == ("handed_off", "The kettle is on.")
    assert cast("Json", (await end_session(instance.agent, other_session, handoff={"summary": "x", "refs": []}))["handoff"])["refs"] == {}


async def test_a_different_second_end_is_rejected(instance: Instance) -> None:
    """The same end again changes nothing. Another hand-off or summary is 409 session_ended, and no content is lost."""
    session = await start_session_id(instance.agent)
    first = await end_session(instance.agent, session, handoff={"summary": "hi"}, summary="done")
    assert await end_session(instance.agent, session, handoff="hi") == first
    for body in ({"handoff": "else"}, {"summary": "else", "status": "handed_off"}):
        assert error_of(await instance.agent.post(f"{SESSIONS}/{session}/end", body)) == (409, "session_ended")
    assert await get_session(instance.agent, session) == first


async def test_release_fail_and_end_are_replayed_by_their_key(instance: Instance) -> None:
    """With an Idempotency-Key the same release, failure or end is replayed, as complete is."""
    plan = await make_plan(instance.agent, phase("One", "a", "b"), title="Newsletter")
    session = str(cast("Json", (await start_session(instance.agent))["session"])["id"])
    verbs: list[tuple[str, Json]] = [("release", {}), ("fail", {"error": "no ink"}), ("complete", {})]
    for number, (verb, body) in enumerate(verbs):
        claimed_task = await claim(instance.agent, tasks_of(plan)["b" if verb == "complete" else "a"]["id"])
        body_with_token = {"claim_token": claimed_task["claim_token"], **body}
        responses = [
            await instance.agent.send("POST", f"{TASKS}/{claimed_task['id']}/{verb}", body_with_token, **{"Idempotency-Key": f"k{number}"})
            for _ in range(2)
        ]
        assert [response.status_code for response in responses] == [200, 200], verb
        assert (responses[0].content, responses[1].headers["idempotent-replay"]) == (responses[1].content, "true")
    for path, body in ((f"{SESSIONS}/{session}/end", {"summary": "x"}), ("/api/agent/plans/newsletter/archive", {"reason": "x"})):
        responses = [await instance.agent.send("POST", path, body, **{"Idempotency-Key": "k9"}) for _ in range(2)]
        assert responses[1].headers["idempotent-replay"] == "true", path
