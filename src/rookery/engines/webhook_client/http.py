"""Posts deliveries, by HTTP/1.1 over connections that are kept while there is more to say."""

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
"""From the look-up of the name to the last character that is read (D-81)."""

MAX_EXCERPT_CHARS = 10_000
_TIMEOUTS = {"timeout": {"connect": 4.5}}
"""For the name and all its addresses together, so that a dead first one leaves time for the second; and as much for TLS."""

_FIXED_HEADERS = (
    (b"User-Agent", b"rookery"),
    (b"Content-Type", b"application/json"),
    (b"Accept", b"*/*"),
    (b"Accept-Encoding", b"identity"),  # what is read is cut while it is read, and must not unfold to more
)


class HttpReceiver:
    """See `Receiver`."""

    def __init__(self, egress: EgressGuard, *, timeout_s: float = REQUEST_TIMEOUT_S, idle_timeout_s: float = IDLE_TIMEOUT_S) -> None:
        self._timeout_s = timeout_s
        # Connections alone: a client's cookies, redirects and environment are what we do not want, and most of its time.
        self._pool = ConnectionPool(egress, idle_timeout_s=idle_timeout_s)

    async def post(self, url: str, headers: Mapping[str, str], body: bytes) -> ReceiverResponse:
        """See `Receiver`."""
        try:
            request = _build_request(url, headers, body)
        except httpx2.InvalidURL:
            raise ReceiverUnreachable("Its address cannot be used.") from None
        origin, answered, read = request.url.origin, None, _Excerpt()
        try:
            async with asyncio.timeout(self._timeout_s):
                connection, answered = await self._send(origin, request)
                try:
                    async for part in cast("AsyncIterable[bytes]", answered.stream):
                        if read.add(part):
                            break
                finally:
                    await answered.aclose()
                    await self._pool.release(origin, connection)
        except (TimeoutError, *_CONNECTION_ERRORS) as error:
            # Once the status is there it is the verdict: a body that is slow or breaks off does not change it.
            if answered is None:
                raise ReceiverUnreachable(self._describe_error(error)) from None
        said = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in answered.headers}
        return ReceiverResponse(status=answered.status, headers=said, excerpt=read.text)

    async def close(self) -> None:
        """See `Receiver`."""
        await self._pool.close()

    async def _send(self, origin: httpcore2.Origin, request: httpcore2.Request) -> tuple[httpcore2.AsyncHTTPConnection, httpcore2.Response]:
        kept = await self._pool.take_idle(origin)
        if kept is not None:
            try:
                return kept, await kept.handle_async_request(request)
            except (httpcore2.NetworkError, httpcore2.RemoteProtocolError):
                # Its server closed it in the moment in which we sent, most likely, which must not cost an attempt; if it did get
                # the request, it knows the event by its id. What else is idle there was closed as well.
                await self._pool.close_idle(origin)
        connection = self._pool.create(origin)
        return connection, await connection.handle_async_request(request)

    def _describe_error(self, error: Exception) -> str:
        if isinstance(error, (TimeoutError, httpcore2.TimeoutException)):
            return f"It did not answer within {self._timeout_s:g} seconds."
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
    """Return where to send, and the header that says so; raises `httpx2.InvalidURL`."""
    parts = httpx2.URL(url)
    return httpcore2.URL(scheme=parts.raw_scheme, host=parts.raw_host, port=parts.port, target=parts.raw_path), parts.netloc


class _Excerpt:
    """The start of an answer as text, whatever its bytes are."""

    def __init__(self) -> None:
        self.text = ""
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def add(self, part: bytes) -> bool:
        """Add *part*; tell whether that is enough."""
        # A zero character is what no column of PostgreSQL holds.
        self.text += self._decoder.decode(part[: 4 * MAX_EXCERPT_CHARS]).replace("\x00", "\ufffd")
        self.text = self.text[:MAX_EXCERPT_CHARS]
        return len(self.text) == MAX_EXCERPT_CHARS


def _describe_connection_error(error: Exception) -> str:
    if isinstance(error, EgressNotAllowed):
        return str(error)
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return f"Its certificate is not valid: {cause.verify_message}."
        if isinstance(cause, ssl.SSLError):
            return "No secure connection to it can be made."
        cause = cause.__cause__ or cause.__context__
    if isinstance(error, httpcore2.ConnectError):
        return "No connection to it can be made."
    if isinstance(error, httpcore2.RemoteProtocolError):
        return "It closed the connection, or answered with what is not HTTP."
    return f"The connection to it failed ({type(error).__name__})."
