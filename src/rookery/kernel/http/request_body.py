"""Reading what callers send: bounded while it arrives, strict when it is parsed (D-16)."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, MutableMapping
from typing import cast

import orjson

from rookery.kernel.errors import RookeryError, ValidationFailed
from rookery.kernel.http.connection_limit import MIN_BYTES_PER_S, STALL_TIMEOUT_S, TransferTimeout

Receive = Callable[[], Awaitable[MutableMapping[str, object]]]

MAX_NESTING_DEPTH = 64
_BODY_TIMEOUT_S = STALL_TIMEOUT_S
_NUL_MESSAGE = "must not contain the character NUL (U+0000)"
_BOM = b"\xef\xbb\xbf"
_ESCAPED_NUL = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000")
_OPENING_BRACKET = re.compile(rb"[\[{]")


class InvalidJson(RookeryError):
    """The body is not JSON."""

    status, code = 400, "invalid_json"


class PayloadTooLarge(RookeryError):
    """The body is larger than this route takes; it was not read to its end."""

    status, code = 413, "payload_too_large"

    def __init__(self, limit: int) -> None:
        super().__init__(f"The body is larger than the {limit:,} bytes that this route takes.", limit=limit)


class UnsupportedMediaType(RookeryError):
    """The body is not declared as JSON."""

    status, code = 415, "unsupported_media_type"


class RequestTimeout(RookeryError):
    """The body did not arrive in time."""

    status, code = 408, "request_timeout"


class ClientDisconnected(Exception):
    """The caller closed the connection before the body was complete."""


async def read_body(receive: Receive, *, limit: int) -> bytes:
    """
    Return the whole body.

    Raises:
        PayloadTooLarge: At the first byte past *limit*; the rest is not read.
        RequestTimeout: Nothing came for 30 s, or too little for too long; so it takes `limit / LEAST_RATE + 30` s at most,
            of whatever length it is said to be, or of none.
        ClientLeft: The caller went away.
    """
    parts, size, is_more, patience = list[bytes](), 0, True, TransferTimeout(_BODY_TIMEOUT_S)
    try:
        async with asyncio.timeout(_BODY_TIMEOUT_S) as deadline:
            while is_more:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise ClientDisconnected
                part = cast("bytes", message.get("body", b""))
                size += len(part)
                if size > limit:
                    raise PayloadTooLarge(limit)
                parts.append(part)
                is_more = cast("bool", message.get("more_body", False))
                if is_more:
                    patience.record_progress(len(part))
                    deadline.reschedule(asyncio.get_running_loop().time() + patience.remaining_s)
    except TimeoutError as error:
        msg = f"The body did not arrive: less than {MIN_BYTES_PER_S:,} bytes a second, for {_BODY_TIMEOUT_S:.0f} seconds."
        raise RequestTimeout(msg, headers={"Connection": "close"}) from error
    return b"".join(parts)


def parse_json(raw: bytes) -> object:
    """
    Parse *raw* strictly.

    Raises:
        InvalidJson: Not JSON at all.
        ValidationFailed: JSON of a kind that we refuse: NaN or Infinity, NUL, a lone surrogate, nested over 64.
    """
    try:
        value: object = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise _map_json_error(raw, error) from error
    if (
        _OPENING_BRACKET.search(raw, 1) is not None
        and raw.count(b"[") + raw.count(b"{") > MAX_NESTING_DEPTH
        and _nesting_depth(value) > MAX_NESTING_DEPTH
    ):
        raise _nesting_error()
    if b"\\u0000" in raw and _ESCAPED_NUL.search(raw) is not None:
        raise ValidationFailed({"body": [_NUL_MESSAGE]})
    return value


def _map_json_error(raw: bytes, error: orjson.JSONDecodeError) -> RookeryError:
    """Tell JSON that only a lax parser takes (422) from what is none (400)."""
    if raw.startswith(_BOM):
        return InvalidJson("The body is not valid JSON: it starts with a byte order mark; send UTF-8 without one.")
    try:
        json.loads(raw, strict=False)
    except RecursionError:
        return _nesting_error()
    except ValueError:
        position = f"line {error.lineno}, column {error.colno}"
        return InvalidJson(f"The body is not valid JSON: {error.msg.split(':')[0]} ({position}).")
    if len(_OPENING_BRACKET.findall(raw)) > MAX_NESTING_DEPTH and _nesting_depth(json.loads(raw, strict=False)) > MAX_NESTING_DEPTH:
        return _nesting_error()
    return ValidationFailed({"body": ["NaN, Infinity, control characters such as NUL, and lone surrogates are not accepted"]})


def _nesting_error() -> ValidationFailed:
    return ValidationFailed({"body": [f"is nested more than {MAX_NESTING_DEPTH} levels deep"]})


def _nesting_depth(value: object) -> int:
    """Return how deep lists and objects are nested, without recursion; it stops looking once that is too deep."""
    depth, level = 0, [value]
    while level and depth <= MAX_NESTING_DEPTH:
        below = list[object]()
        containers = False
        for each in level:
            if isinstance(each, dict):
                containers = True
                below.extend(cast("dict[str, object]", each).values())
            elif isinstance(each, list):
                containers = True
                below.extend(cast("list[object]", each))
        depth += containers
        level = below
    return depth
