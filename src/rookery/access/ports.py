"""What access needs from an engine: counters of requests in windows of time."""

from __future__ import annotations

from typing import NamedTuple, Protocol


class WindowCount(NamedTuple):
    """What a counter says: requests so far in the window, and when it began, in microseconds since 1970."""

    used: int
    started_at_us: int


class RateLimitCounter(Protocol):
    """
    Counts in windows that begin with their first hit, exactly, across all processes that share the store.

    A window that began at s is over at t when |t - s| >= its length: so a clock that was set back cannot freeze it.
    Every method raises `EngineUnavailable("counters", …)` and no other engine error.
    """

    async def hit(self, key: str, *, limit: int, window_us: int, now_us: int) -> WindowCount:
        """
        Count one request and return the count with it, in one atomic step.

        More than *limit* means: refused. A refused request changes neither the count beyond *limit* + 1 nor the window.

        Args:
            limit: At least 1.
            window_us: Its length in microseconds; *now_us*, the time in microseconds since 1970.
        """
        ...

    async def peek(self, key: str, *, window_us: int, now_us: int) -> WindowCount:
        """Return the count as it stands, without counting; (0, *now_us*) if no window is open."""
        ...

    async def close(self) -> None:
        """Release what is held; twice does no harm."""
        ...
