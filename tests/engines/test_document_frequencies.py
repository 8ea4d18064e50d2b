"""The cache of document frequencies: how long a count is used."""

from __future__ import annotations

from collections.abc import Sequence

from rookery.engines.texts.postgresql import CountCache


class Counter:
    """A server that counts, and a clock that only counting advances."""

    def __init__(self, *, duration_s: float) -> None:
        self.now_s = 0.0
        self.duration_s = duration_s
        self.requests: list[list[str]] = []

    async def count(self, keys: Sequence[str]) -> list[int]:
        """Return the number of requests so far for each key."""
        self.now_s += self.duration_s
        self.requests.append(list(keys))
        return [len(self.requests)] * len(keys)


async def test_a_count_is_used_for_two_hundred_times_of_its_duration() -> None:
    """Counting takes little of the time, and a small workspace, where it is fast, is nearly up to date."""
    counter = Counter(duration_s=0.1)
    cache = CountCache[str, int](lambda: counter.now_s)

    assert await cache.get(["a", "b", "a"], counter.count) == [1, 1, 1]
    counter.now_s += 19.9
    assert await cache.get(["c", "b"], counter.count) == [2, 1]
    counter.now_s += 0.2
    assert await cache.get(["a", "c"], counter.count) == [3, 2]
    assert counter.requests == [["a", "b"], ["c"], ["a"]]


async def test_a_slow_count_is_used_for_ten_minutes_at_most() -> None:
    """A large workspace changes too."""
    counter = Counter(duration_s=60.0)
    cache = CountCache[str, int](lambda: counter.now_s)
    await cache.get(["a"], counter.count)

    counter.now_s += 599
    assert await cache.get(["a"], counter.count) == [1]
    counter.now_s += 2
    assert await cache.get(["a"], counter.count) == [2]


async def test_the_cache_is_bounded() -> None:
    """Questions have ever new words."""
    counter = Counter(duration_s=1.0)
    cache = CountCache[str, int](lambda: counter.now_s)
    for number in range(3):
        await cache.get([f"{number} {word}" for word in range(9_000)], counter.count)
    await cache.get(["0 0", "2 0"], counter.count)

    assert counter.requests[3] == ["0 0"], "the oldest counts are gone, the newest are not"
