"""The time-out of one request to a tool server: a call, a resource, a prompt or a completion."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import replace

from rookery.tools.models import JsonObject
from rookery.tools.ports import RequestOptions, UpstreamConnection, UpstreamMethod
from rookery.tools.supervision.call_queue import CallSlot

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
