"""Leases of tasks over HTTP: one agent at a time works on a task, as long as it sends heartbeats."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from rookery.agents.models.plans import MAX_TASK_ATTEMPTS
from rookery.app import create_app
from rookery.wiring import build_platform
from tests.agents.makers import Json, claim, claim_next, complete, events_of, get_json, make_plan, phase, set_status, task, tasks_of
from tests.conftest import Caller, FakeClock, Instance, Settings, eventually


async def test_a_task_is_claimed_once(instance: Instance) -> None:
    """The second claimant gets the holder and the end of the lease. Only the first one gets the token."""
    plan = await make_plan(instance.agent, phase("A", "a"))
    path = f"/tasks/{tasks_of(plan)['a']['id']}"
    other = await instance.agent_key()
    first = await claim(instance.agent, tasks_of(plan)["a"]["id"], ttl_s=60)
    second = await other.post(f"/api/agent{path}/claim")
    task = await get_json(other, path)

    lease = cast("Json", first["claim"])
    assert (second.status_code, second.json()["error"], second.json()["expires_at"]) == (409, "task_claimed", lease["expires_at"])
    assert second.json()["holder"] == lease["holder"] == {"agent_id": "agent", "session_id": None, "key_id": holder_of(task)}
    assert (task["status"], "claim_token" in task, str(first["claim_token"]) in str(task)) == ("in_progress", False, False)
    assert (await get_json(instance.agent, "/plans/move-house/phases/1"))["status"] == "in_progress"


def holder_of(task: Json) -> object:
    """Return the key that holds the claim of *task*."""
    return cast("Json", cast("Json", task["claim"])["holder"])["key_id"]


async def test_the_best_ready_task_comes_first(instance: Instance) -> None:
    """By priority, then the oldest plan, then in order. Blocked tasks and tasks of drafts are skipped."""
    await make_plan(instance.agent, phase("A", "a1", task("a2", priority=0, depends_on=["a1"]), task("a3", priority=1)), title="Old")
    await make_plan(instance.agent, phase("B", task("b1", priority=1)), phase("C", task("c1", priority=0), depends_on=["B"]), title="New")
    await make_plan(instance.agent, phase("D", task("d1", priority=0)), title="Draft", status="draft")
    order = list[object]()
    while (claimed_task := await claim_next(instance.agent)) is not None:
        order.append(claimed_task["name"])
        await complete(instance.agent, claimed_task)

    assert order == ["a3", "b1", "c1", "a1", "a2"]
    from_draft = await claim_next(instance.agent, plan="draft")
    assert from_draft is not None
    assert (from_draft["name"], (await get_json(instance.agent, "/plans/draft"))["status"]) == ("d1", "active")


async def test_ready_tasks_are_listed_in_the_order_of_claims(instance: Instance) -> None:
    """GET /tasks?state=ready lists what claim-next chooses from. A blocked task shows what it waits for."""
    plan = await make_plan(
        instance.agent,
        phase("A", "a1", task("a2", priority=0), task("a3", depends_on=["a1"])),
        phase("B", task("b1", priority=0), depends_on=["A"]),
    )
    tasks = tasks_of(plan)

    async def list_names(query: str) -> list[object]:
        return [item["name"] for item in cast("list[Json]", (await get_json(instance.agent, f"/tasks?{query}"))["data"])]

    assert await list_names("state=ready") == ["a2", "a1"]
    assert await list_names("state=blocked&plan=move-house") == ["a3", "b1"]
    assert (await get_json(instance.agent, f"/tasks/{tasks['a3']['id']}"))["blocked_by"] == [tasks["a1"]["id"]]
    await claim(instance.agent, tasks["a2"]["id"])
    await set_status(instance.agent, "/plans/move-house", "paused")
    assert (await list_names("state=ready"), await list_names("state=in_progress")) == ([], ["a2"])


async def test_an_empty_claim_has_a_reason_and_a_time_to_retry(instance: Instance) -> None:
    """204 with X-Reason and Retry-After: claimed by others, blocked by a failed task, paused, done."""
    plan = await make_plan(instance.agent, phase("A", "a", task("b", depends_on=["a"])))

    async def claim_reason(**fields: object) -> tuple[str, bool]:
        response = await instance.agent.post("/api/agent/tasks/claim-next", fields)
        assert (response.status_code, response.content) == (204, b"")
        return response.headers["x-reason"], int(response.headers["retry-after"]) >= 1

    claimed_task = await claim(instance.agent, tasks_of(plan)["a"]["id"])
    assert (await claim_reason(plan="move-house"), await claim_reason()) == (("all_claimed", True), ("all_claimed", True))
    failed = await instance.agent.post(
        f"/api/agent/tasks/{claimed_task['id']}/fail", {"claim_token": claimed_task["claim_token"], "error": "no boxes"}
    )
    assert (failed.json()["status"], failed.json()["error"], failed.json()["attempts"]) == ("failed", "no boxes", 1)
    assert (await claim_reason(plan="move-house"), await claim_reason()) == (("blocked", True), ("blocked", True))
    await set_status(instance.agent, "/plans/move-house", "paused")
    assert (await claim_reason(plan="move-house"), await claim_reason()) == (("plan_paused", True), ("plan_paused", True))
    await set_status(instance.agent, "/plans/move-house", "completed", force=True)
    assert (await claim_reason(plan="move-house", wait_s=30), await claim_reason()) == (("plan_done", True), ("plan_done", True))


async def test_an_expired_lease_releases_the_task(clocked_instance: Instance, clock: FakeClock) -> None:
    """An expired lease is invalid for every reader; the old token fails; a new claim raises `attempts`."""
    plan = await make_plan(clocked_instance.agent, phase("A", "a"))
    path = f"/tasks/{tasks_of(plan)['a']['id']}"
    first = await claim(clocked_instance.agent, tasks_of(plan)["a"]["id"], ttl_s=60)
    clock.advance(seconds=60)
    task_after = await get_json(clocked_instance.agent, path)
    ready = cast("Json", (await get_json(clocked_instance.agent, "/tasks?state=ready"))["meta"])["total"]
    responses = [
        await clocked_instance.agent.post(f"/api/agent{path}/{verb}", {"claim_token": first["claim_token"], **body})
        for verb, body in (("heartbeat", {}), ("complete", {}), ("release", {}), ("fail", {"error": "x"}))
    ]
    second = await claim_next(clocked_instance.agent)

    assert (task_after["status"], task_after["claim"], task_after["ready"], ready) == ("pending", None, True, 1)
    assert {(response.status_code, response.json()["error"]) for response in responses} == {(409, "lease_lost")}
    assert second is not None
    assert (second["id"], second["attempts"]) == (first["id"], 1)
    assert "task.lease_expired" in await events_of(clocked_instance.agent, "move-house")


async def test_heartbeats_keep_a_lease(clocked_instance: Instance, clock: FakeClock) -> None:
    """Each heartbeat renews the lease, does not count for the rate limit, and writes no event."""
    plan = await make_plan(clocked_instance.agent, phase("A", "a"))
    claimed_task = await claim(clocked_instance.agent, tasks_of(plan)["a"]["id"], ttl_s=60)
    for _ in range(3):
        clock.advance(seconds=59)
        response = await clocked_instance.agent.post(
            f"/api/agent/tasks/{claimed_task['id']}/heartbeat", {"claim_token": claimed_task["claim_token"], "ttl_s": 60}
        )
        assert response.status_code == 200
    with_other_token = await clocked_instance.agent.post(f"/api/agent/tasks/{claimed_task['id']}/heartbeat", {"claim_token": "another"})

    assert (with_other_token.status_code, with_other_token.json()["error"]) == (409, "lease_lost")
    assert (await complete(clocked_instance.agent, claimed_task, result={"boxes": 4}))["result"] == {"boxes": 4}
    assert await events_of(clocked_instance.agent, "move-house") == ["plan.created", "phase.started", "task.claimed", "task.completed"]


async def test_a_concurrent_change_does_not_shorten_a_lease(instance: Instance) -> None:
    """The lease ends when the heartbeat's response says, even if the task is edited meanwhile."""
    plan = await make_plan(instance.agent, phase("A", "a"))
    claimed_task = await claim(instance.agent, tasks_of(plan)["a"]["id"])
    path = f"/api/agent/tasks/{claimed_task['id']}"
    for number in range(20):
        heartbeat, *changes = await asyncio.gather(
            instance.agent.post(f"{path}/heartbeat", {"claim_token": claimed_task["claim_token"], "ttl_s": 1000 + number}),
            *(instance.agent.send("PATCH", path, {"notes": f"{number} {edit}"}) for edit in range(3)),
        )
        promised, stored = heartbeat.json()["claim"], (await get_json(instance.agent, f"/tasks/{claimed_task['id']}"))["claim"]

        assert [change.status_code for change in changes] == [200] * 3
        assert cast("Json", stored)["expires_at"] == promised["expires_at"]


async def test_a_task_that_outlives_five_claimants_fails(clocked_instance: Instance, clock: FakeClock) -> None:
    """After more than five expired leases the task fails, with an error, and cannot be claimed until it is reset."""
    plan = await make_plan(clocked_instance.agent, phase("A", "a"))
    path = f"/tasks/{tasks_of(plan)['a']['id']}"
    for attempt in range(MAX_TASK_ATTEMPTS + 1):
        claimed_task = await claim_next(clocked_instance.agent, ttl_s=1)
        assert claimed_task is not None
        assert claimed_task["attempts"] == attempt
        clock.advance(seconds=1)
    await clocked_instance.rookery.agents.claims.expire_leases()
    failed = await get_json(clocked_instance.agent, path)
    empty = await clocked_instance.agent.post("/api/agent/tasks/claim-next", {})
    reset = await clocked_instance.agent.send("PATCH", f"/api/agent{path}", {"status": "pending"})

    assert (failed["status"], failed["attempts"], failed["error"]) == ("failed", MAX_TASK_ATTEMPTS + 1, "The lease expired 6 times.")
    assert (empty.status_code, empty.headers["x-reason"]) == (204, "blocked")
    assert reset.status_code == 200
    assert await claim_next(clocked_instance.agent) is not None


async def test_expired_leases_are_released_without_a_request(clocked_instance: Instance, clock: FakeClock) -> None:
    """The periodic task records an expired lease once, and not in archived plans."""
    await make_plan(clocked_instance.agent, phase("A", "a"), title="One")
    await make_plan(clocked_instance.agent, phase("A", "a"), title="Two")
    for slug in ("one", "two"):
        assert await claim_next(clocked_instance.agent, plan=slug, ttl_s=5) is not None
    await clocked_instance.agent.post("/api/agent/plans/two/archive")
    clock.advance(seconds=5)

    # The task of the server may run at any time too, and then leaves nothing to record.
    assert await clocked_instance.rookery.agents.claims.expire_leases() <= 1
    assert await clocked_instance.rookery.agents.claims.expire_leases() == 0
    one, two = [await events_of(clocked_instance.agent, slug) for slug in ("one", "two")]
    assert (one.count("task.lease_expired"), one[-1]) == (1, "task.lease_expired")
    assert (two.count("task.lease_expired"), two[-1]) == (0, "plan.archived")


async def test_only_a_claim_creates_a_lease(instance: Instance) -> None:
    """Setting a status creates no lease. A claimed task is changed by its holder, or with force, which is recorded."""
    plan = await make_plan(instance.agent, phase("A", "a", "b"))
    first_path, second_path = (f"/api/agent/tasks/{tasks_of(plan)[name]['id']}" for name in "ab")
    started = (await instance.agent.send("PATCH", first_path, {"status": "in_progress"})).json()
    claim_response = await instance.agent.post(f"{first_path}/claim")
    claimed_task = await claim(instance.agent, tasks_of(plan)["b"]["id"])
    without_force = await instance.agent.send("PATCH", second_path, {"status": "completed"})
    with_force = (await instance.agent.send("PATCH", second_path, {"status": "completed", "force": True})).json()
    completion = await instance.agent.post(f"{second_path}/complete", {"claim_token": claimed_task["claim_token"]})
    last_event = cast("list[Json]", (await get_json(instance.agent, "/plans/move-house/events"))["data"])[-1]

    assert (started["status"], started["claim"]) == ("in_progress", None)
    assert (claim_response.status_code, claim_response.json()["error"]) == (409, "wrong_transition")
    assert (without_force.status_code, without_force.json()["error"]) == (409, "task_claimed")
    assert (with_force["status"], with_force["claim"], cast("Json", last_event["data"])["forced"]) == ("completed", None, True)
    assert (completion.status_code, completion.json()["error"]) == (409, "lease_lost")


async def test_ending_a_lease_needs_its_token_or_force(instance: Instance) -> None:
    """422 without either, 409 with another token. A forced end is recorded."""
    plan = await make_plan(instance.agent, phase("A", "a"))
    claimed_task = await claim(instance.agent, tasks_of(plan)["a"]["id"])
    path = f"/api/agent/tasks/{claimed_task['id']}"
    for verb, fields in (("release", {}), ("complete", {}), ("fail", {"error": "x"})):
        without_token = await instance.agent.post(f"{path}/{verb}", dict(fields))
        with_wrong_token = await instance.agent.post(f"{path}/{verb}", {"claim_token": "wrong", **fields})
        assert (without_token.status_code, with_wrong_token.status_code, with_wrong_token.json()["error"]) == (422, 409, "lease_lost")
    release = await instance.agent.post(f"{path}/release", {"force": True, "reason": "the agent is gone"})
    completion = await instance.agent.post(f"{path}/complete", {"force": True, "result": 1})
    second_completion = await instance.agent.post(f"{path}/complete", {"force": True})
    events = cast("list[Json]", (await get_json(instance.agent, "/plans/move-house/events"))["data"])

    assert (release.json()["status"], completion.json()["status"]) == ("pending", "completed")
    assert (second_completion.status_code, second_completion.json()["error"]) == (409, "wrong_transition")
    assert [(event["type"], cast("Json", event["data"]).get("forced")) for event in events[-2:]] == [
        ("task.released", True),
        ("task.completed", True),
    ]


async def test_completing_can_claim_the_next_task(instance: Instance) -> None:
    """Complete with `claim_next` claims the best ready task of the same plan, or returns the reason why no task is ready."""
    plan = await make_plan(instance.agent, phase("A", "a", task("b", depends_on=["a"])))
    await make_plan(instance.agent, phase("A", task("c", priority=0)), title="Another")
    first = await complete(instance.agent, await claim(instance.agent, tasks_of(plan)["a"]["id"]), claim_next=True, ttl_s=60)
    next_task = cast("Json", first["next"])
    second = await complete(instance.agent, next_task, claim_next=True)

    assert (next_task["name"], next_task["status"]) == ("b", "in_progress")
    assert (second["next"], second["reason"]) == (None, "plan_done")


@pytest.mark.parametrize("claimants", [32])
async def test_many_claimants_get_each_task_once(instance: Instance, claimants: int) -> None:
    """32 claimants on 100 tasks: each task is claimed exactly once, on every database."""
    await make_plan(instance.agent, *(phase(f"P{number}", *(f"t{number}.{index}" for index in range(20))) for number in range(5)))
    caller, task_ids = await instance.agent_key(rate_limit=100_000), list[object]()

    async def work() -> None:
        while (claimed_task := await claim_next(caller)) is not None:
            task_ids.append(claimed_task["id"])

    await asyncio.gather(*(work() for _ in range(claimants)))

    assert (len(task_ids), len(set(task_ids))) == (100, 100)
    events = cast("Json", (await get_json(instance.agent, "/plans/move-house/events"))["meta"])["total"]
    assert events == 1 + 5 + 100


async def test_claimants_of_two_servers_share_no_task(instance: Instance, settings: Settings) -> None:
    """Two processes on one record store. Each has its own writer, so only the store can prevent a double claim."""
    other_platform = build_platform(settings)
    await other_platform.start()
    try:
        key = await instance.agent_key(rate_limit=100_000)
        other_caller = Caller(type(instance.transport)(create_app(other_platform)), key.key)
        await make_plan(instance.agent, phase("A", *(f"t{number}" for number in range(60))))
        task_ids = list[object]()

        async def work(caller: Caller) -> None:
            while (claimed_task := await claim_next(caller)) is not None:
                task_ids.append(claimed_task["id"])

        await asyncio.gather(*(work(caller) for caller in (key, other_caller) for _ in range(4)))
    finally:
        await other_platform.close()

    assert (len(task_ids), len(set(task_ids))) == (60, 60)


async def test_concurrent_claims_of_one_task_succeed_once(instance: Instance) -> None:
    """One atomic statement: of twenty claims of the same task by its id, one succeeds."""
    plan = await make_plan(instance.agent, phase("A", "a"))
    responses = await asyncio.gather(*(instance.agent.post(f"/api/agent/tasks/{tasks_of(plan)['a']['id']}/claim") for _ in range(20)))

    assert sorted(response.status_code for response in responses) == [200] + [409] * 19


async def test_a_waiting_claim_gets_the_task_that_becomes_ready(instance: Instance) -> None:
    """wait_s: a new task, one whose dependency is completed, or one that is released. The caller need not poll."""
    plan = await make_plan(instance.agent, phase("A", "a", task("b", depends_on=["a"])))
    claimed_task = await claim(instance.agent, tasks_of(plan)["a"]["id"])
    pending_claim = asyncio.create_task(instance.agent.post("/api/agent/tasks/claim-next", {"plan": "move-house", "wait_s": 30}))
    await eventually(lambda: instance.rookery.agents.notifier.count_waiters(instance.workspace_id))
    await complete(instance.agent, claimed_task)
    claimed = (await pending_claim).json()

    assert claimed["name"] == "b"


async def test_a_cancelled_waiting_claim_claims_nothing(instance: Instance) -> None:
    """A disconnected caller does not get a task that becomes ready later."""
    plan = await make_plan(instance.agent, phase("A", "a", task("b", depends_on=["a"])))
    claimed_task = await claim(instance.agent, tasks_of(plan)["a"]["id"])
    pending_claim = asyncio.create_task(instance.agent.post("/api/agent/tasks/claim-next", {"wait_s": 30}))
    await eventually(lambda: instance.rookery.agents.notifier.count_waiters(instance.workspace_id))
    pending_claim.cancel()
    await asyncio.wait({pending_claim})
    await eventually(lambda: not instance.rookery.agents.notifier.count_waiters(instance.workspace_id))
    await complete(instance.agent, claimed_task)

    assert (await get_json(instance.agent, f"/tasks/{tasks_of(plan)['b']['id']}"))["status"] == "pending"


async def test_stopping_the_server_ends_waiting_claims(instance: Instance) -> None:
    """A server that stops does not wait for waiting claims."""
    await make_plan(instance.agent, phase("A", task("a"), task("b", depends_on=["a"])))
    assert await claim_next(instance.agent) is not None
    pending_claim = asyncio.create_task(instance.agent.post("/api/agent/tasks/claim-next", {"wait_s": 30}))
    await eventually(lambda: instance.rookery.agents.notifier.count_waiters(instance.workspace_id))
    instance.rookery.close_streams()

    assert (await pending_claim).headers["x-reason"] == "all_claimed"


async def test_a_claim_repeated_with_its_key_returns_the_same_task(instance: Instance) -> None:
    """After a lost response, the same Idempotency-Key returns the same task and token."""
    await make_plan(instance.agent, phase("A", "a", "b"))
    header = {"Idempotency-Key": "claim 1"}
    first, repeated = [await instance.agent.post("/api/agent/tasks/claim-next", {"plan": "move-house"}, **header) for _ in range(2)]

    assert first.json() == repeated.json()
    assert repeated.headers["idempotent-replay"] == "true"
