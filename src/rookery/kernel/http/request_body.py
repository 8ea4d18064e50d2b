"""Request bodies, limited in size and time while they arrive and parsed strictly, and the cancellation of work whose client disconnects."""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, MutableMapping
from typing import cast

import orjson
from starlette.requests import Request

from rookery.kernel.errors import RookeryError, ValidationFailed
from rookery.kernel.http.connection_limit import TransferLimits, TransferTimeout

Receive = Callable[[], Awaitable[MutableMapping[str, object]]]
Scope = Mapping[str, object]

MAX_NESTING_DEPTH = 64
_TRANSFER_LIMITS = TransferLimits()
_NUL_MESSAGE = "must not contain the character NUL (U+0000)"
_BOM = b"\xef\xbb\xbf"
_ESCAPED_NUL = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000")
_ESCAPE = re.compile(
    rb"\\(?:(?P<pair>u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})|(?P<unstorable>u0000|u[dD][89a-fA-F][0-9a-fA-F]{2})|.)",
    re.DOTALL,
)
"""An escape of JSON. *unstorable* is NUL or half a surrogate pair."""

_OPENING_BRACKET = re.compile(rb"[\[{]")


class InvalidJson(RookeryError):
    """The body is not JSON."""

    status, code = 400, "invalid_json"


class PayloadTooLarge(RookeryError):
    """The body is larger than the route allows; the rest was not read."""

    status, code = 413, "payload_too_large"
    fields = "`limit`: bytes"

    def __init__(self, limit: int) -> None:
        super().__init__(f"The body is larger than {limit:,} bytes, the limit of this route.", limit=limit)


class UnsupportedMediaType(RookeryError):
    """
    `Content-Type` is not JSON, or for an import neither CSV nor JSON Lines.

    A body without `Content-Type` is read as JSON, always as UTF-8.
    """

    status, code = 415, "unsupported_media_type"


class RequestTimeout(RookeryError):
    """The head did not arrive within 30 s, or the body paused for 30 s or was slower than 8 KiB a second. The connection is closed."""

    status, code = 408, "request_timeout"


class ClientDisconnected(Exception):
    """The client closed the connection before the body was complete."""


def replay_body(body: bytes, receive: Receive) -> Receive:
    """Return *receive* of a request whose body has been read: it returns *body* first."""
    has_sent = False

    async def receive_again() -> MutableMapping[str, object]:
        nonlocal has_sent
        if has_sent:
            return await receive()
        has_sent = True
        return {"type": "http.request", "body": body, "more_body": False}

    return receive_again


async def read_body(receive: Receive, *, limit: int, scope: Scope, transfer: TransferLimits = _TRANSFER_LIMITS) -> bytes:
    """
    Return the whole body.

    Args:
        scope: The request. Its client may wait for consent before it sends a body (`Expect: 100-continue`), which *receive* gives.

    Raises:
        PayloadTooLarge: The body exceeds *limit*. If the request declares a larger length, nothing is read, and the client or its proxy
            gets the answer while it sends. Otherwise reading stops at the first byte beyond the limit.
        RequestTimeout: Nothing arrived for 30 s, or the transfer was too slow for too long. A body takes at most
            `limit / transfer.min_bytes_per_s + 30` s, whatever length it declares.
        ClientDisconnected: The client closed the connection.
    """
    if _read_declared_length(scope) > limit:
        raise PayloadTooLarge(limit)
    parts, size, is_more, timeout = list[bytes](), 0, True, TransferTimeout(transfer)
    try:
        async with asyncio.timeout(transfer.stall_timeout_s) as deadline:
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
                    timeout.record_progress(len(part))
                    deadline.reschedule(asyncio.get_running_loop().time() + timeout.remaining_s)
    except TimeoutError as error:
        rate = f"less than {transfer.min_bytes_per_s:,} bytes per second for {transfer.stall_timeout_s:.0f} seconds"
        raise RequestTimeout(f"The body did not arrive in time: {rate}.", headers={"Connection": "close"}) from error
    return b"".join(parts)


def _read_declared_length(scope: Scope) -> int:
    """Return the length that the request declares for its body; 0 if it declares none."""
    length = dict(cast("list[tuple[bytes, bytes]]", scope["headers"])).get(b"content-length", b"")
    return int(length) if length.isdigit() else 0


def parse_json(raw: bytes) -> object:
    """
    Parse *raw* strictly.

    Raises:
        InvalidJson: The text is not JSON.
        ValidationFailed: The JSON contains NaN, Infinity, NUL or a lone surrogate, or is nested more than 64 levels deep.
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


def replace_unstorable_escapes(raw: bytes) -> bytes:
    """Return JSON in which NUL and half a surrogate pair, which `parse_json` rejects, are U+FFFD (`Operation.replaces_unstorable`)."""
    return _ESCAPE.sub(_replace_unstorable, raw) if b"\\u" in raw else raw


def _replace_unstorable(escape: re.Match[bytes]) -> bytes:
    return escape[0] if escape["unstorable"] is None else rb"\ufffd"


def _map_json_error(raw: bytes, error: orjson.JSONDecodeError) -> RookeryError:
    """Return the error for *raw*: 422 for JSON that only a lenient parser accepts, otherwise 400."""
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
    """Return the nesting depth of lists and objects, without recursion. Stops one level beyond the limit."""
    depth, level = 0, [value]
    while level and depth <= MAX_NESTING_DEPTH:
        below = list[object]()
        containers = False
        for item in level:
            if isinstance(item, dict):
                containers = True
                below.extend(cast("dict[str, object]", item).values())
            elif isinstance(item, list):
                containers = True
                below.extend(cast("list[object]", item))
        depth += containers
        level = below
    return depth


_DISCONNECT_CHECK_DELAY_S = 0.1
"""Delay before a request is watched for a disconnect. Most end earlier, and watching costs a task."""


@contextlib.asynccontextmanager
async def cancel_on_disconnect(request: Request) -> AsyncGenerator[None]:
    """
    Run the body while the client is connected, and cancel it when the client disconnects.

    Raises:
        ClientDisconnected: In place of the cancellation.
    """
    task = asyncio.current_task()
    watching: list[asyncio.Task[None]] = []
    has_left = False

    async def watch() -> None:
        nonlocal has_left
        while (await request.receive())["type"] != "http.disconnect":
            continue
        has_left = True
        if task is not None:
            task.cancel()

    timer = asyncio.get_running_loop().call_later(_DISCONNECT_CHECK_DELAY_S, lambda: watching.append(asyncio.create_task(watch())))
    try:
        yield
    except asyncio.CancelledError:
        if not has_left or task is None:
            raise
        task.uncancel()
        raise ClientDisconnected from None
    finally:
        timer.cancel()
        for watcher in watching:
            watcher.cancel()
