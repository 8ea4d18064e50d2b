"""
Our requests to a server over its pipes, from the caller's task to the pipe and back.

The SDK's dispatcher makes two streams, a cancel scope, a clock and a span of each request, and models of it and its answer: most of
the CPU that a call takes here. It still has its own requests, and all that the server says and asks by itself.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Mapping
from typing import Protocol

import anyio
import mcp_types as types
import orjson
import structlog
from mcp import MCPError
from mcp.shared.dispatcher import CallOptions, ProgressFnT, coerce_request_id
from mcp_types import ErrorData, JSONRPCError, JSONRPCMessage, JSONRPCNotification, JSONRPCRequest, JSONRPCResponse

from rookery.engines.upstreams.relay import Unsent
from rookery.kernel.tracing import outgoing
from rookery.tools.models import JsonObject

_FIRST = 1 << 30
"""Ids from here on are ours; the SDK counts its own from 1."""

_log = structlog.stdlib.get_logger("rookery.tools")


class Pipe(Protocol):
    """Where the lines go."""

    def put(self, data: bytes) -> None:
        """Send one line, or raise ClosedResourceError: not a byte of it was taken."""
        ...

    async def drained(self) -> None:
        """Wait while the pipe is full."""
        ...


class Direct:
    """Requests under way; `send_raw_request` is that of the SDK's dispatcher, `takes` is told of all that comes."""

    def __init__(self, pipe: Pipe) -> None:
        self._pipe = pipe
        self._last = _FIRST
        self._waiting: dict[int, asyncio.Future[JsonObject | ErrorData]] = {}
        self._on_progress: dict[int, ProgressFnT] = {}
        self._telling = set[asyncio.Future[None]]()
        self._is_over = False

    async def send_raw_request(self, method: str, params: Mapping[str, object] | None, opts: CallOptions | None = None) -> JsonObject:
        """
        Return what the server answers; a caller that is cancelled cancels the request there.

        Raises:
            MCPError: It answered with an error, or will not answer any more.
            Unsent: The request surely did not reach it.
        """
        number = self._last = self._last + 1
        on_progress = (opts or {}).get("on_progress")
        line = _line(number, method, dict(params or {}), has_progress=on_progress is not None)
        future = self._waiting[number] = asyncio.get_running_loop().create_future()
        if on_progress is not None:
            self._on_progress[number] = on_progress
        try:
            if self._is_over:
                raise Unsent
            try:
                self._pipe.put(line)
            except anyio.ClosedResourceError:
                raise Unsent from None
            await self._pipe.drained()
            outcome = await future
        except asyncio.CancelledError:
            with contextlib.suppress(anyio.ClosedResourceError):
                self._pipe.put(_CANCELLED % number)
            raise
        finally:
            del self._waiting[number]
            self._on_progress.pop(number, None)
        if isinstance(outcome, ErrorData):
            raise MCPError(code=outcome.code, message=outcome.message, data=outcome.data)
        return outcome

    def takes(self, message: JSONRPCMessage) -> bool:
        """Take *message* if it is of a request of ours, also of one that nobody waits for any more; to be called in order of arrival."""
        if isinstance(message, JSONRPCNotification):
            return message.method == "notifications/progress" and message.params is not None and self._progress(message.params)
        return self.answers(message)

    def answers(self, message: JSONRPCMessage) -> bool:
        """Do as `takes`, of answers alone."""
        if isinstance(message, JSONRPCResponse):
            return self._settle(message.id, message.result)
        return isinstance(message, JSONRPCError) and self._settle(message.id, message.error)

    def end(self) -> None:
        """Let nobody wait any more: no message will come."""
        self._is_over = True
        for future in self._waiting.values():
            if not future.done():
                future.set_result(_CLOSED)
        for telling in self._telling:
            telling.cancel()

    def _settle(self, given: types.RequestId | None, outcome: JsonObject | ErrorData) -> bool:
        number = _ours(given)
        if number is None:
            return False
        future = self._waiting.get(number)
        if future is not None and not future.done():
            future.set_result(outcome)
        return True

    def _progress(self, params: Mapping[str, object]) -> bool:
        number = _ours(params.get("progressToken"))
        if number is None:
            return False
        on_progress, done = self._on_progress.get(number), _number(params.get("progress"))
        if on_progress is not None and done is not None:
            message = params.get("message")
            told = on_progress(done, _number(params.get("total")), message if isinstance(message, str) else None)
            # In a task: the server's next word does not wait until this caller has heard it.
            telling = asyncio.ensure_future(_told(told))
            self._telling.add(telling)
            telling.add_done_callback(self._telling.discard)
        return True


_CLOSED = ErrorData(code=types.CONNECTION_CLOSED, message="Connection closed")
_CANCELLED = (
    b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%d,"reason":"The caller left, or the time is over."}}\n'
)


def _line(number: int, method: str, params: JsonObject, *, has_progress: bool) -> bytes:
    trace = outgoing()
    if has_progress or trace:
        given = params.get("_meta")
        meta: JsonObject = {**given} if isinstance(given, Mapping) else {}
        if has_progress:
            meta["progressToken"] = number
        meta.update(trace)
        params["_meta"] = meta
    try:
        return orjson.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params}, option=orjson.OPT_APPEND_NEWLINE)
    except TypeError:  # integers past 64 bits, for one, which JSON has and orjson has not
        request = JSONRPCRequest(jsonrpc="2.0", id=number, method=method, params=params)
        return request.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n"


def _ours(given: object) -> int | None:
    """Return the number of a request of ours; some servers send it back as text."""
    if isinstance(given, bool) or not isinstance(given, (int, str)):
        return None
    number = coerce_request_id(given)
    return number if isinstance(number, int) and number > _FIRST else None


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


async def _told(telling: Awaitable[None]) -> None:
    try:
        await telling
    except Exception:  # noqa: BLE001 - what a caller makes of a notice must not end the session
        _log.exception("tools.progress_failed")
