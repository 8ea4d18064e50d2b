"""
An HTTP client of one service whose address an operator has set: a store, an embedding service, a provider of language models.

Unlike those of `http_client`, which posts to users' URLs, its connections are not guarded. Redirects, which would send the key to another
host, are not followed, and cookies are not stored.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from http import HTTPStatus
from typing import TypeVar, cast
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

import httpx2
import orjson

from rookery.kernel.egress.transport import get_tls_context

T = TypeVar("T")

LOGIN_STATUSES = frozenset({HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN})
"""Statuses of a service that rejects the key or the password."""

_TEMPORARY_STATUSES = frozenset({HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.CONFLICT, HTTPStatus.TOO_EARLY, HTTPStatus.TOO_MANY_REQUESTS})
_PERMANENT_SERVER_ERRORS = frozenset({HTTPStatus.NOT_IMPLEMENTED, HTTPStatus.HTTP_VERSION_NOT_SUPPORTED})
"""Statuses for what a server lacks. All other 5xx may pass."""

_STALE_CONNECTION_ERRORS = (httpx2.RemoteProtocolError, httpx2.ReadError, httpx2.WriteError)
_NO_HEADERS: Mapping[str, str] = {}
_KEEPALIVE_S = 30.0
_MAX_IDLE = 32
_MAX_RESPONSE_BYTES = 64 * 1024 * 1024


def is_temporary(status: int) -> bool:
    """Return whether the same request to a model may succeed later."""
    return status in _TEMPORARY_STATUSES or (status >= HTTPStatus.INTERNAL_SERVER_ERROR and status not in _PERMANENT_SERVER_ERRORS)


def describe_connection_error(error: Exception, service: str) -> str:
    """Return the reason why *service*, such as "the provider", sent no response or only a part. It names neither the host nor a key."""
    if isinstance(error, TimeoutError | httpx2.TimeoutException):
        return f"{service} did not answer in time"
    if isinstance(error, httpx2.ConnectError):
        return f"the connection to {service} could not be opened"
    if isinstance(error, httpx2.RemoteProtocolError | httpx2.ReadError):
        return f"{service} closed the connection"
    return f"the connection to {service} failed ({type(error).__name__})"


def find_proxy(url: str) -> str | None:
    """Return the proxy of the environment for *url* (HTTP_PROXY, HTTPS_PROXY, ALL_PROXY), unless NO_PROXY excludes its host."""
    parts, proxies = urlsplit(url), getproxies()
    proxy = proxies.get(parts.scheme) or proxies.get("all")
    if not proxy or proxy_bypass(parts.hostname or "") or proxy_bypass(parts.netloc.rpartition("@")[2]):
        return None
    return proxy if "://" in proxy else f"http://{proxy}"


class ResponseTooLarge(Exception):
    """The body of a response has more bytes than the caller reads."""


@dataclass(frozen=True, slots=True)
class ServiceResponse:
    """A response with its whole body."""

    status: int
    headers: httpx2.Headers
    body: bytes

    @property
    def is_success(self) -> bool:
        """True for a 2xx."""
        return 200 <= self.status < 300

    def parse_fields(self) -> dict[str, object] | None:
        """Return the fields of the JSON object that the body is; None if it is something else."""
        try:
            content: object = orjson.loads(self.body)
        except orjson.JSONDecodeError:
            return None
        return cast("dict[str, object]", content) if isinstance(content, dict) else None


class ServiceClient:
    """
    A pool of connections to a service, opened by requests.

    Args:
        headers: Headers of each request.
        max_connections: The limit of connections. Further requests wait for one. None: no limit.
        proxy: The URL of a proxy; see `find_proxy`.
    """

    def __init__(
        self,
        headers: Mapping[str, str],
        *,
        verify_ssl: bool,
        connect_timeout_s: float,
        max_connections: int | None = None,
        proxy: str | None = None,
    ) -> None:
        self._headers = {"accept": "*/*", "accept-encoding": "gzip, deflate", "user-agent": "rookery", **headers}
        self._verify_ssl = verify_ssl
        self._extensions = {"timeout": httpx2.Timeout(None, connect=connect_timeout_s).as_dict()}
        self._limits = httpx2.Limits(max_connections=max_connections, max_keepalive_connections=_MAX_IDLE, keepalive_expiry=_KEEPALIVE_S)
        self._proxy = proxy
        # An address of a proxy that cannot be used fails here, and not with each request.
        self._transport = None if proxy is None else self._build_transport()
        self._is_closed = False

    async def open(self, method: str, url: str, content: bytes | None = None, headers: Mapping[str, str] = _NO_HEADERS) -> httpx2.Response:
        """
        Send a request and return the response as soon as its headers are there. The caller closes it, and limits the time of both.

        Raises:
            httpx2.HTTPError: There is no response; see `describe_connection_error`.
            httpx2.InvalidURL: *url* is invalid.
        """
        if self._is_closed:
            msg = "the client is closed"
            raise httpx2.ConnectError(msg)
        if self._transport is None:
            self._transport = self._build_transport()
        all_headers = {**self._headers, **headers}
        request = httpx2.Request(method, _parse_url(url), headers=all_headers, content=content, extensions=self._extensions)
        return await self._transport.handle_async_request(request)

    async def fetch(
        self,
        method: str,
        url: str,
        content: bytes | None = None,
        headers: Mapping[str, str] = _NO_HEADERS,
        *,
        timeout_s: float,
        max_bytes: int = _MAX_RESPONSE_BYTES,
        is_repeatable: bool = False,
    ) -> ServiceResponse:
        """
        Send a request and return the response with its body. Raises as `open`, and `TimeoutError`.

        Args:
            timeout_s: Total time, with the wait for a connection.
            is_repeatable: Send the request again if the service closed an idle connection at that moment.

        Raises:
            ResponseTooLarge: The body is larger than *max_bytes*.
        """
        async with asyncio.timeout(timeout_s):
            try:
                return await _read(await self.open(method, url, content, headers), max_bytes)
            except _STALE_CONNECTION_ERRORS:
                if not is_repeatable:
                    raise
                return await _read(await self.open(method, url, content, headers), max_bytes)

    def _build_transport(self) -> httpx2.AsyncHTTPTransport:
        """Return a transport without a client, which needs a third of the time of a call."""
        return httpx2.AsyncHTTPTransport(verify=get_tls_context(verify=self._verify_ssl), limits=self._limits, proxy=self._proxy)

    async def close(self) -> None:
        """Close all connections, and open no more: a request that waits for its next attempt gets a `ConnectError`. Idempotent."""
        self._is_closed = True
        transport, self._transport = self._transport, None
        if transport is not None:
            await transport.aclose()


async def _read(response: httpx2.Response, max_bytes: int) -> ServiceResponse:
    """Read the body, and close the response."""
    body = bytearray()
    try:
        async for part in response.aiter_bytes():
            body += part
            if len(body) > max_bytes:
                raise ResponseTooLarge(f"the response of the service is larger than {max_bytes // 2**20} MiB")
    finally:
        await response.aclose()
    return ServiceResponse(response.status_code, response.headers, bytes(body))


_parse_url = lru_cache(maxsize=256)(httpx2.URL)


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryBounds:
    """Bounds of retries. A request whose `Retry-After` is longer than *max_delay_s* is not sent again."""

    max_attempts: int = 3
    min_delay_s: float = 0.5
    max_delay_s: float = 20.0


@dataclass(frozen=True, slots=True)
class RetryableFailure:
    """
    The failure of a request that may succeed when it is sent again.

    Attributes:
        error: Raised if the request is not sent again.
        max_attempts: A lower limit of attempts for this kind of failure.
    """

    error: Exception
    retry_after_s: float | None = None
    max_attempts: int | None = None


async def repeat(attempt: Callable[[], Awaitable[T | RetryableFailure]], bounds: RetryBounds, *, deadline: float) -> T:
    """
    Return the first result of *attempt* that is not a failure. Raise the error of the last failure.

    Args:
        deadline: When the last attempt must have begun, on the clock of the event loop.
    """
    loop = asyncio.get_running_loop()
    delay_s, number = bounds.min_delay_s, 0
    while True:
        number += 1
        result = await attempt()
        if not isinstance(result, RetryableFailure):
            return result
        wait_s = result.retry_after_s if result.retry_after_s is not None else delay_s * random.uniform(0.7, 1.3)  # noqa: S311 - spreads retries
        max_attempts = min(bounds.max_attempts, result.max_attempts or bounds.max_attempts)
        if number >= max_attempts or wait_s > bounds.max_delay_s or loop.time() + wait_s >= deadline:
            raise result.error
        await asyncio.sleep(wait_s)
        delay_s = min(2 * delay_s, bounds.max_delay_s)
