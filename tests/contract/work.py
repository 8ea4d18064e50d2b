"""Agent work."""

from __future__ import annotations

from typing import Any

from tests.contract.statements import Api, assert_error, statement, statement_per_value, statements_about_fields
from tests.contract.tool_servers import result_of, rpc


def start_session(api: Api, **fields: object) -> dict[str, Any]:
    """Start a session and return the response."""
    response = api.post("/v1/sessions", {"agent_type": "contract", "agent_id": api.name("agent")} | fields)
    assert response.status_code == 201, response.text
    return response.json()


def task_of(plan: dict[str, Any], number: int = 0) -> dict[str, Any]:
    """Return a task of the first phase."""
    return plan["phases"][0]["tasks"][number]


statements_about_fields(
    "A plan",
    {
        "id": "string",
        "slug": "string",
        "title": "string",
        "description": "string or null",
        "status": "string",
        "org": "string or null",
        "project": "string or null",
        "progress": "object",
        "metadata": "object",
        "created_at": "time",
    },
    lambda api: api.plan("One"),
)
statements_about_fields(
    "The progress of a plan",
    {"total": "integer", "completed": "integer", "percentage": "number"},
    lambda api: api.plan("One")["progress"],
)
statements_about_fields(
    "A phase",
    {
        "id": "string",
        "position": "integer",
        "name": "string",
        "status": "string",
        "depends_on": "array",
        "acceptance_criteria": "array",
        "tasks": "array",
        "progress": "object",
    },
    lambda api: api.get(f"/v1/plans/{api.plan('One')['slug']}/phases/1").json(),
)
statements_about_fields(
    "A task",
    {
        "id": "string",
        "position": "integer",
        "name": "string",
        "status": "string",
        "priority": "integer",
        "depends_on": "array",
        "attempts": "integer",
    },
    lambda api: api.get(f"/v1/tasks/{task_of(api.plan('One'))['id']}").json(),
)


def is_readable(api: Api, path: str) -> None:
    """Assert that an agent key can read a route."""
    key = api.agent_key("plans.read", "sessions.read", "templates.read")["key"]
    assert api.get(path, key=key).status_code == 200


statement_per_value(
    "Agents can read {} with agent keys that have the permissions.",
    ["/api/agent/plans", "/api/agent/tasks", "/api/agent/sessions", "/api/agent/templates"],
    is_readable,
)


@statement("A plan can be a draft, active, paused, active again and completed.")
def _(api: Api) -> None:
    slug = api.post("/v1/plans", {"title": api.name("Plan")}).json()["slug"]
    assert api.get(f"/v1/plans/{slug}").json()["status"] == "draft"
    for status in ("active", "paused", "active", "completed", "active"):
        response = api.send("PATCH", f"/v1/plans/{slug}/status", {"status": status})
        assert (response.status_code, response.json()["status"]) == (200, status)


@statement("An archived plan is read-only, and restoring it sets its previous status.")
def _(api: Api) -> None:
    slug = api.plan("One")["slug"]
    assert api.post(f"/v1/plans/{slug}/archive", {"reason": "done"}).json()["status"] == "archived"
    assert api.send("PATCH", f"/v1/plans/{slug}", {"title": "Another"}).status_code == 409
    assert api.post(f"/v1/plans/{slug}/restore").json()["status"] == "active"


@statement("Completing a plan with open phases is 409 and names them.")
def _(api: Api) -> None:
    slug = api.plan("One")["slug"]
    assert "First" in api.send("PATCH", f"/v1/plans/{slug}/status", {"status": "completed"}).text
    assert_error(api.send("PATCH", f"/v1/plans/{slug}/status", {"status": "completed"}), 409)
    assert api.send("PATCH", f"/v1/plans/{slug}/status", {"status": "completed", "force": True}).status_code == 200


@statement("A task with an open dependency is blocked; starting it is 409 with the ids.")
def _(api: Api) -> None:
    plan = api.plan("One", "Two")
    first, second = task_of(plan), task_of(plan, 1)
    api.send("PATCH", f"/v1/tasks/{second['id']}", {"depends_on": [first["id"]]})
    assert first["id"] in str(assert_error(api.post(f"/v1/tasks/{second['id']}/claim", {}), 409))


@statement("A cycle of dependencies is rejected when it is written.")
def _(api: Api) -> None:
    plan = api.plan("One", "Two")
    first, second = task_of(plan), task_of(plan, 1)
    api.send("PATCH", f"/v1/tasks/{second['id']}", {"depends_on": [first["id"]]})
    assert api.send("PATCH", f"/v1/tasks/{first['id']}", {"depends_on": [second["id"]]}).status_code in {409, 422}


@statement("A claim returns a token and a lease; a second claim is 409 task_claimed.")
def _(api: Api) -> None:
    task = task_of(api.plan("One"))
    claim = api.post(f"/v1/tasks/{task['id']}/claim", {})
    assert claim.status_code == 200, claim.text
    assert "claim_token" in claim.text
    assert_error(api.post(f"/v1/tasks/{task['id']}/claim", {}, key=api.agent_key("phases.write")["key"]), 409, "task_claimed")


def claim_task(api: Api) -> tuple[str, str]:
    """Claim a task; return its id and the token."""
    task = task_of(api.plan("One"))
    claim = api.post(f"/v1/tasks/{task['id']}/claim", {}).json()
    token = claim.get("claim_token") or claim["claim"]["claim_token"]
    return task["id"], token


def check_action(api: Api, name: str) -> None:
    """Assert that an action accepts the token and rejects another one."""
    task, token = claim_task(api)
    body = {"error": "It cannot be done."} if name == "fail" else {}
    assert api.post(f"/v1/tasks/{task}/{name}", body | {"claim_token": "another-token"}).status_code == 409
    response = api.post(f"/v1/tasks/{task}/{name}", body | {"claim_token": token})
    assert response.status_code == 200, response.text


statement_per_value("{} needs the token of the claim.", ["heartbeat", "complete", "fail", "release"], check_action)


@statement("claim-next returns the best ready task of a plan, and 204 with X-Reason if no task is ready.")
def _(api: Api) -> None:
    slug = api.plan("One")["slug"]
    assert api.post("/v1/tasks/claim-next", {"plan": slug}).status_code == 200
    response = api.post("/v1/tasks/claim-next", {"plan": slug})
    assert (response.status_code, response.headers["X-Reason"]) == (204, "all_claimed")


@statement("claim-next in a session claims a task of the session's plan.")
def _(api: Api) -> None:
    api.plan("Of another plan")
    plan = api.plan("Mine")
    session_id = start_session(api, plan=plan["slug"])["session"]["id"]
    response = api.post("/v1/tasks/claim-next", {"session_id": session_id})
    assert response.status_code == 200, response.text
    assert task_of(plan)["id"] in response.text


statements_about_fields(
    "A session",
    {
        "id": "string",
        "agent_id": "string or null",
        "agent_type": "string or null",
        "plan": "string or null",
        "status": "string",
        "goal": "string or null",
        "started_at": "time",
        "last_activity_at": "time",
        "ended_at": "time or null",
        "summary": "string or null",
    },
    lambda api: start_session(api)["session"],
)


@statement("A start returns the session, and boot with plan, phase, tasks, handoff, checkpoint and memories.")
def _(api: Api) -> None:
    boot = start_session(api, plan=api.plan("One")["slug"])["boot"]
    assert boot.keys() >= {"plan", "phase", "tasks", "handoff", "checkpoint", "memories"}


@statement("A second start of an agent on a plan is 409, unless with takeover.")
def _(api: Api) -> None:
    plan, agent = api.plan("One")["slug"], api.name("agent")
    start_session(api, plan=plan, agent_id=agent)
    body = {"agent_type": "contract", "plan": plan, "agent_id": agent}
    assert_error(api.post("/v1/sessions", body), 409, "session_active")
    assert api.post("/v1/sessions", body | {"takeover": True}).status_code == 201


def append_event(api: Api, kind: str) -> None:
    """Assert that an event of a kind is stored."""
    session_id = start_session(api)["session"]["id"]
    body = {"type": kind, "message": "x"} if kind != "checkpoint" else {"type": kind, "state": {"step": 1}}
    response = api.post(f"/v1/sessions/{session_id}/events", body)
    assert response.status_code == 201, response.text


statement_per_value(
    "A session accepts an event of type {}.",
    ["note", "action", "decision", "checkpoint", "question", "answer", "artifact", "error"],
    append_event,
)


@statement("The events of a session are numbered without gaps.")
def _(api: Api) -> None:
    session_id = start_session(api)["session"]["id"]
    for _ in range(3):
        api.post(f"/v1/sessions/{session_id}/events", {"type": "note", "message": "x"})
    numbers = [item["seq"] for item in api.get(f"/v1/sessions/{session_id}/events?per_page=100").json()["data"]]
    assert sorted(numbers) == list(range(min(numbers), min(numbers) + len(numbers)))


@statement("A hand-off is offered to the next session on the plan.")
def _(api: Api) -> None:
    plan = api.plan("One")["slug"]
    session_id = start_session(api, plan=plan)["session"]["id"]
    ended = api.post(f"/v1/sessions/{session_id}/end", {"handoff": {"summary": "Half is done.", "next_steps": ["The rest"]}})
    assert ended.json()["status"] == "handed_off", ended.text
    assert "Half is done." in str(start_session(api, plan=plan)["boot"]["handoff"])


@statement("An ended session is completed, and further events are rejected.")
def _(api: Api) -> None:
    session_id = start_session(api)["session"]["id"]
    assert api.post(f"/v1/sessions/{session_id}/end", {}).json()["status"] == "completed"
    assert api.post(f"/v1/sessions/{session_id}/events", {"type": "note", "message": "x"}).status_code == 409


@statement("Memories of a session are archived when it completes, except the promoted ones.")
def _(api: Api) -> None:
    session_id = start_session(api)["session"]["id"]
    promoted, not_promoted = (
        api.remember(text, memory_scope="session", session_id=session_id)["id"] for text in ("Keep this.", "Leave this.")
    )
    assert api.post(f"/v1/sessions/{session_id}/end", {"promote": [promoted]}).status_code == 200
    assert api.get(f"/v1/brain/memories/{promoted}").json()["memory_scope"] == "project"
    assert api.get(f"/v1/brain/memories/{not_promoted}").json()["state"] == "archived"


# Templates


@statement("Eight templates are included.")
def _(api: Api) -> None:
    assert sum(item["source"] != "workspace" for item in api.get("/v1/templates?per_page=100").json()["data"]) >= 8


TEMPLATE = {
    "name": "Greeting",
    "variables": {"who": {"type": "string", "required": True}},
    "phases": [{"name": "Greet {{ who }}", "tasks": [{"name": "Say hello to {{ who }}"}]}],
}


@statement("A plan is created from a template; inserted values are not parsed for placeholders.")
def _(api: Api) -> None:
    slug = api.post("/v1/templates", TEMPLATE | {"slug": api.name("greeting")}).json()["slug"]
    response = api.post(f"/v1/templates/{slug}/plans", {"variables": {"who": "{{ who }} Ann"}})
    assert response.status_code == 201, response.text
    assert response.json()["phases"][0]["name"] == "Greet {{ who }} Ann"


def rejects_variables(api: Api, variables: object) -> None:
    """Assert that a plan and a preview reject the variables."""
    slug = api.post("/v1/templates", TEMPLATE | {"slug": api.name("greeting")}).json()["slug"]
    assert_error(api.post(f"/v1/templates/{slug}/plans", {"variables": variables}), 422)
    assert_error(api.post(f"/v1/templates/{slug}/preview", {"variables": variables}), 422)


statement_per_value(
    "The variables {} are 422.",
    [{}, {"who": "Ann", "unknown": "x"}],
    rejects_variables,
)


@statement("A template can be previewed, and each change is a version.")
def _(api: Api) -> None:
    slug = api.post("/v1/templates", TEMPLATE | {"slug": api.name("greeting")}).json()["slug"]
    assert "Greet Ann" in api.post(f"/v1/templates/{slug}/preview", {"variables": {"who": "Ann"}}).text
    api.send("PUT", f"/v1/templates/{slug}", TEMPLATE | {"description": "Another"})
    assert len(api.get(f"/v1/templates/{slug}/versions").json()["data"]) == 2


@statement("PUT accepts the response of GET for a template.")
def _(api: Api) -> None:
    slug = api.post("/v1/templates", TEMPLATE | {"slug": api.name("greeting")}).json()["slug"]
    response = api.send("PUT", f"/v1/templates/{slug}", api.get(f"/v1/templates/{slug}").json())
    assert response.status_code == 200, response.text


def check_if_match(api: Api, case: tuple[str, str]) -> None:
    """Assert that a write with an old version in If-Match is 412."""
    method, path = case
    plan = api.plan("One")
    values = {
        "plan": plan["slug"],
        "task": task_of(plan)["id"],
        "session": start_session(api)["session"]["id"],
        "memory": api.remember()["id"],
    }
    body: object = {"title": "x"} if path.endswith("{plan}") else {"status": "paused"} if path.endswith("status") else {}
    body = {"tags": ["x"]} if "memory" in path else {"force": True} if path.endswith("complete") else body
    response = api.send(method, path.format(**values), body, headers={"If-Match": '"999"'})
    assert_error(response, 412)


statement_per_value(
    "If-Match with another version is 412: {}.",
    [
        ("PATCH", "/v1/plans/{plan}"),
        ("PATCH", "/v1/plans/{plan}/status"),
        ("POST", "/v1/plans/{plan}/archive"),
        ("POST", "/v1/tasks/{task}/claim"),
        ("POST", "/v1/tasks/{task}/complete"),
        ("POST", "/v1/sessions/{session}/end"),
        ("PATCH", "/v1/brain/memories/{memory}"),
    ],
    check_if_match,
)

ROUTES = [
    *("GET /plans", "GET /plans/{plan}", "GET /plans/{plan}/graph", "GET /plans/{plan}/events", "GET /plans/{plan}.md"),
    *("GET /plans/{plan}/phases", "GET /plans/{plan}/phases/1", "GET /plans/{plan}/phases/1/tasks", "GET /tasks/{task}"),
    *("GET /tasks?state=ready", "GET /sessions", "GET /sessions/{session}", "GET /sessions/{session}/events", "GET /templates"),
    *("POST /sessions/{session}/heartbeat", "POST /plans/{plan}/phases/1/checkpoints", "DELETE /tasks/{task}", "DELETE /plans/{plan}"),
]


def has_both_prefixes(api: Api, route: str) -> None:
    """Assert that a route exists under both prefixes."""
    method, path = route.split()
    for prefix in ("/api/agent", "/v1"):
        plan = api.plan("One")
        values = {"plan": plan["slug"], "task": task_of(plan)["id"], "session": start_session(api)["session"]["id"]}
        body = {"note": "x"} if path.endswith("checkpoints") else None
        response = api.send(method, prefix + path.format(**values), body)
        assert response.status_code < 300 or (body and response.status_code == 422), (prefix, response.text)


statement_per_value("{} exists under /api/agent and under /v1.", ROUTES, has_both_prefixes)


def has_tool(api: Api, case: tuple[str, str]) -> None:
    """Assert that a built-in server has a tool."""
    server, tool = case
    names = {tool["name"] for tool in result_of(rpc(api, f"/mcp/{server}", "tools/list"))["tools"]}
    assert tool in names, sorted(names)


statement_per_value(
    "A built-in server has its tool: {}.",
    [("brain", name) for name in ("remember", "recall", "search", "forget", "feedback", "context")] + [("agents", "plan_create")],
    has_tool,
)


@statement("A built-in tool outside of the key's scopes is not listed, and a call is rejected.")
def _(api: Api) -> None:
    key = api.api_key("mcp:read", "mcp:write", "brain:read")["plaintext_key"]
    names = {tool["name"] for tool in result_of(rpc(api, "/mcp/brain", "tools/list", key=key))["tools"]}
    assert "recall" in names
    assert "remember" not in names
    assert api.call("brain", "remember", key=key, content="x", type="fact").status_code == 403
