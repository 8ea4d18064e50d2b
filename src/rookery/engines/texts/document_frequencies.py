"""Document frequencies of a server, cached: each for some time that grows with the time that it took to count."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Hashable, Sequence
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

_VALIDITY_FACTOR = 200.0
"""The time for which a value is valid, in times that it took to count. So counting takes at most a two-hundredth of the time."""

_MAX_VALIDITY_S = 600.0
_MAX_CACHED = 20_000


class CountCache(Generic[K, V]):
    """
    A cache of values that a server counts.

    In a small workspace, where counting is fast, they are always nearly up to date.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._values: dict[K, tuple[float, V]] = {}

    async def get(self, keys: Sequence[K], count: Callable[[Sequence[K]], Awaitable[Sequence[V]]]) -> list[V]:
        """Return the values of *keys*. *count* returns those that are not cached or no longer valid, in order."""
        now_s = self._clock()
        values = {key: entry[1] for key in keys if (entry := self._values.get(key)) is not None and entry[0] > now_s}
        missing = [key for key in dict.fromkeys(keys) if key not in values]
        if missing:
            counted_values = dict(zip(missing, await count(missing), strict=True))
            end_s = self._clock()
            valid_until_s = end_s + min(_VALIDITY_FACTOR * (end_s - now_s), _MAX_VALIDITY_S)
            if len(self._values) + len(counted_values) > _MAX_CACHED:
                self._values.clear()
            self._values |= {key: (valid_until_s, value) for key, value in counted_values.items()}
            values |= counted_values
        return [values[key] for key in keys]
