"""Invalid input to every route: always the error body, never a 500, nothing stored."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator
from itertools import product
from typing import Any, Protocol, TypedDict, cast

import httpx2
import pytest
import requests
from hypothesis import HealthCheck, Phase, assume, given
from hypothesis import settings as examples
from hypothesis import strategies as st
from hypothesis.errors import Unsatisfiable
from schemathesis import openapi
from schemathesis.generation import GenerationMode

from rookery.kernel.http.routes import RouteEndpoint, RouteTable
from rookery.reference.openapi import build_document
from rookery.reference.operation_names import document_path
from tests.conftest import Instance
from tests.error_bodies import error_body

_CODES = frozenset({400, 404, 405, 409, 410, 413, 415, 422})
"""The statuses of requests that are wrong; 410 is that of a link with an invalid token."""


def _raw_bodies(endpoint: RouteEndpoint) -> Iterator[tuple[str, bytes]]:
    """Yield bodies that every route rejects, each with a description of its fault."""
    yield "nothing", b""
    yield "not JSON", b"{"
    yield "not UTF-8", b'{"type": "\xff"}'
    yield "a list", b"[]"
    yield "a number", b"7"
    yield "null", b"null"
    yield "NaN", b'{"confidence": NaN}'
    yield "Infinity", b'{"free": -Infinity}'
    yield "NUL", b'{"type": "fact", "content": "a\\u0000b"}'
    yield "a raw NUL", b'{"type": "fact", "content": "a\x00b"}'
    yield "a lone surrogate", b'{"type": "fact", "content": "\\udc00"}'
    yield "too deep", b'{"arguments": ' + b'{"a":' * 70 + b"1" + b"}" * 70 + b"}"
    yield "far too deep", b"[" * 100_000
    yield "too large", b'{"content": "' + b"x" * endpoint.route.max_body_bytes + b'"}'


def _fill(path: str) -> str:
    for name, value in (
        ("{memory_id}", "x"),
        ("{server_id}", "brain"),
        ("{tool:path}", "remember"),
        ("{name:path}", "x"),
        ("{uri:path}", "x"),
    ):
        path = path.replace(name, value)
    return path


def _assert_rejected(response: httpx2.Response, description: str) -> None:
    assert response.status_code in _CODES, (description, response.status_code, response.text[:300])
    assert "Traceback" not in response.text
    if response.headers["content-type"].startswith("text/html"):  # a page for browsers
        return
    body = error_body(response)
    assert isinstance(body["error"], str), description
    assert isinstance(body["message"], str), description


async def test_invalid_bodies_are_rejected_and_nothing_is_stored(instance: Instance, route_table: RouteTable) -> None:
    """Wrong type, NUL, NaN, deep nesting, too long: the common error body, nothing stored."""
    for endpoint in route_table.endpoints:
        if endpoint.route.method not in {"POST", "PUT", "PATCH"}:
            continue
        for description, raw in _raw_bodies(endpoint):
            if (not raw and endpoint.is_body_optional) or (raw in {b"", b"null"} and endpoint.refuses_body):
                continue
            headers = {"Content-Type": "application/json"}
            response = await instance.admin.http.request(endpoint.route.method, _fill(endpoint.path), content=raw, headers=headers)
            _assert_rejected(response, f"{description} to {endpoint.path}")
    stored = (await instance.admin.get("/v1/brain/memories")).json()
    assert stored["meta"]["total"] == 0


async def test_unknown_query_fields_are_rejected_everywhere(instance: Instance, route_table: RouteTable) -> None:
    """An unknown field in a query is 422 naming it, on every route."""
    for endpoint in route_table.endpoints:
        if endpoint.route.public or endpoint.route.ignores_query:
            continue
        path = _fill(endpoint.path)
        body: object = dict[str, object]() if endpoint.route.method in {"POST", "PATCH"} else None
        response = await instance.admin.send(endpoint.route.method, f"{path}?bogus=1", body)
        assert response.status_code in {400, 422}, (endpoint.path, response.text)
        assert "bogus" in cast("dict[str, object]", error_body(response)["errors"]), endpoint.path


_PARAMETER = re.compile(r"\{[^}]+\}")
_QUERIES = ("%00", "%ff", "%ed%a0%80", "page=9999999999999999999999", "per_page=1e3", "page=-1", "since=yesterday")
_PARTS = ("%00", "a%00b", "%ff", "..%2f..", "a" * 5000, "'; DROP TABLE memories;--", "%F0%9F%92%A9", "*")


async def test_invalid_queries_are_rejected_everywhere(instance: Instance, route_table: RouteTable) -> None:
    """NUL and invalid UTF-8 in a query, and numbers out of range."""
    for endpoint in route_table.endpoints:
        if endpoint.route.method != "GET" or endpoint.route.public or endpoint.route.ignores_query:
            continue
        for query in _QUERIES:
            response = await instance.admin.get(f"{_fill(endpoint.path)}?{query}")
            _assert_rejected(response, f"?{query} to {endpoint.path}")


async def test_invalid_path_parameters_are_rejected_everywhere(instance: Instance, route_table: RouteTable) -> None:
    """Path parameters are data; an impossible id is not found."""
    for endpoint, part in product(route_table.endpoints, _PARTS):
        if "{" not in endpoint.path:
            continue
        path = part.join(_PARAMETER.split(endpoint.path))
        bodies: dict[str, object] = {"PATCH": {"tags": list[str]()}, "POST": dict[str, object]()}
        body = bodies.get(endpoint.route.method)
        response = await instance.admin.send(endpoint.route.method, path, body)
        if response.is_success and "{agent_id:path}" in endpoint.path:  # an unknown agent has no memories
            assert "�" in response.request.url.path or part in {"..%2f..", "'; DROP TABLE memories;--", "*", "%F0%9F%92%A9"}, (
                part,
                response.text,
            )
            assert not any(response.json().get(kind) for kind in ("data", "agent", "session")), (part, response.text)
            continue
        _assert_rejected(response, f"{part[:20]} in {endpoint.path}")


async def test_an_event_number_out_of_range_is_rejected(instance: Instance) -> None:
    """Such an `after` is 422, not 500."""
    session = (await instance.admin.post("/api/agent/sessions", {"agent_type": "tester"})).json()["session"]["id"]
    for part in ("events", "stream"):
        response = await instance.admin.get(f"/api/agent/sessions/{session}/{part}?after={10**30}")

        assert (response.status_code, response.json()["error"]) == (422, "validation_error"), response.text
        assert "after" in response.json()["errors"]


_REMEMBER: list[tuple[str, object]] = [
    ("content", ""),
    ("content", "x" * 50_001),
    ("content", 5),
    ("content", None),
    ("type", ""),
    ("type", "Decision"),
    ("type", "x" * 65),
    ("org", "x" * 101),
    ("project", "x" * 256),
    ("agent_id", "x" * 101),
    ("session_id", "x" * 101),
    ("confidence", 1.01),
    ("confidence", -0.01),
    ("confidence", "0.5"),
    ("confidence", True),
    ("tags", "a"),
    ("tags", ["x" * 129]),
    ("tags", ["a"] * 101),
    ("tags", [5]),
    ("memory_scope", "global"),
    ("memory_scope", "shared"),
    ("memory_scope", "session"),
    ("memory_scope", "agent"),
    ("supersedes_id", "not an id"),
    ("supersedes_id", "01a1fbcd-a48b-7917-98b5-5a15ad842035"),
    ("expires_in", 0),
    ("expires_in", -1),
    ("wait_ms", 5001),
    ("dedupe", "yes"),
    ("contents", "a"),
]


async def test_each_invalid_field_of_remember_is_named(instance: Instance, subtests: pytest.Subtests) -> None:
    """The bounds of each field: errors name it; nothing is stored."""
    for field, value in _REMEMBER:
        with subtests.test(field=field, value=str(value)[:20]):
            response = await instance.admin.post("/v1/brain/remember", {"type": "fact", "content": "a"} | {field: value})

            assert (response.status_code, response.json()["error"]) == (422, "validation_error"), response.text
            owner = {"session": "session_id", "shared": "org", "agent": "agent_id"}.get(str(value), field)
            assert any(name.startswith((field, owner)) for name in response.json()["errors"]), response.text
    assert (await instance.admin.get("/v1/brain/memories")).json()["meta"]["total"] == 0


_RECALL: list[tuple[str, object]] = [
    ("query", ""),
    ("query", "x" * 2001),
    ("query", None),
    ("top_k", 0),
    ("top_k", 101),
    ("top_k", "5"),
    ("min_confidence", 2),
    ("boost_keywords", 1.5),
    ("boost_keywords", -1),
    ("keywords", "a"),
    ("include_scopes", ["galaxy"]),
    ("mode", "magic"),
    ("max_tokens", 0),
    ("since", "yesterday"),
    ("quary", "a"),
]


async def test_each_invalid_field_of_recall_is_named(instance: Instance, subtests: pytest.Subtests) -> None:
    """The bounds of each field."""
    for field, value in _RECALL:
        with subtests.test(field=field, value=str(value)[:20]):
            response = await instance.admin.post("/v1/brain/recall", {"query": "a"} | {field: value})

            assert (response.status_code, response.json()["error"]) == (422, "validation_error"), response.text
            assert any(name.startswith(field) for name in response.json()["errors"]), response.text


async def test_schemathesis_finds_no_500_and_no_undocumented_response(instance: Instance, route_table: RouteTable) -> None:
    """
    A schemathesis run over the whole document finds no 500, except the failure of a tool, which is documented.

    The server has no language model, a 503 of its own. Each response is compared with the document (tests/openapi_check.py).
    """
    instance.rookery.agents.notifier.close()  # requests that wait for a task return at once
    failures, statuses = list[str](), set[int]()
    for prepared in _generate_requests(route_table):
        response = await instance.admin.http.request(
            prepared["method"], prepared["url"], content=prepared["content"], headers=prepared["headers"]
        )
        statuses.add(response.status_code)
        is_tools_own = response.status_code == 500 and response.json().get("success") is False
        is_not_configured = response.status_code == 503 and response.json()["error"] == "generation_not_configured"
        if response.status_code >= 500 and not is_tools_own and not is_not_configured:
            failures.append(f"{prepared}: {response.status_code} {response.text[:300]}")
    assert failures == []
    assert statuses >= {200, 201, 400, 404, 422}  # both valid and invalid requests were sent


class _Prepared(TypedDict):
    method: str
    url: str
    content: bytes | None
    headers: list[tuple[bytes, bytes]]


class _Operation(Protocol):
    """The parts of schemathesis that this suite uses; its own types are too generic."""

    path: str
    method: str

    def as_strategy(self, *, generation_mode: GenerationMode) -> st.SearchStrategy[_Case]: ...


class _Case(Protocol):
    def as_transport_kwargs(self, base_url: str) -> dict[str, Any]: ...


_MAX_URL_CHARS = 60_000
"""Limit of the test's client; oversized request heads have their own test."""


def _generate_requests(route_table: RouteTable) -> Iterator[_Prepared]:
    """
    Yield generated requests for every operation, valid and invalid ones.

    Generating a request takes ten times as long as serving it, so the number of examples depends on the number of fields, and a handler
    with two paths is tested once.
    """
    document = build_document(route_table.endpoints, public_url=lambda _: "http://localhost")
    endpoints = {(document_path(endpoint.path), endpoint.route.method): endpoint for endpoint in route_table.endpoints}
    handlers = list[object]()
    for result in cast("Iterable[Any]", openapi.from_dict(document).get_all_operations()):  # pyright: ignore[reportUnknownMemberType] - see _Operation
        operation = cast("_Operation", result.ok())
        endpoint = endpoints[operation.path, operation.method.upper()]
        if (operation.method, endpoint.route.handler) in handlers:
            continue
        handlers.append((operation.method, endpoint.route.handler))
        valid_count = 5 if endpoint.body is not None else 3 if endpoint.query is not None else 1
        yield from _requests(operation.as_strategy(generation_mode=GenerationMode.POSITIVE), valid_count)
        # Any text is a valid part of a path; the search for an invalid one takes a second and finds none.
        if valid_count > 1:
            yield from _requests(operation.as_strategy(generation_mode=GenerationMode.NEGATIVE), 4)


def _requests(cases: st.SearchStrategy[_Case], max_examples: int) -> list[_Prepared]:
    requests_ = list[_Prepared]()
    suppressed = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large, HealthCheck.large_base_example]

    @examples(
        max_examples=max_examples, database=None, deadline=None, derandomize=True, phases=[Phase.generate], suppress_health_check=suppressed
    )
    @given(case=cases)
    def collect(case: _Case) -> None:
        prepared = requests.Request(**case.as_transport_kwargs(base_url="http://localhost")).prepare()
        assume(len(str(prepared.url)) < _MAX_URL_CHARS)
        body = prepared.body.encode() if isinstance(prepared.body, str) else prepared.body
        headers = [(_bytes(name), _bytes(value)) for name, value in prepared.headers.items() if _bytes(name).lower() != b"content-length"]
        requests_.append(_Prepared(method=str(prepared.method), url=str(prepared.url), content=cast("bytes | None", body), headers=headers))

    with contextlib.suppress(Unsatisfiable):  # an operation without constraints has no negative case
        collect()
    return requests_


def _bytes(text: str | bytes) -> bytes:
    return text if isinstance(text, bytes) else text.encode("latin-1", "replace")


@pytest.mark.parametrize("blank", [" ", "\u200b\t"])
@pytest.mark.parametrize(
    ("path", "fields", "names"),
    [
        ("/v1/brain/remember", {"content": "x"}, ["content", "org", "project", "agent_id", "session_id", "source"]),
        ("/v1/brain/recall", {"query": "x"}, ["query", "org", "project", "agent_id", "session_id"]),
        ("/v1/plans", {"title": "x"}, ["title", "org", "project"]),
        ("/v1/sessions", {"agent_type": "x"}, ["agent_type", "agent_id", "org", "project"]),
        ("/api/agent/content/templates", {"slug": "x", "messages": [{"role": "user", "content": "x"}]}, ["name"]),
        ("/api/v1/api-keys", {"name": "x", "scopes": ["brain:read"]}, ["name"]),
        ("/api/v1/agent-keys", {"name": "x", "permissions": ["brain:read"]}, ["name"]),
        ("/api/v1/workspaces", {"name": "x"}, ["name"]),
    ],
)
async def test_a_name_has_a_visible_character(
    instance: Instance, path: str, fields: dict[str, object], names: list[str], blank: str
) -> None:
    """Nobody finds again what a name of spaces stands for."""
    for name in names:
        response = await instance.admin.post(path, {**fields, name: blank})
        assert (response.status_code, list(response.json()["errors"])) == (422, [name]), response.text
