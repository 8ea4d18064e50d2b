"""Plans and their phases over HTTP."""

from __future__ import annotations

import threading
from typing import cast

import pytest

from rookery.access.models import KeyRestrictions
from rookery.agents.api.plans import convert_view
from rookery.agents.models.drafts import PhaseDraft, PlanDraft, TaskDraft
from rookery.agents.models.plans import MAX_PHASES_PER_PLAN
from tests.agents.makers import Json, claim, complete, events_of, get_json, make_plan, phase, phases_of, set_status, task, tasks_of
from tests.conftest import Instance
from tests.memory.makers import make_caller


async def test_a_plan_is_created_with_phases_and_tasks_in_one_request(instance: Instance) -> None:
    """Phases and tasks inline, referenced by key, name or position. Both prefixes return the same plan."""
    plan = await make_plan(
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
    phases, tasks = phases_of(plan), tasks_of(plan)

    assert (plan["slug"], plan["status"], plan["org"], plan["metadata"]) == ("move-house", "active", "acme", {"why": "more room"})
    assert phases["Drive"]["depends_on"] == [phases["Prepare"]["id"]]
    assert phases["Unpack"]["blocked_by"] == [phases["Drive"]["id"]]
    assert tasks["label"]["depends_on"] == [tasks["pack"]["id"]]
    assert {name: (task_["ready"], task_["blocked"]) for name, task_ in tasks.items()} == {
        "pack": (True, False),
        "label": (False, True),
        "load": (False, True),
        "open": (False, True),
    }
    assert cast("Json", plan["current_phase"])["name"] == "Prepare"
    assert plan["progress"] == {"total": 4, "completed": 0, "percentage": 0}
    assert plan == await get_json(instance.agent, "/plans/move-house")
    assert (await instance.agent.get("/v1/plans/move-house")).json() == plan


async def test_an_invalid_plan_is_not_stored(instance: Instance) -> None:
    """An unknown dependency, or a cycle, is rejected with its field, and nothing of the plan is stored."""
    invalid_plans = {
        "phases.0.depends_on": [phase("A", depends_on=["nothing"])],
        "phases.0.tasks.0.depends_on": [phase("A", task("a", depends_on=[7]))],
        "depends_on": [phase("A", task("a", depends_on=["b"]), task("b", depends_on=["a"]))],
    }
    for field, phases in invalid_plans.items():
        response = await instance.agent.post("/api/agent/plans", {"title": "No", "phases": phases})
        assert (response.status_code, list(response.json()["errors"])) == (422, [field]), response.text

    assert (await get_json(instance.agent, "/plans"))["data"] == []


async def test_tasks_and_phases_that_block_each_other_are_a_cycle(instance: Instance) -> None:
    """A task may not depend on a task of a phase that depends on the first task's phase; also in a later change."""
    cyclic_phases = [phase("A", task("a", depends_on=["b"])), phase("B", "b", depends_on=["A"])]
    response = await instance.agent.post("/api/agent/plans", {"title": "No", "phases": cyclic_phases})
    plan = await make_plan(instance.agent, phase("A", "a"), phase("B", "b", depends_on=["A"]))
    tasks, phases = tasks_of(plan), phases_of(plan)
    rejected_changes = [
        await instance.agent.send("PATCH", f"/api/agent/tasks/{tasks['a']['id']}", {"depends_on": [tasks["b"]["id"]]}),
        await instance.agent.send("PATCH", "/api/agent/plans/move-house/phases/1", {"depends_on": [phases["B"]["id"]]}),
        await instance.agent.send("PATCH", "/api/agent/plans/move-house/phases/1", {"depends_on": [1]}),
        await instance.agent.post("/api/agent/plans/move-house/phases/1/tasks", {"name": "late", "depends_on": ["b"]}),
    ]

    assert response.status_code == 422
    assert [rejected_change.status_code for rejected_change in rejected_changes] == [422, 422, 422, 422]
    assert plan == await get_json(instance.agent, "/plans/move-house")


async def test_a_slug_is_derived_from_the_title_and_unique(instance: Instance) -> None:
    """Two plans may have the same title, but not the same requested slug. Every workspace has its own slugs."""
    slugs = [(await make_plan(instance.agent, title=title))["slug"] for title in ("Großes Ziel", "Grosses Ziel", "Éclair!", "日本")]
    with_used_slug = await instance.agent.post("/api/agent/plans", {"title": "X", "slug": "plan"})
    other_caller = await instance.agent_key(workspace_id=await instance.workspace("other"))

    assert slugs == ["grosses-ziel", "grosses-ziel-2", "eclair", "plan"]
    assert (with_used_slug.status_code, with_used_slug.json()["error"]) == (409, "slug_taken")
    assert (await make_plan(other_caller, title="日本"))["slug"] == "plan"


async def test_a_phase_is_blocked_until_the_previous_ones_are_done(instance: Instance) -> None:
    """Starting a blocked phase is 409 with the ids. A phase with only completed tasks unblocks others before it is completed."""
    plan = await make_plan(instance.agent, phase("A", "a"), phase("B", "b", depends_on=["A"]), phase("C", depends_on=["B"]))
    phases, tasks = phases_of(plan), tasks_of(plan)
    rejected_start = await instance.agent.send("PATCH", "/api/agent/plans/move-house/phases/2/status", {"status": "in_progress"})
    await complete(instance.agent, await claim(instance.agent, tasks["a"]["id"]))
    phases_after = phases_of(await get_json(instance.agent, "/plans/move-house"))
    started_phase = await set_status(instance.agent, "/plans/move-house/phases/2", "in_progress")
    rejected_empty_phase = await instance.agent.send("PATCH", "/api/agent/plans/move-house/phases/3/status", {"status": "in_progress"})

    assert (rejected_start.status_code, rejected_start.json()["error"], rejected_start.json()["blocked_by"]) == (
        409,
        "phase_blocked",
        [phases["A"]["id"]],
    )
    assert (phases_after["A"]["status"], phases_after["A"]["completable"], phases_after["B"]["ready"]) == ("in_progress", True, True)
    assert started_phase["status"] == "in_progress"
    assert rejected_empty_phase.json()["blocked_by"] == [phases["B"]["id"]]


async def test_a_plan_is_completed_with_its_last_phase(instance: Instance) -> None:
    """An error names the open phases and tasks. Completing the last phase completes the plan; a forced change is recorded."""
    plan = await make_plan(instance.agent, phase("A", "a"), phase("B"))
    phases = phases_of(plan)
    rejected_completion = await instance.agent.send("PATCH", "/api/agent/plans/move-house/status", {"status": "completed"})
    unfinished = await instance.agent.send("PATCH", "/api/agent/plans/move-house/phases/1/status", {"status": "completed"})
    await complete(instance.agent, await claim(instance.agent, tasks_of(plan)["a"]["id"]))
    await set_status(instance.agent, "/plans/move-house/phases/1", "completed")
    await set_status(instance.agent, "/plans/move-house/phases/2", "completed")
    completed_plan = await get_json(instance.agent, "/plans/move-house")
    await make_plan(instance.agent, phase("A", "a"), title="Force")
    forced_plan = await set_status(instance.agent, "/plans/force", "completed", force=True)
    last_event = cast("list[Json]", (await get_json(instance.agent, "/plans/force/events?after=1"))["data"])[-1]

    assert (rejected_completion.status_code, rejected_completion.json()["error"]) == (409, "plan_has_open_phases")
    assert [phase["id"] for phase in rejected_completion.json()["phases"]] == [phases["A"]["id"], phases["B"]["id"]]
    assert (unfinished.status_code, unfinished.json()["error"]) == (409, "phase_has_open_tasks")
    assert (completed_plan["status"], completed_plan["progress"]) == ("completed", {"total": 2, "completed": 2, "percentage": 100})
    assert (forced_plan["status"], last_event["type"], cast("Json", last_event["data"])["forced"]) == ("completed", "plan.completed", True)
    assert (await set_status(instance.agent, "/plans/move-house", "active"))["completed_at"] is None


async def test_an_archived_plan_is_read_only_until_it_is_restored(instance: Instance) -> None:
    """Every write is rejected, and nothing changes. Restoring sets the previous status; DELETE archives."""
    plan = await make_plan(instance.agent, phase("A", "a", "b"))
    tasks, claimed_task = tasks_of(plan), None
    claimed_task = await claim(instance.agent, tasks["a"]["id"])
    await set_status(instance.agent, "/plans/move-house", "paused")
    archived_plan = (await instance.agent.post("/api/agent/plans/move-house/archive", {"reason": "not now"})).json()
    claimed_path, open_path, plan_path = (
        f"/api/agent/tasks/{tasks['a']['id']}",
        f"/api/agent/tasks/{tasks['b']['id']}",
        "/api/agent/plans/move-house",
    )
    token = {"claim_token": claimed_task["claim_token"]}
    writes: list[tuple[str, str, object]] = [
        ("PATCH", plan_path, {"title": "x"}),
        ("PATCH", f"{plan_path}/status", {"status": "active"}),
        ("POST", f"{plan_path}/phases", {"name": "x"}),
        ("PATCH", f"{plan_path}/phases/1", {"name": "x"}),
        ("PATCH", f"{plan_path}/phases/1/status", {"status": "skipped"}),
        ("DELETE", f"{plan_path}/phases/1", None),
        ("POST", f"{plan_path}/phases/1/checkpoints", {"note": "x"}),
        ("POST", f"{plan_path}/phases/1/tasks", {"name": "x"}),
        ("PATCH", open_path, {"name": "x"}),
        ("DELETE", open_path, None),
        ("POST", f"{open_path}/claim", {}),
        ("POST", "/api/agent/tasks/claim-next", {"plan": "move-house"}),
        ("POST", f"{claimed_path}/heartbeat", token),
        ("POST", f"{claimed_path}/release", token),
        ("POST", f"{claimed_path}/complete", token),
        ("POST", f"{claimed_path}/fail", token | {"error": "x"}),
    ]
    responses = [await instance.agent.send(method, path, body) for method, path, body in writes]
    lists = [cast("list[Json]", (await get_json(instance.agent, f"/plans{query}"))["data"]) for query in ("", "?status=archived")]
    plan_after = await get_json(instance.agent, "/plans/move-house")
    restored_plan = (await instance.agent.post(f"{plan_path}/restore")).json()
    deletion = await instance.agent.send("DELETE", plan_path)

    assert (archived_plan["status"], archived_plan["archive_reason"]) == ("archived", "not now")
    assert {(response.status_code, response.json().get("error")) for response in responses} == {(409, "plan_archived")}
    assert [[plan["slug"] for plan in plans] for plans in lists] == [[], ["move-house"]]
    assert plan_after == archived_plan | {"phases": plan_after["phases"]}
    assert (restored_plan["status"], restored_plan["archived_at"]) == ("paused", None)
    assert deletion.status_code == 204
    assert (await get_json(instance.agent, "/plans/move-house"))["status"] == "archived"


async def test_a_change_of_an_older_version_is_rejected(instance: Instance) -> None:
    """If-Match with another ETag is 412 with the current one, for plans, phases and tasks; the current one is accepted."""
    created = await make_plan(instance.agent, phase("A", "a"))
    plan, task_path = "/api/agent/plans/move-house", f"/api/agent/tasks/{tasks_of(created)['a']['id']}"
    for path, body in ((plan, {"title": "Now"}), (f"{plan}/phases/1", {"name": "Now"}), (task_path, {"name": "Now"})):
        first_etag = (await instance.agent.get(path)).headers["etag"]
        with_current_etag = await instance.agent.send("PATCH", path, body, **{"If-Match": f'"nothing", {first_etag}'})
        with_old_etag = await instance.agent.send("PATCH", path, {"description": "mine"}, **{"If-Match": first_etag})
        with_weak_etag = await instance.agent.send(
            "PATCH", path, {"description": "mine"}, **{"If-Match": f"W/{with_current_etag.headers['etag']}"}
        )

        assert (with_current_etag.status_code, with_current_etag.headers["etag"] != first_etag) == (200, True)
        assert (with_old_etag.status_code, with_old_etag.json()["error"], with_old_etag.json()["etag"]) == (
            412,
            "precondition_failed",
            with_current_etag.headers["etag"],
        )
        assert with_weak_etag.status_code == 412
        assert (await instance.agent.send("PATCH", path, {"description": "ours"}, **{"If-Match": "*"})).status_code == 200


async def test_repeating_a_change_has_no_effect(instance: Instance) -> None:
    """A change to the same values writes nothing: no version, no event."""
    await make_plan(instance.agent, phase("A"))
    once = await instance.agent.send("PATCH", "/api/agent/plans/move-house", {"title": "New", "org": "acme"})
    repeated = await instance.agent.send("PATCH", "/api/agent/plans/move-house", {"title": "New", "org": "acme"})
    await set_status(instance.agent, "/plans/move-house", "active")

    assert once.headers["etag"] == repeated.headers["etag"] == '"2"'
    assert await events_of(instance.agent, "move-house") == ["plan.created", "plan.updated"]


async def test_phases_are_added_moved_and_deleted_in_order(instance: Instance) -> None:
    """Positions have no gaps, and a phase may be named by its position. Deleting a phase removes the dependencies on it."""
    await make_plan(instance.agent, phase("A"), phase("B", "b", depends_on=["A"]), phase("C"))
    addition = await instance.agent.post(
        "/api/agent/plans/move-house/phases", {"name": "D", "position": 2, "depends_on": ["A"], "tasks": ["d"]}
    )
    move = await instance.agent.send("PATCH", "/api/agent/plans/move-house/phases/4", {"position": 1})
    out_of_range = await instance.agent.send("PATCH", "/api/agent/plans/move-house/phases/4", {"position": 5})
    deletion = await instance.agent.send("DELETE", "/api/agent/plans/move-house/phases/2")
    phases = cast("list[Json]", (await get_json(instance.agent, "/plans/move-house/phases"))["data"])

    assert (addition.status_code, addition.json()["position"], move.json()["position"]) == (201, 2, 1)
    assert (out_of_range.status_code, deletion.status_code) == (422, 204)
    assert [(phase["position"], phase["name"], phase["depends_on"]) for phase in phases] == [(1, "C", []), (2, "D", []), (3, "B", [])]


async def test_a_phase_keeps_its_checkpoints(instance: Instance) -> None:
    """A phase shows its checkpoints, oldest first, with their agents."""
    await make_plan(instance.agent, phase("A"))
    for note in ("half way", "nearly"):
        response = await instance.agent.post("/api/agent/plans/move-house/phases/1/checkpoints", {"note": note, "context": {"left": 3}})
        assert response.status_code == 201
    checkpoints = cast("list[Json]", (await get_json(instance.agent, "/plans/move-house/phases/1"))["checkpoints"])

    assert [(checkpoint["note"], checkpoint["context"], checkpoint["agent_id"]) for checkpoint in checkpoints] == [
        ("half way", {"left": 3}, "agent"),
        ("nearly", {"left": 3}, "agent"),
    ]


async def test_every_change_is_an_event_with_its_agent(instance: Instance) -> None:
    """Numbered without gaps, paged, and readable after a known number."""
    plan = await make_plan(instance.agent, phase("A", "a"), status="draft")
    await complete(instance.agent, await claim(instance.agent, tasks_of(plan)["a"]["id"]))
    await set_status(instance.agent, "/plans/move-house/phases/1", "completed")
    events = cast("list[Json]", (await get_json(instance.agent, "/plans/move-house/events"))["data"])
    later_events = await get_json(instance.agent, "/plans/move-house/events?after=4&per_page=1&page=2")

    assert [(event["seq"], event["type"]) for event in events] == list(
        enumerate(
            ["plan.created", "plan.started", "phase.started", "task.claimed", "task.completed", "phase.completed", "plan.completed"], 1
        )
    )
    assert {event["agent_id"] for event in events} == {"agent"}
    assert events[3]["task_id"] == tasks_of(plan)["a"]["id"]
    assert ([item["seq"] for item in cast("list[Json]", later_events["data"])], cast("Json", later_events["meta"])["total"]) == ([6], 3)


async def test_plans_are_listed_newest_first_and_filtered(instance: Instance) -> None:
    """Pages; by status, org, project and text, in which no character is a wildcard."""
    for title, fields in (("One 100%", {"org": "acme"}), ("Two", {"org": "acme", "project": "web"}), ("Three", {"status": "draft"})):
        await make_plan(instance.agent, phase("A", "a", "b"), title=title, **fields)

    async def list_titles(query: str) -> list[object]:
        return [item["title"] for item in cast("list[Json]", (await get_json(instance.agent, f"/plans{query}"))["data"])]

    assert await list_titles("") == ["Three", "Two", "One 100%"]
    assert (await instance.agent.get("/v1/plans")).json()["data"] == (await get_json(instance.agent, "/plans"))["data"]
    assert await list_titles("?per_page=1&page=2") == ["Two"]
    assert await list_titles("?org=acme") == ["Two", "One 100%"]
    assert await list_titles("?project=web") == ["Two"]
    assert await list_titles("?status=draft") == ["Three"]
    assert (await list_titles("?q=00%25"), await list_titles("?q=%25"), await list_titles("?q=TWO"), await list_titles("?q=_")) == (
        ["One 100%"],
        ["One 100%"],
        ["Two"],
        [],
    )


async def test_a_key_sees_only_plans_of_its_orgs(instance: Instance) -> None:
    """The orgs and projects of a key apply to every query, and a key may write only what it can read."""
    acme = await instance.agent_key(restrictions=KeyRestrictions(orgs=frozenset({"acme"})))
    other_plan = await make_plan(instance.agent, phase("A", "a"), org="other")
    plan_without_org = await make_plan(instance.agent, phase("A", "a"), title="No org")
    paths = [
        f"/plans/{other_plan['slug']}",
        f"/plans/{other_plan['id']}",
        f"/plans/{plan_without_org['slug']}",
        f"/tasks/{tasks_of(other_plan)['a']['id']}",
    ]
    responses = [await acme.get(f"/api/agent{path}") for path in paths]
    creations = [await acme.post("/api/agent/plans", {"title": "x", "org": org}) for org in ("acme", "other", None)]
    move = await acme.send("PATCH", "/api/agent/plans/x", {"org": "other"})

    assert [response.status_code for response in responses] == [404] * 4
    assert [creation.status_code for creation in creations] == [201, 403, 403]
    assert (move.status_code, move.json()["not_in_list"]["list"]) == (403, "orgs")
    assert [item["slug"] for item in cast("list[Json]", (await get_json(acme, "/plans"))["data"])] == ["x"]
    assert (await acme.post("/api/agent/tasks/claim-next", {})).headers["x-reason"] == "plan_done"
    assert cast("list[Json]", (await get_json(acme, "/tasks"))["data"]) == []


async def test_permissions_are_those_of_the_specification(instance: Instance) -> None:
    """plans.read reads everything, plans.write writes plans, phases.write phases and tasks; none implies another."""
    plan = await make_plan(instance.agent, phase("A", "a"))
    task_path = f"/api/agent/tasks/{tasks_of(plan)['a']['id']}"
    calls: dict[str, list[tuple[str, str, object]]] = {
        "plans.read": [("GET", "/api/agent/plans", None), ("GET", "/api/agent/plans/move-house/phases/1", None), ("GET", task_path, None)],
        "plans.write": [("POST", "/api/agent/plans", {"title": "x", "phases": ["A"]}), ("PATCH", "/api/agent/plans/move-house", {})],
        "phases.write": [("POST", "/api/agent/plans/move-house/phases", {"name": "x"}), ("PATCH", task_path, {"name": "x"})],
    }
    for granted_permission in calls:
        caller = await instance.agent_key(granted_permission)
        for required_permission, routes in calls.items():
            for method, path, body in routes:
                response = await caller.send(method, path, body)
                assert (response.status_code == 403) == (granted_permission != required_permission), (
                    granted_permission,
                    method,
                    path,
                    response.text,
                )


async def test_a_plan_is_shown_as_markdown_and_as_a_graph(instance: Instance) -> None:
    """Titles are escaped in Markdown; the graph names ready tasks and dependencies."""
    plan = await make_plan(
        instance.agent,
        phase("Pack *all*", "box", task("la[be]l", depends_on=["box"])),
        phase("Drive", depends_on=[1]),
        title="# Move | <b>",
    )
    page = await instance.agent.get(f"/api/agent/plans/{plan['slug']}.md")
    graph = await get_json(instance.agent, f"/plans/{plan['slug']}/graph")
    graph_response = await instance.agent.get(f"/api/agent/plans/{plan['slug']}/graph?format=mermaid")
    tasks, phases = tasks_of(plan), phases_of(plan)

    assert page.headers["content-type"].startswith("text/markdown")
    assert "# \\# Move \\| \\<b\\>" in page.text
    assert "## 1. Pack \\*all\\*" in page.text
    assert "- [ ] la\\[be\\]l (blocked)" in page.text
    assert set(cast("list[str]", graph["ready"])) == {tasks["box"]["id"], phases["Pack *all*"]["id"]}
    assert {"source": tasks["box"]["id"], "target": tasks["la[be]l"]["id"]} in cast("list[Json]", graph["edges"])
    assert {"id": phases["Drive"]["id"], "by": [phases["Pack *all*"]["id"]]} in cast("list[Json]", graph["blocked"])
    assert "p1t1 --> p1t2" in graph_response.text
    assert "la#91;be#93;l" in graph_response.text


@pytest.mark.parametrize("include", ["none", "phases", "tasks"])
async def test_include_selects_the_parts_of_a_plan(instance: Instance, include: str) -> None:
    """Include reduces the response for a large plan."""
    await make_plan(instance.agent, phase("A", "a"))
    plan = await get_json(instance.agent, f"/plans/move-house?include={include}")
    phases = cast("list[Json] | None", plan["phases"])

    assert (phases is None) == (include == "none")
    assert phases is None or (phases[0]["tasks"] is None) == (include == "phases")
    assert plan["progress"] == {"total": 1, "completed": 0, "percentage": 0}


async def test_plans_have_limits(instance: Instance) -> None:
    """The number of phases and the lengths of texts and metadata are limited; never a 500."""
    largest = await instance.agent.post("/api/agent/plans", {"title": "Full", "phases": ["p"] * MAX_PHASES_PER_PLAN})
    extra_phase = await instance.agent.post("/api/agent/plans/full/phases", {"name": "more"})
    invalid_plans: list[dict[str, object]] = [
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
    responses = [await instance.agent.post("/api/agent/plans", body) for body in invalid_plans]

    assert (largest.status_code, extra_phase.status_code, extra_phase.json()["error"]) == (201, 409, "too_many")
    assert [response.status_code for response in responses] == [422] * len(invalid_plans)
    for path in ("/plans/none", "/plans/full/phases/999", "/plans/full/phases/x", "/tasks/none", "/plans/none.md", "/plans/none/graph"):
        assert (await instance.agent.get(f"/api/agent{path}")).status_code == 404


async def test_a_large_plan_is_serialized_outside_the_event_loop(instance: Instance) -> None:
    """Serializing ten thousand tasks takes half a second, in which other requests are served."""
    small, large = [
        await instance.rookery.agents.plans.create(
            make_caller(workspace_id=instance.workspace_id),
            PlanDraft(
                title="Move", phases=(PhaseDraft(name="A", tasks=tuple(TaskDraft(name=f"{number}") for number in range(task_count))),)
            ),
        )
        for task_count in (10, 1000)
    ]

    assert await convert_view(small, lambda _: threading.get_ident()) == threading.get_ident()
    assert await convert_view(large, lambda _: threading.get_ident()) != threading.get_ident()
