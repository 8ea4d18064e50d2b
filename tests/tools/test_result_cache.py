"""Cached results (`cache_s`), with a server that counts its calls."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rookery.access.models import Caller
from rookery.kernel.config import Settings
from rookery.tools.call_options import DEFAULT_CALL_OPTIONS, CallOptions
from rookery.tools.calling.result_cache import ResultCache
from rookery.tools.calling.results import ToolResult
from rookery.tools.calling.tool_call import ToolCall
from rookery.tools.catalogue_tool import CatalogueTool
from rookery.tools.models import CallOutcome, CallRecord, JsonObject, Server, ToolRules
from rookery.tools.store import calls as store
from tests.conftest import FakeClock, eventually, run_instance
from tests.tools.conftest import Start, write
from tests.tools.makers import SERVERS, Tools, make_caller, make_odd_entry, make_odd_server

pytestmark = pytest.mark.embedded_store  # nothing here depends on the dialect

CALLER = make_caller()
COUNTING = {"command": sys.executable, "args": ["-I", "-S", "-u", str(SERVERS / "counting.py")]}
CACHED = {"tools": {"cache_s": {"*": 60}}}


async def call(
    tools: Tools, tool: str = "read", *, caller: Caller = CALLER, options: CallOptions = DEFAULT_CALL_OPTIONS, **arguments: object
) -> CallOutcome:
    """Call a tool."""
    return await tools.runner.call(caller, "counting", tool, arguments, options=options)


async def call_text(
    tools: Tools, tool: str = "read", *, caller: Caller = CALLER, options: CallOptions = DEFAULT_CALL_OPTIONS, **arguments: object
) -> str:
    """Call a tool, and return the count in its result."""
    outcome = await call(tools, tool, caller=caller, options=options, **arguments)
    return str(json.loads(outcome.result or b"")["content"][0]["text"]).rstrip(".")


async def test_a_result_is_cached_for_the_same_arguments_in_any_order(start: Start) -> None:
    """`cache_s` caches read-only tools; the row of a call records a hit."""
    tools = await start({"counting": {**COUNTING, **CACHED}})

    outcomes = [
        await call(tools, a=1, b={"c": 2, "d": 3}),
        await call(tools, b={"d": 3, "c": 2}, a=1),
        await call(tools, a=2, b={"c": 2, "d": 3}),
        await call(tools, a="1", b={"c": 2, "d": 3}),
    ]

    assert [outcome.cache for outcome in outcomes] == ["miss", "hit", "miss", "miss"]
    assert outcomes[0].result == outcomes[1].result
    await tools.call_buffer.flush()
    rows: list[CallRecord] = await tools.db.read(lambda tx: store.CALLS.find_all(tx, 1, "-called_at", "-id"))
    assert [(row.cached, row.success) for row in reversed(rows)] == [(False, True), (True, True), (False, True), (False, True)]


async def test_the_arguments_that_are_sent_are_part_of_the_cache_key(start: Start) -> None:
    """A null that is left out makes no difference; the row of a call has what its caller sent."""
    tools = await start({"odd": {**make_odd_entry(), **CACHED}}, keep_arguments=True)

    plain = await tools.runner.call(CALLER, "odd", "echo", {"text": "hi"})
    unset = await tools.runner.call(CALLER, "odd", "echo", {"text": "hi", "tone": None})

    assert (plain.cache, unset.cache) == ("miss", "hit")
    await tools.call_buffer.flush()
    rows: list[CallRecord] = await tools.db.read(lambda tx: store.CALLS.find_all(tx, 1, "-called_at", "-id"))
    assert [json.loads(row.arguments or "") for row in rows] == [{"text": "hi", "tone": None}, {"text": "hi"}]


async def test_writing_and_failing_calls_are_never_cached(start: Start) -> None:
    """`cache_s` caches read-only tools, whatever the pattern; errors are not cached."""
    tools = await start({"counting": {**COUNTING, **CACHED}})

    assert [await call_text(tools, "write") for _ in range(2)] == ["1", "2"]
    assert [await call_text(tools, "fail") for _ in range(2)] == ["3", "4"]
    assert (await call(tools, "write")).cache is None


async def test_nothing_is_cached_unless_configured(start: Start) -> None:
    """A read-only tool may return another result a second later."""
    tools = await start({"counting": {**COUNTING, "tools": {"cache_s": {"other_*": 60}}}})

    assert [await call_text(tools) for _ in range(2)] == ["1", "2"]


@pytest.mark.parametrize(
    ("isolation", "hits"),
    [
        ("shared", ["miss", "hit", "hit", "hit"]),
        ("per_workspace", ["miss", "hit", "miss", "hit"]),
        ("per_key", ["miss", "miss", "miss", "hit"]),
        ("per_session", ["miss", "miss", "miss", "miss"]),
    ],
)
async def test_callers_who_share_a_session_share_results(start: Start, isolation: str, hits: list[str]) -> None:
    """The upstream may return different results to callers that it can distinguish."""
    tools = await start({"counting": {**COUNTING, **CACHED, "isolation": isolation}})
    callers = [
        (CALLER, None),
        (make_caller(key_id="key-2"), None),
        (make_caller(key_id="key-3", workspace_id=2, public_workspace_id=2), None),
        (CALLER, "sess_1"),
    ]

    outcomes = [await call(tools, caller=caller, options=CallOptions(session_id=session)) for caller, session in callers]

    assert [outcome.cache for outcome in outcomes] == hits


async def test_forwarded_headers_are_part_of_the_cache_key(start: Start) -> None:
    """A server that receives the caller's headers may use them for its result."""
    tools = await start({"counting": {**COUNTING, **CACHED, "forward_headers": ["X-Tenant"]}})

    variants = [CallOptions(headers={"x-tenant": tenant, "x-other": other}) for tenant, other in (("a", "1"), ("a", "2"), ("b", "1"))]

    assert [(await call(tools, options=options)).cache for options in variants] == ["miss", "hit", "miss"]


async def test_forwarded_meta_is_part_of_the_cache_key_except_traces(start: Start) -> None:
    """The server may use the keys that it receives; traces, log levels and other keys do not change the result."""
    tools = await start({"counting": {**COUNTING, **CACHED, "forward_meta": ["tenant"]}})
    metas: list[dict[str, object]] = [{"tenant": "a"}, {"tenant": "b"}, {"tenant": "a", "traceparent": "00-1-2-01", "callId": "1"}]

    assert [(await call(tools, options=CallOptions(meta=meta))).cache for meta in metas] == ["miss", "miss", "hit"]


async def test_a_result_with_elicited_input_is_not_shared(start: Start) -> None:
    """Two keys share a session and its cache, but not results that depend on input of one of them."""
    tools = await start({"odd": make_odd_entry(**CACHED)})

    async def ask_as(key: str) -> str:
        async def on_request(method: str, params: JsonObject) -> JsonObject:
            return {"action": "accept", "content": {"name": key}}

        caller, options = make_caller(key_id=key), CallOptions(on_request=on_request)
        outcome = await tools.runner.call(caller, "odd", "ask", {"count": 1}, options=options)
        return str(json.loads(outcome.result or b"")["content"][0]["text"])

    first, second = await ask_as("anna"), await ask_as("bert")

    assert "anna" in first
    assert "anna" not in second


async def test_concurrent_callers_cause_one_call(start: Start, tmp_path: Path) -> None:
    """Concurrent calls with the same key share one upstream call."""
    tools = await start({"counting": {**COUNTING, **CACHED}})
    gate = tmp_path / "gate"

    async with asyncio.TaskGroup() as group:
        calls = [group.create_task(call_text(tools, "read_late", gate=str(gate))) for _ in range(10)]
        await eventually(lambda: any(session.in_flight for session in tools.sessions.list_sessions("counting")))
        gate.touch()

    assert {task.result() for task in calls} == {"1"}
    assert await call_text(tools) == "2"


async def test_a_waiting_caller_gets_a_result_after_the_first_caller_leaves(start: Start, tmp_path: Path) -> None:
    """A caller that leaves cancels only its own call."""
    tools = await start({"counting": {**COUNTING, **CACHED}})
    gate = tmp_path / "gate"
    first = asyncio.create_task(call_text(tools, "read_late", gate=str(gate)))
    await eventually(tmp_path.joinpath("gate.started").exists)
    second = asyncio.create_task(call_text(tools, "read_late", gate=str(gate)))
    await asyncio.sleep(0)

    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    gate.touch()

    assert await second == "2"


async def test_a_cached_result_is_fetched_again_when_expired_or_with_no_cache(start: Start) -> None:
    """`cache_s` is seconds; `Cache-Control: no-cache` fetches a fresh one, which is cached again."""
    now = [1000.0]
    tools = await start({"counting": {**COUNTING, **CACHED}}, cache=ResultCache(monotonic=lambda: now[0]))

    first = await call_text(tools)
    now[0] += 59.9
    cached = await call(tools)
    now[0] += 0.1
    renewed = await call_text(tools)
    fresh = await call_text(tools, options=CallOptions(no_cache=True))
    after = await call_text(tools)

    assert (first, cached.cache, round(cached.age_s, 1), renewed, fresh, after) == ("1", "hit", 59.9, "2", "3", "3")


async def test_a_changed_entry_clears_its_cached_results(start: Start, file: Path) -> None:
    """Another entry may be another server, or another account at it."""
    tools = await start({"counting": {**COUNTING, **CACHED}})
    assert [await call_text(tools), (await call(tools)).cache] == ["1", "hit"]
    before = tools.catalogue.get_server(CALLER, "counting")

    write(file, counting={**COUNTING, **CACHED, "env": {"ACCOUNT": "another"}})
    await eventually(lambda: tools.catalogue.get_server(CALLER, "counting") is not before)

    assert (await call(tools)).cache == "miss"


async def test_the_response_says_whether_it_was_cached(settings: Settings) -> None:
    """`X-Rookery-Cache` and `Age` as headers, `cached` in the body; `Cache-Control: no-cache` is honoured."""
    settings.servers_file.write_text(json.dumps({"mcpServers": {"counting": {**COUNTING, **CACHED}}}))
    async with run_instance(settings) as instance:
        path = "/api/v1/mcp/servers/counting/tools/read"
        started = time.monotonic()
        first, second = [await instance.admin.post(path, {}) for _ in range(2)]
        took_s = time.monotonic() - started
        fresh = await instance.admin.post(path, {}, **{"Cache-Control": "no-cache"})
        written = await instance.admin.post("/api/v1/mcp/servers/counting/tools/write", {})

    assert [response.headers.get("x-rookery-cache") for response in (first, second, fresh, written)] == ["miss", "hit", "miss", None]
    assert [response.json().get("cached") for response in (first, second, fresh, written)] == [None, True, None, None]
    assert 0 <= int(second.headers["age"]) <= took_s
    assert first.json()["result"] == second.json()["result"] != fresh.json()["result"]


READ = CatalogueTool({"name": "read", "annotations": {"readOnlyHint": True}}, None)
SERVER = make_odd_server(rules=ToolRules(cache_s={"*": 1e9}))


def make_key(number: int, server: Server = SERVER) -> ToolCall:
    """Make a call that differs from others by a number."""
    return ToolCall(
        caller=CALLER,
        server=server,
        tool="read",
        arguments={"n": number},
        options=DEFAULT_CALL_OPTIONS,
        at=FakeClock()(),
        started=0.0,
    )


def make_fetch(size: int) -> Callable[[], asyncio.Future[ToolResult]]:
    """Return a function that fetches a result of *size* bytes."""

    def fetch() -> asyncio.Future[ToolResult]:
        future: asyncio.Future[ToolResult] = asyncio.get_running_loop().create_future()
        future.set_result(ToolResult(content=b"x" * size))
        return future

    return fetch


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 4000)), max_size=60))
def test_the_cache_stays_within_its_memory_limit(calls: list[tuple[int, int]]) -> None:
    """The latest result is cached if it fits at all."""

    async def run() -> None:
        cache = ResultCache(max_bytes=10_000, max_result_bytes=3000)
        for number, size in calls:
            first = await cache.get_or_fetch(make_key(number), READ, make_fetch(size))
            second = await cache.get_or_fetch(make_key(number), READ, make_fetch(size))
            assert second.is_hit == (len(first.result.content) + 500 <= 3000)
            assert cache.size <= 10_000

    asyncio.run(run())
