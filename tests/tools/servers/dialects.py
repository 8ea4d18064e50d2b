"""
An MCP server whose tools have valid but unusual schemas, and whose items have fields of its vendor; only the standard library.

Each tool returns its arguments as text and as structured content.
"""

from __future__ import annotations

import json
import sys

DRAFTS = {
    "draft4": "http://json-schema.org/draft-04/schema#",
    "draft6": "http://json-schema.org/draft-06/schema#",
    "draft7": "http://json-schema.org/draft-07/schema#",
    "d2019": "https://json-schema.org/draft/2019-09/schema",
    "d2020": "https://json-schema.org/draft/2020-12/schema",
    "unknown": "https://schemas.example.org/dialect",
    "none": None,
}
"""`$schema` by the name of a tool."""

FORMATS = {
    "start": {"type": "string", "format": "date-time"},
    "link": {"type": "string", "format": "uri"},
    "to": {"type": "string", "format": "email"},
    "payload": {"type": "string", "contentEncoding": "base64", "contentMediaType": "application/json"},
}
_BIG = 2**70
_VENDOR = {"kept": None, "list": [None, {"deep": 1.5}]}


def _build_old_schema(dialect: str) -> dict[str, object]:
    """Return a schema with the keywords of draft-04 to draft-07."""
    is_draft4 = "draft-04" in dialect
    yes: object = {} if is_draft4 else True
    no: object = {"not": {}} if is_draft4 else False
    return {
        "$schema": dialect,
        ("id" if is_draft4 else "$id"): "https://schemas.example.org/tools/old.json",
        "title": "Old",
        "type": "object",
        "definitions": {
            "node": {
                "type": "object",
                "properties": {"next": {"$ref": "#/definitions/node"}, "größe": {"type": "integer", "maximum": _BIG}},
            },
            "odd/na~me %": {"type": "string"},
        },
        "properties": {
            "node": {"$ref": "#/definitions/node"},
            "odd": {"$ref": "#/definitions/odd~1na~0me%20%25"},
            "default": {"type": ["string", "null"], "default": None, "x-shown": {"default": None}},
            "pair": {"type": "array", "items": [{"type": "integer"}, yes], "additionalItems": no},
            "数": {"enum": [None, _BIG, -_BIG, 1.0, "é"]},
            "any": yes,
            **FORMATS,
        },
        "patternProperties": {"^x-": {"type": "string"}},
        "dependencies": {"odd": ["node"], "pair": {"required": ["any"]}},
        "additionalProperties": False,
        "x-vendor": _VENDOR,
        "x-null": None,
        **({} if is_draft4 else {"examples": [{"node": {"$ref": "data"}}, None], "propertyNames": {"maxLength": 99}}),
        **({"if": {"required": ["odd"]}, "then": {"required": ["node"]}, "else": True} if "draft-07" in dialect else {}),
    }


def _build_new_schema(dialect: str | None) -> dict[str, object]:
    """Return a schema with the keywords of 2019-09 and 2020-12."""
    is_2020 = dialect is None or "2019-09" not in dialect
    pair: dict[str, object] = (
        {"prefixItems": [{"type": "integer"}, True], "items": False}
        if is_2020
        else {"items": [{"type": "integer"}, True], "additionalItems": False}
    )
    return {
        **({} if dialect is None else {"$schema": dialect, "$id": "https://schemas.example.org/tools/new.json"}),
        "title": "New",
        "$comment": "The root.",
        "type": "object",
        "$defs": {
            "node": {
                "$anchor": "node",
                "type": "object",
                "properties": {"next": {"$ref": "#/$defs/node"}, "größe": {"type": "integer", "maximum": _BIG}},
                "unevaluatedProperties": False,
            },
            "$ref": {"type": "string", "deprecated": True},
        },
        "properties": {
            "node": {"$ref": "#/$defs/node", "description": "Beside a reference."},
            "$ref": {"$ref": "#/$defs/$ref"},
            "odd": {"type": "string"},
            "default": {"type": ["string", "null"], "default": None, "examples": [None, "a"]},
            "pair": {"type": "array", **pair, "minContains": 0, "contains": True},
            "数": {"enum": [None, _BIG, -_BIG, 1.0, "é"]},
            "any": True,
            "none": False,
            "mode": {"oneOf": [{"const": "fast", "title": "Fast"}, {"const": "slow", "title": "Slow"}], "default": "fast"},
            **FORMATS,
        },
        "patternProperties": {"^x-": {"type": "string"}},
        "dependentRequired": {"odd": ["node"]},
        "dependentSchemas": {"pair": {"required": ["any"]}},
        "if": {"required": ["odd"]},
        "then": {"required": ["node"]},
        "else": True,
        "unevaluatedProperties": False,
        "x-vendor": _VENDOR,
        "readOnly": False,
        "x-null": None,
        "examples": [{"node": {"$ref": "data"}}, None],
    }


def _build_schema(dialect: str | None) -> dict[str, object]:
    return _build_old_schema(dialect) if dialect is not None and "/draft-0" in dialect else _build_new_schema(dialect)


ANNOTATIONS = {"title": "Hint", "readOnlyHint": True, "category": "network", "conditions": ["open", None], "priority": {"level": 1}}
_DIALECT_TOOLS: list[dict[str, object]] = [
    {
        "name": name,
        "title": f"In {name}",
        "description": "",
        "inputSchema": _build_schema(dialect),
        "outputSchema": {**_build_schema(dialect), "additionalProperties": True, "unevaluatedProperties": True},
        "annotations": ANNOTATIONS,
        "icons": [{"src": "https://example.org/a.png", "mimeType": "image/png", "x-tone": "red"}],
        "x-cost": {"credits": 2},
        "_meta": {"example.org/a": {"b": None}},
    }
    for name, dialect in DRAFTS.items()
]
TOOLS: list[dict[str, object]] = [
    *_DIALECT_TOOLS,
    {
        "name": "arguments",
        "description": "Returns its arguments.",
        "annotations": {"readOnlyHint": True},
        "inputSchema": {
            "type": "object",
            "properties": {
                "path": {"type": "string"},
                "glob": {"type": "string"},
                "limit": {"type": "integer"},
                "after": {"type": ["string", "null"]},
                "tone": {"type": "string", "nullable": True},
                "deep": {"type": "object", "properties": {"name": {"type": "string"}}},
                "scale": {"type": "string", "enum": ["css", "device"], "default": "css"},
            },
            "required": ["path", "scale"],
            "additionalProperties": False,
        },
    },
]
RESOURCES: list[dict[str, object]] = [
    {"uri": "memo://a", "name": "a", "annotations": {"priority": 0.5, "color": "red"}, "x-owner": "Ada", "_meta": {"k": 1}},
]
TEMPLATES: list[dict[str, object]] = [
    {"uriTemplate": "memo://{id}", "name": "memo", "annotations": {"audience": ["user"], "color": "red"}, "x-owner": "Ada"},
]
PROMPTS: list[dict[str, object]] = [
    {
        "name": "greet",
        "title": "Greet",
        "arguments": [{"name": "who", "required": True, "x-kind": "person"}, {"name": "tone", "description": "How."}],
        "x-owner": "Ada",
    },
]
BLOCK_FIELDS = {"annotations": {"audience": ["user"], "color": "red"}, "x-block": {"a": None}, "_meta": {"m": 1}}


def _answer(method: str, params: dict[str, object]) -> dict[str, object] | None:
    match method:
        case "initialize":
            capabilities: dict[str, object] = {"tools": {}, "resources": {}, "prompts": {}}
            return {"protocolVersion": "2025-11-25", "capabilities": capabilities, "serverInfo": {"name": "dialects", "version": "1"}}
        case "ping":
            return {}
        case "tools/list":
            return {"tools": TOOLS}
        case "resources/list":
            return {"resources": RESOURCES}
        case "resources/templates/list":
            return {"resourceTemplates": TEMPLATES}
        case "prompts/list":
            return {"prompts": PROMPTS}
        case "tools/call":
            arguments = params.get("arguments")
            content = [{"type": "text", "text": json.dumps(arguments, sort_keys=True), **BLOCK_FIELDS}]
            structured = {"arguments": arguments, "null": None}
            return {"content": content, "structuredContent": structured, "x-result": {"a": None}, "isError": False}
        case "resources/read":
            return {"contents": [{"uri": params["uri"], "text": "A memo.", "x-block": 1}], "x-result": 1}
        case "prompts/get":
            text = json.dumps(params.get("arguments"), sort_keys=True)
            return {"messages": [{"role": "user", "content": {"type": "text", "text": text, **BLOCK_FIELDS}, "x-turn": 1}], "x-result": 1}
        case _:
            return None


def main() -> None:
    """Answer one message a line."""
    for line in sys.stdin:
        message = json.loads(line)
        if "id" not in message or "method" not in message:
            continue
        result = _answer(message["method"], message.get("params") or {})
        answer = {"error": {"code": -32601, "message": "Method not found"}} if result is None else {"result": result}
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": message["id"], **answer}) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
