"""The pace of sending: the rate of a campaign, and the slots of channels and hosts in this process."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

from rookery.notifications.messages import ChannelType

_MAX_BURST_S = 0.25
"""Seconds whose messages may be sent at once. Rounds of a busy process are up to 0.2 s apart, and would lower the rate."""

_PREFETCH_FACTOR = 2
"""Claimed messages per slot. One is being sent while the next waits, so that a slot does not wait for the store."""


@dataclass(slots=True)
class TokenBucket:
    """
    A limit of messages per second. It starts empty, so that a campaign that moves to another process does not exceed its rate.

    Attributes:
        rate_per_second: None: no limit.
    """

    rate_per_second: float | None
    clock_s: Callable[[], float] = time.monotonic
    _tokens: float = 0.0
    _updated_s: float | None = None

    def available(self) -> float:
        """Return the number of messages that may be sent now."""
        if self.rate_per_second is None:
            return float("inf")
        now_s = self.clock_s()
        if self._updated_s is None:
            self._updated_s = now_s
        burst = max(1.0, self.rate_per_second * _MAX_BURST_S)
        self._tokens = min(burst, self._tokens + (now_s - self._updated_s) * self.rate_per_second)
        self._updated_s = now_s
        return self._tokens

    def take(self, count: int) -> None:
        """Count messages that are going to be sent."""
        if self.rate_per_second is not None:
            self.available()
            self._tokens -= count

    def wait_s(self) -> float:
        """Return the seconds until a message may be sent."""
        return 0.0 if self.rate_per_second is None else max(0.0, (1.0 - self.available()) / self.rate_per_second)


@dataclass(frozen=True, slots=True)
class HostRate:
    """
    A limit of messages per second to one host, over all processes that share the record store.

    A host has one number, the time until which its messages are paid for (the generic cell rate algorithm, ITU-T I.371). The store
    keeps it. All times are in microseconds.
    """

    per_second: float

    @property
    def wait_s(self) -> float:
        """Seconds after which a host without room is tried again."""
        return min(_MAX_HOST_WAIT_S, max(1 / self.per_second, _MIN_HOST_WAIT_S))

    def get_latest_with_room(self, now_us: int) -> int:
        """Return the latest paid time of a host that may get a message now."""
        return now_us + int((self._burst - 1) * self._interval_us)

    def count_room(self, paid_until_us: int | None, now_us: int) -> int:
        """Return the number of messages that may be sent now to a host; None: it had no message before."""
        start_us = now_us if paid_until_us is None else max(paid_until_us, now_us)
        return max(0, int((now_us + self._burst * self._interval_us - start_us) / self._interval_us + _ROUNDING))

    def pay(self, paid_until_us: int | None, now_us: int, count: int) -> int:
        """Return the time until which a host is paid for after *count* more messages."""
        start_us = now_us if paid_until_us is None else max(paid_until_us, now_us)
        return start_us + round(count * self._interval_us)

    @property
    def _interval_us(self) -> float:
        return 1_000_000 / self.per_second

    @property
    def _burst(self) -> float:
        return max(_MIN_HOST_BURST, self.per_second * _MAX_HOST_BURST_S)


_MIN_HOST_WAIT_S, _MAX_HOST_WAIT_S = 0.05, 0.2
_MAX_HOST_BURST_S = 0.25
"""Seconds whose messages may be sent at once. Rounds of a busy process are up to 0.2 s apart, and would waste a smaller share."""

_MIN_HOST_BURST = 2.0
"""Messages at once after a pause. With one, a round that is late would lower the rate."""

_ROUNDING = 1e-6


@dataclass(slots=True)
class Allowance:
    """The number of further messages that may be claimed, by type of channel and by host. Claims take from it."""

    by_type: dict[ChannelType, int]
    by_host: dict[str, int]
    per_new_host: int

    def copy(self) -> Allowance:
        """Return a copy, for a transaction that may run twice."""
        return Allowance(dict(self.by_type), dict(self.by_host), self.per_new_host)

    @property
    def types(self) -> list[ChannelType]:
        """The types with room."""
        return [kind for kind, count in self.by_type.items() if count > 0]

    @property
    def full_hosts(self) -> list[str]:
        """The hosts without room."""
        return [host for host, count in self.by_host.items() if count <= 0]

    def limit_hosts(self, room: Mapping[str, int]) -> None:
        """Reduce the room of hosts to at most *room*."""
        for host, count in room.items():
            self.by_host[host] = min(self.by_host.get(host, self.per_new_host), count)

    def take(self, kind: ChannelType, host: str) -> bool:
        """Take room for one message; return False if its type or its host is full."""
        if self.by_type.get(kind, 0) <= 0:
            return False
        if host:
            left = self.by_host.get(host, self.per_new_host)
            if left <= 0:
                return False
            self.by_host[host] = left - 1
        self.by_type[kind] -= 1
        return True


@dataclass(slots=True)
class SendSlots:
    """
    The messages that this process has claimed and is sending, by type of channel and by host.

    Attributes:
        limits: Messages of a type that are sent at the same time.
        host_limit: Messages to a host that are sent at the same time. A host that did not answer gets one until it does.
    """

    limits: Mapping[ChannelType, int]
    host_limit: int
    _claimed_types: Counter[ChannelType] = field(default_factory=Counter[ChannelType])
    _claimed_hosts: Counter[str] = field(default_factory=Counter[str])
    _sending_types: Counter[ChannelType] = field(default_factory=Counter[ChannelType])
    _sending_hosts: Counter[str] = field(default_factory=Counter[str])
    _unresponsive: set[str] = field(default_factory=set[str])

    def get_allowance(self) -> Allowance:
        """Return the room for further claims."""
        by_type = {kind: _PREFETCH_FACTOR * limit - self._claimed_types[kind] for kind, limit in self.limits.items()}
        hosts = {*self._claimed_hosts, *self._unresponsive}
        by_host = {host: self._get_claim_limit(host) - self._claimed_hosts[host] for host in hosts}
        return Allowance(by_type, by_host, _PREFETCH_FACTOR * self.host_limit)

    def add_claims(self, claims: Iterable[tuple[ChannelType, str]]) -> None:
        """Count claimed messages."""
        for kind, host in claims:
            self._claimed_types[kind] += 1
            if host:
                self._claimed_hosts[host] += 1

    def remove_claim(self, kind: ChannelType, host: str) -> None:
        """Count a claimed message that was sent or released."""
        _decrement(self._claimed_types, kind)
        if host:
            _decrement(self._claimed_hosts, host)

    def try_start(self, kind: ChannelType, host: str) -> bool:
        """Take the slots of a message and return True, or return False if one is not free."""
        limit = self.limits.get(kind, 0)
        host_limit = 1 if host in self._unresponsive else self.host_limit
        if self._sending_types[kind] >= limit or (host and self._sending_hosts[host] >= host_limit):
            return False
        self._sending_types[kind] += 1
        if host:
            self._sending_hosts[host] += 1
        return True

    def finish(self, kind: ChannelType, host: str, *, is_answered: bool) -> None:
        """Free the slots of a message."""
        _decrement(self._sending_types, kind)
        if not host:
            return
        _decrement(self._sending_hosts, host)
        if is_answered:
            self._unresponsive.discard(host)
        elif len(self._unresponsive) < _MAX_UNRESPONSIVE_HOSTS:
            self._unresponsive.add(host)

    def _get_claim_limit(self, host: str) -> int:
        return 1 if host in self._unresponsive else _PREFETCH_FACTOR * self.host_limit


_MAX_UNRESPONSIVE_HOSTS = 10_000


def _decrement(counter: Counter[str] | Counter[ChannelType], key: str) -> None:
    counts: Counter[str] = counter  # pyright: ignore[reportAssignmentType] - ChannelType is a str
    counts[key] -= 1
    if counts[key] <= 0:
        del counts[key]
