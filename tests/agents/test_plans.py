"""Plans and their phases over HTTP."""

from __future__ import annotations

import threading
from typing import cast

import pytest

from rookery.access.models import KeyRestrictions
from rookery.agents.api.route_table import serialize_view
from rookery.agents.models.drafts import PhaseDraft, PlanDraft, TaskDraft
from rookery.agents.models.plans import MAX_PHASES_PER_PLAN
from tests.agents.makers import Json, claim, complete, events_of, get_json, make_plan, phase, phases_of, set_status, task, tasks_of
from tests.conftest import Instance
from tests.memory.makers import make_caller


async def test_a_plan_is_made_whole_in_one_request(instance: Instance) -> None:
    """Spec 1, D-60, D-65: phases and tasks inline, named by key, name or position; both prefixes show the same."""
    made = await make_plan(
        instance.agent,
        phase("Prepare", "pack", task("label", depends_on=["pack"], priority=0, acceptance_criteria=["every box has a name"]), key="p"),
        phase(
            "Drive", task("load", depends_on=["label"]), depends_on=["p"], acceptance_criteria=[{"text": "all is there", "checked": False}]
        ),
        phase("Unpack", "open", depends_on=[2]),
        title="Move house!",
        org="acme",
        project="home",
        metadata={"why": "more room"},
    )
    phases, tasks = phases_of(made), tasks_of(made)

    assert (made["slug"], made["status"], made["org"], made["metadata"]) == ("move-house", "active", "acme", {"why": "more room"})
    assert phases["Drive"]["depends_on"] == [phases["Prepare"]["id"]]
    assert phases["Unpack"]["blocked_by"] == [phases["Drive"]["id"]]
    assert tasks["label"]["depends_on"] == [tasks["pack"]["id"]]
    assert {name: (each["ready"], each["blocked"]) for name, each in tasks.items()} == {
        "pack": (True, False),
        "label": (False, True),
        "load": (False, True),
        "open": (False, True),
    }
    assert cast("Json", made["current_phase"])["name"] == "Prepare"
    assert made["progress"] == {"total": 4, "completed": 0, "percentage": 0}
    assert made == await get_json(instance.agent, "/plans/move-house")
    assert (await instance.agent.get("/v1/plans/move-house")).json() == made


async def test_a_plan_that_cannot_be_made_leaves_nothing(instance: Instance) -> None:
    """D-60, D-10: a dependency on nothing, or in a circle, is refused with its field, and nothing of the plan is there."""
    wrong = {
        "phases.0.depends_on": [phase("A", depends_on=["nothing"])],
        "phases.0.tasks.0.depends_on": [phase("A", task("a", depends_on=[7]))],
        "depends_on": [phase("A", task("a", depends_on=["b"]), task("b", depends_on=["a"]))],
    }
    for field, phases in wrong.items():
        answer = await instance.agent.post("/api/agent/plans", {"title": "No", "phases": phases})
        assert (answer.status_code, list(answer.json()["errors"])) == (422, [field]), answer.text

    assert (await get_json(instance.agent, "/plans"))["data"] == []


async def test_tasks_and_phases_that_lock_each_other_are_a_circle(instance: Instance) -> None:
    """D-60, issue: a task may not wait for a task of a phase that waits for the first one's phase; also when written later."""
    locked = [phase("A", task("a", depends_on=["b"])), phase("B", "b", depends_on=["A"])]
    answer = await instance.agent.post("/api/agent/plans", {"title": "No", "phases": locked})
    made = await make_plan(instance.agent, phase("A", "a"), phase("B", "b", depends_on=["A"]))
    tasks, phases = tasks_of(made), phases_of(made)
    refused = [
        await instance.agent.send("PATCH", f"/api/agent/tasks/{tasks['a']['id']}", {"depends_on": [tasks["b"]["id"]]}),
        await instance.agent.send("PATCH", "/api/agent/plans/move-house/phases/1", {"depends_on": [phases["B"]["id"]]}),
        await instance.agent.send("PATCH", "/api/agent/plans/move-house/phases/1", {"depends_on": [1]}),
        await instance.agent.post("/api/agent/plans/move-house/phases/1/tasks", {"name": "late", "depends_on": ["b"]}),
    ]

    assert answer.status_code == 422
    assert [each.status_code for each in refused] == [422, 422, 422, 422]
    assert made == await get_json(instance.agent, "/plans/move-house")


async def test_a_slug_is_made_of_the_title_and_is_unique(instance: Instance) -> None:
    """D-60: a title may come twice, a slug that was asked for may not; every workspace has its own."""
    slugs = [(await make_plan(instance.agent, title=title))["slug"] for title in ("Großes Ziel", "Grosses Ziel", "Éclair!", "日本")]
    taken = await instance.agent.post("/api/agent/plans", {"title": "X", "slug": "plan"})
    other = await instance.agent_key(workspace_id=await instance.workspace("other"))

    assert slugs == ["grosses-ziel", "grosses-ziel-2", "eclair", "plan"]
    assert (taken.status_code, taken.json()["error"]) == (409, "slug_taken")
    assert (await make_plan(other, title="日本"))["slug"] == "plan"


async def test_a_phase_waits_until_those_before_it_are_done(instance: Instance) -> None:
    """D-60: starting a blocked phase is 409 with the ids; a phase whose tasks are all done lets others go on before it is closed."""
    made = await make_plan(instance.agent, phase("A", "a"), phase("B", "b", depends_on=["A"]), phase("C", depends_on=["B"]))
    phases, tasks = phases_of(made), tasks_of(made)
    early = await instance.agent.send("PATCH", "/api/agent/plans/move-house/phases/2/status", {"status": "in_progress"})
    await complete(instance.agent, await claim(instance.agent, tasks["a"]["id"]))
    now = phases_of(await get_json(instance.agent, "/plans/move-house"))
    started = await set_status(instance.agent, "/plans/move-house/phases/2", "in_progress")
    empty = await instance.agent.send("PATCH", "/api/agent/plans/move-house/phases/3/status", {"status": "in_progress"})

    assert (early.status_code, early.json()["error"], early.json()["blocked_by"]) == (409, "phase_blocked", [phases["A"]["id"]])
    assert (now["A"]["status"], now["A"]["completable"], now["B"]["ready"]) == ("in_progress", True, True)
    assert started["status"] == "in_progress"
    assert empty.json()["blocked_by"] == [phases["B"]["id"]]


async def test_a_plan_is_completed_when_all_in_it_is(instance: Instance) -> None:
    """D-60: open phases and tasks are named; completing the last phase completes the plan; force is recorded."""
    made = await make_plan(instance.agent, phase("A", "a"), phase("B"))
    phases = phases_of(made)
    refused = await instance.agent.send("PATCH", "/api/agent/plans/move-house/status", {"status": "completed"})
    unfinished = await instance.agent.send("PATCH", "/api/agent/plans/move-house/phases/1/status", {"status": "completed"})
    await complete(instance.agent, await claim(instance.agent, tasks_of(made)["a"]["id"]))
    await set_status(instance.agent, "/plans/move-house/phases/1", "completed")
    await set_status(instance.agent, "/plans/move-house/phases/2", "completed")
    done = await get_json(instance.agent, "/plans/move-house")
    await make_plan(instance.agent, phase("A", "a"), title="Force")
    forced = await set_status(instance.agent, "/plans/force", "completed", force=True)
    last = cast("list[Json]", (await get_json(instance.agent, "/plans/force/events?after=1"))["data"])[-1]

    assert (refused.status_code, refused.json()["error"]) == (409, "plan_has_open_phases")
    assert [each["id"] for each in refused.json()["phases"]] == [phases["A"]["id"], phases["B"]["id"]]
    assert (unfinished.status_code, unfinished.json()["error"]) == (409, "phase_has_open_tasks")
    assert (done["status"], done["progress"]) == ("completed", {"total": 2, "completed": 2, "percentage": 100})
    assert (forced["status"], last["type"], cast("Json", last["data"])["forced"]) == ("completed", "plan.completed", True)
    assert (await set_status(instance.agent, "/plans/move-house", "active"))["completed_at"] is None


async def test_an_archived_plan_is_read_only_until_it_is_restored(instance: Instance) -> None:
    """D-60, D-65: every write is refused, nothing changes, and restoring brings back the status before; DELETE archives."""
    made = await make_plan(instance.agent, phase("A", "a", "b"))
    tasks, held = tasks_of(made), None
    held = await claim(instance.agent, tasks["a"]["id"])
    await set_status(instance.agent, "/plans/move-house", "paused")
    archived = (await instance.agent.post("/api/agent/plans/move-house/archive", {"reason": "not now"})).json()
    a, b, plan = f"/api/agent/tasks/{tasks['a']['id']}", f"/api/agent/tasks/{tasks['b']['id']}", "/api/agent/plans/move-house"
    token = {"claim_token": held["claim_token"]}
    writes: list[tuple[str, str, object]] = [
        ("PATCH", plan, {"title": "x"}),
        ("PATCH", f"{plan}/status", {"status": "active"}),
        ("POST", f"{plan}/phases", {"name": "x"}),
        ("PATCH", f"{plan}/phases/1", {"name": "x"}),
        ("PATCH", f"{plan}/phases/1/status", {"status": "skipped"}),
        ("DELETE", f"{plan}/phases/1", None),
        ("POST", f"{plan}/phases/1/checkpoints", {"note": "x"}),
        ("POST", f"{plan}/phases/1/tasks", {"name": "x"}),
        ("PATCH", b, {"name": "x"}),
        ("DELETE", b, None),
        ("POST", f"{b}/claim", {}),
        ("POST", "/api/agent/tasks/claim-next", {"plan": "move-house"}),
        ("POST", f"{a}/heartbeat", token),
        ("POST", f"{a}/release", token),
        ("POST", f"{a}/complete", token),
        ("POST", f"{a}/fail", token | {"error": "x"}),
    ]
    answers = [await instance.agent.send(method, path, body) for method, path, body in writes]
    listed = [cast("list[Json]", (await get_json(instance.agent, f"/plans{query}"))["data"]) for query in ("", "?status=archived")]
    still = await get_json(instance.agent, "/plans/move-house")
    restored = (await instance.agent.post(f"{plan}/restore")).json()
    again = await instance.agent.send("DELETE", plan)

    assert (archived["status"], archived["archive_reason"]) == ("archived", "not now")
    assert {(each.status_code, each.json().get("error")) for each in answers} == {(409, "plan_archived")}
    assert [[each["slug"] for each in plans] for plans in listed] == [[], ["move-house"]]
    assert still == archived | {"phases": still["phases"]}
    assert (restored["status"], restored["archived_at"]) == ("paused", None)
    assert again.status_code == 204
    assert (await get_json(instance.agent, "/plans/move-house"))["status"] == "archived"


async def test_who_knows_an_older_version_changes_nothing(instance: Instance) -> None:
    """D-64: If-Match with another ETag is 412 with the current one, on plans, phases and tasks; with the right one it passes."""
    made = await make_plan(instance.agent, phase("A", "a"))
    plan, task_path = "/api/agent/plans/move-house", f"/api/agent/tasks/{tasks_of(made)['a']['id']}"
    for path, body in ((plan, {"title": "Now"}), (f"{plan}/phases/1", {"name": "Now"}), (task_path, {"name": "Now"})):
        first = (await instance.agent.get(path)).headers["etag"]
        good = await instance.agent.send("PATCH", path, body, **{"If-Match": f'"nothing", {first}'})
        stale = await instance.agent.send("PATCH", path, {"description": "mine"}, **{"If-Match": first})
        weak = await instance.agent.send("PATCH", path, {"description": "mine"}, **{"If-Match": f"W/{good.headers['etag']}"})

        assert (good.status_code, good.headers["etag"] != first) == (200, True)
        assert (stale.status_code, stale.json()["error"], stale.json()["etag"]) == (412, "precondition_failed", good.headers["etag"])
        assert weak.status_code == 412
        assert (await instance.agent.send("PATCH", path, {"description": "ours"}, **{"If-Match": "*"})).status_code == 200


async def test_the_same_change_twice_is_one(instance: Instance) -> None:
    """D-64: what changes nothing writes nothing: no version, no event."""
    await make_plan(instance.agent, phase("A"))
    once = await instance.agent.send("PATCH", "/api/agent/plans/move-house", {"title": "New", "org": "acme"})
    twice = await instance.agent.send("PATCH", "/api/agent/plans/move-house", {"title": "New", "org": "acme"})
    await set_status(instance.agent, "/plans/move-house", "active")

    assert once.headers["etag"] == twice.headers["etag"] == '"2"'
    assert await events_of(instance.agent, "move-house") == ["plan.created", "plan.updated"]


async def test_phases_are_added_moved_and_deleted_in_order(instance: Instance) -> None:
    """D-65: positions have no gaps; a phase may be named by its position; what depended on a deleted one is free."""
    await make_plan(instance.agent, phase("A"), phase("B", "b", depends_on=["A"]), phase("C"))
    added = await instance.agent.post(
        "/api/agent/plans/move-house/phases", {"name": "D", "position": 2, "depends_on": ["A"], "tasks": ["d"]}
    )
    moved = await instance.agent.send("PATCH", "/api/agent/plans/move-house/phases/4", {"position": 1})
    far = await instance.agent.send("PATCH", "/api/agent/plans/move-house/phases/4", {"position": 5})
    gone = await instance.agent.send("DELETE", "/api/agent/plans/move-house/phases/2")
    listed = cast("list[Json]", (await get_json(instance.agent, "/plans/move-house/phases"))["data"])

    assert (added.status_code, added.json()["position"], moved.json()["position"]) == (201, 2, 1)
    assert (far.status_code, gone.status_code) == (422, 204)
    assert [(each["position"], each["name"], each["depends_on"]) for each in listed] == [(1, "C", []), (2, "D", []), (3, "B", [])]


async def test_a_phase_keeps_what_was_noted_of_it(instance: Instance) -> None:
    """D-60, D-65: checkpoints are shown with their phase, oldest first, with who noted them."""
    await make_plan(instance.agent, phase("A"))
    for note in ("half way", "nearly"):
        answer = await instance.agent.post("/api/agent/plans/move-house/phases/1/checkpoints", {"note": note, "context": {"left": 3}})
        assert answer.status_code == 201
    noted = cast("list[Json]", (await get_json(instance.agent, "/plans/move-house/phases/1"))["checkpoints"])

    assert [(each["note"], each["context"], each["agent_id"]) for each in noted] == [
        ("half way", {"left": 3}, "agent"),
        ("nearly", {"left": 3}, "agent"),
    ]


async def test_every_change_is_an_event_with_who_made_it(instance: Instance) -> None:
    """D-64: numbered without gaps, paged, and to be read on from the last one known."""
    made = await make_plan(instance.agent, phase("A", "a"), status="draft")
    await complete(instance.agent, await claim(instance.agent, tasks_of(made)["a"]["id"]))
    await set_status(instance.agent, "/plans/move-house/phases/1", "completed")
    events = cast("list[Json]", (await get_json(instance.agent, "/plans/move-house/events"))["data"])
    after = await get_json(instance.agent, "/plans/move-house/events?after=4&per_page=1&page=2")

    assert [(each["seq"], each["type"]) for each in events] == list(
        enumerate(
            ["plan.created", "plan.started", "phase.started", "task.claimed", "task.completed", "phase.completed", "plan.completed"], 1
        )
    )
    assert {each["agent_id"] for each in events} == {"agent"}
    assert events[3]["task_id"] == tasks_of(made)["a"]["id"]
    assert ([each["seq"] for each in cast("list[Json]", after["data"])], cast("Json", after["meta"])["total"]) == ([6], 3)


async def test_plans_are_listed_newest_first_and_found(instance: Instance) -> None:
    """Spec 4.2, 4.6, D-12: pages; by status, org, project and words, in which no character is a wildcard."""
    for title, fields in (("One 100%", {"org": "acme"}), ("Two", {"org": "acme", "project": "web"}), ("Three", {"status": "draft"})):
        await make_plan(instance.agent, phase("A", "a", "b"), title=title, **fields)

    async def titles(query: str) -> list[object]:
        return [each["title"] for each in cast("list[Json]", (await get_json(instance.agent, f"/plans{query}"))["data"])]

    assert await titles("") == ["Three", "Two", "One 100%"]
    assert await titles("?per_page=1&page=2") == ["Two"]
    assert await titles("?org=acme") == ["Two", "One 100%"]
    assert await titles("?project=web") == ["Two"]
    assert await titles("?status=draft") == ["Three"]
    assert (await titles("?q=00%25"), await titles("?q=%25"), await titles("?q=TWO"), await titles("?q=_")) == (
        ["One 100%"],
        ["One 100%"],
        ["Two"],
        [],
    )


async def test_a_key_sees_plans_of_its_orgs_alone(instance: Instance) -> None:
    """D-23: orgs and projects of a key hold in every query, and what it writes it must be able to read."""
    acme = await instance.agent_key(restrictions=KeyRestrictions(orgs=frozenset({"acme"})))
    made = await make_plan(instance.agent, phase("A", "a"), org="other")
    none = await make_plan(instance.agent, phase("A", "a"), title="No org")
    paths = [f"/plans/{made['slug']}", f"/plans/{made['id']}", f"/plans/{none['slug']}", f"/tasks/{tasks_of(made)['a']['id']}"]
    answers = [await acme.get(f"/api/agent{path}") for path in paths]
    written = [await acme.post("/api/agent/plans", {"title": "x", "org": org}) for org in ("acme", "other", None)]
    away = await acme.send("PATCH", "/api/agent/plans/x", {"org": "other"})

    assert [each.status_code for each in answers] == [404] * 4
    assert [each.status_code for each in written] == [201, 403, 403]
    assert (away.status_code, away.json()["not_in_list"]["list"]) == (403, "orgs")
    assert [each["slug"] for each in cast("list[Json]", (await get_json(acme, "/plans"))["data"])] == ["x"]
    assert (await acme.post("/api/agent/tasks/claim-next", {})).headers["x-reason"] == "plan_done"
    assert cast("list[Json]", (await get_json(acme, "/tasks"))["data"]) == []


async def test_permissions_are_those_of_the_specification(instance: Instance) -> None:
    """Spec 5.3, D-65: plans.read reads all of it, plans.write plans, phases.write phases and tasks; none implies another."""
    made = await make_plan(instance.agent, phase("A", "a"))
    task_path = f"/api/agent/tasks/{tasks_of(made)['a']['id']}"
    calls: dict[str, list[tuple[str, str, object]]] = {
        "plans.read": [("GET", "/api/agent/plans", None), ("GET", "/api/agent/plans/move-house/phases/1", None), ("GET", task_path, None)],
        "plans.write": [("POST", "/api/agent/plans", {"title": "x", "phases": ["A"]}), ("PATCH", "/api/agent/plans/move-house", {})],
        "phases.write": [("POST", "/api/agent/plans/move-house/phases", {"name": "x"}), ("PATCH", task_path, {"name": "x"})],
    }
    for held in calls:
        caller = await instance.agent_key(held)
        for needed, routes in calls.items():
            for method, path, body in routes:
                answer = await caller.send(method, path, body)
                assert (answer.status_code == 403) == (held != needed), (held, method, path, answer.text)


async def test_a_plan_is_read_as_markdown_and_drawn(instance: Instance) -> None:
    """D-65: what its authors wrote is no markup in titles; the graph names what is ready and what waits for what."""
    made = await make_plan(
        instance.agent,
        phase("Pack *all*", "box", task("la[be]l", depends_on=["box"])),
        phase("Drive", depends_on=[1]),
        title="# Move | <b>",
    )
    page = await instance.agent.get(f"/api/agent/plans/{made['slug']}.md")
    graph = await get_json(instance.agent, f"/plans/{made['slug']}/graph")
    drawn = await instance.agent.get(f"/api/agent/plans/{made['slug']}/graph?format=mermaid")
    tasks, phases = tasks_of(made), phases_of(made)

    assert page.headers["content-type"].startswith("text/markdown")
    assert "# \\# Move \\| \\<b\\>" in page.text
    assert "## 1. Pack \\*all\\*" in page.text
    assert "- [ ] la\\[be\\]l (blocked)" in page.text
    assert set(cast("list[str]", graph["ready"])) == {tasks["box"]["id"], phases["Pack *all*"]["id"]}
    assert {"source": tasks["box"]["id"], "target": tasks["la[be]l"]["id"]} in cast("list[Json]", graph["edges"])
    assert {"id": phases["Drive"]["id"], "by": [phases["Pack *all*"]["id"]]} in cast("list[Json]", graph["blocked"])
    assert "p1t1 --> p1t2" in drawn.text
    assert "la#91;be#93;l" in drawn.text


@pytest.mark.parametrize("include", ["none", "phases", "tasks"])
async def test_a_plan_is_shown_as_far_as_it_is_asked_for(instance: Instance, include: str) -> None:
    """D-65: include narrows the answer of a large plan."""
    await make_plan(instance.agent, phase("A", "a"))
    plan = await get_json(instance.agent, f"/plans/move-house?include={include}")
    phases = cast("list[Json] | None", plan["phases"])

    assert (phases is None) == (include == "none")
    assert phases is None or (phases[0]["tasks"] is None) == (include == "phases")
    assert plan["progress"] == {"total": 1, "completed": 0, "percentage": 0}


async def test_there_are_bounds(instance: Instance) -> None:
    """D-10, D-16: the number of phases and the lengths of texts and metadata are limited; never a 500."""
    full = await instance.agent.post("/api/agent/plans", {"title": "Full", "phases": ["p"] * MAX_PHASES_PER_PLAN})
    more = await instance.agent.post("/api/agent/plans/full/phases", {"name": "more"})
    wrong: list[dict[str, object]] = [
        {"title": "x", "phases": ["p"] * (MAX_PHASES_PER_PLAN + 1)},
        {"title": " "},
        {"title": "x" * 256},
        {"title": "x", "slug": "Not A Slug"},
        {"title": "x", "slug": "01a2006d-a588-7b8a-b0c0-74941d1390fc"},
        {"title": "x", "description": "x" * 20_001},
        {"title": "x", "metadata": {"x": "x" * 17_000}},
        {"title": "x", "phases": [{"name": "a", "tasks": [{"name": "a", "priority": 5}]}]},
        {"title": "x", "phases": [{"name": "a", "depends_on": [0]}]},
        {"title": "x", "status": "completed"},
        {"title": "x", "titel": "x"},
    ]
    answers = [await instance.agent.post("/api/agent/plans", body) for body in wrong]

    assert (full.status_code, more.status_code, more.json()["error"]) == (201, 409, "too_many")
    assert [each.status_code for each in answers] == [422] * len(wrong)
    for path in ("/plans/none", "/plans/full/phases/999", "/plans/full/phases/x", "/tasks/none", "/plans/none.md", "/plans/none/graph"):
        assert (await instance.agent.get(f"/api/agent{path}")).status_code == 404


async def test_a_large_plan_is_shaped_beside_the_loop(instance: Instance) -> None:
    """Notes: ten thousand tasks take half a second to become JSON, in which everybody else is served all the same."""
    small, large = [
        await instance.rookery.agents.plans.create(
            make_caller(workspace_id=instance.workspace_id),
            PlanDraft(title="Move", phases=(PhaseDraft(name="A", tasks=tuple(TaskDraft(name=f"{each}") for each in range(most))),)),
        )
        for most in (10, 1000)
    ]

    assert await serialize_view(small, threading.get_ident) == threading.get_ident()
    assert await serialize_view(large, threading.get_ident) != threading.get_ident()
