"""Connections at the level of bytes: input that is rejected before there is a request."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import cast

import pytest
import uvicorn
from starlette.types import Receive, Scope, Send

from rookery.kernel.http.connection import MAX_HEAD_BYTES, HttpConnection
from rookery.kernel.http.connection_limit import ConnectionLimiter, ConnectionLimits
from tests.deadlines import HANG_S

_HELLO_RESPONSE = (b"HTTP/1.1 200 OK", b"content-length: 5\r\nconnection: close\r\n\r\nhello")


async def _hello_app(scope: Scope, receive: Receive, send: Send) -> None:
    names = [name for name, _ in scope["headers"]]
    size, has_more = 0, True
    while has_more:
        message = await receive()
        size, has_more = size + len(message.get("body", b"")), message.get("more_body", False)
    greeting = b"hello" if scope["method"] == "GET" or b"transfer-encoding" in names else b"%d bytes" % size
    body = b"trailer seen" if b"x-trailer" in names else greeting
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", str(len(body)).encode())]})
    await send({"type": "http.response.body", "body": body})


@asynccontextmanager
async def _run_server(limits: ConnectionLimits | None = None) -> AsyncGenerator[int]:
    listening_socket = socket.create_server(("127.0.0.1", 0))
    http = cast("type[asyncio.Protocol]", partial(HttpConnection, limiter=ConnectionLimiter(limits)))
    server = uvicorn.Server(
        uvicorn.Config(_hello_app, http=http, ws="none", lifespan="off", log_config=None, server_header=False, date_header=False)
    )
    serving_task = asyncio.create_task(server.serve(sockets=[listening_socket]))
    yield int(listening_socket.getsockname()[1])
    server.should_exit = True
    await serving_task


@pytest.fixture
async def port() -> AsyncIterator[int]:
    """Yield the port of a server that responds with "hello"."""
    async with _run_server() as port:
        yield port


async def _send(port: int, raw_request: bytes) -> tuple[bytes, bytes]:
    """Send bytes, and return the status line and the rest when the server has closed the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(raw_request)
    return await _receive(reader, writer)


async def _receive(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> tuple[bytes, bytes]:
    received = b""
    try:
        async with asyncio.timeout(HANG_S):
            while chunk := await reader.read(65536):
                received += chunk
    except ConnectionError:
        pass
    finally:
        writer.close()
    status, _, remaining = received.partition(b"\r\n")
    return status, remaining


@pytest.mark.parametrize(
    "raw_request",
    [b"HELLO\r\n\r\n", b"GET /\xff HTTP/1.1\r\nHost: a\r\n\r\n", b"POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab"],
)
async def test_input_that_is_not_http_gets_the_standard_error_body(port: int, raw_request: bytes) -> None:
    """This replaces uvicorn's own responses."""
    status, remaining = await _send(port, raw_request)

    head, _, body = remaining.partition(b"\r\n\r\n")
    assert status == b"HTTP/1.1 400 Bad Request"
    assert json.loads(body)["error"] == "invalid_request"
    assert b"x-request-id: req_" in head


@pytest.mark.parametrize(
    "raw_request",
    [
        b"GET / HTTP/1.1\r\nHost: a\r\nX-A: " + b"a" * 3_000_000,
        b"GET / HTTP/1.1\r\nHost: a\r\n" + b"X-A: aaaaaaaa\r\n" * 200_000,
        b"GET /" + b"a" * 3_000_000,
    ],
)
async def test_an_endless_head_is_rejected_early(port: int, raw_request: bytes) -> None:
    """The size of the head is limited while it is read, before any key is known."""
    status, _ = await _send(port, raw_request)

    assert status in {b"HTTP/1.1 431 Request Header Fields Too Large", b""}  # empty: the reset overtook the response


@pytest.mark.parametrize("size", [MAX_HEAD_BYTES, 70_000, 100_000, 140_000])
async def test_a_complete_head_over_the_limit_is_rejected(port: int, size: int) -> None:
    """The documented limit is 64 KiB."""
    status, _ = await _send(port, b"GET / HTTP/1.1\r\nHost: a\r\nX-A: " + b"a" * size + b"\r\n\r\n")

    assert status in {b"HTTP/1.1 431 Request Header Fields Too Large", b""}  # empty: the reset overtook the response


async def test_a_head_just_under_the_limit_is_served(port: int) -> None:
    """The limit is the documented one."""
    fields = b"X-A: " + b"a" * (MAX_HEAD_BYTES - 100) + b"\r\nConnection: close\r\n\r\n"

    assert await _send(port, b"GET / HTTP/1.1\r\nHost: a\r\n" + fields) == _HELLO_RESPONSE


@pytest.mark.parametrize(("raw_request", "status"), [(b"GET / HT", b"HTTP/1.1 408 Request Timeout"), (b"", b"")])
async def test_a_silent_client_is_disconnected(raw_request: bytes, status: bytes) -> None:
    """Silent connections must not use up the connection limit."""
    async with _run_server(ConnectionLimits(head_timeout_s=0.05)) as port:
        # The server accepts the connection when the bytes are there, so that its time limit cannot come before them.
        with socket.create_connection(("127.0.0.1", port)) as client:
            client.sendall(raw_request)
            assert (await _receive(*await asyncio.open_connection(sock=client)))[0] == status


async def test_the_limits_apply_to_later_requests_of_a_connection(port: int) -> None:
    """Earlier requests of the connection get their responses, the last one with `Connection: close`."""
    request = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"

    status, remaining = await _send(port, request * 2 + b"GET / HTTP/1.1\r\nX-A: " + b"a" * 3_000_000)

    assert (status, remaining.count(b"hello")) in {(b"HTTP/1.1 200 OK", 2), (b"", 0)}  # nothing: the reset overtook the responses
    assert remaining.endswith(b"connection: close\r\n\r\nhello") or not remaining
    assert await _send(port, request.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")) == _HELLO_RESPONSE


@pytest.mark.parametrize(
    "raw_request", [b"HELLO\r\n\r\n", b"CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"\x16\x03\x01" * 99]
)
async def test_input_that_is_not_http_is_not_logged(port: int, caplog: pytest.LogCaptureFixture, raw_request: bytes) -> None:
    """Otherwise anybody could fill the disk with log lines."""
    assert (await _send(port, raw_request))[0] == b"HTTP/1.1 400 Bad Request"

    assert caplog.records == []


async def test_a_pipelined_upgrade_request_is_the_last_of_its_connection(port: int) -> None:
    """The parser reads the bytes after it as the other protocol, so they are ignored (RFC 9110, 7.8)."""
    request = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
    upgrade_request = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n"

    status, remaining = await _send(port, request + upgrade_request + request)

    assert (status, remaining.count(b"hello")) == (b"HTTP/1.1 200 OK", 2)
    assert remaining.endswith(b"connection: close\r\n\r\nhello")


async def test_trailers_never_become_headers(port: int) -> None:
    """Bytes after the body are not authenticated and must not be read as headers."""
    chunked = b"POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\nX-Trailer: 1\r\n\r\n"

    assert (await _send(port, chunked))[1].endswith(b"hello")


@pytest.mark.parametrize(
    "upgrade_headers",
    [
        b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA\r\n",
        b"connection: upgrade\r\nupgrade: websocket\r\n",
        b"Upgrade: TLS/1.0\r\nConnection: close, Upgrade\r\n",
    ],
)
async def test_an_upgrade_request_is_served_as_a_normal_request(port: int, upgrade_headers: bytes) -> None:
    """Curl --http2 and Java's client send such headers; the body must not be lost (RFC 9110, 7.8)."""
    body = b"\r\nUpgrade: this is content\r\n"
    upgrade_request = b"POST / HTTP/1.1\r\nHost: x\r\n%sContent-Length: %d\r\n\r\n%s" % (upgrade_headers, len(body), body)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    responses = list[tuple[bytes, bytes]]()
    try:
        for raw_request in (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", upgrade_request):
            writer.write(raw_request)
            async with asyncio.timeout(HANG_S):
                head = await reader.readuntil(b"\r\n\r\n")
                responses.append(
                    (head.split(b"\r\n", 1)[0], await reader.readexactly(int(head.rsplit(b"content-length: ", 1)[1].split()[0])))
                )
    finally:
        writer.close()

    assert responses == [(b"HTTP/1.1 200 OK", b"hello"), (b"HTTP/1.1 200 OK", b"%d bytes" % len(body))]
