"""The meaning of outcomes: what is sent again, and when (D-70). Pure: no I/O, no settings."""

from __future__ import annotations

from datetime import datetime, timedelta

from rookery.notifications.messages import SendOutcome, SendResult
from rookery.notifications.models import NotificationState

RETRY_DELAYS_S = (2.0, 10.0, 60.0, 300.0, 900.0)
"""The delays after the first attempts that certainly did not arrive. After the last retry, the delivery fails."""

MAX_RETRY_AFTER_S = 3_600.0
"""Maximum delay from Retry-After. Without it, a service could keep a delivery open forever."""

MAX_REASON_LENGTH = 500

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
    if result.outcome is SendOutcome.BLOCKED:
        return ended_at
    if result.outcome is not SendOutcome.RETRY or used_attempts > len(RETRY_DELAYS_S):
        return None
    delay_s = max(RETRY_DELAYS_S[used_attempts - 1], min(result.retry_after_s or 0.0, MAX_RETRY_AFTER_S))
    retry_at = ended_at + timedelta(seconds=delay_s)
    return retry_at if retry_at < expires_at else None


def get_final_state(outcome: SendOutcome) -> NotificationState:
    """Return the state of a delivery that is not sent again."""
    return _FINAL_STATES.get(outcome, NotificationState.FAILED)


def clean_reason(text: str | None) -> str | None:
    """Return a reason that every store accepts."""
    return None if text is None else text.replace("\x00", "")[:MAX_REASON_LENGTH]
