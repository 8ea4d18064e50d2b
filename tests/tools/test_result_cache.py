"""Results that are kept, of a server that counts its calls (D-34: `cache_s`)."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rookery.access.models import Caller
from rookery.kernel.config import Settings
from rookery.tools.calling.result_cache import ResultCache
from rookery.tools.calling.results import ToolResult
from rookery.tools.calling.tool_call import DEFAULT_CALL_OPTIONS, CallOptions, ToolCall
from rookery.tools.catalogue_tool import CatalogueTool
from rookery.tools.models import CallOutcome, CallRecord, JsonObject, Server, ToolRules
from rookery.tools.store import calls as store
from tests.conftest import FakeClock, eventually, run_instance
from tests.tools.conftest import Start, write
from tests.tools.makers import SERVERS, Tools, make_caller, make_odd_entry, make_odd_server

CALLER = make_caller()
COUNTING = {"command": sys.executable, "args": ["-I", "-S", "-u", str(SERVERS / "counting.py")]}
CACHED = {"tools": {"cache_s": {"*": 60}}}


@pytest.fixture
def database_url() -> str:
    """The embedded store alone: nothing here differs by dialect."""
    return "embedded:"


async def call(
    tools: Tools, tool: str = "read", *, caller: Caller = CALLER, manner: CallOptions = DEFAULT_CALL_OPTIONS, **arguments: object
) -> CallOutcome:
    """Call a tool."""
    return await tools.runner.call(caller, "counting", tool, arguments, options=manner)


async def said(
    tools: Tools, tool: str = "read", *, caller: Caller = CALLER, manner: CallOptions = DEFAULT_CALL_OPTIONS, **arguments: object
) -> str:
    """Call a tool, and return what it counted."""
    outcome = await call(tools, tool, caller=caller, manner=manner, **arguments)
    return str(json.loads(outcome.result or b"")["content"][0]["text"]).rstrip(".")


async def test_a_result_is_kept_for_the_same_arguments_in_any_order(start: Start) -> None:
    """D-34: `cache_s` caches read-only tools; the row of a call tells."""
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
    rows: list[CallRecord] = await tools.db.read(lambda tx: store.list_latest_calls(tx, workspace_id=1, limit=10))
    assert [(row.cached, row.success) for row in reversed(rows)] == [(False, True), (True, True), (False, True), (False, True)]


async def test_what_changes_something_or_fails_is_never_kept(start: Start) -> None:
    """D-34: `cache_s` caches read-only tools, whatever the pattern says; an error is no result."""
    tools = await start({"counting": {**COUNTING, **CACHED}})

    assert [await said(tools, "write") for _ in range(2)] == ["1", "2"]
    assert [await said(tools, "fail") for _ in range(2)] == ["3", "4"]
    assert (await call(tools, "write")).cache is None


async def test_nothing_is_kept_unless_the_operator_says_so(start: Start) -> None:
    """D-34: a result of a read-only tool may still be another one in a second."""
    tools = await start({"counting": {**COUNTING, "tools": {"cache_s": {"other_*": 60}}}})

    assert [await said(tools) for _ in range(2)] == ["1", "2"]


@pytest.mark.parametrize(
    ("isolation", "hits"),
    [
        ("shared", ["miss", "hit", "hit", "hit"]),
        ("per_workspace", ["miss", "hit", "miss", "hit"]),
        ("per_key", ["miss", "miss", "miss", "hit"]),
        ("per_session", ["miss", "miss", "miss", "miss"]),
    ],
)
async def test_who_shares_a_session_shares_results(start: Start, isolation: str, hits: list[str]) -> None:
    """D-32, D-34: the upstream may answer each differently whom it can tell apart."""
    tools = await start({"counting": {**COUNTING, **CACHED, "isolation": isolation}})
    callers = [
        (CALLER, None),
        (make_caller(key_id="key-2"), None),
        (make_caller(key_id="key-3", workspace_id=2, public_workspace_id=2), None),
        (CALLER, "sess_1"),
    ]

    outcomes = [await call(tools, caller=caller, manner=CallOptions(session_id=session)) for caller, session in callers]

    assert [outcome.cache for outcome in outcomes] == hits


async def test_headers_that_go_on_make_another_call(start: Start) -> None:
    """D-31: a server that receives the caller's headers may answer by them."""
    tools = await start({"counting": {**COUNTING, **CACHED, "forward_headers": ["X-Tenant"]}})

    manners = [CallOptions(headers={"x-tenant": tenant, "x-other": other}) for tenant, other in (("a", "1"), ("a", "2"), ("b", "1"))]

    assert [(await call(tools, manner=manner)).cache for manner in manners] == ["miss", "hit", "miss"]


async def test_what_a_message_says_beside_its_arguments_makes_another_call(start: Start) -> None:
    """D-34: `_meta` goes on to the server, which may look at it; traces and log levels say nothing of the result."""
    tools = await start({"counting": {**COUNTING, **CACHED}})
    metas: list[dict[str, object]] = [{"tenant": "a"}, {"tenant": "b"}, {"tenant": "a", "traceparent": "00-1-2-01"}]

    assert [(await call(tools, manner=CallOptions(meta=meta))).cache for meta in metas] == ["miss", "miss", "hit"]


async def test_a_result_that_its_caller_was_asked_for_is_nobody_elses(start: Start) -> None:
    """D-34: two keys share a session and what is kept of it, but not what one of them was asked for on the way."""
    tools = await start({"odd": make_odd_entry(**CACHED)})

    async def answered(key: str) -> str:
        async def on_request(method: str, params: JsonObject) -> JsonObject:
            return {"action": "accept", "content": {"name": key}}

        caller, manner = make_caller(key_id=key), CallOptions(on_request=on_request)
        outcome = await tools.runner.call(caller, "odd", "ask", {"count": 1}, options=manner)
        return str(json.loads(outcome.result or b"")["content"][0]["text"])

    first, second = await answered("anna"), await answered("bert")

    assert "anna" in first
    assert "anna" not in second


async def test_who_asks_at_the_same_moment_asks_once(start: Start, tmp_path: Path) -> None:
    """D-34: a result that many wait for is asked for once."""
    tools = await start({"counting": {**COUNTING, **CACHED}})
    gate = tmp_path / "gate"

    async with asyncio.TaskGroup() as group:
        calls = [group.create_task(said(tools, "read_late", gate=str(gate))) for _ in range(10)]
        await eventually(lambda: any(each.in_flight for each in tools.sessions.list_sessions("counting")))
        gate.touch()

    assert {each.result() for each in calls} == {"1"}
    assert await said(tools) == "2"


async def test_who_waits_for_anothers_call_is_answered_though_that_one_leaves(start: Start, tmp_path: Path) -> None:
    """D-34: a caller that leaves cancels its own call alone."""
    tools = await start({"counting": {**COUNTING, **CACHED}})
    gate = tmp_path / "gate"
    first = asyncio.create_task(said(tools, "read_late", gate=str(gate)))
    await eventually(lambda: any(each.in_flight for each in tools.sessions.list_sessions("counting")))
    second = asyncio.create_task(said(tools, "read_late", gate=str(gate)))
    await asyncio.sleep(0)

    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    gate.touch()

    assert await second == "2"


async def test_a_kept_result_is_asked_for_again_when_it_is_old_or_not_wanted(start: Start) -> None:
    """D-34: `cache_s` is seconds; `Cache-Control: no-cache` asks for a fresh one, which is kept in turn."""
    now = [1000.0]
    tools = await start({"counting": {**COUNTING, **CACHED}}, cache=ResultCache(monotonic=lambda: now[0]))

    first = await said(tools)
    now[0] += 59.9
    young = await call(tools)
    now[0] += 0.1
    renewed = await said(tools)
    fresh = await said(tools, manner=CallOptions(no_cache=True))
    after = await said(tools)

    assert (first, young.cache, round(young.age_s, 1), renewed, fresh, after) == ("1", "hit", 59.9, "2", "3", "3")


async def test_a_changed_entry_forgets_what_was_kept(start: Start, file: Path) -> None:
    """D-31, D-34: another entry may be another server, or another account at it."""
    tools = await start({"counting": {**COUNTING, **CACHED}})
    assert [await said(tools), (await call(tools)).cache] == ["1", "hit"]
    before = tools.catalogue.get_server(CALLER, "counting")

    write(file, counting={**COUNTING, **CACHED, "env": {"ACCOUNT": "another"}})
    await eventually(lambda: tools.catalogue.get_server(CALLER, "counting") is not before)

    assert (await call(tools)).cache == "miss"


async def test_the_answer_says_that_it_was_kept(settings: Settings) -> None:
    """D-34: `X-Rookery-Cache` and `Age` on the answer, `cached` in the body; `Cache-Control: no-cache` is heard."""
    settings.servers_file.write_text(json.dumps({"mcpServers": {"counting": {**COUNTING, **CACHED}}}))
    async with run_instance(settings) as instance:
        path = "/api/v1/mcp/servers/counting/tools/read"
        first, second = [await instance.admin.post(path, {}) for _ in range(2)]
        fresh = await instance.admin.post(path, {}, **{"Cache-Control": "no-cache"})
        write_ = await instance.admin.post("/api/v1/mcp/servers/counting/tools/write", {})

    assert [each.headers.get("x-rookery-cache") for each in (first, second, fresh, write_)] == ["miss", "hit", "miss", None]
    assert [each.json().get("cached") for each in (first, second, fresh, write_)] == [None, True, None, None]
    assert second.headers["age"] == "0"
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


def result(size: int) -> Callable[[], asyncio.Future[ToolResult]]:
    """Make what an upstream answers."""

    def ask() -> asyncio.Future[ToolResult]:
        future: asyncio.Future[ToolResult] = asyncio.get_running_loop().create_future()
        future.set_result(ToolResult(content=b"x" * size))
        return future

    return ask


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 4000)), max_size=60))
def test_no_mix_of_results_takes_more_memory_than_it_may(calls: list[tuple[int, int]]) -> None:
    """D-34: bounded, whatever callers ask; the result asked for last is there as long as it fits at all."""

    async def run() -> None:
        cache = ResultCache(max_bytes=10_000, max_result_bytes=3000)
        for number, size in calls:
            kept = await cache.get_or_fetch(make_key(number), READ, result(size))
            again = await cache.get_or_fetch(make_key(number), READ, result(size))
            assert again.is_hit == (len(kept.result.content) + 500 <= 3000)
            assert cache.size <= 10_000

    asyncio.run(run())
