"""
The retry policy: the meaning of responses and the time of retries. No I/O, clock or settings.

A retry starts 60 seconds after the start of the failed attempt, or later if the receiver sends Retry-After.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from http import HTTPStatus

from rookery.kernel.clock import parse_retry_after
from rookery.webhooks.models import WebhookEndpoint

MAX_ATTEMPTS = 4
"""One attempt and at most three retries."""

RETRY_DELAY = timedelta(seconds=60)
MAX_RETRY_DELAY = timedelta(hours=1)
"""Maximum delay from Retry-After. Without it, a receiver could keep its deliveries open forever."""

MAX_FAILURES = 20
MAX_TIME_WITHOUT_SUCCESS = timedelta(hours=24)


def is_success(status: int) -> bool:
    """Return whether the status means success. A redirect does not, since we do not follow it."""
    return 200 <= status < 300


def describe_failure(status: int) -> str | None:
    """Return the reason of a failure; None for a success."""
    if is_success(status):
        return None
    if status == HTTPStatus.GONE:
        return "The endpoint answered 410 and receives no more deliveries."
    if 300 <= status < 400:
        return f"The endpoint answered {status}. Redirects are not followed."
    return f"The endpoint answered {status}."


def next_attempt_at(
    used_attempts: int, *, started_at: datetime, ended_at: datetime, status: int | None, retry_after: str | None
) -> datetime | None:
    """
    Return the time of the next attempt after a failure; None: no retry.

    Args:
        used_attempts: Counted attempts, including this one.
        status: The HTTP status; None: no response.
        retry_after: The header of that name. It can lengthen the delay but not shorten it.
    """
    if used_attempts >= MAX_ATTEMPTS or status == HTTPStatus.GONE:
        return None
    requested_s = parse_retry_after(retry_after, ended_at)
    usual = started_at + RETRY_DELAY
    return usual if requested_s is None else max(usual, ended_at + timedelta(seconds=min(requested_s, MAX_RETRY_DELAY.total_seconds())))


def should_disable(endpoint: WebhookEndpoint, now: datetime) -> bool:
    """Return whether an endpoint has failed for so long that it must be disabled; its `failures` include the latest."""
    last_success_at = max(endpoint.enabled_at, endpoint.last_success_at or endpoint.enabled_at)
    return endpoint.failures >= MAX_FAILURES and now - last_success_at >= MAX_TIME_WITHOUT_SUCCESS
