"""Execution of one call: queue slot, session, time-out, and one retry if that is safe."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace

from rookery.kernel import globs
from rookery.kernel.tracing import start_span
from rookery.tools.calling.results import ToolCallFailed
from rookery.tools.calling.tool_call import ToolCall
from rookery.tools.errors import ConnectFailed, ConnectionLost, ResultTooLarge, UpstreamError, UpstreamStatusError
from rookery.tools.models import JsonObject, Server
from rookery.tools.ports import RequestOptions, UpstreamConnection, UpstreamMethod
from rookery.tools.supervision.call_queue import CallSlot
from rookery.tools.supervision.upstream_session import UpstreamSession

MAX_REQUEST_S = 600.0
"""Maximum duration of a request in seconds, with or without progress."""


async def send_with_timeout(
    connection: UpstreamConnection, slot: CallSlot, method: UpstreamMethod, params: JsonObject, *, options: RequestOptions, limit_s: float
) -> JsonObject:
    """
    Send a request, and return its result.

    Progress restarts the time-out. It does not run while the server waits for the caller's answer, and other calls may run then.

    Raises:
        TimeoutError: The server neither answered nor reported progress within *limit_s*, or ten minutes have passed.
    """
    loop = asyncio.get_running_loop()
    last = loop.time() + MAX_REQUEST_S
    async with asyncio.timeout(limit_s) as clock:

        def reschedule(when: float) -> None:
            with contextlib.suppress(RuntimeError):  # the request has ended
                clock.reschedule(min(when, last))

        async def forward(done: float, total: float | None, message: str | None) -> None:
            if not slot.is_paused:
                reschedule(loop.time() + limit_s)
            if options.on_progress is not None:
                await options.on_progress(done, total, message)

        sent_options = replace(options, on_progress=forward)
        if options.on_request is not None:
            answer = slot.pause_for(options.on_request)

            async def request_input(requested_method: str, requested_params: JsonObject) -> JsonObject:
                reschedule(last)
                try:
                    return await answer(requested_method, requested_params)
                finally:
                    if not slot.is_paused:
                        reschedule(loop.time() + limit_s)

            sent_options = replace(sent_options, on_request=request_input)
        return await connection.request(method, params, sent_options)


async def execute(session: UpstreamSession, call: ToolCall, *, is_read_only: bool) -> JsonObject:
    """
    Return the protocol's complete result.

    Args:
        is_read_only: The tool changes nothing, so a call with an unknown outcome may be retried.

    Raises:
        ToolCallFailed: The tool failed or could not be reached.
        ServerBusy: No slot became free in time.
    """
    limit_s = get_timeout_s(call.server, call.tool)
    async with session.slot(call.caller.key_id, is_read_only=is_read_only, timeout_s=limit_s) as slot:
        result = await _call_with_retry(session, slot, call, limit_s, is_read_only=is_read_only)
    session.mark_healthy()
    if call.server.forward_headers:
        session.note_caller(call.to_request_options())
    return result


async def _call_with_retry(session: UpstreamSession, slot: CallSlot, call: ToolCall, limit_s: float, *, is_read_only: bool) -> JsonObject:
    """Return the tool's result. Retry once if the call was certainly not executed or is read-only."""
    is_last = False
    while True:
        try:
            with call.upstream.measure():
                connection = session.current_connection or await session.get_connection(call.to_request_options())
        except ConnectFailed as failed:
            raise ToolCallFailed("server_unavailable", str(failed), retry_after_s=failed.retry_after_s) from failed
        try:
            with call.upstream.measure():
                return await _call_with_timeout(connection, slot, call, limit_s)
        except asyncio.CancelledError:
            slot.may_still_run = True
            raise
        except ToolCallFailed as failed:
            if failed.code == "tool_timeout":
                slot.may_still_run = True
                session.mark_suspect()
            raise
        except ConnectionLost as connection_error:
            session.mark_failed(connection, str(connection_error))
            if is_last or (connection_error.was_handled and not is_read_only):
                raise ToolCallFailed("server_unavailable", str(connection_error)) from connection_error
            is_last = True
        except UpstreamError as error:
            raise _to_failure(error) from error


def _to_failure(error: UpstreamError) -> ToolCallFailed:
    """Return the failure of a call whose session still works."""
    if isinstance(error, ResultTooLarge):
        return ToolCallFailed("result_too_large", str(error))
    code = "server_http_error" if isinstance(error, UpstreamStatusError) else "tool_execution_error"
    return ToolCallFailed(code, str(error), retry_after_s=error.retry_after_s)


async def _call_with_timeout(connection: UpstreamConnection, slot: CallSlot, call: ToolCall, limit_s: float) -> JsonObject:
    """Send the call and wait for its result; see `send_with_timeout`."""
    params = call.options.add_to_params(call.server, {"name": call.tool, "arguments": dict(call.arguments)})
    options = call.to_request_options(on_progress=call.options.on_progress)
    try:
        with start_span("tool call", is_remote=True, **{"rookery.server": call.server.id, "rookery.tool": call.tool}):
            return await send_with_timeout(connection, slot, "tools/call", params, options=options, limit_s=limit_s)
    except TimeoutError as error:
        raise ToolCallFailed("tool_timeout", f"The tool neither finished nor reported progress within {limit_s:g} s.") from error


def get_timeout_s(server: Server, tool: str) -> float:
    """Return the tool's time-out in seconds: its own, or that of its server. Progress restarts it."""
    timeout_s = next((limit for glob, limit in server.rules.timeouts_s.items() if globs.matches(tool, glob)), server.timeout_s)
    return min(timeout_s, MAX_REQUEST_S)
