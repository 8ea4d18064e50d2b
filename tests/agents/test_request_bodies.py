"""Request bodies of plans, sessions and templates: accepted, stored and rejected fields."""

from __future__ import annotations

from typing import cast

from dirty_equals import IsStr

from tests.agents.makers import get_json, make_plan, phase, phases_of, set_status, tasks_of
from tests.agents.session_makers import error_of, get_nested, parse_body, start_session_id
from tests.conftest import Instance

PLANS, TEMPLATES = "/api/agent/plans", "/v1/templates"
Json = dict[str, object]


async def test_a_plan_with_only_tasks_has_one_phase(instance: Instance) -> None:
    """{"title", "tasks"} creates one phase with the tasks, over HTTP and MCP; not together with phases."""
    body = {"title": "Errands", "tasks": ["buy tea", {"name": "brew it", "depends_on": ["buy tea"]}]}
    plan = parse_body(await instance.agent.post(PLANS, body), 201)
    assert list(phases_of(plan)) == ["Tasks"]
    assert list(tasks_of(plan)) == ["buy tea", "brew it"]
    assert tasks_of(plan)["brew it"]["blocked"] is True
    call = {"server": "agents", "tool": "plan_create", "arguments": {"title": "More", "tasks": ["drink it"]}}
    by_tool = parse_body(await instance.agent.post("/api/v1/mcp/tools/call", call))
    assert list(tasks_of(cast("Json", get_nested(by_tool, "result")["structuredContent"]))) == ["drink it"]
    with_both = await instance.agent.post(PLANS, {**body, "phases": ["One"]})
    with_unknown_dependency = await instance.agent.post(PLANS, {"title": "x", "tasks": [{"name": "a", "depends_on": ["b"]}]})
    assert (error_of(with_both), list(with_both.json()["errors"])) == ((422, "validation_error"), ["tasks"])
    assert list(with_unknown_dependency.json()["errors"]) == ["tasks.0.depends_on"]


async def test_null_clears_optional_fields_and_is_rejected_for_others(instance: Instance) -> None:
    """In a PATCH null clears a field, or is 422 with its name; it is never ignored."""
    plan = await make_plan(instance.agent, phase("One", "a"), description="d", metadata={"a": 1}, org="acme")
    ids = {"plan": f"/plans/{plan['slug']}", "phase": f"/plans/{plan['slug']}/phases/1", "task": f"/tasks/{tasks_of(plan)['a']['id']}"}
    session = f"/sessions/{await start_session_id(instance.agent, goal='g', context={'a': 1})}"
    cases: list[tuple[str, Json, tuple[str, ...]]] = [
        (ids["plan"], {"description": "", "metadata": {}, "org": None, "project": None}, ("title",)),
        (ids["phase"], {"description": "", "metadata": {}, "acceptance_criteria": [], "depends_on": []}, ("name", "position")),
        (
            ids["task"],
            {"description": "", "notes": "", "metadata": {}, "acceptance_criteria": [], "depends_on": [], "result": None},
            ("name", "position", "priority", "status"),
        ),
        (session, {"goal": None, "context": {}, "summary": None}, ("status", "handoff", "acknowledge_handoff")),
    ]
    for path, defaults, required_fields in cases:
        values = {name: {"a": 1} if value == {} else ["x"] if name == "acceptance_criteria" else "x" for name, value in defaults.items()}
        values.pop("depends_on", None)
        assert (await instance.admin.send("PATCH", f"/api/agent{path}", values)).status_code == 200
        response = await instance.admin.send("PATCH", f"/api/agent{path}", dict.fromkeys(defaults))
        assert {name: value for name, value in parse_body(response).items() if name in defaults} == defaults, path
        for name in required_fields:
            response = await instance.admin.send("PATCH", f"/api/agent{path}", {name: None})
            assert (error_of(response), list(response.json()["errors"])) == ((422, "validation_error"), [name]), path


async def test_a_reason_can_be_added_later(instance: Instance) -> None:
    """The reason of a hold, a failure or an archived plan may be set or changed later."""
    plan = await make_plan(instance.agent, phase("One", "a", "b"), phase("Two", "c"))
    slug, task, failed_task = plan["slug"], tasks_of(plan)["a"]["id"], tasks_of(plan)["b"]["id"]
    for path, status, field in (
        (f"/tasks/{task}", "on_hold", "hold_reason"),
        (f"/tasks/{failed_task}", "failed", "error"),
        (f"/plans/{slug}/phases/2/status", "on_hold", "hold_reason"),
    ):
        parse_body(await instance.agent.send("PATCH", f"/api/agent{path}", {"status": status}))
        with_reason = parse_body(await instance.agent.send("PATCH", f"/api/agent{path}", {"status": status, "reason": "vendor"}))
        without_reason = parse_body(await instance.agent.send("PATCH", f"/api/agent{path}", {"status": status}))
        assert (with_reason[field], without_reason[field]) == ("vendor", "vendor"), path
    await set_status(instance.agent, f"/plans/{slug}", "archived")
    with_reason = parse_body(await instance.agent.post(f"{PLANS}/{slug}/archive", {"reason": "done"}))
    assert (with_reason["archive_reason"], parse_body(await instance.agent.post(f"{PLANS}/{slug}/archive"))["archive_reason"]) == (
        "done",
        "done",
    )
    events = cast("list[Json]", (await get_json(instance.agent, f"/plans/{slug}/events?per_page=100"))["data"])
    assert events[-1]["type"] == "plan.updated"


async def test_a_rejected_transition_names_every_allowed_one(instance: Instance) -> None:
    """`allowed` of a plan's wrong_transition includes archived, which the route accepts."""
    await make_plan(instance.agent, phase("One", "a"))
    response = await instance.agent.send("PATCH", f"{PLANS}/move-house/status", {"status": "draft"})
    assert (error_of(response), response.json()["allowed"]) == ((409, "wrong_transition"), ["archived", "completed", "paused"])
    for status in response.json()["allowed"]:
        assert (await instance.agent.send("PATCH", f"{PLANS}/move-house/status", {"status": status, "force": True})).status_code == 200
        await instance.agent.post(f"{PLANS}/move-house/restore")
        await instance.agent.send("PATCH", f"{PLANS}/move-house/status", {"status": "active"})


async def test_the_agent_type_defaults_to_the_agent_id(instance: Instance) -> None:
    """A session starts without agent_type if the key or the request has an agent."""
    agent = await instance.agent_key("sessions.write", agent_id="kim")
    session_of_key = get_nested(parse_body(await agent.post("/v1/sessions", {}), 201), "session")
    session_of_request = get_nested(parse_body(await instance.admin.post("/v1/sessions", {"agent_id": "ann"}), 201), "session")
    nobody = await instance.admin.post("/v1/sessions", {})
    assert (session_of_key["agent_id"], session_of_key["agent_type"], session_of_request["agent_type"]) == ("kim", "kim", "ann")
    assert (error_of(nobody), list(nobody.json()["errors"])) == ((422, "validation_error"), ["agent_type"])


async def test_one_agent_may_have_several_sessions_without_a_plan(instance: Instance) -> None:
    """One open session per agent and plan; without a plan an agent may have several."""
    plan = await make_plan(instance.agent, phase("One", "a"))
    await start_session_id(instance.agent, plan=plan["slug"])
    assert error_of(await instance.agent.post("/v1/sessions", {"agent_type": "coder", "plan": plan["slug"]})) == (409, "session_active")
    assert await start_session_id(instance.agent) != await start_session_id(instance.agent)


async def test_put_accepts_the_template_from_get(instance: Instance) -> None:
    """PUT with the body of GET changes nothing. Read-only fields are ignored, another slug is rejected."""
    body = {
        "slug": "hotfix",
        "name": "Hotfix",
        "variables": {"what": {"description": "What broke."}},
        "phases": [{"name": "Fix {{ what }}", "tasks": ["a", {"name": "b", "depends_on": ["a"]}]}],
    }
    template = parse_body(await instance.admin.post(TEMPLATES, body), 201)
    unchanged = parse_body(await instance.admin.send("PUT", f"{TEMPLATES}/hotfix", template))
    assert unchanged == template
    changed_template = parse_body(
        await instance.admin.send("PUT", f"{TEMPLATES}/hotfix", {**template, "name": "Hotter fix", "version": "nonsense"})
    )
    assert changed_template["name"] == "Hotter fix"
    assert changed_template["version"] not in {template["version"], "nonsense"}
    with_other_slug = await instance.admin.send("PUT", f"{TEMPLATES}/hotfix", {**template, "slug": "else"})
    assert (error_of(with_other_slug), list(with_other_slug.json()["errors"])) == ((422, "validation_error"), ["slug"])


async def test_versions_of_a_template_are_a_page(instance: Instance) -> None:
    """The list of versions is a page like every list."""
    body: Json = {"name": "Hotfix 0", "phases": [{"name": "a"}]}
    parse_body(await instance.admin.post(TEMPLATES, {**body, "slug": "hotfix"}), 201)
    for number in (1, 2):
        parse_body(await instance.admin.send("PUT", f"{TEMPLATES}/hotfix", {**body, "name": f"Hotfix {number}"}))
    second = parse_body(await instance.admin.get(f"{TEMPLATES}/hotfix/versions?per_page=1&page=2"))
    all_versions = parse_body(await instance.admin.get(f"{TEMPLATES}/hotfix/versions"))
    assert second["meta"] == {"current_page": 2, "per_page": 1, "total": 3, "next_cursor": IsStr()}
    assert second["data"] == cast("list[Json]", all_versions["data"])[1:2]
    assert all_versions.keys() == {"data", "links", "meta"}
    assert str(get_nested(second, "links")["next"]).endswith("page=3")


async def test_a_template_has_the_same_fields_in_a_list_and_alone(instance: Instance) -> None:
    """phase_names and tasks are in both responses, with and without the full phases."""
    listed = cast("list[Json]", parse_body(await instance.admin.get(f"{TEMPLATES}?per_page=100"))["data"])
    for template in listed:
        fetched = parse_body(await instance.admin.get(f"{TEMPLATES}/{template['slug']}"))
        assert {name: fetched[name] for name in ("phase_names", "tasks")} == {name: template[name] for name in ("phase_names", "tasks")}
        assert "phases" not in template
        assert template["phase_names"] == [phase_["name"] for phase_ in cast("list[Json]", fetched["phases"])]
