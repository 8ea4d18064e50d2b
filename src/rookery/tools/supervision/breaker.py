"""When what keeps falling may be opened again: a back-off, and a breaker for what falls over and over (D-32)."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """
    How patient supervision is; seconds.

    Attributes:
        connect_s: One attempt to open a session, the start of a process included.
        probe_s: A server in which a call has waited in vain must answer anything at all within so long.
        first_delay_s: Back-off after the second failure in a row, doubled by each further one; the first costs none.
        last_delay_s: Where the doubling stops.
        queue_s: A call may wait in line for a place.
        patience_s: A caller waits out a back-off that is no longer; else it is told at once.
        settled_s: A session that lived so long, or answered a call, ends a row of failures.
        falls: So many failures within `window_s`, answered calls in between or not, open the breaker.
        window_s: A session that lived so long makes the breaker forget.
        open_s: How long the breaker stays open the first time, doubled each time that the one probe after it fails too.
        longest_s: Where that doubling stops.
    """

    connect_s: float = 30.0
    probe_s: float = 15.0
    queue_s: float = 30.0
    first_delay_s: float = 0.2
    last_delay_s: float = 30.0
    patience_s: float = 1.0
    settled_s: float = 10.0
    falls: int = 10
    window_s: float = 60.0
    open_s: float = 30.0
    longest_s: float = 120.0


class Breaker:
    """
    The falls of one holder's sessions with one server; times are those of a monotonic clock, given by the caller.

    One holder's, not the server's: a workspace that makes its own session crash must not take the server from the others.

    Attributes:
        not_before: When it may be opened again.
        trips: How often in a row the breaker opened; 0: it is closed.
    """

    __slots__ = ("_falls", "_row", "_timing", "not_before", "trips")

    def __init__(self, timing: Timing) -> None:
        self.not_before = 0.0
        self.trips = 0
        self._timing = timing
        self._row = 0
        self._falls: deque[float] = deque(maxlen=max(timing.falls, 1))

    def proved(self) -> None:
        """Note an answered call, which ends a row of failures; the breaker it does not close: some crash after each answer."""
        self._row = 0

    def fell(self, now: float, lived_s: float | None) -> float:
        """Note a failure, of a session that had been open for *lived_s* (None: it never was); return how long to wait."""
        timing = self._timing
        if lived_s is not None and lived_s >= timing.settled_s:
            self._row = 0
        if lived_s is not None and lived_s >= timing.window_s:
            self.trips = 0
            self._falls.clear()
        self._row += 1
        self._falls.append(now)
        delay = self._delay(now)
        self.not_before = now + delay
        return delay

    def _delay(self, now: float) -> float:
        timing = self._timing
        is_full = len(self._falls) == self._falls.maxlen and now - self._falls[0] <= timing.window_s
        if self.trips or is_full:
            self.trips += 1
            return min(timing.open_s * 2.0 ** min(self.trips - 1, 16), timing.longest_s)
        if self._row == 1:
            return 0.0
        return min(timing.first_delay_s * 2.0 ** min(self._row - 2, 16), timing.last_delay_s)

    def words(self, now: float) -> str:
        """Return when it is tried again, as a caller is told."""
        left = f"it is tried again in {max(self.not_before - now, 1):.0f} s."
        return f"It keeps failing and is left alone for now: {left}" if self.trips else left.capitalize()
