"""Rate limits: tiers, windows, remaining requests and the response headers."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from types import MappingProxyType

from rookery.access.errors import RateLimited
from rookery.access.models import TEST, Caller, Key, Tier
from rookery.access.ports import RateLimitCounter, WindowCount
from rookery.kernel import globs
from rookery.kernel.clock import Clock, to_micros
from rookery.kernel.engine_breakers import OPEN_DURATION_S, EngineBreaker
from rookery.kernel.errors import EngineUnavailable
from rookery.kernel.process_resources import ProcessShare
from rookery.kernel.sentences import format_count

TIER_LIMITS_PER_HOUR = MappingProxyType({Tier.FREE: 1_000, Tier.PRO: 10_000, Tier.BUSINESS: 50_000, Tier.ENTERPRISE: None})
"""Requests per hour; None: unlimited."""

UNLIMITED_SENTINEL = 2_147_483_647
"""The value of Limit and Remaining for an unlimited key."""

DEFAULT_RATE_PER_MINUTE = 600
"""Default requests per minute of an agent key."""

TEST_KEY_FACTOR = 10
"""Factor of the tier's limit for test keys."""

SECOND_US = 1_000_000
MINUTE_US = 60 * SECOND_US
HOUR_US = 3600 * SECOND_US

_PROBE_NAME = "probe"


@dataclass(frozen=True, slots=True)
class RateLimit:
    """
    The rate limit of one key.

    Attributes:
        limit: Requests per window; None: unlimited, and nothing is counted.
        window_us: The length of the window in microseconds.
        has_absolute_reset: Reset is a Unix time (API keys) instead of seconds from now (agent keys).
    """

    limit: int | None
    window_us: int
    has_absolute_reset: bool


def get_rate_limit(key: Key) -> RateLimit:
    """Return the rate limit of *key*: from its tier and environment, or its own rate."""
    if key.kind == "agent":
        return RateLimit(key.rate_limit or DEFAULT_RATE_PER_MINUTE, MINUTE_US, has_absolute_reset=False)
    limit = TIER_LIMITS_PER_HOUR[key.rate_limit_tier or Tier.FREE]
    return RateLimit(limit if limit is None or key.environment != TEST else limit * TEST_KEY_FACTOR, HOUR_US, has_absolute_reset=True)


@dataclass(frozen=True, slots=True)
class RateLimitStatus:
    """
    The state of a key's rate limit at one moment; times in microseconds.

    Attributes:
        local_limit: The part of the limit that this process enforces on its own. None: the count is that of all processes.
    """

    rate_limit: RateLimit
    used: int
    started_at_us: int
    now_us: int
    local_limit: int | None = None

    @property
    def is_local(self) -> bool:
        """True if the count is that of this process."""
        return self.local_limit is not None

    @property
    def limit(self) -> int:
        """The limit as responses show it."""
        return UNLIMITED_SENTINEL if self.rate_limit.limit is None else self.rate_limit.limit

    @property
    def is_over(self) -> bool:
        """True if the counted request exceeds the limit."""
        limit = self._enforced_limit
        return limit is not None and self.used > limit

    @property
    def remaining(self) -> int:
        """Requests left in the window, for a local count those that this process admits."""
        limit = self._enforced_limit
        return UNLIMITED_SENTINEL if limit is None else max(0, limit - self.used)

    @property
    def _enforced_limit(self) -> int | None:
        return self.rate_limit.limit if self.local_limit is None else self.local_limit

    @property
    def reset_in_s(self) -> int:
        """Whole seconds until the window ends, rounded up."""
        return max(1, -((self.now_us - self.started_at_us - self.rate_limit.window_us) // SECOND_US))

    @property
    def reset(self) -> int:
        """The value of X-RateLimit-Reset: a Unix time for API keys, seconds for agent keys."""
        return -(-(self.started_at_us + self.rate_limit.window_us) // SECOND_US) if self.rate_limit.has_absolute_reset else self.reset_in_s

    def headers(self) -> tuple[tuple[bytes, bytes], ...]:
        """Return X-RateLimit-Limit, -Remaining and -Reset, and X-RateLimit-Scope if the count is local to this process."""
        headers = (
            (b"x-ratelimit-limit", b"%d" % self.limit),
            (b"x-ratelimit-remaining", b"%d" % self.remaining),
            (b"x-ratelimit-reset", b"%d" % self.reset),
        )
        return (*headers, (b"x-ratelimit-scope", b"local")) if self.is_local else headers


class LocalCounter:
    """
    A counter in this process, used while the shared one is unavailable.

    Args:
        max_keys: Maximum keys. The least recently used one is evicted first.
    """

    def __init__(self, *, max_keys: int = 100_000) -> None:
        self._max_keys = max_keys
        self._counts: OrderedDict[str, WindowCount] = OrderedDict()

    def spend(self, key: str, *, limit: int, window_us: int, now_us: int) -> WindowCount:
        """Count one request as `RateLimitCounter.spend` does."""
        used, started_at = self.peek(key, window_us=window_us, now_us=now_us)
        count = WindowCount(used if used > limit else used + 1, started_at)
        self._counts[key] = count
        self._counts.move_to_end(key)
        if len(self._counts) > self._max_keys:
            self._counts.popitem(last=False)
        return count

    def refund(self, key: str, *, limit: int, started_at_us: int) -> None:
        """Give back one request as `RateLimitCounter.refund` does."""
        count = self._counts.get(key)
        if count is not None and count.started_at_us == started_at_us and count.used > 0:
            self._counts[key] = WindowCount(min(count.used, limit) - 1, started_at_us)

    def peek(self, key: str, *, window_us: int, now_us: int) -> WindowCount:
        """Return the count as `RateLimitCounter.peek` does."""
        count = self._counts.get(key)
        return WindowCount(0, now_us) if count is None or abs(now_us - count.started_at_us) >= window_us else count


class RateLimiter:
    """
    A rate limiter on a shared counter. While that is unavailable, each process enforces its part of the limit on its own.

    Args:
        breaker: The circuit breaker of the counter, so that requests do not wait for one that does not answer.
        get_share: Returns which of how many processes this one is.
    """

    def __init__(self, counter: RateLimitCounter, *, breaker: EngineBreaker, get_share: Callable[[], ProcessShare] = ProcessShare) -> None:
        self._counter = counter
        self._local_counter = LocalCounter()
        self._breaker = breaker
        self._get_share = get_share
        self._probing: asyncio.Task[None] | None = None

    async def close(self) -> None:
        """Stop to try the shared counter again."""
        if self._probing is not None:
            self._probing.cancel()
            await asyncio.wait({self._probing})

    @property
    def is_local(self) -> bool:
        """True if the shared counter failed recently, so that this process uses its local counter."""
        return self._breaker.is_rejecting

    async def consume(self, name: str, rate_limit: RateLimit, now: int) -> RateLimitStatus:
        """Count one request of *name* and return the status; `RateLimitStatus.is_over` is true if the limit is exceeded."""
        limit, window_us = rate_limit.limit, rate_limit.window_us
        if limit is None:
            return RateLimitStatus(rate_limit, 0, now, now)
        try:
            count = await self._breaker.call(lambda: self._counter.spend(name, limit=limit, window_us=window_us, now_us=now))
        except EngineUnavailable:
            self._start_probing()
            local_limit = self._get_share().part_of(limit)
            count = self._local_counter.spend(name, limit=local_limit, window_us=window_us, now_us=now)
            return RateLimitStatus(rate_limit, count.used, count.started_at_us, now, local_limit=local_limit)
        return RateLimitStatus(rate_limit, count.used, count.started_at_us, now)

    async def refund(self, name: str, status: RateLimitStatus) -> None:
        """Give back the request of *name* that `consume` admitted with *status*. If the counter is unavailable, it stays spent."""
        limit = status.rate_limit.limit
        if limit is None:
            return
        if status.local_limit is not None:
            self._local_counter.refund(name, limit=status.local_limit, started_at_us=status.started_at_us)
            return
        with suppress(EngineUnavailable):
            await self._breaker.call(lambda: self._counter.refund(name, limit=limit, started_at_us=status.started_at_us))

    async def get_status(self, name: str, rate_limit: RateLimit, now: int) -> RateLimitStatus:
        """Return the status of *name* without counting a request."""
        limit, window_us = rate_limit.limit, rate_limit.window_us
        if limit is None:
            return RateLimitStatus(rate_limit, 0, now, now)
        try:
            count = await self._breaker.call(lambda: self._counter.peek(name, window_us=window_us, now_us=now))
        except EngineUnavailable:
            count = self._local_counter.peek(name, window_us=window_us, now_us=now)
            local_limit = self._get_share().part_of(limit)
            return RateLimitStatus(rate_limit, count.used, count.started_at_us, now, local_limit=local_limit)
        return RateLimitStatus(rate_limit, count.used, count.started_at_us, now)

    def _start_probing(self) -> None:
        """Try the counter until it works, so that the first burst after an outage is counted in it, however late it comes."""
        if self._breaker.is_rejecting and (self._probing is None or self._probing.done()):
            self._probing = asyncio.create_task(self._probe(), name="rate-limit-probe")

    async def _probe(self) -> None:
        while True:
            await asyncio.sleep(OPEN_DURATION_S)
            try:
                await self._breaker.call(lambda: self._counter.peek(_PROBE_NAME, window_us=MINUTE_US, now_us=0))
            except EngineUnavailable:
                continue
            return


class ToolRateLimiter:
    """Enforces the calls per minute of a key's `tool_limits`."""

    def __init__(self, limiter: RateLimiter, clock: Clock) -> None:
        self._limiter = limiter
        self._clock = clock

    async def spend_tool_limit(self, caller: Caller, server: str, tool: str) -> None:
        """
        Count one call of the tool against each matching glob of the caller, the lowest limit first.

        Raises:
            RateLimited: A limit is exceeded. The higher limits have not been charged.
        """
        for glob, limit in match_tool_limits(caller.tool_limits, server, tool):
            name = f"tool:{caller.key_id}:{glob}"
            status = await self._limiter.consume(name, RateLimit(limit, MINUTE_US, has_absolute_reset=False), to_micros(self._clock()))
            if status.is_over:
                raise RateLimited(status.reset_in_s, f"This key may call {glob!r} at most {format_count(limit, 'time')} per minute.")


def match_tool_limits(tool_limits: Mapping[str, int], server: str, tool: str) -> list[tuple[str, int]]:
    """Return the limits whose `server/tool` glob matches, the lowest first."""
    if not tool_limits:
        return []
    name = f"{server}/{tool}"
    return sorted(((glob, limit) for glob, limit in tool_limits.items() if globs.matches(name, glob)), key=lambda item: (item[1], item[0]))
