"""Builders for the definitions of the tools of `agents` and the JSON Schemas of their arguments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

import orjson

from rookery.kernel.errors import ValidationFailed

Schema = Mapping[str, object]

_OBJECT_OR_TEXT: Schema = {"anyOf": [{"type": "object"}, {"type": "string"}]}

_SIMPLE: Sequence[Schema] = ({"type": "object"}, {"type": "string"}, {"type": "number"}, {"type": "boolean"})
_ANY_VALUE: Schema = {"anyOf": [*_SIMPLE, {"type": "array", "items": {"anyOf": [*_SIMPLE[:3]]}}]}

_READ_HINTS: Schema = {"readOnlyHint": True, "openWorldHint": False}
_CREATE_HINTS: Schema = {"readOnlyHint": False, "destructiveHint": False, "idempotentHint": False, "openWorldHint": False}
_UPDATE_HINTS: Schema = {"readOnlyHint": False, "destructiveHint": False, "idempotentHint": True, "openWorldHint": False}


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentsTool:
    """A tool definition. It implements `tools.ports.BuiltinTool`."""

    name: str
    description: str
    input_schema: Schema
    annotations: Schema
    required_scope: str
    output_schema: Schema = field(default_factory=lambda: {"type": "object"})


def read_tool(name: str, required_scope: str, description: str, required: Sequence[str], properties: Schema) -> AgentsTool:
    """Return the definition of a read-only tool."""
    return _make_tool(name, required_scope, description, required, properties, hints=_READ_HINTS)


def create_tool(name: str, required_scope: str, description: str, required: Sequence[str], properties: Schema) -> AgentsTool:
    """Return the definition of a tool that is not idempotent: each call has a further effect."""
    return _make_tool(name, required_scope, description, required, properties, hints=_CREATE_HINTS)


def update_tool(name: str, required_scope: str, description: str, required: Sequence[str], properties: Schema) -> AgentsTool:
    """Return the definition of an idempotent tool that changes data."""
    return _make_tool(name, required_scope, description, required, properties, hints=_UPDATE_HINTS)


def text_schema(description: str = "") -> Schema:
    """Return the schema of a string. The request model of the route checks its length."""
    return _with_description({"type": "string"}, description)


def enum_schema(names: Sequence[str], description: str = "") -> Schema:
    """Return the schema of a string with a closed set of values."""
    return _with_description({"type": "string", "enum": list(names)}, description)


def integer_schema(minimum: int, maximum: int, description: str = "") -> Schema:
    """Return the schema of an integer within bounds."""
    return _with_description({"type": "integer", "minimum": minimum, "maximum": maximum}, description)


def boolean_schema(description: str = "") -> Schema:
    """Return the schema of a boolean."""
    return _with_description({"type": "boolean"}, description)


def object_schema(description: str = "") -> Schema:
    """
    Return the schema of an object with any fields, or of its JSON text.

    Some model providers accept only objects with listed fields. Their clients send the text.
    """
    return _with_description(_OBJECT_OR_TEXT, description)


def any_value_schema(description: str = "") -> Schema:
    """
    Return the schema of any JSON value.

    Some model providers reject a schema without a type, so it lists the types. Calls may send more, such as null and lists of lists:
    `tools.builtin_schemas.to_accepted_schema` does not restrict them (D-08).
    """
    return _with_description(_ANY_VALUE, description)


def array_schema(items: Schema, description: str = "") -> Schema:
    """Return the schema of a list."""
    return _with_description({"type": "array", "items": items}, description)


def parse_object_arguments(tool: AgentsTool, arguments: Mapping[str, object]) -> Mapping[str, object]:
    """
    Return *arguments*, with parsed objects in place of the JSON texts of arguments made by `object_schema`.

    Raises:
        ValidationFailed: A text is not a JSON object.
    """
    properties = cast("Mapping[str, Schema]", tool.input_schema["properties"])
    texts = {name: value for name, value in arguments.items() if isinstance(value, str) and _is_object_or_text(properties.get(name))}
    return {**arguments, **{name: _parse_object(name, value) for name, value in texts.items()}} if texts else arguments


def closed_object_schema(required: Sequence[str], properties: Schema) -> Schema:
    """Return the schema of an object with these fields and no others."""
    return {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}


def _make_tool(
    name: str, required_scope: str, description: str, required: Sequence[str], properties: Schema, *, hints: Schema
) -> AgentsTool:
    return AgentsTool(
        name=name,
        description=description,
        required_scope=required_scope,
        input_schema=closed_object_schema(required, properties),
        annotations=hints,
    )


def _with_description(schema: Schema, description: str) -> Schema:
    return {**schema, "description": description} if description else schema


def _is_object_or_text(schema: Schema | None) -> bool:
    return schema is not None and schema.get("anyOf") is _OBJECT_OR_TEXT["anyOf"]


def _parse_object(name: str, value: str) -> object:
    try:
        parsed = cast("object", orjson.loads(value))
    except orjson.JSONDecodeError:
        parsed = None
    if not isinstance(parsed, dict):
        raise ValidationFailed({name: ["must be a JSON object, or a string with the JSON of an object"]})
    return cast("dict[str, object]", parsed)
