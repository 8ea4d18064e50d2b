"""
Servers that run elsewhere: Streamable HTTP, and the older HTTP with SSE.

The SDK lets one failed request end the whole session with all its other calls. So below it stands `Mending`, which turns what
happens to one request (no connection, a broken body, too much of it) into a JSON-RPC error for that request alone.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable

import httpx2
import orjson
from mcp.client._transport import TransportStreams  # the SDK names its contract nowhere else
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client

from rookery.engines.upstreams.relay import BROKEN, MAX_MESSAGE, TOO_LARGE, UNSENT, Relay, open_relay
from rookery.kernel.tracing import outgoing
from rookery.tools.errors import ConnectFailed
from rookery.tools.models import Address, Server

_CONNECT_S = 10.0
_READ_S = 660.0
"""Beyond the longest call (600 s, D-34), which ends by its own deadline."""

_UNAUTHORISED = 401
_FORBIDDEN = 403
_NOT_FOUND = 404
_FAILED = 400


class HttpConnector:
    """Speaks with a server by its URL; see `Connector`."""

    @contextlib.asynccontextmanager
    async def connect(self, server: Server, *, on_changed: Callable[[], None]) -> AsyncGenerator[Relay]:
        """Open a session with the server."""
        if not isinstance(server.target, Address):
            msg = f"{server.id} is no address"
            raise TypeError(msg)
        address = server.target
        wire = _Wire()
        mending = Mending(httpx2.AsyncHTTPTransport(limits=_LIMITS), wire)
        timeout = httpx2.Timeout(_CONNECT_S, read=_READ_S)
        try:
            async with (
                httpx2.AsyncClient(transport=mending, headers=dict(address.headers), timeout=timeout) as client,
                open_relay(_transport(address, client, timeout), wire, on_changed=on_changed) as relay,
            ):
                yield relay
        except ConnectFailed as failed:
            raise ConnectFailed(str(failed), needs_login=wire.needs_login) from failed


_LIMITS = httpx2.Limits(max_connections=None, max_keepalive_connections=32, keepalive_expiry=60.0)


def _transport(
    address: Address, client: httpx2.AsyncClient, patience: httpx2.Timeout
) -> contextlib.AbstractAsyncContextManager[TransportStreams]:
    if address.kind == "http":
        return streamable_http_client(address.url, http_client=client, max_sse_event_size=MAX_MESSAGE)

    def make(
        headers: dict[str, str] | None = None,
        timeout: httpx2.Timeout | None = patience,
        auth: httpx2.Auth | None = None,
    ) -> httpx2.AsyncClient:
        return httpx2.AsyncClient(transport=httpx2.AsyncHTTPTransport(limits=_LIMITS), headers=headers, timeout=timeout, auth=auth)

    return sse_client(address.url, headers=dict(address.headers), timeout=_CONNECT_S, sse_read_timeout=_READ_S, httpx_client_factory=make)


class _Wire:
    """What is known of a connection over HTTP: its last failure; its end is found by using it."""

    pid = None

    def __init__(self) -> None:
        self.last = ""
        self.needs_login = False

    def why(self) -> str:
        return self.last

    def is_over(self) -> bool:
        return False

    async def wait_ended(self) -> None:
        await asyncio.Event().wait()


class Mending(httpx2.AsyncBaseTransport):
    """A transport that answers a POST that fails with a JSON-RPC error instead of raising."""

    def __init__(self, inner: httpx2.AsyncBaseTransport, wire: _Wire) -> None:
        self._inner = inner
        self._wire = wire

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send *request*, in the trace that it belongs to; what goes wrong with a POST is told in its answer."""
        request.headers.update(outgoing())
        if request.method != "POST":
            return await self._inner.handle_async_request(request)
        try:
            response = await self._inner.handle_async_request(request)
        except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout, httpx2.UnsupportedProtocol) as error:
            self._wire.last = f"No connection to {request.url.host}: {error or type(error).__name__}"
            return _told(502, UNSENT, self._wire.last)
        except httpx2.TransportError as error:
            self._wire.last = f"The connection to {request.url.host} broke: {error or type(error).__name__}"
            return _told(502, BROKEN, self._wire.last)
        if response.status_code in {_UNAUTHORISED, _FORBIDDEN}:
            await response.aclose()
            self._wire.needs_login = True
            self._wire.last = f"{request.url.host} answered {response.status_code}: it asks for a login or another key."
            return _told(response.status_code, BROKEN, self._wire.last)
        is_json = response.headers.get("content-type", "").startswith("application/json")
        if response.status_code >= _FAILED and response.status_code != _NOT_FOUND and not is_json:
            await response.aclose()
            self._wire.last = f"{request.url.host} answered {response.status_code}."
            return _told(response.status_code, BROKEN, self._wire.last)
        if is_json and isinstance(response.stream, httpx2.AsyncByteStream):
            response.stream = _Bounded(response.stream, request.content)
        return response

    async def aclose(self) -> None:
        """Close the connections."""
        await self._inner.aclose()


class _Bounded(httpx2.AsyncByteStream):
    """A JSON body of bounded size; what is wrong with it becomes the body, since the SDK knows no other way to be told."""

    def __init__(self, inner: httpx2.AsyncByteStream, asked: bytes) -> None:
        self._inner = inner
        self._asked = asked

    async def __aiter__(self) -> AsyncIterator[bytes]:
        chunks: list[bytes] = []
        size = 0
        try:
            async for chunk in self._inner:
                size += len(chunk)
                if size > MAX_MESSAGE:
                    chunks = [self._error(TOO_LARGE, "The result is larger than 10 MiB.")]
                    break
                chunks.append(chunk)
        except httpx2.TransportError as error:
            chunks = [self._error(BROKEN, f"The answer broke off: {error or type(error).__name__}")]
        for chunk in chunks:
            yield chunk

    async def aclose(self) -> None:
        await self._inner.aclose()

    def _error(self, code: int, text: str) -> bytes:
        # Unlike that of a status of failure, this body must carry the request's id, or its caller waits for ever.
        return _error(code, text, orjson.loads(self._asked)["id"])


def _told(status: int, code: int, text: str) -> httpx2.Response:
    return httpx2.Response(status, headers={"content-type": "application/json"}, content=_error(code, text))


def _error(code: int, text: str, request_id: object = None) -> bytes:
    return orjson.dumps({"jsonrpc": "2.0", "id": request_id, "error": {"code": code, "message": text}})
