"""
An exchange: one call with its attempts. It decides what is sent, what a response means and when to try again. No I/O.

The synchronous and the asynchronous client differ only in how they send a request and wait.
"""

from __future__ import annotations

import json
import random
import re
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Generic, TypeVar, cast

from pydantic import TypeAdapter, ValidationError

from rookery_client.api_errors import build_error
from rookery_client.calls import UNSET, Call
from rookery_client.client_errors import ConnectionFailed, ResponseTimeout, UnexpectedResponse

T = TypeVar("T")

_RETRIED_STATUSES = frozenset({408, 425, 429, 500, 502, 503, 504})
_UNTOUCHED_STATUSES = frozenset({425, 429, 503})
"""Statuses that say that the server has not acted on the request, except for one code."""

_UNKNOWN_OUTCOME = "engine_unavailable"
"""The code of a 503 after which the change may exist: the connection of the record store broke during the commit."""

_MAX_DELAY_S, _FIRST_DELAY_S = 8.0, 0.25
_SHOWN_CHARS = 500

EVENT_STREAM = "text/event-stream"

_HEADER_VALUE = re.compile(r"[\x21-\x7e]([\x20-\x7e\t]*[\x21-\x7e])?|", re.ASCII)
"""Printable ASCII without white space at its ends."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """
    Options of a client.

    Attributes:
        timeout_s: Seconds to wait for the connection, and for each part of the response.
        max_retries: Further attempts after the first.
        max_retry_after_s: A longer Retry-After is not waited for: the error is raised at once.
        headers: Headers of every request, beside those of the operation.
    """

    timeout_s: float = 60.0
    max_retries: int = 3
    max_retry_after_s: float = 60.0
    headers: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True, slots=True)
class Retry:
    """The decision to send the request again after *delay_s* seconds, because of *reason*."""

    delay_s: float
    reason: str = ""


@dataclass(slots=True)
class Exchange(Generic[T]):
    """
    A call in progress.

    Attributes:
        key: Idempotency-Key, the same in each attempt: that of the call, or a new one.
        attempts: The number of times that the request was sent, or is about to be.
        may_have_acted: An earlier attempt has an unknown outcome.
    """

    call: Call[T]
    options: Options
    key: str = ""
    attempts: int = 0
    may_have_acted: bool = False

    def __post_init__(self) -> None:
        if not self.key:
            given_key = self.call.idempotency_key
            self.key = str(uuid.uuid4()) if given_key is UNSET else given_key

    @property
    def headers(self) -> dict[str, str]:
        """
        The headers of the request, without those that the connection has.

        Raises:
            InvalidHeaderValue: A header contains a character that HTTP does not allow.
        """
        headers = {"Accept": self.call.accept}
        if self.call.body is not None or self.call.content is not None:
            headers["Content-Type"] = self.call.content_type
        if self.call.accepts_key:
            headers["Idempotency-Key"] = self.key
        own = self.call.encode_headers()
        replaced = {name.lower() for name in own}
        inherited = {name: value for name, value in self.options.headers.items() if name.lower() not in replaced}
        return check_headers(headers | inherited | own)

    @property
    def _is_repeatable(self) -> bool:
        # The answer to a repeated POST with a key is the stored one, which is no stream.
        return self.call.is_repeatable or (self.call.accepts_key and self.call.accept != EVENT_STREAM)

    def receive(self, status: int, headers: Mapping[str, str], content: bytes) -> T | Retry:
        """
        Return the result of a response, or the decision to try again.

        Raises:
            ApiError: The server refused the request.
            UnexpectedResponse: The response is not one of the API.
        """
        if status >= 400:
            return self._receive_error(status, headers, content)
        if status >= 300:
            self._reject_redirect(status, headers)
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
            problem = f"does not match its schema: {place or 'the body'}: {first['msg']}."
            if first["type"] == "json_invalid":
                problem = f"is not JSON, but {_shorten(content)!r}. Check `url`: a proxy or another program may have answered."
            raise UnexpectedResponse(f"The response to {self.call.operation} {problem}", status=status, text=_shorten(content)) from error

    def receive_stream(self, status: int, headers: Mapping[str, str]) -> None:
        """
        Check the head of the response of a stream whose status is below 400.

        Raises:
            UnexpectedResponse: The response is no stream of events.
        """
        if status >= 300:
            self._reject_redirect(status, headers)
        if status == 204:
            return
        media_type = headers.get("content-type", "")
        if media_type.partition(";")[0].strip().lower() != EVENT_STREAM:
            message = f"The response to {self.call.operation} is not a stream of events, but {media_type or 'has no content type'}."
            raise UnexpectedResponse(message, status=status, text="")

    def fail(self, reason: str, *, may_have_acted: bool, is_timeout: bool = False) -> Retry:
        """
        Return the decision to try again after a failed connection.

        Raises:
            ResponseTimeout: The time-out is over, and there is no further attempt, or it could act twice.
            ConnectionFailed: The same for other reasons.
        """
        self.may_have_acted |= may_have_acted
        if self.attempts <= self.options.max_retries and (self._is_repeatable or not may_have_acted):
            return Retry(self._back_off(), reason)
        failure = ResponseTimeout if is_timeout else ConnectionFailed
        outcome = ". The server may have acted on the request." if self.may_have_acted and not self.call.is_repeatable else ""
        raise failure(f"{self.call.operation} has no response: {reason}{outcome}", may_have_acted=self.may_have_acted)

    def _receive_error(self, status: int, headers: Mapping[str, str], content: bytes) -> T | Retry:
        retry_after_s = _read_retry_after(headers)
        body = _read_error_body(content)
        if self._is_retried(status, body, retry_after_s):
            self.may_have_acted |= _may_have_acted(status, body)
            return Retry(self._back_off() if retry_after_s is None else retry_after_s, f"status {status}")
        if body is None:
            message = f"The response to {self.call.operation} has the status {status} and no error body of the API: {_shorten(content)!r}"
            raise UnexpectedResponse(message, status=status, text=_shorten(content))
        if self.call.method == "DELETE" and self.may_have_acted and body["error"] == "resource_not_found":
            return cast("T", None)  # the earlier attempt, whose answer was lost, has deleted it
        raise build_error(status, body, request_id=headers.get("x-request-id"), retry_after_s=retry_after_s)

    def _reject_redirect(self, status: int, headers: Mapping[str, str]) -> None:
        """Raise an error: a key must not follow a redirect to another host."""
        target = headers.get("location", "an unknown address")
        message = f"The response to {self.call.operation} is a redirect to {target}. Set `url` to the address of the server itself."
        raise UnexpectedResponse(message, status=status, text="")

    def _is_retried(self, status: int, body: Mapping[str, object] | None, retry_after_s: float | None) -> bool:
        if self.attempts > self.options.max_retries or (retry_after_s or 0.0) > self.options.max_retry_after_s:
            return False
        if body is not None and body.get("error") == "idempotency_in_progress":
            return True
        if status not in _RETRIED_STATUSES or (body is not None and "success" in body and status >= 500 and retry_after_s is None):
            return False  # a tool's own failure: another attempt would run it again
        return self._is_repeatable or (retry_after_s is not None and not _may_have_acted(status, body))

    def _back_off(self) -> float:
        """Return a random delay in seconds whose bound doubles with each attempt, so that clients do not return together."""
        bound_s = min(_MAX_DELAY_S, _FIRST_DELAY_S * 2 ** (self.attempts - 1))
        return random.uniform(bound_s / 2, bound_s)  # noqa: S311 - no secret


class InvalidHeaderValue(ValueError):
    """A value that cannot be the value of a header."""


def check_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """
    Return *headers*.

    Raises:
        InvalidHeaderValue: A value contains a line break or another character that is not printable ASCII. The message does not quote it.
    """
    for name, value in headers.items():
        if not _HEADER_VALUE.fullmatch(value):
            raise InvalidHeaderValue(f"The header {name} may contain only printable ASCII characters, and no white space at its ends.")
    return dict(headers)


def _may_have_acted(status: int, body: Mapping[str, object] | None) -> bool:
    return status not in _UNTOUCHED_STATUSES or (body is not None and body["error"] == _UNKNOWN_OUTCOME)


def _read_error_body(content: bytes) -> Mapping[str, object] | None:
    try:
        body: object = json.loads(content)
    except (ValueError, RecursionError):  # the latter: it is nested thousands of levels deep
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
