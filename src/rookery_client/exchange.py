"""
An exchange: one call with its attempts. It decides what is sent, what a response means and when to try again. No I/O.

The synchronous and the asynchronous client differ only in how they send a request and wait.
"""

from __future__ import annotations

import json
import random
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar, cast

from pydantic import TypeAdapter, ValidationError

from rookery_client.api_errors import build_error
from rookery_client.calls import Call
from rookery_client.errors import ConnectionFailed, UnexpectedResponse

T = TypeVar("T")

_RETRIED_STATUSES = frozenset({408, 425, 429, 500, 502, 503, 504})
_UNTOUCHED_STATUSES = frozenset({425, 429, 503})
"""Statuses that say that the server has not acted on the request."""

_MAX_DELAY_S, _FIRST_DELAY_S = 8.0, 0.25
_SHOWN_CHARS = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """
    Options of a client.

    Attributes:
        timeout_s: Seconds until an attempt is given up. A stream has no such limit.
        max_retries: Further attempts after the first.
        max_retry_after_s: A longer Retry-After is not waited for: the error is raised at once.
    """

    timeout_s: float = 60.0
    max_retries: int = 3
    max_retry_after_s: float = 60.0


@dataclass(frozen=True, slots=True)
class Retry:
    """The decision to send the request again after *delay_s* seconds."""

    delay_s: float


@dataclass(slots=True)
class Exchange(Generic[T]):
    """
    A call in progress.

    Attributes:
        key: Idempotency-Key. A new one by default, the same in each attempt.
        attempts: The number of times that the request was sent, or is about to be.
    """

    call: Call[T]
    options: Options
    key: str = field(default_factory=lambda: str(uuid.uuid4()))
    attempts: int = 0

    @property
    def headers(self) -> dict[str, str]:
        """The headers of the request, without authorization."""
        headers = {"Accept": self.call.accept}
        if self.call.body is not None or self.call.content is not None:
            headers["Content-Type"] = self.call.content_type
        if self.call.accepts_key:
            headers["Idempotency-Key"] = self.key
        return headers | self.call.encode_headers()

    @property
    def _is_repeatable(self) -> bool:
        return self.call.is_repeatable or self.call.accepts_key

    def receive(self, status: int, headers: Mapping[str, str], content: bytes) -> T | Retry:
        """
        Return the result of a response, or the decision to try again.

        Raises:
            ApiError: The server refused the request.
            UnexpectedResponse: The response is not one of the API.
        """
        if status >= 400:
            return self._receive_error(status, headers, content)
        if self.call.reader == "nothing" or status == 204:
            return cast("T", None)
        if self.call.reader == "bytes":
            return cast("T", content)
        if self.call.reader == "text":
            return cast("T", content.decode("utf-8", "replace"))
        try:
            return TypeAdapter(self.call.result).validate_json(content)
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(map(str, first["loc"]))
            message = f"The response to {self.call.operation} does not match its schema: {place or 'the body'}: {first['msg']}."
            raise UnexpectedResponse(message, status=status, text=_shorten(content)) from error

    def fail(self, reason: str, *, may_have_acted: bool) -> Retry:
        """
        Return the decision to try again after a failed connection.

        Raises:
            ConnectionFailed: There is no further attempt, or it could act twice.
        """
        if self.attempts <= self.options.max_retries and (self._is_repeatable or not may_have_acted):
            return Retry(self._back_off())
        raise ConnectionFailed(f"{self.call.operation} has no response: {reason}", may_have_acted=may_have_acted)

    def _receive_error(self, status: int, headers: Mapping[str, str], content: bytes) -> Retry:
        retry_after_s = _read_retry_after(headers)
        body = _read_error_body(content)
        if self._is_retried(status, body, retry_after_s):
            return Retry(self._back_off() if retry_after_s is None else retry_after_s)
        if body is None:
            message = f"The response to {self.call.operation} has the status {status} and no error body of the API: {_shorten(content)!r}"
            raise UnexpectedResponse(message, status=status, text=_shorten(content))
        raise build_error(status, body, request_id=headers.get("x-request-id"), retry_after_s=retry_after_s)

    def _is_retried(self, status: int, body: Mapping[str, object] | None, retry_after_s: float | None) -> bool:
        if self.attempts > self.options.max_retries or (retry_after_s or 0.0) > self.options.max_retry_after_s:
            return False
        if body is not None and body.get("error") == "idempotency_in_progress":
            return True
        if status not in _RETRIED_STATUSES or (body is not None and "success" in body and status >= 500 and retry_after_s is None):
            return False  # a tool's own failure (spec 3.3): another attempt would run it again
        return self._is_repeatable or (status in _UNTOUCHED_STATUSES and retry_after_s is not None)

    def _back_off(self) -> float:
        """Return a random delay in seconds whose bound doubles with each attempt, so that clients do not return together."""
        bound_s = min(_MAX_DELAY_S, _FIRST_DELAY_S * 2 ** (self.attempts - 1))
        return random.uniform(bound_s / 2, bound_s)  # noqa: S311 - no secret


def _read_error_body(content: bytes) -> Mapping[str, object] | None:
    try:
        body: object = json.loads(content)
    except ValueError:
        return None
    if isinstance(body, dict) and isinstance(cast("dict[str, object]", body).get("error"), str):
        return cast("dict[str, object]", body)
    return None


def _read_retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds of Retry-After. The server never sends its other form, a date."""
    value = headers.get("retry-after", "")
    return float(value) if value.isdecimal() else None


def _shorten(content: bytes) -> str:
    return content[:_SHOWN_CHARS].decode("utf-8", "replace")
