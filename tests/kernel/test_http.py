"""Behaviour common to all routes: parsing, errors, pagination, request ids."""

from __future__ import annotations

import asyncio
import json

import httpx2
import pytest
from dirty_equals import IsStr

from rookery.kernel.http import request_body
from rookery.kernel.http.connection_limit import TransferLimits
from tests.guards import FakeGuard

_WRITE = {"X-Test-Scope": "notes:write"}
_READ = {"X-Test-Scope": "notes:read"}


async def _post(toy: httpx2.AsyncClient, content: bytes | str, **headers: str) -> httpx2.Response:
    return await toy.post("/api/notes", content=content, headers={"Content-Type": "application/json", **_WRITE, **headers})


async def test_a_valid_body_is_parsed_and_the_request_recorded(toy: httpx2.AsyncClient, guard: FakeGuard) -> None:
    """Times are returned as ISO 8601 with Z, and the response has the key's headers."""
    response = await _post(toy, '{"text": "é𝄞", "at": "2026-11-21T10:30:00+01:00"}')

    assert response.status_code == 201
    assert response.json() == {"text": "é𝄞", "count": 0, "weight": 0.0, "at": "2026-11-21T09:30:00.000000Z", "free": {}}
    assert response.headers["x-ratelimit-limit"] == "7"
    assert response.headers["content-type"] == "application/json"
    assert guard.recorded == [("POST", "/api/notes", 201)]


@pytest.mark.parametrize(
    ("content", "status", "code", "field"),
    [
        ("", 422, "validation_error", "body"),
        ("{", 400, "invalid_json", None),
        ("nonsense", 400, "invalid_json", None),
        (b"\xff\xfe", 400, "invalid_json", None),
        ("[]", 422, "validation_error", "body"),
        ("null", 422, "validation_error", "body"),
        ("{}", 422, "validation_error", "text"),
        ('{"text": ""}', 422, "validation_error", "text"),
        ('{"text": 5}', 422, "validation_error", "text"),
        ('{"text": "a", "count": "5"}', 422, "validation_error", "count"),
        ('{"text": "a", "count": 1.5}', 422, "validation_error", "count"),
        ('{"text": "a", "at": "yesterday"}', 422, "validation_error", "at"),
        ('{"text": "a", "at": 5}', 422, "validation_error", "at"),
        ('{"text": "a", "weight": NaN}', 422, "validation_error", "body"),
        ('{"text": "a", "free": {"deep": Infinity}}', 422, "validation_error", "body"),
        ('{"text": "a", "weight": 1e999}', 422, "validation_error", "body"),
        ('{"text": "a\\u0000b"}', 422, "validation_error", "body"),
        ('{"text": "a\x00b"}', 422, "validation_error", "body"),
        ('{"text": "\\ud800"}', 422, "validation_error", "body"),
        ('{"text": "a", "free": {"x": ' + "[" * 70 + "]" * 70 + "}}", 422, "validation_error", "body"),
        ("[" * 400 + "]" * 400, 422, "validation_error", "body"),
        ("x" * 1001, 413, "payload_too_large", None),
    ],
)
async def test_an_invalid_body_gets_the_standard_error_body(
    toy: httpx2.AsyncClient, content: str | bytes, status: int, code: str, field: str | None
) -> None:
    """Each kind of invalid input has its status and code, never a 500."""
    response = await _post(toy, content)

    body = response.json()
    assert (response.status_code, body["error"]) == (status, code), body
    assert isinstance(body["message"], str)
    if field is not None:
        assert field in body["errors"]


async def test_an_escaped_backslash_before_u0000_is_not_a_nul(toy: httpx2.AsyncClient) -> None:
    """NUL is rejected, but the text backslash-u0000 is not."""
    response = await _post(toy, json.dumps({"text": "\\u0000"}))

    assert response.json()["text"] == "\\u0000"


async def test_an_unknown_field_gets_a_suggestion(toy: httpx2.AsyncClient) -> None:
    """Unknown fields of bodies and queries are 422, but not inside free-form objects."""
    body_response = await _post(toy, '{"text": "a", "cuont": 1, "free": {"anything": 1}}')
    query_response = await toy.get("/api/notes?per_pag=5", headers=_READ)
    no_suggestion_response = await toy.get("/api/notes/a?x=5", headers=_READ)

    assert body_response.json()["errors"] == {"cuont": ["unknown field; did you mean 'count'?"]}
    assert query_response.json()["errors"] == {"per_pag": ["unknown field; did you mean 'per_page'?"]}
    assert (no_suggestion_response.status_code, list(no_suggestion_response.json()["errors"])) == (422, ["x"])


@pytest.mark.parametrize("query", ["page=0", "page=x", "per_page=101", "page=1&page=2", "page=%00", "page=%ff", "a=&" * 101])
async def test_an_invalid_query_is_422(toy: httpx2.AsyncClient, query: str) -> None:
    """Numbers out of range are rejected, not clamped."""
    response = await toy.get(f"/api/notes?{query}", headers=_READ)

    assert (response.status_code, response.json()["error"]) == (422, "validation_error")


async def test_other_media_types_are_415(toy: httpx2.AsyncClient) -> None:
    """The message for curl's default media type names application/json."""
    response = await _post(toy, "text=a", **{"Content-Type": "application/x-www-form-urlencoded"})

    assert (response.status_code, response.json()["error"]) == (415, "unsupported_media_type")
    assert "application/json" in response.json()["message"]


async def test_a_page_has_links_with_the_public_url(toy: httpx2.AsyncClient) -> None:
    """Links never use the Host header."""
    response = (await toy.get("/api/notes?page=2&per_page=15", headers=_READ)).json()
    page_after_last = (await toy.get("/api/notes?page=9", headers=_READ)).json()

    assert [item["number"] for item in response["data"]] == list(range(15, 30))
    assert response["links"] == {
        "first": "https://shown.example/api/notes?per_page=15&page=1",
        "last": "https://shown.example/api/notes?per_page=15&page=3",
        "prev": "https://shown.example/api/notes?per_page=15&page=1",
        "next": "https://shown.example/api/notes?per_page=15&page=3",
    }
    assert response["meta"] == {"current_page": 2, "per_page": 15, "total": 40, "next_cursor": IsStr()}
    assert (page_after_last["data"], page_after_last["links"]["prev"], page_after_last["links"]["next"]) == (
        [],
        "https://shown.example/api/notes?page=3",
        None,
    )


async def test_a_path_parameter_may_contain_slashes(toy: httpx2.AsyncClient) -> None:
    """It may be raw or percent-encoded, and is decoded once."""
    responses = [await toy.get(f"/api/files/{path}", headers=_READ) for path in ("a://b/c", "a%3A%2F%2Fb%2Fc", "a%253A")]

    assert [response.json()["uri"] for response in responses] == ["a://b/c", "a://b/c", "a%3A"]


async def test_unknown_paths_and_methods_get_the_standard_error_body(toy: httpx2.AsyncClient) -> None:
    """An unknown path is 404, and an unknown method is 405 with Allow."""
    unknown_path = await toy.get("/nowhere")
    static_path = await toy.delete("/api/notes")
    path_with_parameter = await toy.patch("/api/notes/a")

    assert (unknown_path.status_code, unknown_path.json()["error"]) == (404, "not_found")
    assert (static_path.status_code, static_path.json()["error"], static_path.headers["allow"]) == (
        405,
        "method_not_allowed",
        "GET, HEAD, POST",
    )
    assert (path_with_parameter.status_code, path_with_parameter.headers["allow"]) == (405, "DELETE, GET, HEAD")


async def test_responses_for_unknown_routes_have_the_headers_of_a_known_key(toy: httpx2.AsyncClient) -> None:
    """Every response to a known key has its rate limit headers; other responses do not."""
    known_key = {"X-Test-Scope": "known"}
    responses = [await toy.get("/nowhere", headers=known_key), await toy.delete("/api/notes", headers=known_key), await toy.get("/nowhere")]

    assert [response.headers.get("x-ratelimit-limit") for response in responses] == ["7", "7", None]


async def test_a_body_that_does_not_arrive_times_out() -> None:
    """The time for a body is limited from its first byte on."""

    async def receive_nothing() -> dict[str, object]:
        await asyncio.Event().wait()
        raise AssertionError

    with pytest.raises(request_body.RequestTimeout) as error:
        await request_body.read_body(receive_nothing, limit=10, scope={"headers": []}, transfer=TransferLimits(stall_timeout_s=0.01))

    assert error.value.headers == {"Connection": "close"}


async def test_a_byte_order_mark_is_rejected_with_a_reason(toy: httpx2.AsyncClient) -> None:
    """The message names the byte order mark."""
    response = await toy.post("/api/notes", content=b"\xef\xbb\xbf{}", headers={"X-Test-Scope": "notes:write"})

    assert (response.status_code, response.json()["error"]) == (400, "invalid_json")
    assert "byte order mark" in response.json()["message"]


async def test_the_body_of_a_rejected_caller_is_not_read(toy: httpx2.AsyncClient) -> None:
    """Permissions are checked before the body is read."""
    response = await toy.post("/api/notes", content=b"x" * 5000)

    assert (response.status_code, response.json()["error"]) == (403, "permission_denied")


async def test_an_internal_error_contains_only_its_request_id(toy: httpx2.AsyncClient, capsys: pytest.CaptureFixture[str]) -> None:
    """The traceback is in the log only."""
    response = await toy.get("/api/broken", headers={"X-Request-ID": "mine-1"})

    assert response.status_code == 500
    assert set(response.json()) == {"error", "message", "request_id"}
    assert (response.json()["error"], response.json()["request_id"]) == ("internal_error", "mine-1")
    assert "hidden" not in response.text
    assert "ZeroDivisionError" in "".join(capsys.readouterr())


@pytest.mark.parametrize(
    ("sent_id", "is_kept"), [("abc-1.2_3", True), ("x" * 128, True), ("x" * 129, False), ("a b", False), ("é".encode(), False)]
)
async def test_a_valid_request_id_of_the_caller_is_used(toy: httpx2.AsyncClient, sent_id: str | bytes, *, is_kept: bool) -> None:
    """Every response has X-Request-ID."""
    response = await toy.get("/nowhere", headers=[(b"x-request-id", sent_id if isinstance(sent_id, bytes) else sent_id.encode())])

    request_id = response.headers["x-request-id"]
    assert (request_id == sent_id) if is_kept else (request_id.startswith("req_") and len(request_id) == 24)


@pytest.mark.parametrize(
    ("host", "status"),
    [("rookery.test", 403), ("ROOKERY.test:99", 403), ("evil.test", 400), ("", 400), ("[", 400), ("rookery.test.evil", 400)],
)
async def test_only_allowed_hosts_are_served(toy: httpx2.AsyncClient, host: str, status: int) -> None:
    """This protects from DNS rebinding."""
    response = await toy.get("/api/notes", headers={"Host": host})

    assert response.status_code == status


_LINK = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
"""Headers that a browser sends for a link on a page of another site."""


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Origin": "http://evil.test"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Origin": "http://rookery.test", "Sec-Fetch-Site": "same-origin"}, 200),
        ({}, 200),
        (_LINK, 200),
        ({**_LINK, "Sec-Fetch-Dest": "iframe"}, 403),
        ({**_LINK, "Sec-Fetch-Mode": "no-cors"}, 403),
        ({**_LINK, "Origin": "null"}, 403),
    ],
)
async def test_basic_credentials_are_rejected_from_another_site(toy: httpx2.AsyncClient, headers: dict[str, str], status: int) -> None:
    """A page of another site must not use the Basic credentials that a browser stores."""
    basic_response = await toy.get("/api/notes/a", headers={**_READ, "Authorization": "Basic abc", **headers})
    bearer_response = await toy.get("/api/notes/a", headers={**_READ, "Authorization": "Bearer abc", **headers})

    assert (basic_response.status_code, bearer_response.status_code) == (status, 200)


async def test_a_form_of_another_site_cannot_use_basic_credentials(toy: httpx2.AsyncClient) -> None:
    """Links from another site work with GET, but forms with POST and Basic are rejected."""
    response = await toy.post("/api/notes/a", headers={**_READ, "Authorization": "Basic abc", **_LINK})

    assert (response.status_code, response.json()["error"]) == (403, "cross_site")
