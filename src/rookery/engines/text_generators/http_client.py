"""The HTTP client of a provider: one POST with bounded retries, and a body that is read with bounded waits."""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass, replace
from functools import partial
from http import HTTPStatus

import httpx2
import structlog

from rookery.content.errors import (
    DEFAULT_RETRY_AFTER_S,
    ProviderAccessDenied,
    ProviderError,
    ProviderRateLimited,
    ProviderRefused,
    ProviderResponseInvalid,
    ProviderUnavailable,
)
from rookery.engines.text_generators.compatibility import find_named_part
from rookery.engines.text_generators.failures import ProviderFailure, excerpt, parse_failure, redact_parts
from rookery.engines.text_generators.provider import Provider
from rookery.kernel.clock import utc_now
from rookery.kernel.egress.service_client import (
    LOGIN_STATUSES,
    RetryableFailure,
    RetryBounds,
    ServiceClient,
    describe_connection_error,
    find_proxy,
    is_temporary,
    repeat,
)
from rookery.kernel.errors import EngineUnavailable
from rookery.kernel.retry_delays import find_retry_delay
from rookery.kernel.secret import Secret

MAX_ERROR_BYTES = 64 * 1024
"""Bytes of an error's body that are read."""

_MAX_RETRY_AFTER_S = 86_400
_MIN_WAIT_S = 0.01
_ACCESS_STATUSES = LOGIN_STATUSES | {HTTPStatus.PAYMENT_REQUIRED}

_QUOTA_CODES = frozenset({"insufficient_quota", "billing_hard_limit_reached", "account_deactivated"})
"""Codes of a 429 that waiting does not solve."""

_QUOTA_WORDS = re.compile(r"insufficient_quota|exceeded your current quota|billing|insufficient (?:credits|balance)", re.IGNORECASE)
"""Words for the same in a 429 whose code a proxy has replaced. They count only if the provider names no delay."""

_log = structlog.stdlib.get_logger("rookery.generation")


@dataclass(frozen=True, slots=True, kw_only=True)
class Timeouts:
    """
    Bounds of single waits. All of them together are bounded by the request.

    Attributes:
        first_byte_s: Until the first byte of a streamed answer. A whole answer has none before it is complete.
        idle_s: Between two bytes of an answer.
    """

    connect_s: float = 5.0
    first_byte_s: float = 120.0
    idle_s: float = 60.0
    probe_s: float = 5.0


class RequestRefusedError(Exception):
    """The provider rejects the request. The caller may send it again without a feature that the provider lacks."""

    def __init__(self, failure: ProviderFailure) -> None:
        super().__init__(failure.message)
        self.failure = failure


class NoAnswerError(Exception):
    """The provider has the request, and did not answer in time. It may charge for it."""


class BodyReadError(Exception):
    """The body of a response could not be read to its end. The message is the reason."""


class ProviderResponse:
    """A response with status 200, whose body is read in parts. Close it in any case."""

    def __init__(self, response: httpx2.Response, *, deadline: float, first_byte_s: float, idle_s: float) -> None:
        self._response = response
        self._deadline = deadline
        self._wait_s = first_byte_s
        self._idle_s = idle_s
        self._parts: AsyncIterator[bytes] = response.aiter_bytes()

    @property
    def content_type(self) -> str:
        """The media type in lower case, without parameters."""
        return self._response.headers.get("content-type", "").partition(";")[0].strip().lower()

    async def read(self) -> bytes:
        """
        Return the next part of the body; empty at its end.

        Raises:
            BodyReadError: A time-out, or the connection was closed before the end.
        """
        loop = asyncio.get_running_loop()
        until = loop.time() + self._wait_s
        try:
            async with asyncio.timeout_at(min(until, self._deadline)):
                part = await anext(self._parts, b"")
        except TimeoutError:
            is_over = self._deadline <= until
            reason = "the time of the request is over" if is_over else f"the provider sent nothing for {self._wait_s:g} seconds"
            raise BodyReadError(reason) from None
        except (httpx2.HTTPError, httpx2.StreamError) as error:
            raise BodyReadError(describe_connection_error(error, "the provider")) from None
        self._wait_s = self._idle_s
        return part

    async def read_all(self, max_bytes: int) -> bytes | None:
        """Return the whole body; None if it is larger than *max_bytes*. Raises as `read`."""
        body = bytearray()
        while part := await self.read():
            body += part
            if len(body) > max_bytes:
                return None
        return bytes(body)

    async def drain(self, timeout_s: float) -> None:
        """Read the rest of the body if it arrives in time, so that the connection can be used again."""
        self._deadline = min(self._deadline, asyncio.get_running_loop().time() + timeout_s)
        try:
            await self.read_all(MAX_ERROR_BYTES)
        except BodyReadError:
            return

    async def close(self) -> None:
        """Close the response. Its connection is closed too, unless the body was read to its end."""
        await self._response.aclose()


class ProviderClient:
    """A client of one provider. Its errors never contain the key."""

    def __init__(self, provider: Provider, *, verify_ssl: bool, timeouts: Timeouts, retries: RetryBounds) -> None:
        self._provider = provider
        self._timeouts = timeouts
        self._retries = retries
        self._is_closed = False
        headers = {"accept-encoding": "identity"}
        if provider.key is not None:
            headers["authorization"] = f"Bearer {provider.key.reveal()}"
        self._client = ServiceClient(
            headers, verify_ssl=verify_ssl, connect_timeout_s=timeouts.connect_s, proxy=find_proxy(provider.base_url)
        )

    async def post(self, body: bytes, *, model: str, streams: bool, deadline: float) -> ProviderResponse:
        """
        Post *body* to `/chat/completions` and return the response as soon as its headers are there. The caller closes it.

        Args:
            model: The model that *body* names.
            streams: The answer arrives in pieces, so its first byte has a bound of its own.
            deadline: When the request ends, on the clock of the event loop.

        Raises:
            RequestRefusedError: The provider rejects this request.
            NoAnswerError: It did not answer in time.
            ProviderAccessDenied: It rejects the key or the account.
            ProviderRateLimited: 429 after all retries.
            ProviderUnavailable: No connection, or a 5xx after all retries.
            ProviderResponseInvalid: It redirects.
        """
        attempt = partial(self._try, body, deadline, model=model, streams=streams)
        return await repeat(attempt, self._retries, deadline=deadline)

    async def probe(self) -> None:
        """
        Request the list of models. A provider without one answers 404, which shows that it works too.

        Raises:
            EngineUnavailable: It does not answer, fails, or rejects the key.
        """
        self._require_open()
        try:
            async with asyncio.timeout(self._timeouts.probe_s):
                response = await self._client.open("GET", f"{self._provider.base_url}/models")
                await response.aclose()
        except (TimeoutError, httpx2.HTTPError) as error:
            raise EngineUnavailable("generation", describe_connection_error(error, "the provider")) from None
        status = response.status_code
        if status in _ACCESS_STATUSES:
            raise EngineUnavailable("generation", f"the provider rejects the configured key (status {status})")
        if status >= HTTPStatus.INTERNAL_SERVER_ERROR and is_temporary(status):
            raise EngineUnavailable("generation", f"the provider answered with status {status}")

    async def close(self) -> None:
        """Close all connections."""
        self._is_closed = True
        await self._client.close()

    async def _try(self, body: bytes, deadline: float, *, model: str, streams: bool) -> ProviderResponse | RetryableFailure:
        self._require_open()
        headers = {"content-type": "application/json", "accept": "text/event-stream" if streams else "application/json"}
        loop = asyncio.get_running_loop()
        first_byte_s = self._timeouts.first_byte_s if streams else math.inf
        until = min(deadline, loop.time() + first_byte_s)
        try:
            async with asyncio.timeout_at(max(until, loop.time() + _MIN_WAIT_S)):
                response = await self._client.open("POST", f"{self._provider.base_url}/chat/completions", body, headers)
        except TimeoutError:
            raise NoAnswerError from None
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            if self._is_closed:
                raise ProviderUnavailable("the server is stopping") from None
            return RetryableFailure(ProviderUnavailable(describe_connection_error(error, "the provider")))
        if response.status_code == HTTPStatus.OK:
            return ProviderResponse(response, deadline=deadline, first_byte_s=first_byte_s, idle_s=self._timeouts.idle_s)
        return await self._read_failure(response, deadline, model)

    async def _read_failure(self, response: httpx2.Response, deadline: float, model: str) -> RetryableFailure:
        """Return or raise the meaning of a response whose status is not 200."""
        status, key = response.status_code, self._provider.key
        body = await _read_error_body(response, min(deadline, asyncio.get_running_loop().time() + self._timeouts.connect_s))
        text = excerpt(body, key)
        logged = redact_parts(text, key) if status == HTTPStatus.UNAUTHORIZED else text
        _log.warning("generation.request_failed", status=status, response=logged)
        if status < HTTPStatus.BAD_REQUEST:
            raise ProviderResponseInvalid(f"its status is {status}; the address in ROOKERY_GENERATION may be wrong")
        failure = parse_failure(status, body, key)
        if (delay_s := find_retry_delay(response.headers.multi_items(), status, utc_now())) is not None:
            failure = replace(failure, retry_after_s=delay_s)
        if status == HTTPStatus.INTERNAL_SERVER_ERROR and find_named_part(failure, model=model) not in {None, "other"}:
            raise RequestRefusedError(failure)
        error = build_error(failure, key)
        if isinstance(error, (ProviderUnavailable, ProviderRateLimited)):
            return RetryableFailure(error, retry_after_s=failure.retry_after_s)
        if isinstance(error, ProviderAccessDenied):
            raise error
        raise RequestRefusedError(failure)

    def _require_open(self) -> None:
        if self._is_closed:
            raise ProviderUnavailable("the server is stopping")


def build_error(failure: ProviderFailure, key: Secret | None) -> ProviderError:
    """Return the error of the port for *failure*; *key* is the operator's, no part of which may be shown."""
    status, delay_s = failure.status, failure.retry_after_s
    retry_after_s = DEFAULT_RETRY_AFTER_S if delay_s is None else max(1, min(_MAX_RETRY_AFTER_S, math.ceil(delay_s)))
    message = failure.message or f"status {status}"
    if status == HTTPStatus.UNAUTHORIZED or (status == HTTPStatus.BAD_REQUEST and failure.names_wrong_key):
        return ProviderAccessDenied(status, _describe_wrong_key(failure, key))
    is_over_quota = status == HTTPStatus.TOO_MANY_REQUESTS and delay_s is None and _QUOTA_WORDS.search(message) is not None
    if status in _ACCESS_STATUSES or failure.code in _QUOTA_CODES or is_over_quota:
        return ProviderAccessDenied(status, message)
    if status == HTTPStatus.TOO_MANY_REQUESTS:
        return ProviderRateLimited(message, retry_after_s=retry_after_s)
    if is_temporary(status):
        reason = f"the provider answered with status {status}" + (f": {failure.message}" if failure.message else "")
        return ProviderUnavailable(reason, retry_after_s=retry_after_s, provider_status=status)
    return ProviderRefused(status, message)


def _describe_wrong_key(failure: ProviderFailure, key: Secret | None) -> str:
    """Return whose key is rejected, and the words of the provider without any part of a key."""
    reason = "the service behind it rejects the key that it has for it" if failure.is_of_upstream else "it rejects the configured key"
    words = redact_parts(failure.message, key)
    return f"{reason}: {words}" if words else reason


async def _read_error_body(response: httpx2.Response, until: float) -> bytes:
    """Return the start of the body as far as it arrives in time, and close the response."""
    body = bytearray()
    try:
        async with asyncio.timeout_at(until):
            async for part in response.aiter_bytes():
                body += part
                if len(body) >= MAX_ERROR_BYTES:
                    break
    except (TimeoutError, httpx2.HTTPError, httpx2.StreamError):
        pass
    finally:
        await response.aclose()
    return bytes(body[:MAX_ERROR_BYTES])
