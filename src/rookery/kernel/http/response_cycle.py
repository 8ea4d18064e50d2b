"""uvicorn's cycle of a request and its response, with one write for a response that is complete at once."""

from __future__ import annotations

import re
from typing import cast

from uvicorn._types import ASGISendEvent
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, RequestResponseCycle

_CONTROL_CHARACTER = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")


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


_CONNECTION_HEADERS = frozenset({b"connection", b"transfer-encoding"})
