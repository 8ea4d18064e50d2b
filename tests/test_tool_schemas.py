"""The built-in tools in the words that providers of models accept: names, descriptions, and input schemas of every tool in `tools/list`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import cast

import pytest

from tests.conftest import Caller, Instance

Json = dict[str, object]
Schema = Mapping[str, object]

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,62}")
"""OpenAI and Anthropic: `^[a-zA-Z0-9_-]{1,64}$`; Gemini: a letter or an underscore first, and 63 characters in its first version."""

FIELD = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
"""Gemini's names of parameters, the narrowest."""

KEYWORDS = frozenset({"type", "properties", "required", "items", "enum", "anyOf", "description", "minimum", "maximum"})
"""Keywords that the strict mode of OpenAI, the tools of Anthropic and the Schema object of Gemini have in common."""

MAX_DEPTH, MAX_PROPERTIES, MAX_ENUM_VALUES = 5, 100, 500
"""Bounds of OpenAI's strict mode in its first, narrowest version; for all tools of a request each by itself."""

TYPES: Mapping[str, type | tuple[type, ...]] = {"string": str, "integer": int, "number": (int, float), "boolean": bool}

OPEN_OBJECTS: Mapping[str, str] = {
    "metadata": "the caller's own fields; a client whose schemas must be closed leaves them out or sends JSON text",
    "context": "the caller's own fields, or JSON text",
    "data": "the caller's own fields, or JSON text",
    "state": "the caller's own fields, or JSON text",
    "variables": "named by the template, or JSON text",
    "handoff": "the fields of session_handoff, or a text",
    "refs": "named by the caller, or a list of texts",
    "result": "any JSON value, or a text",
    "tasks": "the fields of task_add, or the name of the task",
    "arguments": "those of the tool that call_tool calls",
}
"""Fields that hold an object whose fields are not listed, and why; strict mode takes none, so a client falls back for these tools."""


async def _listed(by: Caller, path: str) -> list[Json]:
    prefix, version = "io.modelcontextprotocol/", "2026-07-28"
    headers = {"Accept": "application/json, text/event-stream", "MCP-Protocol-Version": version, "Mcp-Method": "tools/list"}
    found, cursor = list[Json](), dict[str, str]()
    while True:
        params: Json = {"_meta": {f"{prefix}protocolVersion": version, f"{prefix}clientCapabilities": Json()}, **cursor}
        answer = await by.send("POST", path, {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": params}, **headers)
        assert answer.status_code == 200, answer.text
        result = cast("dict[str, list[Json]]", answer.json()["result"])
        found += result["tools"]
        if not result.get("nextCursor"):
            return found
        cursor = {"cursor": str(result["nextCursor"])}


def _parts(schema: Schema, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Schema]]:
    """Return every schema of a schema with the names of the fields that lead to it."""
    yield path, schema
    for name, field in cast("Mapping[str, Schema]", schema.get("properties", {})).items():
        yield from _parts(field, (*path, name))
    if "items" in schema:
        yield from _parts(cast("Schema", schema["items"]), path)
    for each in cast("list[Schema]", schema.get("anyOf", [])):
        yield from _parts(each, path)


@pytest.mark.parametrize(("path", "least"), [("/mcp", 45), ("/mcp?mode=search", 2)])
async def test_every_built_in_tool_is_one_that_providers_of_models_accept(instance: Instance, path: str, least: int) -> None:
    """Issue 14 (user 15): the common rules of OpenAI, Anthropic and Gemini, of all tools and not of samples; D-30, D-92."""
    tools = await _listed(instance.admin, path)

    assert len(tools) >= least
    for tool in tools:
        name, schema = str(tool["name"]), cast("Schema", tool["inputSchema"])
        assert NAME.fullmatch(name), name
        assert 0 < len(str(tool["description"])) <= 1024, name
        assert schema["type"] == "object", name
        assert schema.keys().isdisjoint({"anyOf", "enum"}), name
        parts = list(_parts(schema))
        assert sum(len(cast("Json", part.get("properties", {}))) for _, part in parts) <= MAX_PROPERTIES, name
        assert sum(len(cast("list[object]", part.get("enum", []))) for _, part in parts) <= MAX_ENUM_VALUES, name
        assert max(len(where) for where, _ in parts) <= MAX_DEPTH, name
        for where, part in parts:
            shown = (name, *where)
            assert part.keys() <= KEYWORDS, (shown, part)
            assert isinstance(part.get("type"), str) != ("anyOf" in part), (shown, part)
            assert not where or FIELD.fullmatch(where[-1]), shown
            assert set(cast("list[str]", part.get("required", []))) <= cast("Json", part.get("properties", {})).keys(), shown
            _check_values(shown, part)
            _check_contents(shown, where, part)


def _check_values(shown: tuple[str, ...], part: Schema) -> None:
    """Check that an enum has a type, values of it, and none twice."""
    values = cast("list[object]", part.get("enum", []))
    assert "enum" not in part or values, shown
    assert len(set(map(str, values))) == len(values), shown
    for value in values:
        assert isinstance(value, TYPES[str(part["type"])]), (shown, value)


def _check_contents(shown: tuple[str, ...], where: tuple[str, ...], part: Schema) -> None:
    """Check that an array says what it holds, and that an object does, unless it is listed as one that cannot."""
    if part.get("type") == "array":
        assert "items" in part, shown
    if part.get("type") == "object" and where and "properties" not in part:
        assert where[-1] in OPEN_OBJECTS, shown
