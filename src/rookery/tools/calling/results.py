"""Conversion of an upstream's result into the API's result or failure. No I/O."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import cast

import orjson

from rookery.tools.models import CallOutcome, FailureCode, JsonObject

MAX_RESULT_BYTES = 10 * 1024 * 1024
"""Limit on the size of a result in bytes."""

_PROTOCOL_FIELDS = frozenset({"resultType", "ttlMs", "cacheScope"})
"""Fields of the protocol, not of the tool."""

PROTOCOL_META_PREFIX = "io.modelcontextprotocol/"
"""Prefix of the protocol's own keys of `_meta`. They concern one connection only, and one of them names the upstream's software."""

_INVALID_PARAMS = -32602
"""The JSON-RPC code of a server that rejects the arguments."""

_DEFAULT_ERROR = "The tool failed without an error message."


class ToolCallFailed(Exception):
    """The tool failed or could not be reached. `retry_after_s`: the seconds after which the server allows another call."""

    def __init__(self, code: FailureCode, error: str, result: bytes | None = None, *, retry_after_s: int | None = None) -> None:
        super().__init__(error)
        self.code: FailureCode = code
        self.error = error or _DEFAULT_ERROR
        self.result = result
        self.retry_after_s = retry_after_s


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResult:
    """
    The result of a tool, as JSON.

    Attributes:
        requires_input: The content is {inputRequests, requestState?}, to be answered in another call.
        is_personal: The tool requested input from its caller, so other callers may not share the result.
        links: The URIs of the resources that the content links to or embeds.
    """

    content: bytes
    requires_input: bool = False
    is_personal: bool = False
    links: tuple[str, ...] = ()


def describe_failure(outcome: CallOutcome) -> str:
    """Return the message of a failed call: what failed and what the caller can do."""
    server_id, error = outcome.server.id, outcome.error
    name = f"{server_id}/{outcome.tool}"
    match outcome.code:
        case "tool_timeout":
            return f"{error} {name} may still have acted: check before you call it again."
        case "server_unavailable":
            return f"The server {server_id!r} could not be reached, or exited during the call: {error}"
        case "server_http_error":
            return f"The server {server_id!r} answered the call of {name} with an HTTP error: {error}"
        case "result_too_large":
            return f"{error} Request less from {name}."
        case _:
            return f"{_describe_tool_error(outcome, name)}{_describe_wait(outcome.retry_after_s)}"


def _describe_tool_error(outcome: CallOutcome, name: str) -> str:
    protocol_error = outcome.protocol_error
    if outcome.result is not None:
        return (
            f"The tool {name} returned an error; `error` is its text. "
            "Correct what the text names before you call it again: the arguments, or what the tool depends on."
        )
    if protocol_error is None:
        return f"The server returned no valid result of {name}; `error` says why. Other arguments may help. The tool may have acted."
    if protocol_error.number == _INVALID_PARAMS:
        return f"The server rejected the arguments of {name}; `error` is its text. Change the arguments before you call it again."
    return (
        f"The server failed during the call of {name} (JSON-RPC error {protocol_error.number}); `error` is its text. "
        "The cause may be outside the arguments, such as a service that the server could not reach."
    )


def _describe_wait(retry_after_s: int | None) -> str:
    return f" Retry after {retry_after_s} s." if retry_after_s else ""


def parse_result(result: JsonObject) -> ToolResult:
    """
    Return the upstream's result without the protocol's own fields.

    Raises:
        ToolCallFailed: The result reports a failure, has an unknown type, or is too large.
    """
    kind = result.get("resultType", "complete")
    if "_meta" in result:
        result = strip_protocol_meta(result)
    fields = {name: value for name, value in result.items() if name not in _PROTOCOL_FIELDS}
    if kind == "input_required":
        fields.setdefault("inputRequests", dict[str, object]())
        return ToolResult(content=_to_limited_json(fields), requires_input=True)
    if kind != "complete":
        raise ToolCallFailed("tool_execution_error", f"The server returned a result of an unknown type: {str(kind)[:100]}.")
    fields.setdefault("content", list[object]())
    fields.setdefault("isError", False)
    content = _to_limited_json(fields)
    if fields["isError"] is True:
        raise ToolCallFailed("tool_execution_error", _find_first_text(fields), content)
    return ToolResult(content=content, links=tuple(list_links(fields)))


def strip_protocol_meta(result: JsonObject) -> JsonObject:
    """Return *result* without the protocol's own keys of its `_meta`."""
    if "_meta" not in result:
        return result
    meta, fields = result["_meta"], {name: value for name, value in result.items() if name != "_meta"}
    if isinstance(meta, dict):
        own_meta = {key: value for key, value in cast("JsonObject", meta).items() if not key.startswith(PROTOCOL_META_PREFIX)}
        return {**fields, "_meta": own_meta} if own_meta else fields
    return fields


def list_links(result: JsonObject) -> list[str]:
    """Return the URIs of the resources that a result of a tool or prompt names or embeds."""
    content, messages = result.get("content"), result.get("messages")
    blocks = cast("list[object]", content) if isinstance(content, list) else []
    if isinstance(messages, list):
        blocks = [cast("JsonObject", message).get("content") for message in cast("list[object]", messages) if isinstance(message, dict)]
    uris = [_get_link(cast("JsonObject", block)) for block in blocks if isinstance(block, dict)]
    return [uri for uri in uris if isinstance(uri, str)]


def _get_link(block: JsonObject) -> object:
    match block.get("type"):
        case "resource_link":
            return block.get("uri")
        case "resource":
            resource = block.get("resource")
            return cast("JsonObject", resource).get("uri") if isinstance(resource, dict) else None
        case _:
            return None


def to_json(value: JsonObject) -> bytes:
    """
    Return *value* as JSON. Values that orjson rejects (integers beyond 64 bits, lone surrogates) use the slower json module.

    Raises:
        ToolCallFailed: *value* cannot be represented as JSON.
    """
    try:
        return orjson.dumps(value)
    except TypeError:
        try:
            return json.dumps(value, allow_nan=False).encode()
        except (TypeError, ValueError) as error:
            raise ToolCallFailed("tool_execution_error", f"The result cannot be represented as JSON: {error}") from error


def _to_limited_json(value: JsonObject) -> bytes:
    content = to_json(value)
    if len(content) > MAX_RESULT_BYTES:
        raise ToolCallFailed("result_too_large", "The result is larger than 10 MiB.")
    return content


def _find_first_text(result: JsonObject) -> str:
    content = result["content"]
    for block in cast("list[object]", content if isinstance(content, list) else []):
        if isinstance(block, dict):
            text = cast("dict[str, object]", block).get("text")
            if isinstance(text, str) and text:
                return text
    return ""
