"""
A client that posts small requests to users' URLs over HTTP/1.1 with kept-alive connections: webhooks and notifications.

It is a module of its own because it imports an HTTP library, which processes that post nothing do not need.
"""

from __future__ import annotations

import asyncio
import codecs
import ssl
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import cast

import httpcore2
import httpx2

from rookery.kernel.egress.guard import EgressGuard
from rookery.kernel.egress.transport import EgressNotAllowed, GuardedBackend, get_tls_context

REQUEST_TIMEOUT_S = 10.0
"""Total time of a request, from the DNS lookup to the last byte that is read."""

IDLE_TIMEOUT_S = 2.0
"""Idle time after which a connection is closed, before usual servers do so (Node after 5 s, gunicorn after 2)."""

_MAX_IDLE = 256

_Origin = tuple[bytes, bytes, int]

MAX_EXCERPT_CHARS = 10_000
_TIMEOUTS = {"timeout": {"connect": 4.5}}
"""Time to look up and connect to all addresses of the name, so that a dead first address leaves time for the second; the same again for
TLS."""

_FIXED_HEADERS = (
    (b"User-Agent", b"rookery"),
    (b"Accept", b"*/*"),
    (b"Accept-Encoding", b"identity"),  # a compressed response could expand beyond the limit
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PostResponse:
    """
    The response to a post.

    Attributes:
        headers: By lower-case name.
        excerpt: The start of the body, at most 10,000 characters.
    """

    status: int
    headers: Mapping[str, str]
    excerpt: str


class PostFailed(Exception):
    """
    There was no response. The message reveals neither our network nor a secret.

    Attributes:
        may_have_arrived: The whole request may have been received. False: certainly not.
        is_forbidden: The URL is invalid or its address is not allowed, so a repetition fails in the same way.
    """

    def __init__(self, message: str, *, may_have_arrived: bool = False, is_forbidden: bool = False) -> None:
        super().__init__(message)
        self.message = message
        self.may_have_arrived = may_have_arrived
        self.is_forbidden = is_forbidden


class GuardedHttpClient:
    """
    A client whose connections go to addresses that *egress* allows.

    Args:
        repeats_on_stale_connection: Send the request again on a new connection if an idle one turns out to be closed. If it was closed
            while the request arrived, the receiver gets the request twice. False: that is `may_have_arrived`.
    """

    def __init__(
        self,
        egress: EgressGuard,
        *,
        timeout_s: float = REQUEST_TIMEOUT_S,
        idle_timeout_s: float = IDLE_TIMEOUT_S,
        repeats_on_stale_connection: bool = False,
    ) -> None:
        self._timeout_s = timeout_s
        self._repeats_on_stale_connection = repeats_on_stale_connection
        # A pool without a client: cookies, redirects and proxy settings are unwanted, and a client needs most of the time.
        self._pool = _ConnectionPool(egress, idle_timeout_s=idle_timeout_s)

    async def post(self, url: str, headers: Mapping[str, str], body: bytes, on_send: Callable[[], None] | None = None) -> PostResponse:
        """
        Post *body* unchanged and return the response, whatever its status. Redirects are not followed.

        Args:
            on_send: Called before the body is written, on each connection that it is written to. What it raises is raised here.

        Raises:
            PostFailed: There was no response within the time limit.
        """
        content = _TrackedBody(body, on_send)
        try:
            request = _build_request(url, headers, content)
        except (httpx2.InvalidURL, UnicodeEncodeError):
            raise PostFailed("The URL is invalid.", is_forbidden=True) from None
        origin, response, excerpt = request.url.origin, None, _Excerpt()
        try:
            async with asyncio.timeout(self._timeout_s):
                connection, response = await self._send(origin, request, content)
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
                is_forbidden = isinstance(error, EgressNotAllowed) and not error.is_temporary
                message = self._describe_error(error)
                raise PostFailed(message, may_have_arrived=content.is_being_sent, is_forbidden=is_forbidden) from None
        response_headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in response.headers}
        return PostResponse(status=response.status, headers=response_headers, excerpt=excerpt.text)

    async def close(self) -> None:
        """Close all connections. Idempotent."""
        await self._pool.close()

    async def _send(
        self, origin: httpcore2.Origin, request: httpcore2.Request, content: _TrackedBody
    ) -> tuple[httpcore2.AsyncHTTPConnection, httpcore2.Response]:
        idle = await self._pool.take_idle(origin)
        if idle is not None:
            try:
                return idle, await idle.handle_async_request(request)
            except (httpcore2.NetworkError, httpcore2.RemoteProtocolError):
                # Most likely the server closed the connection at the same moment. Its other idle connections are closed as well.
                await self._pool.close_idle(_origin_key(origin))
                if content.is_being_sent and not self._repeats_on_stale_connection:
                    raise
                content.is_being_sent = False
        connection = self._pool.create(origin)
        return connection, await connection.handle_async_request(request)

    def _describe_error(self, error: Exception) -> str:
        if isinstance(error, (TimeoutError, httpcore2.TimeoutException)):
            return f"The receiver did not answer within {self._timeout_s:g} seconds."
        return _describe_connection_error(error)


class _TrackedBody:
    """A request body that records when it is being sent. Until then, no receiver can have the whole request."""

    def __init__(self, body: bytes, on_send: Callable[[], None] | None) -> None:
        self.body = body
        self._on_send = on_send
        self.is_being_sent = False

    async def __aiter__(self) -> AsyncGenerator[bytes]:
        if self._on_send is not None:
            self._on_send()
        self.is_being_sent = True
        yield self.body


_CONNECTION_ERRORS = (httpcore2.TimeoutException, httpcore2.NetworkError, httpcore2.ProtocolError)


class _ConnectionPool:
    """
    A pool of idle connections, keyed by origin. *egress* checks the address of each new connection.

    httpcore's own pool checks each idle connection with every request. This pool takes the most recently used one and checks only that.
    """

    def __init__(self, egress: EgressGuard, *, idle_timeout_s: float) -> None:
        self._idle_timeout_s = idle_timeout_s
        self._backend = GuardedBackend(egress)
        self._idle: dict[_Origin, deque[httpcore2.AsyncHTTPConnection]] = {}
        self._count = 0
        self._sweep_task: asyncio.Task[None] | None = None

    async def take_idle(self, origin: httpcore2.Origin) -> httpcore2.AsyncHTTPConnection | None:
        """Return an idle connection that is still open as far as known, or None. Return it with `release`."""
        key = _origin_key(origin)
        while idle := self._idle.get(key):
            connection = idle.pop()
            self._count -= 1
            if not idle:
                del self._idle[key]
            if not connection.has_expired():
                return connection
            await connection.aclose()
        return None

    def create(self, origin: httpcore2.Origin) -> httpcore2.AsyncHTTPConnection:
        """Return a new connection, which is opened with its first request. Return it with `release`."""
        tls = get_tls_context() if origin.scheme == b"https" else None
        return httpcore2.AsyncHTTPConnection(origin, ssl_context=tls, keepalive_expiry=self._idle_timeout_s, network_backend=self._backend)

    async def release(self, origin: httpcore2.Origin, connection: httpcore2.AsyncHTTPConnection) -> None:
        """Store *connection* for the next request, or close it if it cannot be used again."""
        if not connection.is_available() or self._count >= _MAX_IDLE:
            await connection.aclose()
            return
        self._idle.setdefault(_origin_key(origin), deque()).append(connection)
        self._count += 1
        if self._sweep_task is None or self._sweep_task.done():
            self._sweep_task = asyncio.create_task(self._close_expired(), name="egress-connections")

    async def close_idle(self, key: _Origin) -> None:
        """Close the idle connections to an origin."""
        idle = self._idle.pop(key, deque())
        self._count -= len(idle)
        for connection in idle:
            await connection.aclose()

    async def close(self) -> None:
        """Close all connections. A second call has no effect."""
        task, self._sweep_task = self._sweep_task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        for key in list(self._idle):
            await self.close_idle(key)

    async def _close_expired(self) -> None:
        """Close expired connections until no idle one is left. Otherwise connections to unused endpoints would stay open."""
        while self._idle:
            await asyncio.sleep(self._idle_timeout_s / 2)
            for key, idle in list(self._idle.items()):
                # The first connection has been idle for the longest time.
                while idle and idle[0].has_expired():
                    connection = idle.popleft()
                    self._count -= 1
                    await connection.aclose()
                if not idle and self._idle.get(key) is idle:
                    del self._idle[key]


def _origin_key(origin: httpcore2.Origin) -> _Origin:
    return origin.scheme, origin.host, origin.port


def _build_request(url: str, headers: Mapping[str, str], content: _TrackedBody) -> httpcore2.Request:
    target, host = _parse_target(url)
    return httpcore2.Request(
        b"POST",
        target,
        headers=[
            (b"Host", host),
            *_FIXED_HEADERS,
            *((name.encode("ascii"), value.encode("ascii")) for name, value in headers.items()),
            (b"Content-Length", b"%d" % len(content.body)),
        ],
        content=content,
        extensions=_TIMEOUTS,
    )


@lru_cache(maxsize=1024)
def _parse_target(url: str) -> tuple[httpcore2.URL, bytes]:
    """Return the request target and the Host header; raises `httpx2.InvalidURL`."""
    parts = httpx2.URL(url)
    if parts.raw_scheme not in {b"http", b"https"} or not parts.raw_host.strip(b"[]"):
        msg = "neither http nor https, or without a host"
        raise httpx2.InvalidURL(msg)
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
