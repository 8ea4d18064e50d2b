"""uvicorn over TLS, with connections that count against the limit from the moment they are accepted."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl

import structlog
import uvicorn

from rookery.kernel.http.connection import HttpConnection
from rookery.kernel.http.connection_limit import ConnectionLimiter, ConnectionSlot

_log = structlog.stdlib.get_logger("rookery.connections")


class _PendingHandshake:
    """A connection that has a slot but whose TLS handshake is not complete, so that it has no transport yet."""

    def __init__(self, client_socket: socket.socket) -> None:
        self._accepted = client_socket

    def unsent_bytes(self) -> int:
        return 0

    def abort(self) -> None:
        with contextlib.suppress(OSError):
            self._accepted.shutdown(socket.SHUT_RDWR)


class TlsServer(uvicorn.Server):
    """
    A server that accepts TLS connections itself.

    uvicorn allows 60 s for the handshake and reports a connection only after it, so that handshakes would not be limited.
    """

    def __init__(self, config: uvicorn.Config, limiter: ConnectionLimiter, context: ssl.SSLContext) -> None:
        super().__init__(config)
        self._limiter = limiter
        self._context = context
        self._accept_tasks = list[asyncio.Task[None]]()
        self._handshakes = dict[asyncio.Task[None], _PendingHandshake]()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=[])
        for listening in sockets or ():
            listening.setblocking(False)
            self._accept_tasks.append(asyncio.create_task(self._accept_forever(listening)))

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for task in self._accept_tasks:
            task.cancel()
        for handshake in self._handshakes.values():
            handshake.abort()
        await super().shutdown(sockets)

    async def _accept_forever(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                client_socket, address = await loop.sock_accept(listening)
            except OSError as error:  # the client has disconnected, or the process has too many open files
                _log.debug("connections.not_accepted", reason=str(error))
                await asyncio.sleep(0.01)
                continue
            handshake = _PendingHandshake(client_socket)
            slot = self._limiter.acquire(address[0], handshake)
            if slot is None:
                client_socket.close()
                continue
            task = asyncio.create_task(self._handshake(client_socket, slot))
            self._handshakes[task] = handshake
            task.add_done_callback(self._handshakes.pop)

    async def _handshake(self, client_socket: socket.socket, slot: ConnectionSlot) -> None:
        loop = asyncio.get_running_loop()

        def connection() -> HttpConnection:
            return HttpConnection(self.config, self.server_state, self.lifespan.state, limiter=self._limiter, slot=slot)

        try:
            timeout_s = self._limiter.limits.handshake_timeout_s
            await loop.connect_accepted_socket(connection, client_socket, ssl=self._context, ssl_handshake_timeout=timeout_s)
        except OSError as error:
            slot.release()
            _log.debug("connections.handshake_failed", reason=str(error))
