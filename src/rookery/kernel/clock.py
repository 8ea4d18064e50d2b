"""Time: passed in as a `Clock`, kept in UTC, stored as whole microseconds, shown as ISO 8601 with Z."""

from __future__ import annotations

import email.utils
import math
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

Clock = Callable[[], datetime]
"""Returns the current time, aware and in UTC. Tests pass their own."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def utc_now() -> datetime:
    """Return the current time in UTC."""
    return datetime.now(UTC)


def to_micros(moment: datetime) -> int:
    """Return *moment* (aware) as whole microseconds since 1970, exactly."""
    return (moment - _EPOCH) // _MICROSECOND


def from_micros(count: int) -> datetime:
    """Return the UTC time that is *count* microseconds after 1970, the inverse of `to_micros`."""
    return _EPOCH + timedelta(microseconds=count)


def format_iso(moment: datetime) -> str:
    """Return *moment* as 2026-11-21T09:30:00.000123Z, always with six decimals, so that texts sort in the order of time."""
    return moment.astimezone(UTC).isoformat(timespec="microseconds")[:-6] + "Z"


def parse_iso(text: str) -> datetime:
    """
    Parse an ISO 8601 time. A date without a time means midnight, and a time without a zone is in UTC.

    Raises:
        ValueError: The text is not ISO 8601, or the time is outside the years 1 to 9999 in UTC.
    """
    moment = datetime.fromisoformat(text)
    try:
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except OverflowError as error:
        msg = f"{text!r} is outside the years 1 to 9999 in UTC"
        raise ValueError(msg) from error


def parse_retry_after(text: str | None, now: datetime) -> float | None:
    """Return the seconds from *now* in a Retry-After header, a number or a date (RFC 9110, 10.2.3); None if it is missing or invalid."""
    if text is None:
        return None
    try:
        seconds = float(text)
    except ValueError:
        try:
            until = email.utils.parsedate_to_datetime(text)
        except (ValueError, OverflowError):  # OverflowError for a year of twenty digits
            return None
        return max(0.0, ((until if until.tzinfo is not None else until.replace(tzinfo=UTC)) - now).total_seconds())
    return seconds if math.isfinite(seconds) and seconds >= 0 else None
