"""Every route, sent what is wrong: the one error body, never a 500, nothing stored (issue, bad input; D-10, D-16)."""

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

from rookery.app import build_route_table
from rookery.kernel.http.routes import RouteEndpoint, RouteTable
from rookery.reference.naming import document_path
from rookery.reference.openapi import build_document
from rookery.wiring import build_platform
from tests.conftest import Instance, Settings
from tests.error_bodies import error_body

_CODES = frozenset({400, 404, 405, 409, 413, 415, 422})


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


@pytest.fixture
def mounted(settings: Settings) -> RouteTable:
    """The table of routes."""
    return build_route_table(build_platform(settings))


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


def _must_be_refused(answer: httpx2.Response, what: str) -> None:
    assert answer.status_code in _CODES, (what, answer.status_code, answer.text[:300])
    assert "Traceback" not in answer.text
    if answer.headers["content-type"].startswith("text/html"):  # a page, for a browser that was sent there
        return
    body = error_body(answer)
    assert isinstance(body["error"], str), what
    assert isinstance(body["message"], str), what


async def test_bad_bodies_are_refused_and_nothing_is_stored(instance: Instance, mounted: RouteTable) -> None:
    """Issue, bad input: wrong type, NUL, NaN, deep nesting, too long: the error body of D-10, nothing stored."""
    for endpoint in mounted.endpoints:
        if endpoint.route.method not in {"POST", "PUT", "PATCH"}:
            continue
        for what, raw in _raw_bodies(endpoint):
            if (not raw and endpoint.is_body_optional) or (raw in {b"", b"null"} and endpoint.refuses_body):
                continue
            headers = {"Content-Type": "application/json"}
            answer = await instance.admin.http.request(endpoint.route.method, _fill(endpoint.path), content=raw, headers=headers)
            _must_be_refused(answer, f"{what} to {endpoint.path}")
    stored = (await instance.admin.get("/v1/brain/memories")).json()
    assert stored["meta"]["total"] == 0


async def test_unknown_query_fields_are_refused_everywhere(instance: Instance, mounted: RouteTable) -> None:
    """D-10: an unknown field in a query is 422 naming it, on every route."""
    for endpoint in mounted.endpoints:
        if endpoint.route.public or endpoint.route.ignores_query:
            continue
        path = _fill(endpoint.path)
        body: object = dict[str, object]() if endpoint.route.method in {"POST", "PATCH"} else None
        answer = await instance.admin.send(endpoint.route.method, f"{path}?bogus=1", body)
        assert answer.status_code in {400, 422}, (endpoint.path, answer.text)
        assert "bogus" in cast("dict[str, object]", error_body(answer)["errors"]), endpoint.path


_PARAMETER = re.compile(r"\{[^}]+\}")
_QUERIES = ("%00", "%ff", "%ed%a0%80", "page=9999999999999999999999", "per_page=1e3", "page=-1", "since=yesterday")
_PARTS = ("%00", "a%00b", "%ff", "..%2f..", "a" * 5000, "'; DROP TABLE memories;--", "%F0%9F%92%A9", "*")


async def test_bad_queries_are_refused_everywhere(instance: Instance, mounted: RouteTable) -> None:
    """D-16: NUL and broken text in an address; numbers beyond any range."""
    for endpoint in mounted.endpoints:
        if endpoint.route.method != "GET" or endpoint.route.public or endpoint.route.ignores_query:
            continue
        for query in _QUERIES:
            answer = await instance.admin.get(f"{_fill(endpoint.path)}?{query}")
            _must_be_refused(answer, f"?{query} to {endpoint.path}")


async def test_bad_path_parameters_are_refused_everywhere(instance: Instance, mounted: RouteTable) -> None:
    """D-16: what stands in a path is data; an id that cannot be is a missing thing."""
    for endpoint, part in product(mounted.endpoints, _PARTS):
        if "{" not in endpoint.path:
            continue
        path = part.join(_PARAMETER.split(endpoint.path))
        bodies: dict[str, object] = {"PATCH": {"tags": list[str]()}, "POST": dict[str, object]()}
        body = bodies.get(endpoint.route.method)
        answer = await instance.admin.send(endpoint.route.method, path, body)
        if answer.is_success and "{agent_id:path}" in endpoint.path:  # a word that no agent is called by has no memories
            assert "�" in answer.request.url.path or part in {"..%2f..", "'; DROP TABLE memories;--", "*", "%F0%9F%92%A9"}, (
                part,
                answer.text,
            )
            assert not any(answer.json().get(kind) for kind in ("data", "agent", "session")), (part, answer.text)
            continue
        _must_be_refused(answer, f"{part[:20]} in {endpoint.path}")


async def test_a_number_of_an_event_beyond_any_is_refused(instance: Instance) -> None:
    """Issue 14 (attack 4): found by `benchmarks/fuzz.py`: such an `after` was a 500."""
    session = (await instance.admin.post("/api/agent/sessions", {"agent_type": "tester"})).json()["session"]["id"]
    for part in ("events", "stream"):
        answer = await instance.admin.get(f"/api/agent/sessions/{session}/{part}?after={10**30}")

        assert (answer.status_code, answer.json()["error"]) == (422, "validation_error"), answer.text
        assert "after" in answer.json()["errors"]


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


async def test_each_wrong_field_of_remember_is_named(instance: Instance, subtests: pytest.Subtests) -> None:
    """D-40: the bounds of each field; D-10: errors name it; nothing is stored."""
    for field, value in _REMEMBER:
        with subtests.test(field=field, value=str(value)[:20]):
            answer = await instance.admin.post("/v1/brain/remember", {"type": "fact", "content": "a"} | {field: value})

            assert (answer.status_code, answer.json()["error"]) == (422, "validation_error"), answer.text
            owner = {"session": "session_id", "shared": "org", "agent": "agent_id"}.get(str(value), field)
            assert any(name.startswith((field, owner)) for name in answer.json()["errors"]), answer.text
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


async def test_each_wrong_field_of_recall_is_named(instance: Instance, subtests: pytest.Subtests) -> None:
    """D-42: the bounds of each field."""
    for field, value in _RECALL:
        with subtests.test(field=field, value=str(value)[:20]):
            answer = await instance.admin.post("/v1/brain/recall", {"query": "a"} | {field: value})

            assert (answer.status_code, answer.json()["error"]) == (422, "validation_error"), answer.text
            assert any(name.startswith(field) for name in answer.json()["errors"]), answer.text


@pytest.mark.timeout(240)
async def test_schemathesis_finds_no_500_and_nothing_that_is_not_documented(instance: Instance, mounted: RouteTable) -> None:
    """
    Issues 3 and 7: a schemathesis run over the whole document finds no 500, but for a tool's own failure, which the spec documents.

    Nor an answer whose status, code, headers or body the document does not know: the house looks at each (tests/openapi_check.py).
    """
    instance.rookery.agents.notifier.close()  # who asks to wait for a task is answered at once
    failures, answered = list[str](), set[int]()
    for prepared in _made_up(mounted):
        answer = await instance.admin.http.request(
            prepared["method"], prepared["url"], content=prepared["content"], headers=prepared["headers"]
        )
        answered.add(answer.status_code)
        is_tools_own = answer.status_code == 500 and answer.json().get("success") is False
        if answer.status_code >= 500 and not is_tools_own:
            failures.append(f"{prepared}: {answer.status_code} {answer.text[:300]}")
    assert failures == []
    assert answered >= {200, 201, 400, 404, 422}  # neither all good nor all bad


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


_LONGEST_URL = 60_000
"""Our client sends none that is longer; longer heads than the server takes have a test of their own."""


def _made_up(mounted: RouteTable) -> Iterator[_Prepared]:
    """
    Yield what schemathesis makes up for every operation, good and bad, as our client sends it.

    It takes ten times as long to make a request up as the server does to answer it: so as many as there is to get wrong, and one
    handler under two addresses once.
    """
    whole = build_document(mounted.endpoints, public_url=lambda _: "http://localhost")
    endpoints = {(document_path(each.path), each.route.method): each for each in mounted.endpoints}
    seen = list[object]()
    for found in cast("Iterable[Any]", openapi.from_dict(whole).get_all_operations()):  # pyright: ignore[reportUnknownMemberType] - see _Operation
        operation = cast("_Operation", found.ok())
        endpoint = endpoints[operation.path, operation.method.upper()]
        if (operation.method, endpoint.route.handler) in seen:
            continue
        seen.append((operation.method, endpoint.route.handler))
        good = 5 if endpoint.body is not None else 3 if endpoint.query is not None else 1
        yield from _requests(operation.as_strategy(generation_mode=GenerationMode.POSITIVE), good)
        # Any text is a good part of a path: looking for a bad one takes schemathesis a second each, and finds none.
        if good > 1:
            yield from _requests(operation.as_strategy(generation_mode=GenerationMode.NEGATIVE), 4)


def _requests(cases: st.SearchStrategy[_Case], most: int) -> list[_Prepared]:
    made = list[_Prepared]()
    unhurried = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large, HealthCheck.large_base_example]

    @examples(max_examples=most, database=None, deadline=None, derandomize=True, phases=[Phase.generate], suppress_health_check=unhurried)
    @given(case=cases)
    def collect(case: _Case) -> None:
        prepared = requests.Request(**case.as_transport_kwargs(base_url="http://localhost")).prepare()
        assume(len(str(prepared.url)) < _LONGEST_URL)
        body = prepared.body.encode() if isinstance(prepared.body, str) else prepared.body
        headers = [(_bytes(name), _bytes(value)) for name, value in prepared.headers.items() if _bytes(name).lower() != b"content-length"]
        made.append(_Prepared(method=str(prepared.method), url=str(prepared.url), content=cast("bytes | None", body), headers=headers))

    with contextlib.suppress(Unsatisfiable):  # an operation without anything to get wrong has no negative case
        collect()
    return made


def _bytes(text: str | bytes) -> bytes:
    return text if isinstance(text, bytes) else text.encode("latin-1", "replace")
