"""What an operation reads: parts of its path, of its query, and headers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from rookery.reference.downgrade import Schema, null_schema
from rookery.reference.naming import document_parameter_name

_UUID_SCHEMA: Schema = {"type": "string", "format": "uuid"}
_TEXT_SCHEMA: Schema = {"type": "string"}

_PATH_PARAMETERS: Mapping[str, tuple[str, Schema]] = {
    "agent_id": ("The agent, as its key and its memories name it.", _TEXT_SCHEMA),
    "delivery": ("The id of a delivery.", _UUID_SCHEMA),
    "delivery_id": ("The id of a delivery.", _UUID_SCHEMA),
    "endpoint": ("The id of a webhook endpoint.", _UUID_SCHEMA),
    "endpoint_id": ("The id of a webhook endpoint.", _UUID_SCHEMA),
    "id": ("The id that it was added under.", _TEXT_SCHEMA),
    "key_id": ("The id of the key; the key itself is nowhere in an address.", _UUID_SCHEMA),
    "memory_id": ("The id of a memory.", _UUID_SCHEMA),
    "name": ("The name.", _TEXT_SCHEMA),
    "page": ("The page.", _TEXT_SCHEMA),
    "phase": ("The id of a phase, or its position in the plan.", _TEXT_SCHEMA),
    "plan": ("The id or the slug of a plan.", _TEXT_SCHEMA),
    "recall_id": ("The id that a recall answered with.", _UUID_SCHEMA),
    "server_id": ("The id of a tool server.", _TEXT_SCHEMA),
    "session_id": ("The id of a session, `sess_` and a UUID.", _TEXT_SCHEMA),
    "slug": ("The slug of a template.", _TEXT_SCHEMA),
    "task": ("The id of a task.", _UUID_SCHEMA),
    "tool": ("The tool, by the name that its server gives it.", _TEXT_SCHEMA),
    "uri": (
        "The resource: `server://path`, as the lists show it, percent-encoded once or as it is.",
        _TEXT_SCHEMA,
    ),
    "version": ("The version, or `latest`.", _TEXT_SCHEMA),
    "webhook_id": ("The id of a webhook endpoint.", _UUID_SCHEMA),
    "workspace_id": ("The number of a workspace.", {"type": "integer", "minimum": 1}),
}
"""What each parameter of a path means; a test finds those that are missing here."""

_REQUEST_HEADERS: Mapping[str, tuple[str, Schema]] = {
    "X-Workspace-ID": (
        "The workspace that the caller believes it acts in. Optional: the key knows; another one than the key's is refused.",
        {"type": "integer", "minimum": 1},
    ),
    "X-Session-ID": ("The agent session that the request belongs to.", _TEXT_SCHEMA),
    "Idempotency-Key": (
        "Names this request: sent again with the same body within 24 hours, it is answered again and not done again.",
        {"type": "string", "minLength": 1, "maxLength": 255, "pattern": "^[ -~]+$"},
    ),
    "If-Match": ("The ETag that the caller has seen, or several: if it is another one by now, nothing is changed.", _TEXT_SCHEMA),
    "If-None-Match": ("The ETag of what the caller has: if it is the same still, 304 and no body.", _TEXT_SCHEMA),
    "Prefer": (
        "Preferences of RFC 7240. `tool-errors=200`, of calls of tools: a tool's own error is answered with the status 200.",
        _TEXT_SCHEMA,
    ),
    "Last-Event-ID": ("The id of the last event that a client of the stream has seen; it goes on after that.", _TEXT_SCHEMA),
    "Cache-Control": ("`no-cache`: no kept result will do.", _TEXT_SCHEMA),
}


def path_parameter(name: str) -> Schema:
    """Return a parameter of the path."""
    says, schema = _PATH_PARAMETERS.get(name, ("", _TEXT_SCHEMA))
    return {
        "name": document_parameter_name(name),
        "in": "path",
        "required": True,
        **({"description": says} if says else {}),
        "schema": dict(schema),
    }


def header_components() -> dict[str, Schema]:
    """Return every request header, by the name of its component."""
    return {
        name: {"name": name, "in": "header", "required": False, "description": says, "schema": dict(schema)}
        for name, (says, schema) in _REQUEST_HEADERS.items()
    }


def header_references(names: Sequence[str]) -> list[Schema]:
    """
    Return references to request headers.

    Raises:
        KeyError: The document does not know one of them.
    """
    return [{"$ref": f"#/components/parameters/{name}"} for name in names if _REQUEST_HEADERS[name]]


def query_parameter(name: str, schema: Schema, *, is_required: bool) -> Schema:
    """
    Return a field of the query.

    A query has no null: a field that may be null is one that may be left out.
    """
    shown = {key: value for key, value in schema.items() if key not in {"description", "nullable", "deprecated"}}
    if shown.get("default", ...) is None:
        del shown["default"]
    values, ways = shown.get("enum"), shown.get("anyOf")
    if isinstance(values, list):
        shown["enum"] = [value for value in cast("list[object]", values) if value is not None]
    if isinstance(ways, list):
        left = [way for way in cast("list[Schema]", ways) if way != null_schema()]
        del shown["anyOf"]
        shown |= {"anyOf": left} if len(left) > 1 else left[0]
    parameter: Schema = {"name": name, "in": "query", "required": is_required, "schema": shown}
    if isinstance(schema.get("description"), str):
        parameter["description"] = schema["description"]
    if schema.get("deprecated") is True:
        parameter["deprecated"] = True
    if shown.get("type") == "array":
        parameter |= {"style": "form", "explode": True}
    return parameter
