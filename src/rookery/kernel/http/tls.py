"""uvicorn over TLS, whose connections count from the moment they are accepted."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl

import structlog
import uvicorn

from rookery.kernel.http.connection import Connection
from rookery.kernel.http.crowd import Crowd, Place

_log = structlog.stdlib.get_logger("rookery.connections")

HANDSHAKE_S = 10.0


class _Handshake:
    """A connection that has a place and no keys yet; its transport shows itself only once it has."""

    def __init__(self, accepted: socket.socket) -> None:
        self._accepted = accepted

    def unsent(self) -> int:
        return 0

    def turn_out(self) -> None:
        with contextlib.suppress(OSError):
            self._accepted.shutdown(socket.SHUT_RDWR)


class TlsServer(uvicorn.Server):
    """
    Accepts by itself.

    uvicorn's way gives a stranger 60 s for the handshake, and tells nobody of the connection before; so they would be without limit.
    """

    def __init__(self, config: uvicorn.Config, crowd: Crowd, context: ssl.SSLContext) -> None:
        super().__init__(config)
        self._crowd = crowd
        self._context = context
        self._accepting = list[asyncio.Task[None]]()
        self._greeting = dict[asyncio.Task[None], _Handshake]()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=[])
        for listening in sockets or ():
            listening.setblocking(False)
            self._accepting.append(asyncio.create_task(self._accept(listening)))

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for task in self._accepting:
            task.cancel()
        for handshake in self._greeting.values():
            handshake.turn_out()
        await super().shutdown(sockets)

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                accepted, address = await loop.sock_accept(listening)
            except OSError as error:  # the other end has gone already, or there are too many open files for one more
                _log.debug("connections.not_accepted", reason=str(error))
                await asyncio.sleep(0.01)
                continue
            handshake = _Handshake(accepted)
            place = self._crowd.enter(address[0], handshake)
            if place is None:
                accepted.close()
                continue
            task = asyncio.create_task(self._greet(accepted, place))
            self._greeting[task] = handshake
            task.add_done_callback(self._greeting.pop)

    async def _greet(self, accepted: socket.socket, place: Place) -> None:
        loop = asyncio.get_running_loop()

        def connection() -> Connection:
            return Connection(self.config, self.server_state, self.lifespan.state, crowd=self._crowd, place=place)

        try:
            await loop.connect_accepted_socket(connection, accepted, ssl=self._context, ssl_handshake_timeout=HANDSHAKE_S)
        except OSError as error:
            place.leave()
            _log.debug("connections.no_handshake", reason=str(error))
