"""Back-off of background indexing while requests are served."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

_IDLE_GAP_S = 0.004
"""Seconds without a request that count as idle. A client that sends requests one after the other returns sooner."""

_MAX_WAIT_S = 0.15
"""Maximum wait before a batch. A batch of 32 takes about 0.1 s, so indexing gets two fifths of the time under constant load."""


class ForegroundBackoff:
    """
    A back-off that delays background work until no request was served for a moment, or until a maximum wait has passed.

    On a machine of two cores, embedding takes one core. It also competes with the requests for the other core and for the interpreter
    lock.

    Args:
        monotonic: A clock in seconds that never goes back; tests pass their own, and a *sleep* that advances it.
    """

    def __init__(
        self,
        *,
        idle_gap_s: float = _IDLE_GAP_S,
        max_wait_s: float = _MAX_WAIT_S,
        monotonic: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._idle_gap_s = idle_gap_s
        self._max_wait_s = max_wait_s
        self._monotonic = monotonic
        self._sleep = sleep
        self._active_count = 0
        self._last_end_s = float("-inf")

    def begin_request(self) -> None:
        """Record the start of a request. `end_request` must follow."""
        self._active_count += 1

    def end_request(self) -> None:
        """Record the end of a request."""
        self._active_count -= 1
        self._last_end_s = self._monotonic()

    async def wait_for_idle(self) -> None:
        """Return at the first idle moment, or after the maximum wait."""
        until = self._monotonic() + self._max_wait_s
        while True:
            now = self._monotonic()
            remaining_s = self._idle_gap_s if self._active_count else self._last_end_s + self._idle_gap_s - now
            if remaining_s <= 0 or now >= until:
                return
            await self._sleep(min(remaining_s, until - now))
