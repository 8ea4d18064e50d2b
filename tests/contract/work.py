"""Agent work: specification 1, 4.2, and decisions D-53, D-60 to D-65, D-92."""

from __future__ import annotations

from typing import Any

from tests.contract.statements import Api, refused, statement, statement_per_value, statements_about_fields
from tests.contract.tool_servers import result_of, rpc


def session(api: Api, **fields: object) -> dict[str, Any]:
    """Start a session and return the answer."""
    answer = api.post("/v1/sessions", {"agent_type": "contract", "agent_id": api.name("agent")} | fields)
    assert answer.status_code == 201, answer.text
    return answer.json()


def task_of(plan: dict[str, Any], number: int = 0) -> dict[str, Any]:
    """Return a task of the first phase."""
    return plan["phases"][0]["tasks"][number]


statements_about_fields(
    "D-60",
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
    "D-60",
    "The progress of a plan",
    {"total": "integer", "completed": "integer", "percentage": "number"},
    lambda api: api.plan("One")["progress"],
)
statements_about_fields(
    "D-60",
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
    "D-60",
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


def answers(api: Api, path: str) -> None:
    """Check one value."""
    key = api.agent_key("plans.read", "sessions.read", "templates.read")["key"]
    assert api.get(path, key=key).status_code == 200


statement_per_value(
    "spec 1",
    "Agents reach {} with agent keys that carry named permissions.",
    ["/api/agent/plans", "/api/agent/tasks", "/api/agent/sessions", "/api/agent/templates"],
    answers,
)


@statement("D-60", "A plan is a draft, then active, paused, active again and completed.")
def _(api: Api) -> None:
    slug = api.post("/v1/plans", {"title": api.name("Plan")}).json()["slug"]
    assert api.get(f"/v1/plans/{slug}").json()["status"] == "draft"
    for status in ("active", "paused", "active", "completed", "active"):
        answer = api.send("PATCH", f"/v1/plans/{slug}/status", {"status": status})
        assert (answer.status_code, answer.json()["status"]) == (200, status)


@statement("D-60", "An archived plan is read-only, and returns to the status before.")
def _(api: Api) -> None:
    slug = api.plan("One")["slug"]
    assert api.post(f"/v1/plans/{slug}/archive", {"reason": "done"}).json()["status"] == "archived"
    assert api.send("PATCH", f"/v1/plans/{slug}", {"title": "Another"}).status_code == 409
    assert api.post(f"/v1/plans/{slug}/restore").json()["status"] == "active"


@statement("D-60", "Completing a plan with open phases is 409 and names them.")
def _(api: Api) -> None:
    slug = api.plan("One")["slug"]
    assert "First" in api.send("PATCH", f"/v1/plans/{slug}/status", {"status": "completed"}).text
    refused(api.send("PATCH", f"/v1/plans/{slug}/status", {"status": "completed"}), 409)
    assert api.send("PATCH", f"/v1/plans/{slug}/status", {"status": "completed", "force": True}).status_code == 200


@statement("D-60", "A task that waits for another is blocked; starting it is 409 with the ids.")
def _(api: Api) -> None:
    plan = api.plan("One", "Two")
    first, second = task_of(plan), task_of(plan, 1)
    api.send("PATCH", f"/v1/tasks/{second['id']}", {"depends_on": [first["id"]]})
    assert first["id"] in str(refused(api.post(f"/v1/tasks/{second['id']}/claim", {}), 409))


@statement("D-60", "A circle of dependencies is refused when it is written.")
def _(api: Api) -> None:
    plan = api.plan("One", "Two")
    first, second = task_of(plan), task_of(plan, 1)
    api.send("PATCH", f"/v1/tasks/{second['id']}", {"depends_on": [first["id"]]})
    assert api.send("PATCH", f"/v1/tasks/{first['id']}", {"depends_on": [second["id"]]}).status_code in {409, 422}


@statement("D-61", "A claim gives a token and a lease; a second claimant is 409 task_claimed.")
def _(api: Api) -> None:
    task = task_of(api.plan("One"))
    claim = api.post(f"/v1/tasks/{task['id']}/claim", {})
    assert claim.status_code == 200, claim.text
    assert "claim_token" in claim.text
    refused(api.post(f"/v1/tasks/{task['id']}/claim", {}, key=api.agent_key("phases.write")["key"]), 409, "task_claimed")


def claimed(api: Api) -> tuple[str, str]:
    """Claim a task; return its id and the token."""
    task = task_of(api.plan("One"))
    claim = api.post(f"/v1/tasks/{task['id']}/claim", {}).json()
    token = claim.get("claim_token") or claim["claim"]["claim_token"]
    return task["id"], token


def verb(api: Api, name: str) -> None:
    """Assert that a verb takes the token and refuses another."""
    task, token = claimed(api)
    body = {"error": "It cannot be done."} if name == "fail" else {}
    assert api.post(f"/v1/tasks/{task}/{name}", body | {"claim_token": "another-token"}).status_code == 409
    answer = api.post(f"/v1/tasks/{task}/{name}", body | {"claim_token": token})
    assert answer.status_code == 200, answer.text


statement_per_value("D-61", "{} needs the token of the claim.", ["heartbeat", "complete", "fail", "release"], verb)


@statement("D-61", "claim-next gives the best ready task of a plan, and 204 with X-Reason when there is none.")
def _(api: Api) -> None:
    slug = api.plan("One")["slug"]
    assert api.post("/v1/tasks/claim-next", {"plan": slug}).status_code == 200
    answer = api.post("/v1/tasks/claim-next", {"plan": slug})
    assert (answer.status_code, answer.headers["X-Reason"]) == (204, "all_claimed")


@statement("D-61", "claim-next in a session takes work of the session's plan.")
def _(api: Api) -> None:
    api.plan("Of another plan")
    plan = api.plan("Mine")
    started = session(api, plan=plan["slug"])["session"]["id"]
    answer = api.post("/v1/tasks/claim-next", {"session_id": started})
    assert answer.status_code == 200, answer.text
    assert task_of(plan)["id"] in answer.text


statements_about_fields(
    "D-62",
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
    lambda api: session(api)["session"],
)


@statement("D-62", "A start answers the session and boot with plan, phase, tasks, handoff, checkpoint and memories.")
def _(api: Api) -> None:
    boot = session(api, plan=api.plan("One")["slug"])["boot"]
    assert boot.keys() >= {"plan", "phase", "tasks", "handoff", "checkpoint", "memories"}


@statement("D-62", "A second start of an agent on a plan is 409, unless it takes over.")
def _(api: Api) -> None:
    plan, agent = api.plan("One")["slug"], api.name("agent")
    session(api, plan=plan, agent_id=agent)
    body = {"agent_type": "contract", "plan": plan, "agent_id": agent}
    refused(api.post("/v1/sessions", body), 409, "session_active")
    assert api.post("/v1/sessions", body | {"takeover": True}).status_code == 201


def append(api: Api, kind: str) -> None:
    """Assert that an event of a kind is stored."""
    started = session(api)["session"]["id"]
    body = {"type": kind, "message": "x"} if kind != "checkpoint" else {"type": kind, "state": {"step": 1}}
    answer = api.post(f"/v1/sessions/{started}/events", body)
    assert answer.status_code == 201, answer.text


statement_per_value(
    "D-62", "A session takes an event {}.", ["note", "action", "decision", "checkpoint", "question", "answer", "artifact", "error"], append
)


@statement("D-62", "The events of a session are numbered without gaps.")
def _(api: Api) -> None:
    started = session(api)["session"]["id"]
    for _ in range(3):
        api.post(f"/v1/sessions/{started}/events", {"type": "note", "message": "x"})
    numbers = [each["seq"] for each in api.get(f"/v1/sessions/{started}/events?per_page=100").json()["data"]]
    assert sorted(numbers) == list(range(min(numbers), min(numbers) + len(numbers)))


@statement("D-62", "A hand-off is offered to the next start on the plan.")
def _(api: Api) -> None:
    plan = api.plan("One")["slug"]
    started = session(api, plan=plan)["session"]["id"]
    ended = api.post(f"/v1/sessions/{started}/end", {"handoff": {"summary": "Half is done.", "next_steps": ["The rest"]}})
    assert ended.json()["status"] == "handed_off", ended.text
    assert "Half is done." in str(session(api, plan=plan)["boot"]["handoff"])


@statement("D-62", "A session ends completed, and further events are refused.")
def _(api: Api) -> None:
    started = session(api)["session"]["id"]
    assert api.post(f"/v1/sessions/{started}/end", {}).json()["status"] == "completed"
    assert api.post(f"/v1/sessions/{started}/events", {"type": "note", "message": "x"}).status_code == 409


@statement("D-53", "Memories of a session are archived when it completes, but for the promoted ones.")
def _(api: Api) -> None:
    started = session(api)["session"]["id"]
    kept, gone = (api.remember(text, memory_scope="session", session_id=started)["id"] for text in ("Keep this.", "Leave this."))
    assert api.post(f"/v1/sessions/{started}/end", {"promote": [kept]}).status_code == 200
    assert api.get(f"/v1/brain/memories/{kept}").json()["memory_scope"] == "project"
    assert api.get(f"/v1/brain/memories/{gone}").json()["state"] == "archived"


# Templates


@statement("D-63", "Eight templates ship.")
def _(api: Api) -> None:
    assert sum(each["source"] != "workspace" for each in api.get("/v1/templates?per_page=100").json()["data"]) >= 8


TEMPLATE = {
    "name": "Greeting",
    "variables": {"who": {"type": "string", "required": True}},
    "phases": [{"name": "Greet {{ who }}", "tasks": [{"name": "Say hello to {{ who }}"}]}],
}


@statement("D-63", "A plan is made of a template; values are inserted once.")
def _(api: Api) -> None:
    slug = api.post("/v1/templates", TEMPLATE | {"slug": api.name("greeting")}).json()["slug"]
    made = api.post(f"/v1/templates/{slug}/plans", {"variables": {"who": "{{ who }} Ann"}})
    assert made.status_code == 201, made.text
    assert made.json()["phases"][0]["name"] == "Greet {{ who }} Ann"


def is_refused_template(api: Api, variables: object) -> None:
    """Check one value."""
    slug = api.post("/v1/templates", TEMPLATE | {"slug": api.name("greeting")}).json()["slug"]
    refused(api.post(f"/v1/templates/{slug}/plans", {"variables": variables}), 422)
    refused(api.post(f"/v1/templates/{slug}/preview", {"variables": variables}), 422)


statement_per_value(
    "D-63",
    "The variables {} are 422.",
    [{}, {"who": "Ann", "unknown": "x"}],
    is_refused_template,
)


@statement("D-63", "A template is previewed, and each content is a version.")
def _(api: Api) -> None:
    slug = api.post("/v1/templates", TEMPLATE | {"slug": api.name("greeting")}).json()["slug"]
    assert "Greet Ann" in api.post(f"/v1/templates/{slug}/preview", {"variables": {"who": "Ann"}}).text
    api.send("PUT", f"/v1/templates/{slug}", TEMPLATE | {"description": "Another"})
    assert len(api.get(f"/v1/templates/{slug}/versions").json()["data"]) == 2


@statement("D-63", "What GET of a template answers can be PUT back.")
def _(api: Api) -> None:
    slug = api.post("/v1/templates", TEMPLATE | {"slug": api.name("greeting")}).json()["slug"]
    answer = api.send("PUT", f"/v1/templates/{slug}", api.get(f"/v1/templates/{slug}").json())
    assert answer.status_code == 200, answer.text


# D-64, D-65


def conditional(api: Api, case: tuple[str, str]) -> None:
    """Assert that a write with a stale If-Match is 412."""
    method, path = case
    plan = api.plan("One")
    values = {"plan": plan["slug"], "task": task_of(plan)["id"], "session": session(api)["session"]["id"], "memory": api.remember()["id"]}
    body: object = {"title": "x"} if path.endswith("{plan}") else {"status": "paused"} if path.endswith("status") else {}
    body = {"tags": ["x"]} if "memory" in path else {"force": True} if path.endswith("complete") else body
    answer = api.send(method, path.format(**values), body, headers={"If-Match": '"999"'})
    refused(answer, 412)


statement_per_value(
    "D-64",
    "If-Match of another version is 412: {}.",
    [
        ("PATCH", "/v1/plans/{plan}"),
        ("PATCH", "/v1/plans/{plan}/status"),
        ("POST", "/v1/plans/{plan}/archive"),
        ("POST", "/v1/tasks/{task}/claim"),
        ("POST", "/v1/tasks/{task}/complete"),
        ("POST", "/v1/sessions/{session}/end"),
        ("PATCH", "/v1/brain/memories/{memory}"),
    ],
    conditional,
)

ROUTES = [
    *("GET /plans", "GET /plans/{plan}", "GET /plans/{plan}/graph", "GET /plans/{plan}/events", "GET /plans/{plan}.md"),
    *("GET /plans/{plan}/phases", "GET /plans/{plan}/phases/1", "GET /plans/{plan}/phases/1/tasks", "GET /tasks/{task}"),
    *("GET /tasks?state=ready", "GET /sessions", "GET /sessions/{session}", "GET /sessions/{session}/events", "GET /templates"),
    *("POST /sessions/{session}/heartbeat", "POST /plans/{plan}/phases/1/checkpoints", "DELETE /tasks/{task}", "DELETE /plans/{plan}"),
]


def is_twice(api: Api, route: str) -> None:
    """Assert that a route answers under both prefixes."""
    method, path = route.split()
    for prefix in ("/api/agent", "/v1"):
        plan = api.plan("One")
        values = {"plan": plan["slug"], "task": task_of(plan)["id"], "session": session(api)["session"]["id"]}
        body = {"note": "x"} if path.endswith("checkpoints") else None
        answer = api.send(method, prefix + path.format(**values), body)
        assert answer.status_code < 300 or (body and answer.status_code == 422), (prefix, answer.text)


statement_per_value("D-65", "{} answers under /api/agent and under /v1.", ROUTES, is_twice)


# D-92


def has_tool(api: Api, case: tuple[str, str]) -> None:
    """Assert that a built-in server has a tool."""
    server, tool = case
    names = {each["name"] for each in result_of(rpc(api, f"/mcp/{server}", "tools/list"))["tools"]}
    assert tool in names, sorted(names)


statement_per_value(
    "D-92",
    "A built-in server has its tool: {}.",
    [("brain", name) for name in ("remember", "recall", "search", "forget", "feedback", "context")] + [("agents", "plan_create")],
    has_tool,
)


@statement("D-92", "A built-in tool that the key's scopes do not cover is not listed, and a call is refused.")
def _(api: Api) -> None:
    key = api.api_key("mcp:read", "mcp:write", "brain:read")["plaintext_key"]
    names = {each["name"] for each in result_of(rpc(api, "/mcp/brain", "tools/list", key=key))["tools"]}
    assert "recall" in names
    assert "remember" not in names
    assert api.call("brain", "remember", key=key, content="x", type="fact").status_code == 403
