"""ETags and If-Match of memories, keys, webhooks, tool servers and workspaces. Agent work has a file of its own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from typing import cast

import httpx2
import pytest

from rookery.app import build_route_table
from rookery.kernel.config import Settings
from rookery.kernel.http.routes import RouteEndpoint
from tests.conftest import Caller, FakeClock, Instance, eventually, operation_name, run_instance
from tests.webhooks.receiver import run_receiver

Json = dict[str, object]

STALE = '"0123456789abcdef01234567"'

WITHOUT_VERSION = {
    "DELETE /mcp": "ends a session of the protocol, which has no state to compare",
    "DELETE /mcp/{server_id}": "ends a session of the protocol, which has no state to compare",
    **{f"DELETE {prefix}/notify/outbox": "clears a list of messages, which has no state to compare" for prefix in ("/api/agent", "/v1")},
    "DELETE /api/v1/servers/{server_id}/login": "tokens are never shown, so there is no representation to have a version of",
}
"""Routes that change or delete one resource and accept only `*` as If-Match, each with the reason."""


@dataclass(frozen=True, kw_only=True)
class Kind:
    """The requests that create, change and name one resource; *field* is the field that a change sets."""

    base: str
    new: Json
    field: str
    identifier: str = "id"

    def path(self, created: Json) -> str:
        """Return the path of a created resource."""
        base = self.base.replace("/remember", "/memories")
        return f"{base}/{created[self.identifier]}"

    def change(self, value: str) -> Json:
        """Return a body that sets the field."""
        return {self.field: value}


KINDS = {
    "memory": Kind(base="/v1/brain/remember", new={"content": "Heron is the staging database."}, field="type"),
    "api key": Kind(base="/api/v1/api-keys", new={"name": "first", "scopes": ["brain:read"]}, field="name"),
    "agent key": Kind(base="/api/v1/agent-keys", new={"name": "first", "permissions": ["brain:read"]}, field="name"),
    "webhook": Kind(base="/api/v1/webhooks", new={"url": "http://127.0.0.1:9/hook", "events": ["plan.completed"]}, field="description"),
    "server": Kind(base="/api/v1/servers", new={"id": "tickets", "url": "http://127.0.0.1:9/mcp", "enabled": False}, field="tagline"),
    "workspace": Kind(base="/api/v1/workspaces", new={"name": "first"}, field="name", identifier="workspace_id"),
}

each_kind = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS.keys())


def allow_local_egress(settings: Settings) -> Settings:
    """Return settings of a server that may reach this host."""
    return replace(settings, egress_allow=("127.0.0.1/32",))


@pytest.fixture
async def instance(settings: Settings) -> AsyncIterator[Instance]:
    """A running server that may reach this host."""
    async with run_instance(allow_local_egress(settings)) as running:
        yield running


async def create_resource(caller: Caller, kind: Kind) -> tuple[str, Json, httpx2.Response]:
    """Create a resource; return its path, its fields and the response."""
    response = await caller.post(kind.base, kind.new)
    assert response.status_code == 201, response.text
    created = cast("Json", response.json())
    return kind.path(created), created, response


async def get_etag(caller: Caller, path: str) -> str:
    """Return the ETag of the resource at *path*."""
    response = await caller.get(path)
    assert response.status_code == 200, response.text
    return response.headers["etag"]


def assert_precondition_failed(response: httpx2.Response, current: str) -> None:
    """Assert that *response* is a 412 that names the current ETag."""
    assert response.status_code == 412, response.text
    body = response.json()
    assert (body["error"], body["etag"]) == ("precondition_failed", current)
    assert "If-Match" in body["message"]
    assert current in body["message"]


@each_kind
async def test_a_change_is_made_to_the_version_that_if_match_names(instance: Instance, kind: Kind) -> None:
    """If-Match supports strong comparison, lists and `*`, and prevents lost updates (RFC 9110)."""
    path, _, creation = await create_resource(instance.admin, kind)
    first = await get_etag(instance.admin, path)
    assert creation.headers["etag"] == first
    assert first.startswith('"')
    before = (await instance.admin.get(path)).json()
    for stale in (STALE, f"W/{first}", first.strip('"'), f"{STALE}, W/{first}", f'"a,{first[1:]}', ""):
        assert_precondition_failed(await instance.admin.send("PATCH", path, kind.change("lost"), **{"If-Match": stale}), first)
    assert (await instance.admin.get(path)).json()[kind.field] == before[kind.field]

    changed = await instance.admin.send("PATCH", path, kind.change("second"), **{"If-Match": f"{STALE}, {first}"})
    second = changed.headers["etag"]
    assert (changed.status_code, changed.json()[kind.field], second == first) == (200, "second", False)
    assert await get_etag(instance.admin, path) == second
    assert_precondition_failed(await instance.admin.send("PATCH", path, kind.change("lost"), **{"If-Match": first}), second)

    unchanged = await instance.admin.send("PATCH", path, kind.change("second"), **{"If-Match": second})
    assert (unchanged.status_code, unchanged.headers["etag"]) == (200, await get_etag(instance.admin, path))
    third = await instance.admin.send("PATCH", path, kind.change("third"), **{"If-Match": "*"})
    assert (third.status_code, third.headers["etag"] in {first, second}) == (200, False)
    unconditional = await instance.admin.send("PATCH", path, kind.change("fourth"))
    assert (unconditional.status_code, unconditional.json()[kind.field]) == (200, "fourth")


@each_kind
async def test_a_deletion_needs_the_version_that_if_match_names(instance: Instance, kind: Kind) -> None:
    """A resource that was changed meanwhile is not deleted."""
    path, *_ = await create_resource(instance.admin, kind)
    first = await get_etag(instance.admin, path)
    second = (await instance.admin.send("PATCH", path, kind.change("second"))).headers["etag"]

    assert_precondition_failed(await instance.admin.send("DELETE", path, **{"If-Match": first}), second)
    assert await get_etag(instance.admin, path) == second
    deleted = await instance.admin.send("DELETE", path, **{"If-Match": second})
    assert deleted.status_code in {200, 204}, deleted.text
    assert (await instance.admin.send("PATCH", path, kind.change("third"), **{"If-Match": "*"})).status_code == 404


@each_kind
async def test_exactly_one_of_several_writers_with_the_same_version_wins(instance: Instance, kind: Kind) -> None:
    """Versions are compared inside the transaction of the write, so no change is lost."""
    path, *_ = await create_resource(instance.admin, kind)
    first = {"If-Match": await get_etag(instance.admin, path)}

    writers = [instance.admin.send("PATCH", path, kind.change(f"writer-{number}"), **first) for number in range(6)]
    responses = await asyncio.gather(*writers)

    successful = [response for response in responses if response.status_code == 200]
    assert [response.status_code for response in responses if response not in successful] == [412] * 5, [
        response.text for response in responses
    ]
    current = await instance.admin.get(path)
    assert (current.json()[kind.field], current.headers["etag"]) == (successful[0].json()[kind.field], successful[0].headers["etag"])


@each_kind
async def test_a_change_and_a_deletion_of_the_same_version_exclude_each_other(instance: Instance, kind: Kind) -> None:
    """A deletion never discards an unseen change."""
    path, *_ = await create_resource(instance.admin, kind)
    first = {"If-Match": await get_etag(instance.admin, path)}

    changed, deleted = await asyncio.gather(
        instance.admin.send("PATCH", path, kind.change("changed"), **first), instance.admin.send("DELETE", path, **first)
    )

    assert (changed.status_code, deleted.status_code) in {(200, 412), (404, 200), (404, 204)}, (changed.text, deleted.text)


@each_kind
async def test_writes_at_the_same_time_have_different_versions(settings: Settings, clock: FakeClock, kind: Kind) -> None:
    """Versions differ even if the clock does not advance between two writes."""
    async with run_instance(allow_local_egress(settings), clock) as instance:
        path, *_ = await create_resource(instance.admin, kind)
        tags = [await get_etag(instance.admin, path)]
        for value in ("second", "third", "fourth"):
            response = await instance.admin.send("PATCH", path, kind.change(value), **{"If-Match": tags[-1]})
            assert response.status_code == 200, response.text
            tags.append(response.headers["etag"])

    assert len(set(tags)) == 4


async def test_recall_and_indexing_do_not_change_the_version_of_a_memory(instance: Instance) -> None:
    """Reads do not change the version; feedback, archiving and restoring do."""
    stored = await instance.admin.post("/v1/brain/remember", {"content": "Heron is the staging database."})
    path = f"/v1/brain/memories/{stored.json()['id']}"
    first = stored.headers["etag"]

    async def is_indexed() -> bool:
        return (await instance.admin.get(path)).json()["indexed"]

    await eventually(is_indexed)
    recalled = (await instance.admin.post("/v1/brain/recall", {"query": "Which database is for staging?"})).json()
    assert [memory["id"] for memory in recalled["memories"]] == [stored.json()["id"]]
    assert await get_etag(instance.admin, path) == first

    feedback = await instance.admin.post(f"/v1/brain/recall/{recalled['recall_id']}/feedback", {"used": [stored.json()["id"]]})
    assert feedback.status_code == 200, feedback.text
    second = await get_etag(instance.admin, path)
    archived = await instance.admin.send("POST", f"{path}/archive", **{"If-Match": second})
    restored = await instance.admin.send("POST", f"{path}/restore", **{"If-Match": archived.headers["etag"]})
    assert (archived.status_code, restored.status_code) == (200, 200)
    assert len({first, second, archived.headers["etag"]}) == 3
    assert_precondition_failed(await instance.admin.send("POST", f"{path}/archive", **{"If-Match": first}), restored.headers["etag"])


@pytest.mark.parametrize("kind", ["api key", "agent key"])
async def test_calls_do_not_change_the_version_of_a_key(instance: Instance, kind: str) -> None:
    """A call changes only the usage of a key, not its settings."""
    path, created, _ = await create_resource(instance.admin, KINDS[kind])
    first = await get_etag(instance.admin, path)
    assert (await instance.caller(str(created.get("plaintext_key") or created["key"])).get("/v1/brain/tags")).status_code == 200

    used = await instance.admin.get(path)

    assert (used.json()["call_count"], used.headers["etag"]) == (1, first)


async def test_lists_of_a_key_have_the_version_of_the_key(instance: Instance) -> None:
    """IP list and permissions share the ETag of their key; a caller without audit:read sees the change too."""
    path, *_ = await create_resource(instance.admin, KINDS["agent key"])
    reader = await instance.api_key("keys:read")
    first = await get_etag(instance.admin, f"{path}/ips")
    assert first == await get_etag(instance.admin, f"{path}/permissions") == await get_etag(reader, path)

    replaced = await instance.admin.send("PUT", f"{path}/ips", {"ips": ["192.0.2.1"]}, **{"If-Match": first})
    second = replaced.headers["etag"]
    assert (replaced.status_code, second == first, await get_etag(reader, path)) == (200, False, second)
    for method, name, body in (
        ("PUT", "ips", {"ips": ["192.0.2.2"]}),
        ("POST", "ips", {"ips": ["192.0.2.2"]}),
        ("DELETE", "ips", {"ips": ["192.0.2.1"]}),
        ("PUT", "permissions", {"permissions": ["mcp:read"]}),
    ):
        assert_precondition_failed(await instance.admin.send(method, f"{path}/{name}", body, **{"If-Match": first}), second)


async def test_the_version_of_a_rotated_key_is_that_of_its_successor(instance: Instance) -> None:
    """The response contains the successor, so its ETag is the successor's."""
    for name in ("api key", "agent key"):
        kind = KINDS[name]
        path, *_ = await create_resource(instance.admin, kind)
        first = await get_etag(instance.admin, path)
        rotate = f"{path}/rotate"
        assert_precondition_failed(await instance.admin.send("POST", rotate, {"grace_period_hours": 1}, **{"If-Match": STALE}), first)
        rotated = await instance.admin.send("POST", rotate, {"grace_period_hours": 1}, **{"If-Match": first})
        assert rotated.status_code == 201, rotated.text
        assert await get_etag(instance.admin, kind.path(rotated.json())) == rotated.headers["etag"] != first
        assert await get_etag(instance.admin, path) != first, "the rotation changes the old key"


async def test_deliveries_do_not_change_the_version_of_a_webhook(instance: Instance) -> None:
    """A delivery does not change the version; a new secret does."""
    async with run_receiver() as receiver:
        webhook = (await instance.admin.post("/api/v1/webhooks", {"url": receiver.url, "events": ["plan.completed"]})).json()
        path = f"/api/v1/webhooks/{webhook['id']}"
        first = await get_etag(instance.admin, path)
        assert (await instance.admin.post(f"{path}/test")).status_code == 202

        async def is_delivered() -> bool:
            return (await instance.admin.get(path)).json()["last_success_at"] is not None

        await eventually(is_delivered)
        assert await get_etag(instance.admin, path) == first

    assert_precondition_failed(await instance.admin.send("POST", f"{path}/rotate-secret", **{"If-Match": STALE}), first)
    rotated = await instance.admin.send("POST", f"{path}/rotate-secret", **{"If-Match": first})
    assert (rotated.status_code, await get_etag(instance.admin, path)) == (200, rotated.headers["etag"])
    assert rotated.headers["etag"] != first


async def test_the_health_of_a_server_does_not_change_its_version(instance: Instance) -> None:
    """Health is not a setting."""
    path, *_ = await create_resource(instance.admin, replace(KINDS["server"], new={"id": "tickets", "url": "http://127.0.0.1:9/mcp"}))
    first = await get_etag(instance.admin, path)
    call = await instance.admin.post("/api/v1/mcp/tools/call", {"server": "tickets", "tool": "list", "arguments": {}})
    assert call.status_code >= 400

    async def is_down() -> bool:
        return (await instance.admin.get(path)).json()["last_error"] is not None

    await eventually(is_down)
    assert await get_etag(instance.admin, path) == first


async def test_a_server_added_again_has_a_new_version(settings: Settings, clock: FakeClock) -> None:
    """A server with the id of a deleted one must not have its version."""
    async with run_instance(allow_local_egress(settings), clock) as instance:
        path, *_ = await create_resource(instance.admin, KINDS["server"])
        first = await get_etag(instance.admin, path)
        assert (await instance.admin.send("DELETE", path)).status_code == 204
        await create_resource(instance.admin, KINDS["server"])

        assert_precondition_failed(await instance.admin.send("DELETE", path, **{"If-Match": first}), await get_etag(instance.admin, path))


def _writes(instance: Instance) -> list[RouteEndpoint]:
    return [endpoint for endpoint in build_route_table(instance.rookery).endpoints if endpoint.route.method in {"PATCH", "PUT", "DELETE"}]


async def test_each_change_of_one_resource_honours_if_match_or_has_a_reason(instance: Instance) -> None:
    """A route that changes one resource compares If-Match or has a reason here; its GET returns the ETag."""
    endpoints = build_route_table(instance.rookery).endpoints
    without_if_match = {operation_name(endpoint) for endpoint in _writes(instance) if "If-Match" not in endpoint.route.all_request_headers}
    assert without_if_match == WITHOUT_VERSION.keys()

    response_headers = {operation_name(endpoint): endpoint.route.all_response_headers for endpoint in endpoints}
    with_if_match = [endpoint for endpoint in endpoints if "If-Match" in endpoint.route.all_request_headers]
    assert len(with_if_match) > 50
    for endpoint in with_if_match:
        get_operation = f"GET {endpoint.path}"
        if endpoint.route.method in {"PATCH", "PUT", "DELETE"} and get_operation in response_headers and "/deliveries" not in get_operation:
            assert "ETag" in response_headers[get_operation], get_operation
        if endpoint.route.method in {"PATCH", "PUT"}:
            assert "ETag" in response_headers[operation_name(endpoint)], operation_name(endpoint)


async def test_the_api_document_has_if_match_etag_and_412(instance: Instance) -> None:
    """Each such route documents the header, the ETag and the 412."""
    paths = cast("dict[str, dict[str, Json]]", (await instance.admin.get("/openapi.json")).json()["paths"])
    for kind in KINDS.values():
        path = next(
            route_path
            for route_path in paths
            if route_path.startswith(f"{kind.base.replace('/remember', '/memories')}/{{") and route_path.count("{") == 1
        )
        for method in ("patch", "delete"):
            operation = paths[path][method]
            assert {"$ref": "#/components/parameters/If-Match"} in cast("list[Json]", operation["parameters"]), (method, path)
            assert "412" in cast("Json", operation["responses"]), (method, path)
        for method in ("get", "patch"):
            ok_response = cast("dict[str, dict[str, Json]]", paths[path][method]["responses"])["200"]
            assert "ETag" in ok_response["headers"], (method, path)
