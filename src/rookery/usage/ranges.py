"""The range of days of a report: two days, a calendar month, or the last days. Days are in UTC, as those of budgets. No I/O."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

from rookery.usage.errors import InvalidRange

THIS_MONTH, LAST_MONTH = "this", "last"
DEFAULT_DAYS = 30

DAYS_PATTERN = r"^[1-9][0-9]{0,4}d$"
MONTH_PATTERN = rf"^(?:{THIS_MONTH}|{LAST_MONTH}|[0-9]{{4}}-(?:0[1-9]|1[0-2]))$"

_DAYS = re.compile(DAYS_PATTERN)
_MONTH = re.compile(MONTH_PATTERN)


@dataclass(frozen=True, slots=True)
class DayRange:
    """Consecutive days; both ends are inclusive."""

    since: date
    until: date


def resolve_range(
    now: datetime, *, since: date | None = None, until: date | None = None, month: str | None = None, last: str | None = None
) -> DayRange:
    """
    Return the days that a request names; the last 30 days if it names none.

    Args:
        since, until: The first and the last day. Without *until*, the range ends today.
        month: A month such as `2026-11`, `this` or `last`. The present month ends today.
        last: A number of days that end today, such as `7d`.

    Raises:
        InvalidRange: Several of these are given, one of them is invalid, or *since* is after *until*.
    """
    today = now.astimezone(UTC).date()
    names = [name for name, value in (("month", month), ("last", last)) if value is not None]
    if len(names) > 1 or (names and (since is not None or until is not None)):
        raise InvalidRange(names[0], "cannot be combined with another range: use since and until, or month, or last")
    if month is not None:
        return _resolve_month(month, today)
    if last is not None:
        if not _DAYS.fullmatch(last):
            raise InvalidRange("last", f"must be a number of days such as 7d, not {last!r}")
        return _resolve_last(int(last[:-1]), today)
    end = today if until is None else until
    if since is None:
        return _resolve_last(DEFAULT_DAYS, end)
    if since > end:
        raise InvalidRange("since", f"is after the last day, {end}")
    return DayRange(since, end)


def _resolve_last(days: int, end: date) -> DayRange:
    return DayRange(date.fromordinal(max(1, end.toordinal() - days + 1)), end)


def _resolve_month(month: str, today: date) -> DayRange:
    if not _MONTH.fullmatch(month):
        raise InvalidRange("month", f"must be a month such as 2026-11, {THIS_MONTH} or {LAST_MONTH}, not {month!r}")
    first = today.replace(day=1)
    if month == LAST_MONTH:
        first = (first - timedelta(days=1)).replace(day=1)
    elif month != THIS_MONTH:
        year = int(month[:4])
        if year < 1:
            raise InvalidRange("month", f"must be a month such as 2026-11, not {month!r}")
        first = date(year, int(month[5:]), 1)
    following = date(9999, 12, 31) if (first.year, first.month) == (9999, 12) else _following_month(first)
    return DayRange(first, max(first, min(today, following - timedelta(days=1))))


def _following_month(first: date) -> date:
    return date(first.year + first.month // 12, first.month % 12 + 1, 1)
