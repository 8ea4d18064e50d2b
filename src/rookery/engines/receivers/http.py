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

from rookery.engines.receivers.connections import IDLE_S, Connections
from rookery.kernel.egress import EgressGuard
from rookery.kernel.egress.transport import NotAllowed
from rookery.webhooks.errors import ReceiverUnreachable
from rookery.webhooks.models import Answer

WITHIN_S = 10.0
"""From the look-up of the name to the last character that is read (D-81)."""

MOST_CHARACTERS = 10_000
_TIMEOUTS = {"timeout": {"connect": 4.5}}
"""For the name and all its addresses together, so that a dead first one leaves time for the second; and as much for TLS."""

_ALWAYS = (
    (b"User-Agent", b"rookery"),
    (b"Content-Type", b"application/json"),
    (b"Accept", b"*/*"),
    (b"Accept-Encoding", b"identity"),  # what is read is cut while it is read, and must not unfold to more
)


class HttpReceiver:
    """See `Receiver`."""

    def __init__(self, egress: EgressGuard, *, within_s: float = WITHIN_S, idle_s: float = IDLE_S) -> None:
        self._within_s = within_s
        # Connections alone: a client's cookies, redirects and environment are what we do not want, and most of its time.
        self._connections = Connections(egress, idle_s=idle_s)

    async def post(self, url: str, headers: Mapping[str, str], body: bytes) -> Answer:
        """See `Receiver`."""
        try:
            request = _request(url, headers, body)
        except httpx2.InvalidURL:
            raise ReceiverUnreachable("Its address cannot be used.") from None
        origin, answered, read = request.url.origin, None, _Excerpt()
        try:
            async with asyncio.timeout(self._within_s):
                connection, answered = await self._answered(origin, request)
                try:
                    async for part in cast("AsyncIterable[bytes]", answered.stream):
                        if read.is_full_with(part):
                            break
                finally:
                    await answered.aclose()
                    await self._connections.put(origin, connection)
        except (TimeoutError, *_BROKEN) as error:
            # Once the status is there it is the verdict: a body that is slow or breaks off does not change it.
            if answered is None:
                raise ReceiverUnreachable(self._why(error)) from None
        said = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in answered.headers}
        return Answer(status=answered.status, headers=said, excerpt=read.text)

    async def close(self) -> None:
        """See `Receiver`."""
        await self._connections.close()

    async def _answered(
        self, origin: httpcore2.Origin, request: httpcore2.Request
    ) -> tuple[httpcore2.AsyncHTTPConnection, httpcore2.Response]:
        kept = await self._connections.kept(origin)
        if kept is not None:
            try:
                return kept, await kept.handle_async_request(request)
            except (httpcore2.NetworkError, httpcore2.RemoteProtocolError):
                # Its server closed it in the moment in which we sent, most likely, which must not cost an attempt; if it did get
                # the request, it knows the event by its id. What else is idle there was closed as well.
                await self._connections.forget(origin)
        connection = self._connections.new(origin)
        return connection, await connection.handle_async_request(request)

    def _why(self, error: Exception) -> str:
        if isinstance(error, (TimeoutError, httpcore2.TimeoutException)):
            return f"It did not answer within {self._within_s:g} seconds."
        return _why(error)


_BROKEN = (httpcore2.TimeoutException, httpcore2.NetworkError, httpcore2.ProtocolError)


def _request(url: str, headers: Mapping[str, str], body: bytes) -> httpcore2.Request:
    target, host = _target(url)
    return httpcore2.Request(
        b"POST",
        target,
        headers=[
            (b"Host", host),
            *_ALWAYS,
            *((name.encode("ascii"), value.encode("ascii")) for name, value in headers.items()),
            (b"Content-Length", b"%d" % len(body)),
        ],
        content=body,
        extensions=_TIMEOUTS,
    )


@lru_cache(maxsize=1024)
def _target(url: str) -> tuple[httpcore2.URL, bytes]:
    """Return where to send, and the header that says so; raises `httpx2.InvalidURL`."""
    parts = httpx2.URL(url)
    return httpcore2.URL(scheme=parts.raw_scheme, host=parts.raw_host, port=parts.port, target=parts.raw_path), parts.netloc


class _Excerpt:
    """The start of an answer as text, whatever its bytes are."""

    def __init__(self) -> None:
        self.text = ""
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def is_full_with(self, part: bytes) -> bool:
        """Add *part*; tell whether that is enough."""
        # A zero character is what no column of PostgreSQL holds.
        self.text += self._decoder.decode(part[: 4 * MOST_CHARACTERS]).replace("\x00", "\ufffd")
        self.text = self.text[:MOST_CHARACTERS]
        return len(self.text) == MOST_CHARACTERS


def _why(error: Exception) -> str:
    if isinstance(error, NotAllowed):
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
