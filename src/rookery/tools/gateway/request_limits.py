"""
The count of an MCP client's messages against the rate limit of its key, and the answers to those over the limit.

The messages that the protocol itself needs are free: notifications, pings and answers to requests of the server. An event stream and the
end of a session are free too. A client that may not end its session would keep it.

A message over the limit is answered with HTTP 200. Many clients end their session for good after a 429, and show nothing of its body.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from typing import cast

from starlette.requests import Request
from starlette.responses import Response

from rookery.access.errors import RateLimited
from rookery.access.guard import count_request
from rookery.kernel.http.responses import json_response, set_error
from rookery.tools.models import JsonObject

_ERROR_META_KEY = "rookery/error"
"""The `_meta` key that holds the HTTP API's error body of a rejected call, for programs."""

_INVALID_REQUEST = -32600
_REVISION_META_KEY = "io.modelcontextprotocol/protocolVersion"
"""The key of `_meta` that each request of the modern era has."""


def build_failure_result(text: str, detail: JsonObject) -> JsonObject:
    """Return an error result with *text*, for the model."""
    return {"content": [{"type": "text", "text": text}], "isError": True, "_meta": {_ERROR_META_KEY: detail}}


async def count_message(request: Request, message: Mapping[str, object]) -> Response | None:
    """
    Count *message* against the limit of its key.

    Returns:
        The answer to a request over the limit; None if the message may be served.
    """
    if not _is_counted(message):
        return None
    try:
        await count_request(request)
    except RateLimited as error:
        if "id" not in message:
            raise
        set_error(cast("MutableMapping[str, object]", request.scope["state"]), error.code, is_upstream=False)
        return json_response({"jsonrpc": "2.0", "id": message["id"], **_build_answer(message, error)}, headers=error.headers)
    return None


def _is_counted(message: Mapping[str, object]) -> bool:
    method = message.get("method")
    if not isinstance(method, str):
        return not ("result" in message or "error" in message)
    return method != "ping" and ("id" in message or not method.startswith("notifications/"))


def _build_answer(message: Mapping[str, object], error: RateLimited) -> JsonObject:
    """Return the result of a tool call, which the model reads, or the error of another request."""
    if message.get("method") != "tools/call":
        return {"error": {"code": _INVALID_REQUEST, "message": error.message, "data": error.body()}}
    result = build_failure_result(error.message, error.body())
    return {"result": {"resultType": "complete", **result} if _is_modern(message) else result}


def _is_modern(message: Mapping[str, object]) -> bool:
    params = message.get("params")
    meta = cast("JsonObject", params).get("_meta") if isinstance(params, dict) else None
    return isinstance(meta, dict) and _REVISION_META_KEY in meta
