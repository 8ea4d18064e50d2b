"""
A pool of idle connections to webhook receivers, since deliveries to the same receiver often follow each other.

httpcore's own pool checks each idle connection with every request. This pool takes the most recently used one and checks only that.
"""

from __future__ import annotations

import asyncio
from collections import deque

import httpcore2
import httpx2

from rookery.kernel.egress import EgressGuard
from rookery.kernel.egress.transport import GuardedBackend

IDLE_TIMEOUT_S = 2.0
"""Idle time after which a connection is closed, before usual servers do so (Node after 5 s, gunicorn after 2)."""

_MAX_IDLE = 256

_Origin = tuple[bytes, bytes, int]


class ConnectionPool:
    """A pool of idle connections, keyed by origin. *egress* checks the address of each new connection."""

    def __init__(self, egress: EgressGuard, *, idle_timeout_s: float = IDLE_TIMEOUT_S) -> None:
        self._idle_timeout_s = idle_timeout_s
        self._backend = GuardedBackend(egress)
        self._tls = httpx2.create_ssl_context()
        self._idle: dict[_Origin, deque[httpcore2.AsyncHTTPConnection]] = {}
        self._count = 0
        self._sweep_task: asyncio.Task[None] | None = None

    async def take_idle(self, origin: httpcore2.Origin) -> httpcore2.AsyncHTTPConnection | None:
        """Return an idle connection that is still open as far as known, or None. Return it with `release`."""
        key = _origin_key(origin)
        while idle := self._idle.get(key):
            connection = idle.pop()
            self._count -= 1
            if not idle:
                del self._idle[key]
            if not connection.has_expired():
                return connection
            await connection.aclose()
        return None

    def create(self, origin: httpcore2.Origin) -> httpcore2.AsyncHTTPConnection:
        """Return a new connection, which is opened with its first request. Return it with `release`."""
        return httpcore2.AsyncHTTPConnection(
            origin, ssl_context=self._tls, keepalive_expiry=self._idle_timeout_s, network_backend=self._backend
        )

    async def release(self, origin: httpcore2.Origin, connection: httpcore2.AsyncHTTPConnection) -> None:
        """Store *connection* for the next request, or close it if it cannot be used again."""
        if not connection.is_available() or self._count >= _MAX_IDLE:
            await connection.aclose()
            return
        self._idle.setdefault(_origin_key(origin), deque()).append(connection)
        self._count += 1
        if self._sweep_task is None or self._sweep_task.done():
            self._sweep_task = asyncio.create_task(self._close_expired(), name="webhooks-connections")

    async def close_idle(self, origin: httpcore2.Origin) -> None:
        """Close the idle connections to *origin*."""
        await self._close_origin(_origin_key(origin))

    async def _close_origin(self, key: _Origin) -> None:
        idle = self._idle.pop(key, deque())
        self._count -= len(idle)
        for connection in idle:
            await connection.aclose()

    async def close(self) -> None:
        """Close all connections. A second call has no effect."""
        task, self._sweep_task = self._sweep_task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        for key in list(self._idle):
            await self._close_origin(key)

    async def _close_expired(self) -> None:
        """Close expired connections until no idle one is left. Otherwise connections to unused endpoints would stay open."""
        while self._idle:
            await asyncio.sleep(self._idle_timeout_s / 2)
            for key, idle in list(self._idle.items()):
                # The first connection has been idle for the longest time.
                while idle and idle[0].has_expired():
                    connection = idle.popleft()
                    self._count -= 1
                    await connection.aclose()
                if not idle and self._idle.get(key) is idle:
                    del self._idle[key]


def _origin_key(origin: httpcore2.Origin) -> _Origin:
    return origin.scheme, origin.host, origin.port
