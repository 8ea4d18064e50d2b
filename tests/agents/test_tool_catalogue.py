"""The texts of the built-in tools for models: their size, their schemas, their results."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import cast

import orjson
import pytest
from pydantic import BaseModel

from benchmarks.tool_catalogue import catalogue, estimated_tokens
from tests.agents.makers import make_plan, phase
from tests.agents.test_mcp_tools import TOOL_ROUTES, list_agent_tools
from tests.conftest import Caller, Instance, eventually

Json = dict[str, object]
MAX_TOKENS, MAX_OUTPUT_TOKENS = 6_000, 15_000
ANY_VALUES: list[object] = [None, "done", 1.5, True, {"a": [None]}, [["a"], [1]], [True, False], [None]]


def _schemas(value: object) -> Iterator[Mapping[str, object]]:
    """Yield every schema within a schema."""
    if isinstance(value, dict):
        schema = cast("Json", value)
        yield schema
        for nested in schema.values():
            yield from _schemas(nested)
    elif isinstance(value, list):
        for nested in cast("list[object]", value):
            yield from _schemas(nested)


async def _list_builtin_tools(by: Caller) -> list[Json]:
    """Return the built-in tools once both servers are listed. A list of all servers waits for none."""

    async def find() -> list[Json]:
        tools = [tool for tool in await _list_tools(by) if str(tool["name"]).startswith(("agents__", "brain__"))]
        return tools if len({str(tool["name"]).partition("__")[0] for tool in tools}) == 2 else []

    return cast("list[Json]", await eventually(find))


async def _list_tools(by: Caller) -> list[Json]:
    prefix, version = "io.modelcontextprotocol/", "2026-07-28"
    headers = {"Accept": "application/json, text/event-stream", "MCP-Protocol-Version": version, "Mcp-Method": "tools/list"}
    tools, cursor = list[Json](), dict[str, str]()
    while True:
        params: Json = {"_meta": {f"{prefix}protocolVersion": version, f"{prefix}clientCapabilities": Json()}, **cursor}
        request: Json = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": params}
        response = await by.send("POST", "/mcp", request, **headers)
        assert response.status_code == 200, response.text
        result = response.json()["result"]
        tools += result["tools"]
        if not result.get("nextCursor"):
            return tools
        cursor = {"cursor": result["nextCursor"]}


async def test_the_catalogue_of_the_built_in_tools_is_small(instance: Instance) -> None:
    """Names, descriptions and input schemas of all built-in tools use at most 6,000 tokens in tools/list."""
    tools = await _list_builtin_tools(instance.admin)
    texts = [{name: tool[name] for name in ("name", "description", "inputSchema")} for tool in tools]
    prefixes = ("agents__", "brain__")
    assert {str(text_["name"]) for text_ in texts} == {name for tool in catalogue() if (name := str(tool["name"])).startswith(prefixes)}
    assert len(texts) >= 45
    assert estimated_tokens(texts) <= MAX_TOKENS
    assert not any("title" in tool for tool in tools)


async def test_the_output_schemas_of_the_built_in_tools_are_small(instance: Instance) -> None:
    """The output schemas of the HTTP API describe two levels of objects, and use at most 15,000 tokens."""
    lists = [(await instance.admin.get(f"/api/v1/mcp/servers/{server}/tools")).json() for server in ("agents", "brain")]
    outputs = [{"outputSchema": tool["outputSchema"]} for tools in lists for tool in tools["tools"]]
    assert all(cast("Json", output["outputSchema"])["properties"] for output in outputs)
    assert estimated_tokens(outputs) <= MAX_OUTPUT_TOKENS


def test_each_schema_has_one_type_and_no_title() -> None:
    """In all built-in tools, `type` is no union, there is no title, and every required field exists."""
    for tool in catalogue():
        for schema in _schemas(tool["inputSchema"]):
            assert not isinstance(schema.get("type"), list), tool["name"]
            assert not isinstance(schema.get("title"), str), tool["name"]
            if isinstance(schema.get("required"), list) and "properties" in schema:
                assert set(cast("list[str]", schema["required"])) <= set(cast("Json", schema["properties"])), tool["name"]


async def test_no_tool_allows_what_its_route_rejects(instance: Instance) -> None:
    """The model of the route accepts the whole range and every value of a tool's argument."""
    compared_count = 0
    for tool in list_agent_tools(instance):
        model: type[BaseModel] = TOOL_ROUTES[tool.name][0]
        route = cast("Mapping[str, Json]", model.model_json_schema().get("properties", {}))
        for name, tool_schema in cast("Mapping[str, Json]", tool.input_schema["properties"]).items():
            route_schemas = [schema for schema in _schemas(route.get(name, {})) if "type" in schema or "enum" in schema]
            for limit_name in ("maxLength", "maxItems", "maximum"):
                limits = [cast("float", schema[limit_name]) for schema in route_schemas if limit_name in schema]
                if limit_name in tool_schema and limits:
                    assert cast("float", tool_schema[limit_name]) <= max(limits), (tool.name, name)
                    compared_count += 1
            values = {str(value) for schema in route_schemas for value in cast("list[object]", schema.get("enum", []))}
            if "enum" in tool_schema and values:
                assert set(cast("list[str]", tool_schema["enum"])) <= values, (tool.name, name)
                compared_count += 1
    assert compared_count >= 15


async def test_a_free_object_may_be_sent_as_json_text(instance: Instance) -> None:
    """Clients with closed schemas send metadata, context, data, state and variables as JSON text."""

    async def call(tool: str, **arguments: object) -> Json:
        response = await instance.agent.post("/api/v1/mcp/tools/call", {"server": "agents", "tool": tool, "arguments": arguments})
        return cast("Json", response.json())

    start = await call("session_start", agent_type="coder", context='{"branch": "main"}')
    session = cast("Json", cast("Json", cast("Json", start["result"])["structuredContent"])["session"])
    assert session["context"] == {"branch": "main"}
    checkpoint = await call("session_checkpoint", session_id=session["id"], state='{"done": ["a"]}')
    assert cast("Json", cast("Json", checkpoint["result"])["structuredContent"])["state"] == {"done": ["a"]}
    rejected = await call("session_checkpoint", session_id=session["id"], state="almost done")
    assert "state: must be a JSON object" in str(cast("Json", rejected["result"])["content"])


@pytest.mark.parametrize("result", ANY_VALUES)
@pytest.mark.parametrize("tool", ["task_complete", "task_fail"])
async def test_a_result_is_any_json_value(instance: Instance, tool: str, result: object) -> None:
    """The published schema of `result` lists types for model providers, and calls are not restricted by it."""
    schemas = {str(tool_["name"]): cast("Json", tool_["inputSchema"]) for tool_ in catalogue()}
    field = cast("Json", cast("Json", schemas[f"agents__{tool}"]["properties"])["result"])
    assert {str(schema["type"]) for schema in cast("list[Json]", field["anyOf"])} == {"object", "array", "string", "number", "boolean"}

    async def call(name: str, **arguments: object) -> Json:
        response = await instance.agent.post("/api/v1/mcp/tools/call", {"server": "agents", "tool": name, "arguments": arguments})
        assert response.status_code == 200, response.text
        return cast("Json", cast("Json", response.json()["result"])["structuredContent"])

    await make_plan(instance.agent, phase("One", "a"))
    task = cast("Json", (await call("task_claim_next", plan="move-house"))["task"])
    error = {"error": "No tea."} if tool == "task_fail" else {}
    ended_task = await call(tool, task_id=task["id"], claim_token=task["claim_token"], result=result, **error)
    assert ended_task["result"] == result


@pytest.mark.parametrize("tool", ["session_start", "plan_show"])
async def test_the_text_of_a_result_has_no_empty_fields(instance: Instance, tool: str) -> None:
    """The text for the model omits nulls and empty fields; structuredContent is complete."""
    await make_plan(instance.agent, phase("One", "a", "b"))
    arguments = {"agent_type": "coder", "plan": "move-house"} if tool == "session_start" else {"plan": "move-house"}
    response = await instance.agent.post("/api/v1/mcp/tools/call", {"server": "agents", "tool": tool, "arguments": arguments})
    result = cast("Json", response.json()["result"])
    text = str(cast("list[Json]", result["content"])[0]["text"])
    assert "null" not in text
    assert "[]" not in text
    assert "{}" not in text
    assert len(text) < 0.7 * len(orjson.dumps(result["structuredContent"]))
    text_body = orjson.loads(text)
    full_body = cast("Json", result["structuredContent"])
    assert set(text_body) <= set(full_body)
