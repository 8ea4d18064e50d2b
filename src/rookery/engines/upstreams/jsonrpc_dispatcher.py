"""
The requests of callers to a server that runs as a child process.

The SDK's dispatcher creates two streams, a cancel scope, a timer and a span for each request, and models of request and result. Those take
most of the CPU time of a call, so `JsonRpcDispatcher` sends the requests of callers. The SDK still handles its own requests and everything
that the server sends on its own.
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

from rookery.engines.upstreams.sdk import UnsentError
from rookery.kernel.tracing import propagation_headers
from rookery.tools.models import JsonObject

_log = structlog.stdlib.get_logger("rookery.tools")

_FIRST_REQUEST_ID = 1 << 30
"""The first id of requests sent here. The SDK counts its own ids from 1."""


class LineWriter(Protocol):
    """A writer of lines to a server."""

    def write_line(self, data: bytes) -> None:
        """Send one line. Raises `ClosedResourceError` if no byte of it can reach the server."""
        ...

    async def wait_writable(self) -> None:
        """Wait until further lines can be written."""
        ...


class JsonRpcDispatcher:
    """
    A dispatcher of pending requests.

    `send_raw_request` has the signature of the SDK's dispatcher. Pass every incoming message to `handle`.
    """

    def __init__(self, writer: LineWriter) -> None:
        self._writer = writer
        self._last_id = _FIRST_REQUEST_ID
        self._pending: dict[int, asyncio.Future[JsonObject | ErrorData]] = {}
        self._on_progress: dict[int, ProgressFnT] = {}
        self._progress_tasks = set[asyncio.Future[None]]()
        self._is_ended = False

    async def send_raw_request(self, method: str, params: Mapping[str, object] | None, opts: CallOptions | None = None) -> JsonObject:
        """
        Send a request and return its result. Cancelling the caller cancels the request on the server.

        Raises:
            MCPError: The server returned an error, or the connection was closed.
            UnsentError: The request was not sent.
        """
        number = self._last_id = self._last_id + 1
        on_progress = (opts or {}).get("on_progress")
        line = _request_line(number, method, dict(params or {}), has_progress=on_progress is not None)
        future = self._pending[number] = asyncio.get_running_loop().create_future()
        if on_progress is not None:
            self._on_progress[number] = on_progress
        try:
            if self._is_ended:
                raise UnsentError
            try:
                self._writer.write_line(line)
            except anyio.ClosedResourceError:
                raise UnsentError from None
            await self._writer.wait_writable()
            outcome = await future
        except asyncio.CancelledError:
            with contextlib.suppress(anyio.ClosedResourceError):
                self._writer.write_line(_CANCELLED % number)
            raise
        finally:
            del self._pending[number]
            self._on_progress.pop(number, None)
        if isinstance(outcome, ErrorData):
            raise MCPError(code=outcome.code, message=outcome.message, data=outcome.data)
        return outcome

    def handle(self, message: JSONRPCMessage) -> bool:
        """
        Process *message* if it belongs to a request sent here, even if its caller has left. Return whether it does.

        Call it in order of arrival.
        """
        if isinstance(message, JSONRPCNotification):
            return message.method == "notifications/progress" and message.params is not None and self._handle_progress(message.params)
        return self.handle_response(message)

    def handle_response(self, message: JSONRPCMessage) -> bool:
        """Process *message* like `handle`, if it is a response."""
        if isinstance(message, JSONRPCResponse):
            return self._resolve(message.id, message.result)
        return isinstance(message, JSONRPCError) and self._resolve(message.id, message.error)

    def end(self) -> None:
        """Fail all pending requests, since no message can arrive any longer."""
        self._is_ended = True
        for future in self._pending.values():
            if not future.done():
                future.set_result(_CLOSED)
        for task in self._progress_tasks:
            task.cancel()

    def _resolve(self, request_id: types.RequestId | None, outcome: JsonObject | ErrorData) -> bool:
        number = _own_request_id(request_id)
        if number is None:
            return False
        future = self._pending.get(number)
        if future is not None and not future.done():
            future.set_result(outcome)
        return True

    def _handle_progress(self, params: Mapping[str, object]) -> bool:
        number = _own_request_id(params.get("progressToken"))
        if number is None:
            return False
        on_progress, progress = self._on_progress.get(number), _to_float(params.get("progress"))
        if on_progress is not None and progress is not None:
            message = params.get("message")
            callback = on_progress(progress, _to_float(params.get("total")), message if isinstance(message, str) else None)
            # A separate task, so that the next message does not wait for this callback.
            task = asyncio.ensure_future(_run_progress_callback(callback))
            self._progress_tasks.add(task)
            task.add_done_callback(self._progress_tasks.discard)
        return True


_CLOSED = ErrorData(code=types.CONNECTION_CLOSED, message="Connection closed")
_CANCELLED = (
    b'{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%d,"reason":"The caller left, or the call timed out."}}\n'
)


def _request_line(number: int, method: str, params: JsonObject, *, has_progress: bool) -> bytes:
    trace = propagation_headers()
    if has_progress or trace:
        value = params.get("_meta")
        meta: JsonObject = {**value} if isinstance(value, Mapping) else {}
        if has_progress:
            meta["progressToken"] = number
        meta.update(trace)
        params["_meta"] = meta
    try:
        return orjson.dumps({"jsonrpc": "2.0", "id": number, "method": method, "params": params}, option=orjson.OPT_APPEND_NEWLINE)
    except TypeError:  # such as integers above 64 bits, which orjson does not support
        request = JSONRPCRequest(jsonrpc="2.0", id=number, method=method, params=params)
        return request.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n"


def _own_request_id(request_id: object) -> int | None:
    """Return the number of a request sent here; None for other ids. Some servers return the number as text."""
    if isinstance(request_id, bool) or not isinstance(request_id, (int, str)):
        return None
    number = coerce_request_id(request_id)
    return number if isinstance(number, int) and number > _FIRST_REQUEST_ID else None


def _to_float(value: object) -> float | None:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


async def _run_progress_callback(callback: Awaitable[None]) -> None:
    try:
        await callback
    except Exception:  # noqa: BLE001 - an error of a progress callback must not end the session
        _log.exception("tools.progress_failed")
