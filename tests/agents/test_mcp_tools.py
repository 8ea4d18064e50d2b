"""Agent work as tools of the built-in server `agents` (D-92): each as its REST twin."""

from __future__ import annotations

from typing import cast

import httpx2
from pydantic import BaseModel

from rookery.agents.mcp_tools import TOOLS
from rookery.agents.schemas import claims, queries
from rookery.agents.schemas import plans as p
from rookery.agents.schemas import session_events as e
from rookery.agents.schemas import sessions as s
from rookery.agents.schemas import templates as t
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

TWINS: dict[str, tuple[type[BaseModel], set[str]]] = {
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
    "task_update": (p.TaskPatch, {"task_id"}),
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
"""The body or query of each tool's twin, and what the twin has in its path."""


async def _send(by: Caller, tool: str, **arguments: object) -> httpx2.Response:
    return await by.post("/api/v1/mcp/tools/call", {"server": "agents", "tool": tool, "arguments": arguments})


async def _call(by: Caller, tool: str, **arguments: object) -> Json:
    answer = await _send(by, tool, **arguments)
    assert answer.status_code == 200, answer.text
    return answer.json()["result"]["structuredContent"]


async def _refused(by: Caller, tool: str, **arguments: object) -> Json:
    """Return the body that the twin would have answered with."""
    answer = await _send(by, tool, **arguments)
    assert answer.status_code == 500, answer.text
    assert answer.json()["code"] == "tool_execution_error"
    return answer.json()["result"]["structuredContent"]


def _of(value: object, *path: str | int) -> object:
    for step in path:
        value = cast("list[object]", value)[step] if isinstance(step, int) else cast("Json", value)[step]
    return value


def test_every_tool_asks_for_what_its_twin_takes() -> None:
    """D-92: no argument that the twin does not know, none required that it does not need, and a word on each tool."""
    assert {tool.name for tool in TOOLS} == TWINS.keys()
    for tool in TOOLS:
        body, path = TWINS[tool.name]
        schema = cast("dict[str, dict[str, object]]", tool.input_schema)
        required = {name for name, field in body.model_fields.items() if field.is_required()}
        assert set(schema["properties"]) - path <= set(body.model_fields), tool.name
        assert path | required <= set(schema["required"]), tool.name
        assert path <= set(schema["properties"]), tool.name
        assert 20 <= len(tool.description) <= 400, tool.name


async def test_answers_are_those_of_the_twins(instance: Instance) -> None:
    """D-92: what a tool returns is the body of the REST answer, to the letter."""
    plan = await _call(instance.agent, "plan_create", **PLAN)
    started = await _call(instance.agent, "session_start", agent_type="claude-code", plan="brew-tea")
    session = str(_of(started, "session", "id"))
    task = str(_of(plan, "phases", 0, "tasks", 0, "id"))
    await _call(instance.agent, "session_log", session_id=session, message="The kettle is blue.", type="decision")

    for tool, path, arguments in (
        ("plan_show", "/v1/plans/brew-tea", {"plan": "brew-tea"}),
        ("task_show", f"/v1/tasks/{task}", {"task_id": task}),
        ("session_show", f"/v1/sessions/{session}", {"session_id": session}),
        ("template_show", "/v1/templates/release", {"slug": "release"}),
    ):
        answered = _same(await _call(instance.agent, tool, **arguments))
        assert answered == _same((await instance.agent.get(path)).json()), tool
    for tool, path, name, arguments in (
        ("plan_list", "/v1/plans", "plans", {}),
        ("templates", "/v1/templates", "templates", {}),
        ("task_ready", "/v1/tasks?state=ready", "tasks", {}),
        ("session_list", "/v1/sessions", "sessions", {}),
        ("session_events", f"/v1/sessions/{session}/events", "events", {"session_id": session}),
    ):
        answered = await _call(instance.agent, tool, **arguments)
        twin = (await instance.agent.get(path)).json()
        assert [_same(each) for each in cast("list[Json]", answered[name])] == [_same(each) for each in twin["data"]], tool
        assert answered["total"] == twin["meta"]["total"] > 0, tool


def _same(answer: Json) -> Json:
    """Leave out what a look itself may change: each call by a session's key is activity and counted."""
    return {name: value for name, value in answer.items() if name not in {"last_activity_at", "stats", "age_s"}}


async def test_a_plan_is_worked_on_by_tools_alone(instance: Instance) -> None:
    """D-92, D-61: made, begun, claimed, kept, completed with the next one claimed, added to, until there is nothing left."""
    agent = instance.agent
    await _call(agent, "plan_create", **{**PLAN, "status": "draft"})
    await _call(agent, "plan_status", plan="brew-tea", status="active")
    session = str(_of(await _call(agent, "session_start", agent_type="claude-code", plan="brew-tea"), "session", "id"))

    first = cast("Json", (await _call(agent, "task_claim_next", plan="brew-tea", session_id=session, ttl_s=60))["task"])
    held = {"task_id": first["id"], "claim_token": first["claim_token"]}
    await _call(agent, "task_heartbeat", **held, ttl_s=120)
    await _call(agent, "session_checkpoint", session_id=session, state={"step": 1}, message="Filled.")
    done = await _call(agent, "task_complete", **held, result="It is full.", claim_next=True)
    second = cast("Json", done["next"])
    assert (first["name"], second["name"], done["status"]) == ("Fill the kettle", "Switch it on", "completed")

    await _call(agent, "task_add", plan="brew-tea", phase="1", name="Clean the kettle", priority=4)
    await _call(agent, "task_release", task_id=second["id"], claim_token=second["claim_token"], reason="No power.")
    again = await _call(agent, "task_claim", task_id=second["id"])
    failed = await _call(agent, "task_fail", task_id=again["id"], claim_token=again["claim_token"], error="Still no power.")
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
    nothing = await _call(agent, "task_claim_next", plan="brew-tea", wait_s=1)
    assert (nothing["task"], nothing["reason"]) == (None, "plan_done")
    await _call(agent, "phase_status", plan="brew-tea", phase="2", status="completed")
    assert (await _call(agent, "plan_show", plan="brew-tea"))["status"] == "completed"
    await _call(agent, "plan_status", plan="brew-tea", status="archived")
    assert (await _call(agent, "plan_restore", plan="brew-tea"))["status"] == "completed"
    ended = await _call(agent, "session_end", session_id=session, summary="There is tea.")
    assert (ended["status"], ended["summary"]) == ("completed", "There is tea.")


async def test_a_plan_is_made_of_a_template_by_tool(instance: Instance) -> None:
    """D-63, D-92: the plan keeps the template, its version and the values; what is wrong with them is told by name."""
    shown = await _call(instance.agent, "template_show", slug="bug-fix")
    answer = (await _send(instance.agent, "plan_from_template", template="bug-fix", variables={"sumary": "No tea"})).json()
    wrong, told = cast("Json", _of(answer, "result", "structuredContent")), str(_of(answer, "result", "content", 0, "text"))
    plan = await _call(
        instance.agent, "plan_from_template", template="bug-fix", variables={"summary": "No tea", "component": "kitchen"}, status="active"
    )

    assert wrong["error"] == "validation_error"
    assert [line.partition(": ")[0] for line in told.splitlines()] == ["variables.sumary", "variables.summary", "variables.component"]
    assert _of(wrong, "errors", "variables.sumary") == ["unknown variable; did you mean 'summary'?"]
    assert (plan["title"], plan["status"], plan["template"]) == ("Fix: No tea", "active", {"slug": "bug-fix", "version": shown["version"]})
    assert _of(plan, "variables", "severity") == "medium"
    assert len(cast("list[Json]", plan["phases"])) == 4


async def test_sessions_are_handed_on_by_tools(instance: Instance) -> None:
    """D-62, D-92: paused, gone on with, handed off, resumed, and the hand-off acknowledged."""
    agent = instance.agent
    await _call(agent, "plan_create", **PLAN)
    first = str(_of(await _call(agent, "session_start", agent_type="claude-code", plan="brew-tea", goal="Tea"), "session", "id"))
    await _call(agent, "session_heartbeat", session_id=first)
    assert (await _call(agent, "session_update", session_id=first, status="paused"))["status"] == "paused"
    assert (await _call(agent, "session_update", session_id=first, status="active"))["status"] == "active"
    ended = await _call(agent, "session_handoff", session_id=first, handoff={"remaining": ["Pour it"], "next_steps": ["Mind the steam"]})
    assert ended["status"] == "handed_off"

    resumed = await _call(agent, "session_resume", session_id=first)
    assert _of(resumed, "boot", "handoff", "next_steps") == ["Mind the steam"]
    second = str(_of(resumed, "session", "id"))
    await _call(agent, "session_update", session_id=second, acknowledge_handoff="loaded")
    assert _of(await _call(agent, "session_show", session_id=first), "handoff", "taken_by") == second


async def test_what_the_twin_refuses_the_tool_refuses_in_its_words(instance: Instance) -> None:
    """D-10, D-92: the same codes and fields; the error for a claimed task names its holder."""
    plan = await _call(instance.agent, "plan_create", **PLAN)
    task = str(_of(plan, "phases", 0, "tasks", 0, "id"))
    await _call(instance.agent, "task_claim", task_id=task)

    taken = await _refused(instance.agent, "task_claim", task_id=task)
    twin = (await instance.agent.post(f"/v1/tasks/{task}/claim", {})).json()
    lost = await _refused(instance.agent, "task_complete", task_id=task, claim_token="not it")
    missing = await _refused(instance.agent, "plan_show", plan="nobodys")
    open_ = await _refused(instance.agent, "plan_status", plan="brew-tea", status="completed")

    assert taken == twin
    assert (taken["error"], lost["error"], missing["error"], open_["error"]) == (
        "task_claimed",
        "lease_lost",
        "resource_not_found",
        "plan_has_open_phases",
    )
    bad = await _send(instance.agent, "task_claim_next", wait_s=500)
    assert (bad.status_code, bad.json()["error"]) == (400, "invalid_arguments")


async def test_each_tool_needs_the_permission_of_its_twin(instance: Instance) -> None:
    """D-92, spec 5.3: without it, it is not listed, and a call is 403."""
    reader = await instance.agent_key("mcp:read", "mcp:write", "plans.read")
    listed = (await reader.get("/api/v1/mcp/servers/agents/tools")).json()["tools"]

    assert {each["name"] for each in listed} == {tool.name for tool in TOOLS if tool.required_scope == "plans.read"}
    refused = await _send(reader, "task_claim_next")
    assert (refused.status_code, refused.json()["required_permission"]) == (403, "phases.write")
    assert (await _send(reader, "plan_list")).status_code == 200


async def test_no_other_tenant_is_reached_by_a_tool(instance: Instance) -> None:
    """Spec 2.8: another workspace's plan is a missing one."""
    await _call(instance.agent, "plan_create", **PLAN)
    stranger = await instance.api_key(workspace_id=await instance.workspace("other"))
    more: dict[str, Json] = {
        "plan_show": {},
        "task_claim_next": {},
        "plan_status": {"status": "paused"},
        "phase_checkpoint": {"phase": "1", "note": "a"},
        "task_add": {"phase": "1", "name": "a"},
        "session_start": {"agent_type": "a"},
    }

    for tool, arguments in more.items():
        assert (await _refused(stranger, tool, plan="brew-tea", **arguments))["error"] == "resource_not_found", tool
