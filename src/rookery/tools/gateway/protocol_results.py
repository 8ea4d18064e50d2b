"""What verbs return and raise, as the protocol says it."""

from __future__ import annotations

import json
from typing import NoReturn, cast

import mcp_types as types
import orjson
from mcp import MCPError

from rookery.kernel.errors import NotFound, RookeryError
from rookery.tools.errors import PromptNotFound, ServerNotFound, ToolNotFound, UpstreamErrorResponse
from rookery.tools.gateway_uris import to_gateway_uri
from rookery.tools.models import CallOutcome, JsonObject

_RESOURCE_NOT_FOUND = -32002
"""Of the older era; the later one says invalid params."""

_ERROR_META_KEY = "rookery/error"
"""Where a refused call has the platform's own words for it, for programs."""


def to_tool_result(outcome: CallOutcome, *, rewrite_links: bool) -> JsonObject:
    """
    Return the tool's result, a failure as one that the model reads.

    Args:
        rewrite_links: Whether the uris in it are to be the gateway's.

    Raises:
        MCPError: The upstream answered with a JSON-RPC error, which is the caller's too.
    """
    if outcome.protocol_error is not None:
        raise MCPError(outcome.protocol_error.number, outcome.protocol_error.message, outcome.protocol_error.data)
    if outcome.result is not None:
        result = _parse_content(outcome.result)
        if outcome.code == "input_required":
            return {**result, "resultType": "input_required"}
        return rewrite_result_uris(outcome.server.id, result) if rewrite_links else result
    return build_failure_result(outcome.error or "The tool failed without a word.", {"error": outcome.code})


def to_error_result(error: RookeryError) -> JsonObject:
    """
    Return the refusal of a call as a result, so that the model learns what to do; its words are meant for callers.

    Raises:
        MCPError: There is no such tool.
    """
    if isinstance(error, (NotFound, ToolNotFound, ServerNotFound)):
        raise MCPError(types.INVALID_PARAMS, f"Unknown tool: {error.message}", error.body()) from error
    return build_failure_result(error.message, error.body())


def build_failure_result(text: str, detail: JsonObject) -> JsonObject:
    """Return a failure without a result of the tool's own."""
    return {"content": [{"type": "text", "text": text}], "isError": True, "_meta": {_ERROR_META_KEY: detail}}


def raise_protocol_error(error: RookeryError, *, is_modern: bool, uri: str | None = None) -> NoReturn:
    """Raise what is not about a tool as an error of the protocol; *uri*: of the resource that was asked for."""
    if isinstance(error.__cause__, UpstreamErrorResponse):
        refused = error.__cause__
        raise MCPError(refused.number, str(refused), refused.data) from error
    if isinstance(error, (NotFound, PromptNotFound, ServerNotFound)):
        is_resource = isinstance(error, NotFound) and uri is not None
        data = {"uri": uri} if is_resource else error.body()
        raise MCPError(_RESOURCE_NOT_FOUND if is_resource and not is_modern else types.INVALID_PARAMS, error.message, data) from error
    code = types.INTERNAL_ERROR if error.status >= 500 else types.INVALID_REQUEST
    raise MCPError(code, error.message, error.body()) from error


def rewrite_result_uris(server_id: str, result: JsonObject) -> JsonObject:
    """Return a result of a tool or a prompt with the gateway's uris, so that the caller can read what it links to."""
    found = dict(result)
    if isinstance(found.get("content"), list):
        found["content"] = [_rewrite_block(server_id, each) for each in cast("list[object]", found["content"])]
    if isinstance(found.get("messages"), list):
        found["messages"] = [
            {**message, "content": _rewrite_block(server_id, message.get("content"))}
            for message in cast("list[JsonObject]", found["messages"])
        ]
    return found


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
    """Return *item* with the gateway's uri."""
    uri = item.get("uri")
    return {**item, "uri": to_gateway_uri(server_id, uri)} if isinstance(uri, str) else item


def _parse_content(content: bytes) -> JsonObject:
    try:
        value: object = orjson.loads(content)
    except orjson.JSONDecodeError:  # integers past 64 bits
        value = json.loads(content)
    return cast("JsonObject", value)
