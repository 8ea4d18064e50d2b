"""Claims in a session: whose plan they are of, what proves them, and how a session is handed over (D-61, D-62)."""

from __future__ import annotations

from typing import cast

from tests.agents.makers import claim, claim_next, get_json, make_plan, phase, tasks_of
from tests.agents.session_makers import end_session, error_of, get_session, parse_body, start_session, start_session_id
from tests.conftest import Caller, FakeClock, Instance

TASKS = "/api/agent/tasks"
SESSIONS = "/api/agent/sessions"
Json = dict[str, object]


async def _call(by: Caller, tool: str, **arguments: object) -> Json:
    answer = await by.post("/api/v1/mcp/tools/call", {"server": "agents", "tool": tool, "arguments": arguments})
    assert answer.status_code == 200, answer.text
    return answer.json()["result"]["structuredContent"]


async def test_claim_next_in_a_session_takes_tasks_of_its_plan(instance: Instance) -> None:
    """Issue 14: the session's plan is the default of claim-next, over HTTP and MCP; D-61."""
    await make_plan(instance.agent, phase("Old", "foreign 1", "foreign 2", "foreign 3"), title="Older plan")
    await make_plan(instance.agent, phase("New", "mine 1", "mine 2", "mine 3"), title="Newsletter")
    session = await start_session_id(instance.agent, plan="newsletter")

    first = await claim_next(instance.agent, session_id=session)
    assert first is not None
    assert first["name"] == "mine 1"
    ended = parse_body(
        await instance.agent.post(f"{TASKS}/{first['id']}/complete", {"claim_token": first["claim_token"], "claim_next": True})
    )
    following = cast("Json", ended["next"])
    assert (following["name"], cast("Json", cast("Json", following["claim"])["holder"])["session_id"]) == ("mine 2", session)
    by_tool = cast("Json", (await _call(instance.agent, "task_claim_next", session_id=session))["task"])
    assert by_tool["name"] == "mine 3"
    left = await instance.agent.post(f"{TASKS}/claim-next", {"session_id": session})
    assert (left.status_code, left.headers["x-reason"], left.headers["x-plan"]) == (204, "all_claimed", "newsletter")


async def test_claim_next_takes_tasks_of_any_plan_if_it_is_told_so(instance: Instance) -> None:
    """Issue 14: null or `any` as plan, or a session without a plan, mean any active plan; D-61."""
    await make_plan(instance.agent, phase("Old", "a", "b", "c", "d"), title="Older plan")
    await make_plan(instance.agent, phase("New", "mine"), title="Newsletter")
    session, free = await start_session_id(instance.agent, plan="newsletter"), await start_session_id(instance.agent)

    found = [
        await claim_next(instance.agent, session_id=session, plan=None),
        await claim_next(instance.agent, session_id=session, plan="any"),
        cast("Json", (await _call(instance.agent, "task_claim_next", session_id=session, plan="any"))["task"]),
        await claim_next(instance.agent, session_id=free),
        await claim_next(instance.agent, session_id=free, plan="newsletter"),
    ]
    assert [each and each["name"] for each in found] == ["a", "b", "c", "d", "mine"]


async def test_a_draft_is_begun_by_a_session_on_it_and_named_to_others(instance: Instance) -> None:
    """Issue 14: a draft stays a draft until it is named; claim-next without a plan says which draft has tasks; D-60, D-61."""
    made = parse_body(await instance.agent.post("/api/agent/plans", {"title": "Newsletter", "phases": [phase("One", "write it")]}), 201)
    assert made["status"] == "draft"
    nothing = await instance.agent.post(f"{TASKS}/claim-next", {})
    assert (nothing.status_code, nothing.headers["x-reason"], nothing.headers["x-plan"]) == (204, "plan_draft", "newsletter")
    by_tool = await _call(instance.agent, "task_claim_next")
    assert (by_tool["reason"], by_tool["plan"]) == ("plan_draft", "newsletter")

    session = await start_session_id(instance.agent, plan="newsletter")
    taken = await claim_next(instance.agent, session_id=session)
    assert taken is not None
    assert taken["name"] == "write it"
    assert (await get_json(instance.agent, "/plans/newsletter"))["status"] == "active"


async def test_the_session_of_a_claim_proves_it(instance: Instance) -> None:
    """Issue 14: heartbeat, release, fail and complete take the session that the task was claimed in, in place of the token; D-61."""
    await make_plan(instance.agent, phase("One", "a", "b"), title="Newsletter")
    session = await start_session_id(instance.agent, plan="newsletter")
    taken = await claim_next(instance.agent, session_id=session)
    assert taken is not None
    path, proof = f"{TASKS}/{taken['id']}", {"session_id": session}
    assert parse_body(await instance.agent.post(f"{path}/heartbeat", proof))["status"] == "in_progress"
    assert parse_body(await instance.agent.post(f"{path}/release", proof))["status"] == "pending"
    await claim(instance.agent, taken["id"], session_id=session)
    assert parse_body(await instance.agent.post(f"{path}/complete", {**proof, "claim_next": True}))["status"] == "completed"
    second = f"{TASKS}/{tasks_of(await get_json(instance.agent, '/plans/newsletter'))['b']['id']}"
    failed = await _call(instance.agent, "task_fail", task_id=second.rsplit("/", 1)[1], session_id=session, error="no ink")
    assert failed["status"] == "failed"
    neither = await instance.agent.post(f"{second}/complete", {})
    assert error_of(neither) == (422, "validation_error")
    assert "session_id" in neither.json()["errors"]["claim_token"][0]


async def test_another_session_proves_nothing(instance: Instance) -> None:
    """Issue 14: a session of another agent, or one that did not make the claim, ends no lease; D-61."""
    made = await make_plan(instance.agent, phase("One", "a"), title="Newsletter")
    mine, other = await start_session_id(instance.agent, plan="newsletter"), await start_session_id(instance.agent)
    stranger = await instance.agent_key("phases.write", "sessions.write", agent_id="stranger")
    path = f"{TASKS}/{tasks_of(made)['a']['id']}"
    await claim(instance.agent, tasks_of(made)["a"]["id"], session_id=mine)

    assert error_of(await instance.agent.post(f"{path}/complete", {"session_id": other})) == (409, "lease_lost")
    assert error_of(await stranger.post(f"{path}/complete", {"session_id": mine})) == (403, "permission_denied")
    forced = await stranger.post(f"{path}/complete", {"session_id": mine, "force": True})
    assert forced.status_code == 200, forced.text
    events = cast("list[Json]", (await get_json(instance.agent, "/plans/newsletter/events"))["data"])
    assert cast("Json", events[-1]["data"] if events[-1]["type"] == "task.completed" else events[-2]["data"])["forced"] is True


async def test_a_wrong_token_is_told_from_an_ended_lease(clocked_instance: Instance, clock: FakeClock) -> None:
    """Issue 14: a token of another claim is not `your lease has ended`, at each verb; the code stays lease_lost; D-61."""
    made = await make_plan(clocked_instance.agent, phase("One", "a", "b"), title="Newsletter")
    first, second = [await claim(clocked_instance.agent, tasks_of(made)[name]["id"], ttl_s=600) for name in ("a", "b")]
    path = f"{TASKS}/{first['id']}"
    for verb, body in (("heartbeat", {}), ("complete", {}), ("release", {}), ("fail", {"error": "x"})):
        of_other = await clocked_instance.agent.post(f"{path}/{verb}", {"claim_token": second["claim_token"], **body})
        unknown = await clocked_instance.agent.post(f"{path}/{verb}", {"claim_token": "guessed", **body})
        assert error_of(of_other) == error_of(unknown) == (409, "lease_lost")
        assert "belongs to the claim of the task 'b'" in of_other.json()["message"]
        assert of_other.json()["token_task_id"] == second["id"]
        assert "does not match the current claim" in unknown.json()["message"]
        assert "has ended;" not in of_other.json()["message"] + unknown.json()["message"]
    clock.advance(seconds=601)
    late = await clocked_instance.agent.post(f"{path}/complete", {"claim_token": first["claim_token"]})
    assert "Your lease of the task 'a' has ended" in late.json()["message"]


async def test_an_empty_handoff_is_refused(instance: Instance) -> None:
    """Issue 14: a hand-off without content hands nothing over: 422, at the end and in a change; D-62."""
    session = await start_session_id(instance.agent)
    for empty in cast("list[object]", [{}, "", "  ", {"summary": " "}, {"completed": []}, {"refs": []}]):
        for answer in (
            await instance.agent.post(f"{SESSIONS}/{session}/end", {"handoff": empty}),
            await instance.agent.send("PATCH", f"{SESSIONS}/{session}", {"handoff": empty}),
        ):
            assert error_of(answer) == (422, "validation_error"), empty
            assert "summary" in str(answer.json()["errors"]), empty
    assert (await get_session(instance.agent, session))["status"] == "active"


async def test_a_text_is_a_handoff_with_a_summary(instance: Instance) -> None:
    """Issue 14: `"handoff": "text"` is its summary; `refs: []` stays empty; D-62."""
    session, other = await start_session_id(instance.agent), await start_session_id(instance.agent)
    ended = await end_session(instance.agent, session, handoff="The kettle is on.")
    assert (ended["status"], cast("Json", ended["handoff"])["summary"]) == ("handed_off", "The kettle is on.")
    assert cast("Json", (await end_session(instance.agent, other, handoff={"summary": "x", "refs": []}))["handoff"])["refs"] == {}


async def test_an_end_that_would_be_dropped_is_refused(instance: Instance) -> None:
    """Issue 14: the same end again is as once; another hand-off or summary is 409 session_ended, and nothing is lost in silence; D-62."""
    session = await start_session_id(instance.agent)
    first = await end_session(instance.agent, session, handoff={"summary": "hi"}, summary="done")
    assert await end_session(instance.agent, session, handoff="hi") == first
    for body in ({"handoff": "else"}, {"summary": "else", "status": "handed_off"}):
        assert error_of(await instance.agent.post(f"{SESSIONS}/{session}/end", body)) == (409, "session_ended")
    assert await get_session(instance.agent, session) == first


async def test_release_fail_and_end_are_replayed_by_their_key(instance: Instance) -> None:
    """Issue 14: with an Idempotency-Key the same release, failure or end is answered again, as complete is; D-14."""
    made = await make_plan(instance.agent, phase("One", "a", "b"), title="Newsletter")
    session = str(cast("Json", (await start_session(instance.agent))["session"])["id"])
    verbs: list[tuple[str, Json]] = [("release", {}), ("fail", {"error": "no ink"}), ("complete", {})]
    for number, (verb, body) in enumerate(verbs):
        held = await claim(instance.agent, tasks_of(made)["b" if verb == "complete" else "a"]["id"])
        sent = {"claim_token": held["claim_token"], **body}
        answers = [
            await instance.agent.send("POST", f"{TASKS}/{held['id']}/{verb}", sent, **{"Idempotency-Key": f"k{number}"}) for _ in range(2)
        ]
        assert [each.status_code for each in answers] == [200, 200], verb
        assert (answers[0].content, answers[1].headers["idempotent-replay"]) == (answers[1].content, "true")
    for path, body in ((f"{SESSIONS}/{session}/end", {"summary": "x"}), ("/api/agent/plans/newsletter/archive", {"reason": "x"})):
        answers = [await instance.agent.send("POST", path, body, **{"Idempotency-Key": "k9"}) for _ in range(2)]
        assert answers[1].headers["idempotent-replay"] == "true", path
