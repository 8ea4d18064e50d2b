"""Leases of tasks over HTTP: one at a time works on a task, for as long as they say that they live (D-61)."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from rookery.agents.models.plans import MAX_TASK_ATTEMPTS
from rookery.app import create_app
from rookery.wiring import build_platform
from tests.agents.makers import Json, claim, claim_next, complete, events_of, get_json, make_plan, phase, set_status, task, tasks_of
from tests.conftest import Caller, FakeClock, Instance, Settings, eventually


async def test_a_task_is_claimed_by_one(instance: Instance) -> None:
    """D-61: the second claimant is told who has it and until when; the token is shown to the first one alone."""
    made = await make_plan(instance.agent, phase("A", "a"))
    path = f"/tasks/{tasks_of(made)['a']['id']}"
    other = await instance.agent_key()
    first = await claim(instance.agent, tasks_of(made)["a"]["id"], ttl_s=60)
    second = await other.post(f"/api/agent{path}/claim")
    seen = await get_json(other, path)

    held = cast("Json", first["claim"])
    assert (second.status_code, second.json()["error"], second.json()["expires_at"]) == (409, "task_claimed", held["expires_at"])
    assert second.json()["holder"] == held["holder"] == {"agent_id": "agent", "session_id": None, "key_id": seen_key(seen)}
    assert (seen["status"], "claim_token" in seen, str(first["claim_token"]) in str(seen)) == ("in_progress", False, False)
    assert (await get_json(instance.agent, "/plans/move-house/phases/1"))["status"] == "in_progress"


def seen_key(task: Json) -> object:
    """Return the key that holds *task*."""
    return cast("Json", cast("Json", task["claim"])["holder"])["key_id"]


async def test_the_best_ready_task_comes_first(instance: Instance) -> None:
    """D-61: the most urgent, then of the oldest plan, then in order; one that waits is passed over, and so is a draft's."""
    await make_plan(instance.agent, phase("A", "a1", task("a2", priority=0, depends_on=["a1"]), task("a3", priority=1)), title="Old")
    await make_plan(instance.agent, phase("B", task("b1", priority=1)), phase("C", task("c1", priority=0), depends_on=["B"]), title="New")
    await make_plan(instance.agent, phase("D", task("d1", priority=0)), title="Draft", status="draft")
    order = list[object]()
    while (found := await claim_next(instance.agent)) is not None:
        order.append(found["name"])
        await complete(instance.agent, found)

    assert order == ["a3", "b1", "c1", "a1", "a2"]
    named = await claim_next(instance.agent, plan="draft")
    assert named is not None
    assert (named["name"], (await get_json(instance.agent, "/plans/draft"))["status"]) == ("d1", "active")


async def test_ready_tasks_are_listed_as_they_are_given_out(instance: Instance) -> None:
    """D-65: GET /tasks?state=ready is what claim-next chooses from; what waits is told by what it waits for."""
    made = await make_plan(
        instance.agent,
        phase("A", "a1", task("a2", priority=0), task("a3", depends_on=["a1"])),
        phase("B", task("b1", priority=0), depends_on=["A"]),
    )
    tasks = tasks_of(made)

    async def names(query: str) -> list[object]:
        return [each["name"] for each in cast("list[Json]", (await get_json(instance.agent, f"/tasks?{query}"))["data"])]

    assert await names("state=ready") == ["a2", "a1"]
    assert await names("state=blocked&plan=move-house") == ["a3", "b1"]
    assert (await get_json(instance.agent, f"/tasks/{tasks['a3']['id']}"))["blocked_by"] == [tasks["a1"]["id"]]
    await claim(instance.agent, tasks["a2"]["id"])
    await set_status(instance.agent, "/plans/move-house", "paused")
    assert (await names("state=ready"), await names("state=in_progress")) == ([], ["a2"])


async def test_nothing_to_claim_says_why_and_when_to_ask_again(instance: Instance) -> None:
    """D-61: 204 with X-Reason and Retry-After: claimed by others, waiting for what failed, paused, done."""
    made = await make_plan(instance.agent, phase("A", "a", task("b", depends_on=["a"])))

    async def why(**fields: object) -> tuple[str, bool]:
        answer = await instance.agent.post("/api/agent/tasks/claim-next", fields)
        assert (answer.status_code, answer.content) == (204, b"")
        return answer.headers["x-reason"], int(answer.headers["retry-after"]) >= 1

    held = await claim(instance.agent, tasks_of(made)["a"]["id"])
    assert (await why(plan="move-house"), await why()) == (("all_claimed", True), ("all_claimed", True))
    failed = await instance.agent.post(f"/api/agent/tasks/{held['id']}/fail", {"claim_token": held["claim_token"], "error": "no boxes"})
    assert (failed.json()["status"], failed.json()["error"], failed.json()["attempts"]) == ("failed", "no boxes", 1)
    assert (await why(plan="move-house"), await why()) == (("blocked", True), ("blocked", True))
    await set_status(instance.agent, "/plans/move-house", "paused")
    assert (await why(plan="move-house"), await why()) == (("plan_paused", True), ("plan_paused", True))
    await set_status(instance.agent, "/plans/move-house", "completed", force=True)
    assert (await why(plan="move-house", wait_s=30), await why()) == (("plan_done", True), ("plan_done", True))


async def test_a_lease_that_runs_out_frees_the_task(clocked_instance: Instance, clock: FakeClock) -> None:
    """D-61: an expired lease is invalid for every reader; the old token fails; a new claim raises `attempts`."""
    made = await make_plan(clocked_instance.agent, phase("A", "a"))
    path = f"/tasks/{tasks_of(made)['a']['id']}"
    first = await claim(clocked_instance.agent, tasks_of(made)["a"]["id"], ttl_s=60)
    clock.advance(seconds=60)
    seen = await get_json(clocked_instance.agent, path)
    ready = cast("Json", (await get_json(clocked_instance.agent, "/tasks?state=ready"))["meta"])["total"]
    late = [
        await clocked_instance.agent.post(f"/api/agent{path}/{verb}", {"claim_token": first["claim_token"], **body})
        for verb, body in (("heartbeat", {}), ("complete", {}), ("release", {}), ("fail", {"error": "x"}))
    ]
    again = await claim_next(clocked_instance.agent)

    assert (seen["status"], seen["claim"], seen["ready"], ready) == ("pending", None, True, 1)
    assert {(each.status_code, each.json()["error"]) for each in late} == {(409, "lease_lost")}
    assert again is not None
    assert (again["id"], again["attempts"]) == (first["id"], 1)
    assert "task.lease_expired" in await events_of(clocked_instance.agent, "move-house")


async def test_heartbeats_keep_a_lease(clocked_instance: Instance, clock: FakeClock) -> None:
    """D-61, D-27: each makes it last anew, spends nothing of the key's limit, and writes no event."""
    made = await make_plan(clocked_instance.agent, phase("A", "a"))
    held = await claim(clocked_instance.agent, tasks_of(made)["a"]["id"], ttl_s=60)
    for _ in range(3):
        clock.advance(seconds=59)
        answer = await clocked_instance.agent.post(
            f"/api/agent/tasks/{held['id']}/heartbeat", {"claim_token": held["claim_token"], "ttl_s": 60}
        )
        assert answer.status_code == 200
    wrong = await clocked_instance.agent.post(f"/api/agent/tasks/{held['id']}/heartbeat", {"claim_token": "another"})

    assert (wrong.status_code, wrong.json()["error"]) == (409, "lease_lost")
    assert (await complete(clocked_instance.agent, held, result={"boxes": 4}))["result"] == {"boxes": 4}
    assert await events_of(clocked_instance.agent, "move-house") == ["plan.created", "phase.started", "task.claimed", "task.completed"]


async def test_a_heartbeat_outlasts_what_is_changed_at_the_same_moment(instance: Instance) -> None:
    """D-61: a lease lasts as long as its holder was promised, even if the task is edited meanwhile."""
    made = await make_plan(instance.agent, phase("A", "a"))
    held = await claim(instance.agent, tasks_of(made)["a"]["id"])
    path = f"/api/agent/tasks/{held['id']}"
    for number in range(20):
        beat, *others = await asyncio.gather(
            instance.agent.post(f"{path}/heartbeat", {"claim_token": held["claim_token"], "ttl_s": 1000 + number}),
            *(instance.agent.send("PATCH", path, {"notes": f"{number} {each}"}) for each in range(3)),
        )
        told, now = beat.json()["claim"], (await get_json(instance.agent, f"/tasks/{held['id']}"))["claim"]

        assert [each.status_code for each in others] == [200] * 3
        assert cast("Json", now)["expires_at"] == told["expires_at"]


async def test_a_task_that_outlives_five_claimants_fails(clocked_instance: Instance, clock: FakeClock) -> None:
    """D-61: after more than five lost leases the task fails, says so, and is not claimable until it is reset."""
    made = await make_plan(clocked_instance.agent, phase("A", "a"))
    path = f"/tasks/{tasks_of(made)['a']['id']}"
    for attempt in range(MAX_TASK_ATTEMPTS + 1):
        found = await claim_next(clocked_instance.agent, ttl_s=1)
        assert found is not None
        assert found["attempts"] == attempt
        clock.advance(seconds=1)
    await clocked_instance.rookery.agents.claims.expire_leases()
    failed = await get_json(clocked_instance.agent, path)
    none = await clocked_instance.agent.post("/api/agent/tasks/claim-next", {})
    back = await clocked_instance.agent.send("PATCH", f"/api/agent{path}", {"status": "pending"})

    assert (failed["status"], failed["attempts"], failed["error"]) == ("failed", MAX_TASK_ATTEMPTS + 1, "The lease expired 6 times.")
    assert (none.status_code, none.headers["x-reason"]) == (204, "blocked")
    assert back.status_code == 200
    assert await claim_next(clocked_instance.agent) is not None


async def test_the_sweep_frees_what_nobody_asked_for(clocked_instance: Instance, clock: FakeClock) -> None:
    """D-61: expired leases are recorded even without claims; once, and not in archived plans."""
    await make_plan(clocked_instance.agent, phase("A", "a"), title="One")
    await make_plan(clocked_instance.agent, phase("A", "a"), title="Two")
    for slug in ("one", "two"):
        assert await claim_next(clocked_instance.agent, plan=slug, ttl_s=5) is not None
    await clocked_instance.agent.post("/api/agent/plans/two/archive")
    clock.advance(seconds=5)

    assert (await clocked_instance.rookery.agents.claims.expire_leases(), await clocked_instance.rookery.agents.claims.expire_leases()) == (
        1,
        0,
    )
    assert ((await events_of(clocked_instance.agent, "one"))[-1], (await events_of(clocked_instance.agent, "two"))[-1]) == (
        "task.lease_expired",
        "plan.archived",
    )


async def test_only_a_claim_arms_a_lease(instance: Instance) -> None:
    """D-61, notes: setting a status is not claiming; a claimed task's status is its holder's, or changed by force, which is recorded."""
    made = await make_plan(instance.agent, phase("A", "a", "b"))
    a, b = (f"/api/agent/tasks/{tasks_of(made)[name]['id']}" for name in "ab")
    started = (await instance.agent.send("PATCH", a, {"status": "in_progress"})).json()
    taken = await instance.agent.post(f"{a}/claim")
    held = await claim(instance.agent, tasks_of(made)["b"]["id"])
    refused = await instance.agent.send("PATCH", b, {"status": "completed"})
    forced = (await instance.agent.send("PATCH", b, {"status": "completed", "force": True})).json()
    lost = await instance.agent.post(f"{b}/complete", {"claim_token": held["claim_token"]})
    last = cast("list[Json]", (await get_json(instance.agent, "/plans/move-house/events"))["data"])[-1]

    assert (started["status"], started["claim"]) == ("in_progress", None)
    assert (taken.status_code, taken.json()["error"]) == (409, "wrong_transition")
    assert (refused.status_code, refused.json()["error"]) == (409, "task_claimed")
    assert (forced["status"], forced["claim"], cast("Json", last["data"])["forced"]) == ("completed", None, True)
    assert (lost.status_code, lost.json()["error"]) == (409, "lease_lost")


async def test_ending_a_lease_needs_its_token_or_force(instance: Instance) -> None:
    """D-61: without either 422, with another's token 409; by force it is done and recorded."""
    made = await make_plan(instance.agent, phase("A", "a"))
    held = await claim(instance.agent, tasks_of(made)["a"]["id"])
    path = f"/api/agent/tasks/{held['id']}"
    for verb, more in (("release", {}), ("complete", {}), ("fail", {"error": "x"})):
        without = await instance.agent.post(f"{path}/{verb}", dict(more))
        wrong = await instance.agent.post(f"{path}/{verb}", {"claim_token": "wrong", **more})
        assert (without.status_code, wrong.status_code, wrong.json()["error"]) == (422, 409, "lease_lost")
    released = await instance.agent.post(f"{path}/release", {"force": True, "reason": "the agent is gone"})
    done = await instance.agent.post(f"{path}/complete", {"force": True, "result": 1})
    twice = await instance.agent.post(f"{path}/complete", {"force": True})
    events = cast("list[Json]", (await get_json(instance.agent, "/plans/move-house/events"))["data"])

    assert (released.json()["status"], done.json()["status"]) == ("pending", "completed")
    assert (twice.status_code, twice.json()["error"]) == (409, "wrong_transition")
    assert [(each["type"], cast("Json", each["data"]).get("forced")) for each in events[-2:]] == [
        ("task.released", True),
        ("task.completed", True),
    ]


async def test_completing_may_bring_the_next(instance: Instance) -> None:
    """D-61: complete with `claim_next` claims the best ready task of the same plan, or says why there is none."""
    made = await make_plan(instance.agent, phase("A", "a", task("b", depends_on=["a"])))
    await make_plan(instance.agent, phase("A", task("c", priority=0)), title="Another")
    first = await complete(instance.agent, await claim(instance.agent, tasks_of(made)["a"]["id"]), claim_next=True, ttl_s=60)
    following = cast("Json", first["next"])
    last = await complete(instance.agent, following, claim_next=True)

    assert (following["name"], following["status"]) == ("b", "in_progress")
    assert (last["next"], last["reason"]) == (None, "plan_done")


@pytest.mark.parametrize("claimants", [32])
async def test_many_claimants_get_each_task_once(instance: Instance, claimants: int) -> None:
    """Issue, D-61: 32 claimants on 100 tasks: each exactly once, on every database."""
    await make_plan(instance.agent, *(phase(f"P{number}", *(f"t{number}.{each}" for each in range(20))) for number in range(5)))
    caller, got = await instance.agent_key(rate_limit=100_000), list[object]()

    async def work() -> None:
        while (found := await claim_next(caller)) is not None:
            got.append(found["id"])

    await asyncio.gather(*(work() for _ in range(claimants)))

    assert (len(got), len(set(got))) == (100, 100)
    events = cast("Json", (await get_json(instance.agent, "/plans/move-house/events"))["meta"])["total"]
    assert events == 1 + 5 + 100


async def test_claimants_of_two_servers_share_no_task(instance: Instance, settings: Settings) -> None:
    """D-01, D-61: two processes on one record store; each has its own writer, so only the store itself can keep them apart."""
    other = build_platform(settings)
    await other.start()
    try:
        key = await instance.agent_key(rate_limit=100_000)
        there = Caller(type(instance.transport)(create_app(other)), key.key)
        await make_plan(instance.agent, phase("A", *(f"t{number}" for number in range(60))))
        got = list[object]()

        async def work(caller: Caller) -> None:
            while (found := await claim_next(caller)) is not None:
                got.append(found["id"])

        await asyncio.gather(*(work(caller) for caller in (key, there) for _ in range(4)))
    finally:
        await other.close()

    assert (len(got), len(set(got))) == (60, 60)


async def test_one_task_is_claimed_once_of_many_at_a_time(instance: Instance) -> None:
    """D-61: one atomic statement: of twenty who claim the same task by its id, one has it."""
    made = await make_plan(instance.agent, phase("A", "a"))
    answers = await asyncio.gather(*(instance.agent.post(f"/api/agent/tasks/{tasks_of(made)['a']['id']}/claim") for _ in range(20)))

    assert sorted(each.status_code for each in answers) == [200] + [409] * 19


async def test_who_waits_is_given_the_task_that_becomes_ready(instance: Instance) -> None:
    """D-61, wait_s: a task that is added, one whose dependency is done, one that is released; nothing is polled for by the caller."""
    made = await make_plan(instance.agent, phase("A", "a", task("b", depends_on=["a"])))
    held = await claim(instance.agent, tasks_of(made)["a"]["id"])
    waiting = asyncio.create_task(instance.agent.post("/api/agent/tasks/claim-next", {"plan": "move-house", "wait_s": 30}))
    await eventually(lambda: instance.rookery.agents.notifier.count_waiters(instance.workspace_id))
    await complete(instance.agent, held)
    found = (await waiting).json()

    assert found["name"] == "b"


async def test_who_leaves_while_waiting_claims_nothing(instance: Instance) -> None:
    """D-61: a caller that is gone is not given a task that becomes ready later."""
    made = await make_plan(instance.agent, phase("A", "a", task("b", depends_on=["a"])))
    held = await claim(instance.agent, tasks_of(made)["a"]["id"])
    waiting = asyncio.create_task(instance.agent.post("/api/agent/tasks/claim-next", {"wait_s": 30}))
    await eventually(lambda: instance.rookery.agents.notifier.count_waiters(instance.workspace_id))
    waiting.cancel()
    await asyncio.wait({waiting})
    await eventually(lambda: not instance.rookery.agents.notifier.count_waiters(instance.workspace_id))
    await complete(instance.agent, held)

    assert (await get_json(instance.agent, f"/tasks/{tasks_of(made)['b']['id']}"))["status"] == "pending"


async def test_the_end_of_the_server_ends_waiting(instance: Instance) -> None:
    """D-61: a server that stops does not wait for those who wait."""
    await make_plan(instance.agent, phase("A", task("a"), task("b", depends_on=["a"])))
    assert await claim_next(instance.agent) is not None
    waiting = asyncio.create_task(instance.agent.post("/api/agent/tasks/claim-next", {"wait_s": 30}))
    await eventually(lambda: instance.rookery.agents.notifier.count_waiters(instance.workspace_id))
    instance.rookery.close_streams()

    assert (await waiting).headers["x-reason"] == "all_claimed"


async def test_a_claim_that_is_repeated_with_its_mark_is_the_same(instance: Instance) -> None:
    """D-14, D-61: who lost the answer asks again with the same Idempotency-Key, and has the same task and token."""
    await make_plan(instance.agent, phase("A", "a", "b"))
    mark = {"Idempotency-Key": "claim 1"}
    first, again = [await instance.agent.post("/api/agent/tasks/claim-next", {"plan": "move-house"}, **mark) for _ in range(2)]

    assert first.json() == again.json()
    assert again.headers["idempotent-replay"] == "true"
