"""The connections of the client: how a call is sent, synchronously and asynchronously."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from typing import TypeVar

import httpx2

from rookery_client.calls import Call
from rookery_client.errors import ConnectionFailed
from rookery_client.exchange import Exchange, Options, Retry
from rookery_client.pages import AsyncPage, Page, PageBody

T = TypeVar("T")

_UNSENT_ERRORS = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout, httpx2.UnsupportedProtocol)
"""Errors before a byte of the request was sent."""

_MAX_EVENT_BYTES = 16 * 1024 * 1024
"""Limit on one event of a stream. The result of a tool has at most 10 MiB (D-34)."""


class Session:
    """Sends calls and waits for their responses."""

    def __init__(self, http: httpx2.Client, options: Options) -> None:
        self.http = http
        self.options = options

    def send(self, call: Call[T]) -> T:
        """
        Send *call* until it has a result.

        Raises:
            ApiError: The server refused the request.
            ConnectionFailed: No attempt had a response.
            UnexpectedResponse: The response is not one of the API.
        """
        exchange = Exchange(call, self.options)
        while True:
            exchange.attempts += 1
            try:
                response = self.http.send(_build_request(self.http, exchange))
            except httpx2.TransportError as error:
                result: T | Retry = exchange.fail(_describe(error), may_have_acted=not isinstance(error, _UNSENT_ERRORS))
            else:
                result = exchange.receive(response.status_code, response.headers, response.content)
            if not isinstance(result, Retry):
                return result
            time.sleep(result.delay_s)

    def send_page(self, call: Call[PageBody[T]]) -> Page[T]:
        """Send *call* of a list and return the page."""

        def fetch(number: int) -> Page[T]:
            return self.send_page(replace(call, query={**call.query, "page": number}))

        body = self.send(call)
        return Page(body.data, body.meta.current_page, body.meta.total, body.links.next is not None, fetch)

    @contextmanager
    def stream(self, call: Call[T]) -> Generator[httpx2.EventSource]:
        """
        Send *call* and return the events of its response. A stream is not resumed: send the call again with the id of the last event.

        Raises:
            ApiError: The server refused the request.
            ConnectionFailed: There is no response.
        """
        exchange = Exchange(call, replace(self.options, max_retries=0), attempts=1)
        try:
            response = self.http.send(_build_request(self.http, exchange, is_stream=True), stream=True)
        except httpx2.TransportError as error:
            exchange.fail(_describe(error), may_have_acted=not isinstance(error, _UNSENT_ERRORS))
            raise
        try:
            if response.status_code >= 400:
                exchange.receive(response.status_code, response.headers, response.read())
            yield httpx2.EventSource(response, _MAX_EVENT_BYTES)
        except httpx2.TransportError as error:
            raise ConnectionFailed(f"The stream of {call.operation} broke off: {_describe(error)}", may_have_acted=True) from error
        finally:
            response.close()


class AsyncSession:
    """Sends calls and waits for their responses, in an event loop."""

    def __init__(self, http: httpx2.AsyncClient, options: Options) -> None:
        self.http = http
        self.options = options

    async def send(self, call: Call[T]) -> T:
        """Send *call* until it has a result. The errors are those of `Session.send`."""
        exchange = Exchange(call, self.options)
        while True:
            exchange.attempts += 1
            try:
                response = await self.http.send(_build_request(self.http, exchange))
            except httpx2.TransportError as error:
                result: T | Retry = exchange.fail(_describe(error), may_have_acted=not isinstance(error, _UNSENT_ERRORS))
            else:
                result = exchange.receive(response.status_code, response.headers, response.content)
            if not isinstance(result, Retry):
                return result
            await asyncio.sleep(result.delay_s)

    async def send_page(self, call: Call[PageBody[T]]) -> AsyncPage[T]:
        """Send *call* of a list and return the page."""

        async def fetch(number: int) -> AsyncPage[T]:
            return await self.send_page(replace(call, query={**call.query, "page": number}))

        body = await self.send(call)
        return AsyncPage(body.data, body.meta.current_page, body.meta.total, body.links.next is not None, fetch)

    @asynccontextmanager
    async def stream(self, call: Call[T]) -> AsyncGenerator[httpx2.EventSource]:
        """Send *call* and return the events of its response. The errors are those of `Session.stream`."""
        exchange = Exchange(call, replace(self.options, max_retries=0), attempts=1)
        try:
            response = await self.http.send(_build_request(self.http, exchange, is_stream=True), stream=True)
        except httpx2.TransportError as error:
            exchange.fail(_describe(error), may_have_acted=not isinstance(error, _UNSENT_ERRORS))
            raise
        try:
            if response.status_code >= 400:
                exchange.receive(response.status_code, response.headers, await response.aread())
            yield httpx2.EventSource(response, _MAX_EVENT_BYTES)
        except httpx2.TransportError as error:
            raise ConnectionFailed(f"The stream of {call.operation} broke off: {_describe(error)}", may_have_acted=True) from error
        finally:
            await response.aclose()


def _build_request(http: httpx2.Client | httpx2.AsyncClient, exchange: Exchange[T], *, is_stream: bool = False) -> httpx2.Request:
    call, timeout_s = exchange.call, exchange.options.timeout_s
    # A stream is silent until something happens; the server sends a comment every few seconds.
    timeout = httpx2.Timeout(timeout_s, read=None if is_stream else timeout_s)
    return http.build_request(
        call.method,
        call.path,
        params=httpx2.QueryParams(tuple(call.encode_query())),
        content=call.encode_body(),
        headers=exchange.headers,
        timeout=timeout,
    )


def _describe(error: httpx2.TransportError) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
