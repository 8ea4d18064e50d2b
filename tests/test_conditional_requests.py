"""ETags and If-Match of memories, keys, webhooks, tool servers and workspaces (D-64). Agent work has a file of its own."""

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
from tests.conftest import Caller, FakeClock, Instance, eventually, run_instance
from tests.webhooks.receiver import run_receiver

Json = dict[str, object]

STALE = '"0123456789abcdef01234567"'

WITHOUT_VERSION = {
    "DELETE /mcp": "ends a session of the protocol, which has no state to compare",
    "DELETE /mcp/{server_id}": "ends a session of the protocol, which has no state to compare",
    "DELETE /api/v1/servers/{server_id}/login": "tokens are never shown, so there is no representation to have a version of",
}
"""Routes that change or delete one resource and accept no If-Match but `*`, each with the reason."""


@dataclass(frozen=True, kw_only=True)
class Kind:
    """The requests that create, change and name one resource; *shows* names the response field that *field* sets."""

    base: str
    new: Json
    field: str
    identifier: str = "id"

    def path(self, made: Json) -> str:
        """Return the path of a resource that was made."""
        base = self.base.replace("/remember", "/memories")
        return f"{base}/{made[self.identifier]}"

    def change(self, value: str) -> Json:
        """Return a body that sets the field."""
        return {self.field: value}


KINDS = {
    "memory": Kind(base="/v1/brain/remember", new={"content": "Heron is the staging database."}, field="type"),
    "api key": Kind(base="/api/v1/api-keys", new={"name": "first", "scopes": ["brain:read"]}, field="name"),
    "agent key": Kind(base="/api/v1/agent-keys", new={"name": "first", "permissions": ["brain:read"]}, field="name"),
    "webhook": Kind(base="/api/v1/webhooks", new={"url": "http://127.0.0.1:9/hook", "events": ["plan.completed"]}, field="description"),
    "server": Kind(base="/api/v1/servers", new={"id": "tickets", "url": "http://127.0.0.1:9/mcp", "enabled": False}, field="tagline"),
    "workspace": Kind(base="/api/v1/workspaces", new={"name": "first"}, field="name"),
}

each_kind = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS.keys())


def resource_kinds(settings: Settings) -> Settings:
    """Return settings of a server that may reach this host."""
    return replace(settings, egress_allow=("127.0.0.1/32",))


@pytest.fixture
async def instance(settings: Settings) -> AsyncIterator[Instance]:
    """A running server that may reach this host."""
    async with run_instance(resource_kinds(settings)) as opened:
        yield opened


async def make(caller: Caller, kind: Kind) -> tuple[str, Json, httpx2.Response]:
    """Make a resource; return its path, its fields and the answer."""
    answer = await caller.post(kind.base, kind.new)
    assert answer.status_code == 201, answer.text
    made = cast("Json", answer.json())
    return kind.path(made), made, answer


async def tag_of(caller: Caller, path: str) -> str:
    """Return the ETag of the resource at *path*."""
    answer = await caller.get(path)
    assert answer.status_code == 200, answer.text
    return answer.headers["etag"]


def assert_refused(answer: httpx2.Response, current: str) -> None:
    """Assert that *answer* is a 412 that names the current ETag."""
    assert answer.status_code == 412, answer.text
    body = answer.json()
    assert (body["error"], body["etag"]) == ("precondition_failed", current)
    assert "If-Match" in body["message"]
    assert current in body["message"]


@each_kind
async def test_a_change_is_made_to_the_version_that_if_match_names(instance: Instance, kind: Kind) -> None:
    """Issue 14: lost updates were not detected despite If-Match; D-64; RFC 9110, 13.1.1: strong comparison, lists, `*`."""
    path, _, made = await make(instance.admin, kind)
    first = await tag_of(instance.admin, path)
    assert made.headers["etag"] == first
    assert first.startswith('"')
    before = (await instance.admin.get(path)).json()
    for stale in (STALE, f"W/{first}", first.strip('"'), f"{STALE}, W/{first}", f'"a,{first[1:]}', ""):
        assert_refused(await instance.admin.send("PATCH", path, kind.change("lost"), **{"If-Match": stale}), first)
    assert (await instance.admin.get(path)).json()[kind.field] == before[kind.field]

    changed = await instance.admin.send("PATCH", path, kind.change("second"), **{"If-Match": f"{STALE}, {first}"})
    second = changed.headers["etag"]
    assert (changed.status_code, changed.json()[kind.field], second == first) == (200, "second", False)
    assert await tag_of(instance.admin, path) == second
    assert_refused(await instance.admin.send("PATCH", path, kind.change("lost"), **{"If-Match": first}), second)

    same = await instance.admin.send("PATCH", path, kind.change("second"), **{"If-Match": second})
    assert (same.status_code, same.headers["etag"]) == (200, await tag_of(instance.admin, path))
    third = await instance.admin.send("PATCH", path, kind.change("third"), **{"If-Match": "*"})
    assert (third.status_code, third.headers["etag"] in {first, second}) == (200, False)
    unconditional = await instance.admin.send("PATCH", path, kind.change("fourth"))
    assert (unconditional.status_code, unconditional.json()[kind.field]) == (200, "fourth")


@each_kind
async def test_only_the_version_that_if_match_names_is_deleted(instance: Instance, kind: Kind) -> None:
    """Issue 14: a resource changed meanwhile was deleted; D-64."""
    path, *_ = await make(instance.admin, kind)
    first = await tag_of(instance.admin, path)
    second = (await instance.admin.send("PATCH", path, kind.change("second"))).headers["etag"]

    assert_refused(await instance.admin.send("DELETE", path, **{"If-Match": first}), second)
    assert await tag_of(instance.admin, path) == second
    deleted = await instance.admin.send("DELETE", path, **{"If-Match": second})
    assert deleted.status_code in {200, 204}, deleted.text
    assert (await instance.admin.send("PATCH", path, kind.change("third"), **{"If-Match": "*"})).status_code == 404


@each_kind
async def test_of_writers_with_the_same_version_exactly_one_wins(instance: Instance, kind: Kind) -> None:
    """Issue 14: two who read the same version both wrote, and one change was lost; D-64: compared inside the write's transaction."""
    path, *_ = await make(instance.admin, kind)
    first = {"If-Match": await tag_of(instance.admin, path)}

    writers = [instance.admin.send("PATCH", path, kind.change(f"writer-{number}"), **first) for number in range(6)]
    answers = await asyncio.gather(*writers)

    won = [each for each in answers if each.status_code == 200]
    assert [each.status_code for each in answers if each not in won] == [412] * 5, [each.text for each in answers]
    now = await instance.admin.get(path)
    assert (now.json()[kind.field], now.headers["etag"]) == (won[0].json()[kind.field], won[0].headers["etag"])


@each_kind
async def test_of_a_change_and_a_deletion_of_the_same_version_one_wins(instance: Instance, kind: Kind) -> None:
    """Issue 14: a deletion discarded an unseen change; D-64."""
    path, *_ = await make(instance.admin, kind)
    first = {"If-Match": await tag_of(instance.admin, path)}

    changed, deleted = await asyncio.gather(
        instance.admin.send("PATCH", path, kind.change("changed"), **first), instance.admin.send("DELETE", path, **first)
    )

    assert (changed.status_code, deleted.status_code) in {(200, 412), (404, 200), (404, 204)}, (changed.text, deleted.text)


@each_kind
async def test_writes_in_one_moment_have_versions_of_their_own(settings: Settings, clock: FakeClock, kind: Kind) -> None:
    """Issue 14: a version that is a time must differ between two writes that the clock cannot tell apart; D-64."""
    async with run_instance(resource_kinds(settings), clock) as instance:
        path, *_ = await make(instance.admin, kind)
        tags = [await tag_of(instance.admin, path)]
        for value in ("second", "third", "fourth"):
            answer = await instance.admin.send("PATCH", path, kind.change(value), **{"If-Match": tags[-1]})
            assert answer.status_code == 200, answer.text
            tags.append(answer.headers["etag"])

    assert len(set(tags)) == 4


async def test_recall_and_indexing_leave_the_version_of_a_memory(instance: Instance) -> None:
    """Issue 14: reading must not make a writer's version stale; feedback, archiving and restoring are writes; D-64."""
    stored = await instance.admin.post("/v1/brain/remember", {"content": "Heron is the staging database."})
    path = f"/v1/brain/memories/{stored.json()['id']}"
    first = stored.headers["etag"]

    async def is_indexed() -> bool:
        return (await instance.admin.get(path)).json()["indexed"]

    await eventually(is_indexed, within_s=30)
    recalled = (await instance.admin.post("/v1/brain/recall", {"query": "Which database is for staging?"})).json()
    assert [each["id"] for each in recalled["memories"]] == [stored.json()["id"]]
    assert await tag_of(instance.admin, path) == first

    feedback = await instance.admin.post(f"/v1/brain/recall/{recalled['recall_id']}/feedback", {"used": [stored.json()["id"]]})
    assert feedback.status_code == 200, feedback.text
    second = await tag_of(instance.admin, path)
    archived = await instance.admin.send("POST", f"{path}/archive", **{"If-Match": second})
    restored = await instance.admin.send("POST", f"{path}/restore", **{"If-Match": archived.headers["etag"]})
    assert (archived.status_code, restored.status_code) == (200, 200)
    assert len({first, second, archived.headers["etag"]}) == 3
    assert_refused(await instance.admin.send("POST", f"{path}/archive", **{"If-Match": first}), restored.headers["etag"])


@pytest.mark.parametrize("kind", ["api key", "agent key"])
async def test_calls_leave_the_version_of_a_key(instance: Instance, kind: str) -> None:
    """Issue 14: each call with a key would have made the version of its settings stale; D-64."""
    path, made, _ = await make(instance.admin, KINDS[kind])
    first = await tag_of(instance.admin, path)
    assert (await instance.caller(str(made.get("plaintext_key") or made["key"])).get("/v1/brain/tags")).status_code == 200

    used = await instance.admin.get(path)

    assert (used.json()["call_count"], used.headers["etag"]) == (1, first)


async def test_lists_of_a_key_have_the_version_of_the_key(instance: Instance) -> None:
    """Issue 14: who replaces a list replaces the one that they have read; D-64. A caller without audit:read sees the change too."""
    path, *_ = await make(instance.admin, KINDS["agent key"])
    reader = await instance.api_key("keys:read")
    first = await tag_of(instance.admin, f"{path}/ips")
    assert first == await tag_of(instance.admin, f"{path}/permissions") == await tag_of(reader, path)

    put = await instance.admin.send("PUT", f"{path}/ips", {"ips": ["192.0.2.1"]}, **{"If-Match": first})
    second = put.headers["etag"]
    assert (put.status_code, second == first, await tag_of(reader, path)) == (200, False, second)
    for method, name, body in (
        ("PUT", "ips", {"ips": ["192.0.2.2"]}),
        ("POST", "ips", {"ips": ["192.0.2.2"]}),
        ("DELETE", "ips", {"ips": ["192.0.2.1"]}),
        ("PUT", "permissions", {"permissions": ["mcp:read"]}),
    ):
        assert_refused(await instance.admin.send(method, f"{path}/{name}", body, **{"If-Match": first}), second)


async def test_the_version_of_a_rotated_key_is_that_of_its_successor(instance: Instance) -> None:
    """Issue 14: the answer shows the successor, so its ETag is the successor's; D-26, D-64."""
    for name in ("api key", "agent key"):
        kind = KINDS[name]
        path, *_ = await make(instance.admin, kind)
        first = await tag_of(instance.admin, path)
        rotate = f"{path}/rotate"
        assert_refused(await instance.admin.send("POST", rotate, {"grace_period_hours": 1}, **{"If-Match": STALE}), first)
        rotated = await instance.admin.send("POST", rotate, {"grace_period_hours": 1}, **{"If-Match": first})
        assert rotated.status_code == 201, rotated.text
        assert await tag_of(instance.admin, kind.path(rotated.json())) == rotated.headers["etag"] != first
        assert await tag_of(instance.admin, path) != first, "its end is a change of the old key"


async def test_deliveries_leave_the_version_of_a_webhook(instance: Instance) -> None:
    """Issue 14: each delivery would have made the version of the settings stale; a new secret is a change; D-64."""
    async with run_receiver() as desk:
        made = (await instance.admin.post("/api/v1/webhooks", {"url": desk.url, "events": ["plan.completed"]})).json()
        path = f"/api/v1/webhooks/{made['id']}"
        first = await tag_of(instance.admin, path)
        assert (await instance.admin.post(f"{path}/test")).status_code == 202

        async def is_delivered() -> bool:
            return (await instance.admin.get(path)).json()["last_success_at"] is not None

        await eventually(is_delivered, within_s=30)
        assert await tag_of(instance.admin, path) == first

    assert_refused(await instance.admin.send("POST", f"{path}/rotate-secret", **{"If-Match": STALE}), first)
    rotated = await instance.admin.send("POST", f"{path}/rotate-secret", **{"If-Match": first})
    assert (rotated.status_code, await tag_of(instance.admin, path)) == (200, rotated.headers["etag"])
    assert rotated.headers["etag"] != first


async def test_the_health_of_a_server_leaves_its_version(instance: Instance) -> None:
    """Issue 14: the health changes by itself, and is no setting; D-64."""
    path, *_ = await make(instance.admin, replace(KINDS["server"], new={"id": "tickets", "url": "http://127.0.0.1:9/mcp"}))
    first = await tag_of(instance.admin, path)
    called = await instance.admin.post("/api/v1/mcp/tools/call", {"server": "tickets", "tool": "list", "arguments": {}})
    assert called.status_code >= 400

    async def is_down() -> bool:
        return (await instance.admin.get(path)).json()["last_error"] is not None

    await eventually(is_down, within_s=30)
    assert await tag_of(instance.admin, path) == first


async def test_a_server_that_is_added_again_is_another_one(settings: Settings, clock: FakeClock) -> None:
    """Issue 14: the id of a server is its owner's choice, so a version must not come back with it; D-64."""
    async with run_instance(resource_kinds(settings), clock) as instance:
        path, *_ = await make(instance.admin, KINDS["server"])
        first = await tag_of(instance.admin, path)
        assert (await instance.admin.send("DELETE", path)).status_code == 204
        await make(instance.admin, KINDS["server"])

        assert_refused(await instance.admin.send("DELETE", path, **{"If-Match": first}), await tag_of(instance.admin, path))


def _writes(instance: Instance) -> list[RouteEndpoint]:
    return [each for each in build_route_table(instance.rookery).endpoints if each.route.method in {"PATCH", "PUT", "DELETE"}]


def _named(endpoint: RouteEndpoint) -> str:
    return f"{endpoint.route.method} {endpoint.path}"


async def test_each_change_of_one_resource_honours_if_match_or_says_why_not(instance: Instance) -> None:
    """Issue 14: a new route that changes one resource compares If-Match, or has a reason here; its GET has the ETag; D-64."""
    endpoints = build_route_table(instance.rookery).endpoints
    without = {_named(each) for each in _writes(instance) if "If-Match" not in each.docs.request_headers}
    assert without == WITHOUT_VERSION.keys()

    sends = {_named(each): each.docs.response_headers for each in endpoints}
    compared = [each for each in endpoints if "If-Match" in each.docs.request_headers]
    assert len(compared) > 50
    for endpoint in compared:
        shown = f"GET {endpoint.path}"
        if endpoint.route.method in {"PATCH", "PUT", "DELETE"} and shown in sends and "/deliveries" not in shown:
            assert "ETag" in sends[shown], shown
        if endpoint.route.method in {"PATCH", "PUT"}:
            assert "ETag" in sends[_named(endpoint)], _named(endpoint)


async def test_the_api_document_shows_if_match_and_its_refusal(instance: Instance) -> None:
    """Issue 14: callers learn of the header, the ETag and the 412 where they learn of the route; D-64, D-83."""
    paths = cast("dict[str, dict[str, Json]]", (await instance.admin.get("/openapi.json")).json()["paths"])
    for kind in KINDS.values():
        path = next(each for each in paths if each.startswith(f"{kind.base.replace('/remember', '/memories')}/{{") and each.count("{") == 1)
        for method in ("patch", "delete"):
            operation = paths[path][method]
            assert {"$ref": "#/components/parameters/If-Match"} in cast("list[Json]", operation["parameters"]), (method, path)
            assert "412" in cast("Json", operation["responses"]), (method, path)
        for method in ("get", "patch"):
            answered = cast("dict[str, dict[str, Json]]", paths[path][method]["responses"])["200"]
            assert "ETag" in answered["headers"], (method, path)
