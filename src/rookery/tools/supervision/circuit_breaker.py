"""Back-off and circuit breaker for sessions that fail repeatedly."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass

from rookery.kernel.sentences import end_sentence
from rookery.tools.models import DEFAULT_START_TIMEOUT_S


@dataclass(frozen=True, slots=True, kw_only=True)
class SupervisionTimeouts:
    """
    Timing of supervision, in seconds.

    Attributes:
        connect_timeout_s: Time-out of one attempt to open a session, including the start of a process.
        probe_timeout_s: Time within which a server must answer a probe after a call timed out.
        initial_backoff_s: Back-off after the second consecutive failure, doubled by each further one. The first has none.
        max_backoff_s: Maximum of the doubled back-off.
        start_timeout_backoff_s: Minimum back-off after a start that timed out.
        max_caller_wait_s: The longest back-off that a caller waits for. A longer one is returned as an error at once.
        stable_after_s: A session open for this long, or an answered call, ends a series of failures.
        max_failures: Failures within `failure_window_s` that open the breaker, regardless of answered calls in between.
        failure_window_s: A session open for this long resets the breaker.
        open_duration_s: Time for which the breaker stays open, doubled each time that the probe after it fails too.
        max_open_duration_s: Maximum of the doubled open duration.
        max_retry_after_s: Maximum of the delay that a server may ask for (`Retry-After`).
    """

    connect_timeout_s: float = DEFAULT_START_TIMEOUT_S
    probe_timeout_s: float = 15.0
    initial_backoff_s: float = 0.2
    max_backoff_s: float = 30.0
    start_timeout_backoff_s: float = 30.0
    max_caller_wait_s: float = 1.0
    stable_after_s: float = 10.0
    max_failures: int = 10
    failure_window_s: float = 60.0
    open_duration_s: float = 30.0
    max_open_duration_s: float = 120.0
    max_retry_after_s: float = 600.0


class CircuitBreaker:
    """
    The back-off and circuit breaker of one holder's sessions with one server. The caller passes times of a monotonic clock.

    It is per holder, so that a workspace that crashes its own session does not block the server for others.

    Attributes:
        not_before: The earliest time of the next attempt.
        trip_count: The number of consecutive trips of the breaker; 0: it is closed.
    """

    __slots__ = ("_consecutive_failures", "_failures", "_timeouts", "not_before", "trip_count")

    def __init__(self, timeouts: SupervisionTimeouts) -> None:
        self.not_before = 0.0
        self.trip_count = 0
        self._timeouts = timeouts
        self._consecutive_failures = 0
        self._failures: deque[float] = deque(maxlen=max(timeouts.max_failures, 1))

    def record_success(self) -> None:
        """Record an answered call, which ends a series of failures. It does not close the breaker: some servers crash after each answer."""
        self._consecutive_failures = 0

    def record_failure(
        self, now: float, open_for_s: float | None, *, is_timeout: bool = False, retry_after_s: float | None = None
    ) -> float:
        """
        Record a failure of a session that was open for *open_for_s* (None: never opened). Return the seconds until the next attempt.

        After the time-out of a start (*is_timeout*) they are at least `start_timeout_backoff_s`, so that callers do not wait for the next.
        They are at least what the server asked for, *retry_after_s*, up to `max_retry_after_s`.
        """
        timing = self._timeouts
        if open_for_s is not None and open_for_s >= timing.stable_after_s:
            self._consecutive_failures = 0
        if open_for_s is not None and open_for_s >= timing.failure_window_s:
            self.trip_count = 0
            self._failures.clear()
        self._consecutive_failures += 1
        self._failures.append(now)
        requested = min(retry_after_s or 0.0, timing.max_retry_after_s)
        delay = max(self._compute_delay(now), timing.start_timeout_backoff_s if is_timeout else 0.0, requested)
        self.not_before = now + delay
        return delay

    def _compute_delay(self, now: float) -> float:
        timing = self._timeouts
        is_full = len(self._failures) == self._failures.maxlen and now - self._failures[0] <= timing.failure_window_s
        if self.trip_count or is_full:
            self.trip_count += 1
            return min(timing.open_duration_s * 2.0 ** min(self.trip_count - 1, 16), timing.max_open_duration_s)
        if self._consecutive_failures == 1:
            return 0.0
        return min(timing.initial_backoff_s * 2.0 ** min(self._consecutive_failures - 2, 16), timing.max_backoff_s)

    def compute_retry_s(self, now: float) -> int:
        """Return the whole seconds until the next attempt; at least 1."""
        return max(math.ceil(self.not_before - now), 1)

    def describe_retry(self, reason: str, now: float) -> str:
        """Return the message of a call that does not wait for the next attempt: the *reason* of the last failure, and the time."""
        retry = f"the next attempt is in {self.compute_retry_s(now)} s."
        sentence = f"It keeps failing, so attempts are paused: {retry}" if self.trip_count else retry.capitalize()
        return f"{end_sentence(reason)} {sentence}" if reason else sentence
