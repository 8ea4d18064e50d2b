"""The connections of the client: how a call is sent, synchronously and asynchronously."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, AsyncIterator, Generator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import TypeVar

import httpx2

from rookery_client.calls import Call
from rookery_client.client_errors import ConnectionFailed
from rookery_client.exchange import Exchange, Options, Retry
from rookery_client.pages import AsyncPage, Following, Page, PageBody

T = TypeVar("T")

_LOGGER = logging.getLogger("rookery_client")

_UNSENT_ERRORS = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout, httpx2.UnsupportedProtocol)
"""Errors before a byte of the request was sent."""

_MAX_EVENT_BYTES = 16 * 1024 * 1024
"""Limit on one event of a stream. The result of a tool has at most 10 MiB."""

_MIN_SILENCE_S = 60.0
"""Minimum time-out between the parts of a stream. The server sends a comment after 15 seconds without an event."""


class Events(httpx2.EventSource):
    """The events of a stream. Each has `event`, its name; `data`, its text; `json()`, its data as a value; and `id`."""

    def __init__(self, response: httpx2.Response, operation: str) -> None:
        super().__init__(response, _MAX_EVENT_BYTES)
        self._operation = operation
        self._is_empty = response.status_code == 204
        """A stream that has nothing more to send is a 204 without a content type."""

    def __iter__(self) -> Iterator[httpx2.ServerSentEvent]:
        """
        Yield the events as they arrive.

        Raises:
            ConnectionFailed: The connection is lost, or was silent for too long.
        """
        try:
            yield from () if self._is_empty else super().__iter__()
        except httpx2.RequestError as error:
            raise _describe_loss(self._operation, error) from error

    async def __aiter__(self) -> AsyncIterator[httpx2.ServerSentEvent]:
        """Yield the events as they arrive. The errors are those of the synchronous form."""
        if self._is_empty:
            return
        try:
            async for event in super().__aiter__():
                yield event
        except httpx2.RequestError as error:
            raise _describe_loss(self._operation, error) from error


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
            except httpx2.RequestError as error:
                result: T | Retry = _fail(exchange, error)
            else:
                result = exchange.receive(response.status_code, response.headers, response.content)
            if not isinstance(result, Retry):
                return result
            _log_retry(exchange, result)
            time.sleep(result.delay_s)

    def send_page(self, call: Call[PageBody[T]]) -> Page[T]:
        """Send *call* of a list and return the page."""

        def fetch(following: Following) -> Page[T]:
            return self.send_page(call.at_page(following))

        body = self.send(call)
        return Page(body.data, body.meta.current_page, body.meta.total, body.following, fetch)

    @contextmanager
    def stream(self, call: Call[T]) -> Generator[httpx2.EventSource]:
        """
        Send *call* and return the events of its response.

        The request is sent again like others until the stream begins. A stream that broke off is not resumed: send the call again with
        the id of the last event.

        Raises:
            ApiError: The server refused the request.
            ConnectionFailed: There is no response, or the stream broke off.
            UnexpectedResponse: The response is no stream of events.
        """
        response = self._open(Exchange(call, self.options))
        try:
            yield Events(response, call.operation)
        finally:
            response.close()

    def _open(self, exchange: Exchange[T]) -> httpx2.Response:
        while True:
            exchange.attempts += 1
            try:
                response = self.http.send(_build_request(self.http, exchange, is_stream=True), stream=True)
            except httpx2.RequestError as error:
                result: T | Retry = _fail(exchange, error)
            else:
                try:
                    if response.status_code < 400:
                        exchange.receive_stream(response.status_code, response.headers)
                        return response
                    result = exchange.receive(response.status_code, response.headers, response.read())
                except httpx2.RequestError as error:
                    response.close()
                    result = _fail(exchange, error)
                except BaseException:
                    response.close()
                    raise
            if isinstance(result, Retry):
                _log_retry(exchange, result)
                time.sleep(result.delay_s)


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
            except httpx2.RequestError as error:
                result: T | Retry = _fail(exchange, error)
            else:
                result = exchange.receive(response.status_code, response.headers, response.content)
            if not isinstance(result, Retry):
                return result
            _log_retry(exchange, result)
            await asyncio.sleep(result.delay_s)

    async def send_page(self, call: Call[PageBody[T]]) -> AsyncPage[T]:
        """Send *call* of a list and return the page."""

        async def fetch(following: Following) -> AsyncPage[T]:
            return await self.send_page(call.at_page(following))

        body = await self.send(call)
        return AsyncPage(body.data, body.meta.current_page, body.meta.total, body.following, fetch)

    @asynccontextmanager
    async def stream(self, call: Call[T]) -> AsyncGenerator[httpx2.EventSource]:
        """Send *call* and return the events of its response. Retries and errors are those of `Session.stream`."""
        response = await self._open(Exchange(call, self.options))
        try:
            yield Events(response, call.operation)
        finally:
            await response.aclose()

    async def _open(self, exchange: Exchange[T]) -> httpx2.Response:
        while True:
            exchange.attempts += 1
            try:
                response = await self.http.send(_build_request(self.http, exchange, is_stream=True), stream=True)
            except httpx2.RequestError as error:
                result: T | Retry = _fail(exchange, error)
            else:
                try:
                    if response.status_code < 400:
                        exchange.receive_stream(response.status_code, response.headers)
                        return response
                    result = exchange.receive(response.status_code, response.headers, await response.aread())
                except httpx2.RequestError as error:
                    await response.aclose()
                    result = _fail(exchange, error)
                except BaseException:
                    await response.aclose()
                    raise
            if isinstance(result, Retry):
                _log_retry(exchange, result)
                await asyncio.sleep(result.delay_s)


def _build_request(http: httpx2.Client | httpx2.AsyncClient, exchange: Exchange[T], *, is_stream: bool = False) -> httpx2.Request:
    call, timeout_s = exchange.call, exchange.options.timeout_s
    return http.build_request(
        call.method,
        call.path,
        params=httpx2.QueryParams(tuple(call.encode_query())),
        content=call.encode_body(),
        headers=exchange.headers,
        timeout=httpx2.Timeout(timeout_s, read=max(timeout_s, _MIN_SILENCE_S) if is_stream else timeout_s),
    )


def _fail(exchange: Exchange[T], error: httpx2.RequestError) -> Retry:
    url = error.request.url
    return exchange.fail(
        f"{_describe(error)} ({url.scheme}://{url.netloc.decode()})",
        may_have_acted=not isinstance(error, _UNSENT_ERRORS),
        is_timeout=isinstance(error, httpx2.TimeoutException),
    )


def _log_retry(exchange: Exchange[T], retry: Retry) -> None:
    _LOGGER.info(
        "%s: attempt %d of %d failed (%s); the next one is in %.1f s",
        exchange.call.operation,
        exchange.attempts,
        exchange.options.max_retries + 1,
        retry.reason,
        retry.delay_s,
    )


def _describe(error: httpx2.RequestError) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def _describe_loss(operation: str, error: httpx2.RequestError) -> ConnectionFailed:
    return ConnectionFailed(f"The stream of {operation} broke off: {_describe(error)}", may_have_acted=True)
