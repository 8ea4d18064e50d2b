"""How a tool of `agents` and its arguments are described."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import orjson

from rookery.kernel.errors import ValidationFailed

Schema = Mapping[str, object]

_FREE: Schema = {"anyOf": [{"type": "object"}, {"type": "string"}]}

_SIMPLE: Sequence[Schema] = ({"type": "object"}, {"type": "string"}, {"type": "number"}, {"type": "boolean"})
_VALUE: Schema = {"anyOf": [*_SIMPLE, {"type": "array", "items": {"anyOf": [*_SIMPLE[:3]]}}]}

_READS: Schema = {"readOnlyHint": True, "openWorldHint": False}
_ADDS: Schema = {"readOnlyHint": False, "destructiveHint": False, "idempotentHint": False, "openWorldHint": False}
_SETS: Schema = {"readOnlyHint": False, "destructiveHint": False, "idempotentHint": True, "openWorldHint": False}


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentsTool:
    """One tool, as `tools.ports.BuiltinTool` asks for it."""

    name: str
    description: str
    input_schema: Schema
    annotations: Schema
    needs: str


def reads(name: str, needs: str, description: str, required: Sequence[str], properties: Schema) -> AgentsTool:
    """Return a tool that changes nothing."""
    return _tool(name, needs, description, required, properties, hints=_READS)


def adds(name: str, needs: str, description: str, required: Sequence[str], properties: Schema) -> AgentsTool:
    """Return a tool of which each call does one thing more."""
    return _tool(name, needs, description, required, properties, hints=_ADDS)


def sets(name: str, needs: str, description: str, required: Sequence[str], properties: Schema) -> AgentsTool:
    """Return a tool of which the same call twice is as once."""
    return _tool(name, needs, description, required, properties, hints=_SETS)


def text(says: str = "") -> Schema:
    """Return a text; its length is checked by the twin's model."""
    return _described({"type": "string"}, says)


def choice(names: Sequence[str], says: str = "") -> Schema:
    """Return one of some words."""
    return _described({"type": "string", "enum": list(names)}, says)


def number(least: int, most: int, says: str = "") -> Schema:
    """Return a whole number within bounds."""
    return _described({"type": "integer", "minimum": least, "maximum": most}, says)


def flag(says: str = "") -> Schema:
    """Return a boolean."""
    return _described({"type": "boolean"}, says)


def free(says: str = "") -> Schema:
    """Return an object of the caller's own, or its JSON text: callers whose schemas must be closed can send the text alone."""
    return _described(_FREE, says)


def value(says: str = "") -> Schema:
    """Return a JSON value: no null, and no list of lists or booleans; clients of some models refuse a schema that names no type."""
    return _described(_VALUE, says)


def listed(items: Schema, says: str = "") -> Schema:
    """Return a list."""
    return _described({"type": "array", "items": items}, says)


def parsed(tool: AgentsTool, arguments: Mapping[str, object]) -> Mapping[str, object]:
    """
    Return *arguments* with the JSON text of free objects read.

    Raises:
        ValidationFailed: A text is not that of an object.
    """
    properties = cast("Mapping[str, Schema]", tool.input_schema["properties"])
    texts = {name: value for name, value in arguments.items() if isinstance(value, str) and _is_free(properties.get(name))}
    return {**arguments, **{name: _read(name, value) for name, value in texts.items()}} if texts else arguments


def fields(required: Sequence[str], properties: Schema) -> Schema:
    """Return an object of these fields and no others."""
    return {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}


def _tool(name: str, needs: str, description: str, required: Sequence[str], properties: Schema, *, hints: Schema) -> AgentsTool:
    return AgentsTool(
        name=name,
        description=description,
        needs=needs,
        input_schema=fields(required, properties),
        annotations=hints,
    )


def _described(schema: Schema, says: str) -> Schema:
    return {**schema, "description": says} if says else schema


def _is_free(schema: Schema | None) -> bool:
    return schema is not None and schema.get("anyOf") is _FREE["anyOf"]


def _read(name: str, value: str) -> object:
    try:
        found = cast("object", orjson.loads(value))
    except orjson.JSONDecodeError:
        found = None
    if not isinstance(found, dict):
        raise ValidationFailed({name: ["must be a JSON object, or the text of one"]})
    return cast("dict[str, object]", found)
