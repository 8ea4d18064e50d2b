"""The meaning of outcomes: what is sent again, and when. Pure: no I/O, no settings."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from datetime import datetime, timedelta

from rookery.notifications.messages import SendOutcome, SendResult
from rookery.notifications.models import NotificationState

RETRY_DELAYS_S = (2.0, 10.0, 60.0, 300.0, 900.0)
"""The delays after the first attempts that certainly did not arrive. After the last retry, the delivery fails."""

MAX_RETRY_AFTER_S = 3_600.0
"""Maximum delay from Retry-After. Without it, a service could keep a delivery open forever."""

MAX_REASON_LENGTH = 500

_FIRST_LIMIT_DELAY = 2
"""The place in `RETRY_DELAYS_S` of the first wait of a host that named a limit or a fault. One that is down is tried sooner."""

_MARGIN, _SPREAD = 0.02, 0.03
"""
Parts of a wait that are added to it: always the first, because a limit per minute counts whole seconds, and up to the second, so that hosts
that began to wait together are not tried together.
"""

_SPREAD_STEPS = 1_000

_FINAL_STATES = {
    SendOutcome.SENT: NotificationState.SENT,
    SendOutcome.REJECTED: NotificationState.FAILED,
    SendOutcome.GONE: NotificationState.FAILED,
    SendOutcome.UNKNOWN: NotificationState.UNKNOWN,
}


def get_next_attempt(result: SendResult, *, used_attempts: int, ended_at: datetime, expires_at: datetime) -> datetime | None:
    """
    Return the time of the next attempt; None: it is not sent again.

    Args:
        result: The result of the latest attempt.
        used_attempts: The attempts that count, this one included.
        ended_at: The end of the attempt.
        expires_at: After this time nothing is sent.
    """
    if result.outcome is SendOutcome.BLOCKED or result.concerns_host:
        return ended_at
    if result.outcome is not SendOutcome.RETRY or used_attempts > len(RETRY_DELAYS_S):
        return None
    delay_s = max(RETRY_DELAYS_S[used_attempts - 1], min(result.retry_after_s or 0.0, MAX_RETRY_AFTER_S))
    retry_at = ended_at + timedelta(seconds=delay_s)
    return retry_at if retry_at < expires_at else None


def get_host_wait_s(result: SendResult, *, refusal_count: int, name: str) -> float:
    """
    Return the seconds for which a host gets no message.

    Args:
        result: The latest refusal.
        refusal_count: The refusals in a row, this one included.
        name: The host, from which the spread follows.
    """
    delays = _list_host_delays_s(result)
    delay_s = delays[min(refusal_count, len(delays)) - 1]
    delay_s *= 1 + _MARGIN + _SPREAD * (zlib.crc32(f"{name} {refusal_count}".encode()) % _SPREAD_STEPS) / _SPREAD_STEPS
    if result.retry_after_s:
        # A host that refuses again after its own Retry-After is not taken at its word a second time.
        delay_s = max(min(result.retry_after_s, MAX_RETRY_AFTER_S), delay_s if refusal_count > 1 else 0.0)
    return delay_s if result.resets_in_s is None else min(delay_s, result.resets_in_s)


def _list_host_delays_s(result: SendResult) -> Sequence[float]:
    """Return the waits of a host in order: as for a message at first, then up to an hour, until the messages expire."""
    *delays, before_last, last = RETRY_DELAYS_S
    is_named = (result.concerns_host and result.status is not None) or result.outcome is not SendOutcome.RETRY
    first = _FIRST_LIMIT_DELAY if is_named else 0
    return (*delays[first:], before_last, 2 * before_last, last, 2 * last, 4 * last)


def get_final_state(outcome: SendOutcome) -> NotificationState:
    """Return the state of a delivery that is not sent again."""
    return _FINAL_STATES.get(outcome, NotificationState.FAILED)


def clean_reason(text: str | None) -> str | None:
    """Return a reason that every store accepts."""
    return None if text is None else text.replace("\x00", "")[:MAX_REASON_LENGTH]
