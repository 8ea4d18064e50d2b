"""The pace at which a server that announces changes is listed again. No I/O."""

from __future__ import annotations

import math
from collections import deque

MIN_INTERVAL_S = 1.0
"""Minimum seconds between lists that change notifications cause."""
MAX_INTERVAL_S = 300.0
"""Maximum of the doubled interval."""
_MANY_CHANGES = 10
_MANY_CHANGES_S = 60.0


class ChangePacer:
    """
    The next list of one session that sends change notifications. Times are of a monotonic clock, in seconds.

    A notification that changes nothing doubles the interval, from 1 s to 5 minutes; a change resets it. Some servers announce a change
    whenever they are listed, and some alternate between two lists. So after ten changes within a minute, changes double an interval of
    their own, which halves when they become rare.
    """

    __slots__ = ("_changes", "_churn_s", "_idle_s", "_last_at", "is_scheduled")

    def __init__(self) -> None:
        self.is_scheduled = False
        """A list is scheduled, which includes all changes announced until then."""
        self._last_at = -math.inf
        self._idle_s = MIN_INTERVAL_S
        self._churn_s = MIN_INTERVAL_S
        self._changes: deque[float] = deque(maxlen=_MANY_CHANGES)

    def compute_start(self, now: float) -> float:
        """Return the time of the next list."""
        return max(self._last_at + max(self._idle_s, self._churn_s), now)

    def record_start(self, now: float) -> None:
        """Record the start of a list."""
        self.is_scheduled = False
        self._last_at = now

    def record_result(self, now: float, *, has_changed: bool) -> None:
        """Record what a list showed that a notification caused."""
        if not has_changed:
            self._idle_s = min(self._idle_s * 2, MAX_INTERVAL_S)
            return
        self._idle_s = MIN_INTERVAL_S
        is_churning = len(self._changes) == _MANY_CHANGES and now - self._changes[0] <= _MANY_CHANGES_S
        self._churn_s = min(self._churn_s * 2, MAX_INTERVAL_S) if is_churning else max(self._churn_s / 2, MIN_INTERVAL_S)
        self._changes.append(now)
