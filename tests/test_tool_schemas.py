"""Names, descriptions and input schemas of the built-in tools in `tools/list`, in the form that model providers accept."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import cast

import pytest

from tests.conftest import Caller, Instance, eventually

Json = dict[str, object]
Schema = Mapping[str, object]

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,62}")
"""OpenAI and Anthropic: `^[a-zA-Z0-9_-]{1,64}$`; Gemini: a letter or an underscore first, and 63 characters in its first version."""

FIELD = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
"""Parameter names of Gemini, which has the strictest rule."""

KEYWORDS = frozenset({"type", "properties", "required", "items", "enum", "anyOf", "description", "minimum", "maximum"})
"""Keywords that the strict mode of OpenAI, the tools of Anthropic and the Schema object of Gemini have in common."""

MAX_DEPTH, MAX_PROPERTIES, MAX_ENUM_VALUES = 5, 100, 500
"""Limits of the first version of OpenAI's strict mode, applied to each tool."""

TYPES: Mapping[str, type | tuple[type, ...]] = {"string": str, "integer": int, "number": (int, float), "boolean": bool}

OPEN_OBJECTS: Mapping[str, str] = {
    "metadata": "the caller's fields; a client with closed schemas omits them or sends JSON text",
    "context": "the caller's fields, or JSON text",
    "data": "the caller's fields, or JSON text",
    "tokens": "the counts of session events, or JSON text",
    "state": "the caller's fields, or JSON text",
    "variables": "named by the template, or JSON text",
    "handoff": "the fields of session_handoff, or a text",
    "refs": "named by the caller, or a list of texts",
    "result": "any JSON value, or a text",
    "tasks": "the fields of task_add, or the name of the task",
    "schema": "a JSON schema, or its text",
    "arguments": "those of the tool that call_tool calls",
}
"""Fields with an object of any fields, and the reason. Strict mode rejects these, so a client uses such tools without it."""


async def _list_tools(caller: Caller, path: str) -> list[Json]:
    prefix, version = "io.modelcontextprotocol/", "2026-07-28"
    headers = {"Accept": "application/json, text/event-stream", "MCP-Protocol-Version": version, "Mcp-Method": "tools/list"}
    tools, cursor = list[Json](), dict[str, str]()
    while True:
        params: Json = {"_meta": {f"{prefix}protocolVersion": version, f"{prefix}clientCapabilities": Json()}, **cursor}
        response = await caller.send("POST", path, {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": params}, **headers)
        assert response.status_code == 200, response.text
        result = cast("dict[str, list[Json]]", response.json()["result"])
        tools += result["tools"]
        if not result.get("nextCursor"):
            return tools
        cursor = {"cursor": str(result["nextCursor"])}


def _iter_schemas(schema: Schema, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Schema]]:
    """Yield *schema* and every schema in it with the names of the fields that lead to it."""
    yield path, schema
    for name, field in cast("Mapping[str, Schema]", schema.get("properties", {})).items():
        yield from _iter_schemas(field, (*path, name))
    if "items" in schema:
        yield from _iter_schemas(cast("Schema", schema["items"]), path)
    for alternative in cast("list[Schema]", schema.get("anyOf", [])):
        yield from _iter_schemas(alternative, path)


@pytest.mark.parametrize(("path", "min_tools"), [("/mcp", 45), ("/mcp?mode=search", 2)])
async def test_model_providers_accept_every_built_in_tool(instance: Instance, path: str, min_tools: int) -> None:
    """All tools follow the common rules of OpenAI, Anthropic and Gemini."""

    async def list_all() -> list[Json]:
        tools = await _list_tools(instance.admin, path)
        return tools if len(tools) >= min_tools else []

    # A list waits for a new server for 5 s, and then leaves it out.
    tools: list[Json] = await eventually(list_all)
    for tool in tools:
        name, schema = str(tool["name"]), cast("Schema", tool["inputSchema"])
        assert NAME.fullmatch(name), name
        assert 0 < len(str(tool["description"])) <= 1024, name
        assert schema["type"] == "object", name
        assert schema.keys().isdisjoint({"anyOf", "enum"}), name
        parts = list(_iter_schemas(schema))
        assert sum(len(cast("Json", part.get("properties", {}))) for _, part in parts) <= MAX_PROPERTIES, name
        assert sum(len(cast("list[object]", part.get("enum", []))) for _, part in parts) <= MAX_ENUM_VALUES, name
        assert max(len(where) for where, _ in parts) <= MAX_DEPTH, name
        for where, part in parts:
            location = (name, *where)
            assert part.keys() <= KEYWORDS, (location, part)
            assert isinstance(part.get("type"), str) != ("anyOf" in part), (location, part)
            assert not where or FIELD.fullmatch(where[-1]), location
            assert set(cast("list[str]", part.get("required", []))) <= cast("Json", part.get("properties", {})).keys(), location
            _check_values(location, part)
            _check_contents(location, where, part)


def _check_values(location: tuple[str, ...], part: Schema) -> None:
    """Check that an enum has a type and distinct values of this type."""
    values = cast("list[object]", part.get("enum", []))
    assert "enum" not in part or values, location
    assert len(set(map(str, values))) == len(values), location
    for value in values:
        assert isinstance(value, TYPES[str(part["type"])]), (location, value)


def _check_contents(location: tuple[str, ...], where: tuple[str, ...], part: Schema) -> None:
    """Check that an array has the schema of its items, and an object its fields unless it is in OPEN_OBJECTS."""
    if part.get("type") == "array":
        assert "items" in part, location
    if part.get("type") == "object" and where and "properties" not in part:
        assert where[-1] in OPEN_OBJECTS, location
