"""
One HTTP connection, with the limits that uvicorn lacks: on the size of a request head and on the time of each part.

A connection costs memory before the client has shown a key, so without limits any client could exhaust memory or connections.

    head        30 s and 64 KiB, for each request, however slowly the bytes arrive
    body        see `request_body.read_body`; unread bytes are dropped, up to the idle time-out and `MAX_DISCARDED_BYTES`
    response    see `TransferLimits`: a client that reads less than 8 KiB per second is disconnected
    idle        75 s (uvicorn's keep-alive), or less if another connection needs the slot
    pipeline    `MAX_PIPELINED_REQUESTS`; later requests are not answered
    queue       clients with a valid key are served before others (`UnauthenticatedQueue`)

Only this module extends classes of uvicorn whose attributes may change in any release, so uvicorn is pinned to a minor version.
"""

from __future__ import annotations

import asyncio
import re
from enum import Enum, auto
from functools import partial
from typing import cast
from urllib.parse import unquote

import httptools
from httptools import HttpParserError, HttpParserUpgrade
from uvicorn._types import ASGI3Application, ASGISendEvent
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from rookery.kernel.errors import RookeryError
from rookery.kernel.http.connection_limit import ConnectionLimiter, ConnectionSlot, ServerFull
from rookery.kernel.http.request_body import RequestTimeout
from rookery.kernel.http.responses import BadRequest, error_response
from rookery.kernel.ids import new_request_id

MAX_HEAD_BYTES = 64 * 1024
"""Maximum bytes of a request line with its headers. Checked after each piece that arrives (uvloop reads at most 256 KiB)."""
_HEADER_OVERHEAD_BYTES = 4
"""A colon, a space and the line break."""

MAX_DISCARDED_BYTES = 20 * 1024 * 1024
"""Bytes of a body accepted after the response. Twice the largest body, so that a client that sends first still reads it, and so does a
proxy that has sent what fits into the buffers of a connection, about 10 MiB on Linux."""

MAX_PIPELINED_REQUESTS = 32
"""Maximum waiting requests of a connection. One read of 256 KiB may hold 8,000 requests, which take 26 MB once parsed."""

_UPGRADE_HEADER = re.compile(rb"\r\n(?:upgrade|http2-settings):[^\r\n]*", re.IGNORECASE)
_CONNECTION_HEADER = re.compile(rb"\r\nconnection:[^\r\n]*", re.IGNORECASE)
_CONNECTION_HEADERS = frozenset({b"connection", b"transfer-encoding"})
_CONTROL_CHARACTER = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")


class HeadTooLarge(RookeryError):
    """The request line and headers are larger than 64 KiB."""

    status, code = 431, "headers_too_large"
    fields = "`limit`: bytes"


class FastResponseCycle(RequestResponseCycle):
    """
    uvicorn's cycle, faster for common responses: of a known length and sent in one piece.

    uvicorn checks each header with two regular expressions, and writes head and body separately. This class saves 10 to 20 µs of the
    120 to 170 µs of CPU time of a rejected request (measured at 3,000 requests per second). All other responses use uvicorn's code.
    """

    _head: bytes | None = None

    async def send(self, message: ASGISendEvent) -> None:
        if self.flow.write_paused and not self.disconnected:
            await self.flow.drain()
        if self.disconnected:
            return
        if message["type"] == "http.response.start":
            if self.waiting_for_100_continue:
                self.keep_alive = False  # the body will not come, so what follows is no request (RFC 9110, section 10.1.1)
            self._head = None if self.response_started else self._render_head(message["status"], list(message.get("headers", ())))
            if self._head is None:
                await super().send(message)
            else:
                self.response_started = True
                self.waiting_for_100_continue = False
                self.chunked_encoding = False
            return
        head, self._head = self._head, None
        if head is None:
            await super().send(message)
            return
        body = cast("bytes", message.get("body", b""))
        if message.get("more_body", False) or len(body) != self.expected_content_length:
            self.transport.write(head)
            await super().send(message)
            return
        self.transport.write(head + body)
        self.response_complete = True
        self.message_event.set()
        if not self.keep_alive:
            self.transport.close()
        self.on_response()

    def _render_head(self, status: int, headers: list[tuple[bytes, bytes]]) -> bytes | None:
        """Return the head of a response with a known length and without connection headers; None for any other."""
        if self.default_headers or self.access_log or self.scope["method"] == "HEAD":
            return None
        lines, length = [STATUS_LINE[status]], None
        for name, value in headers:
            if name == b"content-length":
                length = int(value)
            elif name in _CONNECTION_HEADERS:
                return None
            lines += (name, b": ", value, b"\r\n")
        if length is None:
            return None
        lines.append(b"\r\n" if self.keep_alive else b"connection: close\r\n\r\n")
        head = b"".join(lines)
        ends = len(headers) + (2 if self.keep_alive else 3)
        if head.count(b"\n") != ends or head.count(b"\r") != ends or _CONTROL_CHARACTER.search(head) is not None:
            return None  # a header contains a line break or control character; uvicorn raises the error
        self.expected_content_length = length
        return head


class _ParseState(Enum):
    """The part of the HTTP stream that is expected next."""

    HEAD = auto()
    BODY = auto()
    IDLE = auto()
    """The request is complete, and the next one has not begun."""
    CLOSING = auto()
    """The connection is closing, and arriving bytes are ignored."""


class HttpConnection(HttpToolsProtocol):
    """
    uvicorn's connection, with limits, and with the error body of every route for requests that it rejects itself.

    Args:
        limiter: The limiter of open connections; by default one of its own.
        slot: The slot that this connection already has.
    """

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, object],
        _loop: asyncio.AbstractEventLoop | None = None,
        *,
        limiter: ConnectionLimiter | None = None,
        slot: ConnectionSlot | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._limiter = ConnectionLimiter() if limiter is None else limiter
        self._limits = self._limiter.limits
        self._slot = slot
        self._parse_state = _ParseState.HEAD
        self._framing_bytes = 0  # in a head: its bytes; in a body: bytes since the last byte of content
        self._head_bytes = 0  # bytes of the request line and the headers of this request
        self._discarded_bytes = 0
        self._head_timer: asyncio.TimerHandle | None = None
        self._is_authenticated = False  # True if the last request had a valid key

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        if self._slot is None:
            self._slot = self._limiter.acquire(self.client[0] if self.client else None, self)
        else:
            self._slot.connection = self
        if self._slot is not None:
            self._start_head_timer()
        elif len(self.connections) > self._limits.max_connections + self._limits.max_rejected_connections:
            self.abort()
        else:
            self._reject(ServerFull())

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_head_timer()
        self._unset_keepalive_if_required()
        if self._slot is not None:
            self._slot.release()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse *data*, as uvicorn does, without its log line for invalid HTTP."""
        stage, parser = self._parse_state, self.parser
        if stage is _ParseState.CLOSING or parser is None:
            return
        if stage is not _ParseState.BODY and _UPGRADE_HEADER.search(data) is not None and self._is_idle():
            data = _strip_upgrade(data)
        self._has_body_data = False
        try:
            parser.feed_data(data)
        except HttpParserUpgrade:  # from a pipelined request; other protocols are not supported
            self._stop_reading()
        except HttpParserError:
            if self._parse_state is not _ParseState.CLOSING:
                self._reject(BadRequest("The request is not valid HTTP."))
        self._enforce_size_limit(len(data))

    def on_message_begin(self) -> None:
        self._unset_keepalive_if_required()
        super().on_message_begin()
        self._parse_state, self._framing_bytes, self._discarded_bytes, self._head_bytes = _ParseState.HEAD, 0, 0, 0

    def on_url(self, url: bytes) -> None:
        self._head_bytes += len(url)
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._parse_state is _ParseState.HEAD:  # otherwise it is a trailer, which is ignored
            self._head_bytes += len(name) + len(value) + _HEADER_OVERHEAD_BYTES
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        # `_enforce_size_limit` misses a head that arrives in one piece with its end.
        if self._head_bytes > MAX_HEAD_BYTES:
            self._reject(_head_too_large_error())
            raise _StopParsing
        if len(self.pipeline) >= MAX_PIPELINED_REQUESTS:
            self._stop_reading()
            raise _StopParsing
        self._parse_state, self._framing_bytes, self._has_body_data = _ParseState.BODY, 0, True
        self._stop_head_timer()
        self._unset_keepalive_if_required()
        if self._slot is not None:
            self._slot.mark_busy()
        self._start_request()

    def _start_request(self) -> None:
        """Start the request as uvicorn does, without support for other protocols and without uvicorn's own limit."""
        parser, scope = cast("httptools.HttpRequestParser", self.parser), self.scope
        http_version = parser.get_http_version()
        scope["method"] = parser.get_method().decode("ascii")
        if http_version != "1.1":
            scope["http_version"] = http_version
        url = httptools.parse_url(self.url)
        path = url.path.decode("ascii")
        scope["path"] = unquote(path) if "%" in path else path
        scope["raw_path"] = url.path
        scope["query_string"] = url.query or b""
        app = cast("ASGI3Application", self.app)  # pyright: ignore[reportUnknownMemberType] - uvicorn leaves its type open
        before = self.cycle
        self.cycle = cycle = FastResponseCycle(
            scope=scope,
            transport=self.transport,
            flow=self.flow,
            logger=self.logger,
            access_logger=self.access_logger,
            access_log=False,
            default_headers=self.server_state.default_headers,
            message_event=asyncio.Event(),
            expect_100_continue=self.expect_100_continue,
            keep_alive=http_version != "1.0" and parser.should_keep_alive(),
            on_response=self.on_response_complete,
        )
        if not before or before.response_complete:
            self._start_asgi_task(cycle, app)
        else:
            self.flow.pause_reading()
            self.pipeline.appendleft((cycle, app))

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        if self._is_authenticated:
            super()._start_asgi_task(cycle, app)
        else:
            self._limiter.unauthenticated_queue.start(partial(super()._start_asgi_task, cycle, app))

    def on_body(self, body: bytes) -> None:
        self._has_body_data = True
        if self.cycle.response_complete:
            self._discarded_bytes += len(body)
            if self._discarded_bytes > MAX_DISCARDED_BYTES:
                self._parse_state = _ParseState.CLOSING
                self.transport.close()
            return
        super().on_body(body)

    def on_message_complete(self) -> None:
        if self._parse_state is _ParseState.BODY:
            self._parse_state = _ParseState.IDLE
        super().on_message_complete()

    def on_response_complete(self) -> None:
        self._is_authenticated = "caller" in self.cycle.scope.get("state", ())
        super().on_response_complete()
        if self._slot is not None and self._is_idle():
            self._slot.mark_idle()

    def resume_writing(self) -> None:
        if self._slot is not None:
            self._slot.has_progress = True
        super().resume_writing()

    def unsent_bytes(self) -> int:
        """Return the number of bytes not yet sent to the client; over TLS, of bytes not yet encrypted."""
        return self.transport.get_write_buffer_size()

    def abort(self) -> None:
        """Close the connection at once and drop unsent bytes."""
        self._parse_state = _ParseState.CLOSING
        self.transport.abort()

    def _is_idle(self) -> bool:
        """Return whether no request is in progress. uvicorn's cycle is that of the newest request."""
        return not self.cycle or self.cycle.response_complete

    def _enforce_size_limit(self, arrived_bytes: int) -> None:
        """Limit the bytes outside of content: heads, chunk framing and trailers, which the parser keeps in memory."""
        stage = self._parse_state
        if stage is _ParseState.IDLE or stage is _ParseState.CLOSING:
            return
        self._framing_bytes = 0 if self._has_body_data and stage is _ParseState.BODY else self._framing_bytes + arrived_bytes
        if self._framing_bytes > MAX_HEAD_BYTES and stage is _ParseState.BODY:
            self._stop_reading()
        elif self._framing_bytes > MAX_HEAD_BYTES:
            self._reject(_head_too_large_error())
        elif stage is _ParseState.HEAD and self._head_timer is None:
            self._start_head_timer()

    def _start_head_timer(self) -> None:
        self._head_timer = self.loop.call_later(self._limits.head_timeout_s, self._on_head_timeout)

    def _stop_head_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _on_head_timeout(self) -> None:
        if self._framing_bytes:
            self._reject(RequestTimeout(f"The request did not arrive within {self._limits.head_timeout_s:.0f} seconds."))
        else:
            self.transport.close()

    def _stop_reading(self) -> None:
        """Finish the request in progress, then close the connection."""
        self._parse_state = _ParseState.CLOSING
        self._stop_head_timer()
        if self._is_idle():
            self.transport.close()
        else:
            self.cycle.keep_alive = False

    def _reject(self, error: RookeryError) -> None:
        """Send *error* and close. During a request this only stops reading, because the client would take the error for its response."""
        if not self._is_idle():
            self._stop_reading()
            return
        self._parse_state = _ParseState.CLOSING
        self._stop_head_timer()
        self._unset_keepalive_if_required()
        reply = error_response(error)
        headers = [*reply.raw_headers, (b"x-request-id", new_request_id().encode()), (b"x-content-type-options", b"nosniff")]
        lines = [name + b": " + value + b"\r\n" for name, value in [*headers, (b"connection", b"close")]]
        self.transport.write(b"".join([STATUS_LINE[error.status], *lines, b"\r\n", bytes(reply.body)]))
        if self.transport.can_write_eof():
            self.transport.write_eof()
            self._head_timer = self.loop.call_later(self._limits.linger_timeout_s, self.transport.close)
        else:
            self.transport.close()


def _head_too_large_error() -> HeadTooLarge:
    return HeadTooLarge(f"The request line and its headers are larger than {MAX_HEAD_BYTES:,} bytes.", limit=MAX_HEAD_BYTES)


class _StopParsing(Exception):
    """Raised inside a parser callback to stop the parser."""


def _strip_upgrade(data: bytes) -> bytes:
    """
    Return *data*, the start of a request, without its upgrade headers, which any server may ignore (RFC 9110, 7.8).

    Java's HttpClient and `curl --http2` offer HTTP/2 with each first request. The parser would treat its body as HTTP/2.
    """
    head, end, rest = data.partition(b"\r\n\r\n")
    head = _UPGRADE_HEADER.sub(b"", head)
    return _CONNECTION_HEADER.sub(lambda match: b"\r\nConnection: close" if b"close" in match[0].lower() else b"", head) + end + rest
