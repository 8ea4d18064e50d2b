"""Conversion of outcomes and errors into MCP results and errors."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import NoReturn, TypeAlias, cast

import mcp_types as types
import orjson
from mcp import MCPError

from rookery.kernel.errors import NotFound, RookeryError
from rookery.tools.errors import AmbiguousName, PromptNotFound, ServerNotFound, ToolNotFound, UpstreamErrorResponse
from rookery.tools.gateway.limits import build_failure_result
from rookery.tools.gateway_names import rename_interfaces
from rookery.tools.models import CallOutcome, JsonObject

LinkRenamer: TypeAlias = Callable[[str], str]

_RESOURCE_NOT_FOUND = -32002
"""The error code of the legacy era. The modern era uses "invalid params"."""


def to_tool_result(outcome: CallOutcome, *, rename_link: LinkRenamer | None) -> JsonObject:
    """
    Return an outcome as a tool result. A failure becomes an error result that the model reads.

    Args:
        rename_link: Returns the URI of a link in this view. None: links stay unchanged.

    Raises:
        MCPError: The upstream returned a JSON-RPC error, which is forwarded.
    """
    if outcome.protocol_error is not None:
        protocol_error = outcome.protocol_error
        raise MCPError(protocol_error.number, protocol_error.message, _add_retry_after(protocol_error.data, outcome.retry_after_s))
    if outcome.result is not None:
        result = _parse_content(outcome.result)
        if outcome.code == "input_required":
            return {**result, "resultType": "input_required"}
        return result if rename_link is None else rename_result_links(outcome.server.id, result, rename_link)
    detail: JsonObject = {"error": outcome.code}
    if outcome.retry_after_s is not None:
        detail["retry_after"] = outcome.retry_after_s
    return build_failure_result(outcome.error or "The tool failed without an error message.", detail)


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
    if isinstance(error, AmbiguousName) and not is_search:
        raise MCPError(types.INVALID_PARAMS, error.message, error.body()) from error
    return build_failure_result(error.message, error.body())


def raise_protocol_error(error: RookeryError, *, is_modern: bool, uri: str | None = None) -> NoReturn:
    """Raise *error* as a protocol error, for requests other than tool calls. *uri*: the requested resource."""
    if isinstance(error.__cause__, UpstreamErrorResponse):
        upstream_error = error.__cause__
        data = _add_retry_after(upstream_error.data, upstream_error.retry_after_s)
        raise MCPError(upstream_error.number, str(upstream_error), data) from error
    if isinstance(error, (NotFound, PromptNotFound, ServerNotFound)):
        is_resource = isinstance(error, NotFound) and uri is not None
        data = {"uri": uri} if is_resource else error.body()
        raise MCPError(_RESOURCE_NOT_FOUND if is_resource and not is_modern else types.INVALID_PARAMS, error.message, data) from error
    if isinstance(error, AmbiguousName):
        raise MCPError(types.INVALID_PARAMS, error.message, error.body()) from error
    code = types.INTERNAL_ERROR if error.status >= 500 else types.INVALID_REQUEST
    raise MCPError(code, error.message, error.body()) from error


def _add_retry_after(data: object, retry_after_s: int | None) -> object:
    """Return the data of the server's error with its Retry-After, unless the data is something else than an object."""
    if retry_after_s is None or not (data is None or isinstance(data, dict)):
        return data
    return {**cast("JsonObject", data or {}), "retry_after": retry_after_s}


def rename_result_links(server_id: str, result: JsonObject, rename_link: LinkRenamer) -> JsonObject:
    """Return a tool or prompt result with the URIs of this view, so that the caller can read linked resources."""
    fields = dict(rename_interfaces(server_id, result))
    if isinstance(fields.get("content"), list):
        fields["content"] = [_rename_block_links(block, rename_link) for block in cast("list[object]", fields["content"])]
    if isinstance(fields.get("messages"), list):
        fields["messages"] = [
            {**message, "content": _rename_block_links(message.get("content"), rename_link)}
            for message in cast("list[JsonObject]", fields["messages"])
        ]
    return fields


def _rename_block_links(block: object, rename_link: LinkRenamer) -> object:
    if not isinstance(block, dict):
        return block
    content = cast("JsonObject", block)
    if content.get("type") == "resource_link":
        return _rename_link(content, rename_link)
    if content.get("type") == "resource" and isinstance(content.get("resource"), dict):
        return {**content, "resource": _rename_link(cast("JsonObject", content["resource"]), rename_link)}
    return content


def _rename_link(item: JsonObject, rename_link: LinkRenamer) -> JsonObject:
    uri = item.get("uri")
    return {**item, "uri": rename_link(uri)} if isinstance(uri, str) else item


def _parse_content(content: bytes) -> JsonObject:
    try:
        value: object = orjson.loads(content)
    except orjson.JSONDecodeError:  # integers past 64 bits
        value = json.loads(content)
    return cast("JsonObject", value)
