"""Conversion of outcomes and errors into MCP results and errors."""

from __future__ import annotations

import json
from typing import NoReturn, cast

import mcp_types as types
import orjson
from mcp import MCPError

from rookery.kernel.errors import NotFound, RookeryError
from rookery.tools.errors import PromptNotFound, ServerNotFound, ToolNotFound, UpstreamErrorResponse
from rookery.tools.gateway_names import to_gateway_uri
from rookery.tools.models import CallOutcome, JsonObject

_RESOURCE_NOT_FOUND = -32002
"""The error code of the legacy era. The modern era uses "invalid params"."""

_ERROR_META_KEY = "rookery/error"
"""The `_meta` key that holds the HTTP API's error body of a rejected call, for programs."""


def to_tool_result(outcome: CallOutcome, *, rewrite_links: bool) -> JsonObject:
    """
    Return an outcome as a tool result. A failure becomes an error result that the model reads.

    Args:
        rewrite_links: Replace the URIs in it by gateway URIs.

    Raises:
        MCPError: The upstream returned a JSON-RPC error, which is forwarded.
    """
    if outcome.protocol_error is not None:
        raise MCPError(outcome.protocol_error.number, outcome.protocol_error.message, outcome.protocol_error.data)
    if outcome.result is not None:
        result = _parse_content(outcome.result)
        if outcome.code == "input_required":
            return {**result, "resultType": "input_required"}
        return rewrite_result_uris(outcome.server.id, result) if rewrite_links else result
    return build_failure_result(outcome.error or "The tool failed without an error message.", {"error": outcome.code})


def to_error_result(error: RookeryError, *, is_search: bool) -> JsonObject:
    """
    Return a rejected call as an error result, so that the model reads what to do.

    Args:
        is_search: The name of the tool is an argument of call_tool.

    Raises:
        MCPError: The tool does not exist.
    """
    if isinstance(error, (NotFound, ToolNotFound, ServerNotFound)):
        if is_search:
            return build_failure_result(f"{error.message} Use a name that find_tool returned.", error.body())
        raise MCPError(types.INVALID_PARAMS, f"Unknown tool: {error.message}", error.body()) from error
    return build_failure_result(error.message, error.body())


def build_failure_result(text: str, detail: JsonObject) -> JsonObject:
    """Return an error result with *text*, for a failure without a result of the tool."""
    return {"content": [{"type": "text", "text": text}], "isError": True, "_meta": {_ERROR_META_KEY: detail}}


def raise_protocol_error(error: RookeryError, *, is_modern: bool, uri: str | None = None) -> NoReturn:
    """Raise *error* as a protocol error, for requests other than tool calls. *uri*: the requested resource."""
    if isinstance(error.__cause__, UpstreamErrorResponse):
        upstream_error = error.__cause__
        raise MCPError(upstream_error.number, str(upstream_error), upstream_error.data) from error
    if isinstance(error, (NotFound, PromptNotFound, ServerNotFound)):
        is_resource = isinstance(error, NotFound) and uri is not None
        data = {"uri": uri} if is_resource else error.body()
        raise MCPError(_RESOURCE_NOT_FOUND if is_resource and not is_modern else types.INVALID_PARAMS, error.message, data) from error
    code = types.INTERNAL_ERROR if error.status >= 500 else types.INVALID_REQUEST
    raise MCPError(code, error.message, error.body()) from error


def rewrite_result_uris(server_id: str, result: JsonObject) -> JsonObject:
    """Return a tool or prompt result with gateway URIs, so that the caller can read linked resources."""
    fields = dict(result)
    if isinstance(fields.get("content"), list):
        fields["content"] = [_rewrite_block(server_id, block) for block in cast("list[object]", fields["content"])]
    if isinstance(fields.get("messages"), list):
        fields["messages"] = [
            {**message, "content": _rewrite_block(server_id, message.get("content"))}
            for message in cast("list[JsonObject]", fields["messages"])
        ]
    return fields


def _rewrite_block(server_id: str, block: object) -> object:
    if not isinstance(block, dict):
        return block
    content = cast("JsonObject", block)
    if content.get("type") == "resource_link":
        return rewrite_uri(server_id, content)
    if content.get("type") == "resource" and isinstance(content.get("resource"), dict):
        return {**content, "resource": rewrite_uri(server_id, cast("JsonObject", content["resource"]))}
    return content


def rewrite_uri(server_id: str, item: JsonObject) -> JsonObject:
    """Return *item* with its URI replaced by the gateway URI."""
    uri = item.get("uri")
    return {**item, "uri": to_gateway_uri(server_id, uri)} if isinstance(uri, str) else item


def _parse_content(content: bytes) -> JsonObject:
    try:
        value: object = orjson.loads(content)
    except orjson.JSONDecodeError:  # integers past 64 bits
        value = json.loads(content)
    return cast("JsonObject", value)
