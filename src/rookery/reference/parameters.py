"""The parameters of operations: parts of the path, fields of the query, and headers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from rookery.coding_agents.hook_declarations import CLIENTS, EVENTS
from rookery.reference.downgrade import Schema
from rookery.reference.operation_names import document_parameter_name

_UUID_SCHEMA: Schema = {"type": "string", "format": "uuid"}
_TEXT_SCHEMA: Schema = {"type": "string"}

_PATH_PARAMETERS: Mapping[str, tuple[str, Schema]] = {
    "agent_id": ("The id of an agent.", _TEXT_SCHEMA),
    "campaign": ("The id of a campaign.", _UUID_SCHEMA),
    "batch_id": ("The id of a batch of generations.", _UUID_SCHEMA),
    "delivery": ("The id of a delivery: 32 hexadecimal digits.", _TEXT_SCHEMA),
    "delivery_id": ("The id of a delivery.", _UUID_SCHEMA),
    "generation_id": ("The id of a generation.", _UUID_SCHEMA),
    "client": ("The coding agent whose hook it is.", {"type": "string", "enum": list(CLIENTS)}),
    "event": ("The event of the coding agent.", {"type": "string", "enum": list(EVENTS)}),
    "endpoint": ("The id of a webhook endpoint.", _UUID_SCHEMA),
    "endpoint_id": ("The id of a webhook endpoint.", _UUID_SCHEMA),
    "id": ("The id of a server that the workspace has added.", _TEXT_SCHEMA),
    "key_id": ("The id of a key. This is not the key itself, which never appears in a URL.", _UUID_SCHEMA),
    "memory_id": ("The id of a memory.", _UUID_SCHEMA),
    "name": ("The name.", _TEXT_SCHEMA),
    "page": ("The name of a page.", _TEXT_SCHEMA),
    "phase": ("The id of a phase, or its position in the plan.", _TEXT_SCHEMA),
    "plan": ("The id or the slug of a plan.", _TEXT_SCHEMA),
    "recall_id": ("The id in the response of a recall.", _UUID_SCHEMA),
    "server_id": ("The id of a tool server.", _TEXT_SCHEMA),
    "session_id": ("The id of a session, `sess_` and a UUID.", _TEXT_SCHEMA),
    "slug": ("The slug of a template.", _TEXT_SCHEMA),
    "subscriber": ("The id or the external id of a subscriber.", _TEXT_SCHEMA),
    "task": ("The id of a task.", _UUID_SCHEMA),
    "token": ("The signed token of a link.", _TEXT_SCHEMA),
    "tool": ("The name of a tool on its server.", _TEXT_SCHEMA),
    "uri": (
        "The resource as `server://path`, as in the lists. It may be percent-encoded once.",
        _TEXT_SCHEMA,
    ),
    "version": ("The version, or `latest`.", _TEXT_SCHEMA),
    "webhook_id": ("The id of a webhook endpoint.", _UUID_SCHEMA),
    "workspace_id": ("The number of a workspace.", {"type": "integer", "minimum": 1}),
}
"""Descriptions of the path parameters. A test checks that none is missing."""

_REQUEST_HEADERS: Mapping[str, tuple[str, Schema]] = {
    "X-Workspace-ID": (
        "The id of the key's workspace. Optional; any other id is rejected.",
        {"type": "integer", "minimum": 1},
    ),
    "X-Session-ID": ("The agent session that the request belongs to.", _TEXT_SCHEMA),
    "Idempotency-Key": (
        "A text of your choice. A second request with the same text and body within 24 hours only returns the stored response.",
        {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[ -~]+$"},
    ),
    "If-Match": ("The ETag of the version to change, or several. If the current version has another one, nothing changes.", _TEXT_SCHEMA),
    "If-None-Match": ("The ETag of the version that you have. If it is current, the response is 304 without a body.", _TEXT_SCHEMA),
    "Prefer": (
        "Preferences (RFC 7240). For tool calls, `tool-errors=200` returns the status 200 for errors of the tool itself.",
        _TEXT_SCHEMA,
    ),
    "Last-Event-ID": ("The id of the last event that the client has received. The stream continues after it.", _TEXT_SCHEMA),
    "Mcp-Session-Id": ("The id of the session, as `initialize` returned it.", _TEXT_SCHEMA),
    "Cache-Control": ("`no-cache` prevents a cached result.", _TEXT_SCHEMA),
}

_REQUIRED_HEADERS = frozenset({"Mcp-Session-Id"})


def path_parameter(name: str) -> Schema:
    description, schema = _PATH_PARAMETERS.get(name, ("", _TEXT_SCHEMA))
    return {
        "name": document_parameter_name(name),
        "in": "path",
        "required": True,
        **({"description": description} if description else {}),
        "schema": dict(schema),
    }


def header_components() -> dict[str, Schema]:
    """Return every request header by the name of its component."""
    return {
        name: {"name": name, "in": "header", "required": name in _REQUIRED_HEADERS, "description": description, "schema": dict(schema)}
        for name, (description, schema) in _REQUEST_HEADERS.items()
    }


def header_references(names: Sequence[str]) -> list[Schema]:
    """
    Return references to request headers.

    Raises:
        KeyError: A header is not documented.
    """
    return [{"$ref": f"#/components/parameters/{name}"} for name in names if _REQUEST_HEADERS[name]]


def query_parameter(name: str, schema: Schema, *, is_required: bool) -> Schema:
    """
    Return a query parameter.

    A query has no null, so a field that may be null becomes an optional parameter. An object is sent as `name[key]=value`.
    """
    plain_schema = {key: value for key, value in schema.items() if key not in {"description", "nullable", "deprecated"}}
    if plain_schema.get("default", ...) is None:
        del plain_schema["default"]
    parts = plain_schema.get("allOf")
    if isinstance(parts, list) and len(plain_schema) == len(cast("list[Schema]", parts)) == 1:
        plain_schema = cast("list[Schema]", parts)[0]
    parameter: Schema = {"name": name, "in": "query", "required": is_required, "schema": plain_schema}
    if isinstance(schema.get("description"), str):
        parameter["description"] = schema["description"]
    if schema.get("deprecated") is True:
        parameter["deprecated"] = True
    if plain_schema.get("type") == "array":
        parameter |= {"style": "form", "explode": True}
    elif plain_schema.get("type") == "object":
        parameter |= {"style": "deepObject", "explode": True}
    return parameter
