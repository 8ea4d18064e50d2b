"""
Connections to receivers, kept for a moment after an answer, since more of them often follow.

A pool that is made for few of them looks at each of its idle ones with every request; here a request takes the one that was used
last, and looks at that.
"""

from __future__ import annotations

import asyncio
from collections import deque

import httpcore2
import httpx2

from rookery.kernel.egress import EgressGuard
from rookery.kernel.egress.transport import GuardedBackend

IDLE_TIMEOUT_S = 2.0
"""Idle connections are dropped before usual servers do so (Node after 5 s, gunicorn after 2)."""

_MAX_IDLE = 256

_Origin = tuple[bytes, bytes, int]


class ConnectionPool:
    """Open connections that nobody uses, by where they lead; new ones go where *egress* allows."""

    def __init__(self, egress: EgressGuard, *, idle_timeout_s: float = IDLE_TIMEOUT_S) -> None:
        self._idle_timeout_s = idle_timeout_s
        self._backend = GuardedBackend(egress)
        self._tls = httpx2.create_ssl_context()
        self._idle: dict[_Origin, deque[httpcore2.AsyncHTTPConnection]] = {}
        self._count = 0
        self._sweep_task: asyncio.Task[None] | None = None

    async def take_idle(self, origin: httpcore2.Origin) -> httpcore2.AsyncHTTPConnection | None:
        """Return one that is open still, as far as can be seen; it must be given back by `release`."""
        place = _origin_key(origin)
        while idle := self._idle.get(place):
            connection = idle.pop()
            self._count -= 1
            if not idle:
                del self._idle[place]
            if not connection.has_expired():
                return connection
            await connection.aclose()
        return None

    def create(self, origin: httpcore2.Origin) -> httpcore2.AsyncHTTPConnection:
        """Return one that is opened with its first request; it must be given back by `release`."""
        return httpcore2.AsyncHTTPConnection(
            origin, ssl_context=self._tls, keepalive_expiry=self._idle_timeout_s, network_backend=self._backend
        )

    async def release(self, origin: httpcore2.Origin, connection: httpcore2.AsyncHTTPConnection) -> None:
        """Keep *connection* for the next request, or close it if it is good for none."""
        if not connection.is_available() or self._count >= _MAX_IDLE:
            await connection.aclose()
            return
        self._idle.setdefault(_origin_key(origin), deque()).append(connection)
        self._count += 1
        if self._sweep_task is None or self._sweep_task.done():
            self._sweep_task = asyncio.create_task(self._close_expired(), name="webhooks-connections")

    async def close_idle(self, origin: httpcore2.Origin) -> None:
        """Close those that lead to *origin*."""
        await self._close_origin(_origin_key(origin))

    async def _close_origin(self, place: _Origin) -> None:
        idle = self._idle.pop(place, deque())
        self._count -= len(idle)
        for connection in idle:
            await connection.aclose()

    async def close(self) -> None:
        """Close all; twice does no harm."""
        sweeping, self._sweep_task = self._sweep_task, None
        if sweeping is not None:
            sweeping.cancel()
            await asyncio.gather(sweeping, return_exceptions=True)
        for place in list(self._idle):
            await self._close_origin(place)

    async def _close_expired(self) -> None:
        """Close what nobody came back for, until nothing is left: nobody else looks after an endpoint that is told no more."""
        while self._idle:
            await asyncio.sleep(self._idle_timeout_s / 2)
            for place, idle in list(self._idle.items()):
                # The one that waits longest is the first.
                while idle and idle[0].has_expired():
                    connection = idle.popleft()
                    self._count -= 1
                    await connection.aclose()
                if not idle and self._idle.get(place) is idle:
                    del self._idle[place]


def _origin_key(origin: httpcore2.Origin) -> _Origin:
    return origin.scheme, origin.host, origin.port
