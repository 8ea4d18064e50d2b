"""Responses equal those of uvicorn, byte by byte, although most are written by a faster path."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import AsyncIterator, Sequence

import pytest
import uvicorn
from starlette.types import Message, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from rookery.kernel.http.connection import HttpConnection
from tests.conftest import eventually
from tests.deadlines import HANG_S


def _start(*headers: tuple[bytes, bytes], status: int = 200) -> Message:
    return {"type": "http.response.start", "status": status, "headers": list(headers)}


def _body(content: bytes = b"", *, more: bool = False) -> Message:
    return {"type": "http.response.body", "body": content, "more_body": more}


_FIVE = (b"content-length", b"5")
_RESPONSES: dict[str, Sequence[Message]] = {
    "whole": [_start(_FIVE, (b"x-a", b"b; c\t\xff")), _body(b"hello")],
    "in pieces": [_start(_FIVE), _body(b"he", more=True), _body(b"ll", more=True), _body(b"o")],
    "in pieces, the first empty": [_start(_FIVE), _body(more=True), _body(b"hello")],
    "of unknown length": [_start((b"x-a", b"b")), _body(b"he", more=True), _body(b"llo")],
    "chunked by itself": [_start((b"transfer-encoding", b"chunked")), _body(b"hello")],
    "empty": [_start((b"content-length", b"0")), _body()],
    "without content": [_start(status=204), _body()],
    "not modified": [_start(status=304), _body()],
    "closing": [_start(_FIVE, (b"connection", b"close")), _body(b"hello")],
    "named in capitals": [_start((b"Content-Length", b"5")), _body(b"hello")],
    "too short": [_start(_FIVE), _body(b"hell")],
    "too long": [_start(_FIVE), _body(b"hello!")],
    "too long in pieces": [_start(_FIVE), _body(b"hell", more=True), _body(b"o!")],
    "with two heads in one": [_start(_FIVE, (b"x-a", b"b\r\nx-c: d")), _body(b"hello")],
    "with a bare line feed": [_start(_FIVE, (b"x-a", b"b\nx-c: d")), _body(b"hello")],
    "with a NUL": [_start(_FIVE, (b"x-a", b"b\x00")), _body(b"hello")],
    "with a line in a name": [_start(_FIVE, (b"x-a: b\r\nx-c", b"d")), _body(b"hello")],
    "never begun": [],
    "never ended": [_start(_FIVE), _body(b"he", more=True)],
}
_INTERRUPTED_RESPONSES: dict[str, Sequence[Message]] = {
    "begun twice": [_start(_FIVE), _start(_FIVE), _body(b"hello")],
    "begun, and left": [_start(_FIVE)],
}


async def _app(scope: Scope, receive: Receive, send: Send) -> None:
    for message in {**_RESPONSES, **_INTERRUPTED_RESPONSES}[scope["query_string"].decode().replace("%20", " ")]:
        await send(message)


@pytest.fixture
async def ports() -> AsyncIterator[list[int]]:
    """Yield the ports of two servers of one application: with uvicorn's protocol and with ours."""
    handler = signal.getsignal(signal.SIGTERM)
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
    options = {"ws": "none", "lifespan": "off", "log_config": None, "server_header": False, "date_header": False, "access_log": False}
    servers = [uvicorn.Server(uvicorn.Config(_app, http=http, **options)) for http in (HttpToolsProtocol, HttpConnection)]  # pyright: ignore[reportArgumentType] - each option has its type
    tasks = [
        asyncio.create_task(server.serve(sockets=[listening_socket])) for server, listening_socket in zip(servers, sockets, strict=True)
    ]
    await eventually(lambda: all(server.started for server in servers))
    yield [int(listening_socket.getsockname()[1]) for listening_socket in sockets]
    # Each server restores the handlers of signals that it replaced. In another order, that of a stopped server would stay, and
    # sse-starlette 3.7.0 then ends every later event stream of this process.
    for server, task in zip(reversed(servers), reversed(tasks), strict=True):
        server.should_exit = True
        await task
    assert signal.getsignal(signal.SIGTERM) is handler


@pytest.mark.parametrize("request_line", ["GET %s HTTP/1.1", "HEAD %s HTTP/1.1", "GET %s HTTP/1.0", "GET http://a%s HTTP/1.1"])
@pytest.mark.parametrize("name", list(_RESPONSES))
async def test_a_response_equals_the_response_of_uvicorn(ports: list[int], name: str, request_line: str) -> None:
    """This holds for valid and invalid messages; a header value never becomes another header (RFC 9112)."""
    request_head = request_line % f"/?{name.replace(' ', '%20')}"
    requests = f"{request_head}\r\nHost: a\r\n\r\n{request_head}\r\nHost: a\r\nConnection: close\r\n\r\n".encode()

    uvicorn_response, response = await asyncio.gather(*(_send(port, requests) for port in ports))

    assert response == uvicorn_response
    assert b"\nx-c: d" not in response


@pytest.mark.parametrize("name", list(_INTERRUPTED_RESPONSES))
async def test_a_response_interrupted_before_its_content_is_not_sent(ports: list[int], name: str) -> None:
    """Uvicorn sends the head; without it a client detects the failure immediately (RFC 9112, 6.3)."""
    uvicorn_response, response = await asyncio.gather(
        *(_send(port, f"GET /?{name.replace(' ', '%20')} HTTP/1.1\r\nHost: a\r\n\r\n".encode()) for port in ports)
    )

    assert (uvicorn_response[:9], response) == (b"HTTP/1.1 ", b"")


async def _send(port: int, request: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    received = b""
    try:
        async with asyncio.timeout(HANG_S):
            while chunk := await reader.read(65536):
                received += chunk
    except ConnectionError:
        pass
    finally:
        writer.close()
    return received
