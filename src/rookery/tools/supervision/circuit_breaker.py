"""When what keeps falling may be opened again: a back-off, and a breaker for what falls over and over (D-32)."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class SupervisionTimeouts:
    """
    How patient supervision is; seconds.

    Attributes:
        connect_timeout_s: One attempt to open a session, the start of a process included.
        probe_timeout_s: A server in which a call has waited in vain must answer anything at all within so long.
        initial_backoff_s: Back-off after the second failure in a row, doubled by each further one; the first costs none.
        max_backoff_s: Where the doubling stops.
        queue_timeout_s: A call may wait in line for a place.
        max_caller_wait_s: A caller waits out a back-off that is no longer; else it is told at once.
        stable_after_s: A session that lived so long, or answered a call, ends a row of failures.
        max_failures: So many failures within `failure_window_s`, answered calls in between or not, open the breaker.
        failure_window_s: A session that lived so long makes the breaker forget.
        open_duration_s: How long the breaker stays open the first time, doubled each time that the one probe after it fails too.
        max_open_duration_s: Where that doubling stops.
    """

    connect_timeout_s: float = 30.0
    probe_timeout_s: float = 15.0
    queue_timeout_s: float = 30.0
    initial_backoff_s: float = 0.2
    max_backoff_s: float = 30.0
    max_caller_wait_s: float = 1.0
    stable_after_s: float = 10.0
    max_failures: int = 10
    failure_window_s: float = 60.0
    open_duration_s: float = 30.0
    max_open_duration_s: float = 120.0


class CircuitBreaker:
    """
    The falls of one holder's sessions with one server; times are those of a monotonic clock, given by the caller.

    One holder's, not the server's: a workspace that makes its own session crash must not take the server from the others.

    Attributes:
        not_before: When it may be opened again.
        trips: How often in a row the breaker opened; 0: it is closed.
    """

    __slots__ = ("_consecutive_failures", "_failures", "_timeouts", "not_before", "trip_count")

    def __init__(self, timeouts: SupervisionTimeouts) -> None:
        self.not_before = 0.0
        self.trip_count = 0
        self._timeouts = timeouts
        self._consecutive_failures = 0
        self._failures: deque[float] = deque(maxlen=max(timeouts.max_failures, 1))

    def record_success(self) -> None:
        """Note an answered call, which ends a row of failures; the breaker it does not close: some crash after each answer."""
        self._consecutive_failures = 0

    def record_failure(self, now: float, open_for_s: float | None) -> float:
        """Note a failure, of a session that had been open for *open_for_s* (None: it never was); return how long to wait."""
        timing = self._timeouts
        if open_for_s is not None and open_for_s >= timing.stable_after_s:
            self._consecutive_failures = 0
        if open_for_s is not None and open_for_s >= timing.failure_window_s:
            self.trip_count = 0
            self._failures.clear()
        self._consecutive_failures += 1
        self._failures.append(now)
        delay = self._compute_delay(now)
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

    def describe_retry(self, now: float) -> str:
        """Return when it is tried again, as a caller is told."""
        left = f"it is tried again in {max(self.not_before - now, 1):.0f} s."
        return f"It keeps failing and is left alone for now: {left}" if self.trip_count else left.capitalize()
