"""The texts of the built-in tools that a model reads: their size, their promises, their results (D-92)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import cast

import orjson
import pytest
from pydantic import BaseModel

from benchmarks.tool_catalogue import catalogue, estimated_tokens
from rookery.agents.mcp_tools import TOOLS
from tests.agents.makers import make_plan, phase
from tests.agents.test_mcp_tools import TWINS
from tests.conftest import Caller, Instance

Json = dict[str, object]
MAX_TOKENS = 6_000
ANY_VALUES: list[object] = [None, "done", 1.5, True, {"a": [None]}, [["a"], [1]], [True, False], [None]]


def _schemas(value: object) -> Iterator[Mapping[str, object]]:
    """Return every schema in a schema."""
    if isinstance(value, dict):
        found = cast("Json", value)
        yield found
        for each in found.values():
            yield from _schemas(each)
    elif isinstance(value, list):
        for each in cast("list[object]", value):
            yield from _schemas(each)


async def _listed(by: Caller) -> list[Json]:
    prefix, version = "io.modelcontextprotocol/", "2026-07-28"
    headers = {"Accept": "application/json, text/event-stream", "MCP-Protocol-Version": version, "Mcp-Method": "tools/list"}
    found, cursor = list[Json](), dict[str, str]()
    while True:
        params: Json = {"_meta": {f"{prefix}protocolVersion": version, f"{prefix}clientCapabilities": Json()}, **cursor}
        asked: Json = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": params}
        answer = await by.send("POST", "/mcp", asked, **headers)
        assert answer.status_code == 200, answer.text
        result = answer.json()["result"]
        found += result["tools"]
        if not result.get("nextCursor"):
            return found
        cursor = {"cursor": result["nextCursor"]}


async def test_the_catalogue_of_the_built_in_tools_is_small(instance: Instance) -> None:
    """Issue 14: names, descriptions and input schemas of all built-in tools take at most 6,000 tokens in tools/list; D-92."""
    listed = [each for each in await _listed(instance.admin) if str(each["name"]).startswith(("agents__", "brain__"))]
    read = [{name: each[name] for name in ("name", "description", "inputSchema")} for each in listed]
    assert {str(each["name"]) for each in read} == {str(each["name"]) for each in catalogue()}
    assert len(read) >= 45
    assert estimated_tokens(read) <= MAX_TOKENS
    assert not any("outputSchema" in each or "title" in each for each in listed)


def test_each_schema_has_one_type_and_no_title() -> None:
    """Issue 14: no union in `type`, no title, no required field that is not there, in all built-in tools; D-92."""
    for tool in catalogue():
        for schema in _schemas(tool["inputSchema"]):
            assert not isinstance(schema.get("type"), list), tool["name"]
            assert not isinstance(schema.get("title"), str), tool["name"]
            if isinstance(schema.get("required"), list) and "properties" in schema:
                assert set(cast("list[str]", schema["required"])) <= set(cast("Json", schema["properties"])), tool["name"]


def test_no_tool_promises_what_its_route_refuses() -> None:
    """Issue 14: where a tool's argument has a range or a set of values, the model of its route takes all of them; D-92."""
    compared = 0
    for tool in TOOLS:
        model: type[BaseModel] = TWINS[tool.name][0]
        route = cast("Mapping[str, Json]", model.model_json_schema().get("properties", {}))
        for name, mine in cast("Mapping[str, Json]", tool.input_schema["properties"]).items():
            theirs = [each for each in _schemas(route.get(name, {})) if "type" in each or "enum" in each]
            for bound in ("maxLength", "maxItems", "maximum"):
                limits = [cast("float", each[bound]) for each in theirs if bound in each]
                if bound in mine and limits:
                    assert cast("float", mine[bound]) <= max(limits), (tool.name, name)
                    compared += 1
            values = {str(each) for one in theirs for each in cast("list[object]", one.get("enum", []))}
            if "enum" in mine and values:
                assert set(cast("list[str]", mine["enum"])) <= values, (tool.name, name)
                compared += 1
    assert compared >= 15


async def test_a_free_object_may_be_sent_as_json_text(instance: Instance) -> None:
    """Issue 14: clients whose schemas must be closed send metadata, context, data, state and variables as JSON text; D-92."""

    async def call(tool: str, **arguments: object) -> Json:
        answer = await instance.agent.post("/api/v1/mcp/tools/call", {"server": "agents", "tool": tool, "arguments": arguments})
        return cast("Json", answer.json())

    started = await call("session_start", agent_type="coder", context='{"branch": "main"}')
    session = cast("Json", cast("Json", cast("Json", started["result"])["structuredContent"])["session"])
    assert session["context"] == {"branch": "main"}
    kept = await call("session_checkpoint", session_id=session["id"], state='{"done": ["a"]}')
    assert cast("Json", cast("Json", kept["result"])["structuredContent"])["state"] == {"done": ["a"]}
    wrong = await call("session_checkpoint", session_id=session["id"], state="almost done")
    assert "state: must be a JSON object" in str(cast("Json", wrong["result"])["content"])


@pytest.mark.parametrize("result", ANY_VALUES)
@pytest.mark.parametrize("tool", ["task_complete", "task_fail"])
async def test_a_result_is_any_json_value(instance: Instance, tool: str, result: object) -> None:
    """Issue 15: the published schema of `result` lists types for model providers, and calls are not restricted by it; D-08, D-92."""
    published = {str(each["name"]): cast("Json", each["inputSchema"]) for each in catalogue()}
    field = cast("Json", cast("Json", published[f"agents__{tool}"]["properties"])["result"])
    assert {str(each["type"]) for each in cast("list[Json]", field["anyOf"])} == {"object", "array", "string", "number", "boolean"}

    async def call(name: str, **arguments: object) -> Json:
        answer = await instance.agent.post("/api/v1/mcp/tools/call", {"server": "agents", "tool": name, "arguments": arguments})
        assert answer.status_code == 200, answer.text
        return cast("Json", cast("Json", answer.json()["result"])["structuredContent"])

    await make_plan(instance.agent, phase("One", "a"))
    task = cast("Json", (await call("task_claim_next", plan="move-house"))["task"])
    error = {"error": "No tea."} if tool == "task_fail" else {}
    ended = await call(tool, task_id=task["id"], claim_token=task["claim_token"], result=result, **error)
    assert ended["result"] == result


@pytest.mark.parametrize("tool", ["session_start", "plan_show"])
async def test_the_text_of_a_result_has_no_empty_fields(instance: Instance, tool: str) -> None:
    """Issue 14: the text for the model leaves out nulls and empty fields; structuredContent is whole; D-92."""
    await make_plan(instance.agent, phase("One", "a", "b"))
    arguments = {"agent_type": "coder", "plan": "move-house"} if tool == "session_start" else {"plan": "move-house"}
    answer = await instance.agent.post("/api/v1/mcp/tools/call", {"server": "agents", "tool": tool, "arguments": arguments})
    result = cast("Json", answer.json()["result"])
    text = str(cast("list[Json]", result["content"])[0]["text"])
    assert "null" not in text
    assert "[]" not in text
    assert "{}" not in text
    assert len(text) < 0.7 * len(orjson.dumps(result["structuredContent"]))
    read = orjson.loads(text)
    whole = cast("Json", result["structuredContent"])
    assert set(read) <= set(whole)
