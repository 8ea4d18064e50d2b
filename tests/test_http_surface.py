"""Behaviour of every path: HEAD, slashes, unknown paths, unread bodies, conditions, CORS (D-05, D-09, D-10, D-11, D-64)."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import cast

import pytest

from rookery.app import build_route_table
from rookery.kernel.config import Settings
from rookery.kernel.http.cross_origin import ALLOWED_HEADERS, EXPOSED_HEADERS
from rookery.kernel.http.routes import RouteEndpoint
from tests.conftest import Instance, run_instance

_ORIGIN = "https://app.example"


def _path(endpoint: RouteEndpoint) -> str:
    path = endpoint.path
    for name in ("{tool:path}", "{name:path}", "{uri:path}"):
        path = path.replace(name, "x")
    return "/".join("x" if part.startswith("{") else part.replace("{plan}.md", "x.md") for part in path.split("/"))


def _named(endpoint: RouteEndpoint) -> str:
    return f"{endpoint.route.method} {endpoint.path}"


async def test_a_program_finds_its_way_from_the_bare_address(instance: Instance) -> None:
    """Issue 14: GET / was a 404; JSON says what runs and links to where one begins."""
    found = await instance.caller(None).get("/")

    body = found.json()
    assert (found.status_code, body["software"], body["status"] in {"ok", "starting", "degraded"}) == (200, "rookery", True)
    for name, url in cast("dict[str, str]", body["links"]).items():
        answer = await instance.admin.get(url.replace("http://127.0.0.1:8400", ""), Accept="text/html, application/json")
        assert answer.status_code == (406 if name == "mcp" else 200), name


async def test_a_person_finds_a_page_at_the_bare_address(instance: Instance) -> None:
    """Issue 14: the first impression was raw JSON of an error; D-09: security headers on every page."""
    page = await instance.caller(None).get("/", Accept="text/html,application/xhtml+xml,*/*;q=0.8")

    assert page.headers["content-type"] == "text/html; charset=utf-8"
    for link in ('href="servers"', 'href="connect"', 'href="api/docs"', 'href="favicon.ico"'):
        assert link in page.text
    assert {"content-security-policy", "x-content-type-options", "referrer-policy"} <= page.headers.keys()


async def test_production_shows_neither_version_nor_documentation_to_strangers(settings: Settings) -> None:
    """Issue 14: the start page links only to what is there; D-35, D-83."""
    async with _house(settings, public_discovery=False, api_docs_enabled=False) as instance:
        stranger, known = (await instance.caller(None).get("/")).json(), (await instance.admin.get("/")).json()
        page = await instance.caller(None).get("/", Accept="text/html")

    assert (stranger["version"], "docs" in stranger["links"]) == (None, False)
    assert isinstance(known["version"], str)
    assert "api/docs" not in page.text


async def test_the_icon_is_served_from_the_package(instance: Instance) -> None:
    """Issue 14: a 404 for each page in every log."""
    icon = await instance.caller(None).get("/favicon.ico")

    assert (icon.status_code, icon.content[:4]) == (200, b"\0\0\1\0")
    assert len(icon.content) < 5_000


async def test_every_get_answers_head(instance: Instance, subtests: pytest.Subtests) -> None:
    """Issue 14: HEAD was 405 everywhere, /healthz included; the same status and headers, and no body. Streams have none."""
    seen = 0
    for endpoint in build_route_table(instance.rookery).endpoints:
        if endpoint.route.method != "GET":
            continue
        with subtests.test(route=_named(endpoint)):
            head = await instance.admin.http.head(_path(endpoint), headers={"Accept": "application/json"})
            if "text/event-stream" in endpoint.docs.media_types:
                assert head.status_code == 405
                continue
            seen += 1
            got = await instance.admin.get(_path(endpoint), Accept="application/json")
            assert (head.status_code, head.content) == (got.status_code, b"")
            varies = {"x-request-id", "content-length", "x-ratelimit-remaining", "x-ratelimit-reset", "etag"}
            assert head.headers.keys() - varies == got.headers.keys() - varies
            assert head.headers.get("content-type") == got.headers.get("content-type")
    assert seen > 50


async def test_a_monitor_may_send_a_query(instance: Instance) -> None:
    """Issue 14: /healthz?x=1 was a 422; load balancers add such."""
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
async def test_a_slash_too_many_leads_to_the_path(instance: Instance, path: str, location: str) -> None:
    """Issue 14: a slash at the end was a 404 without a hint; 308 keeps the method and the query."""
    for method in ("GET", "POST"):
        answer = await instance.admin.http.request(method, path)
        assert (answer.status_code, answer.headers["location"]) == (308, location)


async def test_a_redirect_never_leaves_the_server(instance: Instance) -> None:
    """Issue 14: a path that begins with two slashes would be another host's address in Location; D-09."""
    for path in ("//evil.example/healthz/", "//healthz/", "/%2fevil.example/"):
        answer = await instance.admin.http.get(f"http://localhost{path}")
        assert (answer.status_code, "location" in answer.headers) == (404, False), path


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
    """Issue 14: fields and commands have `did you mean`, paths had none; D-10."""
    body = (await instance.admin.get(path)).json()

    assert body["error"] == "not_found"
    assert any(each.startswith(near) for each in body["nearest"]), body
    assert body["nearest"][0] in body["message"]


async def test_a_path_like_none_names_the_start(instance: Instance) -> None:
    """Issue 14: and no far-fetched one; D-10."""
    body = (await instance.admin.get("/wp-login.php")).json()

    assert ("nearest" in body, "GET /" in body["message"]) == (False, True)


async def test_routes_without_a_body_refuse_one(instance: Instance, subtests: pytest.Subtests) -> None:
    """Issue 14: `POST …/revoke {"at": …}` was carried out without a word; D-10. An empty object and null are no body."""
    seen = 0
    for endpoint in build_route_table(instance.rookery).endpoints:
        if endpoint.body is not None or endpoint.docs.request_media_types or endpoint.route.method == "GET":
            continue  # what a GET carries has no meaning by HTTP itself
        seen += 1
        with subtests.test(route=_named(endpoint)):

            async def send(raw: bytes, endpoint: RouteEndpoint = endpoint) -> tuple[int, dict[str, object]]:
                answer = await instance.admin.http.request(
                    endpoint.route.method, _path(endpoint), content=raw, headers={"Content-Type": "application/json"}
                )
                is_json = answer.headers.get("content-type") == "application/json"
                return answer.status_code, cast("dict[str, object]", answer.json()) if is_json and answer.content else {}

            if endpoint.route.error_format is not None:  # a protocol of its own, with the same statuses
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
    assert seen > 20


async def test_routes_whose_fields_are_all_optional_need_no_body(instance: Instance, subtests: pytest.Subtests) -> None:
    """Issue 14: rotate, release, preview and feedback wanted `{}`, claim and end did not; one rule for all (D-10)."""
    seen = set[str]()
    for endpoint in build_route_table(instance.rookery).endpoints:
        if endpoint.body is None or endpoint.route.method != "POST":
            continue
        with subtests.test(route=_named(endpoint)):
            none, empty = await instance.admin.http.post(_path(endpoint)), await instance.admin.http.post(_path(endpoint), json={})
            is_required = none.status_code in {400, 422} and none.json()["errors"] == {"body": ["a JSON body is required"]}
            assert is_required != endpoint.is_body_optional, none.text
            if endpoint.is_body_optional:
                seen.add(endpoint.path)
                assert none.status_code == empty.status_code
    assert {"/api/v1/api-keys/{key_id}/rotate", "/v1/tasks/{task}/release", "/v1/brain/recall/{recall_id}/feedback"} <= seen


async def test_if_match_is_honoured_or_refused_by_every_write(instance: Instance, subtests: pytest.Subtests) -> None:
    """Issue 14: If-Match was passed over, so lost updates went unseen; D-64. What has no version says so."""
    for endpoint in build_route_table(instance.rookery).endpoints:
        route = endpoint.route
        if route.method == "GET" or "If-Match" in route.docs.request_headers or route.public:
            continue
        with subtests.test(route=_named(endpoint)):
            refused = await instance.admin.http.request(route.method, _path(endpoint), headers={"If-Match": '"9"'})
            assert refused.status_code == 412, refused.text
            any_version = await instance.admin.http.request(route.method, _path(endpoint), headers={"If-Match": "*"})
            assert any_version.status_code != 412


@asynccontextmanager
async def _house(settings: Settings, **changes: object) -> AsyncGenerator[Instance]:
    async with run_instance(replace(settings, **changes)) as opened:
        yield opened


def _preflight(**headers: str) -> dict[str, str]:
    return {"Origin": _ORIGIN, "Access-Control-Request-Method": "POST"} | {name.replace("_", "-"): value for name, value in headers.items()}


async def test_a_page_of_an_allowed_origin_can_use_everything(settings: Settings) -> None:
    """Issue 14: a preflight had no X-Request-ID, and no page could speak MCP; D-09, D-11, D-36."""
    names = (
        "authorization,mcp-session-id,mcp-protocol-version,mcp-method,last-event-id,idempotency-key,if-match,if-none-match,prefer,"
        "x-session-id,x-workspace-id"
    )
    async with _house(settings, cors_origins=(_ORIGIN,)) as instance:
        for path in ("/mcp", "/v1/brain/remember"):
            asked = _preflight(Access_Control_Request_Headers=names, X_Request_ID="mine-1")
            allowed = await instance.caller(None).http.options(path, headers=asked)
            assert (allowed.status_code, allowed.headers["x-request-id"]) == (200, "mine-1"), allowed.text
            assert allowed.headers["access-control-allow-origin"] == _ORIGIN
            assert set(names.split(",")) <= {each.strip().lower() for each in allowed.headers["access-control-allow-headers"].split(",")}
        read = await instance.admin.get("/v1/brain/tags", Origin=_ORIGIN)
        exposed = {each.strip() for each in read.headers["access-control-expose-headers"].split(",")}

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
async def test_a_refused_preflight_is_the_one_error_body(settings: Settings, headers: dict[str, str], wrong: str) -> None:
    """Issue 14: it was the plain text "Disallowed CORS origin", without X-Request-ID; D-10, D-11."""
    async with _house(settings, cors_origins=(_ORIGIN,)) as instance:
        refused = await instance.caller(None).http.options("/v1/brain/remember", headers=_preflight(**headers))

    assert (refused.status_code, refused.json()["error"]) == (400, "invalid_request")
    assert wrong in refused.json()["message"]
    assert refused.headers["x-request-id"]
    assert refused.headers["content-type"] == "application/json"
