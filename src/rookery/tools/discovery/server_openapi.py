"""An OpenAPI 3.1 document of one server's tools, for clients that use HTTP and not MCP. No I/O."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast
from urllib.parse import quote

from rookery.tools.discovery.embedded_schemas import SchemaEmbedder, to_json_pointer
from rookery.tools.gateway_names import MAX_NAME_LENGTH, map_gateway_names
from rookery.tools.models import JsonObject, Server

_ERROR_SCHEMA: JsonObject = {
    "type": "object",
    "required": ["error", "message"],
    "properties": {
        "success": {"const": False},
        "server": {"type": "string"},
        "tool": {"type": "string"},
        "error": {"type": "string", "description": "The error code."},
        "message": {"type": "string"},
    },
}
_FAILURE_SCHEMA: JsonObject = {
    "type": "object",
    "required": ["success", "server", "tool", "error", "code"],
    "properties": {
        "success": {"const": False},
        "server": {"type": "string"},
        "tool": {"type": "string"},
        "error": {"type": "string", "description": "The tool's error text."},
        "code": {"enum": ["tool_execution_error", "tool_timeout", "server_unavailable", "server_http_error", "result_too_large"]},
        "retry_after": {"type": "integer", "description": "Seconds to wait, as in Retry-After."},
        "duration_ms": {"type": "integer"},
        "result": {"type": "object"},
    },
}
_STRUCTURED_CONTENT_PATH = ("properties", "result", "properties", "structuredContent")
_ERROR_DESCRIPTIONS = {
    "400": "The arguments do not match the tool's schema, or the body is not JSON.",
    "401": "The key is missing or invalid.",
    "403": "The key may not call this tool, or the tool is disabled.",
    "404": "The server or the tool does not exist.",
    "429": "The key's rate limit is exceeded, or the server is busy.",
}


def build_openapi(server: Server, tools: Sequence[JsonObject], *, address: str, version: str) -> JsonObject:
    """
    Return the document of *server*, with one operation for each of *tools*.

    Args:
        address: The base URL of the HTTP API, with its prefix.
        version: The version of this API.
    """
    paths: JsonObject = {}
    embedder = SchemaEmbedder()
    by_name = {str(tool.get("name", "")): tool for tool in tools}
    for gateway_name, name in map_gateway_names(server.id, by_name, MAX_NAME_LENGTH).items():
        # Braces in a path would be parsed as a parameter.
        path = f"/servers/{server.id}/tools/{quote(name, safe='')}"
        paths[path] = {"post": _build_operation(server, by_name[name], path, gateway_name, embedder)}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": server.name,
            "summary": server.tagline or f"The tools of {server.name} over HTTP.",
            "description": server.description,
            "version": version,
        },
        "servers": [{"url": address}],
        "security": [{"bearerAuth": []}, {"apiKeyAuth": []}],
        "tags": [{"name": server.id, "description": server.use_when or server.tagline or server.name}],
        "paths": paths,
        "components": {
            "securitySchemes": {
                "bearerAuth": {"type": "http", "scheme": "bearer"},
                "apiKeyAuth": {"type": "apiKey", "in": "header", "name": "X-API-Key"},
            },
            "schemas": {"Refusal": _ERROR_SCHEMA, "Failure": _FAILURE_SCHEMA},
        },
    }


def _build_operation(server: Server, tool: JsonObject, path: str, gateway_name: str, embedder: SchemaEmbedder) -> JsonObject:
    annotations = tool.get("annotations")
    hints = cast("JsonObject", annotations if isinstance(annotations, dict) else {})
    title = tool.get("title") or hints.get("title")
    description, name = tool.get("description"), str(tool.get("name", ""))
    input_schema = embedder.embed(
        tool.get("inputSchema"), at=to_json_pointer("paths", path, "post", "requestBody", "content", "application/json", "schema")
    )
    operation: JsonObject = {
        "operationId": gateway_name,
        "tags": [server.id],
        "summary": title if isinstance(title, str) else name,
        "description": description if isinstance(description, str) else "",
        "requestBody": {"required": True, "content": {"application/json": {"schema": input_schema}}},
        "responses": {
            "200": {
                "description": "The tool's result.",
                "content": {"application/json": {"schema": _build_response_schema(tool, path, embedder)}},
            },
            **{status: _build_error_response(text, "Refusal") for status, text in _ERROR_DESCRIPTIONS.items()},
            "500": _build_error_response("The tool failed, or its server could not be reached.", "Failure"),
        },
    }
    if hints:
        operation["x-mcp-annotations"] = hints
    if server.status.value == "deprecated":
        operation["deprecated"] = True
    return operation


def _build_response_schema(tool: JsonObject, path: str, embedder: SchemaEmbedder) -> JsonObject:
    location = ("paths", path, "post", "responses", "200", "content", "application/json", "schema", *_STRUCTURED_CONTENT_PATH)
    result: JsonObject = {
        "type": "object",
        "properties": {
            "content": {"type": "array", "items": {"type": "object"}},
            "isError": {"type": "boolean"},
        },
    }
    if isinstance(tool.get("outputSchema"), dict):
        cast("JsonObject", result["properties"])["structuredContent"] = embedder.embed(tool["outputSchema"], at=to_json_pointer(*location))
    return {
        "type": "object",
        "required": ["success", "server", "tool", "duration_ms"],
        "properties": {
            "success": {"type": "boolean"},
            "server": {"type": "string"},
            "tool": {"type": "string"},
            "result": result,
            "duration_ms": {"type": "integer"},
        },
    }


def _build_error_response(text: str, name: str) -> JsonObject:
    return {"description": text, "content": {"application/json": {"schema": {"$ref": f"#/components/schemas/{name}"}}}}
