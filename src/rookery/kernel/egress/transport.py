"""An HTTP transport that connects to nothing but addresses that the guard has just allowed."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import cast

import httpcore2
import httpx2

from rookery.kernel.egress.guard import AddressRefused, EgressGuard

_CONNECTION_LIMITS = httpx2.Limits(max_connections=None, max_keepalive_connections=32, keepalive_expiry=60.0)


class EgressNotAllowed(httpcore2.ConnectError):
    """The guard's verdict, in its words; the cause of the `httpx2.ConnectError` that callers of the transport see."""


class GuardedTransport(httpx2.AsyncHTTPTransport):
    """
    A transport of which each new connection goes to an address that *guard* has judged, the certificate still being the name's.

    A refused address is an `httpx2.ConnectError` with the guard's words. Proxies of the environment are passed over: they would
    resolve names after us.
    """

    def __init__(self, guard: EgressGuard, *, limits: httpx2.Limits = _CONNECTION_LIMITS) -> None:
        super().__init__(limits=limits)
        self._pool = httpcore2.AsyncConnectionPool(
            ssl_context=httpx2.create_ssl_context(),
            max_connections=limits.max_connections,
            max_keepalive_connections=limits.max_keepalive_connections,
            keepalive_expiry=limits.keepalive_expiry,
            network_backend=GuardedBackend(guard),
        )


class GuardedBackend(httpcore2.AsyncNetworkBackend):
    """Connects by the guard, one allowed address after the other."""

    def __init__(self, guard: EgressGuard) -> None:
        self._guard = guard
        self._inner = cast("httpcore2.AsyncNetworkBackend", httpcore2.AnyIOBackend())  # another class of that name stands in without anyio

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 - the vendor's signature
        local_address: str | None = None,
        socket_options: Iterable[httpcore2.SOCKET_OPTION] | None = None,
    ) -> httpcore2.AsyncNetworkStream:
        ends = None if timeout is None else time.monotonic() + timeout
        try:
            addresses = await self._guard.resolve_allowed(host, port)
        except AddressRefused as refused:
            raise EgressNotAllowed(refused.message) from None
        failure: Exception = httpcore2.ConnectError("no address")
        for place, address in enumerate(addresses):
            left = None if ends is None else max(0.1, (ends - time.monotonic()) / (len(addresses) - place))
            try:
                return await self._inner.connect_tcp(
                    address, port, timeout=left, local_address=local_address, socket_options=socket_options
                )
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as error:
                failure = error
        raise failure

    async def sleep(self, seconds: float) -> None:
        await self._inner.sleep(seconds)
