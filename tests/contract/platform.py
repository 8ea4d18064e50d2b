"""The platform."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import httpx2

from tests.contract.statements import Api, assert_error, is_time, statement, statement_per_value
from tests.deadlines import HANG_S
from tests.processes import run_server

BRAIN = "/v1/brain"
SECRET_KEY = "a secret key of the contract: 0123456789"


def get_document(api: Api) -> dict[str, Any]:
    """Return the description of the API."""
    return api.get("/api/docs/openapi").json()


statement_per_value(
    "{} is a page with a viewer.",
    ["/api/docs", "/api/docs/scalar", "/api/docs/redoc"],
    lambda api, path: _is_page(api.get(path)),
)


def _is_page(response: Any) -> None:  # noqa: ANN401 - a response
    assert response.status_code == 200
    assert response.headers["content-type"].startswith("text/html")


statement_per_value(
    "The raw document has the key {}.",
    ["openapi", "info", "paths", "components"],
    lambda api, name: _is_in(name, get_document(api)),
)


def _is_in(part: object, whole: Any) -> None:  # noqa: ANN401 - any container
    assert part in whole


@statement("The document is OpenAPI 3.0.")
def _(api: Api) -> None:
    assert get_document(api)["openapi"].startswith("3.0.")


@statement("The documentation needs a key.")
def _(api: Api) -> None:
    assert api.get("/api/docs", key=None).status_code == api.get("/api/docs/openapi", key=None).status_code == 401


@statement("The documentation needs the scope docs:read.")
def _(api: Api) -> None:
    assert_error(api.get("/api/docs/openapi", key=api.api_key("brain:read")["plaintext_key"]), 403)
    assert api.get("/api/docs/openapi", key=api.api_key("docs:read")["plaintext_key"]).status_code == 200


@statement("The documentation is off in production by default.")
def _(api: Api) -> None:
    with run_server(api.folder.parent / api.name("production"), environment="production", secret_key=SECRET_KEY) as server:
        assert_error(server.client.get("/api/docs"), 404)
        assert_error(server.client.get("/api/docs/openapi"), 404)


@statement("API_DOCS_ENABLED enables the documentation in production.")
def _(api: Api) -> None:
    folder = api.folder.parent / api.name("production")
    with run_server(folder, environment="production", secret_key=SECRET_KEY, api_docs_enabled="true") as server:
        assert server.client.get("/api/docs/openapi").status_code == 200


@statement("Rate limit headers and X-Workspace-ID are documented.")
def _(api: Api) -> None:
    text = json.dumps(get_document(api))
    for header in ("X-RateLimit-Limit", "X-RateLimit-Remaining", "X-RateLimit-Reset", "X-Workspace-ID"):
        assert header in text


@statement("The description has version 1.0.0.")
def _(api: Api) -> None:
    assert get_document(api)["info"]["version"] == "1.0.0"


@statement("The two security schemes are bearerAuth and apiKeyAuth.")
def _(api: Api) -> None:
    assert get_document(api)["components"]["securitySchemes"].keys() >= {"bearerAuth", "apiKeyAuth"}


@statement("Each operation has a unique operationId.")
def _(api: Api) -> None:
    names = Counter(
        operation["operationId"]
        for path in get_document(api)["paths"].values()
        for operation in path.values()
        if "operationId" in operation
    )
    assert max(names.values()) == 1


@statement("/docs/openapi.json is the same document.")
def _(api: Api) -> None:
    assert api.get("/docs/openapi.json").json() == get_document(api)


# 4.6


def check_list(api: Api, path: str) -> None:
    """Assert that a list has data, links and meta."""
    body = api.get(path).json()
    assert body.keys() >= {"data", "links", "meta"}
    assert body["links"].keys() == {"first", "last", "prev", "next"}
    assert body["meta"]["current_page"] == 1
    assert isinstance(body["meta"]["total"], int)


statement_per_value(
    "A list has data, links and meta: {}.",
    [
        f"{BRAIN}/memories",
        "/v1/plans",
        "/v1/tasks",
        "/v1/sessions",
        "/v1/templates",
        "/api/v1/api-keys",
        "/api/v1/agent-keys",
        "/api/v1/webhooks",
        "/api/v1/audit",
        "/api/v1/workspaces",
        "/api/v1/servers",
        "/api/agent/tools/calls",
    ],
    check_list,
)


@statement("A page has 15 items by default.")
def _(api: Api) -> None:
    for _ in range(16):
        api.agent_key("plans.read")
    body = api.get("/api/v1/agent-keys").json()
    assert len(body["data"]) == 15
    assert body["links"]["next"] is not None
    assert body["links"]["prev"] is None


@statement("per_page and page select a page.")
def _(api: Api) -> None:
    for _ in range(3):
        api.agent_key("plans.read")
    body = api.get("/api/v1/agent-keys?per_page=2&page=2").json()
    assert (len(body["data"]), body["meta"]["current_page"], body["meta"]["per_page"]) == (2, 2, 2)


statement_per_value(
    "{} is rejected.",
    ["page=0", "per_page=0", "per_page=101", "page=x"],
    lambda api, query: assert_error(api.get(f"/v1/plans?{query}"), 422),
)


@statement("Links do not use the Host header.")
def _(api: Api) -> None:
    response = api.get("/v1/plans", Host="localhost")
    assert api.server.url in response.json()["links"]["first"]


def returns_200(api: Api, path: str) -> None:
    """Assert that a route returns 200."""
    assert api.get(path).status_code == 200


statement_per_value("The path {} contains v1.", ["/api/v1/mcp/servers", "/v1/brain/tags", "/api/v1/api-keys"], returns_200)


# Decisions on operation


@statement("The next request sees the changes of a command.")
def _(api: Api) -> None:
    key = api.run_json("keys", "create", "--workspace", "default", "--name", "seen", "--scope", "plans.read")
    assert api.get("/v1/plans", key=key["plaintext_key"]).status_code == 200


@statement("An invalid setting prevents the start, with a clear message.")
def _(api: Api) -> None:
    result = api.run("serve", "--port", "70000")
    assert result.returncode != 0
    assert len(result.stderr.strip().splitlines()) <= 8
    assert "Traceback" not in result.stderr


@statement("init creates the workspace and both keys once.")
def _(api: Api) -> None:
    repeated = api.run_json("init")
    assert repeated["api_key"] is None
    assert repeated["agent_key"] is None


@statement("/healthz needs no key.")
def _(api: Api) -> None:
    assert api.get("/healthz", key=None).status_code == 200


@statement("/readyz needs no key and names each engine.")
def _(api: Api) -> None:
    body = api.get("/readyz", key=None).json()
    assert body["status"] in {"ok", "degraded"}
    assert body["engines"]


@statement("/metrics needs platform:metrics.")
def _(api: Api) -> None:
    assert api.get("/metrics", key=None).status_code == 401
    assert_error(api.get("/metrics", key=api.api_key("*")["plaintext_key"]), 403)
    assert "rookery_" in api.get("/metrics").text


@statement("An unknown Host is rejected.")
def _(api: Api) -> None:
    assert api.get("/healthz", Host="evil.example").status_code >= 400


@statement("A 401 response has WWW-Authenticate: Bearer.")
def _(api: Api) -> None:
    assert api.get("/v1/plans", key=None).headers["WWW-Authenticate"].startswith("Bearer")


@statement("Basic with another Origin is rejected.")
def _(api: Api) -> None:
    response = httpx2.get(f"{api.server.url}/v1/plans", auth=(api.key, ""), headers={"Origin": "https://evil.example"})
    assert response.status_code == 403


@statement("Pages have security headers.")
def _(api: Api) -> None:
    headers = api.get("/connect", Accept="text/html").headers
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert "Content-Security-Policy" in headers


@statement("A preflight request is answered for allowed origins; without the setting no origin is allowed.")
def _(api: Api) -> None:
    request_headers = {"Origin": "https://app.example", "Access-Control-Request-Method": "POST"}
    assert "access-control-allow-origin" not in api.send("OPTIONS", f"{BRAIN}/remember", key=None, headers=request_headers).headers


@statement("X-Request-ID is on every response: that of the caller, or a new one.")
def _(api: Api) -> None:
    assert api.get("/healthz", **{"X-Request-ID": "abc-1"}).headers["X-Request-ID"] == "abc-1"
    assert api.get("/healthz", **{"X-Request-ID": "not valid!"}).headers["X-Request-ID"] != "not valid!"
    assert api.get("/nothing-here").headers["X-Request-ID"]


@statement("Ids are UUIDs of version 7, those of sessions with the prefix sess_; times are UTC with Z.")
def _(api: Api) -> None:
    memory = api.remember()
    assert memory["id"][14] == "7"
    assert is_time(memory["created_at"])
    created_at = datetime.fromisoformat(memory["created_at"])
    assert abs((datetime.now(UTC) - created_at).total_seconds()) < 60


def send_with_key(api: Api, path: str, body: Mapping[str, object], idempotency_key: str) -> Any:  # noqa: ANN401 - a response
    """Send a POST with an Idempotency-Key."""
    return api.send("POST", path, body, headers={"Idempotency-Key": idempotency_key})


@statement("A repeated request with the same Idempotency-Key gets the stored response.")
def _(api: Api) -> None:
    idempotency_key, body = api.name("idempotency_key"), {"content": "Only once.", "type": "fact"}
    first, second = (
        send_with_key(api, f"{BRAIN}/remember", body, idempotency_key),
        send_with_key(api, f"{BRAIN}/remember", body, idempotency_key),
    )
    assert first.json() == second.json()
    assert second.headers["Idempotent-Replay"] == "true"


@statement("Another body with the same Idempotency-Key is 422 idempotency_mismatch.")
def _(api: Api) -> None:
    idempotency_key = api.name("idempotency_key")
    send_with_key(api, f"{BRAIN}/remember", {"content": "One.", "type": "fact"}, idempotency_key)
    assert_error(send_with_key(api, f"{BRAIN}/remember", {"content": "Two.", "type": "fact"}, idempotency_key), 422, "idempotency_mismatch")


@statement("A response with a secret is not repeated: 409 secret_already_shown with the id.")
def _(api: Api) -> None:
    idempotency_key, body = api.name("idempotency_key"), {"name": "once", "scopes": ["brain:read"]}
    first = send_with_key(api, "/api/v1/api-keys", body, idempotency_key)
    error_body = assert_error(send_with_key(api, "/api/v1/api-keys", body, idempotency_key), 409, "secret_already_shown")
    assert first.json()["id"] in str(error_body)


@statement("X-Workspace-ID of another workspace is 403 permission_denied.")
def _(api: Api) -> None:
    assert_error(api.get("/v1/plans", **{"X-Workspace-ID": "999"}), 403, "permission_denied")
    assert api.get("/v1/plans", **{"X-Workspace-ID": "1"}).status_code == 200


@statement("A body over 1 MiB is 413.")
def _(api: Api) -> None:
    assert_error(api.post(f"{BRAIN}/remember", {"content": "x" * 1_100_000, "type": "fact"}), 413, "payload_too_large")


def check_malformed_body(api: Api, case: tuple[bytes, int]) -> None:
    """Assert the status of a body that is invalid JSON."""
    body, status = case
    assert_error(api.send("POST", f"{BRAIN}/remember", body), status)


statement_per_value(
    "A malformed body has its status: {}.",
    [
        (b"{bad", 400),
        (b"[" * 65 + b"]" * 65, 422),
        (b'{"content": "x", "type": "fact", "confidence": NaN}', 422),
        (b'{"content": "a\\u0000b", "type": "fact"}', 422),
        (b'{"content": "\\ud800", "type": "fact"}', 422),
    ],
    check_malformed_body,
)


@statement("With too little free disk space every write is 507 storage_full, and reads succeed.")
def _(api: Api) -> None:
    with run_server(api.folder.parent / api.name("full"), min_free_disk_mb="1000000") as server:
        for path, body in (
            (f"{BRAIN}/remember", {"content": "x", "type": "fact"}),
            ("/v1/plans", {"title": "x"}),
            ("/v1/sessions", {"agent_type": "x"}),
            ("/api/v1/api-keys", {"name": "x", "scopes": ["brain:read"]}),
            ("/api/v1/webhooks", {"url": "https://example.com/", "events": ["*"]}),
        ):
            assert_error(server.client.post(path, json=body), 507, "storage_full")
        assert server.client.get("/v1/plans").status_code == 200
        assert server.client.post(f"{BRAIN}/recall", json={"query": "x", "mode": "keyword"}).status_code == 200


@statement("/ leads a browser to the console, and describes the server as JSON for programs.")
def _(api: Api) -> None:
    assert api.get("/", Accept="text/html").headers["location"] == "console/"
    assert api.get("/console/sign-in").headers["content-type"].startswith("text/html")
    assert api.get("/", Accept="application/json").json()


def check_head(api: Api, path: str) -> None:
    """Assert that HEAD returns the status without a body."""
    response = api.send("HEAD", path)
    assert response.status_code == 200
    assert response.content == b""


statement_per_value(
    "HEAD {} returns the status of GET, without a body.",
    ["/healthz", "/readyz", "/servers", "/v1/plans"],
    check_head,
)


@statement("/readyz becomes ok.")
def _(api: Api) -> None:
    deadline = time.monotonic() + HANG_S
    while (body := api.get("/readyz", key=None).json())["status"] != "ok":
        assert time.monotonic() < deadline, body
        time.sleep(0.1)
