"""
A TCP proxy between Rookery and an engine, for tests of failures: it slows, interrupts, refuses, resets and truncates.

    with FaultProxy(server.port) as proxy:
        ...  # connect to 127.0.0.1:proxy.port
        proxy.partition()
        ...
        proxy.heal()
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Self

from tests.deadlines import HANG_S
from tests.listening import stop_listening
from tests.postgres import free_port

_CHUNK_BYTES = 65_536
_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


class FaultProxy:
    """
    A proxy that listens on a port of 127.0.0.1, which stays the same until the end of the block.

    It runs in a thread of its own, so tests with and without an event loop can use it. Its methods return when the fault is in effect.

    Attributes:
        port: The port to connect to.
        latency_s: Delay of each chunk, in each direction, of open connections too. A round trip takes twice as long.
        bytes_per_s: Speed of the line, in each direction, of open connections too. 0 means no limit.
        cut_after_bytes: Connections opened from now on are closed after that many bytes of answers. 0 means never.
        connection_count: Number of connections accepted so far.
    """

    def __init__(self, port: int, *, host: str = "127.0.0.1") -> None:
        self.port = free_port()  # while it refuses connections, nobody else may get it
        self.latency_s = 0.0
        self.bytes_per_s = 0.0
        self.cut_after_bytes = 0
        self.connection_count = 0
        self._target = (host, port)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="fault-proxy", daemon=True)
        self._passing = asyncio.Event()
        self._passing.set()
        self._frozen: list[asyncio.Event] = []
        self._server: asyncio.Server | None = None
        self._writers = set[asyncio.StreamWriter]()
        self._tasks = set[asyncio.Task[None]]()

    def __enter__(self) -> Self:
        self._thread.start()
        self._run(self._listen())
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._run(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(HANG_S)
        self._loop.close()

    def partition(self) -> None:
        """Pass nothing and close nothing, as a lost network does. What is sent meanwhile arrives after `heal`."""
        self._call(self._passing.clear)

    def freeze(self) -> None:
        """Pass nothing on open connections, as a load balancer that forgot them does. New ones work. What is sent arrives after `heal`."""
        self._call(self._freeze)

    def refuse(self) -> None:
        """Refuse new connections. Open ones stay; `reset` ends them."""
        self._run(self._stop_listening())

    def reset(self) -> None:
        """End all open connections with a reset."""
        self._call(self._reset)

    def lead_to(self, port: int) -> None:
        """Lead new connections to another port, as the name of a server does after a failover. Open ones stay."""
        self._target = (self._target[0], port)

    def heal(self) -> None:
        """End all faults."""
        self.latency_s = self.bytes_per_s = 0.0
        self.cut_after_bytes = 0
        self._call(self._resume)
        if self._server is None:
            self._run(self._listen())

    def _freeze(self) -> None:
        self._passing.clear()
        self._frozen.append(self._passing)
        self._passing = asyncio.Event()
        self._passing.set()

    def _resume(self) -> None:
        for passing in (*self._frozen, self._passing):
            passing.set()
        self._frozen.clear()

    async def _listen(self) -> None:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", self.port)

    async def _stop_listening(self) -> None:
        server, self._server = self._server, None
        if server is not None:
            await stop_listening(server)

    async def _close(self) -> None:
        await self._stop_listening()
        self._reset()  # before the tasks, which wait until their connections are closed
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Start the task of a connection, so that `_close` can end it."""
        self.connection_count += 1
        self._writers.add(writer)
        task = asyncio.create_task(self._pass_both_ways(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _pass_both_ways(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        cut_after_bytes, passing = self.cut_after_bytes, self._passing
        try:
            await passing.wait()
            engine_reader, engine_writer = await asyncio.open_connection(*self._target)
        except BaseException as error:
            await self._close_connections(writer)
            if isinstance(error, OSError):  # the engine does not run
                return
            raise
        self._writers.add(engine_writer)
        directions = [
            asyncio.create_task(self._pass(reader, engine_writer, passing)),
            asyncio.create_task(self._pass(engine_reader, writer, passing, cut_after_bytes)),
        ]
        try:
            # A reset of one side ends both: the other side would wait for ever.
            await asyncio.wait(directions, return_when=asyncio.FIRST_EXCEPTION)
            await passing.wait()
        finally:
            for direction in directions:
                direction.cancel()
            await asyncio.gather(*directions, return_exceptions=True)
            await self._close_connections(engine_writer, writer)

    async def _pass(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, passing: asyncio.Event, cut_after_bytes: int = 0
    ) -> None:
        passed_bytes = 0
        while data := await reader.read(_CHUNK_BYTES):
            if self.latency_s or self.bytes_per_s:
                await asyncio.sleep(self.latency_s + (len(data) / self.bytes_per_s if self.bytes_per_s else 0.0))
            await passing.wait()
            if cut_after_bytes and passed_bytes + len(data) >= cut_after_bytes:
                writer.write(data[: cut_after_bytes - passed_bytes])
                await writer.drain()
                writer.close()
                return
            passed_bytes += len(data)
            writer.write(data)
            await writer.drain()
        await passing.wait()  # a lost network loses the end of a connection too
        if writer.can_write_eof():
            writer.write_eof()

    async def _close_connections(self, *writers: asyncio.StreamWriter) -> None:
        for writer in writers:
            writer.close()
        for writer in writers:
            with contextlib.suppress(OSError):
                await writer.wait_closed()
        self._writers.difference_update(writers)

    def _reset(self) -> None:
        for writer in self._writers:
            connection: socket.socket = writer.get_extra_info("socket")
            if connection.fileno() >= 0:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
            writer.transport.abort()

    def _run(self, coroutine: Coroutine[None, None, None]) -> None:
        asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(HANG_S)

    def _call(self, function: Callable[[], None]) -> None:
        """Call *function* in the proxy's thread."""

        async def call() -> None:
            function()

        self._run(call())
