"""Keys and workspaces over HTTP, as a platform team uses them (D-24, D-29)."""

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


async def _made(caller: Caller, path: str, **fields: object) -> dict[str, object]:
    answer = await caller.post(path, {"name": "made", **fields})
    assert answer.status_code == 201, answer.text
    return cast("dict[str, object]", answer.json())


async def test_an_api_key_lives_its_life_over_http(instance: Instance) -> None:
    """D-29, spec 2.3: made, used, listed, changed, deleted; each change acts on the next request."""
    made = await _made(instance.admin, API, scopes=["brain:read"], rate_limit_tier="free", tool_limits={"web/*": 3})
    key = instance.caller(str(made.pop("plaintext_key")))
    one = f"{API}/{made['id']}"

    assert (await key.get("/v1/brain/tags")).headers["x-ratelimit-limit"] == "1000"
    shown = (await instance.admin.get(one)).json()
    assert shown == made | {"call_count": 1, "last_used_at": IsStr(), "last_used_ip": "127.0.0.1"}
    assert (await instance.admin.get(API)).json()["data"] == IsList(shown, length=...)

    changed = await instance.admin.send("PATCH", one, {"scopes": ["mcp:read"], "rate_limit_tier": "business", "servers": ["brain"]})
    assert changed.json() == IsPartialDict(
        {"scopes": ["mcp:read"], "rate_limit_tier": "business", "servers": ["brain"], "tool_limits": {"web/*": 3}}
    )
    assert (await key.get("/v1/brain/tags")).json()["error"] == "scope_missing"
    assert (await key.get("/api/v1/mcp/servers")).headers["x-ratelimit-limit"] == "50000"

    assert (await instance.admin.send("DELETE", one)).status_code == 204
    assert (await key.get("/api/v1/whoami")).json()["error"] == "unauthorised"
    assert (await instance.admin.get(one)).json()["error"] == "resource_not_found"


async def test_an_agent_key_lives_its_life_over_http(instance: Instance) -> None:
    """D-29, spec 3.2, 5.3: made of a preset, restricted, extended, its permissions replaced, revoked."""
    made = await _made(instance.admin, AGENT, preset="reader", rate_limit=7)
    key = instance.caller(str(made.pop("key")))
    one = f"{AGENT}/{made['id']}"
    assert (made["status"], made["agent_id"], made["ip_restriction"]) == ("Active", "made", False)

    assert (await key.get("/v1/brain/tags")).headers["x-ratelimit-limit"] == "7"
    replaced = await instance.admin.send("PUT", f"{one}/permissions", {"permissions": ["plans:read"]})
    assert replaced.json()["permissions"] == ["plans.read"]
    assert (await key.get("/v1/brain/tags")).json() == IsPartialDict(error="permission_denied", required_permission="brain:read")

    soon = instance.rookery.clock() + timedelta(days=1)
    assert (await instance.admin.post(f"{one}/extend", {"expires_at": format_iso(soon)})).json()["expires_at"] == format_iso(soon)
    assert (await instance.admin.post(f"{one}/extend", {"expires_at": None})).json()["expires_at"] is None
    renamed = (await instance.admin.send("PATCH", one, {"name": "Renamed", "rate_limit": 8})).json()
    assert (renamed["name"], renamed["agent_id"], renamed["rate_limit"]) == ("Renamed", "made", 8)

    for _ in range(2):
        assert (await instance.admin.post(f"{one}/revoke")).json()["status"] == "Revoked"
    assert (await key.get("/api/v1/whoami")).json()["error"] == "key_revoked"
    again = await instance.admin.post(f"{one}/extend", {"expires_at": None})
    assert again.status_code == 409
    assert (await instance.admin.get(one)).json()["status"] == "Revoked"


@pytest.mark.parametrize(("base", "secret"), [(API, "plaintext_key"), (AGENT, "key")])
async def test_either_kind_is_rotated_with_grace(instance: Instance, base: str, secret: str) -> None:
    """Spec 3.3, D-26: both keys work in the grace period, the new one has every setting, and no second rotation of the old one."""
    made = await _made(instance.admin, base, **({"scopes": ["brain:read"]} if base == API else {"permissions": ["brain:read"]}))
    rotated = await instance.admin.post(f"{base}/{made['id']}/rotate", {"grace_period_hours": 2})
    assert rotated.status_code == 201
    successor = rotated.json()
    old = (await instance.admin.get(f"{base}/{made['id']}")).json()

    fresh = {"id", "hint", "created_at", secret, "call_count", "last_used_at", "last_used_ip"}
    assert {name: value for name, value in successor.items() if name not in fresh} == {
        name: value for name, value in made.items() if name not in fresh
    }
    assert old["delete_after"] is not None
    for key in (made[secret], successor[secret]):
        assert (await instance.caller(str(key)).get("/v1/brain/tags")).status_code == 200
    assert (await instance.admin.post(f"{base}/{made['id']}/rotate", {})).json()["error"] == "key_in_grace"
    assert (await instance.admin.post(f"{base}/{made['id']}/rotate", {"grace_period_hours": 721})).status_code == 422


@pytest.mark.parametrize("base", [API, AGENT])
async def test_either_kind_is_suspended_and_resumed(instance: Instance, base: str) -> None:
    """D-21: 401 key_revoked while suspended, and as before after it."""
    made = await _made(instance.admin, base, preset="reader")
    key = instance.caller(str(made.get("plaintext_key") or made["key"]))

    assert (await instance.admin.post(f"{base}/{made['id']}/suspend")).json()["suspended_at"] is not None
    assert (await key.get("/v1/brain/tags")).json()["error"] == "key_revoked"
    assert (await instance.admin.post(f"{base}/{made['id']}/resume")).json()["suspended_at"] is None
    assert (await key.get("/v1/brain/tags")).status_code == 200


async def test_addresses_are_listed_added_removed_and_pasted(instance: Instance) -> None:
    """Spec 5.3, D-28, D-29: one form for each address; a pasted list with a bad line stores nothing and names it."""
    made = await _made(instance.admin, AGENT, preset="reader", ip_list=["10.1.2.3/8"])
    ips = f"{AGENT}/{made['id']}/ips"
    assert (made["ip_restriction"], made["ip_list"]) == (True, ["10.0.0.0/8"])

    await instance.admin.post(ips, {"ips": ["::ffff:192.0.2.1"]})
    await instance.admin.send("DELETE", ips, {"ips": ["10.0.0.0/8", "203.0.113.9"]})
    assert (await instance.admin.get(ips)).json() == {"ip_restriction": True, "ips": ["192.0.2.1"], "ip_list": ["192.0.2.1"]}
    bad = await instance.admin.send("PUT", ips, {"text": "# ours\n127.0.0.1\n\nnonsense\n1.2.3\n"})
    assert (bad.status_code, bad.json()["errors"]) == (422, {"ips": ["nonsense: Invalid IP address", "1.2.3: Invalid IP address"]})
    assert (await instance.admin.get(ips)).json()["ips"] == ["192.0.2.1"]
    good = await instance.admin.send("PUT", ips, {"text": "# ours\n127.0.0.1\n", "ip_restriction": False})
    assert (good.json()["ip_list"], good.json()["ip_restriction"]) == (["127.0.0.1"], False)
    assert (await instance.admin.send("PUT", ips, {})).status_code == 422


@pytest.mark.parametrize("method", ["PUT", "POST", "DELETE"])
async def test_addresses_are_taken_by_the_name_that_keys_have(instance: Instance, method: str) -> None:
    """Issue 14: a key shows `ip_list`, and the routes of its addresses took `ips` alone; both work, two values are refused. D-08."""
    made = await _made(instance.admin, AGENT, preset="reader", ip_list=["192.0.2.1", "198.51.100.0/24"])
    ips = f"{AGENT}/{made['id']}/ips"

    two = await instance.admin.send(method, ips, {"ips": ["192.0.2.1"], "ip_list": ["192.0.2.2"]})
    assert two.status_code == 422
    assert "ip_list is an alias of ips" in two.text
    assert (await instance.admin.send(method, ips, {"ip_list": ["192.0.2.1"], "text": "192.0.2.1"})).status_code == 422
    assert (await instance.admin.get(ips)).json()["ip_list"] == ["192.0.2.1", "198.51.100.0/24"], "refused requests change nothing"

    by_ours = await instance.admin.send(method, ips, {"ip_list": ["192.0.2.1"]})
    by_both = await instance.admin.send(method, ips, {"ips": ["192.0.2.1"], "ip_list": ["192.0.2.1"]})
    assert [answer.status_code for answer in (by_ours, by_both)] == [200, 200]
    shown = (await instance.admin.get(ips)).json()
    assert shown["ips"] == shown["ip_list"] == by_ours.json()["ip_list"]
    assert shown["ips"] == {"PUT": ["192.0.2.1"], "POST": ["192.0.2.1", "198.51.100.0/24"], "DELETE": ["198.51.100.0/24"]}[method]


async def test_a_workspace_shows_its_id(instance: Instance) -> None:
    """Issue 14: everything has `id`, a workspace had `workspace_id` alone. D-08."""
    (listed,) = (await instance.admin.get("/api/v1/workspaces")).json()["data"]
    shown = (await instance.admin.get(f"/api/v1/workspaces/{listed['id']}")).json()

    assert shown["id"] == shown["workspace_id"] == listed["id"] == instance.workspace_id


@pytest.mark.parametrize("verb", ["resume", "suspend", "extend", "patch"])
async def test_a_revoked_key_cannot_be_brought_back(instance: Instance, verb: str) -> None:
    """Issue 14: resume and extend of a revoked key answered 200 as if they had worked; D-21: it stays revoked."""
    made = await _made(instance.admin, AGENT, preset="reader")
    one = f"{AGENT}/{made['id']}"
    await instance.admin.post(f"{one}/revoke")

    if verb == "patch":
        refused = await instance.admin.send("PATCH", one, {"expires_at": None})
    else:
        refused = await instance.admin.post(f"{one}/{verb}", {"expires_at": None} if verb == "extend" else None)

    assert (refused.status_code, refused.json()["error"]) == (409, "conflict")
    assert "was revoked on" in refused.json()["message"]
    assert (await instance.admin.send("PATCH", one, {"name": "old"})).status_code == 200, "a name is no way back"


@pytest.mark.parametrize("base", [API, AGENT])
async def test_keys_are_listed_by_status(instance: Instance, base: str) -> None:
    """Issue 14: over HTTP keys could not be listed by state, and API keys had no status; D-29."""
    made = {name: await _made(instance.admin, base, preset="reader", agent_id=None) for name in ("active", "suspended", "soon")}
    await instance.admin.post(f"{base}/{made['suspended']['id']}/suspend")

    async def listed(status: str) -> set[object]:
        answer = await instance.admin.get(f"{base}?status={status}&per_page=100")
        assert answer.status_code == 200, answer.text
        assert answer.json()["meta"]["total"] == len(answer.json()["data"])
        assert {each["status"] for each in answer.json()["data"]} <= {status.capitalize()}
        return {each["id"] for each in answer.json()["data"]}

    assert (made["active"]["status"], made["suspended"]["id"] in await listed("Revoked")) == ("Active", True)
    assert {made["active"]["id"], made["soon"]["id"]} <= await listed("active")
    assert made["suspended"]["id"] not in await listed("active")
    assert await listed("expired") == set()
    assert (await instance.admin.get(f"{base}?status=gone")).json()["errors"]["status"]


@pytest.mark.parametrize("query", ["has=zzz", "any=brain:reed,mcp:read", "all=plans.raed"])
async def test_a_question_for_a_permission_that_does_not_exist_is_refused(instance: Instance, query: str) -> None:
    """Issue 14: a misspelt permission was answered with false; spec 5.3, D-10: 422 with the nearest."""
    made = await _made(instance.admin, AGENT, preset="reader")

    refused = await instance.admin.get(f"{AGENT}/{made['id']}/permissions?{query}")

    name, _, asked = query.partition("=")
    [text] = refused.json()["errors"][name]
    assert (refused.status_code, "unknown scope" in text) == (422, True)
    assert ("the nearest is" in text) == (asked != "zzz")


@pytest.mark.parametrize(("base", "kind"), [(API, ApiKeyResponse), (AGENT, AgentKeyResponse)])
async def test_null_clears_what_may_be_missing_and_is_refused_elsewhere(instance: Instance, base: str, kind: type[ResponseModel]) -> None:
    """Issue 14: what null means in PATCH differed by field and domain; docs/reference/errors.md has the one rule."""
    extra = {"tools": ["web/*"]} if base == API else {"ip_list": ["127.0.0.1"]}
    one = f"{base}/{(await _made(instance.admin, base, preset='reader', servers=['git'], orgs=['acme'], projects=['web'], **extra))['id']}"
    clears = {"expires_at", "servers", "tools", "orgs", "projects"} | ({"agent_id"} if base == API else set[str]())
    refuses = {"name", "tool_limits"} | (
        {"scopes", "rate_limit_tier"} if base == API else {"permissions", "rate_limit", "ip_list", "ip_restriction"}
    )

    for field in clears:
        answer = await instance.admin.send("PATCH", one, {field: None})
        assert (answer.status_code, answer.json()[field]) == (200, None), field
    for field in refuses:
        answer = await instance.admin.send("PATCH", one, {field: None})
        assert (answer.status_code, list(answer.json()["errors"])) == (422, [field]), field
        assert "not null" in answer.json()["errors"][field][0], answer.text
    assert clears | refuses <= set(kind.model_fields) | {"tool_limits"}


async def _origin_status(instance: Instance, key: str) -> int:
    return (await instance.caller(key).get("/v1/brain/tags")).status_code


@pytest.mark.parametrize(("method", "path", "field"), [("PUT", "/ips", "ips"), ("POST", "/ips", "ips"), ("PATCH", "", "ip_list")])
async def test_a_list_of_addresses_that_is_given_is_enforced(instance: Instance, method: str, path: str, field: str) -> None:
    """Issue 14: a pasted list did not enforce; D-28. The answer says so, and only ip_restriction false stores it without."""
    made = await _made(instance.admin, AGENT, preset="reader")
    one = f"{AGENT}/{made['id']}{path}"

    stored = await instance.admin.send(method, one, {field: ["10.0.0.0/8"], "ip_restriction": False})
    assert (stored.json()["ip_list"], stored.json()["ip_restriction"]) == (["10.0.0.0/8"], False)
    assert await _origin_status(instance, str(made["key"])) == 200
    emptied = await instance.admin.send("PUT", f"{AGENT}/{made['id']}/ips", {"ips": []})
    assert emptied.json()["ip_restriction"] is False, "an empty list switches nothing on"

    enforced = await instance.admin.send(method, one, {field: ["10.0.0.0/8"]})
    assert (enforced.json()["ip_list"], enforced.json()["ip_restriction"]) == (["10.0.0.0/8"], True)
    assert await _origin_status(instance, str(made["key"])) == 403


async def test_a_pasted_list_of_addresses_is_enforced(instance: Instance) -> None:
    """Issue 14: an operator who sets a list expects the key to be restricted; D-28."""
    made = await _made(instance.admin, AGENT, preset="reader")

    answer = await instance.admin.send("PUT", f"{AGENT}/{made['id']}/ips", {"text": "# office\n10.0.0.0/8\n"})

    assert answer.json()["ip_restriction"] is True
    assert await _origin_status(instance, str(made["key"])) == 403
    assert (await instance.admin.send("DELETE", f"{AGENT}/{made['id']}/ips", {"ips": ["10.0.0.0/8"]})).json()["ip_restriction"] is True


async def test_permissions_are_asked_for_one_any_and_all(instance: Instance) -> None:
    """Spec 5.3: has one permission, has any of a list, has all of a list; wildcards and both spellings count."""
    made = await _made(instance.admin, AGENT, permissions=["plans.read", "brain:*"])
    asked = f"{AGENT}/{made['id']}/permissions?has=plans:read&any=mcp:read,brain:delete&all=plans.read&all=mcp:read"

    assert (await instance.admin.get(asked)).json() == {"permissions": ["plans.read", "brain:*"], "has": True, "any": True, "all": False}
    bare = (await instance.admin.get(f"{AGENT}/{made['id']}/permissions")).json()
    assert (bare["has"], bare["any"], bare["all"]) == (None, None, None)


@pytest.mark.parametrize(
    ("held", "wanted", "error"),
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
async def test_no_key_makes_one_with_more_than_its_own(
    instance: Instance, held: dict[str, object], wanted: dict[str, object], error: str | None
) -> None:
    """D-24: every scope, allow-list entry, tier and environment of a new key must be the maker's own."""
    maker = instance.caller(str((await _made(instance.admin, API, **held))["plaintext_key"]))

    answer = await maker.post(API, {"name": "child", **wanted})

    assert answer.json().get("error") == error, answer.text


async def test_no_key_changes_rotates_or_resumes_one_with_more_than_its_own(instance: Instance) -> None:
    """D-24: before and after; deleting and revoking need keys:delete alone."""
    strong, weak = await _made(instance.admin, API, scopes=["*"]), await _made(instance.admin, API, scopes=["keys:*", "brain:read"])
    agent = await _made(instance.admin, AGENT, permissions=["plans.write"])
    caller = instance.caller(str(weak["plaintext_key"]))

    for method, path, body in [
        ("PATCH", f"{API}/{strong['id']}", {"name": "mine"}),
        ("PATCH", f"{API}/{weak['id']}", {"scopes": ["*"]}),
        ("POST", f"{API}/{strong['id']}/rotate", {}),
        ("POST", f"{API}/{strong['id']}/suspend", None),
        ("POST", f"{AGENT}/{agent['id']}/extend", {"expires_at": None}),
        ("PUT", f"{AGENT}/{agent['id']}/permissions", {"permissions": ["brain:read"]}),
        ("POST", f"{AGENT}/{agent['id']}/ips", {"ips": ["127.0.0.1"]}),
    ]:
        answer = await caller.send(method, path, body)
        assert (answer.status_code, answer.json()["error"]) == (403, "scope_missing"), (method, path)
        assert answer.json()["required_scope"] in {"*", "plans.write"}
    assert (await caller.post(f"{AGENT}/{agent['id']}/revoke")).status_code == 200
    assert (await caller.send("DELETE", f"{API}/{strong['id']}")).status_code == 204


async def test_a_change_that_is_refused_changes_nothing(instance: Instance) -> None:
    """D-24, D-29: no half of it is done, and nothing is noted."""
    made = await _made(instance.admin, API, scopes=["brain:read"])
    one = f"{API}/{made['id']}"
    before = (await instance.admin.get(f"/api/v1/audit?subject_id={made['id']}")).json()["meta"]["total"]

    wrong: list[dict[str, object]] = [
        {"name": "x", "expires_at": "2001-01-01T00:00:00Z"},
        {"name": "x", "scopes": []},
        {"name": "", "scopes": ["*"]},
        {"environment": "test"},
    ]
    for body in wrong:
        assert (await instance.admin.send("PATCH", one, body)).status_code == 422
    assert (await instance.admin.send("PATCH", one, {})).json()["name"] == "made"
    assert (await instance.admin.get(f"/api/v1/audit?subject_id={made['id']}")).json()["meta"]["total"] == before == 1


async def test_addresses_are_for_who_may_read_the_audit_log(instance: Instance) -> None:
    """D-12, spec 4.6: last_used_ip and address lists are left out without audit:read; the rest is shown."""
    made = await _made(instance.admin, AGENT, preset="reader", ip_list=["127.0.0.1"])
    await instance.caller(str(made["key"])).get("/v1/brain/tags")
    reader, auditor = await instance.api_key("keys:read"), await instance.api_key("keys:read", "audit:read")
    one = f"{AGENT}/{made['id']}"

    full, partial = [(await caller.get(one)).json() for caller in (auditor, reader)]
    assert (full["last_used_ip"], full["ip_list"]) == ("127.0.0.1", ["127.0.0.1"])
    assert set(full) - set(partial) == {"last_used_ip", "ip_list"}
    assert "127.0.0.1" not in (await reader.get(AGENT)).text.replace("http://127.0.0.1", "")
    assert (await reader.get(f"{one}/ips")).json()["required_scope"] == "audit:read"
    assert [set(row) & {"address"} for row in (await reader.get(f"{one}/usage")).json()["data"]] == [set()]
    assert (await auditor.get(f"{one}/usage")).json()["data"][0]["address"] == "127.0.0.1"
    assert "127.0.0.1" not in (await reader.get(f"{one}/usage?format=csv")).text


async def test_use_is_told_by_call_by_day_and_as_csv(instance: Instance) -> None:
    """D-29: a row a call; all keys in one request, by day, status and route; CSV of both."""
    made = await _made(instance.admin, API, scopes=["brain:read"])
    key = instance.caller(str(made["plaintext_key"]))
    for path in ("/v1/brain/tags", "/v1/brain/scopes", "/v1/brain/memories/00000000-0000-7000-8000-000000000000"):
        await key.get(path)
    one = f"{API}/{made['id']}"

    calls = (await instance.admin.get(f"{one}/usage")).json()
    assert [row["status"] for row in calls["data"]] == [404, 200, 200]
    assert calls["data"][2] == {
        "at": IsStr(), "method": "GET", "route": "/v1/brain/tags", "status": 200, "duration_ms": calls["data"][2]["duration_ms"],
        "address": "127.0.0.1", "request_id": IsStr(regex="req_.*"),
    }  # fmt: skip
    assert (await instance.admin.get(f"{one}/usage?status=404&per_page=1")).json()["meta"]["total"] == 1
    sums = (await instance.admin.get(f"{API}/usage?by=key,status")).json()
    own = [row for row in sums["data"] if row["key_id"] == made["id"]]
    assert [(row["status"], row["calls"], row["errors"]) for row in own] == [(200, 2, 0), (404, 1, 1)]
    assert sums["errors"] == 1

    await instance.admin.send("DELETE", one)
    after = (await instance.admin.get(f"{API}/usage?by=key")).json()["data"]
    assert {row["key_id"]: (row["key_name"], row["calls"]) for row in after}[made["id"]] == ("made", 3)
    sheet = await instance.admin.get(f"{API}/usage?by=route&format=csv")
    assert sheet.headers["content-type"].startswith("text/csv")
    rows = list(csv.DictReader(io.StringIO(sheet.text)))
    assert {row["route"]: row["calls"] for row in rows}["/v1/brain/tags"] == "1"
    assert (await instance.admin.get(f"{API}/usage?since=2001-01-01&until=2001-01-02")).json()["data"] == []


async def test_a_sheet_has_all_calls_and_no_formula(instance: Instance) -> None:
    """D-29: CSV is not cut to a page, and a cell that a spreadsheet would compute is a text (OWASP, CSV injection)."""
    made = await _made(instance.admin, API, scopes=["brain:read"])
    key = instance.caller(str(made["plaintext_key"]))
    for _ in range(20):
        await key.get("/v1/brain/tags", **{"X-Request-ID": "-1-2"})

    sheet = await instance.admin.get(f"{API}/{made['id']}/usage?format=csv")

    rows = list(csv.DictReader(io.StringIO(sheet.text)))
    assert len(rows) == 20
    assert {row["request_id"] for row in rows} == {"'-1-2"}
    assert "attachment" in sheet.headers["content-disposition"]


async def test_a_test_key_sees_and_makes_test_keys_alone(instance: Instance) -> None:
    """D-25: nothing of the live side is seen from the sandbox: no key, no use, no entry of the audit log."""
    live = await _made(instance.admin, API, scopes=["brain:read"])
    agent = await _made(instance.admin, AGENT, preset="reader")
    tester = instance.caller(str((await _made(instance.admin, API, scopes=["*"], environment="test"))["plaintext_key"]))
    own = await _made(tester, API, scopes=["brain:read"])

    assert own["environment"] == "test"
    assert {key["environment"] for key in (await tester.get(f"{API}?environment=live")).json()["data"]} == {"test"}
    assert (await tester.get(AGENT)).json()["data"] == []
    for path in (f"{API}/{live['id']}", f"{API}/{live['id']}/usage", f"{AGENT}/{agent['id']}", f"{AGENT}/{agent['id']}/permissions"):
        assert (await tester.get(path)).status_code == 404, path
    for method, path, body in [
        ("PATCH", f"{API}/{live['id']}", {"name": "x"}),
        ("DELETE", f"{API}/{live['id']}", None),
        ("POST", f"{API}/{live['id']}/rotate", {}),
        ("POST", f"{AGENT}/{agent['id']}/revoke", None),
    ]:
        assert (await tester.send(method, path, body)).status_code == 404, path
    assert (await tester.post(AGENT, {"name": "x", "preset": "reader"})).json() == IsPartialDict(
        error="permission_denied", field="environment"
    )
    assert {row["subject"]["environment"] for row in (await tester.get("/api/v1/audit")).json()["data"]} == {"test"}
    assert str(live["id"]) not in (await tester.get(f"{API}/usage")).text
    assert str(own["id"]) in (await instance.admin.get(f"{API}?per_page=100")).text


async def test_the_audit_log_tells_who_changed_what(instance: Instance) -> None:
    """D-29: who, when, from, to; newest first, filtered, and of the own workspace alone."""
    made = await _made(instance.admin, API, scopes=["brain:read"])
    await instance.admin.send("PATCH", f"{API}/{made['id']}", {"name": "renamed"}, **{"X-Request-ID": "change-1"})
    entries = (await instance.admin.get(f"/api/v1/audit?subject_id={made['id']}")).json()["data"]

    who = (await instance.admin.get("/api/v1/whoami")).json()
    assert [entry["action"] for entry in entries] == ["api_key.changed", "api_key.created"]
    assert entries[0] == IsPartialDict(
        actor={"kind": "api", "id": who["id"], "name": "first key", "address": "127.0.0.1", "request_id": "change-1"},
        subject={"kind": "api_key", "id": made["id"], "name": "renamed", "environment": "live"},
        before={"name": "made"},
        after={"name": "renamed"},
        previous=entries[1]["hash"],
    )
    assert str(made["plaintext_key"]) not in str(entries)
    stranger = await instance.api_key("audit:read", workspace_id=await instance.workspace("other"))
    assert str(made["id"]) not in (await stranger.get("/api/v1/audit")).text
    assert (await stranger.get(f"/api/v1/audit?workspace_id={instance.workspace_id}")).json()["required_scope"] == "platform:audit"
    assert (await instance.admin.get("/api/v1/audit?workspace_id=0")).json()["data"][0]["action"] == "workspace.created"


async def test_a_key_sees_its_own_workspace_and_the_platform_s_all(instance: Instance) -> None:
    """D-29, D-23: /workspaces shows the key's own; platform:workspaces makes, renames and deletes them."""
    plain = await instance.api_key()
    made = (await instance.admin.post("/api/v1/workspaces", {"name": "acme"})).json()
    one = f"/api/v1/workspaces/{made['workspace_id']}"

    assert [each["name"] for each in (await plain.get("/api/v1/workspaces")).json()["data"]] == ["default"]
    assert (await plain.get(one)).status_code == 404
    assert (await plain.get(f"/api/v1/workspaces/{instance.workspace_id}")).json()["name"] == "default"
    for method, path in (("POST", "/api/v1/workspaces"), ("PATCH", one), ("DELETE", one)):
        refused = await plain.send(method, path, None if method == "DELETE" else {"name": "x"})
        assert refused.json()["required_scope"] == "platform:workspaces"

    first = await _made(instance.admin, f"{one}/api-keys", scopes=["*"])
    assert (await instance.caller(str(first["plaintext_key"])).get("/api/v1/whoami")).json()["workspace_name"] == "acme"
    assert (await instance.admin.send("PATCH", one, {"name": "default"})).json()["error"] == "name_taken"
    assert (await instance.admin.send("PATCH", one, {"name": "Acme Inc."})).json()["name"] == "Acme Inc."
    assert (await instance.admin.send("DELETE", f"{one}?dry_run=true")).json() == IsPartialDict(keys=1, deleted=False)
    assert (await instance.admin.send("DELETE", one)).json() == IsPartialDict(name="Acme Inc.", keys=1, deleted=True)
    assert (await instance.caller(str(first["plaintext_key"])).get("/api/v1/whoami")).status_code == 401
    assert (await instance.admin.get(one)).status_code == 404
    for odd in ("x", "-1", "٣", "9" * 30, "1.0"):
        assert (await instance.admin.get(f"/api/v1/workspaces/{odd}")).status_code == 404, odd


@pytest.mark.parametrize("kind", ["api", "agent"])
async def test_an_answer_has_the_fields_that_are_documented(instance: Instance, kind: str) -> None:
    """D-29: what is sent is what the route's model names, no field more and none less, at creation and after it."""
    base, more, shown, made_as = (
        (API, {"scopes": ["brain:read"]}, ApiKeyResponse, NewApiKeyResponse)
        if kind == "api"
        else (AGENT, {"permissions": ["brain:read"]}, AgentKeyResponse, NewAgentKeyResponse)
    )
    made = await _made(instance.admin, base, **more)

    assert set(made) == set(made_as.model_fields)
    assert set((await instance.admin.get(f"{base}/{made['id']}")).json()) == set(shown.model_fields)
    sums = (await instance.admin.get(f"{base}/usage?by=key,day,method,route,status&since=2000-01-01")).json()
    assert set(sums) == set(UsageResponse.model_fields)
    assert {name for row in sums["data"] for name in row} <= set(UsageSumResponse.model_fields)
    assert set((await instance.admin.get("/api/v1/whoami")).json()) == set(WhoResponse.model_fields) | set(ApiKeyResponse.model_fields)


async def test_an_agent_s_own_key_may_be_made_by_who_speaks_for_it(instance: Instance) -> None:
    """D-24, D-43: an API key that speaks for an agent hands on no more than it may read, also once the agent has memories."""
    await instance.admin.remember("Its own.", agent_id="rook", memory_scope="agent")
    await instance.admin.remember("Another's.", agent_id="crow", memory_scope="agent")
    caller = await instance.api_key("keys:write", "brain:read", agent_id="rook")

    own = await caller.post(AGENT, {"name": "rook", "agent_id": "rook", "permissions": ["brain:read"]})
    other = await caller.post(AGENT, {"name": "crow", "agent_id": "crow", "permissions": ["brain:read"]})

    assert own.status_code == 201
    assert (other.status_code, other.json()["field"]) == (403, "agent_id")


async def test_who_asks_is_told_what_they_may_do(instance: Instance) -> None:
    """D-29: a key's own fields, by its own key; spends nothing."""
    caller = await instance.agent_key("brain:read", rate_limit=1)

    who = [(await caller.get("/api/v1/whoami")).json() for _ in range(3)][2]
    assert who == IsPartialDict(kind="agent", id=caller.key_id, permissions=["brain:read"], workspace_name="default", status="Active")
    assert "last_used_ip" not in who


async def test_a_repeated_creation_makes_one_key(instance: Instance) -> None:
    """D-14: with an Idempotency-Key the secret is shown once, and the second answer names the key that was made."""
    header = {"Idempotency-Key": "once"}
    first = await instance.admin.post(API, {"name": "made", "scopes": ["brain:read"]}, **header)
    again = await instance.admin.post(API, {"name": "made", "scopes": ["brain:read"]}, **header)

    assert first.status_code == 201
    assert (again.status_code, again.json()["error"], again.json()["id"]) == (409, "secret_already_shown", first.json()["id"])
    assert (await instance.admin.get(API)).json()["meta"]["total"] == 2
