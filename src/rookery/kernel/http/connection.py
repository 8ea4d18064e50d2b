"""
One connection, bounded where uvicorn leaves it open: how large the head of a request may be, how long each part may take.

All of this is spent before anybody has shown a key, so without bounds anybody could take all our memory or all our connections.

    head        30 s and 64 KiB, also of the second request, also drop by drop
    body        `bodies.read_body`; what nobody reads is dropped, for as long as a connection may be idle and up to the largest body
    answer      `crowd`: who does not read it, or less than 8 KiB a second, is given up
    between     75 s (uvicorn's keep-alive), or until somebody else needs the place
    pipeline    so many requests; more are not answered
    turn        who has shown a right key before strangers (`turns`)
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
from uvicorn._types import ASGI3Application
from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from rookery.kernel.errors import RookeryError
from rookery.kernel.http.bodies import RequestTimeout
from rookery.kernel.http.crowd import Crowd, Place, ServerFull
from rookery.kernel.http.cycle import Cycle
from rookery.kernel.http.replies import BadRequest, error_reply
from rookery.kernel.ids import request_id

MAX_HEAD = 64 * 1024
_HEADER_OVERHEAD = 4
"""A colon, a space and the end of the line."""
"""Bytes of a request line and its headers together, looked at after each piece that arrives (uvloop reads 256 KiB at most)."""

MAX_DROPPED = 10 * 1024 * 1024
"""Bytes of a body that come after the answer; as many as the largest body has, so that who sends all before reading gets the answer."""

MAX_PIPELINED = 32
"""A read of 256 KiB may hold 8,000 requests, which are 26 MB once parsed."""

_HEAD_S = 30.0
_FAREWELL_S = 2.0
"""How long who is refused may still send: a connection closed on unread bytes is reset, and the refusal lost with some systems."""

_TURNED_AWAY = 100
"""So many newcomers beyond the limit are told so, each for those 2 s; further ones are hung up on."""

_UPGRADE = re.compile(rb"\r\n(?:upgrade|http2-settings):[^\r\n]*", re.IGNORECASE)
_CONNECTION = re.compile(rb"\r\nconnection:[^\r\n]*", re.IGNORECASE)


class HeadTooLarge(RookeryError):
    """The request line and the headers are larger than any client of ours sends."""

    status, code = 431, "headers_too_large"


class _Stage(Enum):
    """What arrives next."""

    HEAD = auto()
    BODY = auto()
    NOTHING = auto()
    """The request is complete, the next has not begun."""
    DEAF = auto()
    """Nothing that arrives is looked at any more."""


class Connection(HttpToolsProtocol):
    """
    uvicorn's connection; what it refuses by itself has D-10's body too.

    Args:
        crowd: Who else is there; without one nobody is counted.
        place: The one that this connection has already.
    """

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, object],
        _loop: asyncio.AbstractEventLoop | None = None,
        *,
        crowd: Crowd | None = None,
        place: Place | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._crowd = Crowd() if crowd is None else crowd
        self._place = place
        self._stage = _Stage.HEAD
        self._size = 0  # of the head; in a body, of what came since its last byte of content
        self._head = 0  # bytes of the request line and the headers of this request
        self._has_content = False
        self._dropped = 0
        self._too_slow: asyncio.TimerHandle | None = None
        self._is_known = False  # the last answer went to somebody with a right key

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        if self._place is None:
            self._place = self._crowd.enter(self.client[0] if self.client else None, self)
        else:
            self._place.guest = self
        if self._place is not None:
            self._wait_for_head()
        elif len(self.connections) > self._crowd.limit + _TURNED_AWAY:
            self.turn_out()
        else:
            self._refuse(ServerFull())

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        self._unset_keepalive_if_required()
        if self._place is not None:
            self._place.leave()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse *data*. uvicorn's own does no more, but logs a line of everything that is no HTTP."""
        stage, parser = self._stage, self.parser
        if stage is _Stage.DEAF or parser is None:
            return
        if stage is not _Stage.BODY and _UPGRADE.search(data) is not None and self._is_answered():
            data = _without_upgrade(data)
        self._has_content = False
        try:
            parser.feed_data(data)
        except HttpParserUpgrade:  # of a request that came with another before it; no other protocol is spoken here
            self._hear_no_more()
        except HttpParserError:
            if self._stage is not _Stage.DEAF:
                self._refuse(BadRequest("This is not HTTP."))
        self._measure(len(data))

    def on_message_begin(self) -> None:
        self._unset_keepalive_if_required()
        super().on_message_begin()
        self._stage, self._size, self._dropped, self._head = _Stage.HEAD, 0, 0, 0

    def on_url(self, url: bytes) -> None:
        self._head += len(url)
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._stage is _Stage.HEAD:  # else it is a trailer, which nobody reads, after the headers were judged
            self._head += len(name) + len(value) + _HEADER_OVERHEAD
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        if self._head > MAX_HEAD:  # it may have come in one piece with the end of the head, which `_measure` does not see
            self._refuse(_head_too_large())
            raise _Enough
        if len(self.pipeline) >= MAX_PIPELINED:
            self._hear_no_more()
            raise _Enough
        self._stage, self._size, self._has_content = _Stage.BODY, 0, True
        self._stop_waiting()
        self._unset_keepalive_if_required()
        if self._place is not None:
            self._place.work()
        self._begin()

    def _begin(self) -> None:
        """Do what uvicorn does once the headers are there, less what we have not: other protocols, and its own limit."""
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
        self.cycle = cycle = Cycle(
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
        if self._is_known:
            super()._start_asgi_task(cycle, app)
        else:
            self._crowd.turns.begin(partial(super()._start_asgi_task, cycle, app))

    def on_body(self, body: bytes) -> None:
        self._has_content = True
        if self.cycle.response_complete:
            self._dropped += len(body)
            if self._dropped > MAX_DROPPED:
                self._stage = _Stage.DEAF
                self.transport.close()
            return
        super().on_body(body)

    def on_message_complete(self) -> None:
        if self._stage is _Stage.BODY:
            self._stage = _Stage.NOTHING
        super().on_message_complete()

    def on_response_complete(self) -> None:
        self._is_known = "caller" in self.cycle.scope.get("state", ())
        super().on_response_complete()
        if self._place is not None and self._is_answered():
            self._place.wait()

    def resume_writing(self) -> None:
        if self._place is not None:
            self._place.is_moving = True
        super().resume_writing()

    def unsent(self) -> int:
        """Return how many bytes the other end has not taken; over TLS, of those not encrypted yet."""
        return self.transport.get_write_buffer_size()

    def turn_out(self) -> None:
        """Hang up, whatever is unsent."""
        self._stage = _Stage.DEAF
        self.transport.abort()

    def _is_answered(self) -> bool:
        """Tell whether no request is in work; uvicorn's cycle is that of the newest request."""
        return not self.cycle or self.cycle.response_complete

    def _measure(self, arrived: int) -> None:
        """Bound what arrives beside content: heads, and the framing and the trailers of chunks, which the parser keeps."""
        stage = self._stage
        if stage is _Stage.NOTHING or stage is _Stage.DEAF:
            return
        self._size = 0 if self._has_content and stage is _Stage.BODY else self._size + arrived
        if self._size > MAX_HEAD and stage is _Stage.BODY:
            self._hear_no_more()
        elif self._size > MAX_HEAD:
            self._refuse(_head_too_large())
        elif stage is _Stage.HEAD and self._too_slow is None:
            self._wait_for_head()

    def _wait_for_head(self) -> None:
        self._too_slow = self.loop.call_later(_HEAD_S, self._give_up)

    def _stop_waiting(self) -> None:
        if self._too_slow is not None:
            self._too_slow.cancel()
            self._too_slow = None

    def _give_up(self) -> None:
        if self._size:
            self._refuse(RequestTimeout(f"The request did not arrive within {_HEAD_S:.0f} seconds."))
        else:
            self.transport.close()

    def _hear_no_more(self) -> None:
        """Answer what is in work, and close."""
        self._stage = _Stage.DEAF
        self._stop_waiting()
        if self._is_answered():
            self.transport.close()
        else:
            self.cycle.keep_alive = False

    def _refuse(self, error: RookeryError) -> None:
        """Answer outside of any request, and close; not while a request is in work, or this would be taken for its answer."""
        if not self._is_answered():
            self._hear_no_more()
            return
        self._stage = _Stage.DEAF
        self._stop_waiting()
        self._unset_keepalive_if_required()
        reply = error_reply(error)
        headers = [*reply.raw_headers, (b"x-request-id", request_id().encode()), (b"x-content-type-options", b"nosniff")]
        lines = [name + b": " + value + b"\r\n" for name, value in [*headers, (b"connection", b"close")]]
        self.transport.write(b"".join([STATUS_LINE[error.status], *lines, b"\r\n", bytes(reply.body)]))
        if self.transport.can_write_eof():
            self.transport.write_eof()
            self._too_slow = self.loop.call_later(_FAREWELL_S, self.transport.close)
        else:
            self.transport.close()


def _head_too_large() -> HeadTooLarge:
    return HeadTooLarge(f"The request line and its headers are larger than {MAX_HEAD:,} bytes.", limit=MAX_HEAD)


class _Enough(Exception):
    """Stops the parser."""


def _without_upgrade(data: bytes) -> bytes:
    """
    Return *data*, which begins a request, without its wish for another protocol, which any server may pass over (RFC 9110, 7.8).

    Java's HttpClient and `curl --http2` wish for HTTP/2 with each first request; the parser would take its body for that protocol's.
    """
    head, end, rest = data.partition(b"\r\n\r\n")
    head = _UPGRADE.sub(b"", head)
    return _CONNECTION.sub(lambda found: b"\r\nConnection: close" if b"close" in found[0].lower() else b"", head) + end + rest
