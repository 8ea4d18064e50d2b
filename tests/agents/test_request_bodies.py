"""Request bodies of plans, sessions and templates: accepted, stored and rejected fields (D-60, D-62, D-63)."""

from __future__ import annotations

from typing import cast

from tests.agents.makers import get_json, make_plan, phase, phases_of, set_status, tasks_of
from tests.agents.session_makers import error_of, get_nested, parse_body, start_session_id
from tests.conftest import Instance

PLANS, TEMPLATES = "/api/agent/plans", "/v1/templates"
Json = dict[str, object]


async def test_a_plan_of_tasks_alone_has_one_phase(instance: Instance) -> None:
    """Issue 14: {"title", "tasks"} makes one phase with the tasks, over HTTP and MCP; not beside phases; D-60."""
    body = {"title": "Errands", "tasks": ["buy tea", {"name": "brew it", "depends_on": ["buy tea"]}]}
    made = parse_body(await instance.agent.post(PLANS, body), 201)
    assert list(phases_of(made)) == ["Tasks"]
    assert list(tasks_of(made)) == ["buy tea", "brew it"]
    assert tasks_of(made)["brew it"]["blocked"] is True
    call = {"server": "agents", "tool": "plan_create", "arguments": {"title": "More", "tasks": ["drink it"]}}
    by_tool = parse_body(await instance.agent.post("/api/v1/mcp/tools/call", call))
    assert list(tasks_of(cast("Json", get_nested(by_tool, "result")["structuredContent"]))) == ["drink it"]
    both = await instance.agent.post(PLANS, {**body, "phases": ["One"]})
    unknown = await instance.agent.post(PLANS, {"title": "x", "tasks": [{"name": "a", "depends_on": ["b"]}]})
    assert (error_of(both), list(both.json()["errors"])) == ((422, "validation_error"), ["tasks"])
    assert list(unknown.json()["errors"]) == ["tasks.0.depends_on"]


async def test_null_clears_what_may_be_empty_and_is_refused_elsewhere(instance: Instance) -> None:
    """Issue 14: in a PATCH null clears, or is 422 naming the field; it is never passed over; D-10."""
    made = await make_plan(instance.agent, phase("One", "a"), description="d", metadata={"a": 1}, org="acme")
    ids = {"plan": f"/plans/{made['slug']}", "phase": f"/plans/{made['slug']}/phases/1", "task": f"/tasks/{tasks_of(made)['a']['id']}"}
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
    for path, clears, required in cases:
        filled = {name: {"a": 1} if value == {} else ["x"] if name == "acceptance_criteria" else "x" for name, value in clears.items()}
        filled.pop("depends_on", None)
        assert (await instance.admin.send("PATCH", f"/api/agent{path}", filled)).status_code == 200
        cleared = await instance.admin.send("PATCH", f"/api/agent{path}", dict.fromkeys(clears))
        assert {name: value for name, value in parse_body(cleared).items() if name in clears} == clears, path
        for name in required:
            answer = await instance.admin.send("PATCH", f"/api/agent{path}", {name: None})
            assert (error_of(answer), list(answer.json()["errors"])) == ((422, "validation_error"), [name]), path


async def test_a_reason_that_is_given_later_is_kept(instance: Instance) -> None:
    """Issue 14: the reason of a hold, a failure or an archived plan may be given or changed later; D-60."""
    made = await make_plan(instance.agent, phase("One", "a", "b"), phase("Two", "c"))
    slug, task, failed = made["slug"], tasks_of(made)["a"]["id"], tasks_of(made)["b"]["id"]
    for path, status, field in (
        (f"/tasks/{task}", "on_hold", "hold_reason"),
        (f"/tasks/{failed}", "failed", "error"),
        (f"/plans/{slug}/phases/2/status", "on_hold", "hold_reason"),
    ):
        parse_body(await instance.agent.send("PATCH", f"/api/agent{path}", {"status": status}))
        later = parse_body(await instance.agent.send("PATCH", f"/api/agent{path}", {"status": status, "reason": "vendor"}))
        again = parse_body(await instance.agent.send("PATCH", f"/api/agent{path}", {"status": status}))
        assert (later[field], again[field]) == ("vendor", "vendor"), path
    await set_status(instance.agent, f"/plans/{slug}", "archived")
    later = parse_body(await instance.agent.post(f"{PLANS}/{slug}/archive", {"reason": "done"}))
    assert (later["archive_reason"], parse_body(await instance.agent.post(f"{PLANS}/{slug}/archive"))["archive_reason"]) == ("done", "done")
    events = cast("list[Json]", (await get_json(instance.agent, f"/plans/{slug}/events?per_page=100"))["data"])
    assert events[-1]["type"] == "plan.updated"


async def test_a_refused_transition_names_every_way(instance: Instance) -> None:
    """Issue 14: `allowed` of a plan's wrong_transition has archived, which the route takes; D-60."""
    await make_plan(instance.agent, phase("One", "a"))
    answer = await instance.agent.send("PATCH", f"{PLANS}/move-house/status", {"status": "draft"})
    assert (error_of(answer), answer.json()["allowed"]) == ((409, "wrong_transition"), ["archived", "completed", "paused"])
    for status in answer.json()["allowed"]:
        assert (await instance.agent.send("PATCH", f"{PLANS}/move-house/status", {"status": status, "force": True})).status_code == 200
        await instance.agent.post(f"{PLANS}/move-house/restore")
        await instance.agent.send("PATCH", f"{PLANS}/move-house/status", {"status": "active"})


async def test_the_type_of_an_agent_is_its_id_unless_given(instance: Instance) -> None:
    """Issue 14: a session starts without agent_type if the key has an agent, or the request names one; D-62."""
    agent = await instance.agent_key("sessions.write", agent_id="kim")
    mine = get_nested(parse_body(await agent.post("/v1/sessions", {}), 201), "session")
    named = get_nested(parse_body(await instance.admin.post("/v1/sessions", {"agent_id": "ann"}), 201), "session")
    nobody = await instance.admin.post("/v1/sessions", {})
    assert (mine["agent_id"], mine["agent_type"], named["agent_type"]) == ("kim", "kim", "ann")
    assert (error_of(nobody), list(nobody.json()["errors"])) == ((422, "validation_error"), ["agent_type"])


async def test_one_agent_may_have_several_sessions_without_a_plan(instance: Instance) -> None:
    """Issue 14: one open session per agent and plan; without a plan an agent may have several; D-62."""
    plan = await make_plan(instance.agent, phase("One", "a"))
    await start_session_id(instance.agent, plan=plan["slug"])
    assert error_of(await instance.agent.post("/v1/sessions", {"agent_type": "coder", "plan": plan["slug"]})) == (409, "session_active")
    assert await start_session_id(instance.agent) != await start_session_id(instance.agent)


async def test_put_takes_the_template_that_get_gave(instance: Instance) -> None:
    """Issue 14: PUT of what GET gave changes nothing; read-only fields are ignored, another slug is refused; D-63."""
    body = {
        "slug": "hotfix",
        "name": "Hotfix",
        "variables": {"what": {"description": "What broke."}},
        "phases": [{"name": "Fix {{ what }}", "tasks": ["a", {"name": "b", "depends_on": ["a"]}]}],
    }
    made = parse_body(await instance.admin.post(TEMPLATES, body), 201)
    same = parse_body(await instance.admin.send("PUT", f"{TEMPLATES}/hotfix", made))
    assert same == made
    changed = parse_body(await instance.admin.send("PUT", f"{TEMPLATES}/hotfix", {**made, "name": "Hotter fix", "version": "nonsense"}))
    assert changed["name"] == "Hotter fix"
    assert changed["version"] not in {made["version"], "nonsense"}
    other = await instance.admin.send("PUT", f"{TEMPLATES}/hotfix", {**made, "slug": "else"})
    assert (error_of(other), list(other.json()["errors"])) == ((422, "validation_error"), ["slug"])


async def test_versions_of_a_template_are_a_page(instance: Instance) -> None:
    """Issue 14: the list of versions is a page as every list is, with its former fields beside; D-12, D-63."""
    body: Json = {"name": "Hotfix 0", "phases": [{"name": "a"}]}
    parse_body(await instance.admin.post(TEMPLATES, {**body, "slug": "hotfix"}), 201)
    for number in (1, 2):
        parse_body(await instance.admin.send("PUT", f"{TEMPLATES}/hotfix", {**body, "name": f"Hotfix {number}"}))
    second = parse_body(await instance.admin.get(f"{TEMPLATES}/hotfix/versions?per_page=1&page=2"))
    whole = parse_body(await instance.admin.get(f"{TEMPLATES}/hotfix/versions"))
    assert second["meta"] == {"current_page": 2, "per_page": 1, "total": 3}
    assert second["data"] == cast("list[Json]", whole["data"])[1:2]
    assert whole["versions"] == whole["data"] == second["versions"]
    assert whole["count"] == 3
    assert str(get_nested(second, "links")["next"]).endswith("page=3")


async def test_a_template_has_the_same_fields_in_a_list_and_alone(instance: Instance) -> None:
    """Issue 14: phase_names and tasks are there in both, whatever `phases` is; D-63."""
    listed = cast("list[Json]", parse_body(await instance.admin.get(f"{TEMPLATES}?per_page=100"))["data"])
    for each in listed:
        alone = parse_body(await instance.admin.get(f"{TEMPLATES}/{each['slug']}"))
        assert {name: alone[name] for name in ("phase_names", "tasks")} == {name: each[name] for name in ("phase_names", "tasks")}
        assert each["phases"] == each["phase_names"] == [one["name"] for one in cast("list[Json]", alone["phases"])]
