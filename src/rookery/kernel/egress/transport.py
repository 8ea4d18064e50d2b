"""The TLS context of outgoing requests, and an HTTP transport that connects only to addresses that the guard has allowed."""

from __future__ import annotations

import ssl
import time
from collections.abc import Iterable
from functools import cache
from typing import Any, cast

import httpcore2
import httpx2

from rookery.kernel.egress.guard import AddressRefused, EgressGuard, HostNotResolved

_CONNECTION_LIMITS = httpx2.Limits(max_connections=None, max_keepalive_connections=32, keepalive_expiry=60.0)


@cache
def get_tls_context(*, verify: bool = True) -> ssl.SSLContext:
    """
    Return the context that all HTTP clients of this process share.

    The first call loads the certificate authorities, which takes 15 to 30 ms. Meanwhile, the event loop serves no request.

    Args:
        verify: Verify certificates and host names (`verify_ssl`). False: accept any certificate.
    """
    return httpx2.create_ssl_context(verify=verify)


class EgressNotAllowed(httpcore2.ConnectError):
    """
    The guard refused an address. This is the cause of the `httpx2.ConnectError` that callers of the transport get.

    Attributes:
        is_temporary: The host name has no address at the moment, as opposed to a forbidden one.
    """

    def __init__(self, message: str, *, is_temporary: bool) -> None:
        super().__init__(message)
        self.is_temporary = is_temporary


class GuardedTransport(httpx2.AsyncHTTPTransport):
    """
    A transport whose connections go to addresses checked by *guard*, while the certificate is still verified for the host name.

    A refused address raises `httpx2.ConnectError` with the guard's message. Proxies of the environment are not used, because they
    would resolve names again. `httpx2` has no parameter for a network backend, so this sets a private attribute; its version is pinned.
    """

    def __init__(self, guard: EgressGuard, *, limits: httpx2.Limits = _CONNECTION_LIMITS) -> None:
        super().__init__(verify=get_tls_context(), limits=limits)
        self._pool = httpcore2.AsyncConnectionPool(
            ssl_context=get_tls_context(),
            max_connections=limits.max_connections,
            max_keepalive_connections=limits.max_keepalive_connections,
            keepalive_expiry=limits.keepalive_expiry,
            network_backend=GuardedBackend(guard),
        )


class GuardedBackend(httpcore2.AsyncNetworkBackend):
    """A network backend that tries the allowed addresses of a host one after the other."""

    def __init__(self, guard: EgressGuard) -> None:
        self._guard = guard
        self._inner = cast("httpcore2.AsyncNetworkBackend", httpcore2.AnyIOBackend())  # a stub class replaces it if anyio is missing

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
            raise EgressNotAllowed(refused.message, is_temporary=isinstance(refused, HostNotResolved)) from None
        failure: Exception = httpcore2.ConnectError("no address")
        for place, address in enumerate(addresses):
            timeout_s = None if ends is None else max(0.1, (ends - time.monotonic()) / (len(addresses) - place))
            try:
                return _ClosingStream(
                    await self._inner.connect_tcp(
                        address, port, timeout=timeout_s, local_address=local_address, socket_options=socket_options
                    )
                )
            except (httpcore2.ConnectError, httpcore2.ConnectTimeout) as error:
                failure = error
        raise failure

    async def sleep(self, seconds: float) -> None:
        await self._inner.sleep(seconds)


class _ClosingStream(httpcore2.AsyncNetworkStream):
    """A connection that is closed if the TLS handshake on it is cancelled. The vendor's stays open."""

    def __init__(self, stream: httpcore2.AsyncNetworkStream) -> None:
        self._stream = stream

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ASYNC109 - the vendor's signature
        return await self._stream.read(max_bytes, timeout)

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ASYNC109 - the vendor's signature
        await self._stream.write(buffer, timeout)

    async def aclose(self) -> None:
        await self._stream.aclose()

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - the vendor's signature
    ) -> httpcore2.AsyncNetworkStream:
        try:
            return await self._stream.start_tls(ssl_context, server_hostname, timeout)
        except BaseException:
            await self._stream.aclose()
            raise

    def get_extra_info(self, info: str) -> Any:  # noqa: ANN401 - the vendor's signature
        return self._stream.get_extra_info(info)
