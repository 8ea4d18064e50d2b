"""Limits beyond one request: tools, a counter that is down, the headers' arithmetic (spec 8; D-23, D-27)."""

from __future__ import annotations

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
from rookery.kernel.errors import EngineUnavailable
from tests.access.makers import Access, build_access
from tests.conftest import FakeClock

NOW = 1_764_000_000_000_000


class SwitchableCounter:
    """A counter that can be taken down."""

    def __init__(self) -> None:
        self.counts = LocalCounter()
        self.is_down = False
        self.asked = 0

    async def hit(self, key: str, *, limit: int, window_us: int, now_us: int) -> WindowCount:
        self._ask()
        return self.counts.hit(key, limit=limit, window_us=window_us, now_us=now_us)

    async def peek(self, key: str, *, window_us: int, now_us: int) -> WindowCount:
        self._ask()
        return self.counts.peek(key, window_us=window_us, now_us=now_us)

    async def close(self) -> None:
        """Hold nothing."""

    def _ask(self) -> None:
        self.asked += 1
        if self.is_down:
            raise EngineUnavailable("counters", "switched off")


async def test_while_the_counter_is_down_each_process_counts_alone(access: Access, clock: FakeClock) -> None:
    """D-27: with the full limit and X-RateLimit-Scope: local, never unlimited; and exactly again afterwards."""
    counter = SwitchableCounter()
    guarded = build_access(access.db, counter, clock)
    minted = await access.create_agent_key(await access.create_workspace(), NewAgentKey(name="rook", permissions=("*",), rate_limit=2))
    assert (b"x-ratelimit-scope", b"local") not in (await guarded.admit(minted)).headers
    counter.is_down = True
    for left in (b"1", b"0"):
        headers = dict((await guarded.admit(minted)).headers)
        assert (headers[b"x-ratelimit-remaining"], headers[b"x-ratelimit-scope"]) == (left, b"local")
    with pytest.raises(RateLimited) as refusal:
        await guarded.admit(minted)
    assert refusal.value.headers["x-ratelimit-scope"] == "local"
    assert dict((await guarded.admit(minted, rate_limited=False)).headers)[b"x-ratelimit-scope"] == b"local"
    counter.is_down = False
    clock.advance(seconds=5)

    assert dict((await guarded.admit(minted)).headers)[b"x-ratelimit-remaining"] == b"0"
    await guarded.close()


async def test_a_counter_that_is_down_is_not_asked_at_every_request(clock: FakeClock) -> None:
    """D-27: each would wait for it in vain."""
    counter = SwitchableCounter()
    counter.is_down = True
    limiter = RateLimiter(counter, monotonic=lambda: clock().timestamp())
    plan = RateLimit(5, MINUTE_US, has_absolute_reset=False)
    for _ in range(10):
        await limiter.consume("key", plan, NOW)
        await limiter.get_status("key", plan, NOW)
    assert counter.asked == 1
    clock.advance(seconds=2)
    assert (await limiter.get_status("key", plan, NOW)).is_local
    clock.advance(seconds=2)
    counter.is_down = False

    assert not (await limiter.get_status("key", plan, NOW)).is_local


async def test_an_unlimited_key_touches_no_counter() -> None:
    """D-27: enterprise works whatever the counter does."""
    counter = SwitchableCounter()
    limiter = RateLimiter(counter)
    for standing in (
        await limiter.consume("key", RateLimit(None, HOUR_US, has_absolute_reset=True), NOW),
        await limiter.get_status("key", RateLimit(None, HOUR_US, has_absolute_reset=True), NOW),
    ):
        assert (standing.limit, standing.remaining, standing.is_over) == (UNLIMITED_SENTINEL, UNLIMITED_SENTINEL, False)

    assert counter.asked == 0


@given(limit=st.integers(1, 1000), used=st.integers(0, 2000), elapsed=st.integers(0, HOUR_US - 1), by_clock=st.booleans())
def test_headers_add_up(limit: int, used: int, elapsed: int, by_clock: bool) -> None:
    """Spec 8: remaining is never negative, and waiting for Reset is always enough, never a second too long."""
    standing = RateLimitStatus(RateLimit(limit, HOUR_US, has_absolute_reset=by_clock), used, NOW, NOW + elapsed)
    over_at = NOW + HOUR_US

    assert standing.remaining == max(0, limit - used)
    assert standing.is_over == (used > limit)
    assert 0 <= NOW + elapsed + standing.reset_in_s * SECOND_US - over_at < SECOND_US
    assert (standing.reset * SECOND_US >= over_at) if by_clock else (standing.reset == standing.reset_in_s)
    assert len(standing.headers()) == 3


async def test_a_tool_limit_holds_for_its_tools_alone(access: Access) -> None:
    """D-23: calls a minute by server/tool glob: 429; the key's other tools go on."""
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


async def test_tool_limits_are_each_key_s_own(access: Access) -> None:
    """D-23: what one key used up, another has."""
    tools = ToolRateLimiter(access.limiter, access.clock)
    workspace = await access.create_workspace()
    for _ in range(2):
        await tools.spend_tool_limit(await caller_with(access, {"*": 1}, workspace), "web", "search")


def test_the_tightest_limit_is_spent_first() -> None:
    """D-23: so a refused call leaves the wider ones alone; globs tell upper from lower case."""
    assert match_tool_limits({"*": 9, "web/*": 3, "WEB/*": 1, "web/s?arch": 3, "time/*": 1}, "web", "search") == [
        ("web/*", 3),
        ("web/s?arch", 3),
        ("*", 9),
    ]
    assert match_tool_limits({}, "web", "search") == []


def test_the_local_counter_forgets_rather_than_grows(monkeypatch: pytest.MonkeyPatch) -> None:
    """D-16: addresses and keys are many; memory is bounded."""
    monkeypatch.setattr("rookery.access.rate_limits._MAX_LOCAL_KEYS", 3)
    counter = LocalCounter()
    for key in ("a", "b", "c", "a", "d"):
        counter.hit(key, limit=9, window_us=MINUTE_US, now_us=NOW)

    assert [counter.peek(key, window_us=MINUTE_US, now_us=NOW).used for key in "abcd"] == [2, 0, 1, 1]


async def caller_with(access: Access, tool_limits: dict[str, int], workspace: int | None = None) -> Caller:
    """Return the caller of a new key with these limits."""
    new = NewApiKey(name="key", scopes=("*",), tier=Tier.ENTERPRISE, restrictions=KeyRestrictions(tool_limits=tool_limits))
    return (await access.admit(await access.create_api_key(workspace or await access.create_workspace(), new))).caller
