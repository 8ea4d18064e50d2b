"""Log lines that repeat: at most one a minute, with the number of those left out."""

from __future__ import annotations

import time
from collections.abc import Callable

import structlog

_INTERVAL_S = 60.0


class LimitedWarning:
    """
    A warning that is logged once a minute at most, however often its cause comes.

    Args:
        log: Where it goes.
        event: Its name.
        monotonic: Seconds of a clock that never goes back; tests pass their own.
    """

    def __init__(self, log: structlog.stdlib.BoundLogger, event: str, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._log = log
        self._event = event
        self._monotonic = monotonic
        self._last_s = float("-inf")
        self._left_out = 0

    def warn(self, **fields: object) -> None:
        """Log the warning with *fields*, or count it."""
        now_s = self._monotonic()
        if now_s - self._last_s < _INTERVAL_S:
            self._left_out += 1
            return
        repeated = {"repeated": self._left_out} if self._left_out else {}
        self._last_s, self._left_out = now_s, 0
        self._log.warning(self._event, **fields, **repeated)
