"""Keys, limits and permissions."""

from __future__ import annotations

import base64
import hashlib
import re
import sqlite3
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

from tests.contract.statements import Api, assert_error, statement, statement_per_value, statements_about_fields
from tests.deadlines import HANG_S

IN_A_DAY = (datetime.now(UTC) + timedelta(days=1)).isoformat().replace("+00:00", "Z")


def create_expiring_key(create: Callable[[str], dict[str, Any]], *, seconds: float = 1.2) -> dict[str, Any]:
    """Return a key that expires soon. On a slow machine, its time may be over before it is created; then it gets more."""
    try:
        return create((datetime.now(UTC) + timedelta(seconds=seconds)).isoformat())
    except AssertionError:
        if seconds > HANG_S / 10:
            raise
        return create_expiring_key(create, seconds=5 * seconds)


PERMISSIONS = [
    *("plans.read", "plans.write", "phases.write", "sessions.read", "sessions.write", "tools.read"),
    *("templates.read", "templates.instantiate", "notify:read", "notify:write", "notify:send"),
]


def read_column(api: Api, table: str, column: str, key_id: str) -> Any:  # noqa: ANN401 - a value of the store
    """Return a column of a key's row in the record store."""
    with sqlite3.connect(f"file:{api.folder / 'records.db'}?mode=ro", uri=True) as connection:
        return connection.execute(f"SELECT {column} FROM {table} WHERE id = ?", (key_id,)).fetchone()[0]  # noqa: S608 - known names


statements_about_fields(
    "An agent key",
    {
        "name": "string",
        "workspace_id": "integer",
        "key": "string",
        "permissions": "array",
        "rate_limit": "integer",
        "expires_at": "time or null",
        "status": "string",
        "ip_restriction": "boolean",
        "call_count": "integer",
        "last_used_at": "time or null",
    },
    lambda api: api.agent_key(),
)


@statement("An agent key shows last_used_ip to a key with audit:read.")
def _(api: Api) -> None:
    key = api.agent_key("plans.read")
    api.get("/v1/plans", key=key["key"])
    deadline = time.monotonic() + HANG_S
    while (key_body := api.get(f"/api/v1/agent-keys/{key['id']}").json())["last_used_ip"] is None and time.monotonic() < deadline:
        time.sleep(0.05)
    assert key_body["last_used_ip"] == "127.0.0.1"
    assert key_body["last_used_at"] is not None


@statement("An agent key is ak_ and 32 random alphanumeric characters.")
def _(api: Api) -> None:
    assert re.fullmatch(r"ak_[A-Za-z0-9]{32}", api.agent_key()["key"])


@statement("An agent key is shown once, at creation.")
def _(api: Api) -> None:
    key = api.agent_key()
    assert key["key"] not in api.get(f"/api/v1/agent-keys/{key['id']}").text
    assert "key" not in api.get(f"/api/v1/agent-keys/{key['id']}").json()


@statement("An agent key is stored only as a SHA-256 hash.")
def _(api: Api) -> None:
    key = api.agent_key()
    files = b"".join(path.read_bytes() for path in api.folder.glob("records.db*"))
    assert key["key"].encode() not in files
    digest = hashlib.sha256(key["key"].encode())
    assert digest.digest() in files or digest.hexdigest().encode() in files


@statement("call_count counts the calls.")
def _(api: Api) -> None:
    key = api.agent_key("plans.read")
    for _ in range(3):
        api.get("/v1/plans", key=key["key"])
    deadline = time.monotonic() + HANG_S
    while api.get(f"/api/v1/agent-keys/{key['id']}").json()["call_count"] != 3:
        assert time.monotonic() < deadline
        time.sleep(0.05)


@statement("No expiry means that the key never expires.")
def _(api: Api) -> None:
    assert api.agent_key()["expires_at"] is None


statements_about_fields(
    "An API key",
    {
        "name": "string",
        "workspace_id": "integer",
        "scopes": "array",
        "rate_limit_tier": "string",
        "environment": "string",
        "expires_at": "time or null",
        "plaintext_key": "string",
        "created_at": "time",
    },
    lambda api: api.api_key("brain:read"),
)


@statement("plaintext_key is available only at creation.")
def _(api: Api) -> None:
    key = api.api_key("brain:read")
    assert "plaintext_key" not in api.get(f"/api/v1/api-keys/{key['id']}").json()


@statement("The store has a bcrypt hash, never the plaintext.")
def _(api: Api) -> None:
    key = api.api_key("brain:read")
    files = b"".join(path.read_bytes() for path in api.folder.glob("records.db*"))
    assert key["plaintext_key"].encode() not in files
    assert b"$2b$" in files


def accepts_tier(api: Api, tier: str) -> None:
    """Assert that a key can be created in *tier*."""
    assert api.api_key("brain:read", rate_limit_tier=tier)["rate_limit_tier"] == tier


statement_per_value("rate_limit_tier may be {}.", ["free", "pro", "business", "enterprise"], accepts_tier)


def accepts_environment(api: Api, environment: str) -> None:
    """Assert that a key can be created in *environment*, with its prefix."""
    key = api.api_key("brain:read", environment=environment)
    assert re.fullmatch(rf"sk_{environment}_[A-Za-z0-9]{{32}}", key["plaintext_key"])


statement_per_value("environment may be {}.", ["live", "test"], accepts_environment)


@statement("Another tier is rejected.")
def _(api: Api) -> None:
    assert_error(api.post("/api/v1/api-keys", {"name": "x", "scopes": ["*"], "rate_limit_tier": "gold"}), 422)


@statement("A key has usage records, one for each call.")
def _(api: Api) -> None:
    key = api.api_key("plans.read")
    api.get("/v1/plans", key=key["plaintext_key"])
    deadline = time.monotonic() + HANG_S
    while not (rows := api.get(f"/api/v1/api-keys/{key['id']}/usage").json()["data"]):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert rows[0]["status"] == 200


# 3.2


@statement("A new key is Active.")
def _(api: Api) -> None:
    assert api.agent_key()["status"] == "Active"


@statement("A revoked key is Revoked immediately; requests fail with key_revoked.")
def _(api: Api) -> None:
    key = api.agent_key("plans.read")
    assert api.post(f"/api/v1/agent-keys/{key['id']}/revoke").json()["status"] == "Revoked"
    assert_error(api.get("/v1/plans", key=key["key"]), 401, "key_revoked")


@statement("After its expiry a key is Expired; requests fail with key_expired.")
def _(api: Api) -> None:
    key = create_expiring_key(lambda expires_at: api.agent_key("plans.read", expires_at=expires_at))
    deadline = time.monotonic() + HANG_S
    while api.get("/v1/plans", key=key["key"]).status_code == 200:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert_error(api.get("/v1/plans", key=key["key"]), 401, "key_expired")
    assert api.get(f"/api/v1/agent-keys/{key['id']}").json()["status"] == "Expired"
    extended = api.post(f"/api/v1/agent-keys/{key['id']}/extend", {"expires_at": IN_A_DAY})
    assert extended.json()["status"] == "Active", "extending a past expiry makes the key active"


@statement("Extending replaces the expiry; null removes it.")
def _(api: Api) -> None:
    key = api.agent_key("plans.read", expires_at=IN_A_DAY)
    assert api.post(f"/api/v1/agent-keys/{key['id']}/extend", {"expires_at": None}).json()["expires_at"] is None


@statement("A revoked key stays revoked.")
def _(api: Api) -> None:
    key = api.agent_key("plans.read")
    api.post(f"/api/v1/agent-keys/{key['id']}/revoke")
    assert api.post(f"/api/v1/agent-keys/{key['id']}/resume").status_code == 409
    assert api.get(f"/api/v1/agent-keys/{key['id']}").json()["status"] == "Revoked"


@statement("A suspended key is 401 key_revoked until it is resumed.")
def _(api: Api) -> None:
    key = api.agent_key("plans.read")
    api.post(f"/api/v1/agent-keys/{key['id']}/suspend")
    assert_error(api.get("/v1/plans", key=key["key"]), 401, "key_revoked")
    api.post(f"/api/v1/agent-keys/{key['id']}/resume")
    assert api.get("/v1/plans", key=key["key"]).status_code == 200


@statement("An agent key has 600 requests per minute by default.")
def _(api: Api) -> None:
    assert api.agent_key()["rate_limit"] == 600


# 3.3


def rotate(api: Api, **body: object) -> tuple[dict[str, Any], dict[str, Any]]:
    """Create a key and rotate it; return both."""
    old = api.api_key("plans.read", "brain:read", rate_limit_tier="business")
    response = api.post(f"/api/v1/api-keys/{old['id']}/rotate", body)
    assert response.status_code == 201, response.text
    return old, response.json()


@statement("Rotation returns a new key with the same scopes and settings, and a new plaintext.")
def _(api: Api) -> None:
    old, new = rotate(api, grace_period_hours=1)
    assert (new["scopes"], new["rate_limit_tier"], new["environment"]) == (old["scopes"], "business", "live")
    assert new["plaintext_key"] != old["plaintext_key"]


@statement("Both keys authenticate in the grace period.")
def _(api: Api) -> None:
    old, new = rotate(api, grace_period_hours=1)
    assert api.get("/v1/plans", key=old["plaintext_key"]).status_code == 200
    assert api.get("/v1/plans", key=new["plaintext_key"]).status_code == 200


@statement("The rotated key is marked for deletion.")
def _(api: Api) -> None:
    old, _ = rotate(api, grace_period_hours=1)
    assert api.get(f"/api/v1/api-keys/{old['id']}").json()["delete_after"] is not None


@statement("After the grace period the old key does not authenticate.")
def _(api: Api) -> None:
    old, _ = rotate(api, grace_period_hours=0)
    assert_error(api.get("/v1/plans", key=old["plaintext_key"]), 401, "unauthorised")


@statement("Expired keys are deleted by the prune command.")
def _(api: Api) -> None:
    result = api.run("keys", "prune", "--yes")
    assert result.returncode == 0, result.stderr


@statement("A key in its grace period cannot be rotated again.")
def _(api: Api) -> None:
    old, _ = rotate(api, grace_period_hours=1)
    assert_error(api.post(f"/api/v1/api-keys/{old['id']}/rotate", {}), 409)


statement_per_value(
    "A grace period of {} hours is rejected.",
    [-1, 721],
    lambda api, hours: assert_error(
        api.post(f"/api/v1/api-keys/{api.api_key('brain:read')['id']}/rotate", {"grace_period_hours": hours}), 422
    ),
)


# 5.2


@statement("An API key may be the user name of HTTP Basic, with an empty password.")
def _(api: Api) -> None:
    basic = base64.b64encode(f"{api.key}:".encode()).decode()
    assert api.send("GET", "/v1/plans", key=None, headers={"Authorization": f"Basic {basic}"}).status_code == 200


def check_scope(api: Api, case: tuple[str, str, int]) -> None:
    """Assert the status of a request with a scope."""
    scope, request, status = case
    method, path = request.split()
    body = {"title": api.name("Plan")} if method == "POST" else None
    response = api.send(method, path, body, key=api.api_key(scope)["plaintext_key"])
    assert response.status_code == status, response.text


statement_per_value(
    "A scope allows its requests and no others: {}.",
    [
        ("plans:read", "GET /v1/plans", 200),
        ("plans:write", "POST /v1/plans", 201),
        ("plans:*", "GET /v1/plans", 200),
        ("plans:*", "POST /v1/plans", 201),
        ("*:read", "GET /v1/plans", 200),
        ("*:read", "POST /v1/plans", 403),
        ("*", "POST /v1/plans", 201),
        ("plans:read", "POST /v1/plans", 403),
        ("brain:read", "GET /v1/plans", 403),
        ("plans:write", "GET /v1/plans", 403),
    ],
    check_scope,
)


@statement("{resource}:delete allows deleting.")
def _(api: Api) -> None:
    memory = api.remember("To be deleted.")
    assert api.send("DELETE", f"/v1/brain/memories/{memory['id']}", key=api.api_key("brain:delete")["plaintext_key"]).status_code == 204


@statement("A missing scope is 403 with error and required_scope.")
def _(api: Api) -> None:
    body = assert_error(api.get("/v1/plans", key=api.api_key("brain:read")["plaintext_key"]), 403)
    assert body["required_scope"] in {"plans.read", "plans:read"}


@statement("An expired key is 401 with an error field.")
def _(api: Api) -> None:
    key = create_expiring_key(lambda expires_at: api.api_key("plans.read", expires_at=expires_at))
    deadline = time.monotonic() + HANG_S
    while api.get("/v1/plans", key=key["plaintext_key"]).status_code == 200:
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert_error(api.get("/v1/plans", key=key["plaintext_key"]), 401, "key_expired")


@statement("A test key has no access to production data.")
def _(api: Api) -> None:
    key = api.api_key("*", environment="test")["plaintext_key"]
    memory = api.remember(f"Only in the sandbox {api.name()}.", key=key)
    assert_error(api.get(f"/v1/brain/memories/{memory['id']}"), 404)
    live = api.remember(f"Only in production {api.name()}.")
    assert_error(api.get(f"/v1/brain/memories/{live['id']}", key=key), 404)


@statement("A test key has a higher rate limit: ten times that of its tier.")
def _(api: Api) -> None:
    key = api.api_key("plans.read", environment="test", rate_limit_tier="free")["plaintext_key"]
    assert api.get("/v1/plans", key=key).headers["X-RateLimit-Limit"] == "10000"


# 5.3


def is_granted(api: Api, permission: str) -> None:
    """Assert that a permission can be granted."""
    key = api.agent_key(permission)
    assert [permission.replace(":", ".") for permission in key["permissions"]] == [permission.replace(":", ".")]


statement_per_value(
    "{} can be granted.",
    PERMISSIONS,
    is_granted,
)


def check_permission(api: Api, case: tuple[str, str]) -> None:
    """Assert that a permission allows a request, and that the error without it names the permission."""
    permission, request = case
    method, path = request.split()
    plan = api.plan("One") if "{" in path else {}
    url = path.format(plan=plan.get("slug"))
    bodies: dict[str, object] = {
        "/v1/plans": {"title": api.name("Plan")},
        "/v1/sessions": {"agent_type": "x"},
        "/v1/plans/{plan}/phases": {"name": "Next"},
    }
    body = bodies[path] if method == "POST" else None
    response = api.send(method, url, body, key=api.agent_key(permission)["key"])
    assert response.status_code < 300, response.text
    other = next(candidate for candidate in ("tools.read", "templates.read") if candidate != permission)
    refusal = assert_error(api.send(method, url, body, key=api.agent_key(other)["key"]), 403, "permission_denied")
    assert refusal["required_permission"].replace(":", ".") == permission.replace(":", ".")


statement_per_value(
    "A permission allows its requests and no others: {}.",
    [
        ("plans.read", "GET /v1/plans"),
        ("plans.write", "POST /v1/plans"),
        ("phases.write", "POST /v1/plans/{plan}/phases"),
        ("sessions.read", "GET /v1/sessions"),
        ("sessions.write", "POST /v1/sessions"),
        ("tools.read", "GET /api/agent/tools/analytics"),
        ("templates.read", "GET /v1/templates"),
    ],
    check_permission,
)


@statement("templates.instantiate creates plans from templates.")
def _(api: Api) -> None:
    slug = api.get("/v1/templates").json()["data"][0]["slug"]
    response = api.post(f"/v1/templates/{slug}/plans", {"variables": {}}, key=api.agent_key("templates.instantiate")["key"])
    assert response.status_code in {201, 422}, response.text
    assert_error(api.post(f"/v1/templates/{slug}/plans", {"variables": {}}, key=api.agent_key("plans.write")["key"]), 403)


@statement("A key can be checked for one permission, any of a list, or all of a list.")
def _(api: Api) -> None:
    key = api.agent_key("plans.read", "plans.write")
    path = f"/api/v1/agent-keys/{key['id']}/permissions"
    assert api.get(f"{path}?has=plans.read").json()["has"] is True
    assert api.get(f"{path}?any=plans.read,tools.read").json()["any"] is True
    assert api.get(f"{path}?all=plans.read,tools.read").json()["all"] is False


@statement("The permissions of a key can be replaced.")
def _(api: Api) -> None:
    key = api.agent_key("plans.read")
    response = api.send("PUT", f"/api/v1/agent-keys/{key['id']}/permissions", {"permissions": ["tools.read"]})
    assert response.json()["permissions"] == ["tools.read"]
    assert api.get("/v1/plans", key=key["key"]).status_code == 403


def restricted_key(api: Api, *entries: str) -> dict[str, Any]:
    """Return an agent key that is restricted to addresses."""
    return api.agent_key("plans.read", ip_restriction=True, ip_list=list(entries))


@statement("With a restriction the address must be on the list.")
def _(api: Api) -> None:
    body = assert_error(api.get("/v1/plans", key=restricted_key(api, "10.0.0.0/8")["key"]), 403, "ip_not_allowed")
    assert body["your_ip"] == "127.0.0.1"


def is_admitted(api: Api, entry: str) -> None:
    """Assert that a list entry admits the client."""
    assert api.get("/v1/plans", key=restricted_key(api, entry)["key"]).status_code == 200


statement_per_value(
    "A list entry {} admits 127.0.0.1.",
    ["127.0.0.1", "127.0.0.0/8"],
    is_admitted,
)


def is_listed(api: Api, entry: str) -> None:
    """Assert that a list entry is stored."""
    assert entry in restricted_key(api, entry)["ip_list"]


statement_per_value(
    "A list entry {} is accepted.",
    ["::1", "2001:db8::/32", "192.0.2.7"],
    is_listed,
)


@statement("Addresses can be added, removed and replaced.")
def _(api: Api) -> None:
    path = f"/api/v1/agent-keys/{restricted_key(api, '192.0.2.1')['id']}/ips"
    api.post(path, {"ips": ["192.0.2.2"]})
    assert api.get(path).json()["ips"] == ["192.0.2.1", "192.0.2.2"]
    api.send("DELETE", path, {"ips": ["192.0.2.1"]})
    assert api.get(path).json()["ips"] == ["192.0.2.2"]
    api.send("PUT", path, {"ips": ["192.0.2.3"]})
    assert api.get(path).json()["ips"] == ["192.0.2.3"]


@statement("A list as text has one entry per line; lines that start with # are comments.")
def _(api: Api) -> None:
    path = f"/api/v1/agent-keys/{restricted_key(api, '192.0.2.1')['id']}/ips"
    api.send("PUT", path, {"text": "# the office\n192.0.2.9\n\n2001:db8::/32\n"})
    assert api.get(path).json()["ips"] == ["192.0.2.9", "2001:db8::/32"]


@statement("An invalid line produces `<input>: Invalid IP address`.")
def _(api: Api) -> None:
    path = f"/api/v1/agent-keys/{restricted_key(api, '192.0.2.1')['id']}/ips"
    body = assert_error(api.send("PUT", path, {"text": "192.0.2.9\nnonsense\n"}), 422)
    assert body["errors"]["ips"] == ["nonsense: Invalid IP address"]
    assert api.get(path).json()["ips"] == ["192.0.2.1"], "a list with an invalid line stores nothing"


@statement("Setting a list enables the restriction.")
def _(api: Api) -> None:
    key = api.agent_key("plans.read")
    api.send("PUT", f"/api/v1/agent-keys/{key['id']}/ips", {"ips": ["10.0.0.0/8"]})
    assert_error(api.get("/v1/plans", key=key["key"]), 403, "ip_not_allowed")


@statement("A restriction with an empty list denies all.")
def _(api: Api) -> None:
    assert_error(api.get("/v1/plans", key=api.agent_key("plans.read", ip_restriction=True, ip_list=[])["key"]), 403, "ip_not_allowed")


@statement("Revocation and expiry are checked before the address.")
def _(api: Api) -> None:
    key = restricted_key(api, "10.0.0.0/8")
    api.post(f"/api/v1/agent-keys/{key['id']}/revoke")
    assert_error(api.get("/v1/plans", key=key["key"]), 401, "key_revoked")


@statement("The address is checked before the permissions.")
def _(api: Api) -> None:
    key = api.agent_key("tools.read", ip_restriction=True, ip_list=["10.0.0.0/8"])
    assert_error(api.get("/v1/plans", key=key["key"]), 403, "ip_not_allowed")


@statement("The permissions are checked before the rate limit, and a rejected request does not count.")
def _(api: Api) -> None:
    key = api.agent_key("tools.read", rate_limit=1)["key"]
    assert_error(api.get("/v1/plans", key=key), 403)
    assert api.get("/api/agent/tools/analytics", key=key).status_code == 200
    assert_error(api.get("/api/agent/tools/analytics", key=key), 429, "rate_limited")


# Limits


@statement("Beyond its limit a key gets 429 with Retry-After in seconds.")
def _(api: Api) -> None:
    key = api.agent_key("plans.read", rate_limit=2)["key"]
    assert [api.get("/v1/plans", key=key).status_code for _ in range(3)] == [200, 200, 429]
    response = api.get("/v1/plans", key=key)
    assert_error(response, 429, "rate_limited")
    assert 0 < int(response.headers["Retry-After"]) <= 60


statement_per_value(
    "The tier and its requests per hour: {}.",
    [("free", 1000), ("pro", 10000), ("business", 50000)],
    lambda api, case: _has_limit(api, case[0], case[1]),
)


def _has_limit(api: Api, tier: str, limit: int) -> None:
    response = api.get("/v1/plans", key=api.api_key("plans.read", rate_limit_tier=tier)["plaintext_key"])
    assert response.headers["X-RateLimit-Limit"] == str(limit)
    assert response.headers["X-RateLimit-Remaining"] == str(limit - 1)
    assert 0 < int(response.headers["X-RateLimit-Reset"]) - time.time() <= 3601


@statement("The tier enterprise is unlimited.")
def _(api: Api) -> None:
    response = api.get("/v1/plans", key=api.api_key("plans.read", rate_limit_tier="enterprise")["plaintext_key"])
    assert response.headers["X-RateLimit-Limit"] == response.headers["X-RateLimit-Remaining"] == "2147483647"


@statement("X-RateLimit-Reset of an agent key is in seconds until the window resets.")
def _(api: Api) -> None:
    response = api.get("/v1/plans", key=api.agent_key("plans.read", rate_limit=7)["key"])
    assert response.headers["X-RateLimit-Limit"] == "7"
    assert 0 < int(response.headers["X-RateLimit-Reset"]) <= 60


def has_status(api: Api, name: str) -> None:
    """Assert that the status of a rate limit has a field."""
    assert isinstance(api.get("/api/agent/rate-limit", key=api.agent).json()[name], int)


statement_per_value(
    "The status of a rate limit has {}.",
    ["limit", "remaining", "reset_in_seconds", "used"],
    has_status,
)


@statement("A request for the status of a rate limit does not count.")
def _(api: Api) -> None:
    key = api.agent_key("plans.read", rate_limit=5)["key"]
    api.get("/v1/plans", key=key)
    assert [api.get("/api/v1/rate-limit", key=key).json()["used"] for _ in range(3)] == [1, 1, 1]


# Decisions


@statement("Two different keys in one request are 401.")
def _(api: Api) -> None:
    assert_error(api.get("/v1/plans", **{"X-API-Key": api.agent}), 401)


@statement("A key in the query string is not accepted.")
def _(api: Api) -> None:
    assert api.get(f"/v1/plans?api_key={api.agent}", key=None).status_code == 401


@statement("A dot and a colon are equivalent in names of scopes.")
def _(api: Api) -> None:
    assert api.get("/v1/plans", key=api.api_key("plans:read")["plaintext_key"]).status_code == 200
    assert api.get("/v1/plans", key=api.agent_key("plans.read")["key"]).status_code == 200


@statement("Wildcards do not include platform scopes.")
def _(api: Api) -> None:
    assert_error(api.post("/api/v1/workspaces", {"name": api.name("w")}, key=api.api_key("*")["plaintext_key"]), 403)


@statement("Platform scopes are granted only by the command line.")
def _(api: Api) -> None:
    response = api.post("/api/v1/api-keys", {"name": "x", "scopes": ["platform:workspaces"]})
    assert "only the command line" in assert_error(response, 422)["errors"]["scopes"][0]


@statement("An unknown scope is rejected.")
def _(api: Api) -> None:
    assert_error(api.post("/api/v1/api-keys", {"name": "x", "scopes": ["foo:bar"]}), 422)


@statement("A key's list of servers is applied: others are not listed, and calling them is 403.")
def _(api: Api) -> None:
    key = api.api_key("mcp:read", "mcp:write", servers=["trial"])["plaintext_key"]
    assert {server["id"] for server in api.get("/api/v1/mcp/servers", key=key).json()["servers"]} == {"trial"}
    assert_error(api.call("toolbox", "echo", key=key, text="x"), 403)


@statement("A key's list of tools is applied.")
def _(api: Api) -> None:
    key = api.api_key("mcp:read", "mcp:write", tools=["toolbox/echo"])["plaintext_key"]
    assert api.call("toolbox", "echo", key=key, text="x").status_code == 200
    assert_error(api.call("toolbox", "write", key=key, text="x"), 403)


@statement("A key's list of orgs applies to the memories that it stores and recalls.")
def _(api: Api) -> None:
    org = api.name("org")
    key = api.api_key("brain:read", "brain:write", orgs=[org])["plaintext_key"]
    assert_error(api.post("/v1/brain/remember", {"content": "x", "type": "fact", "org": "elsewhere"}, key=key), 403)
    api.remember("Visible to the org.", org=org)
    api.remember("Invisible to the org.", org=f"{org}-other")
    assert {memory["org"] for memory in api.recall("visible", key=key, top_k=50)["memories"]} <= {org}


@statement("A key cannot create a key with a scope that it does not have.")
def _(api: Api) -> None:
    key = api.api_key("keys:write", "brain:read")["plaintext_key"]
    assert_error(api.post("/api/v1/api-keys", {"name": "x", "scopes": ["brain:write"]}, key=key), 403)


@statement("Keys are listed, shown, changed and deleted.")
def _(api: Api) -> None:
    key = api.api_key("brain:read")
    path = f"/api/v1/api-keys/{key['id']}"
    assert api.send("PATCH", path, {"name": "renamed"}).json()["name"] == "renamed"
    assert api.get(path).json()["name"] == "renamed"
    assert key["id"] in api.get("/api/v1/api-keys?per_page=5").text
    assert api.send("DELETE", path).status_code == 204
    assert_error(api.get(path), 404, "resource_not_found")


@statement("A deleted key does not authenticate.")
def _(api: Api) -> None:
    key = api.api_key("plans.read")
    api.send("DELETE", f"/api/v1/api-keys/{key['id']}")
    assert_error(api.get("/v1/plans", key=key["plaintext_key"]), 401, "unauthorised")


@statement("Every change of a key is in the audit log, with actor, time and fields.")
def _(api: Api) -> None:
    key = api.api_key("brain:read")
    rows = api.get("/api/v1/audit?per_page=20").json()["data"]
    assert any(key["id"] in str(row) for row in rows)


@statement("A command verifies the chain of the audit log.")
def _(api: Api) -> None:
    assert api.run("audit", "verify").returncode == 0


@statement("Usage is summed by day, and exported as CSV.")
def _(api: Api) -> None:
    assert api.get("/api/v1/api-keys/usage").status_code == 200
    assert "," in api.get("/api/v1/api-keys/usage", Accept="text/csv").text
