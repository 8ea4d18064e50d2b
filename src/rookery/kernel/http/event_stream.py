"""Server-sent events: a response whose parts are sent as they occur, until the client disconnects."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Mapping

from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from rookery.kernel.http.responses import STATUS_CLIENT_CLOSED

MEDIA_TYPE = "text/event-stream"

KEEP_ALIVE_INTERVAL_S = 5.0
"""
Seconds without an event before a comment is sent.

Comments keep proxies from closing an idle stream. Some proxies, such as Apache, notice that their client has left only when they write to
it: after two comments.
"""
CALL_KEEP_ALIVE_INTERVAL_S = 2.0
"""The same for the stream of a running call, because its tool works until the call is cancelled."""
_KEEP_ALIVE_COMMENT = b": still here\n\n"
_EVENT_ENDS = (b"\n\n", b"\r\n\r\n")


def encode_event(name: str, data: bytes, *, event_id: int | None = None) -> bytes:
    """Return one event. *data* is JSON without line breaks, and *event_id* the Last-Event-ID of a client that reconnects."""
    numbered = b"" if event_id is None else b"id: " + str(event_id).encode("ascii") + b"\n"
    return numbered + b"event: " + name.encode("ascii") + b"\ndata: " + data + b"\n\n"


def accepts_events(accept: str | None) -> bool:
    """Return whether an Accept header contains text/event-stream. `*/*` does not count."""
    return accept is not None and any(part.partition(";")[0].strip() == MEDIA_TYPE for part in accept.lower().split(","))


class EventStream(Response):
    """
    A response that sends each part at once, and a comment after *keep_alive_s* seconds without a part.

    When the client disconnects, *parts* is closed and its pending await is cancelled.
    """

    def __init__(
        self, parts: AsyncGenerator[bytes], *, headers: Mapping[str, str] | None = None, keep_alive_s: float = KEEP_ALIVE_INTERVAL_S
    ) -> None:
        super().__init__(b"", 200)
        self._parts = parts
        self._next_part: asyncio.Future[bytes | None] | None = None
        self._keep_alive_s = keep_alive_s
        self.raw_headers = [
            (b"content-type", f"{MEDIA_TYPE}; charset=utf-8".encode()),
            (b"x-accel-buffering", b"no"),  # otherwise nginx buffers the parts
            *((name.lower().encode("latin-1"), value.encode("latin-1")) for name, value in (headers or {}).items()),
        ]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        del scope
        leaving = asyncio.ensure_future(_wait_for_disconnect(receive))
        try:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            while (part := await self._next(leaving)) is not None:
                await send({"type": "http.response.body", "body": part, "more_body": True})
            if leaving.done():
                self.status_code = STATUS_CLIENT_CLOSED
            else:
                await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            leaving.cancel()
            await self._parts.aclose()

    async def _next(self, leaving: asyncio.Future[None]) -> bytes | None:
        """Return the next part, or a comment if none comes in time; None at the end, or when the client has disconnected."""
        if self._next_part is None:
            self._next_part = asyncio.ensure_future(anext(self._parts, None))
        next_part = self._next_part
        try:
            done, _ = await asyncio.wait({next_part, leaving}, timeout=self._keep_alive_s, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            await _cancel(next_part)
            raise
        if next_part in done:
            self._next_part = None
            return next_part.result()
        if leaving in done:
            await _cancel(next_part)
            return None
        return _KEEP_ALIVE_COMMENT


@contextlib.asynccontextmanager
async def send_comments(send: Send, *, interval_s: float) -> AsyncGenerator[Send]:
    """
    Yield a *send* for a response of others that may be an event stream, which then gets the comments of `EventStream`.

    Nothing is added to other responses, or within an event.
    """
    lock, loop = asyncio.Lock(), asyncio.get_running_loop()
    commenting: asyncio.Task[None] | None = None
    is_open, is_between_events, sent_at = False, False, 0.0

    async def send_message(message: Message) -> None:
        nonlocal commenting, is_open, is_between_events, sent_at
        async with lock:
            if message["type"] == "http.response.start":
                headers = {name.lower(): value for name, value in message.get("headers", ())}
                is_open = is_between_events = headers.get(b"content-type", b"").startswith(MEDIA_TYPE.encode())
            else:
                body = message.get("body", b"")
                is_open = is_open and message.get("more_body", False)
                is_between_events = body.endswith(_EVENT_ENDS) if body else is_between_events
            sent_at = loop.time()
            await send(message)
        if is_open and commenting is None:
            commenting = asyncio.create_task(add_comments())

    async def add_comments() -> None:
        nonlocal sent_at
        while is_open:
            await asyncio.sleep(sent_at + interval_s - loop.time())
            async with lock:
                if loop.time() < sent_at + interval_s:
                    continue
                sent_at = loop.time()
                if is_open and is_between_events:
                    await send({"type": "http.response.body", "body": _KEEP_ALIVE_COMMENT, "more_body": True})

    try:
        yield send_message
    finally:
        is_open = False
        if commenting is not None:
            commenting.cancel()


async def _cancel(future: asyncio.Future[bytes | None]) -> None:
    future.cancel()
    with contextlib.suppress(asyncio.CancelledError, Exception):
        await future


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        continue
