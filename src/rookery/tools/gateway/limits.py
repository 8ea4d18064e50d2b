"""
The limits of MCP clients: the count of their messages against the rate limit of their key, and what ends when a limit is reached.

The messages that the protocol itself needs are not counted: notifications, pings and answers to requests of the server. An event stream
and the end of a session are not either. A client that may not end its session would keep it.

A message over the limit is answered with HTTP 200. Many clients end their session for good after a 429, and show nothing of its body.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Mapping, MutableMapping
from typing import TypeVar, cast

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


T = TypeVar("T")
OwnerT = TypeVar("OwnerT", bound=Hashable)

MIN_AGE_S = 60.0
"""Time for which nothing is evicted. Without it, clients over the limit that retry at once would evict each other all the time."""


class EvictionRefused(Exception):
    """Even the oldest is too recent. In `retry_after_s` it no longer is."""

    def __init__(self, retry_after_s: int) -> None:
        super().__init__(retry_after_s)
        self.retry_after_s = retry_after_s


def select_evicted(started_at: Mapping[T, float], now: float, *, min_age_s: float = MIN_AGE_S) -> T:
    """
    Return the key with the earliest time. *started_at* is not empty.

    Raises:
        EvictionRefused: That time is less than *min_age_s* before *now*.
    """
    oldest = min(started_at, key=started_at.__getitem__)
    missing_s = started_at[oldest] + min_age_s - now
    if missing_s > 0:
        raise EvictionRefused(math.ceil(missing_s))
    return oldest


def select_of_largest(owners: Mapping[T, OwnerT], newcomer: OwnerT, started_at: Mapping[T, float], now: float) -> T:
    """
    Return the oldest of the owner with the most. It may be recent if *newcomer*, with one more, still has fewer than that owner.

    With equal numbers it may not: two owners that retry at once would evict each other all the time.

    Raises:
        EvictionRefused: The oldest is too recent.
    """
    counts = Counter(owners.values())
    ((largest, count),) = counts.most_common(1)
    min_age_s = 0.0 if counts[newcomer] + 1 < count else MIN_AGE_S
    return select_evicted({item: started_at[item] for item, owner in owners.items() if owner == largest}, now, min_age_s=min_age_s)
