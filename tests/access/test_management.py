"""Keys and workspaces over HTTP, as an operator uses them."""

from __future__ import annotations

import csv
import io
from datetime import timedelta
from typing import cast

import pytest
from dirty_equals import IsList, IsPartialDict, IsStr

from rookery.access.schemas import (
    AgentKeyResponse,
    ApiKeyResponse,
    NewAgentKeyResponse,
    NewApiKeyResponse,
    UsageResponse,
    UsageSumResponse,
    WhoResponse,
)
from rookery.kernel.clock import format_iso
from rookery.kernel.schema import ResponseModel
from tests.conftest import Caller, Instance

API, AGENT = "/api/v1/api-keys", "/api/v1/agent-keys"


async def _create_key(caller: Caller, path: str, **fields: object) -> dict[str, object]:
    response = await caller.post(path, {"name": "made", **fields})
    assert response.status_code == 201, response.text
    return cast("dict[str, object]", response.json())


async def test_an_api_key_is_managed_over_http(instance: Instance) -> None:
    """Created, used, listed, changed, deleted. Each change takes effect with the next request."""
    created = await _create_key(instance.admin, API, scopes=["brain:read"], rate_limit_tier="free", tool_limits={"web/*": 3})
    key = instance.caller(str(created.pop("plaintext_key")))
    key_url = f"{API}/{created['id']}"

    assert (await key.get("/v1/brain/tags")).headers["x-ratelimit-limit"] == "1000"
    fetched = (await instance.admin.get(key_url)).json()
    assert fetched == created | {"call_count": 1, "last_used_at": IsStr(), "last_used_ip": "127.0.0.1"}
    assert (await instance.admin.get(API)).json()["data"] == IsList(fetched, length=...)

    response = await instance.admin.send("PATCH", key_url, {"scopes": ["mcp:read"], "rate_limit_tier": "business", "servers": ["brain"]})
    assert response.json() == IsPartialDict(
        {"scopes": ["mcp:read"], "rate_limit_tier": "business", "servers": ["brain"], "tool_limits": {"web/*": 3}}
    )
    assert (await key.get("/v1/brain/tags")).json()["error"] == "scope_missing"
    assert (await key.get("/api/v1/mcp/servers")).headers["x-ratelimit-limit"] == "50000"

    assert (await instance.admin.send("DELETE", key_url)).status_code == 204
    assert (await key.get("/api/v1/whoami")).json()["error"] == "unauthorised"
    assert (await instance.admin.get(key_url)).json()["error"] == "resource_not_found"


async def test_an_agent_key_is_managed_over_http(instance: Instance) -> None:
    """Created from a preset, restricted, extended, with new permissions, revoked."""
    created = await _create_key(instance.admin, AGENT, preset="reader", rate_limit=7)
    key = instance.caller(str(created.pop("key")))
    key_url = f"{AGENT}/{created['id']}"
    assert (created["status"], created["agent_id"], created["ip_restriction"]) == ("Active", "made", False)

    assert (await key.get("/v1/brain/tags")).headers["x-ratelimit-limit"] == "7"
    response = await instance.admin.send("PUT", f"{key_url}/permissions", {"permissions": ["plans:read"]})
    assert response.json()["permissions"] == ["plans.read"]
    assert (await key.get("/v1/brain/tags")).json() == IsPartialDict(error="permission_denied", required_permission="brain:read")

    tomorrow = instance.rookery.clock() + timedelta(days=1)
    assert (await instance.admin.post(f"{key_url}/extend", {"expires_at": format_iso(tomorrow)})).json()["expires_at"] == format_iso(
        tomorrow
    )
    assert (await instance.admin.post(f"{key_url}/extend", {"expires_at": None})).json()["expires_at"] is None
    renamed = (await instance.admin.send("PATCH", key_url, {"name": "Renamed", "rate_limit": 8})).json()
    assert (renamed["name"], renamed["agent_id"], renamed["rate_limit"]) == ("Renamed", "made", 8)

    for _ in range(2):
        assert (await instance.admin.post(f"{key_url}/revoke")).json()["status"] == "Revoked"
    assert (await key.get("/api/v1/whoami")).json()["error"] == "key_revoked"
    without_expiry = await instance.admin.post(f"{key_url}/extend", {"expires_at": None})
    assert without_expiry.status_code == 409
    assert (await instance.admin.get(key_url)).json()["status"] == "Revoked"


@pytest.mark.parametrize(("base", "secret"), [(API, "plaintext_key"), (AGENT, "key")])
async def test_either_kind_is_rotated_with_grace(instance: Instance, base: str, secret: str) -> None:
    """Both keys work in the grace period, the new one has every setting, and the old one cannot be rotated again."""
    created = await _create_key(instance.admin, base, **({"scopes": ["brain:read"]} if base == API else {"permissions": ["brain:read"]}))
    response = await instance.admin.post(f"{base}/{created['id']}/rotate", {"grace_period_hours": 2})
    assert response.status_code == 201
    successor = response.json()
    old_key = (await instance.admin.get(f"{base}/{created['id']}")).json()

    own_fields = {"id", "hint", "created_at", secret, "call_count", "last_used_at", "last_used_ip"}
    assert {name: value for name, value in successor.items() if name not in own_fields} == {
        name: value for name, value in created.items() if name not in own_fields
    }
    assert old_key["delete_after"] is not None
    for key in (created[secret], successor[secret]):
        assert (await instance.caller(str(key)).get("/v1/brain/tags")).status_code == 200
    assert (await instance.admin.post(f"{base}/{created['id']}/rotate", {})).json()["error"] == "key_in_grace"
    assert (await instance.admin.post(f"{base}/{created['id']}/rotate", {"grace_period_hours": 721})).status_code == 422


@pytest.mark.parametrize("base", [API, AGENT])
async def test_either_kind_is_suspended_and_resumed(instance: Instance, base: str) -> None:
    """401 key_revoked while suspended, admitted again afterwards."""
    created = await _create_key(instance.admin, base, preset="reader")
    key = instance.caller(str(created.get("plaintext_key") or created["key"]))

    assert (await instance.admin.post(f"{base}/{created['id']}/suspend")).json()["suspended_at"] is not None
    assert (await key.get("/v1/brain/tags")).json()["error"] == "key_revoked"
    assert (await instance.admin.post(f"{base}/{created['id']}/resume")).json()["suspended_at"] is None
    assert (await key.get("/v1/brain/tags")).status_code == 200


async def test_addresses_are_listed_added_removed_and_replaced(instance: Instance) -> None:
    """One form for each address. A list with an invalid line stores nothing and names the line."""
    key = await _create_key(instance.admin, AGENT, preset="reader", ip_list=["10.1.2.3/8"])
    ips = f"{AGENT}/{key['id']}/ips"
    assert (key["ip_restriction"], key["ip_list"]) == (True, ["10.0.0.0/8"])

    await instance.admin.post(ips, {"ips": ["::ffff:192.0.2.1"]})
    await instance.admin.send("DELETE", ips, {"ips": ["10.0.0.0/8", "203.0.113.9"]})
    assert (await instance.admin.get(ips)).json() == {"ip_restriction": True, "ips": ["192.0.2.1"]}
    rejected_list = await instance.admin.send("PUT", ips, {"text": "# ours\n127.0.0.1\n\nnonsense\n1.2.3\n"})
    assert (rejected_list.status_code, rejected_list.json()["errors"]) == (
        422,
        {"ips": ["nonsense: Invalid IP address", "1.2.3: Invalid IP address"]},
    )
    assert (await instance.admin.get(ips)).json()["ips"] == ["192.0.2.1"]
    response = await instance.admin.send("PUT", ips, {"text": "# ours\n127.0.0.1\n", "ip_restriction": False})
    assert (response.json()["ip_list"], response.json()["ip_restriction"]) == (["127.0.0.1"], False)
    assert (await instance.admin.send("PUT", ips, {})).status_code == 422


@pytest.mark.parametrize("method", ["PUT", "POST", "DELETE"])
async def test_the_address_routes_reject_the_field_name_of_keys(instance: Instance, method: str) -> None:
    """A key shows `ip_list`, and its address routes take `ips` or `text`."""
    key = await _create_key(instance.admin, AGENT, preset="reader", ip_list=["192.0.2.1", "198.51.100.0/24"])
    ips = f"{AGENT}/{key['id']}/ips"

    rejected = await instance.admin.send(method, ips, {"ip_list": ["192.0.2.1"]})
    assert (rejected.status_code, rejected.json()["errors"]["ip_list"]) == (422, ["unknown field; did you mean 'ips'?"])
    assert (await instance.admin.send(method, ips, {"ips": ["192.0.2.1"], "text": "192.0.2.1"})).status_code == 422
    assert (await instance.admin.get(ips)).json()["ips"] == ["192.0.2.1", "198.51.100.0/24"], "refused requests change nothing"

    changed = await instance.admin.send(method, ips, {"ips": ["192.0.2.1"]})
    expected = {"PUT": ["192.0.2.1"], "POST": ["192.0.2.1", "198.51.100.0/24"], "DELETE": ["198.51.100.0/24"]}[method]
    assert changed.json()["ip_list"] == (await instance.admin.get(ips)).json()["ips"] == expected


async def test_a_workspace_shows_its_id(instance: Instance) -> None:
    """Everything has `id`; a workspace also has `workspace_id`, which everything in it has."""
    (listed,) = (await instance.admin.get("/api/v1/workspaces")).json()["data"]
    fetched = (await instance.admin.get(f"/api/v1/workspaces/{listed['id']}")).json()

    assert fetched["id"] == fetched["workspace_id"] == listed["id"] == instance.workspace_id


@pytest.mark.parametrize("verb", ["resume", "suspend", "extend", "patch"])
async def test_a_revoked_key_stays_revoked(instance: Instance, verb: str) -> None:
    """Resume and extend of a revoked key returned 200 as if they had worked: it stays revoked."""
    key = await _create_key(instance.admin, AGENT, preset="reader")
    key_url = f"{AGENT}/{key['id']}"
    await instance.admin.post(f"{key_url}/revoke")

    if verb == "patch":
        response = await instance.admin.send("PATCH", key_url, {"expires_at": None})
    else:
        response = await instance.admin.post(f"{key_url}/{verb}", {"expires_at": None} if verb == "extend" else None)

    assert (response.status_code, response.json()["error"]) == (409, "conflict")
    assert "was revoked on" in response.json()["message"]
    assert (await instance.admin.send("PATCH", key_url, {"name": "old"})).status_code == 200, "a new name does not resume the key"


@pytest.mark.parametrize("base", [API, AGENT])
async def test_keys_are_listed_by_status(instance: Instance, base: str) -> None:
    """Keys could not be listed by status over HTTP, and API keys had no status."""
    key_by_status = {
        name: await _create_key(instance.admin, base, preset="reader", agent_id=None) for name in ("active", "suspended", "soon")
    }
    await instance.admin.post(f"{base}/{key_by_status['suspended']['id']}/suspend")

    async def list_ids(status: str) -> set[object]:
        response = await instance.admin.get(f"{base}?status={status}&per_page=100")
        assert response.status_code == 200, response.text
        assert response.json()["meta"]["total"] == len(response.json()["data"])
        assert {key["status"] for key in response.json()["data"]} <= {status.capitalize()}
        return {key["id"] for key in response.json()["data"]}

    assert (key_by_status["active"]["status"], key_by_status["suspended"]["id"] in await list_ids("Revoked")) == ("Active", True)
    assert {key_by_status["active"]["id"], key_by_status["soon"]["id"]} <= await list_ids("active")
    assert key_by_status["suspended"]["id"] not in await list_ids("active")
    assert await list_ids("expired") == set()
    assert (await instance.admin.get(f"{base}?status=gone")).json()["errors"]["status"]


@pytest.mark.parametrize("query", ["has=zzz", "any=brain:reed,mcp:read", "all=plans.raed"])
async def test_a_check_of_an_unknown_permission_is_rejected(instance: Instance, query: str) -> None:
    """A misspelled permission returned false: 422 with the nearest name."""
    key = await _create_key(instance.admin, AGENT, preset="reader")

    response = await instance.admin.get(f"{AGENT}/{key['id']}/permissions?{query}")

    name, _, permissions = query.partition("=")
    [text] = response.json()["errors"][name]
    assert (response.status_code, "unknown scope" in text) == (422, True)
    assert ("the nearest is" in text) == (permissions != "zzz")


@pytest.mark.parametrize(("base", "kind"), [(API, ApiKeyResponse), (AGENT, AgentKeyResponse)])
async def test_null_clears_optional_fields_and_is_rejected_for_others(instance: Instance, base: str, kind: type[ResponseModel]) -> None:
    """The meaning of null in PATCH differed by field and domain; docs/reference/errors.md has the one rule."""
    fields_of_the_kind = {"tools": ["web/*"]} if base == API else {"ip_list": ["127.0.0.1"]}
    key = await _create_key(instance.admin, base, preset="reader", servers=["git"], orgs=["acme"], projects=["web"], **fields_of_the_kind)
    key_url = f"{base}/{key['id']}"
    optional = {"expires_at", "servers", "tools", "orgs", "projects"} | ({"agent_id"} if base == API else set[str]())
    required = {"name", "tool_limits"} | (
        {"scopes", "rate_limit_tier"} if base == API else {"permissions", "rate_limit", "ip_list", "ip_restriction"}
    )

    for field in optional:
        response = await instance.admin.send("PATCH", key_url, {field: None})
        assert (response.status_code, response.json()[field]) == (200, None), field
    for field in required:
        response = await instance.admin.send("PATCH", key_url, {field: None})
        assert (response.status_code, list(response.json()["errors"])) == (422, [field]), field
        assert "not null" in response.json()["errors"][field][0], response.text
    assert optional | required <= set(kind.model_fields) | {"tool_limits"}


async def _origin_status(instance: Instance, key: str) -> int:
    return (await instance.caller(key).get("/v1/brain/tags")).status_code


@pytest.mark.parametrize(("method", "path", "field"), [("PUT", "/ips", "ips"), ("POST", "/ips", "ips"), ("PATCH", "", "ip_list")])
async def test_setting_a_list_of_addresses_enforces_it(instance: Instance, method: str, path: str, field: str) -> None:
    """A new list was not enforced. The response shows that it is; only ip_restriction false stores it without."""
    key = await _create_key(instance.admin, AGENT, preset="reader")
    key_url = f"{AGENT}/{key['id']}{path}"

    stored = await instance.admin.send(method, key_url, {field: ["10.0.0.0/8"], "ip_restriction": False})
    assert (stored.json()["ip_list"], stored.json()["ip_restriction"]) == (["10.0.0.0/8"], False)
    assert await _origin_status(instance, str(key["key"])) == 200
    with_empty_list = await instance.admin.send("PUT", f"{AGENT}/{key['id']}/ips", {"ips": []})
    assert with_empty_list.json()["ip_restriction"] is False, "an empty list is not enforced"

    response = await instance.admin.send(method, key_url, {field: ["10.0.0.0/8"]})
    assert (response.json()["ip_list"], response.json()["ip_restriction"]) == (["10.0.0.0/8"], True)
    assert await _origin_status(instance, str(key["key"])) == 403


async def test_a_list_of_addresses_as_text_is_enforced(instance: Instance) -> None:
    """A key with a new list is restricted to it."""
    key = await _create_key(instance.admin, AGENT, preset="reader")

    response = await instance.admin.send("PUT", f"{AGENT}/{key['id']}/ips", {"text": "# office\n10.0.0.0/8\n"})

    assert response.json()["ip_restriction"] is True
    assert await _origin_status(instance, str(key["key"])) == 403
    assert (await instance.admin.send("DELETE", f"{AGENT}/{key['id']}/ips", {"ips": ["10.0.0.0/8"]})).json()["ip_restriction"] is True


async def test_permissions_are_checked_for_one_any_and_all(instance: Instance) -> None:
    """Has one permission, any of a list, or all of a list. Wildcards and both spellings count."""
    key = await _create_key(instance.admin, AGENT, permissions=["plans.read", "brain:*"])
    url = f"{AGENT}/{key['id']}/permissions?has=plans:read&any=mcp:read,brain:delete&all=plans.read&all=mcp:read"

    assert (await instance.admin.get(url)).json() == {"permissions": ["plans.read", "brain:*"], "has": True, "any": True, "all": False}
    all_permissions = (await instance.admin.get(f"{AGENT}/{key['id']}/permissions")).json()
    assert (all_permissions["has"], all_permissions["any"], all_permissions["all"]) == (None, None, None)


@pytest.mark.parametrize(
    ("creator_fields", "requested_fields", "error"),
    [
        ({"scopes": ["keys:write", "brain:read"]}, {"scopes": ["brain:read"]}, None),
        ({"scopes": ["keys:write"]}, {"scopes": ["brain:read"]}, "scope_missing"),
        ({"scopes": ["keys:*", "*:read"]}, {"scopes": ["*"]}, "scope_missing"),
        ({"scopes": ["*"]}, {"scopes": ["platform:audit"]}, "validation_error"),
        ({"scopes": ["*"], "rate_limit_tier": "free"}, {"scopes": ["*"], "rate_limit_tier": "enterprise"}, "permission_denied"),
        ({"scopes": ["*"], "servers": ["brain"]}, {"scopes": ["*"]}, "permission_denied"),
        ({"scopes": ["*"], "servers": ["brain"]}, {"scopes": ["*"], "servers": ["brain"]}, None),
        ({"scopes": ["*"], "orgs": ["a"]}, {"scopes": ["*"], "orgs": ["a", "b"]}, "permission_denied"),
        ({"scopes": ["*"], "tools": ["web/*"]}, {"scopes": ["*"], "tools": ["web/get_*"]}, None),
        ({"scopes": ["*"], "tools": ["web/*"]}, {"scopes": ["*"], "tools": ["we*"]}, "permission_denied"),
        ({"scopes": ["*"], "tool_limits": {"web/*": 5}}, {"scopes": ["*"], "tool_limits": {"web/*": 6}}, "permission_denied"),
        ({"scopes": ["*"], "environment": "test"}, {"scopes": ["*"], "environment": "live"}, "permission_denied"),
        ({"scopes": ["*"], "environment": "test"}, {"scopes": ["*"]}, None),
        ({"scopes": ["*"]}, {"scopes": ["*"], "environment": "test"}, None),
    ],
)  # fmt: skip
async def test_no_key_creates_one_with_more_than_its_own(
    instance: Instance, creator_fields: dict[str, object], requested_fields: dict[str, object], error: str | None
) -> None:
    """Every scope, allow-list entry, tier and environment of a new key must be the creator's own."""
    maker = instance.caller(str((await _create_key(instance.admin, API, **creator_fields))["plaintext_key"]))

    response = await maker.post(API, {"name": "child", **requested_fields})

    assert response.json().get("error") == error, response.text


async def test_no_key_changes_rotates_or_resumes_one_with_more_than_its_own(instance: Instance) -> None:
    """The key before and after is compared. Deleting and revoking need only keys:delete."""
    unrestricted, restricted = (
        await _create_key(instance.admin, API, scopes=["*"]),
        await _create_key(instance.admin, API, scopes=["keys:*", "brain:read"]),
    )
    agent = await _create_key(instance.admin, AGENT, permissions=["plans.write"])
    caller = instance.caller(str(restricted["plaintext_key"]))

    for method, path, body in [
        ("PATCH", f"{API}/{unrestricted['id']}", {"name": "mine"}),
        ("PATCH", f"{API}/{restricted['id']}", {"scopes": ["*"]}),
        ("POST", f"{API}/{unrestricted['id']}/rotate", {}),
        ("POST", f"{API}/{unrestricted['id']}/suspend", None),
        ("POST", f"{AGENT}/{agent['id']}/extend", {"expires_at": None}),
        ("PUT", f"{AGENT}/{agent['id']}/permissions", {"permissions": ["brain:read"]}),
        ("POST", f"{AGENT}/{agent['id']}/ips", {"ips": ["127.0.0.1"]}),
    ]:
        response = await caller.send(method, path, body)
        assert (response.status_code, response.json()["error"]) == (403, "scope_missing"), (method, path)
        assert response.json()["required_scope"] in {"*", "plans.write"}
    assert (await caller.post(f"{AGENT}/{agent['id']}/revoke")).status_code == 200
    assert (await caller.send("DELETE", f"{API}/{unrestricted['id']}")).status_code == 204


async def test_a_rejected_change_changes_nothing(instance: Instance) -> None:
    """It is not applied in part, and has no audit entry."""
    key = await _create_key(instance.admin, API, scopes=["brain:read"])
    key_url = f"{API}/{key['id']}"
    entry_count = (await instance.admin.get(f"/api/v1/audit?subject_id={key['id']}")).json()["meta"]["total"]

    rejected_changes: list[dict[str, object]] = [
        {"name": "x", "expires_at": "2001-01-01T00:00:00Z"},
        {"name": "x", "scopes": []},
        {"name": "", "scopes": ["*"]},
        {"environment": "test"},
    ]
    for body in rejected_changes:
        assert (await instance.admin.send("PATCH", key_url, body)).status_code == 422
    assert (await instance.admin.send("PATCH", key_url, {})).json()["name"] == "made"
    assert (await instance.admin.get(f"/api/v1/audit?subject_id={key['id']}")).json()["meta"]["total"] == entry_count == 1


async def test_addresses_are_shown_only_with_the_audit_scope(instance: Instance) -> None:
    """last_used_ip and address lists are omitted without audit:read; the other fields are shown."""
    key = await _create_key(instance.admin, AGENT, preset="reader", ip_list=["127.0.0.1"])
    await instance.caller(str(key["key"])).get("/v1/brain/tags")
    reader, auditor = await instance.api_key("keys:read"), await instance.api_key("keys:read", "audit:read")
    key_url = f"{AGENT}/{key['id']}"

    with_audit, without_audit = [(await caller.get(key_url)).json() for caller in (auditor, reader)]
    assert (with_audit["last_used_ip"], with_audit["ip_list"]) == ("127.0.0.1", ["127.0.0.1"])
    assert set(with_audit) - set(without_audit) == {"last_used_ip", "ip_list"}
    assert "127.0.0.1" not in (await reader.get(AGENT)).text.replace("http://127.0.0.1", "")
    assert (await reader.get(f"{key_url}/ips")).json()["required_scope"] == "audit:read"
    assert [set(row) & {"address"} for row in (await reader.get(f"{key_url}/usage")).json()["data"]] == [set()]
    assert (await auditor.get(f"{key_url}/usage")).json()["data"][0]["address"] == "127.0.0.1"
    assert "127.0.0.1" not in (await reader.get(f"{key_url}/usage?format=csv")).text


async def test_usage_is_listed_by_call_by_day_and_as_csv(instance: Instance) -> None:
    """A row per call; all keys in one request, by day, status and route; CSV of both."""
    created = await _create_key(instance.admin, API, scopes=["brain:read"])
    key = instance.caller(str(created["plaintext_key"]))
    for path in ("/v1/brain/tags", "/v1/brain/scopes", "/v1/brain/memories/00000000-0000-7000-8000-000000000000"):
        await key.get(path)
    key_url = f"{API}/{created['id']}"

    calls = (await instance.admin.get(f"{key_url}/usage")).json()
    assert [row["status"] for row in calls["data"]] == [404, 200, 200]
    assert calls["data"][2] == {
        "at": IsStr(), "method": "GET", "route": "/v1/brain/tags", "status": 200, "duration_ms": calls["data"][2]["duration_ms"],
        "is_upstream_error": False, "address": "127.0.0.1", "request_id": IsStr(regex="req_.*"),
    }  # fmt: skip
    assert (await instance.admin.get(f"{key_url}/usage?status=404&per_page=1")).json()["meta"]["total"] == 1
    sums = (await instance.admin.get(f"{API}/usage?by=key,status")).json()
    key_rows = [row for row in sums["data"] if row["key_id"] == created["id"]]
    assert [(row["status"], row["calls"], row["errors"]) for row in key_rows] == [(200, 2, 0), (404, 1, 1)]
    assert sums["errors"] == 1

    await instance.admin.send("DELETE", key_url)
    sums_after_deletion = (await instance.admin.get(f"{API}/usage?by=key")).json()["data"]
    assert {row["key_id"]: (row["key_name"], row["calls"]) for row in sums_after_deletion}[created["id"]] == ("made", 3)
    csv_response = await instance.admin.get(f"{API}/usage?by=route&format=csv")
    assert csv_response.headers["content-type"].startswith("text/csv")
    rows = list(csv.DictReader(io.StringIO(csv_response.text)))
    assert {row["route"]: row["calls"] for row in rows}["/v1/brain/tags"] == "1"
    assert (await instance.admin.get(f"{API}/usage?since=2001-01-01&until=2001-01-02")).json()["data"] == []


async def test_csv_has_all_calls_and_no_formula(instance: Instance) -> None:
    """CSV is not limited to a page, and a cell that a spreadsheet would compute is escaped (OWASP, CSV injection)."""
    created = await _create_key(instance.admin, API, scopes=["brain:read"])
    key = instance.caller(str(created["plaintext_key"]))
    for _ in range(20):
        await key.get("/v1/brain/tags", **{"X-Request-ID": "-1-2"})

    csv_response = await instance.admin.get(f"{API}/{created['id']}/usage?format=csv")

    rows = list(csv.DictReader(io.StringIO(csv_response.text)))
    assert len(rows) == 20
    assert {row["request_id"] for row in rows} == {"'-1-2"}
    assert "attachment" in csv_response.headers["content-disposition"]


async def test_a_test_key_sees_and_creates_only_test_keys(instance: Instance) -> None:
    """A test key sees no live key, no usage and no audit entry of one."""
    live_key = await _create_key(instance.admin, API, scopes=["brain:read"])
    agent = await _create_key(instance.admin, AGENT, preset="reader")
    tester = instance.caller(str((await _create_key(instance.admin, API, scopes=["*"], environment="test"))["plaintext_key"]))
    test_key = await _create_key(tester, API, scopes=["brain:read"])

    assert test_key["environment"] == "test"
    assert {key["environment"] for key in (await tester.get(f"{API}?environment=live")).json()["data"]} == {"test"}
    assert (await tester.get(AGENT)).json()["data"] == []
    for path in (
        f"{API}/{live_key['id']}",
        f"{API}/{live_key['id']}/usage",
        f"{AGENT}/{agent['id']}",
        f"{AGENT}/{agent['id']}/permissions",
    ):
        assert (await tester.get(path)).status_code == 404, path
    for method, path, body in [
        ("PATCH", f"{API}/{live_key['id']}", {"name": "x"}),
        ("DELETE", f"{API}/{live_key['id']}", None),
        ("POST", f"{API}/{live_key['id']}/rotate", {}),
        ("POST", f"{AGENT}/{agent['id']}/revoke", None),
    ]:
        assert (await tester.send(method, path, body)).status_code == 404, path
    assert (await tester.post(AGENT, {"name": "x", "preset": "reader"})).json() == IsPartialDict(
        error="permission_denied", field="environment"
    )
    assert {row["subject"]["environment"] for row in (await tester.get("/api/v1/audit")).json()["data"]} == {"test"}
    assert str(live_key["id"]) not in (await tester.get(f"{API}/usage")).text
    assert str(test_key["id"]) in (await instance.admin.get(f"{API}?per_page=100")).text


async def test_the_audit_log_has_actor_change_and_time(instance: Instance) -> None:
    """Actor, time, before and after; newest first, filtered, and only for the workspace of the key."""
    key = await _create_key(instance.admin, API, scopes=["brain:read"])
    await instance.admin.send("PATCH", f"{API}/{key['id']}", {"name": "renamed"}, **{"X-Request-ID": "change-1"})
    entries = (await instance.admin.get(f"/api/v1/audit?subject_id={key['id']}")).json()["data"]

    whoami = (await instance.admin.get("/api/v1/whoami")).json()
    assert [entry["action"] for entry in entries] == ["api_key.changed", "api_key.created"]
    assert entries[0] == IsPartialDict(
        actor={"kind": "api", "id": whoami["id"], "name": "first key", "address": "127.0.0.1", "request_id": "change-1"},
        subject={"kind": "api_key", "id": key["id"], "name": "renamed", "environment": "live"},
        before={"name": "made"},
        after={"name": "renamed"},
        previous=entries[1]["hash"],
    )
    assert str(key["plaintext_key"]) not in str(entries)
    other_workspace_key = await instance.api_key("audit:read", workspace_id=await instance.workspace("other"))
    assert str(key["id"]) not in (await other_workspace_key.get("/api/v1/audit")).text
    assert (await other_workspace_key.get(f"/api/v1/audit?workspace_id={instance.workspace_id}")).json()[
        "required_scope"
    ] == "platform:audit"
    assert (await instance.admin.get("/api/v1/audit?workspace_id=0")).json()["data"][0]["action"] == "workspace.created"


async def test_a_key_sees_its_workspace_and_a_platform_key_sees_all(instance: Instance) -> None:
    """/workspaces lists the workspace of the key. platform:workspaces creates, renames and deletes workspaces."""
    without_platform_scope = await instance.api_key()
    workspace = (await instance.admin.post("/api/v1/workspaces", {"name": "acme"})).json()
    workspace_url = f"/api/v1/workspaces/{workspace['workspace_id']}"

    assert [listed["name"] for listed in (await without_platform_scope.get("/api/v1/workspaces")).json()["data"]] == ["default"]
    assert (await without_platform_scope.get(workspace_url)).status_code == 404
    assert (await without_platform_scope.get(f"/api/v1/workspaces/{instance.workspace_id}")).json()["name"] == "default"
    for method, path in (("POST", "/api/v1/workspaces"), ("PATCH", workspace_url), ("DELETE", workspace_url)):
        response = await without_platform_scope.send(method, path, None if method == "DELETE" else {"name": "x"})
        assert response.json()["required_scope"] == "platform:workspaces"

    first_key = await _create_key(instance.admin, f"{workspace_url}/api-keys", scopes=["*"])
    assert (await instance.caller(str(first_key["plaintext_key"])).get("/api/v1/whoami")).json()["workspace_name"] == "acme"
    assert (await instance.admin.send("PATCH", workspace_url, {"name": "default"})).json()["error"] == "name_taken"
    assert (await instance.admin.send("PATCH", workspace_url, {"name": "Acme Inc."})).json()["name"] == "Acme Inc."
    assert (await instance.admin.send("DELETE", f"{workspace_url}?dry_run=true")).json() == IsPartialDict(keys=1, deleted=False)
    assert (await instance.admin.send("DELETE", workspace_url)).json() == IsPartialDict(name="Acme Inc.", keys=1, deleted=True)
    assert (await instance.caller(str(first_key["plaintext_key"])).get("/api/v1/whoami")).status_code == 401
    assert (await instance.admin.get(workspace_url)).status_code == 404
    for workspace_id in ("x", "-1", "٣", "9" * 30, "1.0"):
        assert (await instance.admin.get(f"/api/v1/workspaces/{workspace_id}")).status_code == 404, workspace_id


@pytest.mark.parametrize("kind", ["api", "agent"])
async def test_a_response_has_the_documented_fields(instance: Instance, kind: str) -> None:
    """A response has exactly the fields of the route's model, at creation and later."""
    base, fields, model, creation_model = (
        (API, {"scopes": ["brain:read"]}, ApiKeyResponse, NewApiKeyResponse)
        if kind == "api"
        else (AGENT, {"permissions": ["brain:read"]}, AgentKeyResponse, NewAgentKeyResponse)
    )
    key = await _create_key(instance.admin, base, **fields)

    assert set(key) == set(creation_model.model_fields)
    assert set((await instance.admin.get(f"{base}/{key['id']}")).json()) == set(model.model_fields)
    sums = (await instance.admin.get(f"{base}/usage?by=key,day,method,route,status&since=2000-01-01")).json()
    assert set(sums) == set(UsageResponse.model_fields)
    assert {name for row in sums["data"] for name in row} <= set(UsageSumResponse.model_fields)
    own_key = set((await instance.admin.get("/api/v1/whoami")).json())
    assert own_key == {"kind", "workspace_name", *ApiKeyResponse.model_fields}
    assert own_key <= set(WhoResponse.model_fields)


async def test_a_key_of_an_agent_may_create_a_key_for_the_same_agent(instance: Instance) -> None:
    """An API key with an agent creates a key for that agent only, also once the agent has memories."""
    await instance.admin.remember("Its own.", agent_id="rook", memory_scope="agent")
    await instance.admin.remember("Another's.", agent_id="crow", memory_scope="agent")
    caller = await instance.api_key("keys:write", "brain:read", agent_id="rook")

    same_agent = await caller.post(AGENT, {"name": "rook", "agent_id": "rook", "permissions": ["brain:read"]})
    other_agent = await caller.post(AGENT, {"name": "crow", "agent_id": "crow", "permissions": ["brain:read"]})

    assert same_agent.status_code == 201
    assert (other_agent.status_code, other_agent.json()["field"]) == (403, "agent_id")


async def test_whoami_returns_the_fields_of_the_calling_key(instance: Instance) -> None:
    """A key's own fields, by its own key; the request spends nothing."""
    caller = await instance.agent_key("brain:read", rate_limit=1)

    whoami = [(await caller.get("/api/v1/whoami")).json() for _ in range(3)][2]
    assert whoami == IsPartialDict(kind="agent", id=caller.key_id, permissions=["brain:read"], workspace_name="default", status="Active")
    assert "last_used_ip" not in whoami


async def test_a_repeated_creation_creates_one_key(instance: Instance) -> None:
    """With an Idempotency-Key the secret is shown once, and the second response names the created key."""
    header = {"Idempotency-Key": "once"}
    first = await instance.admin.post(API, {"name": "made", "scopes": ["brain:read"]}, **header)
    repeated = await instance.admin.post(API, {"name": "made", "scopes": ["brain:read"]}, **header)

    assert first.status_code == 201
    assert (repeated.status_code, repeated.json()["error"], repeated.json()["id"]) == (409, "secret_already_shown", first.json()["id"])
    assert (await instance.admin.get(API)).json()["meta"]["total"] == 2
