"""A transport of the client that calls the server in this process, without a socket."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Sequence
from typing import cast

import httpx2
from starlette.types import ASGIApp, Message, Scope

from rookery.kernel.request_context import CONSOLE_CALL

_MAX_WAITING_PARTS = 16
_FORWARDED_HEADERS = frozenset({b"host", b"x-forwarded-for", b"x-forwarded-proto", b"forwarded", b"x-real-ip", b"traceparent"})
"""Headers of the browser that say who calls, and by which name of this server. A call of the console has them too."""

Headers = list[tuple[bytes, bytes]]


class InProcessTransport(httpx2.AsyncBaseTransport):
    """
    Sends requests to *app* with the address of the browser whose request is *scope*.

    The body of a response is passed on as it is produced, so that streams work. Closing the response cancels the request.
    """

    def __init__(self, app: ASGIApp, scope: Scope) -> None:
        self._app = app
        self._client = scope.get("client")
        self._scheme = cast("str", scope.get("scheme", "http"))
        self._server = scope.get("server")
        headers = cast("Headers", scope["headers"])
        self._headers = [(name, value) for name, value in headers if name in _FORWARDED_HEADERS]

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send one request and return the response as soon as its headers are known."""
        exchange = _Exchange(await request.aread())
        exchange.task = asyncio.create_task(self._run(self._build_scope(request), exchange))
        try:
            start = await exchange.start
        except asyncio.CancelledError:
            await exchange.cancel()
            raise
        headers = cast("Sequence[tuple[bytes, bytes]]", start["headers"])
        return httpx2.Response(cast("int", start["status"]), headers=list(headers), stream=_Body(exchange))

    def _build_scope(self, request: httpx2.Request) -> Scope:
        own = [(name.lower(), value) for name, value in request.headers.raw if name.lower() not in _FORWARDED_HEADERS]
        return {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": request.method,
            "scheme": self._scheme,
            "path": request.url.path,
            "raw_path": request.url.raw_path.partition(b"?")[0],
            "query_string": request.url.query,
            "root_path": "",
            "headers": [*self._headers, *own],
            "client": self._client,
            "server": self._server,
            CONSOLE_CALL: True,
        }

    async def _run(self, scope: Scope, exchange: _Exchange) -> None:
        try:
            await self._app(scope, exchange.receive, exchange.send)
        except Exception:
            exchange.has_failed = True
            raise
        finally:
            if not exchange.start.done():
                exchange.start.set_exception(httpx2.RemoteProtocolError("the server ended the request without a response"))
            await exchange.finish()


class _Exchange:
    """One request in progress: what the application receives, and the parts of its response."""

    def __init__(self, content: bytes) -> None:
        self._content: bytes | None = content
        self.start: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self.parts: asyncio.Queue[bytes | None] = asyncio.Queue(_MAX_WAITING_PARTS)
        self.task: asyncio.Task[None] | None = None
        self.has_failed = False
        self._is_closed = asyncio.Event()

    async def receive(self) -> Message:
        """Return the body once, and afterwards wait until the caller closes the response."""
        if self._content is not None:
            content, self._content = self._content, None
            return {"type": "http.request", "body": content, "more_body": False}
        await self._is_closed.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        """Pass on one part of the response."""
        if message["type"] == "http.response.start":
            if not self.start.done():
                self.start.set_result(message)
        elif message.get("body"):
            await self.parts.put(cast("bytes", message["body"]))

    async def finish(self) -> None:
        """Mark the end of the response."""
        if not self._is_closed.is_set():
            await self.parts.put(None)

    async def cancel(self) -> None:
        """End the request, because nobody reads its response any longer."""
        self._is_closed.set()
        if self.task is not None and not self.task.done():
            self.task.cancel()
            with contextlib.suppress(asyncio.CancelledError, Exception):
                await self.task


class _Body(httpx2.AsyncByteStream):
    """The body of a response, part by part."""

    def __init__(self, exchange: _Exchange) -> None:
        self._exchange = exchange

    async def __aiter__(self) -> AsyncGenerator[bytes]:
        while (part := await self._exchange.parts.get()) is not None:
            yield part
        if self._exchange.has_failed:
            raise httpx2.RemoteProtocolError("the server failed in the middle of its response")

    async def aclose(self) -> None:
        """Cancel the request if its response has not ended."""
        await self._exchange.cancel()
