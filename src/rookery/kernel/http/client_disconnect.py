"""The cancellation of work whose client has disconnected."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator

from starlette.requests import Request

from rookery.kernel.http.request_body import ClientDisconnected

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
