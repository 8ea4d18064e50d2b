"""The size of results of built-in tools, as each MCP client shows them to its model."""

from __future__ import annotations

import json
import zlib
from collections.abc import Awaitable, Callable, Mapping
from typing import cast

import pytest

from tests.agents.makers import make_plan, phase, task
from tests.conftest import Caller, Instance, eventually

Json = dict[str, object]
_PREFIX, _VERSION = "io.modelcontextprotocol/", "2026-07-28"
_CHARS_PER_TOKEN, _DEFAULT_TOKENS = 4, 6_000
_LONG_TEXT = ('The "harbour" crane of pier 7 lifts tons of timber\nwhile gulls nest near the shed. ' * 300)[:20_000]


def _to_json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _get_text(result: Json) -> str:
    return "".join(str(part["text"]) for part in cast("list[Json]", result["content"]))


def _get_structured(result: Json) -> str:
    return _to_json(result["structuredContent"]) if "structuredContent" in result else _get_text(result)


def _get_both(result: Json) -> str:
    return _get_text(result) + (_get_structured(result) if "structuredContent" in result else "")


def _get_all(result: Json) -> str:
    return _to_json({name: value for name, value in result.items() if name in {"content", "structuredContent", "isError"}})


SHOWN_FORMS: Mapping[str, Callable[[Json], str]] = {
    "claude-code": _get_structured,
    "codex-mcp-client": _get_structured,
    "gemini-cli-mcp-client": _get_text,
    "opencode": _get_text,
    "qwen-cli-mcp-client-rookery": _get_both,
    "copilot-cli": _get_both,
    "@cline/core": _get_all,
    "google-adk": _get_all,
    "unknown": _get_structured,
}
"""The form of a result that the model of each client sees, by the name in its `clientInfo`."""


async def _request(caller: Caller, method: str, client: str, params: Json, *, path: str = "/mcp", **headers: str) -> Json:
    meta: Json = {f"{_PREFIX}protocolVersion": _VERSION, f"{_PREFIX}clientCapabilities": Json()}
    meta[f"{_PREFIX}clientInfo"] = {"name": client, "version": "1"}
    sent = {"Accept": "application/json, text/event-stream", "MCP-Protocol-Version": _VERSION, "Mcp-Method": method, **headers}
    body: Json = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {"_meta": meta, **params}}
    response = await caller.send("POST", path, body, **sent)
    assert response.status_code == 200, response.text
    return cast("Json", response.json()["result"])


async def _call(caller: Caller, tool: str, client: str = "unknown", **arguments: object) -> Json:
    result = await _request(caller, "tools/call", client, {"name": tool, "arguments": arguments}, **{"Mcp-Name": tool})
    assert not result.get("isError"), result
    return result


@pytest.fixture
async def crowded(instance: Instance) -> Instance:
    """A workspace with 20 long memories with many fields, 60 short ones, and a plan with long tasks."""
    for project, content, count in (("cranes", _LONG_TEXT, 20), ("gulls", "Gull {n} nests near shed {n}.", 60)):
        memories = [
            {
                "content": content.replace("{n}", str(number)) if project == "gulls" else f"Crane {number}: {content}"[:20_000],
                "type": "fact",
                "project": project,
                "tags": [f"tag-{number}-{place}" for place in range(10)],
                "metadata": {f"field{place}": f"value {place} of {number}" for place in range(15)},
            }
            for number in range(count)
        ]
        for start in range(0, count, 20):
            response = await instance.admin.post("/v1/brain/remember/batch", {"memories": memories[start : start + 20], "wait_ms": 5000})
            assert response.status_code < 300, response.text
    await make_plan(instance.admin, phase("One", *(task(name, description=_LONG_TEXT, notes=_LONG_TEXT) for name in "abcdef")))
    return instance


_CRANES: Json = {"project": "cranes"}
CASES: tuple[tuple[str, Json, int], ...] = (
    ("brain__recall", {"query": "Which crane lifts timber?", **_CRANES}, _DEFAULT_TOKENS),
    ("brain__recall", {"query": "Which crane lifts timber?", "top_k": 20, **_CRANES}, _DEFAULT_TOKENS),
    ("brain__recall", {"query": "Which crane lifts timber?", "context": 2, **_CRANES, "max_tokens": 2_500}, 2_500),
    ("brain__recall", {"query": "Where does the gull nest?", "project": "gulls", "top_k": 50, "max_tokens": 500}, 500),
    ("brain__recall", {"query": "Where does the gull nest?", "project": "gulls", "top_k": 50, "max_tokens": 50}, 50),
    ("brain__search", {"query": "crane", **_CRANES}, _DEFAULT_TOKENS),
    ("brain__search", {"query": "crane", "max_tokens": 300}, 300),
    ("brain__context", _CRANES, _DEFAULT_TOKENS),
    ("brain__context", {**_CRANES, "max_tokens": 1_000}, 1_000),
    ("brain__list", {**_CRANES, "per_page": 100}, _DEFAULT_TOKENS),
    ("brain__list", {"project": "gulls", "per_page": 100, "max_tokens": 1_000}, 1_000),
    ("agents__session_start", {"agent_type": "coder", **_CRANES}, _DEFAULT_TOKENS),
    ("agents__session_start", {"agent_type": "coder", "plan": "move-house", "takeover": True, "max_tokens": 500}, 500),
)


async def test_no_result_is_larger_than_its_budget(crowded: Instance) -> None:
    """Whatever form a client shows has at most four characters per token; the first item is in it, and the rest is accounted for."""
    for tool, arguments, tokens in CASES:
        for client, show in SHOWN_FORMS.items():
            result = await _call(crowded.admin, tool, client, **arguments)
            shown = show(result)
            assert len(shown) <= tokens * _CHARS_PER_TOKEN, (tool, arguments, client, len(shown))
            assert "null" not in shown, (tool, client)
            output = cast("Json", json.loads(_get_text(result)))
            assert '"truncated":true' in shown or '\\"truncated\\":true' in shown
            if tool.startswith("brain__"):
                items = [item for value in output.values() if isinstance(value, list) for item in cast("list[Json]", value)]
                assert items, (tool, arguments)
                assert all(item["id"] and item["content"] for item in items)
                assert any(item.get("truncated") for item in items)


async def test_what_is_left_out_is_counted(crowded: Instance) -> None:
    """Returned and missing items add up; a cut memory keeps its id, ends with the mark, and get returns it whole."""
    small = await _call(crowded.admin, "brain__recall", query="gull shed", project="gulls", top_k=50, max_tokens=500)
    long = await _call(crowded.admin, "brain__recall", query="crane", project="cranes", top_k=3)
    few, cut = (cast("Json", result["structuredContent"]) for result in (small, long))
    shown = cast("list[Json]", cut["memories"])
    whole = await _call(crowded.admin, "brain__get", id=shown[0]["id"])

    assert len(cast("list[Json]", few["memories"])) + cast("int", few["left_out"]) == 50
    assert len(shown) == 3
    assert "left_out" not in cut
    assert all(memory["truncated"] and str(memory["content"]).endswith("…") for memory in shown)
    assert len(str(cast("Json", whole["structuredContent"])["content"])) == 20_000


async def test_an_answer_that_fits_is_whole(instance: Instance) -> None:
    """A short answer has no marks, and its structured content is what its text says."""
    await instance.admin.remember("The heron nests in the reeds.", tags=["birds"], metadata={"pairs": 2})
    result = await _call(instance.admin, "brain__recall", query="Where does the heron nest?")
    output = cast("Json", result["structuredContent"])

    assert output == json.loads(_get_text(result))
    assert not {"left_out", "truncated"} & set(output)
    assert cast("list[Json]", output["memories"])[0]["metadata"] == {"pairs": 2}


async def test_the_http_api_returns_all_fields(crowded: Instance) -> None:
    """The shapes of the HTTP API do not change: structured content is complete, unless the call sets a budget."""

    async def call(**arguments: object) -> Json:
        body = {"server": "brain", "tool": "recall", "arguments": {"query": "crane", "project": "cranes", **arguments}}
        return cast("Json", (await crowded.admin.post("/api/v1/mcp/tools/call", body)).json()["result"]["structuredContent"])

    whole, limited = await call(), await call(max_tokens=1_000)

    assert [len(str(memory["content"])) for memory in cast("list[Json]", whole["memories"])] == [20_000] * 5
    assert {"workspace_id", "took_ms"} & set(whole)
    assert len(_to_json(limited)) <= 1_000 * _CHARS_PER_TOKEN


async def test_a_budget_too_small_for_anything_is_refused(instance: Instance) -> None:
    """The error names the smallest budget."""
    arguments: Json = {"query": "heron", "max_tokens": 10}
    params: Json = {"name": "brain__recall", "arguments": arguments}
    result = await _request(instance.admin, "tools/call", "unknown", params, **{"Mcp-Name": "brain__recall"})

    assert result["isError"]
    assert "max_tokens: must be an integer of at least 50" in _get_text(result)


async def test_no_built_in_tool_publishes_an_output_schema(instance: Instance) -> None:
    """Some clients pass output schemas on to their model; recall and remember are offered by clients that defer tools."""

    async def list_tools() -> list[Json]:
        tools = cast("list[Json]", (await _request(instance.admin, "tools/list", "google-adk", {}))["tools"])
        return tools if {str(tool["name"]).partition("__")[0] for tool in tools} >= {"brain", "agents", "scoring", "content"} else []

    tools = cast("list[Json]", await eventually(list_tools))
    loaded = {str(tool["name"]) for tool in tools if tool.get("_meta") == {"anthropic/alwaysLoad": True}}

    assert not any("outputSchema" in tool for tool in tools)
    assert loaded == {"brain__recall", "brain__remember"}


async def test_lists_are_compressed_for_clients_that_accept_it(instance: Instance) -> None:
    """tools/list is less than a fifth of its size as gzip, in both kinds of the protocol; other clients get it as it is."""
    plain = {"Accept": "application/json, text/event-stream", "Accept-Encoding": "identity"}
    hello: Json = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}
    begun = await instance.admin.send("POST", "/mcp", {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}, **plain)
    session = {"Mcp-Session-Id": begun.headers["mcp-session-id"], "MCP-Protocol-Version": "2025-11-25"}
    meta: Json = {f"{_PREFIX}protocolVersion": _VERSION, f"{_PREFIX}clientCapabilities": Json()}
    modern = {"MCP-Protocol-Version": _VERSION, "Mcp-Method": "tools/list"}

    async def list_tools(headers: Mapping[str, str], encoding: str, **params: object) -> tuple[str | None, str, int]:
        body: Json = {"jsonrpc": "2.0", "id": 2, "method": "tools/list", "params": params}
        sent = {**plain, **headers, "Accept-Encoding": encoding}
        async with instance.admin.http.stream("POST", "/mcp", json=body, headers=sent) as response:
            raw = b"".join([chunk async for chunk in response.aiter_raw()])
        content = zlib.decompress(raw, zlib.MAX_WBITS | 32) if "content-encoding" in response.headers else raw
        length = response.headers.get("content-length")
        assert length is None or int(length) == len(raw)
        return response.headers.get("content-encoding"), content.decode(), len(raw)

    await eventually(lambda: _lists_all(list_tools, session))
    for headers, params in ((session, {}), (modern, {"_meta": meta})):
        encoding, text, size = await list_tools(headers, "gzip, deflate", **params)
        refused, refused_text, refused_size = await list_tools(headers, "gzip;q=0", **params)
        assert (encoding, refused) == ("gzip", None)
        assert "brain__recall" in text
        assert "brain__recall" in refused_text
        assert size < refused_size / 5


async def _lists_all(list_tools: Callable[..., Awaitable[tuple[str | None, str, int]]], session: Mapping[str, str]) -> bool:
    _, text, _ = await list_tools(session, "identity")
    assert '"result":' in text, text
    return "agents__plan_create" in text and "brain__recall" in text


async def test_a_short_answer_is_not_compressed(instance: Instance) -> None:
    """A body below 4 KB fits into few packets."""
    headers = {"Accept": "application/json, text/event-stream", "Accept-Encoding": "gzip"}
    response = await instance.admin.send("POST", "/mcp", {"jsonrpc": "2.0", "id": 1, "method": "ping"}, **headers)

    assert "content-encoding" not in response.headers


async def test_search_mode_calls_read_only_tools_apart(instance: Instance) -> None:
    """call_read_only_tool has the hint that clients without approval ask for, and refuses tools that may write."""
    search = "/mcp?mode=search"
    tools = cast("list[Json]", (await _request(instance.admin, "tools/list", "codex-mcp-client", {}, path=search))["tools"])

    async def call(name: str, **arguments: object) -> Json:
        params: Json = {"name": "call_read_only_tool", "arguments": {"name": name, "arguments": arguments}}
        headers = {"Mcp-Name": "call_read_only_tool"}
        return await _request(instance.admin, "tools/call", "codex-mcp-client", params, path=search, **headers)

    found = await call("brain__recall", query="heron")
    written = await call("brain__remember", content="The heron nests.", type="fact")
    unknown = await call("brain__recal", query="heron")

    hints = {str(tool["name"]): tool.get("annotations", {}) for tool in tools}
    assert hints == {"find_tool": {"readOnlyHint": True}, "call_tool": {}, "call_read_only_tool": {"readOnlyHint": True}}
    assert not found.get("isError")
    assert "is not listed as read-only" in _get_text(written)
    assert unknown["isError"]
    assert cast("Json", (await call("brain__list"))["structuredContent"])["total"] == 0
