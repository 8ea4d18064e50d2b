"""Execution of one call: queue slot, session, time-out, and one retry if that is safe (D-32, D-34)."""

from __future__ import annotations

import asyncio
import contextlib

from rookery.kernel import globs
from rookery.kernel.tracing import start_span
from rookery.tools.calling.results import ToolCallFailed
from rookery.tools.calling.tool_call import ToolCall
from rookery.tools.errors import ConnectFailed, ConnectionLost, ResultTooLarge, UpstreamError
from rookery.tools.models import JsonObject, Server
from rookery.tools.ports import UpstreamConnection
from rookery.tools.supervision.upstream_session import UpstreamSession

_MAX_CALL_S = 600.0
"""Maximum duration of a call in seconds, with or without progress (D-34)."""


async def execute(session: UpstreamSession, call: ToolCall, *, is_read_only: bool) -> JsonObject:
    """
    Return the protocol's complete result.

    Args:
        is_read_only: The tool changes nothing, so a call with an unknown outcome may be retried.

    Raises:
        ToolCallFailed: The tool failed or could not be reached.
        ServerBusy: No slot became free in time.
    """
    async with session.slot():
        result = await _call_with_retry(session, call, is_read_only=is_read_only)
    session.mark_healthy()
    return result


async def _call_with_retry(session: UpstreamSession, call: ToolCall, *, is_read_only: bool) -> JsonObject:
    """Return the tool's result. Retry once if the call was certainly not executed or is read-only (D-32)."""
    is_last = False
    while True:
        try:
            with call.upstream.measure():
                connection = await session.get_connection()
        except ConnectFailed as failed:
            raise ToolCallFailed("server_unavailable", str(failed)) from failed
        try:
            with call.upstream.measure():
                return await _call_with_timeout(connection, call)
        except ToolCallFailed as failed:
            if failed.code == "tool_timeout":
                session.mark_suspect()
            raise
        except ConnectionLost as connection_error:
            session.mark_failed(connection)
            if is_last or (connection_error.was_handled and not is_read_only):
                raise ToolCallFailed("server_unavailable", str(connection_error)) from connection_error
            is_last = True
        except ResultTooLarge as large:
            raise ToolCallFailed("result_too_large", str(large)) from large
        except UpstreamError as error:
            raise ToolCallFailed("tool_execution_error", str(error)) from error


async def _call_with_timeout(connection: UpstreamConnection, call: ToolCall) -> JsonObject:
    """Send the call and wait for its result. Progress restarts the time-out; ten minutes is the maximum (D-34)."""
    server, name, on_progress = call.server, call.tool, call.options.on_progress
    limit_s = get_timeout_s(server, name)
    loop = asyncio.get_running_loop()
    last = loop.time() + _MAX_CALL_S
    try:
        async with asyncio.timeout(limit_s) as clock:

            async def forward(done: float, total: float | None, message: str | None) -> None:
                with contextlib.suppress(RuntimeError):  # the notification arrived after the result
                    clock.reschedule(min(loop.time() + limit_s, last))
                if on_progress is not None:
                    await on_progress(done, total, message)

            with start_span("tool call", is_remote=True, **{"rookery.server": server.id, "rookery.tool": name}):
                params = call.options.add_to_params({"name": name, "arguments": dict(call.arguments)})
                options = call.options.to_request_options(server, call.caller, on_progress=forward)
                return await connection.request("tools/call", params, options)
    except TimeoutError as error:
        raise ToolCallFailed("tool_timeout", f"The tool neither finished nor reported progress within {limit_s:g} s.") from error


def get_timeout_s(server: Server, tool: str) -> float:
    """Return the tool's time-out in seconds: its own, or that of its server. Progress restarts it."""
    timeout_s = next((limit for glob, limit in server.rules.timeouts_s.items() if globs.matches(tool, glob)), server.timeout_s)
    return min(timeout_s, _MAX_CALL_S)
