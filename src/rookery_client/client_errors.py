"""Errors of the client that do not depend on a code of the API. `rookery_client.errors` has all of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

__all__ = [
    "ApiError",
    "AuthenticationError",
    "ClientError",
    "ConflictError",
    "ConnectionFailed",
    "ForbiddenError",
    "InvalidRequestError",
    "NotFoundError",
    "RateLimitError",
    "ResponseTimeout",
    "RookeryClientError",
    "ServerError",
    "UnexpectedResponse",
    "WebhookProblem",
    "WebhookRejected",
    "get_status_class",
]

WebhookProblem = Literal[
    "no_signature", "bad_signature", "wrong_signature", "no_timestamp", "bad_timestamp", "too_old", "too_new", "bad_body"
]


class RookeryClientError(Exception):
    """Base class of the client's errors."""

    def __reduce__(self) -> tuple[object, ...]:
        """Return how to copy the error, so that a worker process can send it to its parent."""
        return _restore, (type(self), self.args, self.__dict__)


class WebhookRejected(RookeryClientError):
    """
    A delivery that fails verification. The message contains no secret and no signature.

    Attributes:
        reason: Identifier of the failed check, for metrics and logs.
    """

    def __init__(self, reason: WebhookProblem, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class ConnectionFailed(RookeryClientError):
    """
    There is no response.

    Attributes:
        may_have_acted: True if the request was sent, so that the server may have acted on it.
    """

    def __init__(self, message: str, *, may_have_acted: bool) -> None:
        super().__init__(message)
        self.may_have_acted = may_have_acted


class ResponseTimeout(ConnectionFailed):
    """There is no response within `timeout_s`. A slow tool or generation may need a longer one: `client.with_options(timeout_s=300)`."""


class UnexpectedResponse(RookeryClientError):
    """
    A response that does not have the form of the API.

    Attributes:
        status: The HTTP status.
        text: The start of the body.
    """

    def __init__(self, message: str, *, status: int, text: str) -> None:
        super().__init__(message)
        self.status = status
        self.text = text


class ApiError(RookeryClientError):
    """
    An error response of the server.

    Attributes:
        status: The HTTP status.
        code: The server's code, such as `scope_missing`. A newer server may have codes that have no class here.
        message: What was wrong and what to do, for people.
        detail: Further fields of the body.
        request_id: The id of the request in the server's log.
        retry_after_s: Seconds to wait before another attempt, if the server says so.
    """

    def __init__(
        self,
        message: str,
        *,
        status: int,
        code: str,
        detail: Mapping[str, object],
        request_id: str | None = None,
        retry_after_s: float | None = None,
    ) -> None:
        super().__init__(f"{message} ({status} {code})")
        self.status = status
        self.code = code
        self.message = message
        self.detail = detail
        self.request_id = request_id
        self.retry_after_s = retry_after_s


class ClientError(ApiError):
    """The request was refused (4xx)."""


class ServerError(ApiError):
    """The server failed, or something that it needs (5xx)."""


class AuthenticationError(ClientError):
    """The key is missing or not valid (401)."""


class ForbiddenError(ClientError):
    """The key may not do this (403)."""


class NotFoundError(ClientError):
    """The resource does not exist in the workspace of the key (404)."""


class ConflictError(ClientError):
    """The state of the resource does not allow the request (409)."""


class InvalidRequestError(ClientError):
    """The request is not valid (422). `detail["errors"]` lists the problems of each field."""


class RateLimitError(ClientError):
    """A limit is reached (429). `retry_after_s` says how long to wait."""


_STATUS_CLASSES: Mapping[int, type[ApiError]] = {
    401: AuthenticationError,
    403: ForbiddenError,
    404: NotFoundError,
    409: ConflictError,
    422: InvalidRequestError,
    429: RateLimitError,
}


def get_status_class(status: int) -> type[ApiError]:
    """Return the class of the errors with an HTTP *status*."""
    return _STATUS_CLASSES.get(status) or (ServerError if status >= 500 else ClientError)


def _restore(error_class: type[RookeryClientError], arguments: tuple[object, ...], attributes: Mapping[str, object]) -> RookeryClientError:
    """Return the copy of an error, without a call of its constructor."""
    error = error_class.__new__(error_class, *arguments)
    error.__dict__.update(attributes)
    return error
