"""The port of the request counters, which an engine implements, and what access needs from other domains."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, Protocol

from rookery.kernel.db import Tx
from rookery.kernel.runtime import Purger


class WindowCount(NamedTuple):
    """A counter's state: requests in the window so far, and the start of the window in microseconds since 1970."""

    used: int
    started_at_us: int


class CounterFeature(StrEnum):
    """A feature that a counter may lack. Its engine class lists it in `lacks`, and the documentation shows it."""

    SHARED_BY_PROCESSES = "shared by processes"
    """All processes of one host have the same counts."""

    SHARED_BY_HOSTS = "shared by hosts"
    """The same, for processes of several hosts."""

    OUTLIVES_PROCESS = "outlives the process"
    """A restart does not reset the windows."""


class RateLimitCounter(Protocol):
    """
    An exact counter in windows that begin with their first request, shared by all processes on the store.

    A window that began at s ends at t if |t - s| >= its length, so a clock that is set back cannot freeze it.
    Every method raises `EngineUnavailable("counters", …)` and no other engine error.
    """

    async def spend(self, key: str, *, limit: int, window_us: int, now_us: int) -> WindowCount:
        """
        Count one request and return the new count, in one atomic step.

        A count above *limit* means that the request is rejected. A rejected request changes neither the window nor the
        count beyond *limit* + 1.

        Args:
            limit: At least 1.
            window_us: The length of the window in microseconds.
            now_us: The time in microseconds since 1970.
        """
        ...

    async def refund(self, key: str, *, limit: int, started_at_us: int) -> None:
        """
        Give back one request that `spend` admitted under *limit*, unless the window that began at *started_at_us* is over.

        Afterwards the count is below the limit, also if other requests were rejected meanwhile.
        """
        ...

    async def peek(self, key: str, *, window_us: int, now_us: int) -> WindowCount:
        """Return the count without counting a request; (0, *now_us*) if no window is open."""
        ...

    async def close(self) -> None:
        """Release the connections. Idempotent."""
        ...


IsAgentInUse = Callable[[Tx, int, str], bool]
"""Returns whether a workspace has private data or sessions of an agent, given both ids. A new key for that agent could use them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessPorts:
    """
    The implementations that access gets from engines and other domains.

    Attributes:
        purgers: Delete the data of a workspace from the tables of the other domains. The list may still grow until the first deletion.
    """

    counter: RateLimitCounter
    is_agent_in_use: IsAgentInUse
    purgers: Sequence[Purger]
