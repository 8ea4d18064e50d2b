"""
Every route, called by each kind of rejected caller, and by an accepted one.

The routes come from the application's route table, so that new routes are tested without a change here.
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
from rookery.kernel.secret import Secret
from tests.chat_service import run_chat_service
from tests.conftest import OPERATOR, Caller, Instance, Settings, operation_name, run_instance
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
    "POST /v1/score/content": {"text": "a"},
    "POST /v1/score/batch": {"items": [{"text": "a"}]},
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
    "POST {}/tasks/claim-next": {"plan": "missing"},  # without a plan it would claim the task of `resources`
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
    "POST {}/content/generations": {"prompt": "made"},
    "POST {}/content/batches": {"requests": [{"prompt": "made"}]},
    "POST {}/content/templates": {"slug": "made", "name": "made", "prompt": "made"},
    "PUT {}/content/templates/{{slug}}": {"name": "changed", "prompt": "changed"},
    "POST {}/content/templates/{{slug}}/preview": {"variables": {}},
    "PUT {}/content/budgets/workspace": {"daily": 5},
    "PUT {}/content/budgets/keys/{{key_id}}": {"daily": 5},
}
"""Bodies for agent work, which has two prefixes."""

_CAMPAIGN: dict[str, object] = {"name": "made", "title": "a", "body": "a", "audience": {"tags": ["made"]}}
NOTIFY_BODIES: dict[str, object] = {
    "POST {}/notify/subscribers": {"external_id": "made"},
    "PATCH {}/notify/subscribers/{{subscriber}}": {"tags": ["changed"]},
    "POST {}/notify/campaigns": _CAMPAIGN,
    "PATCH {}/notify/campaigns/{{campaign}}": {"name": "changed"},
    "POST {}/notify/campaigns/{{campaign}}/test": {"subscribers": ["missing"]},
    "POST {}/notify/campaigns/{{campaign}}/schedule": {"at": "2031-01-01T00:00"},
}
"""Bodies for notifications, which have the same prefixes."""

_BODIES.update({name.format(prefix): body for name, body in (WORK_BODIES | NOTIFY_BODIES).items() for prefix in ("/api/agent", "/v1")})
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
"""Paths that need no key outside production."""


@dataclass(frozen=True)
class Resources:
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
    subscriber: str
    campaign: str
    notification: str
    generation: str
    batch: str


_MISSING = Resources(
    memory=uuid7(),
    recall=uuid7(),
    api_key=uuid7(),
    agent_key=uuid7(),
    workspace="999999",
    server="missing",
    template="missing",
    session=f"sess_{uuid7()}",
    plan="missing",
    task=uuid7(),
    webhook=uuid7(),
    delivery=uuid7(),
    subscriber="missing",
    campaign=uuid7(),
    notification=uuid7(),
    generation=uuid7(),
    batch=uuid7(),
)

_WORKSPACE_PARAMETERS: dict[str, Callable[[RouteEndpoint, Resources], str]] = {
    "{memory_id}": lambda _, resources: resources.memory,
    "{recall_id}": lambda _, resources: resources.recall,
    "{key_id}": lambda endpoint, resources: resources.agent_key if "/agent-keys/" in endpoint.path else resources.api_key,
    "{workspace_id}": lambda _, resources: resources.workspace,
    "{id}": lambda _, resources: resources.server,
    "{slug}": lambda _, resources: resources.template,
    "{session_id}": lambda _, resources: resources.session,
    "{plan}": lambda _, resources: resources.plan,
    "{task}": lambda _, resources: resources.task,
    "{webhook_id}": lambda _, resources: resources.webhook,
    "{delivery_id}": lambda _, resources: resources.delivery,
    "{subscriber}": lambda _, resources: resources.subscriber,
    "{campaign}": lambda _, resources: resources.campaign,
    "{delivery}": lambda _, resources: resources.notification,
    "{generation_id}": lambda _, resources: resources.generation,
    "{batch_id}": lambda _, resources: resources.batch,
}
"""Parameters that name a resource of a workspace; one of another workspace has the same error as a missing one."""

_OTHER_PARAMETERS = {
    "{phase}": "1",
    "{client}": "claude-code",
    "{event}": "prompt",
    "{agent_id:path}": "kim",
    "{server_id}": "brain",
    "{digest}": "0",
    "{name}": "page.css",
    "{tool:path}": "search",
    "{name:path}": "x",
    "{uri:path}": "brain://nothing",
}


def _path(endpoint: RouteEndpoint, resources: Resources) -> str:
    path = endpoint.path
    for parameter in re.findall(r"\{.*?\}", endpoint.path):
        known = parameter in _WORKSPACE_PARAMETERS or parameter in _OTHER_PARAMETERS
        assert known, f"{operation_name(endpoint)}: {parameter} is missing in _WORKSPACE_PARAMETERS or _OTHER_PARAMETERS"
        path = path.replace(
            parameter,
            _WORKSPACE_PARAMETERS[parameter](endpoint, resources) if parameter in _WORKSPACE_PARAMETERS else _OTHER_PARAMETERS[parameter],
        )
    return path + _QUERIES.get(operation_name(endpoint), "")


def _owned_id(endpoint: RouteEndpoint, resources: Resources) -> str | None:
    """Return the id in the path if it belongs to a workspace and no platform scope gives access to it."""
    if (endpoint.route.required_scope or "").startswith("platform:"):
        return None
    return next((get_id(endpoint, resources) for parameter, get_id in _WORKSPACE_PARAMETERS.items() if parameter in endpoint.path), None)


async def _call(caller: Caller, endpoint: RouteEndpoint, resources: Resources, **headers: str) -> tuple[int, dict[str, object], str]:
    response = await caller.send(endpoint.route.method, _path(endpoint, resources), _BODIES.get(operation_name(endpoint)), **headers)
    content: object = response.json() if response.content and not _is_text(response) else {}
    assert isinstance(content, dict)
    body = unwrap_error(cast("dict[str, object]", content))
    return response.status_code, body, response.text


def _is_for_browsers(endpoint: RouteEndpoint) -> bool:
    """Return whether it is a documentation page or its document; for these a browser prompts for a key."""
    prefixes = ("/api/docs/scalar", "/api/docs/redoc", "/api/docs/static/")
    return endpoint.path in {"/api/docs", "/openapi.json"} or endpoint.path.startswith(prefixes)


def _is_text(response: httpx2.Response) -> bool:
    """Return whether a successful response is text: metrics, a plan as a page, documentation pages, exported lines."""
    texts = ("text/plain", "text/markdown", "text/html", "application/x-ndjson")
    return response.is_success and response.headers["content-type"].startswith(texts)


def _list_platform_scopes(route_table: RouteTable) -> list[str]:
    """Return the required scopes that `*` does not grant."""
    return sorted(
        {scope for endpoint in route_table.endpoints if (scope := endpoint.route.required_scope) and scope.startswith("platform:")}
    )


def _has_optional_auth(route_table: RouteTable, name: str) -> bool:
    """Return whether a public route authenticates a key if one is sent."""
    return any(endpoint.route.optional_auth for endpoint in route_table.endpoints if operation_name(endpoint) == name)


def _iter_guarded(route_table: RouteTable) -> Iterator[RouteEndpoint]:
    return (endpoint for endpoint in route_table.endpoints if not endpoint.route.public)


@pytest.fixture
def settings(settings: Settings) -> Iterator[Settings]:
    """Settings of a server with a language model."""
    with run_chat_service() as provider:
        yield replace(settings, generation=Secret(provider.url()))


@pytest.fixture
async def resources(instance: Instance) -> AsyncIterator[Resources]:
    """Resources of the first workspace with the mark in every field that could leak. Fails if a test changes them."""
    stored = await instance.admin.remember(f"The {_MARK} secret.", org=_MARK, project=_MARK, tags=[_MARK], type=_MARK, source=_MARK)
    reach: dict[str, object] = {"servers": [_MARK], "tools": [f"{_MARK}/*"], "orgs": [_MARK], "projects": [_MARK]}
    api, agent = [
        (await instance.admin.post(path, {"name": _MARK, "agent_id": _MARK, field: ["brain:read"], **reach})).json()
        for path, field in (("/api/v1/api-keys", "scopes"), ("/api/v1/agent-keys", "permissions"))
    ]
    for key in (api["plaintext_key"], agent["key"]):  # so that usage statistics contain them too
        assert (await instance.caller(key).get("/v1/brain/tags")).status_code == 200
    entry = {"id": _MARK, "url": f"http://[2a00:ffff::1]/{_MARK}", "tagline": _MARK, "secrets": {"TOKEN": _MARK}, "enabled": False}
    assert (await instance.admin.post("/api/v1/servers", entry)).status_code == 201
    template = {"slug": _MARK, "name": _MARK, "description": _MARK, "phases": [{"name": _MARK}]}
    assert (await instance.admin.post("/v1/templates", template)).status_code == 201
    session = {"agent_type": _MARK, "agent_id": _MARK, "org": _MARK, "project": _MARK, "goal": _MARK, "context": {_MARK: _MARK}}
    session_id = (await instance.admin.post("/v1/sessions", session)).json()["session"]["id"]
    assert (await instance.admin.post(f"/v1/sessions/{session_id}/events", {"message": _MARK})).status_code == 201
    phase = {"name": _MARK, "tasks": [{"name": _MARK, "description": _MARK, "metadata": {_MARK: _MARK}}]}
    plan = await instance.admin.post("/v1/plans", {"title": _MARK, "org": _MARK, "status": "active", "phases": [phase]})
    assert plan.status_code == 201
    hook = {"url": f"http://[2a00:ffff::1]/{_MARK}", "events": ["plan.completed"], "description": _MARK}
    webhook_id = (await instance.admin.post("/api/v1/webhooks", hook)).json()["id"]
    delivery = (await instance.admin.post(f"/api/v1/webhooks/{webhook_id}/test")).json()["id"]
    channels = [{"type": "webhook", "url": f"http://[2a00:ffff::1]/{_MARK}"}]
    person = {"external_id": _MARK, "tags": [_MARK], "attributes": {"name": _MARK}, "channels": channels}
    assert (await instance.admin.post("/v1/notify/subscribers", person)).status_code == 201
    campaign = {"name": _MARK, "title": _MARK, "body": _MARK, "audience": {"all": True}, "variables": {"name": _MARK}}
    campaign_id = (await instance.admin.post("/v1/notify/campaigns", campaign)).json()["id"]
    test = (await instance.admin.post(f"/v1/notify/campaigns/{campaign_id}/test", {"subscribers": [_MARK]})).json()["id"]
    notifications = (await instance.admin.get(f"/v1/notify/campaigns/{test}/deliveries")).json()["data"]
    prompt = {"prompt": _MARK, "model": "413", "metadata": {_MARK: _MARK}}  # it fails, so that it does not change later
    failed = (await instance.admin.post("/v1/content/generations", prompt)).json()
    batch = (await instance.admin.post("/v1/content/batches", {"requests": [prompt], "metadata": {_MARK: _MARK}})).json()["id"]
    await instance.admin.post(f"/v1/content/batches/{batch}/cancel")
    prompt_template = {"slug": _MARK, "name": _MARK, "prompt": _MARK}
    assert (await instance.admin.post("/v1/content/templates", prompt_template)).status_code == 201
    recalled = (await instance.admin.post("/v1/brain/recall", {"query": _MARK, "org": _MARK})).json()
    resources = Resources(
        memory=str(stored["id"]),
        recall=recalled["recall_id"],
        api_key=api["id"],
        agent_key=agent["id"],
        workspace=str(instance.workspace_id),
        server=_MARK,
        template=_MARK,
        session=session_id,
        plan=_MARK,
        task=plan.json()["phases"][0]["tasks"][0]["id"],
        webhook=webhook_id,
        delivery=delivery,
        subscriber=_MARK,
        campaign=campaign_id,
        notification=notifications[0]["id"],
        generation=failed["generation_id"],
        batch=batch,
    )
    paths = [f"/v1/brain/memories/{resources.memory}", f"/api/v1/api-keys/{resources.api_key}", f"/api/v1/agent-keys/{resources.agent_key}"]
    paths += [
        f"/api/v1/servers/{resources.server}",
        f"/v1/templates/{resources.template}",
        f"/v1/sessions/{resources.session}",
        f"/v1/plans/{resources.plan}",
    ]
    paths += [
        f"/api/v1/webhooks/{resources.webhook}",
        f"/v1/notify/subscribers/{resources.subscriber}",
        f"/v1/notify/campaigns/{resources.campaign}",
    ]
    paths += [f"/v1/content/templates/{resources.template}"]
    paths += [f"/v1/content/generations/{resources.generation}", f"/v1/content/batches/{resources.batch}"]
    before = [await _get_stable_fields(instance, path) for path in paths]
    yield resources
    assert [await _get_stable_fields(instance, path) for path in paths] == before


async def _get_stable_fields(instance: Instance, path: str) -> dict[str, object]:
    response = await instance.admin.get(path)
    assert response.status_code == 200, path
    varying = {"effective_confidence", "last_activity_at"}  # the first decreases with time, a heartbeat changes the second
    return {name: value for name, value in response.json().items() if name not in varying}


def test_few_routes_are_public(route_table: RouteTable) -> None:
    """This test lists the routes that need no key, or any key; every other route declares its scope."""
    public = {operation_name(endpoint) for endpoint in route_table.endpoints if endpoint.route.public}
    any_key = {operation_name(endpoint) for endpoint in _iter_guarded(route_table) if endpoint.route.required_scope is None}

    assert {name for name in public if not _has_optional_auth(route_table, name)} == {
        "GET /healthz",
        "GET /readyz",
        "GET /v1/score/health",
        "GET /v1/score/cards/ai-detection",
        "GET /v1/score/cards/sycophancy",
        "GET /favicon.ico",
        "GET /oauth/callback",  # opened by a browser after a login; its `state` authorises it
        "POST /oauth/callback",
        "GET /oauth/client.json",
        "GET /notify/subscribe/{token}",  # its signed token authorises it, as it does the next three
        "POST /notify/subscribe/{token}",
        "GET /notify/unsubscribe/{token}",
        "POST /notify/unsubscribe/{token}",
        *(f"GET /notify/{name}" for name in ("page.css", "subscribe.js", "service-worker.js")),
    }
    assert {name for name in public if _has_optional_auth(route_table, name)} == {"GET /", *(f"GET {path}" for path in _DISCOVERY)}
    assert any_key == {
        "GET /api/v1/rate-limit",
        "GET /api/agent/rate-limit",
        "GET /api/v1/whoami",
        "GET /api/v1/workspaces",
        "GET /api/v1/workspaces/{workspace_id}",
    }


@pytest.mark.parametrize("key", [None, "", "nonsense", "sk_live_short", "sk_live_" + "é" * 32, "ak_" + "a" * 33, "sk_live_" + "a" * 65])
async def test_a_missing_or_malformed_key_is_401(
    instance: Instance, route_table: RouteTable, resources: Resources, key: str | None
) -> None:
    """Every route returns 401 unauthorised with WWW-Authenticate."""
    for endpoint in _iter_guarded(route_table):
        headers = [] if key is None else [(b"authorization", f"Bearer {key}".encode())]
        content = b"not even JSON" if endpoint.route.method in {"POST", "PATCH", "PUT"} else None
        response = await instance.caller(None).http.request(
            endpoint.route.method, _path(endpoint, resources), headers=headers, content=content
        )

        assert (response.status_code, error_body(response)["error"]) == (401, "unauthorised"), operation_name(endpoint)
        assert response.headers["www-authenticate"].startswith("Basic" if _is_for_browsers(endpoint) else "Bearer")


async def test_invalid_keys_are_rejected(instance: Instance, route_table: RouteTable, resources: Resources) -> None:
    """Unknown, revoked, suspended, expired and rotated keys have their error code on every route."""
    access, now = instance.rookery.access, instance.rookery.clock()
    callers = [(instance.caller(f"{prefix}{random_text(32)}"), "unauthorised") for prefix in ("sk_live_", "sk_test_", "ak_")]
    for create_key, keys in ((instance.api_key, access.api_keys), (instance.agent_key, access.agent_keys)):
        suspended, rotated, expired = await create_key(), await create_key(), await create_key()
        await keys.suspend(instance.workspace_id, suspended.key_id, by=OPERATOR)
        await keys.rotate(instance.workspace_id, rotated.key_id, grace_hours=0, by=OPERATOR)
        await keys.modify(instance.workspace_id, expired.key_id, lambda key: replace(key, expires_at=now), by=OPERATOR, action="changed")
        callers += [(expired, "key_expired"), (suspended, "key_revoked"), (rotated, "unauthorised")]
    revoked = await instance.agent_key()
    await access.agent_keys.revoke(instance.workspace_id, revoked.key_id, by=OPERATOR)

    for endpoint in _iter_guarded(route_table):
        for caller, code in [(revoked, "key_revoked"), *callers]:
            status, body, _ = await _call(caller, endpoint, resources)
            assert (status, body["error"]) == (401, code), operation_name(endpoint)


async def test_a_key_without_the_scope_is_rejected(instance: Instance, route_table: RouteTable, resources: Resources) -> None:
    """403 with required_scope for API keys, permission_denied for agent keys."""
    pairs = {scope: (await instance.api_key(scope), await instance.agent_key(scope)) for scope in ("docs:read", "brain:read")}

    for endpoint in _iter_guarded(route_table):
        if endpoint.route.required_scope is None:
            continue
        api, agent = pairs["brain:read" if endpoint.route.required_scope == "docs:read" else "docs:read"]
        status, body, _ = await _call(api, endpoint, resources)
        assert (status, body["error"], body["required_scope"]) == (403, "scope_missing", endpoint.route.required_scope), operation_name(
            endpoint
        )
        status, body, _ = await _call(agent, endpoint, resources)
        assert (status, body["error"], body["required_permission"]) == (403, "permission_denied", endpoint.route.required_scope), (
            operation_name(endpoint)
        )


async def test_a_key_with_only_the_required_scope_is_accepted(instance: Instance, route_table: RouteTable, resources: Resources) -> None:
    """A key with the scope of a route passes the guard; the route may still reject the request."""
    for endpoint in _iter_guarded(route_table):
        caller = await instance.api_key(endpoint.route.required_scope or "docs:read")
        status, body, _ = await _call(caller, endpoint, _MISSING)
        assert status not in {401, 429}, (operation_name(endpoint), body)
        assert endpoint.route.required_scope is None or body.get("required_scope") != endpoint.route.required_scope, (
            operation_name(endpoint),
            body,
        )
        assert body.get("error") != "ip_not_allowed", (operation_name(endpoint), body)
        assert status < 500 or body.get("code"), (operation_name(endpoint), body)


async def test_a_key_from_a_disallowed_address_is_rejected(instance: Instance, route_table: RouteTable, resources: Resources) -> None:
    """The IP list does not match, or is empty."""
    elsewhere = await instance.agent_key(ip_restriction=True, ip_list=("10.0.0.0/8", "2001:db8::/32"))
    nowhere = await instance.agent_key(ip_restriction=True)

    for endpoint in _iter_guarded(route_table):
        for caller in (elsewhere, nowhere):
            status, body, _ = await _call(caller, endpoint, resources, **{"X-Forwarded-For": "10.1.2.3"})
            assert (status, body["error"], body["your_ip"]) == (403, "ip_not_allowed", "127.0.0.1"), operation_name(endpoint)


_NO_SESSION = {"method_not_allowed", "invalid_request"}


async def test_a_key_over_its_limit_is_rejected_with_headers(instance: Instance, route_table: RouteTable, resources: Resources) -> None:
    """429 with Retry-After and the three headers; calls of the rate limit status are not counted or rejected."""
    limited = await instance.agent_key("*", *_list_platform_scopes(route_table), rate_limit=1)
    assert (await limited.get("/v1/brain/tags")).status_code == 200

    for endpoint in _iter_guarded(route_table):
        response = await limited.send(endpoint.route.method, _path(endpoint, resources), _BODIES.get(operation_name(endpoint)))
        if not endpoint.route.rate_limited:
            # These routes fail for another reason than the limit: the file, the session or the lease does not exist.
            expected = {"/api/docs/static/{digest}/{name}": {"not_found"}, "/mcp": _NO_SESSION, "/mcp/{server_id}": _NO_SESSION}
            codes = expected.get(endpoint.path, {"lease_lost"})
            assert response.status_code == 200 or error_body(response)["error"] in codes, operation_name(endpoint)
            continue
        status = 200 if endpoint.route.counted_by_handler else 429  # MCP clients lose their session by a 429
        assert (response.status_code, error_body(response)["error"]) == (status, "rate_limited"), operation_name(endpoint)
        assert 1 <= int(response.headers["retry-after"]) <= 60
        assert response.headers["x-ratelimit-limit"] == "1"
        assert response.headers["x-ratelimit-remaining"] == "0"


async def test_a_key_of_another_workspace_finds_and_changes_nothing(
    instance: Instance, route_table: RouteTable, resources: Resources
) -> None:
    """workspace_id is a hard tenant boundary; another tenant's id has the same error as a missing one."""
    stranger = await instance.api_key(workspace_id=await instance.workspace("other"))

    for endpoint in _iter_guarded(route_table):
        await _assert_finds_nothing(stranger, endpoint, resources)
    superseding = await stranger.post("/v1/brain/remember", {"type": "fact", "content": "b", "supersedes_id": resources.memory})
    assert superseding.status_code == 422


async def _assert_finds_nothing(caller: Caller, endpoint: RouteEndpoint, resources: Resources) -> None:
    """Compare the responses of *caller* for another workspace's resource with those for a resource that does not exist."""
    status, body, text = await _call(caller, endpoint, resources)
    own_words = text.replace(f"'{_MARK}'", "").replace(f'"query":"{_MARK}"', "")  # errors and the log of recalls repeat what was asked
    assert _MARK not in own_words, operation_name(endpoint)
    existing_id, missing_id = _owned_id(endpoint, resources), _owned_id(endpoint, _MISSING)
    if existing_id is not None and missing_id is not None:
        missing_body = (await _call(caller, endpoint, _MISSING))[1]
        assert status == 404, f"{operation_name(endpoint)}: {status} {text}; if the body is invalid, add a valid one to _BODIES"
        assert {**body, "message": str(body["message"]).replace(repr(existing_id), repr(missing_id))} == missing_body, operation_name(
            endpoint
        )


async def test_the_sandbox_is_another_tenant(instance: Instance, route_table: RouteTable, resources: Resources) -> None:
    """Test keys act in the workspace's sandbox, which is isolated; responses have the id of the parent."""
    tester = await instance.api_key(environment="test")

    for endpoint in _iter_guarded(route_table):
        if "{workspace_id}" not in endpoint.path:  # for a test key these show its parent
            await _assert_finds_nothing(tester, endpoint, resources)
    stored = await tester.remember("Only in the sandbox.")
    assert stored["workspace_id"] == instance.workspace_id
    listed = (await instance.admin.get("/v1/brain/memories?per_page=100")).json()
    assert "Only in the sandbox." not in [memory["content"] for memory in listed["data"]]


async def test_another_workspace_in_the_header_is_rejected(instance: Instance, route_table: RouteTable, resources: Resources) -> None:
    """X-Workspace-ID is optional, and must be the workspace of the key."""
    for endpoint in _iter_guarded(route_table):
        status, body, _ = await _call(instance.admin, endpoint, resources, **{"X-Workspace-ID": str(instance.workspace_id + 1)})
        assert (status, body["error"]) == (403, "permission_denied"), operation_name(endpoint)


# --- a disk that is nearly full


_ALLOWED_ON_FULL_DISK = {
    "POST /mcp",
    "POST /mcp/{server_id}",
    "POST /mcp/tools/call",
    "POST /api/v1/mcp/tools/call",
    "POST /api/v1/mcp/servers/{server_id}/tools/{tool:path}",
    "POST /api/v1/mcp/servers/{server_id}/prompts/{name:path}",
    "POST /api/v1/servers/{id}/check",
    "POST /api/agent/hooks/{client}/{event}",  # records nothing then, and does not disturb the agent
    "POST /v1/brain/recall",
    "POST /v1/score/content",
    "POST /v1/score/batch",
    "POST /api/v1/api-keys/{key_id}/suspend",
    "POST /api/v1/agent-keys/{key_id}/suspend",
    "POST /api/v1/agent-keys/{key_id}/revoke",
    *(f"POST {prefix}{part}/templates/{{slug}}/preview" for prefix in ("/v1", "/api/agent") for part in ("", "/content")),
    *(f"POST {prefix}/notify/campaigns/{{campaign}}/preview" for prefix in ("/v1", "/api/agent")),
    *(f"POST {prefix}/sessions/{{session_id}}/heartbeat" for prefix in ("/v1", "/api/agent")),
    *(f"POST {prefix}/tasks/{{task}}/{verb}" for prefix in ("/v1", "/api/agent") for verb in ("heartbeat", "release")),
}
"""These read, renew a lease, or revoke rights."""


@pytest.mark.parametrize("database_url", ["embedded:"])
async def test_a_nearly_full_disk_rejects_every_write(settings: Settings) -> None:
    """Every POST, PUT and PATCH is 507, except those above; reads and deletions work."""
    async with run_instance(replace(settings, min_free_disk_mb=1_000_000)) as instance:
        route_table = build_route_table(instance.rookery)
        caller = await instance.api_key("*", *_list_platform_scopes(route_table))
        for endpoint in _iter_guarded(route_table):
            status, body, _ = await _call(caller, endpoint, _MISSING)
            name = operation_name(endpoint)
            if endpoint.route.method in {"POST", "PUT", "PATCH"} and name not in _ALLOWED_ON_FULL_DISK:
                assert (status, body["error"]) == (507, "storage_full"), name
            else:
                assert status != 507, name


@pytest.mark.parametrize("database_url", ["embedded:"])
async def test_a_nearly_full_disk_rejects_built_in_tools_that_write(settings: Settings) -> None:
    """built-in tools that write are 507 too; those that read or delete work."""
    async with run_instance(replace(settings, min_free_disk_mb=1_000_000)) as instance:
        tools = [
            (server, tool)
            for server in ("brain", "agents", "content", "scoring")
            for tool in (await instance.admin.get(f"/api/v1/mcp/servers/{server}/tools")).json()["tools"]
        ]
        arguments = {"remember": {"content": "a"}, "plan_create": {"title": "a"}, "content_generate": {"prompt": "a"}}
        hints = {tool["name"]: tool["annotations"] for _, tool in tools}
        responses = {
            tool["name"]: await instance.admin.post(f"/api/v1/mcp/servers/{server}/tools/{tool['name']}", arguments[tool["name"]])
            for server, tool in tools
            if tool["name"] in arguments
        }
        forget = await instance.admin.post("/api/v1/mcp/servers/brain/tools/forget", {"ids": [uuid7()]})
        recall = await instance.admin.post("/api/v1/mcp/servers/brain/tools/recall", {"query": "a"})

        assert {name: response.status_code for name, response in responses.items()} == dict.fromkeys(arguments, 507)
        assert not any(hints[name]["readOnlyHint"] for name in responses)
        assert (forget.status_code == 507, recall.status_code) == (False, 200)
