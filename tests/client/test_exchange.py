"""When a call is sent again, and what a response means. Pure."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from rookery_client import ApiError, ConnectionFailed, UnexpectedResponse
from rookery_client.calls import UNSET, Call, fill_path, given
from rookery_client.errors import ClientError, NotFoundError
from rookery_client.exchange import Exchange, Options, Retry
from rookery_client.generated.errors import RateLimited, ScopeMissing
from rookery_client.pages import PageBody

GET = Call(operation="get_plan", method="GET", path="/plans/1", result=dict[str, object])
POST = Call(operation="call_tool", method="POST", path="/tools", result=dict[str, object], body={})
STREAMED_POST = Call(
    operation="create_generation",
    method="POST",
    path="/generations",
    result=dict[str, object],
    body={},
    accepts_key=True,
    accept="text/event-stream",
)
READING_POST = Call(operation="recall", method="POST", path="/recall", result=dict[str, object], body={}, repeatable=True)
KEYED_POST = Call(operation="create_plan", method="POST", path="/plans", result=dict[str, object], body={}, accepts_key=True)


def error(code: str, **detail: object) -> bytes:
    """Return the body of an error."""
    return json.dumps({"error": code, "message": "A sentence.", **detail}).encode()


def begin(call: Call[dict[str, object]], *, attempts: int = 1, max_retries: int = 3) -> Exchange[dict[str, object]]:
    """Return an exchange in its attempt number *attempts*."""
    return Exchange(call, Options(max_retries=max_retries), attempts=attempts)


@pytest.mark.parametrize(
    ("call", "status", "headers", "body"),
    [
        (GET, 503, {}, error("engine_unavailable")),
        (GET, 500, {}, error("internal_error")),
        (KEYED_POST, 502, {}, b"<html>bad gateway</html>"),
        (POST, 429, {"retry-after": "2"}, error("rate_limit_exceeded")),
        (POST, 503, {"retry-after": "2"}, error("server_full")),
        (KEYED_POST, 503, {"retry-after": "2"}, error("engine_unavailable")),
        (KEYED_POST, 409, {"retry-after": "1"}, error("idempotency_in_progress")),
        (READING_POST, 500, {}, error("internal_error")),
        (STREAMED_POST, 429, {"retry-after": "2"}, error("rate_limit_exceeded")),
    ],
)
def test_a_request_that_acts_once_is_sent_again(call: Call[dict[str, object]], status: int, headers: dict[str, str], body: bytes) -> None:
    """Reads, writes with an Idempotency-Key, and what the server says it has not touched. Retry-After is kept exactly."""
    result = begin(call).receive(status, headers, body)

    assert isinstance(result, Retry)
    assert result.delay_s == float(headers["retry-after"]) if headers else 0 < result.delay_s <= 0.25


@pytest.mark.parametrize(
    ("call", "status", "headers", "body"),
    [
        (POST, 500, {}, error("tool_error", success=False)),
        (POST, 503, {"retry-after": "2"}, error("engine_unavailable")),
        (POST, 502, {}, error("server_unavailable", success=False)),
        (POST, 500, {}, error("internal_error")),
        (STREAMED_POST, 500, {}, error("internal_error")),
        (GET, 404, {}, error("resource_not_found")),
        (GET, 429, {"retry-after": "3600"}, error("rate_limit_exceeded")),
    ],
)
def test_a_request_that_could_act_twice_is_not_sent_again(
    call: Call[dict[str, object]], status: int, headers: dict[str, str], body: bytes
) -> None:
    """Never a tool's failure, never a POST of unknown outcome (a 503 of the record store may hide a commit), nor after an hour."""
    with pytest.raises(ApiError) as caught:
        begin(call).receive(status, headers, body)

    assert (caught.value.status, caught.value.code) == (status, json.loads(body)["error"])


def test_attempts_are_bounded() -> None:
    """Three further attempts by default, then the error of the last one."""
    with pytest.raises(ApiError, match="engine_unavailable"):
        begin(GET, attempts=4).receive(503, {}, error("engine_unavailable"))
    with pytest.raises(ConnectionFailed, match="get_plan has no response: refused"):
        begin(GET, attempts=4).fail("refused", may_have_acted=False)


@pytest.mark.parametrize(
    ("call", "may_have_acted", "is_retried"),
    [
        (GET, True, True),
        (READING_POST, True, True),
        (POST, False, True),
        (POST, True, False),
        (KEYED_POST, True, True),
        (STREAMED_POST, False, True),
        (STREAMED_POST, True, False),
    ],
)
def test_a_lost_connection_is_no_reason_to_act_twice(call: Call[dict[str, object]], *, may_have_acted: bool, is_retried: bool) -> None:
    """A POST without a key is repeated only if it was never sent."""
    if is_retried:
        assert isinstance(begin(call).fail("closed", may_have_acted=may_have_acted), Retry)
    else:
        with pytest.raises(ConnectionFailed) as caught:
            begin(call).fail("closed", may_have_acted=may_have_acted)
        assert caught.value.may_have_acted


def test_each_code_has_a_class() -> None:
    """Errors as classes with the server's codes; a code of a newer server falls back to the class of its status."""
    with pytest.raises(ScopeMissing) as caught:
        begin(GET).receive(403, {"x-request-id": "req_1"}, error("scope_missing", required_scope="brain:read"))
    assert (caught.value.detail, caught.value.request_id) == ({"required_scope": "brain:read"}, "req_1")
    with pytest.raises(RateLimited) as limited:
        begin(POST, attempts=4).receive(429, {"retry-after": "7"}, error("rate_limited"))
    assert limited.value.retry_after_s == 7
    with pytest.raises(NotFoundError, match="new_code"):
        begin(GET).receive(404, {}, error("new_code"))
    with pytest.raises(ClientError, match="new_code"):
        begin(GET).receive(418, {}, error("new_code"))


@pytest.mark.parametrize(
    ("status", "body"), [(200, b"<html>"), (200, b"[1]"), (404, b"<html>no such page</html>"), (404, b"[" * 100_000), (302, b"")]
)
def test_a_response_of_something_else_is_named(status: int, body: bytes) -> None:
    """A proxy's page is not mistaken for a result."""
    with pytest.raises(UnexpectedResponse, match="get_plan") as caught:
        begin(GET).receive(status, {}, body)

    assert caught.value.status == status


@pytest.mark.parametrize(
    ("next_cursor", "following"),
    [
        ("abc", {"cursor": "abc"}),
        (None, None),
    ],
)
def test_the_next_page_has_a_cursor(next_cursor: str | None, following: object) -> None:
    """The pages after a page are fetched by cursor, also if the page itself was requested by its number."""
    meta = {"current_page": 1, "per_page": 1, "total": 2, "next_cursor": next_cursor}
    body = PageBody[int].model_validate({"data": [1], "links": {}, "meta": meta})
    call = replace(GET, query={"q": "x", "page": 1}).at_page(body.following or {})

    assert body.following == following
    assert call.query == {"q": "x", **(body.following or {})}


def test_the_key_is_the_same_in_every_attempt() -> None:
    """A repeated POST is recognised by its key, and two calls have different ones."""
    exchange, other = begin(KEYED_POST), begin(KEYED_POST)
    first = exchange.headers["Idempotency-Key"]
    exchange.attempts += 1

    assert exchange.headers["Idempotency-Key"] == first != other.headers["Idempotency-Key"]
    assert "Idempotency-Key" not in begin(POST).headers


def test_unset_arguments_are_not_sent_and_null_is() -> None:
    """Null clears a field, a missing one leaves it unchanged."""
    assert given(name="a", notes=None, position=UNSET, from_=3) == {"name": "a", "notes": None, "from": 3}


@pytest.mark.parametrize("value", ["a/b", "ü?#%", "a b", "../x"])
def test_a_path_parameter_is_one_segment(value: str) -> None:
    """An id with a slash cannot reach another route."""
    path = fill_path("/plans/{plan}/tasks", plan=value)

    assert path.count("/") == 3
    assert not {"?", "#", " "} & set(path)


@pytest.mark.parametrize("value", ["", ".", ".."])
def test_a_path_parameter_is_not_empty(value: str) -> None:
    """Without this, deleting the task "" would delete all tasks, or what is above them."""
    with pytest.raises(ValueError, match="plan is"):
        fill_path("/plans/{plan}/tasks", plan=value)


def test_half_of_a_surrogate_pair_is_sent_as_its_escape() -> None:
    """The server names the place of a text that no UTF-8 can express; the client does not fail on it."""
    call = Call(operation="create_plan", method="POST", path="/plans", result=dict[str, object], body={"name": "ä\ud800"})
    assert call.encode_body() == b'{"name": "\\u00e4\\ud800"}'
