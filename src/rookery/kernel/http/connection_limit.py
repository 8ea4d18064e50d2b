"""
The limit on open connections, and the eviction of idle ones when it is reached.

A connection takes a slot before the client has shown a key. When all slots are taken, a new connection gets the slot of the one that
has been idle longest. A connection with a request in progress is never evicted. One client has at most half of the slots.

Requests of clients without a proven key wait in `UnauthenticatedQueue` until the loop has nothing else to do.
"""

from __future__ import annotations

import asyncio
import resource
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import structlog

from rookery.kernel.errors import RookeryError

StartRequest = Callable[[], object]

_log = structlog.stdlib.get_logger("rookery.connections")

RESERVED_FILE_DESCRIPTORS = 200
"""File descriptors for other uses than connections: about 35 when idle, and three pipes for each stdio tool server."""

_LOG_INTERVAL_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TransferLimits:
    """
    The slowest allowed transfer of a request body or a response.

    Attributes:
        min_bytes_per_s: Slowest transfer rate. A client below it (64 kbit/s) is treated as one that blocks a slot.
        stall_timeout_s: Seconds without any transfer after which a client is disconnected.
    """

    min_bytes_per_s: int = 8 * 1024
    stall_timeout_s: float = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionLimits:
    """
    The number of connections, and the time of each part of a connection.

    Attributes:
        max_connections: Maximum open connections.
        max_rejected_connections: Connections over the limit that receive a 503. Any beyond these are closed without a response.
        linger_timeout_s: Seconds for which a rejected client may still send. Closing a connection with unread bytes resets it, and some
            systems then lose the error response.
        handshake_timeout_s: Seconds for the TLS handshake.
        head_timeout_s: Seconds for the head of a request.
        transfer: Limits on reading a response.
        sweep_interval_s: Seconds between checks for clients that read too slowly.
    """

    max_connections: int = 1000
    max_rejected_connections: int = 100
    linger_timeout_s: float = 2.0
    handshake_timeout_s: float = 10.0
    head_timeout_s: float = 30.0
    transfer: TransferLimits = field(default_factory=TransferLimits)
    sweep_interval_s: float = 5.0


class ServerFull(RookeryError):
    """`ROOKERY_MAX_CONNECTIONS` connections have running requests, or half as many from your address. The connection is closed."""

    status, code = 503, "server_full"
    fields = "header `Retry-After`"

    def __init__(self) -> None:
        super().__init__(
            "All connections of this server, or all that your address may have, are in use. Try again soon.",
            headers={"Retry-After": "1"},
        )


class LimitedConnection(Protocol):
    """The interface of a connection that the limiter needs."""

    def unsent_bytes(self) -> int:
        """Return the number of bytes that wait for the client to read them."""
        ...

    def abort(self) -> None:
        """Close the connection at once and drop unsent bytes."""
        ...


class TransferTimeout:
    """
    A time-out for transfers: transferred bytes earn the time that they take at the lowest rate, up to the time-out.

    A stalled or trickling transfer times out soon. A transfer at the lowest rate or above never does, however large it is.
    """

    __slots__ = ("_last_progress_at", "_limits", "remaining_s")

    def __init__(self, limits: TransferLimits) -> None:
        self._limits = limits
        self.remaining_s = limits.stall_timeout_s
        self._last_progress_at = time.monotonic()

    def record_progress(self, size: int) -> None:
        """Subtract the time since the last call, and add the time that *size* bytes earn."""
        now, limits = time.monotonic(), self._limits
        remaining_s = self.remaining_s - (now - self._last_progress_at) + size / limits.min_bytes_per_s
        self.remaining_s = min(limits.stall_timeout_s, remaining_s)
        self._last_progress_at = now


class ConnectionSlot:
    """
    The slot of a connection, idle at first.

    Attributes:
        has_progress: Set by the connection when the client has read something since the last sweep.
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
        """Protect the slot from eviction while a request is in progress."""
        self._limiter.idle_slots(has_served=self._has_served).pop(self, None)

    def mark_idle(self) -> None:
        """Allow eviction again. Connections that have served a request are evicted after those that have not."""
        self._has_served = True
        self._limiter.idle_slots(has_served=True)[self] = None

    def release(self) -> None:
        """Release the slot. A second call does nothing."""
        self._limiter.remove(self, has_served=self._has_served)

    def is_stalled(self) -> bool:
        """Return whether the client reads its response too slowly or not at all."""
        unsent = self.connection.unsent_bytes()
        if unsent == 0 or self.has_progress or self._write_timeout is None:
            self._write_timeout = TransferTimeout(self._limiter.limits.transfer) if unsent else None
        else:
            self._write_timeout.record_progress(max(0, self._unsent_bytes - unsent))
        self._unsent_bytes, self.has_progress = unsent, False
        return self._write_timeout is not None and self._write_timeout.remaining_s <= 0


@dataclass(slots=True)
class EvictionStats:
    """Connections closed or refused since the start."""

    closed: int = 0
    """Idle connections closed for new ones."""
    refused: int = 0
    """New connections refused because none was idle."""
    stalled: int = 0
    """Connections closed because the client did not read its response."""


class UnauthenticatedQueue:
    """
    A queue that serves requests of clients with a valid key before those of others. It holds at most one request per connection.

    A key is checked while its request is served, so a flood of invalid keys costs as much as its rejections. If all requests started as
    they arrive, a hundred waiting requests would delay the next valid one. Therefore a connection whose last request had no valid key
    starts its next request through this queue, which starts one per turn of the event loop. Other ready work runs in between.
    """

    def __init__(self) -> None:
        self._queue: deque[StartRequest] = deque()
        self._has_started = False

    def __len__(self) -> int:
        """Return the number of waiting requests."""
        return len(self._queue)

    def start(self, request: StartRequest) -> None:
        """Start *request*: at once if the queue has started none in this turn of the loop, otherwise after those before it."""
        if self._has_started:
            self._queue.append(request)
            return
        self._has_started = True
        asyncio.get_running_loop().call_soon(self._start_next)
        request()

    def _start_next(self) -> None:
        if not self._queue:
            self._has_started = False
            return
        asyncio.get_running_loop().call_soon(self._start_next)
        self._queue.popleft()()


class ConnectionLimiter:
    """
    The open connections of this process and their limit.

    Args:
        limits: The limits; by default those that Rookery ships.
        get_owner: Returns the client that an address belongs to; each client may have half of the slots.
            None for an address that serves many clients, such as a proxy.
    """

    def __init__(self, limits: ConnectionLimits | None = None, *, get_owner: Callable[[str], str | None] = lambda _: None) -> None:
        self.limits = limits or ConnectionLimits()
        self.max_per_owner = max(1, self.limits.max_connections // 2)
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
        """Return the number of slots in use."""
        return len(self._slots)

    def acquire(self, address: str | None, connection: LimitedConnection) -> ConnectionSlot | None:
        """Return a slot for *connection*, if necessary that of an idle one; None if no slot is available."""
        owner = None if address is None else self._get_owner(address)
        is_greedy = owner is not None and self._slot_counts.get(owner, 0) >= self.max_per_owner
        if (is_greedy and not self._evict_idle(owner)) or (len(self._slots) >= self.limits.max_connections and not self._evict_idle(None)):
            self.evictions.refused += 1
            self._log_full()
            return None
        slot = ConnectionSlot(self, connection, owner)
        self._slots[slot] = self._idle_new[slot] = None
        if owner is not None:
            self._slot_counts[owner] = self._slot_counts.get(owner, 0) + 1
        if self._sweep_timer is None:
            self._sweep_timer = asyncio.get_running_loop().call_later(self.limits.sweep_interval_s, self._sweep)
        return slot

    def idle_slots(self, *, has_served: bool) -> dict[ConnectionSlot, None]:
        """Return the slots that may be evicted, the longest idle first."""
        return self._idle_served if has_served else self._idle_new

    def remove(self, slot: ConnectionSlot, *, has_served: bool) -> None:
        """Remove *slot*. Does nothing if it was removed already."""
        if slot not in self._slots:
            return
        del self._slots[slot]
        self.idle_slots(has_served=has_served).pop(slot, None)
        if slot.owner is not None:
            self._slot_counts[slot.owner] -= 1
            if not self._slot_counts[slot.owner]:
                del self._slot_counts[slot.owner]

    def _evict_idle(self, owner: str | None) -> bool:
        """Evict the longest idle connection, of *owner* if given. Connections that never served a request go first."""
        for idle in (self._idle_new, self._idle_served):
            for slot in idle:
                if (owner is None or slot.owner == owner) and not slot.connection.unsent_bytes():
                    self._evict(slot)
                    self.evictions.closed += 1
                    self._log_full()
                    return True
        return False

    def _evict(self, slot: ConnectionSlot) -> None:
        slot.release()
        slot.connection.abort()

    def _sweep(self) -> None:
        """Close the connections whose clients do not read."""
        for slot in tuple(self._slots):
            if slot.is_stalled():
                self._evict(slot)
                self.evictions.stalled += 1
        loop = asyncio.get_running_loop()
        self._sweep_timer = loop.call_later(self.limits.sweep_interval_s, self._sweep) if self._slots else None

    def _log_full(self) -> None:
        """Log a warning at most once per minute, so that a flood does not fill the log."""
        now = time.monotonic()
        if now - self._logged_at >= _LOG_INTERVAL_S:
            self._logged_at = now
            limit, stats = self.limits.max_connections, self.evictions
            _log.warning("connections.full", limit=limit, closed=stats.closed, refused=stats.refused, see="ROOKERY_MAX_CONNECTIONS")


def max_open_connections(limit: int) -> int:
    """Return the number of connections, at most *limit*, that the hard limit on open files allows."""
    hard_limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    return limit if hard_limit == resource.RLIM_INFINITY else max(1, min(limit, hard_limit - RESERVED_FILE_DESCRIPTORS))


def raise_file_limit(limit: int) -> int:
    """Raise the soft limit on open files for *limit* connections, as far as the system allows; return the possible number."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    possible = max_open_connections(limit)
    if soft != resource.RLIM_INFINITY and soft < possible + RESERVED_FILE_DESCRIPTORS:
        required = possible + RESERVED_FILE_DESCRIPTORS
        resource.setrlimit(resource.RLIMIT_NOFILE, (required if hard == resource.RLIM_INFINITY else min(required, hard), hard))
    return possible
