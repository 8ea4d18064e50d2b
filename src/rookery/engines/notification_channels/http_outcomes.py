"""The outcomes of HTTP requests: what a status or a failed connection means for a message."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from http import HTTPStatus

from rookery.kernel.clock import parse_retry_after
from rookery.kernel.egress.http_client import PostFailed, PostResponse
from rookery.notifications.messages import SendOutcome, SendResult

_TEMPORARY = frozenset({HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.TOO_EARLY, HTTPStatus.TOO_MANY_REQUESTS})
_GONE = frozenset({HTTPStatus.NOT_FOUND, HTTPStatus.GONE})


def evaluate_response(
    response: PostResponse, now: datetime, *, service: str, detail: str = "", temporary: Collection[int] = ()
) -> SendResult:
    """
    Return the result of a request that was answered. A limit of the service, named by 429 or Retry-After, concerns all messages to it.

    Args:
        service: The name of the service in the reason, such as "The receiver".
        detail: What the service gave as its reason, without secrets.
        temporary: Further statuses by which this kind of service asks for another attempt.
    """
    status = response.status
    if 200 <= status < 300:
        return SendResult(outcome=SendOutcome.SENT, status=status)
    reason = f"{service} answered {status}" + (f" ({detail})." if detail else ".")
    if status in _GONE:
        return SendResult(outcome=SendOutcome.GONE, status=status, reason=reason)
    if status in _TEMPORARY or status in temporary or status >= 500:
        retry_after_s = parse_retry_after(response.headers.get("retry-after"), now)
        return SendResult(
            outcome=SendOutcome.RETRY,
            status=status,
            reason=reason,
            retry_after_s=retry_after_s,
            concerns_host=status == HTTPStatus.TOO_MANY_REQUESTS or bool(retry_after_s),
        )
    if 300 <= status < 400:
        reason += " Redirects are not followed."
    return SendResult(outcome=SendOutcome.REJECTED, status=status, reason=reason)


def evaluate_failure(failure: PostFailed) -> SendResult:
    """Return the result of a request that was not answered."""
    if failure.is_forbidden:
        return SendResult(outcome=SendOutcome.REJECTED, reason=failure.message)
    return SendResult(outcome=SendOutcome.UNKNOWN if failure.may_have_arrived else SendOutcome.RETRY, reason=failure.message)
