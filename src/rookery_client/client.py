"""The clients: `Rookery`, and `AsyncRookery` for an event loop."""

from __future__ import annotations

import os
from types import TracebackType
from typing import Self

import httpx2

from rookery_client.exchange import Options
from rookery_client.operations.groups import AsyncGroups, Groups
from rookery_client.sessions import AsyncSession, Session

DEFAULT_URL = "http://127.0.0.1:8400"
URL_VARIABLE, KEY_VARIABLE = "ROOKERY_URL", "ROOKERY_KEY"


class Rookery(Groups):
    """
    A client of a Rookery server. Use it in a `with` block, or call `close`.

    Args:
        url: Address of the server; by default `ROOKERY_URL`, or the default port of this host.
        api_key: An API key or agent key; by default `ROOKERY_KEY`.
        timeout_s: Seconds until an attempt is given up.
        max_retries: Further attempts after a failed connection, a 429 or a 5xx, if the request can be repeated without harm.
        headers: Headers of every request, such as `X-Session-ID`.
        transport: The transport of httpx2, for tests and proxies.

    Raises:
        ValueError: There is no key.
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

    async def close(self) -> None:
        """Close the connections."""
        await self._session.http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        await self.close()


def _find_url(url: str | None) -> str:
    return url or os.environ.get(URL_VARIABLE) or DEFAULT_URL


def _build_headers(api_key: str | None, headers: dict[str, str] | None) -> dict[str, str]:
    key = api_key or os.environ.get(KEY_VARIABLE)
    if not key:
        raise ValueError(f"There is no key: pass `api_key`, or set {KEY_VARIABLE}.")
    return {"Authorization": f"Bearer {key}", "User-Agent": "rookery-client-python", **(headers or {})}
