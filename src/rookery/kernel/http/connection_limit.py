"""
How many connections there may be at once, and who goes when one more comes (D-16).

A connection is spent before anybody has shown a key. So when all places are taken a newcomer gets that of the connection
that has waited longest; one whose request is in work is never sent away. One address has at most half of the places.
"""

from __future__ import annotations

import asyncio
import resource
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import structlog

from rookery.kernel.errors import RookeryError
from rookery.kernel.http.unauthenticated_queue import UnauthenticatedQueue

_log = structlog.stdlib.get_logger("rookery.connections")

MAX_CONNECTIONS = 1000

RESERVED_FILE_DESCRIPTORS = 200
"""Files that the process has open beside connections: about 35 when idle, then three pipes for each stdio tool server."""

MIN_BYTES_PER_S = 8 * 1024
"""Bytes a second, both ways: less is no slow line (64 kbit/s) but somebody who holds a place."""

STALL_TIMEOUT_S = 30.0
"""How long nobody needs to send or to read anything."""

_SWEEP_INTERVAL_S = 5.0
_LOG_INTERVAL_S = 60.0


class ServerFull(RookeryError):
    """As many requests are in work as there may be connections, or the caller's address has its share of them."""

    status, code = 503, "server_full"

    def __init__(self) -> None:
        super().__init__("All connections that this server has for you are in use; try again soon.", headers={"Retry-After": "1"})


class LimitedConnection(Protocol):
    """A connection, as the crowd sees it."""

    def unsent_bytes(self) -> int:
        """Return how many bytes wait for the other end to read."""
        ...

    def abort(self) -> None:
        """Hang up at once, whatever is unsent."""
        ...


class TransferTimeout:
    """
    A clock that runs out when somebody is too slow: bytes earn the time that they take at the least rate, 30 s at most.

    So what stalls is given up soon, what trickles no later, and what keeps the rate never, however large it is.
    """

    __slots__ = ("_last_progress_at", "_timeout_s", "remaining_s")

    def __init__(self, timeout_s: float = STALL_TIMEOUT_S) -> None:
        self._timeout_s = self.remaining_s = timeout_s
        self._last_progress_at = time.monotonic()

    def record_progress(self, size: int) -> None:
        """Count the time since the last call as spent, and *size* bytes as moved in it."""
        now = time.monotonic()
        self.remaining_s = min(self._timeout_s, self.remaining_s - (now - self._last_progress_at) + size / MIN_BYTES_PER_S)
        self._last_progress_at = now


class ConnectionSlot:
    """
    A connection's place; it waits at first.

    Attributes:
        is_moving: The other end read something since the last look; whoever knows it sets this.
    """

    __slots__ = ("_has_served", "_limiter", "_unsent_bytes", "_write_timeout", "connection", "has_progress", "owner")

    def __init__(self, limiter: ConnectionLimiter, connection: LimitedConnection, owner: str | None) -> None:
        self._limiter = limiter
        self._has_served = False
        self._write_timeout: TransferTimeout | None = None
        self._unsent_bytes = 0
        self.connection = connection
        self.owner = owner
        self.has_progress = False

    def mark_busy(self) -> None:
        """A request has come: the place is not given to others until it waits again."""
        self._limiter.idle_slots(has_served=self._has_served).pop(self, None)

    def mark_idle(self) -> None:
        """No request is in work any more. Who was answered once waits with more right than who never asked anything."""
        self._has_served = True
        self._limiter.idle_slots(has_served=True)[self] = None

    def release(self) -> None:
        """Give the place back; twice does no harm."""
        self._limiter.remove(self, has_served=self._has_served)

    def is_stalled(self) -> bool:
        """Tell whether the other end does not read what is meant for it, or too slowly."""
        unsent = self.connection.unsent_bytes()
        if unsent == 0 or self.has_progress or self._write_timeout is None:
            self._write_timeout = TransferTimeout(STALL_TIMEOUT_S) if unsent else None
        else:
            self._write_timeout.record_progress(max(0, self._unsent_bytes - unsent))
        self._unsent_bytes, self.has_progress = unsent, False
        return self._write_timeout is not None and self._write_timeout.remaining_s <= 0


@dataclass(slots=True)
class EvictionStats:
    """How many were turned away, since the start."""

    closed: int = 0
    """Because others came while they waited."""
    refused: int = 0
    """On arrival, since nobody waited."""
    stalled: int = 0
    """Because they did not read their answer."""


class ConnectionLimiter:
    """
    All connections of this process.

    Args:
        limit: How many there may be.
        get_owner: Given an address, returns who has it, of whom each may have half of the places (D-20's neighbourhood);
            None for one that speaks for many, such as a proxy.
    """

    def __init__(self, limit: int = MAX_CONNECTIONS, *, get_owner: Callable[[str], str | None] = lambda _: None) -> None:
        self.limit = limit
        self.max_per_owner = max(1, limit // 2)
        self.evictions = EvictionStats()
        self.unauthenticated_queue = UnauthenticatedQueue()
        self._get_owner = get_owner
        self._slots: dict[ConnectionSlot, None] = {}
        self._slot_counts: dict[str, int] = {}
        self._idle_new: dict[ConnectionSlot, None] = {}
        self._idle_served: dict[ConnectionSlot, None] = {}
        self._sweep_timer: asyncio.TimerHandle | None = None
        self._logged_at = -_LOG_INTERVAL_S

    def __len__(self) -> int:
        """Return how many places are taken."""
        return len(self._slots)

    def acquire(self, address: str | None, connection: LimitedConnection) -> ConnectionSlot | None:
        """Return a place for *connection*, somebody else's if need be; None: none can be had."""
        owner = None if address is None else self._get_owner(address)
        is_greedy = owner is not None and self._slot_counts.get(owner, 0) >= self.max_per_owner
        if (is_greedy and not self._evict_idle(owner)) or (len(self._slots) >= self.limit and not self._evict_idle(None)):
            self.evictions.refused += 1
            self._log_full()
            return None
        place = ConnectionSlot(self, connection, owner)
        self._slots[place] = self._idle_new[place] = None
        if owner is not None:
            self._slot_counts[owner] = self._slot_counts.get(owner, 0) + 1
        if self._sweep_timer is None:
            self._sweep_timer = asyncio.get_running_loop().call_later(_SWEEP_INTERVAL_S, self._sweep)
        return place

    def idle_slots(self, *, has_served: bool) -> dict[ConnectionSlot, None]:
        """Return the places that may be given to others, the one that has waited longest first."""
        return self._idle_served if has_served else self._idle_new

    def remove(self, slot: ConnectionSlot, *, has_served: bool) -> None:
        """Take *slot* out."""
        if slot not in self._slots:
            return
        del self._slots[slot]
        self.idle_slots(has_served=has_served).pop(slot, None)
        if slot.owner is not None:
            self._slot_counts[slot.owner] -= 1
            if not self._slot_counts[slot.owner]:
                del self._slot_counts[slot.owner]

    def _evict_idle(self, owner: str | None) -> bool:
        """Send away who has waited longest: of *get_owner*, if it is one; strangers before others."""
        for waiting in (self._idle_new, self._idle_served):
            for place in waiting:
                if (owner is None or place.owner == owner) and not place.connection.unsent_bytes():
                    self._evict(place)
                    self.evictions.closed += 1
                    self._log_full()
                    return True
        return False

    def _evict(self, place: ConnectionSlot) -> None:
        place.release()
        place.connection.abort()

    def _sweep(self) -> None:
        """Give up whoever does not read."""
        for place in tuple(self._slots):
            if place.is_stalled():
                self._evict(place)
                self.evictions.stalled += 1
        again = asyncio.get_running_loop().call_later(_SWEEP_INTERVAL_S, self._sweep) if self._slots else None
        self._sweep_timer = again

    def _log_full(self) -> None:
        """Tell the operator, at most once a minute: a flood must not fill the log."""
        now = time.monotonic()
        if now - self._logged_at >= _LOG_INTERVAL_S:
            self._logged_at = now
            turned = self.evictions
            _log.warning("connections.full", limit=self.limit, closed=turned.closed, refused=turned.refused, see="ROOKERY_MAX_CONNECTIONS")


def max_open_connections(limit: int) -> int:
    """Return how many connections, at most *limit*, the system lets this process have, if it asks for all it may."""
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    return limit if most == resource.RLIM_INFINITY else max(1, min(limit, most - RESERVED_FILE_DESCRIPTORS))


def raise_file_limit(limit: int) -> int:
    """Let this process have files for *limit* connections, as far as the system allows; return for how many there are."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    possible = max_open_connections(limit)
    if soft != resource.RLIM_INFINITY and soft < possible + RESERVED_FILE_DESCRIPTORS:
        wanted = possible + RESERVED_FILE_DESCRIPTORS
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted if hard == resource.RLIM_INFINITY else min(wanted, hard), hard))
    return possible
