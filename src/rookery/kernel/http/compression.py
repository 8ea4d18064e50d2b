"""Compression of responses with gzip, for clients that accept it."""

from __future__ import annotations

import asyncio
import gzip
import re
import zlib
from collections.abc import Sequence
from typing import cast

from starlette.types import Message, Scope, Send

MIN_GZIP_BYTES = 4 * 1024
"""A smaller body is sent as it is: it fits into few packets."""

_GZIP_LEVEL = 6
_GZIP_WINDOW_BITS = zlib.MAX_WBITS | 16
_ACCEPTS_GZIP = re.compile(r"(?:^|,)\s*(?:x-)?gzip\s*(?:;\s*q=(?!0(?:\.0*)?\s*(?:,|$))[^,]*)?(?=,|$)")

_Headers = Sequence[tuple[bytes, bytes]]


def accepts_gzip(accept_encoding: str) -> bool:
    """Return whether the header `Accept-Encoding` accepts gzip. `gzip;q=0` means that it does not."""
    return _ACCEPTS_GZIP.search(accept_encoding.lower()) is not None


def compress_json(scope: Scope, send: Send, *, streams: bool) -> Send:
    """
    Return a `send` that compresses complete JSON bodies of at least `MIN_GZIP_BYTES`, if the client of *scope* accepts it.

    Args:
        streams: Compress event streams too. Each chunk is flushed, so that the client can read an event as soon as it is sent.
    """
    accepted = b",".join(value for name, value in scope["headers"] if name == b"accept-encoding").decode("latin-1")
    return _GzipSender(send, streams=streams) if accepts_gzip(accepted) else send


class _GzipSender:
    """A `send` for one response."""

    def __init__(self, send: Send, *, streams: bool) -> None:
        self._send = send
        self._compresses_streams = streams
        self._held_start: Message | None = None
        self._stream = zlib.compressobj(_GZIP_LEVEL, zlib.DEFLATED, _GZIP_WINDOW_BITS)
        self._is_streaming = False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            await self._begin(message)
        elif self._held_start is not None:
            await self._send_complete(self._held_start, message)
        elif self._is_streaming:
            await self._send(self._compress_chunk(message))
        else:
            await self._send(message)

    async def _begin(self, start: Message) -> None:
        headers = cast("_Headers", start.get("headers", ()))
        media_type = _get_header(headers, b"content-type").partition(b";")[0].strip()
        if _get_header(headers, b"content-encoding"):
            await self._send(start)
        elif media_type == b"application/json":
            self._held_start = start  # the size of the body is not known yet
        elif media_type == b"text/event-stream" and self._compresses_streams:
            self._is_streaming = True
            await self._send(_with_gzip(start))
        else:
            await self._send(start)

    async def _send_complete(self, start: Message, message: Message) -> None:
        self._held_start = None
        body = cast("bytes", message.get("body", b""))
        if message.get("more_body", False) or len(body) < MIN_GZIP_BYTES:
            await self._send(start)
            await self._send(message)
            return
        compressed = await asyncio.to_thread(gzip.compress, body, _GZIP_LEVEL, mtime=0)
        await self._send(_with_gzip(start, len(compressed)))
        await self._send({**message, "body": compressed})

    def _compress_chunk(self, message: Message) -> Message:
        is_last = not message.get("more_body", False)
        compressed = self._stream.compress(cast("bytes", message.get("body", b"")))
        return {**message, "body": compressed + self._stream.flush(zlib.Z_FINISH if is_last else zlib.Z_SYNC_FLUSH)}


def _get_header(headers: _Headers, name: bytes) -> bytes:
    return next((value for header, value in headers if header.lower() == name), b"")


def _with_gzip(start: Message, length: int | None = None) -> Message:
    headers = [(name, value) for name, value in cast("_Headers", start.get("headers", ())) if name.lower() != b"content-length"]
    length_header = [] if length is None else [(b"content-length", str(length).encode("ascii"))]
    return {**start, "headers": [*headers, (b"content-encoding", b"gzip"), (b"vary", b"accept-encoding"), *length_header]}
