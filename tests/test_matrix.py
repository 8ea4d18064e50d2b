"""
Every route, tried as every caller who must not pass, and as one who may.

The routes come from the application's own table: a new one is in here by itself.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from datetime import timedelta
from typing import cast

import pytest

from rookery.app import mounted_routes
from rookery.kernel.http.routes import Endpoint, Mounted
from rookery.kernel.ids import random_text, uuid7
from rookery.wiring import build
from tests.conftest import Caller, House, Settings

_MARK = "zanzibar"
_BODIES: dict[str, object] = {
    "POST /v1/brain/remember": {"type": "fact", "content": "a"},
    "POST /v1/brain/remember/batch": {"memories": [{"type": "fact", "content": "a"}]},
    "POST /v1/brain/recall": {"query": _MARK},
    "PATCH /v1/brain/memories/{memory_id}": {"tags": ["changed"]},
    "POST /api/v1/mcp/tools/call": {"server": "brain", "tool": "search", "arguments": {"query": _MARK}},
    "POST /api/v1/mcp/servers/{server_id}/tools/{tool:path}": {"query": _MARK},
    "POST /api/v1/mcp/servers/{server_id}/prompts/{name:path}": {},
}
_QUERIES = {"GET /v1/brain/search": f"?q={_MARK}"}


def _named(endpoint: Endpoint) -> str:
    return f"{endpoint.route.method} {endpoint.path}"


def _path(endpoint: Endpoint, memory_id: str) -> str:
    filled = endpoint.path.replace("{memory_id}", memory_id).replace("{server_id}", "brain")
    filled = filled.replace("{tool:path}", "search").replace("{name:path}", "x").replace("{uri:path}", "brain://nothing")
    assert "{" not in filled, f"tell this test what to put for a parameter of {filled}"
    return filled + _QUERIES.get(_named(endpoint), "")


async def _try(caller: Caller, endpoint: Endpoint, memory_id: str, **headers: str) -> tuple[int, dict[str, object], str]:
    answer = await caller.send(endpoint.route.method, _path(endpoint, memory_id), _BODIES.get(_named(endpoint)), **headers)
    body = cast("dict[str, object]", answer.json() if answer.content else {})
    assert isinstance(body, dict)
    return answer.status_code, body, answer.text


@pytest.fixture
def mounted(settings: Settings) -> Mounted:
    """The table of routes."""
    return mounted_routes(build(settings))


def _guarded(mounted: Mounted) -> Iterator[Endpoint]:
    return (endpoint for endpoint in mounted.endpoints if not endpoint.route.public)


@pytest.fixture
async def memory_id(house: House) -> AsyncIterator[str]:
    """A memory of the first workspace, with the mark in every field that could leak."""
    stored = await house.admin.remember(f"The {_MARK} secret.", org=_MARK, project=_MARK, tags=[_MARK], type=_MARK, source=_MARK)
    yield str(stored["id"])
    kept = (await house.admin.get(f"/v1/brain/memories/{stored['id']}")).json()
    assert (kept["content"], kept["tags"]) == (f"The {_MARK} secret.", [_MARK])


def test_only_health_is_public(mounted: Mounted) -> None:
    """D-05, D-23: what needs no key is named here; every other route declares its scope, or that any key will do."""
    public = {endpoint.path for endpoint in mounted.endpoints if endpoint.route.public}
    any_key = {endpoint.path for endpoint in _guarded(mounted) if endpoint.route.needs is None}

    assert public == {"/healthz", "/readyz"}
    assert any_key == {"/api/v1/rate-limit", "/api/agent/rate-limit"}


@pytest.mark.parametrize("key", [None, "", "nonsense", "sk_live_short", "sk_live_" + "é" * 32, "ak_" + "a" * 33, "sk_live_" + "a" * 65])
async def test_without_a_key_nothing_is_told(house: House, mounted: Mounted, memory_id: str, key: str | None) -> None:
    """Spec 7, D-20: missing or malformed is 401 unauthorised with WWW-Authenticate, on every route."""
    for endpoint in _guarded(mounted):
        headers = [] if key is None else [(b"authorization", f"Bearer {key}".encode())]
        content = b"not even JSON" if endpoint.route.method in {"POST", "PATCH", "PUT"} else None
        answer = await house.caller(None).http.request(endpoint.route.method, _path(endpoint, memory_id), headers=headers, content=content)

        assert (answer.status_code, answer.json()["error"]) == (401, "unauthorised"), _named(endpoint)
        assert answer.headers["www-authenticate"].startswith("Bearer")


async def test_keys_that_are_not_good_any_more_are_refused(house: House, mounted: Mounted, memory_id: str) -> None:
    """Spec 3.2, 7: unknown, revoked and expired keys, each with its code, on every route."""
    keys, soon = house.rookery.access.agent_keys, house.rookery.clock() + timedelta(milliseconds=200)
    revoked, expiring = await house.agent_key(), await house.agent_key(expires_at=soon)
    await keys.revoke(house.workspace_id, revoked.key_id)
    while house.rookery.clock() <= soon:
        assert (await house.admin.get("/healthz")).status_code == 200
    unknown = [house.caller(f"sk_live_{random_text(32)}"), house.caller(f"ak_{random_text(32)}")]

    for endpoint in _guarded(mounted):
        for caller, code in [(revoked, "key_revoked"), (expiring, "key_expired"), *((each, "unauthorised") for each in unknown)]:
            status, body, _ = await _try(caller, endpoint, memory_id)
            assert (status, body["error"]) == (401, code), _named(endpoint)


async def test_a_key_without_the_scope_is_refused(house: House, mounted: Mounted, memory_id: str) -> None:
    """Spec 5.2 rule 5, 5.3 step 5: 403 with required_scope for API keys, permission_denied for agent keys."""
    api, agent = await house.api_key("docs:read"), await house.agent_key("docs:read")

    for endpoint in _guarded(mounted):
        if endpoint.route.needs is None:
            continue
        status, body, _ = await _try(api, endpoint, memory_id)
        assert (status, body["error"], body["required_scope"]) == (403, "scope_missing", endpoint.route.needs), _named(endpoint)
        status, body, _ = await _try(agent, endpoint, memory_id)
        assert (status, body["error"], body["required_permission"]) == (403, "permission_denied", endpoint.route.needs), _named(endpoint)


async def test_a_key_with_just_the_scope_is_let_in(house: House, mounted: Mounted, memory_id: str) -> None:
    """D-23: each route's own scope is enough to pass the guard; what follows is the route's business."""
    for endpoint in _guarded(mounted):
        caller = await house.api_key(endpoint.route.needs or "docs:read")
        status, body, _ = await _try(caller, endpoint, uuid7())
        assert status not in {401, 429}, (_named(endpoint), body)
        assert endpoint.route.needs is None or body.get("required_scope") != endpoint.route.needs, (_named(endpoint), body)
        assert body.get("error") != "ip_not_allowed", (_named(endpoint), body)
        assert status < 500 or body.get("code"), (_named(endpoint), body)


async def test_a_key_from_a_wrong_address_is_refused(house: House, mounted: Mounted, memory_id: str) -> None:
    """Spec 5.3 step 4, D-28: restriction on with a list that does not match, and with an empty one."""
    elsewhere = await house.agent_key(ip_restriction=True, ip_list=("10.0.0.0/8", "2001:db8::/32"))
    nowhere = await house.agent_key(ip_restriction=True)

    for endpoint in _guarded(mounted):
        for caller in (elsewhere, nowhere):
            status, body, _ = await _try(caller, endpoint, memory_id, **{"X-Forwarded-For": "10.1.2.3"})
            assert (status, body["error"], body["your_ip"]) == (403, "ip_not_allowed", "127.0.0.1"), _named(endpoint)


async def test_a_key_over_its_limit_is_refused_with_headers(house: House, mounted: Mounted, memory_id: str) -> None:
    """Spec 8, D-27: 429 with Retry-After and the three headers; status calls spend nothing and are not refused."""
    limited = await house.agent_key("*", rate_limit=1)
    assert (await limited.get("/v1/brain/tags")).status_code == 200

    for endpoint in _guarded(mounted):
        answer = await limited.send(endpoint.route.method, _path(endpoint, memory_id), _BODIES.get(_named(endpoint)))
        if not endpoint.route.spends:
            assert answer.status_code == 200, _named(endpoint)
            continue
        assert (answer.status_code, answer.json()["error"]) == (429, "rate_limited"), _named(endpoint)
        assert 1 <= int(answer.headers["retry-after"]) <= 60
        assert answer.headers["x-ratelimit-limit"] == "1"
        assert answer.headers["x-ratelimit-remaining"] == "0"


async def test_another_workspace_sees_and_changes_nothing(house: House, mounted: Mounted, memory_id: str) -> None:
    """Spec 2.8: workspace_id is a hard tenant boundary; another tenant's id is a missing one, in the same words."""
    stranger = await house.api_key(workspace_id=await house.workspace("other"))

    for endpoint in _guarded(mounted):
        status, body, text = await _try(stranger, endpoint, memory_id)
        assert _MARK not in text.replace(f"'{_MARK}'", ""), _named(endpoint)
        if "{memory_id}" in endpoint.path:
            unknown = uuid7()
            _, missing, _ = await _try(stranger, endpoint, unknown)
            assert status == 404, _named(endpoint)
            assert str(body).replace(memory_id, unknown) == str(missing), _named(endpoint)
    superseding = await stranger.post("/v1/brain/remember", {"type": "fact", "content": "b", "supersedes_id": memory_id})
    assert superseding.status_code == 422


async def test_the_sandbox_is_another_tenant(house: House, mounted: Mounted, memory_id: str) -> None:
    """D-25: test keys act in the workspace's sandbox twin; nothing is seen across, and answers show the parent."""
    tester = await house.api_key(environment="test")

    for endpoint in _guarded(mounted):
        status, _, text = await _try(tester, endpoint, memory_id)
        assert _MARK not in text.replace(f"'{_MARK}'", ""), _named(endpoint)
        if "{memory_id}" in endpoint.path:
            assert status == 404, _named(endpoint)
    stored = await tester.remember("Only in the sandbox.")
    assert stored["workspace_id"] == house.workspace_id
    listed = (await house.admin.get("/v1/brain/memories?per_page=100")).json()
    assert "Only in the sandbox." not in [memory["content"] for memory in listed["data"]]


async def test_a_key_that_names_another_workspace_is_refused(house: House, mounted: Mounted, memory_id: str) -> None:
    """D-15: X-Workspace-ID is optional, but must be the key's."""
    for endpoint in _guarded(mounted):
        status, body, _ = await _try(house.admin, endpoint, memory_id, **{"X-Workspace-ID": str(house.workspace_id + 1)})
        assert (status, body["error"]) == (403, "permission_denied"), _named(endpoint)
