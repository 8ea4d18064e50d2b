"""
Every route, tried as every caller who must not pass, and as one who may.

The routes come from the application's own table: a new one is in here by itself.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, replace
from typing import cast

import httpx2
import pytest

from rookery.app import build_route_table
from rookery.kernel.http.routes import RouteEndpoint, RouteTable
from rookery.kernel.ids import random_text, uuid7
from rookery.wiring import build_platform
from tests.conftest import OPERATOR, Caller, Instance, Settings, run_instance
from tests.error_bodies import error_body, unwrap_error

_MARK = "zanzibar"
_BODIES: dict[str, object] = {
    "POST /v1/brain/recall/{recall_id}/feedback": {},
    "POST /v1/brain/remember": {"type": "fact", "content": "a"},
    "POST /v1/brain/remember/batch": {"memories": [{"type": "fact", "content": "a"}]},
    "POST /v1/brain/recall": {"query": _MARK},
    "PATCH /v1/brain/memories/{memory_id}": {"tags": ["changed"]},
    "POST /api/v1/mcp/tools/call": {"server": "brain", "tool": "search", "arguments": {"query": _MARK}},
    "POST /mcp": {"jsonrpc": "2.0", "id": 1, "method": "tools/list"},
    "POST /mcp/{server_id}": {"jsonrpc": "2.0", "id": 1, "method": "tools/list"},
    "POST /mcp/tools/call": {"server": "brain", "tool": "search", "arguments": {"query": _MARK}},
    "POST /api/v1/mcp/servers/{server_id}/tools/{tool:path}": {"query": _MARK},
    "POST /api/v1/mcp/servers/{server_id}/prompts/{name:path}": {},
    "POST /api/v1/api-keys": {"name": "made", "scopes": ["keys:write"]},
    "PATCH /api/v1/api-keys/{key_id}": {"name": "changed"},
    "POST /api/v1/api-keys/{key_id}/rotate": {"grace_period_hours": 1},
    "POST /api/v1/agent-keys": {"name": "made", "permissions": ["keys:write"]},
    "PATCH /api/v1/agent-keys/{key_id}": {"name": "changed"},
    "POST /api/v1/agent-keys/{key_id}/rotate": {"grace_period_hours": 1},
    "POST /api/v1/agent-keys/{key_id}/extend": {"expires_at": None},
    "PUT /api/v1/agent-keys/{key_id}/permissions": {"permissions": ["mcp:read"]},
    "PUT /api/v1/agent-keys/{key_id}/ips": {"ips": ["192.0.2.1"]},
    "POST /api/v1/agent-keys/{key_id}/ips": {"ips": ["192.0.2.1"]},
    "DELETE /api/v1/agent-keys/{key_id}/ips": {"text": "192.0.2.1"},
    "POST /api/v1/servers": {"id": "made", "url": "http://[2a00:ffff::1]/mcp", "enabled": False},
    "PATCH /api/v1/servers/{id}": {"tagline": "changed"},
    "POST /api/v1/webhooks": {"url": "http://[2a00:ffff::1]/made", "events": ["webhook.disabled"], "enabled": False},
    "PATCH /api/v1/webhooks/{webhook_id}": {"description": "changed"},
    "POST /api/v1/workspaces": {"name": "made"},
    "PATCH /api/v1/workspaces/{workspace_id}": {"name": "changed"},
    "POST /api/v1/workspaces/{workspace_id}/api-keys": {"name": "made", "scopes": ["keys:write"]},
}
WORK_BODIES: dict[str, object] = {
    "POST {}/plans": {"title": "made"},
    "PATCH {}/plans/{{plan}}": {"title": "changed"},
    "PATCH {}/plans/{{plan}}/status": {"status": "paused"},
    "POST {}/plans/{{plan}}/archive": {"reason": "changed"},
    "POST {}/plans/{{plan}}/phases": {"name": "changed"},
    "PATCH {}/plans/{{plan}}/phases/{{phase}}": {"name": "changed"},
    "PATCH {}/plans/{{plan}}/phases/{{phase}}/status": {"status": "skipped"},
    "POST {}/plans/{{plan}}/phases/{{phase}}/checkpoints": {"note": "changed"},
    "POST {}/plans/{{plan}}/phases/{{phase}}/tasks": {"name": "changed"},
    "PATCH {}/tasks/{{task}}": {"name": "changed"},
    "POST {}/tasks/claim-next": {"plan": "nobodys"},  # of any plan it would take what `things` are to stay
    "POST {}/tasks/{{task}}/claim": {},
    "POST {}/tasks/{{task}}/heartbeat": {"claim_token": "guessed"},
    "POST {}/tasks/{{task}}/release": {"force": True},
    "POST {}/tasks/{{task}}/complete": {"force": True},
    "POST {}/tasks/{{task}}/fail": {"force": True, "error": "changed"},
    "POST {}/templates": {"slug": "made", "name": "made", "phases": [{"name": "a"}]},
    "PUT {}/templates/{{slug}}": {"name": "changed", "phases": [{"name": "a"}]},
    "POST {}/templates/{{slug}}/copies": {"slug": "copied"},
    "POST {}/templates/{{slug}}/preview": {"variables": {}},
    "POST {}/templates/{{slug}}/plans": {"variables": {}},
    "POST {}/sessions": {"agent_type": "made"},
    "PATCH {}/sessions/{{session_id}}": {"goal": "changed"},
    "POST {}/sessions/{{session_id}}/events": {"message": "changed"},
    "POST {}/sessions/{{session_id}}/end": {"summary": "changed"},
    "POST {}/sessions/{{session_id}}/resume": {"takeover": True},
}
"""Of agent work, which is under two prefixes."""

_BODIES.update({name.format(prefix): body for name, body in WORK_BODIES.items() for prefix in ("/api/agent", "/v1")})
_QUERIES = {"GET /v1/brain/search": f"?q={_MARK}", "GET /api/v1/mcp/tools/search": "?q=tool"}
_DISCOVERY = (
    "/.well-known/mcp-servers.json",
    "/.well-known/ai-catalog.json",
    "/mcp/server-card",
    "/mcp/{server_id}/server-card",
    "/v0.1/servers",
    "/v0.1/servers/{name:path}/versions",
    "/v0.1/servers/{name:path}/versions/{version}",
    "/servers",
    "/connect",
)
"""What D-35 shows without a key, outside production."""


def _named(endpoint: RouteEndpoint) -> str:
    return f"{endpoint.route.method} {endpoint.path}"


@dataclass(frozen=True)
class Things:
    """The ids in paths: resources of the first workspace, or ids that do not exist."""

    memory: str
    recall: str
    api_key: str
    agent_key: str
    workspace: str
    server: str
    template: str
    session: str
    plan: str
    task: str
    webhook: str
    delivery: str


_NOBODYS = Things(
    memory=uuid7(),
    recall=uuid7(),
    api_key=uuid7(),
    agent_key=uuid7(),
    workspace="999999",
    server="nobodys",
    template="nobodys",
    session=f"sess_{uuid7()}",
    plan="nobodys",
    task=uuid7(),
    webhook=uuid7(),
    delivery=uuid7(),
)

_OWNED: dict[str, Callable[[RouteEndpoint, Things], str]] = {
    "{memory_id}": lambda _, things: things.memory,
    "{recall_id}": lambda _, things: things.recall,
    "{key_id}": lambda endpoint, things: things.agent_key if "/agent-keys/" in endpoint.path else things.api_key,
    "{workspace_id}": lambda _, things: things.workspace,
    "{id}": lambda _, things: things.server,
    "{slug}": lambda _, things: things.template,
    "{session_id}": lambda _, things: things.session,
    "{plan}": lambda _, things: things.plan,
    "{task}": lambda _, things: things.task,
    "{webhook_id}": lambda _, things: things.webhook,
    "{delivery_id}": lambda _, things: things.delivery,
}
"""Parameters that name what belongs to a workspace: another's is missing, in the same words."""

_SHARED = {
    "{phase}": "1",
    "{agent_id:path}": "kim",
    "{server_id}": "brain",
    "{digest}": "0",
    "{name}": "page.css",
    "{tool:path}": "search",
    "{name:path}": "x",
    "{uri:path}": "brain://nothing",
}


def _path(endpoint: RouteEndpoint, things: Things) -> str:
    filled = endpoint.path
    for parameter in re.findall(r"\{.*?\}", endpoint.path):
        known = parameter in _OWNED or parameter in _SHARED
        assert known, f"{_named(endpoint)}: tell _OWNED (and `things`) of {parameter} if a workspace owns such a thing, else _SHARED"
        filled = filled.replace(parameter, _OWNED[parameter](endpoint, things) if parameter in _OWNED else _SHARED[parameter])
    return filled + _QUERIES.get(_named(endpoint), "")


def _owned(endpoint: RouteEndpoint, things: Things) -> str | None:
    """Return the id of the thing that the path names, if a workspace owns it and no platform scope opens it."""
    if (endpoint.route.required_scope or "").startswith("platform:"):
        return None
    return next((of(endpoint, things) for parameter, of in _OWNED.items() if parameter in endpoint.path), None)


async def _try(caller: Caller, endpoint: RouteEndpoint, things: Things, **headers: str) -> tuple[int, dict[str, object], str]:
    answer = await caller.send(endpoint.route.method, _path(endpoint, things), _BODIES.get(_named(endpoint)), **headers)
    found: object = answer.json() if answer.content and not _is_text(answer) else {}
    assert isinstance(found, dict)
    body = unwrap_error(cast("dict[str, object]", found))
    return answer.status_code, body, answer.text


def _is_for_browsers(endpoint: RouteEndpoint) -> bool:
    """Return whether it is a documentation page or its description; these ask a browser's user for a key (D-83)."""
    prefixes = ("/api/docs/scalar", "/api/docs/redoc", "/api/docs/static/")
    return endpoint.path in {"/api/docs", "/openapi.json"} or endpoint.path.startswith(prefixes)


def _is_text(answer: httpx2.Response) -> bool:
    """Return whether it is not JSON on purpose: metrics, a plan as a page, documentation pages."""
    return answer.is_success and answer.headers["content-type"].startswith(("text/plain", "text/markdown", "text/html"))


def _platform(mounted: RouteTable) -> list[str]:
    """Return what routes need that `*` does not grant (D-23)."""
    return sorted({needs for endpoint in mounted.endpoints if (needs := endpoint.route.required_scope) and needs.startswith("platform:")})


@pytest.fixture
def mounted(settings: Settings) -> RouteTable:
    """The table of routes."""
    return build_route_table(build_platform(settings))


def _greets(mounted: RouteTable, name: str) -> bool:
    """Return whether a public route authenticates a key that is sent nevertheless."""
    return any(endpoint.route.optional_auth for endpoint in mounted.endpoints if _named(endpoint) == name)


def _guarded(mounted: RouteTable) -> Iterator[RouteEndpoint]:
    return (endpoint for endpoint in mounted.endpoints if not endpoint.route.public)


@pytest.fixture
async def things(instance: Instance) -> AsyncIterator[Things]:
    """A memory and keys of the first workspace, with the mark in every field that could leak; no test changes them."""
    stored = await instance.admin.remember(f"The {_MARK} secret.", org=_MARK, project=_MARK, tags=[_MARK], type=_MARK, source=_MARK)
    reach: dict[str, object] = {"servers": [_MARK], "tools": [f"{_MARK}/*"], "orgs": [_MARK], "projects": [_MARK]}
    api, agent = [
        (await instance.admin.post(path, {"name": _MARK, "agent_id": _MARK, field: ["brain:read"], **reach})).json()
        for path, field in (("/api/v1/api-keys", "scopes"), ("/api/v1/agent-keys", "permissions"))
    ]
    for key in (api["plaintext_key"], agent["key"]):  # so that sums name them too
        assert (await instance.caller(key).get("/v1/brain/tags")).status_code == 200
    entry = {"id": _MARK, "url": f"http://[2a00:ffff::1]/{_MARK}", "tagline": _MARK, "secrets": {"TOKEN": _MARK}, "enabled": False}
    assert (await instance.admin.post("/api/v1/servers", entry)).status_code == 201
    template = {"slug": _MARK, "name": _MARK, "description": _MARK, "phases": [{"name": _MARK}]}
    assert (await instance.admin.post("/v1/templates", template)).status_code == 201
    session = {"agent_type": _MARK, "agent_id": _MARK, "org": _MARK, "project": _MARK, "goal": _MARK, "context": {_MARK: _MARK}}
    started = (await instance.admin.post("/v1/sessions", session)).json()["session"]["id"]
    assert (await instance.admin.post(f"/v1/sessions/{started}/events", {"message": _MARK})).status_code == 201
    phase = {"name": _MARK, "tasks": [{"name": _MARK, "description": _MARK, "metadata": {_MARK: _MARK}}]}
    planned = await instance.admin.post("/v1/plans", {"title": _MARK, "org": _MARK, "status": "active", "phases": [phase]})
    assert planned.status_code == 201
    hook = {"url": f"http://[2a00:ffff::1]/{_MARK}", "events": ["plan.completed"], "description": _MARK}
    hooked = (await instance.admin.post("/api/v1/webhooks", hook)).json()["id"]
    delivery = (await instance.admin.post(f"/api/v1/webhooks/{hooked}/test")).json()["id"]
    recalled = (await instance.admin.post("/v1/brain/recall", {"query": _MARK, "org": _MARK})).json()
    kept = Things(
        memory=str(stored["id"]),
        recall=recalled["recall_id"],
        api_key=api["id"],
        agent_key=agent["id"],
        workspace=str(instance.workspace_id),
        server=_MARK,
        template=_MARK,
        session=started,
        plan=_MARK,
        task=planned.json()["phases"][0]["tasks"][0]["id"],
        webhook=hooked,
        delivery=delivery,
    )
    paths = [f"/v1/brain/memories/{kept.memory}", f"/api/v1/api-keys/{kept.api_key}", f"/api/v1/agent-keys/{kept.agent_key}"]
    paths += [f"/api/v1/servers/{kept.server}", f"/v1/templates/{kept.template}", f"/v1/sessions/{kept.session}", f"/v1/plans/{kept.plan}"]
    paths += [f"/api/v1/webhooks/{kept.webhook}"]
    before = [await _shown(instance, path) for path in paths]
    yield kept
    assert [await _shown(instance, path) for path in paths] == before


async def _shown(instance: Instance, path: str) -> dict[str, object]:
    answer = await instance.admin.get(path)
    assert answer.status_code == 200, path
    moving = {"effective_confidence", "last_activity_at"}  # the one ages, the other is what a heartbeat is for
    return {name: value for name, value in answer.json().items() if name not in moving}


def test_only_health_is_public(mounted: RouteTable) -> None:
    """D-05, D-23: what needs no key is named here; every other route declares its scope, or that any key will do."""
    public = {_named(endpoint) for endpoint in mounted.endpoints if endpoint.route.public}
    any_key = {_named(endpoint) for endpoint in _guarded(mounted) if endpoint.route.required_scope is None}

    assert {name for name in public if not _greets(mounted, name)} == {
        "GET /healthz",
        "GET /readyz",
        "GET /favicon.ico",
        "GET /oauth/callback",  # opened by a browser that comes from an authorisation server; what it may do is in its `state`
        "POST /oauth/callback",
        "GET /oauth/client.json",
    }
    assert {name for name in public if _greets(mounted, name)} == {"GET /", *(f"GET {path}" for path in _DISCOVERY)}
    assert any_key == {
        "GET /api/v1/rate-limit",
        "GET /api/agent/rate-limit",
        "GET /api/v1/whoami",
        "GET /api/v1/workspaces",
        "GET /api/v1/workspaces/{workspace_id}",
    }


@pytest.mark.parametrize("key", [None, "", "nonsense", "sk_live_short", "sk_live_" + "é" * 32, "ak_" + "a" * 33, "sk_live_" + "a" * 65])
async def test_without_a_key_nothing_is_told(instance: Instance, mounted: RouteTable, things: Things, key: str | None) -> None:
    """Spec 7, D-20: missing or malformed is 401 unauthorised with WWW-Authenticate, on every route."""
    for endpoint in _guarded(mounted):
        headers = [] if key is None else [(b"authorization", f"Bearer {key}".encode())]
        content = b"not even JSON" if endpoint.route.method in {"POST", "PATCH", "PUT"} else None
        answer = await instance.caller(None).http.request(endpoint.route.method, _path(endpoint, things), headers=headers, content=content)

        assert (answer.status_code, error_body(answer)["error"]) == (401, "unauthorised"), _named(endpoint)
        assert answer.headers["www-authenticate"].startswith("Basic" if _is_for_browsers(endpoint) else "Bearer")


async def test_keys_that_are_not_good_any_more_are_refused(instance: Instance, mounted: RouteTable, things: Things) -> None:
    """Spec 3.2, 3.3, 7; D-21, D-26: unknown, revoked, suspended, expired and past their grace, each with its code, on every route."""
    access, now = instance.rookery.access, instance.rookery.clock()
    callers = [(instance.caller(f"{prefix}{random_text(32)}"), "unauthorised") for prefix in ("sk_live_", "sk_test_", "ak_")]
    for make, keys in ((instance.api_key, access.api_keys), (instance.agent_key, access.agent_keys)):
        suspended, rotated, expired = await make(), await make(), await make()
        await keys.suspend(instance.workspace_id, suspended.key_id, by=OPERATOR)
        await keys.rotate(instance.workspace_id, rotated.key_id, grace_hours=0, by=OPERATOR)
        await keys.modify(instance.workspace_id, expired.key_id, lambda key: replace(key, expires_at=now), by=OPERATOR, action="changed")
        callers += [(expired, "key_expired"), (suspended, "key_revoked"), (rotated, "unauthorised")]
    revoked = await instance.agent_key()
    await access.agent_keys.revoke(instance.workspace_id, revoked.key_id, by=OPERATOR)

    for endpoint in _guarded(mounted):
        for caller, code in [(revoked, "key_revoked"), *callers]:
            status, body, _ = await _try(caller, endpoint, things)
            assert (status, body["error"]) == (401, code), _named(endpoint)


async def test_a_key_without_the_scope_is_refused(instance: Instance, mounted: RouteTable, things: Things) -> None:
    """Spec 5.2 rule 5, 5.3 step 5: 403 with required_scope for API keys, permission_denied for agent keys."""
    pairs = {scope: (await instance.api_key(scope), await instance.agent_key(scope)) for scope in ("docs:read", "brain:read")}

    for endpoint in _guarded(mounted):
        if endpoint.route.required_scope is None:
            continue
        api, agent = pairs["brain:read" if endpoint.route.required_scope == "docs:read" else "docs:read"]
        status, body, _ = await _try(api, endpoint, things)
        assert (status, body["error"], body["required_scope"]) == (403, "scope_missing", endpoint.route.required_scope), _named(endpoint)
        status, body, _ = await _try(agent, endpoint, things)
        assert (status, body["error"], body["required_permission"]) == (403, "permission_denied", endpoint.route.required_scope), _named(
            endpoint
        )


async def test_a_key_with_just_the_scope_is_let_in(instance: Instance, mounted: RouteTable, things: Things) -> None:
    """D-23: each route's own scope is enough to pass the guard; what follows is the route's business."""
    for endpoint in _guarded(mounted):
        caller = await instance.api_key(endpoint.route.required_scope or "docs:read")
        status, body, _ = await _try(caller, endpoint, _NOBODYS)
        assert status not in {401, 429}, (_named(endpoint), body)
        assert endpoint.route.required_scope is None or body.get("required_scope") != endpoint.route.required_scope, (
            _named(endpoint),
            body,
        )
        assert body.get("error") != "ip_not_allowed", (_named(endpoint), body)
        assert status < 500 or body.get("code"), (_named(endpoint), body)


async def test_a_key_from_a_wrong_address_is_refused(instance: Instance, mounted: RouteTable, things: Things) -> None:
    """Spec 5.3 step 4, D-28: restriction on with a list that does not match, and with an empty one."""
    elsewhere = await instance.agent_key(ip_restriction=True, ip_list=("10.0.0.0/8", "2001:db8::/32"))
    nowhere = await instance.agent_key(ip_restriction=True)

    for endpoint in _guarded(mounted):
        for caller in (elsewhere, nowhere):
            status, body, _ = await _try(caller, endpoint, things, **{"X-Forwarded-For": "10.1.2.3"})
            assert (status, body["error"], body["your_ip"]) == (403, "ip_not_allowed", "127.0.0.1"), _named(endpoint)


async def test_a_key_over_its_limit_is_refused_with_headers(instance: Instance, mounted: RouteTable, things: Things) -> None:
    """Spec 8, D-27: 429 with Retry-After and the three headers; status calls spend nothing and are not refused."""
    limited = await instance.agent_key("*", *_platform(mounted), rate_limit=1)
    assert (await limited.get("/v1/brain/tags")).status_code == 200

    for endpoint in _guarded(mounted):
        answer = await limited.send(endpoint.route.method, _path(endpoint, things), _BODIES.get(_named(endpoint)))
        if not endpoint.route.rate_limited:
            # A heartbeat of a lease that nobody has is refused for that, and not for the limit; so is a file that is not there.
            refused = "not_found" if endpoint.path == "/api/docs/static/{digest}/{name}" else "lease_lost"
            assert answer.status_code == 200 or error_body(answer)["error"] == refused, _named(endpoint)
            continue
        assert (answer.status_code, error_body(answer)["error"]) == (429, "rate_limited"), _named(endpoint)
        assert 1 <= int(answer.headers["retry-after"]) <= 60
        assert answer.headers["x-ratelimit-limit"] == "1"
        assert answer.headers["x-ratelimit-remaining"] == "0"


async def test_another_workspace_sees_and_changes_nothing(instance: Instance, mounted: RouteTable, things: Things) -> None:
    """Spec 2.8: workspace_id is a hard tenant boundary; another tenant's id is a missing one, in the same words."""
    stranger = await instance.api_key(workspace_id=await instance.workspace("other"))

    for endpoint in _guarded(mounted):
        await _finds_nothing(stranger, endpoint, things)
    superseding = await stranger.post("/v1/brain/remember", {"type": "fact", "content": "b", "supersedes_id": things.memory})
    assert superseding.status_code == 422


async def _finds_nothing(caller: Caller, endpoint: RouteEndpoint, things: Things) -> None:
    """Compare the responses of *caller* for another workspace's resource with those for a resource that does not exist."""
    status, body, text = await _try(caller, endpoint, things)
    assert _MARK not in text.replace(f"'{_MARK}'", ""), _named(endpoint)
    mine, nobodys = _owned(endpoint, things), _owned(endpoint, _NOBODYS)
    if mine is not None and nobodys is not None:
        missing = (await _try(caller, endpoint, _NOBODYS))[1]
        assert status == 404, f"{_named(endpoint)}: {status} {text}; if the body is what is wrong, tell _BODIES of a good one"
        assert {**body, "message": str(body["message"]).replace(repr(mine), repr(nobodys))} == missing, _named(endpoint)


async def test_the_sandbox_is_another_tenant(instance: Instance, mounted: RouteTable, things: Things) -> None:
    """D-25: test keys act in the workspace's sandbox twin; nothing is seen across, and answers show the parent."""
    tester = await instance.api_key(environment="test")

    for endpoint in _guarded(mounted):
        if "{workspace_id}" not in endpoint.path:  # a test key is shown its parent
            await _finds_nothing(tester, endpoint, things)
    stored = await tester.remember("Only in the sandbox.")
    assert stored["workspace_id"] == instance.workspace_id
    listed = (await instance.admin.get("/v1/brain/memories?per_page=100")).json()
    assert "Only in the sandbox." not in [memory["content"] for memory in listed["data"]]


async def test_a_key_that_names_another_workspace_is_refused(instance: Instance, mounted: RouteTable, things: Things) -> None:
    """D-15: X-Workspace-ID is optional, but must be the key's."""
    for endpoint in _guarded(mounted):
        status, body, _ = await _try(instance.admin, endpoint, things, **{"X-Workspace-ID": str(instance.workspace_id + 1)})
        assert (status, body["error"]) == (403, "permission_denied"), _named(endpoint)


# --- a disk that is nearly full


_ALLOWED_ON_FULL_DISK = {
    "POST /mcp",
    "POST /mcp/{server_id}",
    "POST /mcp/tools/call",
    "POST /api/v1/mcp/tools/call",
    "POST /api/v1/mcp/servers/{server_id}/tools/{tool:path}",
    "POST /api/v1/mcp/servers/{server_id}/prompts/{name:path}",
    "POST /api/v1/servers/{id}/check",
    "POST /v1/brain/recall",
    "POST /api/v1/api-keys/{key_id}/suspend",
    "POST /api/v1/agent-keys/{key_id}/suspend",
    "POST /api/v1/agent-keys/{key_id}/revoke",
    *(f"POST {prefix}/templates/{{slug}}/preview" for prefix in ("/v1", "/api/agent")),
    *(f"POST {prefix}/sessions/{{session_id}}/heartbeat" for prefix in ("/v1", "/api/agent")),
    *(f"POST {prefix}/tasks/{{task}}/{verb}" for prefix in ("/v1", "/api/agent") for verb in ("heartbeat", "release")),
}
"""They read, keep a lease, or take rights away."""


@pytest.mark.parametrize("database_url", ["embedded:"])
async def test_a_nearly_full_disk_refuses_every_write(settings: Settings) -> None:
    """D-17; issue 14 (specification 1): every POST, PUT and PATCH is 507, but those above; reads and deletions go on."""
    async with run_instance(replace(settings, min_free_disk_mb=1_000_000)) as instance:
        mounted = build_route_table(instance.rookery)
        caller = await instance.api_key("*", *_platform(mounted))
        for endpoint in _guarded(mounted):
            status, body, _ = await _try(caller, endpoint, _NOBODYS)
            name = _named(endpoint)
            if endpoint.route.method in {"POST", "PUT", "PATCH"} and name not in _ALLOWED_ON_FULL_DISK:
                assert (status, body["error"]) == (507, "storage_full"), name
            else:
                assert status != 507, name


@pytest.mark.parametrize("database_url", ["embedded:"])
async def test_a_nearly_full_disk_refuses_the_built_in_tools_that_write(settings: Settings) -> None:
    """D-17; issue 14 (specification 1): what a tool of ours would store is refused too; its reads and its deletions are not."""
    async with run_instance(replace(settings, min_free_disk_mb=1_000_000)) as instance:
        tools = [
            (server, tool)
            for server in ("brain", "agents")
            for tool in (await instance.admin.get(f"/api/v1/mcp/servers/{server}/tools")).json()["tools"]
        ]
        arguments = {"remember": {"content": "a"}, "plan_create": {"title": "a"}}
        hints = {tool["name"]: tool["annotations"] for _, tool in tools}
        called = {
            tool["name"]: await instance.admin.post(f"/api/v1/mcp/servers/{server}/tools/{tool['name']}", arguments[tool["name"]])
            for server, tool in tools
            if tool["name"] in arguments
        }
        forgotten = await instance.admin.post("/api/v1/mcp/servers/brain/tools/forget", {"ids": [uuid7()]})
        recalled = await instance.admin.post("/api/v1/mcp/servers/brain/tools/recall", {"query": "a"})

        assert {name: answer.status_code for name, answer in called.items()} == dict.fromkeys(arguments, 507)
        assert not any(hints[name]["readOnlyHint"] for name in called)
        assert (forgotten.status_code == 507, recalled.status_code) == (False, 200)
