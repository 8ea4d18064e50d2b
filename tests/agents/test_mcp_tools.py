"""Agent work as tools of the built-in server `agents`: each has a REST route as its counterpart."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import cast

import httpx2
from pydantic import BaseModel

from rookery.agents.models.drafts import TaskPatch
from rookery.agents.schemas import claims, queries
from rookery.agents.schemas import plans as p
from rookery.agents.schemas import session_events as e
from rookery.agents.schemas import sessions as s
from rookery.agents.schemas import templates as t
from rookery.kernel.http.operation_tools import PublishedTool
from rookery.kernel.schema import RequestModel
from tests.conftest import Caller, Instance

Json = dict[str, object]

PLAN: Json = {
    "title": "Brew tea",
    "status": "active",
    "phases": [
        {
            "key": "boil",
            "name": "Boil",
            "tasks": [{"name": "Fill the kettle"}, {"name": "Switch it on", "depends_on": ["Fill the kettle"]}],
        },
        {"name": "Pour", "depends_on": ["boil"], "tasks": ["Pour it"]},
    ],
}

TOOL_ROUTES: dict[str, tuple[type[BaseModel], set[str]]] = {
    "plan_list": (queries.PlansQuery, set()),
    "plan_show": (RequestModel, {"plan"}),
    "plan_create": (p.PlanBody, set()),
    "plan_status": (p.PlanStatusBody, {"plan"}),
    "plan_restore": (RequestModel, {"plan"}),
    "plan_from_template": (t.UseBody, {"template"}),
    "templates": (t.TemplatesQuery, set()),
    "template_show": (RequestModel, {"slug"}),
    "phase_status": (p.PhaseStatusBody, {"plan", "phase"}),
    "phase_checkpoint": (p.CheckpointBody, {"plan", "phase"}),
    "task_ready": (queries.TasksQuery, set()),
    "task_show": (RequestModel, {"task_id"}),
    "task_add": (p.NewTaskBody, {"plan", "phase"}),
    "task_update": (TaskPatch, {"task_id"}),
    "task_claim_next": (claims.ClaimNextBody, set()),
    "task_claim": (claims.ClaimBody, {"task_id"}),
    "task_heartbeat": (claims.HeartbeatBody, {"task_id"}),
    "task_complete": (claims.CompleteBody, {"task_id"}),
    "task_fail": (claims.FailBody, {"task_id"}),
    "task_release": (claims.ReleaseBody, {"task_id"}),
    "session_start": (s.StartBody, set()),
    "session_resume": (s.ResumeBody, {"session_id"}),
    "session_list": (s.SessionsQuery, set()),
    "session_show": (RequestModel, {"session_id"}),
    "session_events": (e.SessionEventsQuery, {"session_id"}),
    "session_log": (e.EventBody, {"session_id"}),
    "session_checkpoint": (e.EventBody, {"session_id"}),
    "session_heartbeat": (RequestModel, {"session_id"}),
    "session_update": (s.SessionPatch, {"session_id"}),
    "session_handoff": (s.EndBody, {"session_id"}),
    "session_end": (s.EndBody, {"session_id"}),
}
"""The model of the body or query of each tool's route, and its path parameters."""


async def _send(by: Caller, tool: str, **arguments: object) -> httpx2.Response:
    return await by.post("/api/v1/mcp/tools/call", {"server": "agents", "tool": tool, "arguments": arguments})


async def _call(by: Caller, tool: str, **arguments: object) -> Json:
    response = await _send(by, tool, **arguments)
    assert response.status_code == 200, response.text
    return response.json()["result"]["structuredContent"]


async def _error_of(by: Caller, tool: str, **arguments: object) -> Json:
    """Return the error body, which is that of the route."""
    response = await _send(by, tool, **arguments)
    assert response.status_code == 500, response.text
    assert response.json()["code"] == "tool_execution_error"
    return response.json()["result"]["structuredContent"]


def _get_path(value: object, *path: str | int) -> object:
    for step in path:
        value = cast("list[object]", value)[step] if isinstance(step, int) else cast("Json", value)[step]
    return value


def list_agent_tools(instance: Instance) -> Sequence[PublishedTool]:
    """Return the tools of the built-in server `agents`."""
    return next(server.tools() for server in instance.rookery.tool_servers if server.id == "agents")


async def test_every_tool_has_the_arguments_of_its_route(instance: Instance) -> None:
    """No argument that the route does not have, no required one that the route does not require, and a description."""
    tools = list_agent_tools(instance)
    assert {tool.name for tool in tools} == TOOL_ROUTES.keys()
    for tool in tools:
        body, path = TOOL_ROUTES[tool.name]
        schema = cast("dict[str, dict[str, object]]", tool.input_schema)
        required = {name for name, field in body.model_fields.items() if field.is_required()}
        assert set(schema["properties"]) - path - {"max_tokens"} <= set(body.model_fields), tool.name
        assert path | required <= set(schema.get("required", ())), tool.name
        assert path <= set(schema["properties"]), tool.name
        assert 20 <= len(tool.description) <= 400, tool.name


async def test_results_are_the_bodies_of_the_routes(instance: Instance) -> None:
    """A tool returns exactly the body of the REST response."""
    plan = await _call(instance.agent, "plan_create", **PLAN)
    session_start = await _call(instance.agent, "session_start", agent_type="claude-code", plan="brew-tea")
    session = str(_get_path(session_start, "session", "id"))
    task = str(_get_path(plan, "phases", 0, "tasks", 0, "id"))
    await _call(instance.agent, "session_log", session_id=session, message="The kettle is blue.", type="decision")

    for tool, path, arguments in (
        ("plan_show", "/v1/plans/brew-tea", {"plan": "brew-tea"}),
        ("task_show", f"/v1/tasks/{task}", {"task_id": task}),
        ("session_show", f"/v1/sessions/{session}", {"session_id": session}),
        ("template_show", "/v1/templates/release", {"slug": "release"}),
    ):
        result = _without_volatile(await _call(instance.agent, tool, **arguments))
        assert result == _without_volatile((await instance.agent.get(path)).json()), tool
    for tool, path, name, arguments in (
        ("plan_list", "/v1/plans", "plans", {}),
        ("templates", "/v1/templates", "templates", {}),
        ("task_ready", "/v1/tasks?state=ready", "tasks", {}),
        ("session_list", "/v1/sessions", "sessions", {}),
        ("session_events", f"/v1/sessions/{session}/events", "events", {"session_id": session}),
    ):
        result = await _call(instance.agent, tool, **arguments)
        body = (await instance.agent.get(path)).json()
        assert [_without_volatile(item) for item in cast("list[Json]", result[name])] == [
            _without_volatile(item) for item in body["data"]
        ], tool
        assert result["total"] == body["meta"]["total"] > 0, tool


def _without_volatile(response: Json) -> Json:
    """Remove the fields that a read may change: each call with a session counts as activity."""
    return {name: value for name, value in response.items() if name not in {"last_activity_at", "stats", "age_s"}}


async def test_a_plan_can_be_completed_with_tools_only(instance: Instance) -> None:
    """Created, started, claimed, renewed, completed with the next claim, extended, until all tasks are done."""
    agent = instance.agent
    await _call(agent, "plan_create", **{**PLAN, "status": "draft"})
    await _call(agent, "plan_status", plan="brew-tea", status="active")
    session = str(_get_path(await _call(agent, "session_start", agent_type="claude-code", plan="brew-tea"), "session", "id"))

    first = cast("Json", (await _call(agent, "task_claim_next", plan="brew-tea", session_id=session, ttl_s=60))["task"])
    credential = {"task_id": first["id"], "claim_token": first["claim_token"]}
    await _call(agent, "task_heartbeat", **credential, ttl_s=120)
    await _call(agent, "session_checkpoint", session_id=session, state={"step": 1}, message="Filled.")
    completed = await _call(agent, "task_complete", **credential, result="It is full.", claim_next=True)
    second = cast("Json", completed["next"])
    assert (first["name"], second["name"], completed["status"]) == ("Fill the kettle", "Switch it on", "completed")

    await _call(agent, "task_add", plan="brew-tea", phase="1", name="Clean the kettle", priority=4)
    await _call(agent, "task_release", task_id=second["id"], claim_token=second["claim_token"], reason="No power.")
    second_claim = await _call(agent, "task_claim", task_id=second["id"])
    failed = await _call(agent, "task_fail", task_id=second_claim["id"], claim_token=second_claim["claim_token"], error="Still no power.")
    assert failed["status"] == "failed"
    await _call(agent, "task_update", task_id=second["id"], status="pending", notes="The power is back.")
    await _call(agent, "phase_checkpoint", plan="brew-tea", phase="1", note="Nearly there.")

    names: list[object] = []
    while (task := cast("Json | None", (await _call(agent, "task_claim_next", plan="brew-tea"))["task"])) is not None:
        names.append(task["name"])
        await _call(agent, "task_complete", task_id=task["id"], claim_token=task["claim_token"])
        if task["name"] == "Clean the kettle":
            await _call(agent, "phase_status", plan="brew-tea", phase="1", status="completed")
    assert (names[0], set(names[1:])) == ("Switch it on", {"Clean the kettle", "Pour it"})
    empty = await _call(agent, "task_claim_next", plan="brew-tea", wait_s=1)
    assert (empty["task"], empty["reason"]) == (None, "plan_done")
    await _call(agent, "phase_status", plan="brew-tea", phase="2", status="completed")
    assert (await _call(agent, "plan_show", plan="brew-tea"))["status"] == "completed"
    await _call(agent, "plan_status", plan="brew-tea", status="archived")
    assert (await _call(agent, "plan_restore", plan="brew-tea"))["status"] == "completed"
    ended_session = await _call(agent, "session_end", session_id=session, summary="There is tea.")
    assert (ended_session["status"], ended_session["summary"]) == ("completed", "There is tea.")


async def test_a_tool_creates_a_plan_from_a_template(instance: Instance) -> None:
    """The plan stores the template, its version and the values. Errors name the variables."""
    template = await _call(instance.agent, "template_show", slug="bug-fix")
    response = (await _send(instance.agent, "plan_from_template", template="bug-fix", variables={"sumary": "No tea"})).json()
    error, error_text = (
        cast("Json", _get_path(response, "result", "structuredContent")),
        str(_get_path(response, "result", "content", 0, "text")),
    )
    plan = await _call(
        instance.agent, "plan_from_template", template="bug-fix", variables={"summary": "No tea", "component": "kitchen"}, status="active"
    )

    assert error["error"] == "validation_error"
    assert [line.partition(": ")[0] for line in error_text.splitlines()] == ["variables.sumary", "variables.summary", "variables.component"]
    assert _get_path(error, "errors", "variables.sumary") == ["unknown variable; did you mean 'summary'?"]
    assert (plan["title"], plan["status"], plan["template"]) == (
        "Fix: No tea",
        "active",
        {"slug": "bug-fix", "version": template["version"]},
    )
    assert _get_path(plan, "variables", "severity") == "medium"
    assert len(cast("list[Json]", plan["phases"])) == 4


async def test_sessions_are_handed_off_with_tools(instance: Instance) -> None:
    """Paused, continued, handed off, resumed, and the hand-off acknowledged."""
    agent = instance.agent
    await _call(agent, "plan_create", **PLAN)
    first_session = str(
        _get_path(await _call(agent, "session_start", agent_type="claude-code", plan="brew-tea", goal="Tea"), "session", "id")
    )
    await _call(agent, "session_heartbeat", session_id=first_session)
    assert (await _call(agent, "session_update", session_id=first_session, status="paused"))["status"] == "paused"
    assert (await _call(agent, "session_update", session_id=first_session, status="active"))["status"] == "active"
    handed_off = await _call(
        agent, "session_handoff", session_id=first_session, handoff={"remaining": ["Pour it"], "next_steps": ["Mind the steam"]}
    )
    assert handed_off["status"] == "handed_off"

    resumption = await _call(agent, "session_resume", session_id=first_session)
    assert _get_path(resumption, "boot", "handoff", "next_steps") == ["Mind the steam"]
    second = str(_get_path(resumption, "session", "id"))
    await _call(agent, "session_update", session_id=second, acknowledge_handoff="loaded")
    assert _get_path(await _call(agent, "session_show", session_id=first_session), "handoff", "taken_by") == second


async def test_a_tool_returns_the_error_of_its_route(instance: Instance) -> None:
    """The same codes and fields. The error for a claimed task names its holder."""
    plan = await _call(instance.agent, "plan_create", **PLAN)
    task = str(_get_path(plan, "phases", 0, "tasks", 0, "id"))
    await _call(instance.agent, "task_claim", task_id=task)

    claimed_error = await _error_of(instance.agent, "task_claim", task_id=task)
    route_error = (await instance.agent.post(f"/v1/tasks/{task}/claim", {})).json()
    lease_error = await _error_of(instance.agent, "task_complete", task_id=task, claim_token="not it")
    missing_error = await _error_of(instance.agent, "plan_show", plan="nobodys")
    open_phases_error = await _error_of(instance.agent, "plan_status", plan="brew-tea", status="completed")

    assert claimed_error == route_error
    assert (claimed_error["error"], lease_error["error"], missing_error["error"], open_phases_error["error"]) == (
        "task_claimed",
        "lease_lost",
        "resource_not_found",
        "plan_has_open_phases",
    )
    response = await _send(instance.agent, "task_claim_next", wait_s=500)
    assert (response.status_code, response.json()["error"]) == (400, "invalid_arguments")


async def test_an_error_of_a_tool_names_a_tool_and_that_of_its_route_a_route(instance: Instance) -> None:
    """The same error, whose hint a caller of tools can follow."""
    agent, tools = instance.agent, {tool.name for tool in list_agent_tools(instance)}
    task = str(_get_path(await _call(agent, "plan_create", **PLAN), "phases", 0, "tasks", 0, "id"))
    session = str(_get_path(await _call(agent, "session_start", goal="Tea", agent_type="claude"), "session", "id"))
    await _call(agent, "session_end", session_id=session)
    await _call(agent, "plan_status", plan="brew-tea", status="paused")

    for tool, arguments, path, body in (
        ("task_claim", {"task_id": task}, f"/v1/tasks/{task}/claim", {}),
        ("session_log", {"session_id": session, "message": "x"}, f"/v1/sessions/{session}/events", {"message": "x"}),
    ):
        error, route_error = await _error_of(agent, tool, **arguments), (await agent.post(path, body)).json()
        assert {**error, "message": ""} == {**route_error, "message": ""}
        assert re.search("PATCH|POST", str(route_error["message"]))
        assert not re.search("PATCH|POST", str(error["message"]))
        assert tools & set(re.findall(r"\w+", str(error["message"])))


async def test_each_tool_needs_the_permission_of_its_route(instance: Instance) -> None:
    """Without it, the tool is not listed, and a call is 403."""
    reader = await instance.agent_key("mcp:read", "mcp:write", "plans.read")
    listed = (await reader.get("/api/v1/mcp/servers/agents/tools")).json()["tools"]

    assert {item["name"] for item in listed} == {tool.name for tool in list_agent_tools(instance) if tool.required_scope == "plans.read"}
    response = await _send(reader, "task_claim_next")
    assert (response.status_code, response.json()["required_permission"]) == (403, "phases.write")
    assert (await _send(reader, "plan_list")).status_code == 200


async def test_a_tool_cannot_reach_another_tenant(instance: Instance) -> None:
    """A plan of another workspace is not found."""
    await _call(instance.agent, "plan_create", **PLAN)
    other_caller = await instance.api_key(workspace_id=await instance.workspace("other"))
    arguments_by_tool: dict[str, Json] = {
        "plan_show": {},
        "task_claim_next": {},
        "plan_status": {"status": "paused"},
        "phase_checkpoint": {"phase": "1", "note": "a"},
        "task_add": {"phase": "1", "name": "a"},
        "session_start": {"agent_type": "a"},
    }

    for tool, arguments in arguments_by_tool.items():
        assert (await _error_of(other_caller, tool, plan="brew-tea", **arguments))["error"] == "resource_not_found", tool
