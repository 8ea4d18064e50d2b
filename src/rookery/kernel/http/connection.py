"""
One connection, bounded where uvicorn leaves it open: how large the head of a request may be, and how long it may take.

Both are spent before anybody has shown a key, so without a bound anybody could take all our memory or all our connections.
"""

from __future__ import annotations

import asyncio
import re

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from rookery.kernel.errors import RookeryError
from rookery.kernel.http.bodies import RequestTimeout
from rookery.kernel.http.replies import BadRequest, error_reply
from rookery.kernel.ids import request_id

MAX_HEAD = 64 * 1024
"""Bytes of a request line and its headers together, looked at after each piece that arrives (uvloop reads 256 KiB at most)."""

_HEAD_S = 30.0

_UPGRADE = re.compile(rb"\r\n(?:upgrade|http2-settings):[^\r\n]*", re.IGNORECASE)
_CONNECTION = re.compile(rb"\r\nconnection:[^\r\n]*", re.IGNORECASE)


class HeadTooLarge(RookeryError):
    """The request line and the headers are larger than any client of ours sends."""

    status, code = 431, "headers_too_large"


class Connection(HttpToolsProtocol):
    """uvicorn's connection; what it refuses by itself has D-10's body too."""

    _head_size = 0
    _is_head = True
    _too_slow: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        self._wait_for_head()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_waiting()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self._is_between() and _UPGRADE.search(data) is not None:
            data = _without_upgrade(data)
        super().data_received(data)
        if not self._is_head or self.transport.is_closing():
            return
        self._head_size += len(data)
        if self._head_size > MAX_HEAD:
            self._refuse(HeadTooLarge(f"The request line and its headers are larger than {MAX_HEAD:,} bytes.", limit=MAX_HEAD))
        elif self._too_slow is None:
            self._wait_for_head()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._is_head, self._head_size = True, 0

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._is_head:  # else it is a trailer, which nobody reads, after the headers were judged
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._is_head = False
        self._stop_waiting()
        super().on_headers_complete()

    def send_400_response(self, msg: str) -> None:
        self._refuse(BadRequest(msg))

    def _is_between(self) -> bool:
        return self._is_head or not self.cycle or self.cycle.response_complete

    def _wait_for_head(self) -> None:
        self._too_slow = self.loop.call_later(_HEAD_S, self._give_up)

    def _stop_waiting(self) -> None:
        if self._too_slow is not None:
            self._too_slow.cancel()
            self._too_slow = None

    def _give_up(self) -> None:
        if self._head_size:
            self._refuse(RequestTimeout(f"The request did not arrive within {_HEAD_S:.0f} seconds."))
        else:
            self.transport.close()

    def _refuse(self, error: RookeryError) -> None:
        """Answer outside of any request, and close; while an answer is under way, close alone, or this would be taken for it."""
        self._stop_waiting()
        if self.cycle and not self.cycle.response_complete:
            self.transport.close()
            return
        reply = error_reply(error)
        headers = [*reply.raw_headers, (b"x-request-id", request_id().encode()), (b"x-content-type-options", b"nosniff")]
        lines = [name + b": " + value + b"\r\n" for name, value in [*headers, (b"connection", b"close")]]
        self.transport.write(b"".join([STATUS_LINE[error.status], *lines, b"\r\n", bytes(reply.body)]))
        self.transport.close()


def _without_upgrade(data: bytes) -> bytes:
    """
    Return *data*, which begins a request, without its wish for another protocol, which any server may pass over (RFC 9110, 7.8).

    Java's HttpClient and `curl --http2` wish for HTTP/2 with each first request; the parser would take its body for that protocol's.
    """
    head, end, rest = data.partition(b"\r\n\r\n")
    head = _UPGRADE.sub(b"", head)
    return _CONNECTION.sub(lambda found: b"\r\nConnection: close" if b"close" in found[0].lower() else b"", head) + end + rest
