"""A server on a real socket with controllable response times, and byte-level clients."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import cast

import uvicorn
from starlette.types import Receive, Scope, Send

from rookery.kernel.errors import RookeryError
from rookery.kernel.http import request_body
from rookery.kernel.http.connection import HttpConnection
from rookery.kernel.http.connection_limit import ConnectionLimiter, ConnectionLimits
from rookery.kernel.http.request_body import read_body
from rookery.kernel.http.responses import error_response, json_response
from rookery.kernel.http.tls import TlsServer
from rookery.serving import open_listening_socket
from tests.conftest import eventually
from tests.deadlines import HANG_S

GET = b"GET %s HTTP/1.1\r\nHost: a\r\n\r\n"
LARGE_BODY_BYTES = 8_000_000


@dataclass
class ToyServer:
    """A server with controllable response times, and its connection limiter."""

    limiter: ConnectionLimiter
    released: asyncio.Event = field(default_factory=asyncio.Event)
    working: int = 0
    port: int = 0
    disconnected_paths: list[str] = field(default_factory=list[str])
    started_paths: list[str] = field(default_factory=list[str])

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Respond: /work waits for `released`, /large and /pieces have 8 MB, /body reads the body, /known… has a right key."""
        headers = [(b"content-length", b"2")]
        self.started_paths.append(scope["path"])
        if scope["path"].startswith("/known"):
            scope["state"] = {"caller": "somebody"}
        match scope["path"]:
            case "/work":
                self.working += 1
                await self.released.wait()
                self.working -= 1
            case "/body":
                try:
                    response = json_response(
                        {"size": len(await read_body(receive, limit=10_000_000, scope=scope, transfer=self.limiter.limits.transfer))}
                    )
                except RookeryError as error:
                    response = error_response(error)
                except request_body.ClientDisconnected:
                    self.disconnected_paths.append("/body")
                    return
                await response(scope, receive, send)
                return
            case "/large":
                await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % LARGE_BODY_BYTES)]})
                await send({"type": "http.response.body", "body": b"x" * LARGE_BODY_BYTES})
                return
            case "/pieces":
                await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % LARGE_BODY_BYTES)]})
                for remaining in range(LARGE_BODY_BYTES - 80_000, -1, -80_000):
                    await send({"type": "http.response.body", "body": b"x" * 80_000, "more_body": remaining > 0})
                return
            case _:
                pass
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"ok"})


class Client:
    """One client connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def get(self, path: bytes = b"/") -> bytes:
        """Send a GET and return the content of the response."""
        self.writer.write(GET % path)
        return (await self.read_response())[1]

    async def read_response(self) -> tuple[bytes, bytes]:
        """Return the head and the content of the next response."""
        async with asyncio.timeout(HANG_S):
            head = await self.reader.readuntil(b"\r\n\r\n")
            return head, await self.reader.readexactly(int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0]))

    async def read_to_end(self) -> bytes:
        """Return all bytes until the server closes the connection."""
        received = b""
        try:
            async with asyncio.timeout(HANG_S):
                while chunk := await self.reader.read(65536):
                    received += chunk
        except ConnectionError:
            pass
        return received


@asynccontextmanager
async def run_toy_server(
    limits: ConnectionLimits | None = None,
    *,
    owner: Callable[[str], str | None] = lambda _: None,
    tls_context: ssl.SSLContext | None = None,
    idle_s: int = int(HANG_S),
) -> AsyncGenerator[ToyServer]:
    """Run the server until the block ends."""
    limiter = ConnectionLimiter(limits, get_owner=owner)
    toy, listening_socket = ToyServer(limiter=limiter), open_listening_socket("127.0.0.1", 0)
    toy.port = int(listening_socket.getsockname()[1])
    http = cast("type[asyncio.Protocol]", partial(HttpConnection, limiter=limiter))
    config = uvicorn.Config(toy, http=http, ws="none", lifespan="off", log_config=None, timeout_keep_alive=idle_s)
    server = uvicorn.Server(config) if tls_context is None else TlsServer(config, limiter, tls_context)
    serving_task = asyncio.create_task(server.serve(sockets=[listening_socket]))
    await eventually(lambda: server.started)
    try:
        yield toy
    finally:
        toy.released.set()
        server.should_exit = True
        await serving_task


async def connect(
    connections: AsyncExitStack,
    toy: ToyServer,
    first_bytes: bytes = b"",
    *,
    source: str = "127.0.0.1",
    tls_context: ssl.SSLContext | None = None,
) -> Client:
    """Open a connection to *toy*, from the address *source*, and send bytes immediately."""
    reader, writer = await asyncio.open_connection("127.0.0.1", toy.port, ssl=tls_context, local_addr=(source, 0))
    connections.callback(writer.close)
    writer.write(first_bytes)
    return Client(reader, writer)


async def open_busy_connections(connections: AsyncExitStack, toy: ToyServer, count: int, source: str = "127.0.0.1") -> list[Client]:
    """Open *count* connections with a request in progress on each."""
    working_before = toy.working
    clients = [await connect(connections, toy, GET % b"/work", source=source) for _ in range(count)]
    await eventually(lambda: toy.working == working_before + count)
    return clients
