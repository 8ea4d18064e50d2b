"""Behaviour of every path: HEAD, slashes, unknown paths, unread bodies, conditions, CORS."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Literal, cast

import pytest

from rookery.app import build_route_table
from rookery.kernel.config import Settings
from rookery.kernel.http.cross_origin import ALLOWED_HEADERS, EXPOSED_HEADERS
from rookery.kernel.http.routes import RouteEndpoint
from tests.conftest import Instance, eventually, operation_name, run_instance

_ORIGIN = "https://app.example"
_KEY_IN_PATH = "sk_live_abcdefghijklmnopqrstuvwx"


def _path(endpoint: RouteEndpoint) -> str:
    path = endpoint.path
    for name in ("{tool:path}", "{name:path}", "{uri:path}"):
        path = path.replace(name, "x")
    return "/".join("x" if part.startswith("{") else part.replace("{plan}.md", "x.md") for part in path.split("/"))


async def test_the_root_path_links_to_the_other_pages(instance: Instance) -> None:
    """GET / returns the name, status and links of the server as JSON."""
    response = await instance.caller(None).get("/")

    body = response.json()
    assert (response.status_code, body["software"], body["status"] in {"ok", "starting", "degraded"}) == (200, "rookery", True)
    for name, url in cast("dict[str, str]", body["links"]).items():
        linked = await instance.admin.get(url.replace("http://127.0.0.1:8400", ""), Accept="text/html, application/json")
        assert linked.status_code == {"mcp": 405, "console": 303}.get(name, 200), name


async def test_the_root_path_lists_the_families_of_paths(instance: Instance) -> None:
    """Each with what it has, so that a client finds the right beginning."""
    families = {family["path"]: family["resources"] for family in (await instance.caller(None).get("/")).json()["families"]}

    assert list(families) == ["/api/v1", "/api/agent", "/v1"]
    assert {"api-keys", "mcp", "webhooks"} <= set(families["/api/v1"])
    assert {"plans", "sessions", "notify"} <= set(families["/api/agent"]) & set(families["/v1"])
    assert {"brain", "score"} <= set(families["/v1"])


async def test_the_root_path_is_a_page_in_a_browser(settings: Settings) -> None:
    """Without the console, a browser gets HTML with links. Every page has security headers."""
    async with _run_with(settings, console=False) as instance:
        page = await instance.caller(None).get("/", Accept="text/html,application/xhtml+xml,*/*;q=0.8")

    assert page.headers["content-type"] == "text/html; charset=utf-8"
    for link in ('href="servers"', 'href="connect"', 'href="api/docs"', 'href="favicon.ico"'):
        assert link in page.text
    assert {"content-security-policy", "x-content-type-options", "referrer-policy"} <= page.headers.keys()


async def test_production_shows_neither_version_nor_documentation_without_a_key(settings: Settings) -> None:
    """The start page has no links to disabled pages."""
    async with _run_with(settings, public_discovery=False, api_docs_enabled=False, console=False) as instance:
        anonymous, authenticated = (await instance.caller(None).get("/")).json(), (await instance.admin.get("/")).json()
        page = await instance.caller(None).get("/", Accept="text/html")

    assert (anonymous["version"], "docs" in anonymous["links"]) == (None, False)
    assert isinstance(authenticated["version"], str)
    assert "api/docs" not in page.text


async def test_the_icon_is_served_from_the_package(instance: Instance) -> None:
    """/favicon.ico is an icon, not a 404 in every log."""
    icon = await instance.caller(None).get("/favicon.ico")

    assert (icon.status_code, icon.content[:4]) == (200, b"\0\0\1\0")
    assert len(icon.content) < 5_000


async def test_every_get_route_supports_head(instance: Instance, subtests: pytest.Subtests) -> None:
    """HEAD has the status and headers of GET and no body. Streams do not support it."""
    checked = 0
    for endpoint in build_route_table(instance.rookery).endpoints:
        if endpoint.route.method != "GET":
            continue
        with subtests.test(route=operation_name(endpoint)):
            head = await instance.admin.http.head(_path(endpoint), headers={"Accept": "application/json"})
            if "text/event-stream" in endpoint.route.media_types:
                assert head.status_code == 405
                continue
            checked += 1
            response = await instance.admin.get(_path(endpoint), Accept="application/json")
            assert (head.status_code, head.content) == (response.status_code, b"")
            varying = {"x-request-id", "content-length", "x-ratelimit-remaining", "x-ratelimit-reset", "etag"}
            assert head.headers.keys() - varying == response.headers.keys() - varying
            assert head.headers.get("content-type") == response.headers.get("content-type")
    assert checked > 50


async def test_health_routes_ignore_unknown_query_parameters(instance: Instance) -> None:
    """Load balancers add query parameters to the paths that they check."""
    for path in ("/healthz", "/readyz", "/metrics", "/"):
        assert (await instance.admin.get(f"{path}?x=1&x=2&%00")).status_code == 200, path


@pytest.mark.parametrize(
    ("path", "location"),
    [
        ("/v1/brain/tags/?org=a%20b", "/v1/brain/tags?org=a%20b"),
        ("/healthz/", "/healthz"),
        ("/api/docs/", "/api/docs"),
        ("/docs", "/api/docs"),
        ("/docs/", "/api/docs"),
    ],
)
async def test_a_trailing_slash_redirects_to_the_path(instance: Instance, path: str, location: str) -> None:
    """The redirect is a 308, which keeps the method and the query."""
    for method in ("GET", "POST"):
        response = await instance.admin.http.request(method, path)
        assert (response.status_code, response.headers["location"]) == (308, location)


async def test_a_redirect_never_leaves_the_server(instance: Instance) -> None:
    """A path that begins with two slashes is a 404; as Location it would be another host."""
    for path in ("//evil.example/healthz/", "//healthz/", "/%2fevil.example/"):
        response = await instance.admin.http.get(f"http://localhost{path}")
        assert (response.status_code, "location" in response.headers) == (404, False), path


@pytest.mark.parametrize(
    ("path", "root", "text"),
    [
        ("/healthy", "", "The nearest is &#39;/healthz&#39;."),
        ("/a/b/no-such-page", "../../", "The path &#39;/a/b/no-such-page&#39; does not exist."),
        ("/connect?server=no-such-server", "", "The server &#39;no-such-server&#39; does not exist"),
    ],
)
async def test_a_browser_gets_a_page_that_does_not_exist_as_html(instance: Instance, path: str, root: str, text: str) -> None:
    """A page in the usual layout, with security headers and links to the other pages; any other client gets the JSON body."""
    browser = "text/html,application/xhtml+xml,*/*;q=0.8"
    page, body = await instance.admin.get(path, Accept=browser), await instance.admin.get(path)
    posted = await instance.admin.post(path.partition("?")[0], {}, Accept=browser)

    assert (page.status_code, page.headers["content-type"]) == (404, "text/html; charset=utf-8")
    assert text in page.text
    assert f'href="{root}servers"' in page.text
    assert {"content-security-policy", "x-content-type-options", "referrer-policy"} <= page.headers.keys()
    assert body.status_code == 404
    assert {body.headers["content-type"], posted.headers["content-type"]} == {"application/json"}


@pytest.mark.parametrize(
    ("path", "near"),
    [
        ("/v1", "/v1/"),
        ("/api", "/api/docs"),
        ("/v1/brain", "/v1/brain/"),
        ("/v1/brain/serach", "/v1/brain/search"),
        ("/v1/brian/recall", "/v1/brain/recall"),
        ("/api/v1/agent-key", "/api/v1/agent-keys"),
        ("/healthy", "/healthz"),
    ],
)
async def test_an_unknown_path_names_the_nearest(instance: Instance, path: str, near: str) -> None:
    """The error for an unknown path has the most similar paths."""
    body = (await instance.admin.get(path)).json()

    assert body["error"] == "not_found"
    assert any(candidate.startswith(near) for candidate in body["nearest"]), body
    assert body["nearest"][0] in body["message"]


@pytest.mark.parametrize(
    ("request_line", "nearest"),
    [
        ("GET /v1/api-keys", ["/api/v1/api-keys"]),
        ("GET /api/v1/plans", ["/api/agent/plans", "/v1/plans"]),
        ("GET /api/v1/keys", ["/api/v1/api-keys", "/api/v1/agent-keys"]),
        ("POST /v1/keys/k_1/rotate", ["/api/v1/api-keys/k_1/rotate", "/api/v1/agent-keys/k_1/rotate"]),
        ("GET /api/v1/brain/memories", ["/v1/brain/memories"]),
        ("PATCH /v1/memories/m_1", ["/v1/brain/memories/m_1"]),
        ("DELETE /v1/webhooks/w_1", ["/api/v1/webhooks/w_1"]),
        ("POST /api/v1/plans/p/phases/2/tasks", ["/api/agent/plans/p/phases/2/tasks", "/v1/plans/p/phases/2/tasks"]),
        ("GET /v1/mcp/resources/memo://a/b", ["/api/v1/mcp/resources/memo://a/b"]),
        ("POST /v1/tools/call", ["/api/v1/mcp/tools/call", "/mcp/tools/call"]),
        ("GET /v1/api-kys", ["/api/v1/api-keys"]),
        ("GET /campaigns", ["/api/agent/notify/campaigns", "/v1/notify/campaigns"]),
    ],
)
async def test_an_unknown_path_names_the_one_in_another_family(instance: Instance, request_line: str, nearest: list[str]) -> None:
    """The address with the same last segments and the ids of the request, for every method; each one exists."""
    method, path = request_line.split()
    body = (await instance.admin.http.request(method, path)).json()

    assert (body["error"], body["nearest"]) == ("not_found", nearest)
    for candidate in nearest:
        assert repr(candidate) in body["message"]
        answer = await instance.admin.http.request(method, candidate)
        assert answer.status_code != 405
        assert "nearest" not in answer.text
        assert "GET /" not in answer.text


async def test_the_path_in_another_family_shows_no_key(instance: Instance) -> None:
    """A key that was put into a path must not end up in the caller's logs."""
    body = (await instance.admin.get(f"/v1/api-keys/{_KEY_IN_PATH}")).json()

    assert body["nearest"] == ["/api/v1/api-keys/sk_live_…"]
    assert _KEY_IN_PATH not in str(body)


async def test_an_unknown_path_without_a_similar_one_names_the_root(instance: Instance) -> None:
    """The error has no `nearest` if no path is similar."""
    body = (await instance.admin.get("/wp-login.php")).json()

    assert ("nearest" in body, "GET /" in body["message"]) == (False, True)


async def test_routes_without_a_body_reject_one(instance: Instance, subtests: pytest.Subtests) -> None:
    """`POST …/revoke {"at": …}` is a 422. An empty object and null count as no body."""
    checked = 0
    for endpoint in build_route_table(instance.rookery).endpoints:
        if endpoint.body is not None or endpoint.route.request_media_types or endpoint.route.method == "GET":
            continue  # HTTP gives the body of a GET no meaning
        checked += 1
        with subtests.test(route=operation_name(endpoint)):

            async def send(raw: bytes, endpoint: RouteEndpoint = endpoint) -> tuple[int, dict[str, object]]:
                response = await instance.admin.http.request(
                    endpoint.route.method, _path(endpoint), content=raw, headers={"Content-Type": "application/json"}
                )
                is_json = response.headers.get("content-type") == "application/json"
                return response.status_code, cast("dict[str, object]", response.json()) if is_json and response.content else {}

            if endpoint.route.error_format is not None:  # another protocol with the same statuses
                assert [(await send(raw))[0] for raw in (b"{bad", b'{"zz": 1}')] == [400, 422]
                continue
            status, body = await send(b"{bad")
            assert (status, body["error"]) == (400, "invalid_json")
            status, body = await send(b'{"zz": 1}')
            assert (status, body["errors"]) == (422, {"zz": ["unknown field; this path takes no body"]})
            for other in (b"[]", b"7", b'"x"', b"[{}]"):
                status, body = await send(other)
                assert (status, list(cast("dict[str, object]", body["errors"]))) == (422, ["body"])
            for nothing in (b"", b"{}", b"null"):
                status, body = await send(nothing)
                assert str(body.get("error")) not in {"invalid_json", "unsupported_media_type"}
                assert "body" not in cast("dict[str, object]", body.get("errors") or {})
    assert checked > 20


async def test_routes_whose_fields_are_all_optional_need_no_body(instance: Instance, subtests: pytest.Subtests) -> None:
    """Rotate, release, preview and feedback need no `{}`; one rule applies to all routes."""
    optional = set[str]()
    for endpoint in build_route_table(instance.rookery).endpoints:
        if endpoint.body is None or endpoint.route.method != "POST":
            continue
        with subtests.test(route=operation_name(endpoint)):
            without_body, empty = await instance.admin.http.post(_path(endpoint)), await instance.admin.http.post(_path(endpoint), json={})
            is_required = without_body.status_code in {400, 422} and without_body.json()["errors"] == {"body": ["a JSON body is required"]}
            assert is_required != endpoint.is_body_optional, without_body.text
            if endpoint.is_body_optional:
                optional.add(endpoint.path)
                assert without_body.status_code == empty.status_code
    assert {"/api/v1/api-keys/{key_id}/rotate", "/v1/tasks/{task}/release", "/v1/brain/recall/{recall_id}/feedback"} <= optional


async def test_every_write_compares_or_rejects_if_match(instance: Instance, subtests: pytest.Subtests) -> None:
    """A route without versions rejects every If-Match except `*`, so no update is lost unnoticed."""
    for endpoint in build_route_table(instance.rookery).endpoints:
        route = endpoint.route
        if route.method == "GET" or "If-Match" in route.all_request_headers or route.public:
            continue
        with subtests.test(route=operation_name(endpoint)):
            failed = await instance.admin.http.request(route.method, _path(endpoint), headers={"If-Match": '"9"'})
            assert failed.status_code == 412, failed.text
            any_version = await instance.admin.http.request(route.method, _path(endpoint), headers={"If-Match": "*"})
            assert any_version.status_code != 412


@asynccontextmanager
async def _run_with(settings: Settings, **changes: object) -> AsyncGenerator[Instance]:
    async with run_instance(replace(settings, **changes)) as instance:
        yield instance


def _preflight(**headers: str) -> dict[str, str]:
    return {"Origin": _ORIGIN, "Access-Control-Request-Method": "POST"} | {name.replace("_", "-"): value for name, value in headers.items()}


async def test_a_page_of_an_allowed_origin_can_use_all_headers(settings: Settings) -> None:
    """A preflight allows the headers of REST and MCP and has an X-Request-ID."""
    names = (
        "authorization,mcp-session-id,mcp-protocol-version,mcp-method,last-event-id,idempotency-key,if-match,if-none-match,prefer,"
        "x-session-id,x-workspace-id"
    )
    async with _run_with(settings, cors_origins=(_ORIGIN,)) as instance:
        for path in ("/mcp", "/v1/brain/remember"):
            headers = _preflight(Access_Control_Request_Headers=names, X_Request_ID="mine-1")
            allowed = await instance.caller(None).http.options(path, headers=headers)
            assert (allowed.status_code, allowed.headers["x-request-id"]) == (200, "mine-1"), allowed.text
            assert allowed.headers["access-control-allow-origin"] == _ORIGIN
            assert set(names.split(",")) <= {
                header.strip().lower() for header in allowed.headers["access-control-allow-headers"].split(",")
            }
        response = await instance.admin.get("/v1/brain/tags", Origin=_ORIGIN)
        exposed = {header.strip() for header in response.headers["access-control-expose-headers"].split(",")}

    assert {
        "Mcp-Session-Id", "Deprecation", "Sunset", "ETag", "Retry-After", "X-Request-ID", "X-RateLimit-Limit", "X-RateLimit-Remaining",
        "X-RateLimit-Reset", "X-RateLimit-Scope", "Idempotent-Replay", "Location", "Preference-Applied",
    } <= exposed == set(EXPOSED_HEADERS)  # fmt: skip
    assert "Mcp-Session-Id" in ALLOWED_HEADERS


@pytest.mark.parametrize(
    ("headers", "wrong"),
    [
        ({"Origin": "https://evil.example"}, "https://evil.example"),
        ({"Access_Control_Request_Method": "TRACE"}, "TRACE"),
        ({"Access_Control_Request_Headers": "authorization, x-odd"}, "x-odd"),
    ],
)
async def test_a_rejected_preflight_has_the_usual_error_body(settings: Settings, headers: dict[str, str], wrong: str) -> None:
    """The error is JSON with an X-Request-ID, not plain text."""
    async with _run_with(settings, cors_origins=(_ORIGIN,)) as instance:
        response = await instance.caller(None).http.options("/v1/brain/remember", headers=_preflight(**headers))

    assert (response.status_code, response.json()["error"]) == (400, "invalid_request")
    assert wrong in response.json()["message"]
    assert response.headers["x-request-id"]
    assert response.headers["content-type"] == "application/json"


async def test_the_first_text_loads_the_embedder(settings: Settings) -> None:
    """A server that embeds nothing keeps no model in memory; it is healthy nonetheless."""
    async with run_instance(settings) as running:
        embedder = running.rookery.engines.embedder
        health = await running.caller(None).get("/healthz")
        page = await running.caller(None).get("/")
        was_loaded = embedder.is_loaded
        recall = await running.admin.post("/v1/brain/recall", {"query": "Where do the herons nest?"})

    assert (health.status_code, page.json()["status"], was_loaded) == (200, "ok", False)
    assert (recall.status_code, "notice" in recall.json()) == (200, False)


async def test_a_setting_loads_the_embedder_at_the_start(settings: Settings) -> None:
    """`ROOKERY_PRELOAD_EMBEDDER` is for those whose first question must not wait."""
    async with run_instance(replace(settings, preload_embedder=True)) as running:
        await eventually(lambda: running.rookery.engines.embedder.is_loaded)


@pytest.mark.parametrize(("mode", "ranks"), [("hybrid", (True, True)), ("semantic", (True, False)), ("keyword", (False, True))])
async def test_a_setting_chooses_the_mode_of_recall(
    settings: Settings, mode: Literal["hybrid", "semantic", "keyword"], ranks: tuple[bool, bool]
) -> None:
    """`ROOKERY_RECALL_MODE` applies to requests and tool calls without a mode; its default is hybrid."""
    async with run_instance(replace(settings, recall_mode=mode)) as running:
        await running.admin.remember("We deploy on Tuesdays.")
        body = {"query": "deploy on Tuesdays", "explain": True}
        recalled = (await running.admin.post("/v1/brain/recall", body)).json()["memories"][0]
        called = await running.admin.post("/api/v1/mcp/tools/call", {"server": "brain", "tool": "recall", "arguments": body})

    found_by = recalled["explain"]["ranks"]
    assert (found_by["semantic"] is not None, found_by["keyword"] is not None) == ranks
    assert called.status_code == 200, called.text
    assert called.json()["result"]["structuredContent"]["memories"][0]["score"] == recalled["score"]
    assert settings.recall_mode == "hybrid"


@pytest.mark.embedded_store
async def test_a_nearly_full_disk_is_not_ready_for_writes(settings: Settings) -> None:
    """Writes are refused with 507 then, so a check of the server must show it. Reads work, so the status is 200."""
    async with run_instance(replace(settings, min_free_disk_mb=10**9)) as instance:
        response = await instance.caller(None).get("/readyz")

    body = response.json()
    assert (response.status_code, body["status"]) == (200, "degraded")
    assert body["engines"]["database"].startswith("accepts only reads: Less than 1,000,000,000 MiB are free")
