"""The delay that a service asks for before the next request, under any of the names that services and proxies use. No I/O."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from datetime import UTC, datetime
from http import HTTPStatus

from rookery.kernel.clock import parse_retry_after

_DURATION = re.compile(
    r"(?:(?P<days>\d+(?:\.\d+)?)d)?(?:(?P<hours>\d+(?:\.\d+)?)h)?(?:(?P<minutes>\d+(?:\.\d+)?)m(?!s))?"
    r"(?:(?P<seconds>\d+(?:\.\d+)?)s)?(?:(?P<milliseconds>\d+(?:\.\d+)?)ms)?",
    re.IGNORECASE,
)
_UNIT_SECONDS = {"days": 86_400.0, "hours": 3_600.0, "minutes": 60.0, "seconds": 1.0, "milliseconds": 0.001}
_MIN_EPOCH_S, _MIN_EPOCH_MS = 1e9, 1e12
"""A larger number is a time since 1970 in seconds, or in milliseconds, and not a delay."""

_MAX_TEXT_CHARS = 64
_DELAY_NAME = re.compile(r"(?:^|[-_])retry-after(?P<unit>-ms)?$")
_RESET_NAME = re.compile(r"rate-?limit-(?:[a-z-]*-)?reset")
"""`x-ratelimit-reset-tokens`, `anthropic-ratelimit-tokens-reset`, `x-ratelimit-reset`, `ratelimit-reset`, with any prefix."""

_STRUCTURED_RESET = re.compile(r"\b(?:t|reset)=(\d{1,9})\b")
"""The end of the window in `RateLimit: "default";r=0;t=7`, or in an older form of it."""


def find_retry_delay(headers: Iterable[tuple[str, str]], status: int, now: datetime) -> float | None:
    """
    Return the seconds from *now* until the service allows another request; None if no header says it.

    `retry-after-ms` is more exact than `Retry-After`, also under a prefix such as `llm_provider-`. After a 429, the ends of exhausted
    rate limits count if there is neither.
    """
    fields = [(name.lower(), value.strip()) for name, value in headers]
    delays = [(match["unit"] is None, name != "retry-after", name, value) for name, value in fields if (match := _DELAY_NAME.search(name))]
    for is_in_seconds, _, _, value in sorted(delays, key=lambda delay: delay[:2]):
        seconds = _parse_delay(value, now)
        if seconds is not None:
            return seconds if is_in_seconds else seconds / 1000
    return _find_reset(fields, now) if status == HTTPStatus.TOO_MANY_REQUESTS else None


def parse_duration(text: str) -> float | None:
    """Return the seconds of a number or of a duration such as `6m0s`, `1.5s` or `20ms`; None if it is neither."""
    text = text.strip()[:_MAX_TEXT_CHARS]
    try:
        seconds = float(text)
    except ValueError:
        match = _DURATION.fullmatch(text)
        if match is None or not text:
            return None
        seconds = sum(float(value) * _UNIT_SECONDS[unit] for unit, value in match.groupdict().items() if value is not None)
    return seconds if math.isfinite(seconds) and seconds >= 0 else None


def _parse_delay(text: str, now: datetime) -> float | None:
    """Return the seconds of a number, a duration, a date of HTTP or ISO 8601, or a time since 1970."""
    seconds = parse_duration(text)
    if seconds is not None:
        if seconds >= _MIN_EPOCH_MS:
            seconds /= 1000
        return max(0.0, seconds - now.timestamp()) if seconds >= _MIN_EPOCH_S else seconds
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        delay = parse_retry_after(text, now)
        if delay is not None or "," not in text:
            return delay
        delays = [parse_duration(part) for part in text.split(",")]  # the same header twice
        return max((delay for delay in delays if delay is not None), default=None)
    return max(0.0, ((moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)) - now).total_seconds())


def _find_reset(fields: list[tuple[str, str]], now: datetime) -> float | None:
    """Return the seconds until the exhausted rate limits start again; until all of them do if the service does not say which are."""
    values = dict(fields)
    for name, value in fields:
        if name == "ratelimit" and (reset := _STRUCTURED_RESET.search(value)) is not None:
            return float(reset[1])
    exhausted, unknown = list[float](), list[float]()
    for name, value in fields:
        seconds = _parse_delay(value, now) if _RESET_NAME.search(name) else None
        remaining = parse_duration(values.get(name.replace("reset", "remaining"), ""))
        if seconds is not None and not remaining:
            (unknown if remaining is None else exhausted).append(seconds)
    return max(exhausted or unknown, default=None)
