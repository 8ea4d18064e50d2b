"""What verbs return and raise, as the protocol says it."""

from __future__ import annotations

import json
from typing import NoReturn, cast

import mcp_types as types
import orjson
from mcp import MCPError

from rookery.kernel.errors import NotFound, RookeryError
from rookery.tools.errors import PromptNotFound, ServerNotFound, ToolNotFound, UpstreamRefused
from rookery.tools.models import JsonObject, Outcome
from rookery.tools.uris import gateway_uri

_RESOURCE_NOT_FOUND = -32002
"""Of the older era; the later one says invalid params."""

_DETAIL = "rookery/error"
"""Where a refused call has the platform's own words for it, for programs."""


def tool_result(outcome: Outcome, *, relink: bool) -> JsonObject:
    """
    Return the tool's result, a failure as one that the model reads.

    Args:
        relink: Whether the uris in it are to be the gateway's.

    Raises:
        MCPError: The upstream answered with a JSON-RPC error, which is the caller's too.
    """
    if outcome.refused is not None:
        raise MCPError(outcome.refused.number, outcome.refused.message, outcome.refused.data)
    if outcome.result is not None:
        result = _read(outcome.result)
        if outcome.code == "input_required":
            return {**result, "resultType": "input_required"}
        return relinked(outcome.server.id, result) if relink else result
    return failed(outcome.error or "The tool failed without a word.", {"error": outcome.code})


def refused_call(error: RookeryError) -> JsonObject:
    """
    Return the refusal of a call as a result, so that the model learns what to do; its words are meant for callers.

    Raises:
        MCPError: There is no such tool.
    """
    if isinstance(error, (NotFound, ToolNotFound, ServerNotFound)):
        raise MCPError(types.INVALID_PARAMS, f"Unknown tool: {error.message}", error.body()) from error
    return failed(error.message, error.body())


def failed(text: str, detail: JsonObject) -> JsonObject:
    """Return a failure without a result of the tool's own."""
    return {"content": [{"type": "text", "text": text}], "isError": True, "_meta": {_DETAIL: detail}}


def raise_error(error: RookeryError, *, is_modern: bool, uri: str | None = None) -> NoReturn:
    """Raise what is not about a tool as an error of the protocol; *uri*: of the resource that was asked for."""
    if isinstance(error.__cause__, UpstreamRefused):
        refused = error.__cause__
        raise MCPError(refused.number, str(refused), refused.data) from error
    if isinstance(error, (NotFound, PromptNotFound, ServerNotFound)):
        is_resource = isinstance(error, NotFound) and uri is not None
        data = {"uri": uri} if is_resource else error.body()
        raise MCPError(_RESOURCE_NOT_FOUND if is_resource and not is_modern else types.INVALID_PARAMS, error.message, data) from error
    code = types.INTERNAL_ERROR if error.status >= 500 else types.INVALID_REQUEST
    raise MCPError(code, error.message, error.body()) from error


def relinked(server_id: str, result: JsonObject) -> JsonObject:
    """Return a result of a tool or a prompt with the gateway's uris, so that the caller can read what it links to."""
    found = dict(result)
    if isinstance(found.get("content"), list):
        found["content"] = [_block(server_id, each) for each in cast("list[object]", found["content"])]
    if isinstance(found.get("messages"), list):
        found["messages"] = [
            {**message, "content": _block(server_id, message.get("content"))} for message in cast("list[JsonObject]", found["messages"])
        ]
    return found


def _block(server_id: str, block: object) -> object:
    if not isinstance(block, dict):
        return block
    content = cast("JsonObject", block)
    if content.get("type") == "resource_link":
        return with_uri(server_id, content)
    if content.get("type") == "resource" and isinstance(content.get("resource"), dict):
        return {**content, "resource": with_uri(server_id, cast("JsonObject", content["resource"]))}
    return content


def with_uri(server_id: str, thing: JsonObject) -> JsonObject:
    """Return *thing* with the gateway's uri."""
    uri = thing.get("uri")
    return {**thing, "uri": gateway_uri(server_id, uri)} if isinstance(uri, str) else thing


def _read(content: bytes) -> JsonObject:
    try:
        value: object = orjson.loads(content)
    except orjson.JSONDecodeError:  # integers past 64 bits
        value = json.loads(content)
    return cast("JsonObject", value)
