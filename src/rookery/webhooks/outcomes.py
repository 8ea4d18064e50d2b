"""
What an answer means, and what follows from it (spec 6.2, D-81). Pure: no I/O, no clock, no settings.

Times are of the attempt: the next one starts 60 seconds after this one did, unless the receiver asks for more patience.
"""

from __future__ import annotations

import email.utils
import math
from datetime import UTC, datetime, timedelta

from rookery.webhooks.models import Endpoint

TRIES = 4
"""One attempt and at most three retries."""

PAUSE = timedelta(seconds=60)
LONGEST_PAUSE = timedelta(hours=1)
"""So much patience a receiver may ask for at most; else one could have its deliveries kept for ever."""

MOST_FAILURES = 20
MOST_SILENCE = timedelta(hours=24)

GONE = 410


def is_success(status: int) -> bool:
    """Tell whether the receiver has it; a redirect is none, since we do not follow it."""
    return 200 <= status < 300


def says(status: int) -> str | None:
    """Return in words why an answer is no success; None if it is one."""
    if is_success(status):
        return None
    if status == GONE:
        return "It answered 410: it wants no more deliveries."
    if 300 <= status < 400:
        return f"It answered {status}; redirects are not followed."
    return f"It answered {status}."


def next_try(spent: int, *, started_at: datetime, ended_at: datetime, status: int | None, retry_after: str | None) -> datetime | None:
    """
    Return when to try again after a failure.

    Args:
        spent: Attempts used up, this one included.
        status: What was answered; None: nothing was.
        retry_after: The header of that name; it lengthens the pause and never shortens it.

    Returns:
        None: Not again.
    """
    if spent >= TRIES or status == GONE:
        return None
    asked = _seconds(retry_after, ended_at)
    usual = started_at + PAUSE
    return usual if asked is None else max(usual, ended_at + min(asked, LONGEST_PAUSE))


def must_be_disabled(endpoint: Endpoint, now: datetime) -> bool:
    """Tell whether an endpoint has failed for so long that it is told nothing more; *failures* includes the newest."""
    last_heard = max(endpoint.enabled_at, endpoint.last_success_at or endpoint.enabled_at)
    return endpoint.failures >= MOST_FAILURES and now - last_heard >= MOST_SILENCE


def _seconds(retry_after: str | None, now: datetime) -> timedelta | None:
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
    return timedelta(seconds=min(seconds, LONGEST_PAUSE.total_seconds()))
