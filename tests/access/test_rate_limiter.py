"""Rate limits beyond one request: tools, an unavailable counter, the values of the headers."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rookery.access.errors import RateLimited
from rookery.access.key_fields import NewAgentKey, NewApiKey
from rookery.access.models import Caller, KeyRestrictions, Tier
from rookery.access.ports import WindowCount
from rookery.access.rate_limits import (
    HOUR_US,
    MINUTE_US,
    SECOND_US,
    UNLIMITED_SENTINEL,
    LocalCounter,
    RateLimit,
    RateLimiter,
    RateLimitStatus,
    ToolRateLimiter,
    match_tool_limits,
)
from rookery.kernel.config import Settings
from rookery.kernel.engine_breakers import MAX_FAILURES, EngineBreakers
from rookery.kernel.errors import EngineUnavailable
from rookery.kernel.process_resources import ProcessShare
from tests.access.makers import Access, build_access
from tests.conftest import FakeClock, eventually

NOW = 1_764_000_000_000_000


class SwitchableCounter:
    """A counter that can be made unavailable."""

    def __init__(self) -> None:
        self.counts = LocalCounter()
        self.is_down = False
        self.call_count = 0

    async def spend(self, key: str, *, limit: int, window_us: int, now_us: int) -> WindowCount:
        self._count_call()
        return self.counts.spend(key, limit=limit, window_us=window_us, now_us=now_us)

    async def refund(self, key: str, *, limit: int, started_at_us: int) -> None:
        self._count_call()
        self.counts.refund(key, limit=limit, started_at_us=started_at_us)

    async def peek(self, key: str, *, window_us: int, now_us: int) -> WindowCount:
        self._count_call()
        return self.counts.peek(key, window_us=window_us, now_us=now_us)

    async def close(self) -> None:
        """Do nothing; there is nothing to close."""

    def _count_call(self) -> None:
        self.call_count += 1
        if self.is_down:
            raise EngineUnavailable("counters", "switched off")


async def test_while_the_counter_is_down_a_process_counts_alone(access: Access, clock: FakeClock) -> None:
    """With X-RateLimit-Scope: local, never unlimited; exact again when the counter is back."""
    counter = SwitchableCounter()
    guarded_access = build_access(access.db, counter, clock)
    new_key = await access.create_agent_key(await access.create_workspace(), NewAgentKey(name="rook", permissions=("*",), rate_limit=2))
    assert (b"x-ratelimit-scope", b"local") not in (await guarded_access.admit(new_key)).headers
    counter.is_down = True
    for remaining in (b"1", b"0"):
        headers = dict((await guarded_access.admit(new_key)).headers)
        assert (headers[b"x-ratelimit-remaining"], headers[b"x-ratelimit-scope"]) == (remaining, b"local")
    with pytest.raises(RateLimited) as refusal:
        await guarded_access.admit(new_key)
    assert refusal.value.headers["x-ratelimit-scope"] == "local"
    assert dict((await guarded_access.admit(new_key, rate_limited=False)).headers)[b"x-ratelimit-scope"] == b"local"
    counter.is_down = False
    clock.advance(seconds=5)

    assert dict((await guarded_access.admit(new_key)).headers)[b"x-ratelimit-remaining"] == b"0"
    await guarded_access.close()


async def test_an_unavailable_counter_is_not_called_for_every_request(clock: FakeClock) -> None:
    """Otherwise each request would wait for it."""
    counter = SwitchableCounter()
    counter.is_down = True
    limiter = RateLimiter(counter, breaker=EngineBreakers(Settings(), monotonic=lambda: clock().timestamp()).counters)
    plan = RateLimit(5, MINUTE_US, has_absolute_reset=False)
    for _ in range(10):
        await limiter.consume("key", plan, NOW)
        await limiter.get_status("key", plan, NOW)
    assert counter.call_count == MAX_FAILURES
    clock.advance(seconds=2)
    assert (await limiter.get_status("key", plan, NOW)).is_local
    clock.advance(seconds=2)
    counter.is_down = False

    assert not (await limiter.get_status("key", plan, NOW)).is_local


async def test_one_failure_does_not_make_the_limits_local(clock: FakeClock) -> None:
    """The request that failed is counted locally, and the next one in the shared counter."""
    counter = SwitchableCounter()
    limiter = RateLimiter(counter, breaker=EngineBreakers(Settings(), monotonic=lambda: clock().timestamp()).counters)
    plan = RateLimit(5, MINUTE_US, has_absolute_reset=False)
    counter.is_down = True
    failed = await limiter.consume("key", plan, NOW)
    counter.is_down = False
    following = await limiter.consume("key", plan, NOW)

    assert (failed.is_local, following.is_local, limiter.is_local) == (True, False, False)


async def test_the_first_burst_after_an_outage_is_counted_in_the_shared_counter() -> None:
    """A process tries the counter again without requests, so that not all but one request of the burst are counted locally."""
    counter = SwitchableCounter()
    limiter = RateLimiter(counter, breaker=EngineBreakers(Settings()).counters)
    plan = RateLimit(5, MINUTE_US, has_absolute_reset=False)
    counter.is_down = True
    for _ in range(MAX_FAILURES):
        await limiter.consume("key", plan, NOW)
    counter.is_down = False

    async def is_shared() -> bool:
        return counter.call_count > MAX_FAILURES

    await eventually(is_shared)
    statuses = await asyncio.gather(*(limiter.consume("key", plan, NOW) for _ in range(10)))
    await limiter.close()

    assert [status.is_local for status in statuses] == [False] * 10


@pytest.mark.parametrize(("limit", "admitted"), [(40, 40), (7, 7), (4, 4), (1, 4)])
async def test_while_the_counter_is_down_the_processes_share_the_limit(limit: int, admitted: int) -> None:
    """Together they admit the limit, or one request each if it is lower than their number."""
    counter = SwitchableCounter()
    counter.is_down = True
    plan = RateLimit(limit, MINUTE_US, has_absolute_reset=False)
    total = 0
    for number in range(1, 5):
        breaker = EngineBreakers(Settings()).counters
        limiter = RateLimiter(counter, breaker=breaker, get_share=lambda number=number: ProcessShare(number, 4))
        statuses = [await limiter.consume("key", plan, NOW) for _ in range(2 * limit)]
        total += sum(not status.is_over for status in statuses)
        assert dict(statuses[-1].headers())[b"x-ratelimit-remaining"] == b"0"

    assert total == admitted


async def test_an_unlimited_key_uses_no_counter() -> None:
    """An enterprise key works whatever the state of the counter."""
    counter = SwitchableCounter()
    limiter = RateLimiter(counter, breaker=EngineBreakers(Settings()).counters)
    for status in (
        await limiter.consume("key", RateLimit(None, HOUR_US, has_absolute_reset=True), NOW),
        await limiter.get_status("key", RateLimit(None, HOUR_US, has_absolute_reset=True), NOW),
    ):
        assert (status.limit, status.remaining, status.is_over) == (UNLIMITED_SENTINEL, UNLIMITED_SENTINEL, False)

    assert counter.call_count == 0


@given(limit=st.integers(1, 1000), used=st.integers(0, 2000), elapsed=st.integers(0, HOUR_US - 1), has_absolute_reset=st.booleans())
def test_header_values_are_consistent(limit: int, used: int, elapsed: int, has_absolute_reset: bool) -> None:
    """Remaining is never negative, and Reset is always enough to wait, and less than a second too much."""
    status = RateLimitStatus(RateLimit(limit, HOUR_US, has_absolute_reset=has_absolute_reset), used, NOW, NOW + elapsed)
    window_end = NOW + HOUR_US

    assert status.remaining == max(0, limit - used)
    assert status.is_over == (used > limit)
    assert 0 <= NOW + elapsed + status.reset_in_s * SECOND_US - window_end < SECOND_US
    assert (status.reset * SECOND_US >= window_end) if has_absolute_reset else (status.reset == status.reset_in_s)
    assert len(status.headers()) == 3


async def test_a_tool_limit_applies_only_to_its_tools(access: Access) -> None:
    """Calls per minute by a glob of server and tool: 429 over it; other tools of the key are not limited."""
    tools = ToolRateLimiter(access.limiter, access.clock)
    caller = await caller_with(access, {"web/*": 3, "web/search": 2})
    for _ in range(2):
        await tools.spend_tool_limit(caller, "web", "search")
    with pytest.raises(RateLimited) as refusal:
        await tools.spend_tool_limit(caller, "web", "search")
    assert refusal.value.body()["retry_after"] == 60
    await tools.spend_tool_limit(caller, "web", "fetch")
    with pytest.raises(RateLimited):
        await tools.spend_tool_limit(caller, "web", "fetch")
    await tools.spend_tool_limit(caller, "time", "now")
    access.clock.advance(minutes=1)

    await tools.spend_tool_limit(caller, "web", "search")


async def test_tool_limits_are_counted_per_key(access: Access) -> None:
    """The calls of one key do not count for another."""
    tools = ToolRateLimiter(access.limiter, access.clock)
    workspace = await access.create_workspace()
    for _ in range(2):
        await tools.spend_tool_limit(await caller_with(access, {"*": 1}, workspace), "web", "search")


def test_the_tightest_limit_is_spent_first() -> None:
    """A rejected call does not use up the wider limits. Globs are case-sensitive."""
    assert match_tool_limits({"*": 9, "web/*": 3, "WEB/*": 1, "web/s?arch": 3, "time/*": 1}, "web", "search") == [
        ("web/*", 3),
        ("web/s?arch", 3),
        ("*", 9),
    ]
    assert match_tool_limits({}, "web", "search") == []


def test_the_local_counter_has_a_maximum_size() -> None:
    """With many addresses and keys, memory is bounded."""
    counter = LocalCounter(max_keys=3)
    for key in ("a", "b", "c", "a", "d"):
        counter.spend(key, limit=9, window_us=MINUTE_US, now_us=NOW)

    assert [counter.peek(key, window_us=MINUTE_US, now_us=NOW).used for key in "abcd"] == [2, 0, 1, 1]


async def caller_with(access: Access, tool_limits: dict[str, int], workspace: int | None = None) -> Caller:
    """Return the caller of a new key with these limits."""
    new = NewApiKey(name="key", scopes=("*",), rate_limit_tier=Tier.ENTERPRISE, restrictions=KeyRestrictions(tool_limits=tool_limits))
    return (await access.admit(await access.create_api_key(workspace or await access.create_workspace(), new))).caller
