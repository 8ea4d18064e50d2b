"""The tables of statuses, and every status tried with every verb over HTTP."""

from __future__ import annotations

from itertools import product
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rookery.agents.models.plans import PhaseStatus, PlanStatus, TaskStatus
from rookery.agents.plans.dependency_graph import find_cycle
from rookery.agents.plans.transitions import (
    FORCED_LEASE_TRANSITIONS,
    LEASE_TRANSITIONS,
    PHASE_TRANSITIONS,
    PLAN_TRANSITIONS,
    TASK_TRANSITIONS,
    LeaseAction,
)
from tests.agents.makers import Json, claim, get_json, make_plan, phase, set_status, task, tasks_of
from tests.conftest import Instance


def test_the_tables_are_whole() -> None:
    """D-60: every status has its row, and every status but the archived one can be left again."""
    assert (set(PLAN_TRANSITIONS), set(PHASE_TRANSITIONS), set(TASK_TRANSITIONS)) == (set(PlanStatus), set(PhaseStatus), set(TaskStatus))
    assert [status for status, ways in [*PLAN_TRANSITIONS.items(), *PHASE_TRANSITIONS.items(), *TASK_TRANSITIONS.items()] if not ways] == [
        PlanStatus.ARCHIVED
    ]


async def _plan_in(instance: Instance, status: PlanStatus, title: str) -> str:
    made = await make_plan(instance.agent, phase("A"), title=title, status="draft" if status is PlanStatus.DRAFT else "active")
    path = f"/plans/{made['slug']}"
    if status in {PlanStatus.PAUSED, PlanStatus.COMPLETED, PlanStatus.ARCHIVED}:
        await set_status(instance.agent, path, status, **({"force": True} if status is PlanStatus.COMPLETED else {}))
    return path


async def test_a_plan_takes_every_way_of_the_table_and_no_other(instance: Instance) -> None:
    """D-60: draft → active ⇄ paused → completed → active; any → archived; a way that is not there is 409, and nothing changes."""
    for number, (was, wanted) in enumerate(product(PlanStatus, PlanStatus)):
        path = await _plan_in(instance, was, f"plan {number}")
        answer = await instance.agent.send("PATCH", f"/api/agent{path}/status", {"status": wanted, "force": True})
        allowed = was is wanted or wanted is PlanStatus.ARCHIVED or wanted in PLAN_TRANSITIONS[was]
        refusal = "plan_archived" if was is PlanStatus.ARCHIVED else "wrong_transition"

        assert (answer.status_code, answer.json().get("error")) == ((200, None) if allowed else (409, refusal)), (was, wanted)
        assert (await get_json(instance.agent, path))["status"] == (wanted if allowed else was), (was, wanted)


_TO_PHASE: dict[PhaseStatus, list[str]] = {
    PhaseStatus.PENDING: [],
    PhaseStatus.IN_PROGRESS: ["in_progress"],
    PhaseStatus.COMPLETED: ["completed"],
    PhaseStatus.SKIPPED: ["skipped"],
    PhaseStatus.ON_HOLD: ["on_hold"],
}


async def test_a_phase_takes_every_way_of_the_table_and_no_other(instance: Instance) -> None:
    """D-60: each status of a phase with each that is asked for; the one that it has is no change."""
    pairs = list(product(PhaseStatus, PhaseStatus))
    made = await make_plan(instance.agent, *(phase(f"{number}") for number in range(len(pairs))), phase("last"))
    for number, (was, wanted) in enumerate(pairs, 1):
        path = f"/plans/{made['slug']}/phases/{number}"
        for status in _TO_PHASE[was]:
            await set_status(instance.agent, path, status, reason="x")
        answer = await instance.agent.send("PATCH", f"/api/agent{path}/status", {"status": wanted})
        allowed = was is wanted or wanted in PHASE_TRANSITIONS[was]

        assert (answer.status_code, answer.json().get("error")) == ((200, None) if allowed else (409, "wrong_transition")), (was, wanted)
        after = await get_json(instance.agent, path)
        assert after["status"] == (wanted if allowed else was), (was, wanted)
        assert (after["hold_reason"] == "x") == (after["status"] == "on_hold" and was is PhaseStatus.ON_HOLD)


_TO_TASK: dict[TaskStatus, list[str]] = {status: [] if status is TaskStatus.PENDING else [status.value] for status in TaskStatus}


async def test_a_task_takes_every_way_of_the_table_and_no_other(instance: Instance) -> None:
    """D-60: each status of a task with each that is asked for."""
    pairs = list(product(TaskStatus, TaskStatus))
    made = await make_plan(instance.agent, phase("A", *(f"{number}" for number in range(len(pairs)))))
    for number, (was, wanted) in enumerate(pairs):
        path = f"/tasks/{tasks_of(made)[str(number)]['id']}"
        for status in _TO_TASK[was]:
            assert (await instance.agent.send("PATCH", f"/api/agent{path}", {"status": status})).status_code == 200
        answer = await instance.agent.send("PATCH", f"/api/agent{path}", {"status": wanted})
        allowed = was is wanted or wanted in TASK_TRANSITIONS[was]

        assert (answer.status_code, answer.json().get("error")) == ((200, None) if allowed else (409, "wrong_transition")), (was, wanted)
        assert (await get_json(instance.agent, path))["status"] == (wanted if allowed else was), (was, wanted)


@pytest.mark.parametrize("force", [False, True])
async def test_every_verb_is_tried_on_every_status(instance: Instance, force: bool) -> None:
    """D-61, issue: what is not in the table of verbs is 409, and nothing changes."""
    pairs = list(product(LeaseAction, TaskStatus))
    made = await make_plan(instance.agent, phase("A", *(f"{number}" for number in range(len(pairs)))))
    for number, (verb, was) in enumerate(pairs):
        path, body = f"/tasks/{tasks_of(made)[str(number)]['id']}", dict[str, object]()
        if was is TaskStatus.IN_PROGRESS:
            body["claim_token"] = (await claim(instance.agent, tasks_of(made)[str(number)]["id"]))["claim_token"]
        for status in () if was is TaskStatus.IN_PROGRESS else _TO_TASK[was]:
            assert (await instance.agent.send("PATCH", f"/api/agent{path}", {"status": status})).status_code == 200
        if verb is LeaseAction.CLAIM:
            body = {}
        elif verb is LeaseAction.HEARTBEAT:
            body = {"claim_token": body.get("claim_token", "none")}
        else:
            body = {"claim_token": "none"} | body | {"force": force} | ({"error": "x"} if verb is LeaseAction.FAIL else {})
        answer = await instance.agent.post(f"/api/agent{path}/{verb}", body)
        table = FORCED_LEASE_TRANSITIONS if force and verb in FORCED_LEASE_TRANSITIONS else LEASE_TRANSITIONS
        wanted = table[verb].get(was)

        assert (answer.status_code == 200) == (wanted is not None), (verb, was, answer.text)
        assert answer.status_code in {200, 409}
        assert (await get_json(instance.agent, path))["status"] == (was if wanted is None else wanted), (verb, was)


async def test_no_work_begins_where_it_may_not(instance: Instance) -> None:
    """D-60, D-61: not in a paused or completed plan, not in a phase that is closed or on hold, not before what it waits for."""
    made = await make_plan(instance.agent, phase("A", "a", task("b", depends_on=["a"])), phase("B", "c", depends_on=["A"]), phase("C", "d"))
    a, b, c, d = (f"/api/agent/tasks/{tasks_of(made)[name]['id']}" for name in "abcd")

    async def tries(path: str) -> set[tuple[int, str]]:
        answers = [await instance.agent.post(f"{path}/claim"), await instance.agent.send("PATCH", path, {"status": "in_progress"})]
        return {(each.status_code, str(cast("Json", each.json()).get("error"))) for each in answers}

    assert await tries(b) == {(409, "task_blocked")}
    assert await tries(c) == {(409, "task_blocked")}
    await set_status(instance.agent, "/plans/move-house/phases/3", "on_hold", reason="no key")
    assert await tries(d) == {(409, "phase_closed")}
    await set_status(instance.agent, "/plans/move-house/phases/3", "skipped")
    assert await tries(d) == {(409, "phase_closed")}
    assert (await instance.agent.post("/api/agent/plans/move-house/phases/3/tasks", {"name": "e"})).json()["error"] == "phase_closed"
    await set_status(instance.agent, "/plans/move-house", "paused")
    assert await tries(a) == {(409, "plan_not_active")}
    await set_status(instance.agent, "/plans/move-house", "completed", force=True)
    assert await tries(a) == {(409, "plan_not_active")}
    assert (await instance.agent.post("/api/agent/plans/move-house/phases", {"name": "e"})).json()["error"] == "plan_not_active"


async def test_tasks_of_a_skipped_phase_hold_nobody_up(instance: Instance) -> None:
    """D-60: what waits for a task of a phase that was skipped may go on, and what is skipped does not count as work to do."""
    made = await make_plan(instance.agent, phase("A", "a1", "a2"), phase("B", task("b", depends_on=["a1"]), depends_on=["A"]))
    await set_status(instance.agent, "/plans/move-house/phases/1", "skipped")
    seen = await get_json(instance.agent, f"/tasks/{tasks_of(made)['b']['id']}")

    assert (seen["ready"], seen["blocked_by"]) == (True, [])
    assert (await get_json(instance.agent, "/plans/move-house"))["progress"] == {"total": 1, "completed": 0, "percentage": 0}
    assert (await claim(instance.agent, tasks_of(made)["b"]["id"]))["status"] == "in_progress"


_ids = st.integers(min_value=0, max_value=5)


@given(
    tasks=st.dictionaries(_ids.map(lambda number: f"t{number}"), st.sampled_from(["p0", "p1", "p2"]), max_size=6),
    task_needs=st.lists(st.tuples(_ids, _ids), max_size=8),
    phase_needs=st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), max_size=3),
)
def test_a_circle_is_found_exactly_when_something_can_never_be_done(
    tasks: dict[str, str], task_needs: list[tuple[int, int]], phase_needs: list[tuple[int, int]]
) -> None:
    """D-60: doing whatever is ready, again and again, ends with everything done, or there is a circle."""
    phases = ["p0", "p1", "p2"]
    needs: dict[str, list[str]] = {}
    for item, other in task_needs:
        if f"t{item}" in tasks and f"t{other}" in tasks:
            needs.setdefault(f"t{item}", []).append(f"t{other}")
    for item, other in phase_needs:
        needs.setdefault(f"p{item}", []).append(f"p{other}")

    done = set[str]()
    while True:
        ready = {
            each
            for each, of in tasks.items()
            if each not in done and done.issuperset(needs.get(each, ())) and done.issuperset(needs.get(of, ()))
        }
        ready |= {
            each
            for each in phases
            if each not in done and done.issuperset(needs.get(each, ())) and all(task in done for task, of in tasks.items() if of == each)
        }
        if not ready:
            break
        done |= ready
    found = find_cycle(phases, tasks, needs)

    assert (found is None) == (len(done) == len(tasks) + len(phases))
    assert found is None or not done.intersection(found)
