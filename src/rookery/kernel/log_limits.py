"""Log lines that repeat: at most one a minute, with the number of those left out, and no traceback of an outage."""

from __future__ import annotations

import errno
import time
from collections.abc import Callable

import structlog

from rookery.kernel.errors import RookeryError

_LOG_INTERVAL_S = 60.0
_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})


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
        self._suppressed_count = 0

    def warn(self, **fields: object) -> None:
        """Log the warning with *fields*, or count it."""
        now_s = self._monotonic()
        if now_s - self._last_s < _LOG_INTERVAL_S:
            self._suppressed_count += 1
            return
        repeated = {"repeated": self._suppressed_count} if self._suppressed_count else {}
        self._last_s, self._suppressed_count = now_s, 0
        self._log.warning(self._event, **fields, **repeated)


class FailureLog:
    """
    The log of one kind of work that is tried again and again.

    An outage (a `RookeryError`, or a system call that finds the disk full) is one line a minute at most, without a traceback. Anything
    else is a mistake of ours, and logged whole.
    """

    def __init__(self, log: structlog.stdlib.BoundLogger, event: str, *, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._log = log
        self._event = event
        self._outages = LimitedWarning(log, event, monotonic=monotonic)

    def report(self, error: BaseException, **fields: object) -> None:
        """Log *error* with *fields*."""
        if isinstance(error, RookeryError):
            self._outages.warn(**fields, reason=error.message)
        elif isinstance(error, OSError) and error.errno in _NO_ROOM:
            self._outages.warn(**fields, reason=str(error))
        else:
            self._log.error(self._event, **fields, exc_info=error)
