"""Bodies of responses from remote servers: bounded, and decompressed in small steps."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncIterator
from typing import cast

import httpx2
import orjson

from rookery.engines.upstreams.sdk import BROKEN_CODE, MAX_MESSAGE_BYTES, TOO_LARGE_CODE, UNREADABLE_CODE

ACCEPTED_ENCODINGS = "gzip, deflate"
"""Accepted content encodings: those that the standard library can decompress in bounded steps."""

_DECOMPRESS_STEP_BYTES = 64 * 1024
_ERROR_BODY_TIMEOUT_S = 10.0
_MAX_ERROR_BODY_BYTES = 64 * 1024
"""Limits for reading the body of an error response."""


class UndecodableError(httpx2.ReadError):
    """The body is complete, but its content encoding is invalid or was not requested."""


class BoundedJsonBody(httpx2.AsyncByteStream):
    """A JSON body of limited size. Errors replace the body, since the SDK has no other way to receive them."""

    def __init__(self, inner: httpx2.AsyncByteStream, request_body: bytes) -> None:
        self._inner = inner
        self._request_body = request_body

    async def __aiter__(self) -> AsyncIterator[bytes]:
        chunks: list[bytes] = []
        size = 0
        try:
            async for chunk in self._inner:
                size += len(chunk)
                if size > MAX_MESSAGE_BYTES:
                    chunks = [self._error(TOO_LARGE_CODE, "The result is larger than 10 MiB.")]
                    break
                chunks.append(chunk)
        except UndecodableError as error:
            chunks = [self._error(UNREADABLE_CODE, f"The response cannot be read: {error}")]
        except httpx2.TransportError as error:
            chunks = [self._error(BROKEN_CODE, f"The response ended early: {str(error) or type(error).__name__}")]
        for chunk in chunks:
            yield chunk

    async def aclose(self) -> None:
        await self._inner.aclose()

    def _error(self, code: int, text: str) -> bytes:
        # Unlike an error status, this body needs the request's id; otherwise its caller waits for ever.
        return build_error_body(code, text, request_id=orjson.loads(self._request_body).get("id"))


class _DecompressedBody(httpx2.AsyncByteStream):
    """A body that is decompressed in small steps, so that a reader can stop before kilobytes become gigabytes."""

    def __init__(self, inner: httpx2.AsyncByteStream, encoding: str) -> None:
        self._inner = inner
        self._encoding = encoding

    async def __aiter__(self) -> AsyncIterator[bytes]:
        decompressor = zlib.decompressobj(zlib.MAX_WBITS | 16 if self._encoding == "gzip" else zlib.MAX_WBITS)
        is_first = True
        async for chunk in self._inner:
            if is_first and self._encoding == "deflate" and chunk and chunk[0] & 0x0F != 8:
                decompressor = zlib.decompressobj(-zlib.MAX_WBITS)  # without the zlib header, which some servers omit against RFC 9110
            is_first = False
            rest, part = chunk, b""
            while rest or len(part) == _DECOMPRESS_STEP_BYTES:
                try:
                    part = decompressor.decompress(rest, _DECOMPRESS_STEP_BYTES)
                except zlib.error as error:
                    raise UndecodableError(f"the body is not valid {self._encoding}: {error}") from error
                rest = decompressor.unconsumed_tail
                if part:
                    yield part
                if decompressor.eof:
                    return

    async def aclose(self) -> None:
        await self._inner.aclose()


def decompress(response: httpx2.Response) -> httpx2.Response:
    """
    Return *response* with a decompressed body.

    Raises:
        UndecodableError: The encoding is not one of `ACCEPTED_ENCODINGS`.
    """
    encoding = response.headers.get("content-encoding", "identity").strip().lower()
    if encoding in {"", "identity"}:
        return response
    if encoding not in {"gzip", "deflate"}:
        raise UndecodableError(f"returned the encoding {encoding[:32]!r}, which was not requested.")
    headers = [(name, value) for name, value in response.headers.multi_items() if name not in {"content-encoding", "content-length"}]
    body = _DecompressedBody(cast("httpx2.AsyncByteStream", response.stream), encoding)
    return httpx2.Response(response.status_code, headers=headers, stream=body, extensions=response.extensions)


def remove_body(response: httpx2.Response) -> httpx2.Response:
    """Return *response* without its body and the headers that describe it."""
    dropped = {"content-encoding", "content-length", "transfer-encoding"}
    headers = [(name, value) for name, value in response.headers.multi_items() if name not in dropped]
    return httpx2.Response(response.status_code, headers=headers, content=b"")


async def read_error_body(response: httpx2.Response) -> bytes:
    """Return the body of an error response; empty if it is too large, incomplete, late or undecodable."""
    body = bytearray()
    try:
        async with asyncio.timeout(_ERROR_BODY_TIMEOUT_S):
            async for chunk in cast("httpx2.AsyncByteStream", decompress(response).stream):
                body += chunk
                if len(body) > _MAX_ERROR_BODY_BYTES:
                    return b""
    except (httpx2.TransportError, TimeoutError):
        return b""
    return bytes(body)


def build_error_body(code: int, text: str, data: object = None, *, request_id: object = None) -> bytes:
    """Return a JSON-RPC error as bytes."""
    error = {"code": code, "message": text} if data is None else {"code": code, "message": text, "data": data}
    return orjson.dumps({"jsonrpc": "2.0", "id": request_id, "error": error})
