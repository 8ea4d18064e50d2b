"""The tables of status transitions, and every status with every action over HTTP."""

from __future__ import annotations

from itertools import product
from typing import cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rookery.agents.models.plans import PhaseStatus, PlanStatus, TaskStatus
from rookery.agents.plans.plan_builder import find_cycle
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


def test_the_tables_are_complete() -> None:
    """Every status has a row, and every status except archived can be left."""
    assert (set(PLAN_TRANSITIONS), set(PHASE_TRANSITIONS), set(TASK_TRANSITIONS)) == (set(PlanStatus), set(PhaseStatus), set(TaskStatus))
    assert [
        status for status, targets in [*PLAN_TRANSITIONS.items(), *PHASE_TRANSITIONS.items(), *TASK_TRANSITIONS.items()] if not targets
    ] == [PlanStatus.ARCHIVED]


async def _plan_in(instance: Instance, status: PlanStatus, title: str) -> str:
    plan = await make_plan(instance.agent, phase("A"), title=title, status="draft" if status is PlanStatus.DRAFT else "active")
    path = f"/plans/{plan['slug']}"
    if status in {PlanStatus.PAUSED, PlanStatus.COMPLETED, PlanStatus.ARCHIVED}:
        await set_status(instance.agent, path, status, **({"force": True} if status is PlanStatus.COMPLETED else {}))
    return path


async def test_a_plan_allows_exactly_the_transitions_of_the_table(instance: Instance) -> None:
    """Draft → active ⇄ paused → completed → active; any → archived. Another transition is 409, and nothing changes."""
    for number, (old, requested) in enumerate(product(PlanStatus, PlanStatus)):
        path = await _plan_in(instance, old, f"plan {number}")
        response = await instance.agent.send("PATCH", f"/api/agent{path}/status", {"status": requested, "force": True})
        is_allowed = old is requested or requested is PlanStatus.ARCHIVED or requested in PLAN_TRANSITIONS[old]
        refusal = "plan_archived" if old is PlanStatus.ARCHIVED else "wrong_transition"

        assert (response.status_code, response.json().get("error")) == ((200, None) if is_allowed else (409, refusal)), (old, requested)
        assert (await get_json(instance.agent, path))["status"] == (requested if is_allowed else old), (old, requested)


_TO_PHASE: dict[PhaseStatus, list[str]] = {
    PhaseStatus.PENDING: [],
    PhaseStatus.IN_PROGRESS: ["in_progress"],
    PhaseStatus.COMPLETED: ["completed"],
    PhaseStatus.SKIPPED: ["skipped"],
    PhaseStatus.ON_HOLD: ["on_hold"],
}


async def test_a_phase_allows_exactly_the_transitions_of_the_table(instance: Instance) -> None:
    """Each status of a phase with each requested one. The current status is no change."""
    pairs = list(product(PhaseStatus, PhaseStatus))
    plan = await make_plan(instance.agent, *(phase(f"{number}") for number in range(len(pairs))), phase("last"))
    for number, (old, requested) in enumerate(pairs, 1):
        path = f"/plans/{plan['slug']}/phases/{number}"
        for status in _TO_PHASE[old]:
            await set_status(instance.agent, path, status, reason="x")
        response = await instance.agent.send("PATCH", f"/api/agent{path}/status", {"status": requested})
        is_allowed = old is requested or requested in PHASE_TRANSITIONS[old]

        assert (response.status_code, response.json().get("error")) == ((200, None) if is_allowed else (409, "wrong_transition")), (
            old,
            requested,
        )
        phase_after = await get_json(instance.agent, path)
        assert phase_after["status"] == (requested if is_allowed else old), (old, requested)
        assert (phase_after["hold_reason"] == "x") == (phase_after["status"] == "on_hold" and old is PhaseStatus.ON_HOLD)


_TO_TASK: dict[TaskStatus, list[str]] = {status: [] if status is TaskStatus.PENDING else [status.value] for status in TaskStatus}


async def test_a_task_allows_exactly_the_transitions_of_the_table(instance: Instance) -> None:
    """Each status of a task with each requested one."""
    pairs = list(product(TaskStatus, TaskStatus))
    plan = await make_plan(instance.agent, phase("A", *(f"{number}" for number in range(len(pairs)))))
    for number, (old, requested) in enumerate(pairs):
        path = f"/tasks/{tasks_of(plan)[str(number)]['id']}"
        for status in _TO_TASK[old]:
            assert (await instance.agent.send("PATCH", f"/api/agent{path}", {"status": status})).status_code == 200
        response = await instance.agent.send("PATCH", f"/api/agent{path}", {"status": requested})
        is_allowed = old is requested or requested in TASK_TRANSITIONS[old]

        assert (response.status_code, response.json().get("error")) == ((200, None) if is_allowed else (409, "wrong_transition")), (
            old,
            requested,
        )
        assert (await get_json(instance.agent, path))["status"] == (requested if is_allowed else old), (old, requested)


@pytest.mark.parametrize("force", [False, True])
async def test_every_action_is_checked_on_every_status(instance: Instance, force: bool) -> None:
    """An action that is not in the table is 409, and nothing changes."""
    pairs = list(product(LeaseAction, TaskStatus))
    plan = await make_plan(instance.agent, phase("A", *(f"{number}" for number in range(len(pairs)))))
    for number, (verb, old) in enumerate(pairs):
        path, body = f"/tasks/{tasks_of(plan)[str(number)]['id']}", dict[str, object]()
        if old is TaskStatus.IN_PROGRESS:
            body["claim_token"] = (await claim(instance.agent, tasks_of(plan)[str(number)]["id"]))["claim_token"]
        for status in () if old is TaskStatus.IN_PROGRESS else _TO_TASK[old]:
            assert (await instance.agent.send("PATCH", f"/api/agent{path}", {"status": status})).status_code == 200
        if verb is LeaseAction.CLAIM:
            body = {}
        elif verb is LeaseAction.HEARTBEAT:
            body = {"claim_token": body.get("claim_token", "none")}
        else:
            body = {"claim_token": "none"} | body | {"force": force} | ({"error": "x"} if verb is LeaseAction.FAIL else {})
        response = await instance.agent.post(f"/api/agent{path}/{verb}", body)
        table = FORCED_LEASE_TRANSITIONS if force and verb in FORCED_LEASE_TRANSITIONS else LEASE_TRANSITIONS
        expected = table[verb].get(old)

        assert (response.status_code == 200) == (expected is not None), (verb, old, response.text)
        assert response.status_code in {200, 409}
        assert (await get_json(instance.agent, path))["status"] == (old if expected is None else expected), (verb, old)


async def test_blocked_work_cannot_start(instance: Instance) -> None:
    """Not in a paused or completed plan, not in a closed phase or one on hold, not before the dependencies."""
    plan = await make_plan(instance.agent, phase("A", "a", task("b", depends_on=["a"])), phase("B", "c", depends_on=["A"]), phase("C", "d"))
    task_a, task_b, task_c, task_d = (f"/api/agent/tasks/{tasks_of(plan)[name]['id']}" for name in "abcd")

    async def start_errors(path: str) -> set[tuple[int, str]]:
        responses = [await instance.agent.post(f"{path}/claim"), await instance.agent.send("PATCH", path, {"status": "in_progress"})]
        return {(response.status_code, str(cast("Json", response.json()).get("error"))) for response in responses}

    assert await start_errors(task_b) == {(409, "task_blocked")}
    assert await start_errors(task_c) == {(409, "task_blocked")}
    await set_status(instance.agent, "/plans/move-house/phases/3", "on_hold", reason="no key")
    assert await start_errors(task_d) == {(409, "phase_closed")}
    await set_status(instance.agent, "/plans/move-house/phases/3", "skipped")
    assert await start_errors(task_d) == {(409, "phase_closed")}
    assert (await instance.agent.post("/api/agent/plans/move-house/phases/3/tasks", {"name": "e"})).json()["error"] == "phase_closed"
    await set_status(instance.agent, "/plans/move-house", "paused")
    assert await start_errors(task_a) == {(409, "plan_not_active")}
    await set_status(instance.agent, "/plans/move-house", "completed", force=True)
    assert await start_errors(task_a) == {(409, "plan_not_active")}
    assert (await instance.agent.post("/api/agent/plans/move-house/phases", {"name": "e"})).json()["error"] == "plan_not_active"


async def test_tasks_of_a_skipped_phase_block_no_task(instance: Instance) -> None:
    """A task that depends on a task of a skipped phase can start, and skipped tasks do not count as open work."""
    plan = await make_plan(instance.agent, phase("A", "a1", "a2"), phase("B", task("b", depends_on=["a1"]), depends_on=["A"]))
    await set_status(instance.agent, "/plans/move-house/phases/1", "skipped")
    task_ = await get_json(instance.agent, f"/tasks/{tasks_of(plan)['b']['id']}")

    assert (task_["ready"], task_["blocked_by"]) == (True, [])
    assert (await get_json(instance.agent, "/plans/move-house"))["progress"] == {"total": 1, "completed": 0, "percentage": 0}
    assert (await claim(instance.agent, tasks_of(plan)["b"]["id"]))["status"] == "in_progress"


_ids = st.integers(min_value=0, max_value=5)


@given(
    tasks=st.dictionaries(_ids.map(lambda number: f"t{number}"), st.sampled_from(["p0", "p1", "p2"]), max_size=6),
    task_dependencies=st.lists(st.tuples(_ids, _ids), max_size=8),
    phase_dependencies=st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2)), max_size=3),
)
def test_a_cycle_is_found_exactly_if_some_work_can_never_be_done(
    tasks: dict[str, str], task_dependencies: list[tuple[int, int]], phase_dependencies: list[tuple[int, int]]
) -> None:
    """Repeatedly completing everything that is ready completes all work, or there is a cycle."""
    phases = ["p0", "p1", "p2"]
    dependencies: dict[str, list[str]] = {}
    for item, other in task_dependencies:
        if f"t{item}" in tasks and f"t{other}" in tasks:
            dependencies.setdefault(f"t{item}", []).append(f"t{other}")
    for item, other in phase_dependencies:
        dependencies.setdefault(f"p{item}", []).append(f"p{other}")

    completed = set[str]()
    while True:
        ready = {
            name
            for name, phase_name in tasks.items()
            if name not in completed
            and completed.issuperset(dependencies.get(name, ()))
            and completed.issuperset(dependencies.get(phase_name, ()))
        }
        ready |= {
            name
            for name in phases
            if name not in completed
            and completed.issuperset(dependencies.get(name, ()))
            and all(task in completed for task, phase_name in tasks.items() if phase_name == name)
        }
        if not ready:
            break
        completed |= ready
    cycle = find_cycle(phases, tasks, dependencies)

    assert (cycle is None) == (len(completed) == len(tasks) + len(phases))
    assert cycle is None or not completed.intersection(cycle)
