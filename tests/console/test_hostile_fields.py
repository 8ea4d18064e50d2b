"""
Every view of the console with ids, parameters and fields that no page sends: each gets a page, and no internal error.

Views join by themselves: the test reads their paths from the list of views, and the names of what they read from their source.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import AsyncIterator, Iterable, Iterator
from dataclasses import replace
from itertools import cycle

import pytest

from rookery.console.operation_forms import SHOWN_FIELD, ResourceForm
from rookery.console.operation_lists import OperationList
from rookery.console.rendering import MAX_PAGE_BYTES
from rookery.console.views import VIEWS
from rookery.console.visit import View
from rookery.kernel.config import Settings
from rookery.kernel.secret import Secret
from tests.chat_service import KEY, run_chat_service
from tests.conftest import Instance, run_instance
from tests.console.browsing import ConsoleUser, get_text

pytestmark = pytest.mark.embedded_store  # tests/test_fuzz.py sends hostile values to the API on each record store

IDS = ("a%00b", "%ed%a0%80", "%2e%2e", "9" * 40, "a" * 3_000, "%0d%0aX:y", "%3f%F0%9F%98%80")
VALUES = (
    "%00", "%ed%a0%80", "-1", "9" * 400, "a" * 20_000, "NaN", "1e999", "0001-01-01", "2026-02-30T25:00", "%D9%A3", "%C2%B2", "[" * 3_000,
    "%7B%22a%22%3A%22%5Cud800%22%7D", "%5B%7B%22role%22%3A7%7D%5D", "null", "..", "%25_%5C", "%0d%0aX:y",
)  # fmt: skip
BODIES = (b"", b"\x00\xff%", b"a=b")
_PARAMETER = re.compile(r"\{(\w+)(?::path)?\}")
_READS = {
    "GET": re.compile(r'query\(\s*"(\w+)"'),
    "POST": re.compile(r'(?:form\.(?:get|get_text|list|split|number|integer|json_object)\(\s*|fields\.get\(\s*|\(form, )"(\w+)"'),
}
_CONTROL = re.compile(r'<(?:input|select|textarea)[^>]* name="([\w/-]+)"')
_NO_NUMBER = "1e999"
_REQUESTS_PER_KEY = 2_000
"""The console allows 3,000 calls a minute for each key, and each page makes at least one."""


@pytest.fixture
async def instance(settings: Settings) -> AsyncIterator[Instance]:
    """A server with a provider of texts."""
    with run_chat_service() as provider:
        async with run_instance(replace(settings, generation=Secret(provider.url("ok", key=KEY)))) as opened:
            yield opened


def find_names(view: View) -> list[str]:
    """Return the names of the parameters or fields that a view, or its module, reads."""
    owner, module = getattr(view.handler, "__self__", None), sys.modules[view.handler.__module__]
    if isinstance(owner, ResourceForm):
        return sorted({SHOWN_FIELD, *owner.hints, *(name for group in owner.groups for name in group.names)})
    lists = [owner, *vars(module).values()] if view.method == "GET" else []
    filters = {each.parameter or each.name for found in lists if isinstance(found, OperationList) for each in found.filters}
    source = inspect.getsource(module)
    return sorted({*filters, *_READS[view.method].findall(source), *(["page"] if view.method == "GET" else [])})


def fill(view: View, values: Iterable[tuple[str, str]], default: str) -> str:
    """Return the path of a view below `/console/`; *default* is the value of parameters without one in *values*."""
    known = dict(values)
    return _PARAMETER.sub(lambda match: known.get(match[1], default), view.path)[1:]


def list_requests(view: View, ids: dict[str, str], values: Iterator[str], strange_ids: Iterator[str]) -> list[tuple[str, str, bytes]]:
    """Return the method, the path and the body of each request to a view. Each name takes the next value, each view the next two ids."""
    has_parameters = bool(_PARAMETER.search(view.path))
    path = fill(view, ids.items(), "x")
    strange = [fill(view, (), next(strange_ids)) for _ in range(2)] if has_parameters else []
    if view.method == "GET":
        queries = ["", *(f"?{name}={next(values)}" for name in find_names(view))]
        return [("HEAD", path, b""), *(("GET", each, b"") for each in (*strange, *(path + query for query in queries)))]
    bodies = [*BODIES, *(f"{name}={next(values)}".encode() for name in find_names(view))]
    return [("POST", each, b"a=b") for each in strange] + [("POST", path, body) for body in bodies]


async def create_objects(admin: ConsoleUser, instance: Instance) -> dict[str, str]:
    """Create an object of each kind; return the values of the parameters of paths that name them."""
    memory = await instance.admin.remember()
    plan = await instance.admin.post("/api/agent/plans", {"title": "Plan", "slug": "p"})
    session = await instance.admin.post("/api/agent/sessions", {"agent_id": "a"})
    campaign = await admin.post("campaigns/new", {"name": "n", "title": "t", "body": "b"})
    template = await admin.post("content/templates/new", {"slug": "note", "name": "Note", "prompt": "Hello"})
    assert [made.status_code for made in (plan, session, campaign, template)] == [201, 201, 303, 303]
    key = await instance.api_key()
    return {
        "memory_id": str(memory["id"]),
        "plan": "p",
        "session_id": str(session.json()["session"]["id"]),
        "campaign_id": re.findall(r"campaigns/([\w-]+)", campaign.headers["location"])[0],
        "slug": "note",
        "server_id": "brain",
        "tool": "forget",
        "kind": "api",
        "key_id": key.key_id,
    }


async def find_problem(user: ConsoleUser, method: str, path: str, body: bytes) -> str:
    """Send a request; return what is wrong with its response, or an empty text."""
    response = await user.http.request(method, path, content=body, headers={"Content-Type": "application/x-www-form-urlencoded"})
    if response.status_code < 500 and response.status_code != 429 and len(response.content) <= MAX_PAGE_BYTES:
        return ""
    return f"{method} {path[:120]} {body[:80]!r}: {response.status_code} {get_text(response.text)[-200:]}"


async def test_no_request_is_an_internal_error(instance: Instance) -> None:
    """Hostile ids, parameters and fields of every view get a page below the bound, and no status of 500 or more."""
    failures, values, strange_ids, count = list[str](), cycle(VALUES), cycle(IDS), 0
    async with ConsoleUser(instance.rookery) as admin:
        await admin.sign_in(instance.admin.key or "")
        ids = await create_objects(admin, instance)
        streams = {view.path for view in VIEWS if view.method == "GET" and view.path.endswith("/stream")}
        for view in VIEWS:
            requests = list_requests(view, ids if view.path not in streams else {}, values, strange_ids)
            if count == 0 or count + len(requests) > _REQUESTS_PER_KEY:
                await admin.sign_in((await instance.api_key()).key or "")
                count = 0
            if view.method == "GET" and view.path not in streams:
                path = fill(view, ids.items(), "x")
                names = sorted(set(_CONTROL.findall((await admin.get(path)).text)))
                requests += [("GET", f"{path}?q=x&{name}={_NO_NUMBER}", b"") for name in names]
            count += len(requests)
            failures += [problem for request in requests if (problem := await find_problem(admin, *request))]
    assert failures == []


def test_every_value_reaches_every_kind_of_field() -> None:
    """The matrix covers what views read; a view whose reads it does not find would pass without a test."""
    read = {name for view in VIEWS for name in find_names(view)}
    assert {"q", "page", "since", "name", "scopes", "arguments", "content", "metadata", "expires_in", "replay"} <= read
