"""A reverse proxy that removes a path prefix, as nginx with `location /prefix/ { proxy_pass http://server/; }`."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field

_MAX_HEAD_BYTES = 65_536


@dataclass(slots=True)
class PrefixProxy:
    """
    A running proxy.

    Attributes:
        url: The address of the server behind it, with the prefix.
        refused: The paths of requests outside the prefix. They got a 404.
        open_streams: The number of connections that are open now.
    """

    prefix: str
    upstream_port: int
    url: str = ""
    refused: list[str] = field(default_factory=list[str])
    open_streams: int = 0

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Pass on the one request of a connection, and its response as it arrives."""
        self.open_streams += 1
        try:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                await self._pass_on(reader, writer)
        finally:
            self.open_streams -= 1
            writer.close()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        line, _, headers = head.partition("\r\n")
        method, target, version = line.split(" ")
        if not target.startswith(f"{self.prefix}/"):
            self.refused.append(target)
            writer.write(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            await writer.drain()
            return
        kept = [header for header in headers.split("\r\n") if header and not header.lower().startswith(("connection:", "x-forwarded-"))]
        lines = [f"{method} {target.removeprefix(self.prefix)} {version}", *kept, "X-Forwarded-Proto: http", "Connection: close"]
        server_reader, server_writer = await asyncio.open_connection("127.0.0.1", self.upstream_port, limit=_MAX_HEAD_BYTES)
        try:
            server_writer.write(("\r\n".join(lines) + "\r\n\r\n").encode("latin-1"))
            directions = [asyncio.ensure_future(_copy(reader, server_writer)), asyncio.ensure_future(_copy(server_reader, writer))]
            await asyncio.wait(directions, return_when=asyncio.FIRST_COMPLETED)  # either side has left
            for direction in directions:
                direction.cancel()
            await asyncio.gather(*directions, return_exceptions=True)
        finally:
            server_writer.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while part := await reader.read(_MAX_HEAD_BYTES):
        writer.write(part)
        await writer.drain()


@contextlib.asynccontextmanager
async def run_prefix_proxy(upstream_port: int, prefix: str = "/agents/rookery") -> AsyncGenerator[PrefixProxy]:
    """Run a proxy in front of a server of this host until the block ends."""
    proxy = PrefixProxy(prefix, upstream_port)
    server = await asyncio.start_server(proxy.handle, "127.0.0.1", 0, limit=_MAX_HEAD_BYTES)
    async with server:
        proxy.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}{prefix}"
        yield proxy
