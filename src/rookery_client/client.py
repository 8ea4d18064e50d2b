"""The clients: `Rookery`, and `AsyncRookery` for an event loop."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from importlib import metadata
from types import TracebackType
from typing import Self

import httpx2

from rookery_client.exchange import InvalidHeaderValue, Options, check_headers
from rookery_client.operations.groups import AsyncGroups, Groups
from rookery_client.sessions import AsyncSession, Session

DEFAULT_URL = "http://127.0.0.1:8400"
URL_VARIABLE, KEY_VARIABLE = "ROOKERY_URL", "ROOKERY_KEY"


class Rookery(Groups):
    """
    A client of a Rookery server. Use it in a `with` block, or call `close`. Threads may share it.

    Args:
        url: Address of the server, such as `https://agents.example.org`; by default `ROOKERY_URL`, or the default port of this host.
        api_key: An API key or agent key; by default `ROOKERY_KEY`.
        timeout_s: Seconds to wait for the connection, and for each part of the response.
        max_retries: Further attempts after a failed connection, a 429 or a 5xx, if the request can be repeated without harm.
        headers: Headers of every request, such as `X-Session-ID`.
        transport: The transport of httpx2, for tests and proxies.

    Raises:
        ValueError: There is no key, or the address, the key or a header is not valid.
    """

    def __init__(
        self,
        url: str | None = None,
        api_key: str | None = None,
        *,
        timeout_s: float = 60.0,
        max_retries: int = 3,
        headers: dict[str, str] | None = None,
        transport: httpx2.BaseTransport | None = None,
    ) -> None:
        http = httpx2.Client(base_url=_find_url(url), headers=_build_headers(api_key, headers), transport=transport)
        super().__init__(Session(http, Options(timeout_s=timeout_s, max_retries=max_retries)))

    def with_options(
        self, *, timeout_s: float | None = None, max_retries: int | None = None, headers: Mapping[str, str] | None = None
    ) -> Self:
        """
        Return a client with other options, for one call or several: `client.with_options(timeout_s=300).tools.call_tool(…)`.

        It shares the connections of this client, so that closing either closes both. What is left out stays as it is.

        Args:
            timeout_s: Seconds to wait for the connection, and for each part of the response.
            max_retries: Further attempts; 0 for none.
            headers: Further headers of every request.
        """
        copy = type(self).__new__(type(self))
        Groups.__init__(copy, Session(self._session.http, _change_options(self._session.options, timeout_s, max_retries, headers)))
        return copy

    def close(self) -> None:
        """Close the connections."""
        self._session.http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self.close()


class AsyncRookery(AsyncGroups):
    """A client of a Rookery server for an event loop. Its arguments are those of `Rookery`. Use it in an `async with` block."""

    def __init__(
        self,
        url: str | None = None,
        api_key: str | None = None,
        *,
        timeout_s: float = 60.0,
        max_retries: int = 3,
        headers: dict[str, str] | None = None,
        transport: httpx2.AsyncBaseTransport | None = None,
    ) -> None:
        http = httpx2.AsyncClient(base_url=_find_url(url), headers=_build_headers(api_key, headers), transport=transport)
        super().__init__(AsyncSession(http, Options(timeout_s=timeout_s, max_retries=max_retries)))

    def with_options(
        self, *, timeout_s: float | None = None, max_retries: int | None = None, headers: Mapping[str, str] | None = None
    ) -> Self:
        """Return a client with other options, which shares the connections of this one; see `Rookery.with_options`."""
        copy = type(self).__new__(type(self))
        options = _change_options(self._session.options, timeout_s, max_retries, headers)
        AsyncGroups.__init__(copy, AsyncSession(self._session.http, options))
        return copy

    async def close(self) -> None:
        """Close the connections."""
        await self._session.http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        await self.close()


def _find_url(url: str | None) -> str:
    address = (url or os.environ.get(URL_VARIABLE) or DEFAULT_URL).strip()
    try:
        parsed = httpx2.URL(address)
    except httpx2.InvalidURL as error:
        raise ValueError(f"The url {address!r} is not an address: {error}") from None
    if parsed.scheme not in {"http", "https"} or not parsed.host:
        raise ValueError(f"The url {address!r} must begin with http:// or https://, followed by a host, as in {DEFAULT_URL}.")
    return address


def _build_headers(api_key: str | None, headers: Mapping[str, str] | None) -> dict[str, str]:
    key = (api_key or os.environ.get(KEY_VARIABLE) or "").strip()
    if not key:
        raise ValueError(f"There is no key: pass `api_key`, or set {KEY_VARIABLE}.")
    try:
        check_headers({"Authorization": key})
    except InvalidHeaderValue:
        raise ValueError("`api_key` contains characters that no key has. Copy the whole key, which begins with sk_ or ak_.") from None
    return check_headers({"Authorization": f"Bearer {key}", "User-Agent": f"rookery-client-python/{_find_version()}", **(headers or {})})


@cache
def _find_version() -> str:
    """Return the version of the package that the client came with: `rookery-client`, or `rookery`."""
    for name in ("rookery-client", "rookery"):
        try:
            return metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return "unknown"


def _change_options(options: Options, timeout_s: float | None, max_retries: int | None, headers: Mapping[str, str] | None) -> Options:
    return replace(
        options,
        timeout_s=options.timeout_s if timeout_s is None else timeout_s,
        max_retries=options.max_retries if max_retries is None else max_retries,
        headers={**options.headers, **check_headers(headers or {})},
    )
