"""Who waits for an answer goes before what nobody waits for."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

_IDLE_GAP_S = 0.004
"""So long nobody came: whoever asks one thing after the other is back sooner."""

_MAX_WAIT_S = 0.15
"""A batch of 32 is embedded in about 0.1 s: so however many ask, two fifths of the time are left for what waits."""


class ForegroundBackoff:
    """
    Tells work that can wait when to begin: once nobody has been served for a moment, and after a bounded while in any case.

    On a machine of two cores embedding takes one, and what it needs of the other and of the interpreter's lock it takes from
    those who are being answered.

    Args:
        monotonic: Seconds of a clock that never goes back; tests pass their own, and a *sleep* that turns it.
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
        """Take note that somebody is being answered; `end_request` must follow."""
        self._active_count += 1

    def end_request(self) -> None:
        """Take note that one of them is."""
        self._active_count -= 1
        self._last_end_s = self._monotonic()

    async def wait_for_idle(self) -> None:
        """Return at the first lull, or when there was none for the longest while."""
        until = self._monotonic() + self._max_wait_s
        while True:
            now = self._monotonic()
            left = self._idle_gap_s if self._active_count else self._last_end_s + self._idle_gap_s - now
            if left <= 0 or now >= until:
                return
            await self._sleep(min(left, until - now))
