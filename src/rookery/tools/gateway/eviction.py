"""Eviction at a limit: the oldest ends so that something new is admitted, unless it is too recent."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Mapping
from typing import TypeVar

T = TypeVar("T")
OwnerT = TypeVar("OwnerT", bound=Hashable)

MIN_AGE_S = 60.0
"""Time for which nothing is evicted. Without it, clients over the limit that retry at once would evict each other all the time."""


class EvictionRefused(Exception):
    """Even the oldest is too recent. In `retry_after_s` it no longer is."""

    def __init__(self, retry_after_s: int) -> None:
        super().__init__(retry_after_s)
        self.retry_after_s = retry_after_s


def select_evicted(started_at: Mapping[T, float], now: float, *, min_age_s: float = MIN_AGE_S) -> T:
    """
    Return the key with the earliest time. *started_at* is not empty.

    Raises:
        EvictionRefused: That time is less than *min_age_s* before *now*.
    """
    oldest = min(started_at, key=started_at.__getitem__)
    missing_s = started_at[oldest] + min_age_s - now
    if missing_s > 0:
        raise EvictionRefused(math.ceil(missing_s))
    return oldest


def select_of_largest(owners: Mapping[T, OwnerT], newcomer: OwnerT, started_at: Mapping[T, float], now: float) -> T:
    """
    Return the oldest of the owner with the most. It may be recent if *newcomer*, with one more, still has fewer than that owner.

    With equal numbers it may not: two owners that retry at once would evict each other all the time.

    Raises:
        EvictionRefused: The oldest is too recent.
    """
    counts = Counter(owners.values())
    ((largest, count),) = counts.most_common(1)
    min_age_s = 0.0 if counts[newcomer] + 1 < count else MIN_AGE_S
    return select_evicted({item: started_at[item] for item, owner in owners.items() if owner == largest}, now, min_age_s=min_age_s)
