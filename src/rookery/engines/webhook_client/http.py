"""A client that posts deliveries over HTTP/1.1 with kept-alive connections."""

from __future__ import annotations

import asyncio
import codecs
import ssl
from collections.abc import AsyncIterable, Mapping
from functools import lru_cache
from typing import cast

import httpcore2
import httpx2

from rookery.engines.webhook_client.connection_pool import IDLE_TIMEOUT_S, ConnectionPool
from rookery.kernel.egress import EgressGuard
from rookery.kernel.egress.transport import EgressNotAllowed
from rookery.webhooks.errors import ReceiverUnreachable
from rookery.webhooks.models import ReceiverResponse

REQUEST_TIMEOUT_S = 10.0
"""Total time of a request, from the DNS lookup to the last byte that is read (D-81)."""

MAX_EXCERPT_CHARS = 10_000
_TIMEOUTS = {"timeout": {"connect": 4.5}}
"""Time to look up and connect to all addresses of the name, so that a dead first address leaves time for the second; the same again for
TLS."""

_FIXED_HEADERS = (
    (b"User-Agent", b"rookery"),
    (b"Content-Type", b"application/json"),
    (b"Accept", b"*/*"),
    (b"Accept-Encoding", b"identity"),  # a compressed response could expand beyond the limit
)


class HttpWebhookClient:
    """An HTTP implementation of `webhooks.ports.WebhookClient`."""

    def __init__(self, egress: EgressGuard, *, timeout_s: float = REQUEST_TIMEOUT_S, idle_timeout_s: float = IDLE_TIMEOUT_S) -> None:
        self._timeout_s = timeout_s
        # A pool without a client: cookies, redirects and proxy settings are unwanted, and a client needs most of the time.
        self._pool = ConnectionPool(egress, idle_timeout_s=idle_timeout_s)

    async def post(self, url: str, headers: Mapping[str, str], body: bytes) -> ReceiverResponse:
        try:
            request = _build_request(url, headers, body)
        except httpx2.InvalidURL:
            raise ReceiverUnreachable("The URL is invalid.") from None
        origin, response, excerpt = request.url.origin, None, _Excerpt()
        try:
            async with asyncio.timeout(self._timeout_s):
                connection, response = await self._send(origin, request)
                try:
                    async for part in cast("AsyncIterable[bytes]", response.stream):
                        if excerpt.add(part):
                            break
                finally:
                    await response.aclose()
                    await self._pool.release(origin, connection)
        except (TimeoutError, *_CONNECTION_ERRORS) as error:
            # The status decides: a slow or incomplete body after it does not change the outcome.
            if response is None:
                raise ReceiverUnreachable(self._describe_error(error)) from None
        response_headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in response.headers}
        return ReceiverResponse(status=response.status, headers=response_headers, excerpt=excerpt.text)

    async def close(self) -> None:
        await self._pool.close()

    async def _send(self, origin: httpcore2.Origin, request: httpcore2.Request) -> tuple[httpcore2.AsyncHTTPConnection, httpcore2.Response]:
        idle = await self._pool.take_idle(origin)
        if idle is not None:
            try:
                return idle, await idle.handle_async_request(request)
            except (httpcore2.NetworkError, httpcore2.RemoteProtocolError):
                # Most likely the server closed the connection at the same moment, which must not count as an attempt. If it received the
                # request, it can recognise the repeated event id. Its other idle connections are closed as well.
                await self._pool.close_idle(origin)
        connection = self._pool.create(origin)
        return connection, await connection.handle_async_request(request)

    def _describe_error(self, error: Exception) -> str:
        if isinstance(error, (TimeoutError, httpcore2.TimeoutException)):
            return f"The receiver did not answer within {self._timeout_s:g} seconds."
        return _describe_connection_error(error)


_CONNECTION_ERRORS = (httpcore2.TimeoutException, httpcore2.NetworkError, httpcore2.ProtocolError)


def _build_request(url: str, headers: Mapping[str, str], body: bytes) -> httpcore2.Request:
    target, host = _parse_target(url)
    return httpcore2.Request(
        b"POST",
        target,
        headers=[
            (b"Host", host),
            *_FIXED_HEADERS,
            *((name.encode("ascii"), value.encode("ascii")) for name, value in headers.items()),
            (b"Content-Length", b"%d" % len(body)),
        ],
        content=body,
        extensions=_TIMEOUTS,
    )


@lru_cache(maxsize=1024)
def _parse_target(url: str) -> tuple[httpcore2.URL, bytes]:
    """Return the request target and the Host header; raises `httpx2.InvalidURL`."""
    parts = httpx2.URL(url)
    return httpcore2.URL(scheme=parts.raw_scheme, host=parts.raw_host, port=parts.port, target=parts.raw_path), parts.netloc


class _Excerpt:
    """The start of a response body as text; invalid UTF-8 is replaced."""

    def __init__(self) -> None:
        self.text = ""
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def add(self, part: bytes) -> bool:
        """Append *part*. Return whether the excerpt is complete."""
        # PostgreSQL cannot store NUL in text.
        self.text += self._decoder.decode(part[: 4 * MAX_EXCERPT_CHARS]).replace("\x00", "\ufffd")
        self.text = self.text[:MAX_EXCERPT_CHARS]
        return len(self.text) == MAX_EXCERPT_CHARS


def _describe_connection_error(error: Exception) -> str:
    if isinstance(error, EgressNotAllowed):
        return str(error)
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return f"The receiver's certificate is not valid: {cause.verify_message}."
        if isinstance(cause, ssl.SSLError):
            return "The TLS handshake with the receiver failed."
        cause = cause.__cause__ or cause.__context__
    if isinstance(error, httpcore2.ConnectError):
        return "The connection to the receiver could not be opened."
    if isinstance(error, httpcore2.RemoteProtocolError):
        return "The receiver closed the connection or did not answer in HTTP."
    return f"The connection to the receiver failed ({type(error).__name__})."
