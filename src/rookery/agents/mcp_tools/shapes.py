"""How a tool of `agents` and its arguments are described."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

Schema = Mapping[str, object]

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


def text(most: int, says: str = "") -> Schema:
    """Return a text that is not empty."""
    return {"type": "string", "minLength": 1, "maxLength": most, **({"description": says} if says else {})}


def choice(names: Sequence[str], says: str = "") -> Schema:
    """Return one of some words."""
    return {"type": "string", "enum": list(names), **({"description": says} if says else {})}


def number(least: int, most: int, says: str = "") -> Schema:
    """Return a whole number within bounds."""
    return {"type": "integer", "minimum": least, "maximum": most, **({"description": says} if says else {})}


def flag(says: str) -> Schema:
    """Return a claim."""
    return {"type": "boolean", "description": says}


def free(says: str) -> Schema:
    """Return an object of the caller's own."""
    return {"type": "object", "description": says}


def listed(items: Schema, most: int, says: str = "") -> Schema:
    """Return a list."""
    return {"type": "array", "maxItems": most, "items": items, **({"description": says} if says else {})}


def fields(required: Sequence[str], properties: Schema) -> Schema:
    """Return an object of these fields and no others."""
    return {"type": "object", "properties": properties, "required": list(required), "additionalProperties": False}


def _tool(name: str, needs: str, description: str, required: Sequence[str], properties: Schema, *, hints: Schema) -> AgentsTool:
    return AgentsTool(
        name=name,
        description=description,
        needs=needs,
        input_schema=fields(required, properties),
        annotations={"title": name.replace("_", " ").capitalize(), **hints},
    )
