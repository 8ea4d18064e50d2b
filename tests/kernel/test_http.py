"""Behaviour common to all routes: parsing, errors, pagination, request ids."""

from __future__ import annotations

import asyncio
import json

import httpx2
import pytest

from rookery.kernel.http import request_body
from tests.kernel.conftest import FakeGuard

_WRITE = {"X-Test-Scope": "notes:write"}
_READ = {"X-Test-Scope": "notes:read"}


async def _post(toy: httpx2.AsyncClient, content: bytes | str, **headers: str) -> httpx2.Response:
    return await toy.post("/api/notes", content=content, headers={"Content-Type": "application/json", **_WRITE, **headers})


async def test_a_good_body_is_understood_and_answered(toy: httpx2.AsyncClient, guard: FakeGuard) -> None:
    """D-13: times come back as ISO 8601 with Z; spec 5.3 step 7: the call is recorded; the key's headers are on it."""
    answer = await _post(toy, '{"text": "é𝄞", "at": "2026-11-21T10:30:00+01:00"}')

    assert answer.status_code == 201
    assert answer.json() == {"text": "é𝄞", "count": 0, "weight": 0.0, "at": "2026-11-21T09:30:00.000000Z", "free": {}}
    assert answer.headers["x-ratelimit-limit"] == "7"
    assert answer.headers["content-type"] == "application/json"
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
async def test_a_bad_body_gets_the_one_error_body(
    toy: httpx2.AsyncClient, content: str | bytes, status: int, code: str, field: str | None
) -> None:
    """D-10, D-16: each kind of bad input has its status and code, never a 500."""
    answer = await _post(toy, content)

    body = answer.json()
    assert (answer.status_code, body["error"]) == (status, code), body
    assert isinstance(body["message"], str)
    if field is not None:
        assert field in body["errors"]


async def test_an_escaped_backslash_before_u0000_is_no_nul(toy: httpx2.AsyncClient) -> None:
    """D-16: NUL is refused, the text backslash-u0000 is not."""
    answer = await _post(toy, json.dumps({"text": "\\u0000"}))

    assert answer.json()["text"] == "\\u0000"


async def test_an_unknown_field_names_the_nearest(toy: httpx2.AsyncClient) -> None:
    """D-10: unknown fields of a body or query are 422 naming the nearest; not inside free-form objects."""
    body = await _post(toy, '{"text": "a", "cuont": 1, "free": {"anything": 1}}')
    query = await toy.get("/api/notes?per_pag=5", headers=_READ)
    none = await toy.get("/api/notes/a?x=5", headers=_READ)

    assert body.json()["errors"] == {"cuont": ["unknown field; did you mean 'count'?"]}
    assert query.json()["errors"] == {"per_pag": ["unknown field; did you mean 'per_page'?"]}
    assert (none.status_code, list(none.json()["errors"])) == (422, ["x"])


@pytest.mark.parametrize("query", ["page=0", "page=x", "per_page=101", "page=1&page=2", "page=%00", "page=%ff", "a=&" * 101])
async def test_a_bad_query_is_422(toy: httpx2.AsyncClient, query: str) -> None:
    """D-10: numbers out of range are 422, not clamped."""
    answer = await toy.get(f"/api/notes?{query}", headers=_READ)

    assert (answer.status_code, answer.json()["error"]) == (422, "validation_error")


async def test_other_media_types_are_415(toy: httpx2.AsyncClient) -> None:
    """D-10: 415; what curl sends by default gets a message that says what to do."""
    answer = await _post(toy, "text=a", **{"Content-Type": "application/x-www-form-urlencoded"})

    assert (answer.status_code, answer.json()["error"]) == (415, "unsupported_media_type")
    assert "application/json" in answer.json()["message"]


async def test_a_page_has_links_under_our_own_address(toy: httpx2.AsyncClient) -> None:
    """Spec 4.6, D-12: data, links, meta; links never come from the Host header."""
    answer = (await toy.get("/api/notes?page=2&per_page=15", headers=_READ)).json()
    beyond = (await toy.get("/api/notes?page=9", headers=_READ)).json()

    assert [item["number"] for item in answer["data"]] == list(range(15, 30))
    assert answer["links"] == {
        "first": "https://shown.example/api/notes?per_page=15&page=1",
        "last": "https://shown.example/api/notes?per_page=15&page=3",
        "prev": "https://shown.example/api/notes?per_page=15&page=1",
        "next": "https://shown.example/api/notes?per_page=15&page=3",
    }
    assert answer["meta"] == {"current_page": 2, "per_page": 15, "total": 40}
    assert (beyond["data"], beyond["links"]["prev"], beyond["links"]["next"]) == ([], "https://shown.example/api/notes?page=3", None)


async def test_a_path_parameter_is_taken_whole(toy: httpx2.AsyncClient) -> None:
    """D-30: raw or percent-encoded in the path, decoded once."""
    answers = [await toy.get(f"/api/files/{path}", headers=_READ) for path in ("a://b/c", "a%3A%2F%2Fb%2Fc", "a%253A")]

    assert [answer.json()["uri"] for answer in answers] == ["a://b/c", "a://b/c", "a%3A"]


async def test_unknown_paths_and_methods_have_the_one_body(toy: httpx2.AsyncClient) -> None:
    """D-10: not_found for an unknown route, 405 with Allow."""
    missing = await toy.get("/nowhere")
    fixed = await toy.delete("/api/notes")
    matched = await toy.patch("/api/notes/a")

    assert (missing.status_code, missing.json()["error"]) == (404, "not_found")
    assert (fixed.status_code, fixed.json()["error"], fixed.headers["allow"]) == (405, "method_not_allowed", "GET, HEAD, POST")
    assert (matched.status_code, matched.headers["allow"]) == (405, "DELETE, GET, HEAD")


async def test_a_known_key_has_its_headers_where_no_route_is(toy: httpx2.AsyncClient) -> None:
    """D-27: headers on every answer to a known key; the public is told no more than before."""
    known = {"X-Test-Scope": "known"}
    answers = [await toy.get("/nowhere", headers=known), await toy.delete("/api/notes", headers=known), await toy.get("/nowhere")]

    assert [answer.headers.get("x-ratelimit-limit") for answer in answers] == ["7", "7", None]


async def test_a_body_that_never_comes_is_not_waited_for_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """D-16: bodies are bounded while they arrive, in time too, from their first byte on."""
    monkeypatch.setattr(request_body, "_BODY_TIMEOUT_S", 0.01)

    async def never() -> dict[str, object]:
        await asyncio.Event().wait()
        raise AssertionError

    with pytest.raises(request_body.RequestTimeout) as refused:
        await request_body.read_body(never, limit=10)

    assert refused.value.headers == {"Connection": "close"}


async def test_a_byte_order_mark_is_named(toy: httpx2.AsyncClient) -> None:
    """D-10: the message says what to do."""
    answer = await toy.post("/api/notes", content=b"\xef\xbb\xbf{}", headers={"X-Test-Scope": "notes:write"})

    assert (answer.status_code, answer.json()["error"]) == (400, "invalid_json")
    assert "byte order mark" in answer.json()["message"]


async def test_a_refused_caller_s_body_is_never_read(toy: httpx2.AsyncClient) -> None:
    """Spec 5.3: permission comes before anything that the caller sent is looked at."""
    answer = await toy.post("/api/notes", content=b"x" * 5000)

    assert (answer.status_code, answer.json()["error"]) == (403, "permission_denied")


async def test_a_mistake_of_ours_tells_nothing_but_its_id(toy: httpx2.AsyncClient, capsys: pytest.CaptureFixture[str]) -> None:
    """D-10: a 500 carries internal_error and request_id, never a trace; the log has it."""
    answer = await toy.get("/api/broken", headers={"X-Request-ID": "mine-1"})

    assert answer.status_code == 500
    assert set(answer.json()) == {"error", "message", "request_id"}
    assert (answer.json()["error"], answer.json()["request_id"]) == ("internal_error", "mine-1")
    assert "hidden" not in answer.text
    assert "ZeroDivisionError" in "".join(capsys.readouterr())


@pytest.mark.parametrize(
    ("given", "kept"), [("abc-1.2_3", True), ("x" * 128, True), ("x" * 129, False), ("a b", False), ("é".encode(), False)]
)
async def test_the_request_id_is_the_callers_if_it_is_plain(toy: httpx2.AsyncClient, given: str | bytes, *, kept: bool) -> None:
    """D-11: X-Request-ID on every answer."""
    answer = await toy.get("/nowhere", headers=[(b"x-request-id", given if isinstance(given, bytes) else given.encode())])

    shown = answer.headers["x-request-id"]
    assert (shown == given) if kept else (shown.startswith("req_") and len(shown) == 24)


@pytest.mark.parametrize(
    ("host", "status"),
    [("rookery.test", 403), ("ROOKERY.test:99", 403), ("evil.test", 400), ("", 400), ("[", 400), ("rookery.test.evil", 400)],
)
async def test_only_our_hosts_are_served(toy: httpx2.AsyncClient, host: str, status: int) -> None:
    """D-09: allowed hosts; a rebinding page gets nothing."""
    answer = await toy.get("/api/notes", headers={"Host": host})

    assert answer.status_code == status


_LINK = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
"""What a browser says when somebody follows a link on a page of another site."""


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
async def test_basic_credentials_are_not_taken_from_another_site(toy: httpx2.AsyncClient, headers: dict[str, str], status: int) -> None:
    """D-09: a browser that remembers Basic credentials must not lend them to a foreign page."""
    basic = await toy.get("/api/notes/a", headers={**_READ, "Authorization": "Basic abc", **headers})
    bearer = await toy.get("/api/notes/a", headers={**_READ, "Authorization": "Bearer abc", **headers})

    assert (basic.status_code, bearer.status_code) == (status, 200)


async def test_a_form_of_another_site_sends_nothing_in_somebodys_name(toy: httpx2.AsyncClient) -> None:
    """D-09, D-83: a link leads to a page of ours; a form that a browser opens in the same way, with Basic, does not get in."""
    posted = await toy.post("/api/notes/a", headers={**_READ, "Authorization": "Basic abc", **_LINK})

    assert (posted.status_code, posted.json()["error"]) == (403, "cross_site")
