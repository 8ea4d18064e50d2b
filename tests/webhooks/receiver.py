"""A webhook receiver on this host: a real server with configurable faults."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Literal, cast

import orjson

from tests.listening import run_callbacks, stop_listening

ResponseMode = Literal["whole", "silence", "drips", "endless", "huge", "broken", "no http"]
"""
Ways to send a response: normally; never; a byte every 20 ms without end; as fast as possible without end; 50 MB as announced;
broken off in the middle; as something that is not HTTP.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceivedRequest:
    """A received request; header names in lower case."""

    path: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def event(self) -> dict[str, object]:
        """The parsed body."""
        return cast("dict[str, object]", orjson.loads(self.body))


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """The response to send."""

    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    body: bytes = b"thanks"
    mode: ResponseMode = "whole"


@dataclass(slots=True)
class Receiver:
    """
    The running server.

    Attributes:
        reply: Returns the response to a request; tests set it.
        max_waiting: Highest number of requests that waited for their response at the same time.
        gate: Requests whose path begins with *gated_prefix* wait for it.
        open_connections: Number of open connections.
        closes_on_next_request: Close a connection at its second request, without reading it.
    """

    port: int = 0
    reply: Callable[[ReceivedRequest], Reply] = lambda _: Reply()
    received: list[ReceivedRequest] = field(default_factory=list[ReceivedRequest])
    connections: int = 0
    waiting: int = 0
    max_waiting: int = 0
    gate: asyncio.Event | None = None
    gated_prefix: str = "/"
    open_connections: int = 0
    closes_on_next_request: bool = False
    writers: set[asyncio.StreamWriter] = field(default_factory=set[asyncio.StreamWriter])

    @property
    def url(self) -> str:
        """The URL of the endpoint."""
        return f"http://127.0.0.1:{self.port}/hook"

    def event_ids(self) -> list[str]:
        """Return the ids of the received events, in order."""
        return [request.headers["webhook-id"] for request in self.received]

    async def close_connections(self) -> None:
        """Close all connections."""
        for writer in list(self.writers):
            writer.close()
            await writer.wait_closed()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one connection until it ends."""
        self.connections += 1
        self.open_connections += 1
        self.writers.add(writer)
        try:
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
                while await self._serve_one(reader, writer):
                    if self.closes_on_next_request:
                        await reader.readexactly(1)
                        self.closes_on_next_request = False
                        break
        finally:
            self.open_connections -= 1
            self.writers.discard(writer)
            writer.close()
            with contextlib.suppress(ConnectionError, asyncio.CancelledError):
                await writer.wait_closed()

    async def _serve_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        request = await _read_request(reader)
        self.received.append(request)
        self.waiting += 1
        self.max_waiting = max(self.max_waiting, self.waiting)
        try:
            if self.gate is not None and request.path.startswith(self.gated_prefix):
                await self.gate.wait()
            return await _send_reply(writer, self.reply(request))
        finally:
            self.waiting -= 1


@asynccontextmanager
async def run_receiver(
    reply: Callable[[ReceivedRequest], Reply] = lambda _: Reply(), *, port: int = 0, tls: ssl.SSLContext | None = None
) -> AsyncGenerator[Receiver]:
    """Run a receiver that responds with *reply*."""
    receiver = Receiver(reply=reply)
    tasks = set[asyncio.Task[None]]()
    writers = set[asyncio.StreamWriter]()

    def on_connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers.add(writer)
        task = asyncio.create_task(receiver.serve(reader, writer))
        task.add_done_callback(lambda _: writers.discard(writer) if writer.is_closing() else None)
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    server = await asyncio.start_server(on_connect, "127.0.0.1", port, ssl=tls)
    receiver.port = server.sockets[0].getsockname()[1]
    try:
        yield receiver
    finally:
        await stop_listening(server)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for writer in writers:  # a connection whose task was cancelled before its first step is still open
            writer.transport.abort()
        await run_callbacks()


async def _read_request(reader: asyncio.StreamReader) -> ReceivedRequest:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    pairs = (line.split(":", 1) for line in head[1:] if line)
    headers = {name.lower(): value.strip() for name, value in pairs}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return ReceivedRequest(path=head[0].split(" ")[1], headers=headers, body=body)


async def _send_reply(writer: asyncio.StreamWriter, reply: Reply) -> bool:
    """Send the reply; return whether the connection stays open."""
    if reply.mode == "silence":
        await asyncio.Event().wait()
    if reply.mode == "no http":
        writer.write(b"this is not HTTP\r\n\r\n")
        await writer.drain()
        return False
    length = {"whole": len(reply.body), "huge": 50_000_000, "broken": len(reply.body) + 10}.get(reply.mode)
    headers = {**reply.headers, **({} if length is None else {"content-length": str(length)})}
    lines = [f"HTTP/1.1 {reply.status} Status", *(f"{name}: {value}" for name, value in headers.items())]
    writer.write("\r\n".join(lines).encode() + b"\r\n\r\n" + reply.body)
    await writer.drain()
    part = b"x" * (1 if reply.mode == "drips" else 65_536)
    while reply.mode in {"drips", "endless", "huge"}:
        writer.write(part)
        await writer.drain()
        await asyncio.sleep(0.02 if reply.mode == "drips" else 0)
    return reply.mode == "whole"
