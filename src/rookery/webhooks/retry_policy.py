"""
What an answer means, and what follows from it (spec 6.2, D-81). Pure: no I/O, no clock, no settings.

Times are of the attempt: the next one starts 60 seconds after this one did, unless the receiver asks for more patience.
"""

from __future__ import annotations

import email.utils
import math
from datetime import UTC, datetime, timedelta

from rookery.webhooks.models import WebhookEndpoint

MAX_ATTEMPTS = 4
"""One attempt and at most three retries."""

RETRY_DELAY = timedelta(seconds=60)
MAX_RETRY_DELAY = timedelta(hours=1)
"""So much patience a receiver may ask for at most; else one could have its deliveries kept for ever."""

MAX_FAILURES = 20
MAX_TIME_WITHOUT_SUCCESS = timedelta(hours=24)

STATUS_GONE = 410


def is_success(status: int) -> bool:
    """Tell whether the receiver has it; a redirect is none, since we do not follow it."""
    return 200 <= status < 300


def describe_failure(status: int) -> str | None:
    """Return in words why an answer is no success; None if it is one."""
    if is_success(status):
        return None
    if status == STATUS_GONE:
        return "It answered 410: it wants no more deliveries."
    if 300 <= status < 400:
        return f"It answered {status}; redirects are not followed."
    return f"It answered {status}."


def next_attempt_at(
    used_attempts: int, *, started_at: datetime, ended_at: datetime, status: int | None, retry_after: str | None
) -> datetime | None:
    """
    Return when to try again after a failure.

    Args:
        used_attempts: Attempts used up, this one included.
        status: What was answered; None: nothing was.
        retry_after: The header of that name; it lengthens the pause and never shortens it.

    Returns:
        None: Not again.
    """
    if used_attempts >= MAX_ATTEMPTS or status == STATUS_GONE:
        return None
    asked = _parse_retry_after(retry_after, ended_at)
    usual = started_at + RETRY_DELAY
    return usual if asked is None else max(usual, ended_at + min(asked, MAX_RETRY_DELAY))


def should_disable(endpoint: WebhookEndpoint, now: datetime) -> bool:
    """Tell whether an endpoint has failed for so long that it is told nothing more; *failures* includes the newest."""
    last_heard = max(endpoint.enabled_at, endpoint.last_success_at or endpoint.enabled_at)
    return endpoint.failures >= MAX_FAILURES and now - last_heard >= MAX_TIME_WITHOUT_SUCCESS


def _parse_retry_after(retry_after: str | None, now: datetime) -> timedelta | None:
    """Read a Retry-After, in seconds or as a date (RFC 9110, 10.2.3); None for what is neither."""
    if retry_after is None:
        return None
    try:
        seconds = float(retry_after)
    except ValueError:
        try:
            until = email.utils.parsedate_to_datetime(retry_after)
        except (ValueError, OverflowError):  # the latter for a year of twenty digits
            return None
        return max(timedelta(), (until if until.tzinfo is not None else until.replace(tzinfo=UTC)) - now)
    if not math.isfinite(seconds) or seconds < 0:
        return None
    return timedelta(seconds=min(seconds, MAX_RETRY_DELAY.total_seconds()))
