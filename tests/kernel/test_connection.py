"""Connections at the level of bytes: what is refused before there is a request (D-10, D-16)."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator

import pytest
import uvicorn
from starlette.types import Receive, Scope, Send

from rookery.kernel.http import connection
from rookery.kernel.http.connection import MAX_HEAD_BYTES, HttpConnection

_WAIT_S = 5.0
_HELLO = (b"HTTP/1.1 200 OK", b"content-length: 5\r\nconnection: close\r\n\r\nhello")


async def _hello(scope: Scope, receive: Receive, send: Send) -> None:
    names = [name for name, _ in scope["headers"]]
    size, more = 0, True
    while more:
        message = await receive()
        size, more = size + len(message.get("body", b"")), message.get("more_body", False)
    greeting = b"hello" if scope["method"] == "GET" or b"transfer-encoding" in names else b"%d bytes" % size
    body = b"trailer seen" if b"x-trailer" in names else greeting
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", str(len(body)).encode())]})
    await send({"type": "http.response.body", "body": body})


@pytest.fixture
async def port() -> AsyncIterator[int]:
    """The port of a server that greets."""
    listening = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(
        uvicorn.Config(_hello, http=HttpConnection, ws="none", lifespan="off", log_config=None, server_header=False, date_header=False)
    )
    serving = asyncio.create_task(server.serve(sockets=[listening]))
    yield int(listening.getsockname()[1])
    server.should_exit = True
    await serving


async def _answer(port: int, sent: bytes) -> tuple[bytes, bytes]:
    """Send bytes, and return the status line and all that follows, once the server has closed or gone quiet."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(sent)
    received = b""
    try:
        async with asyncio.timeout(_WAIT_S):
            while piece := await reader.read(65536):
                received += piece
    except (ConnectionError, TimeoutError):
        pass
    finally:
        writer.close()
    status, _, rest = received.partition(b"\r\n")
    return status, rest


@pytest.mark.parametrize(
    "sent",
    [b"HELLO\r\n\r\n", b"GET /\xff HTTP/1.1\r\nHost: a\r\n\r\n", b"POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab"],
)
async def test_what_is_no_http_gets_the_one_error_body(port: int, sent: bytes) -> None:
    """D-10, D-11: also where uvicorn would answer by itself."""
    status, rest = await _answer(port, sent)

    head, _, body = rest.partition(b"\r\n\r\n")
    assert status == b"HTTP/1.1 400 Bad Request"
    assert json.loads(body)["error"] == "invalid_request"
    assert b"x-request-id: req_" in head


@pytest.mark.parametrize(
    "sent",
    [
        b"GET / HTTP/1.1\r\nHost: a\r\nX-A: " + b"a" * 3_000_000,
        b"GET / HTTP/1.1\r\nHost: a\r\n" + b"X-A: aaaaaaaa\r\n" * 200_000,
        b"GET /" + b"a" * 3_000_000,
    ],
)
async def test_a_head_without_end_is_refused_long_before_it_fills_our_memory(port: int, sent: bytes) -> None:
    """D-16: the head as the body is bounded while it is read; it comes before any key."""
    status, _ = await _answer(port, sent)

    assert status in {b"HTTP/1.1 431 Request Header Fields Too Large", b""}  # empty: the reset overtook the answer


@pytest.mark.parametrize("size", [MAX_HEAD_BYTES, 70_000, 100_000, 140_000])
async def test_a_complete_head_over_the_bound_is_refused(port: int, size: int) -> None:
    """Issue 14: heads of 70,000 and 100,000 bytes were served, where 64 KiB are documented; D-16."""
    status, _ = await _answer(port, b"GET / HTTP/1.1\r\nHost: a\r\nX-A: " + b"a" * size + b"\r\n\r\n")

    assert status in {b"HTTP/1.1 431 Request Header Fields Too Large", b""}  # empty: the reset overtook the answer


async def test_a_head_just_within_the_bound_is_served(port: int) -> None:
    """D-16: the bound is where it is said to be."""
    fields = b"X-A: " + b"a" * (MAX_HEAD_BYTES - 100) + b"\r\nConnection: close\r\n\r\n"

    assert await _answer(port, b"GET / HTTP/1.1\r\nHost: a\r\n" + fields) == _HELLO


@pytest.mark.parametrize(("sent", "status"), [(b"GET / HT", b"HTTP/1.1 408 Request Timeout"), (b"", b"")])
async def test_who_says_nothing_is_not_waited_for_for_ever(port: int, monkeypatch: pytest.MonkeyPatch, sent: bytes, status: bytes) -> None:
    """D-16: a thousand silent connections must not be all that we may have open."""
    monkeypatch.setattr(connection, "_HEAD_TIMEOUT_S", 0.05)

    assert (await _answer(port, sent))[0] == status


async def test_a_later_request_of_one_connection_is_bounded_too(port: int) -> None:
    """D-16: keep-alive and pipelining change nothing; what was asked before is answered, and that the server closes is said with it."""
    good = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"

    status, rest = await _answer(port, good * 2 + b"GET / HTTP/1.1\r\nX-A: " + b"a" * 3_000_000)

    assert (status, rest.count(b"hello")) in {(b"HTTP/1.1 200 OK", 2), (b"", 0)}  # nothing: the reset overtook the answers
    assert rest.endswith(b"connection: close\r\n\r\nhello") or not rest
    assert await _answer(port, good.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")) == _HELLO


@pytest.mark.parametrize(
    "sent", [b"HELLO\r\n\r\n", b"CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"\x16\x03\x01" * 99]
)
async def test_what_is_no_http_fills_no_log(port: int, caplog: pytest.LogCaptureFixture, sent: bytes) -> None:
    """D-16: a line for each would let anybody fill the disk."""
    assert (await _answer(port, sent))[0] == b"HTTP/1.1 400 Bad Request"

    assert caplog.records == []


async def test_a_wish_for_another_protocol_behind_a_request_is_the_last(port: int) -> None:
    """RFC 9110, 7.8: what follows it in the same piece was taken for the other protocol by the parser, so it is not looked at."""
    good = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
    wishing = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n"

    status, rest = await _answer(port, good + wishing + good)

    assert (status, rest.count(b"hello")) == (b"HTTP/1.1 200 OK", 2)
    assert rest.endswith(b"connection: close\r\n\r\nhello")


async def test_trailers_never_become_headers(port: int) -> None:
    """D-22: bytes after the body were not authenticated and must not be read as a header."""
    chunked = b"POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\nX-Trailer: 1\r\n\r\n"

    assert (await _answer(port, chunked))[1].endswith(b"hello")


@pytest.mark.parametrize(
    "wish",
    [
        b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA\r\n",
        b"connection: upgrade\r\nupgrade: websocket\r\n",
        b"Upgrade: TLS/1.0\r\nConnection: close, Upgrade\r\n",
    ],
)
async def test_a_wish_for_another_protocol_is_passed_over(port: int, wish: bytes) -> None:
    """RFC 9110, 7.8: curl --http2 and Java's client wish for HTTP/2; the body must not be lost for it, on a second request either."""
    body = b"\r\nUpgrade: this is content\r\n"
    wishing = b"POST / HTTP/1.1\r\nHost: x\r\n%sContent-Length: %d\r\n\r\n%s" % (wish, len(body), body)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    answers = list[tuple[bytes, bytes]]()
    try:
        for sent in (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", wishing):
            writer.write(sent)
            async with asyncio.timeout(_WAIT_S):
                head = await reader.readuntil(b"\r\n\r\n")
                answers.append(
                    (head.split(b"\r\n", 1)[0], await reader.readexactly(int(head.rsplit(b"content-length: ", 1)[1].split()[0])))
                )
    finally:
        writer.close()

    assert answers == [(b"HTTP/1.1 200 OK", b"hello"), (b"HTTP/1.1 200 OK", b"%d bytes" % len(body))]
