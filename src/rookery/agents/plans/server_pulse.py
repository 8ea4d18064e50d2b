"""Gaps of the server: times in which no process ran, such as the sleep of a laptop. No agent could keep a lease then."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from datetime import datetime, timedelta

import structlog

from rookery.agents.store import claims as store
from rookery.kernel.clock import Clock, utc_now
from rookery.kernel.db import Database, Tx

MIN_GAP = timedelta(seconds=5)
"""Shortest time without a beat that is a gap."""

GRACE_PERIOD = timedelta(seconds=60)
"""Time that leases last after a gap in which they ended, so that their holders, who may have slept too, can renew them."""

BEAT_INTERVAL_S = 1.0
_STORE_INTERVAL = timedelta(seconds=5)

_log = structlog.stdlib.get_logger("rookery.agents")


@dataclass(frozen=True, slots=True)
class _Gap:
    """A gap, and the number of leases that it ended and that were extended."""

    seconds: int
    lease_count: int


class ServerPulse:
    """
    The beats of the processes of the server, and what follows from a gap between them.

    Each process keeps the time of its last beat. All processes share the time in the record store, because a lease is not extended while
    another process could renew it. It also shows how long the server was stopped.

    Attributes:
        clock: The clock of the machine, whichever clock the application uses. It goes on while the machine sleeps.
    """

    def __init__(self, *, db: Database, clock: Clock = utc_now) -> None:
        self._db = db
        self.clock = clock
        self._lock = asyncio.Lock()
        self._beat_at: datetime | None = None
        self._stored_at: datetime | None = None
        self._grace_end: datetime | None = None

    @property
    def is_in_grace_period(self) -> bool:
        """True for a minute after a gap of this process."""
        return self._grace_end is not None and self.clock() < self._grace_end

    async def beat(self) -> None:
        """Record that the process runs. Extend the leases that ended in a gap, if this is the first beat after one."""
        async with self._lock:
            now = self.clock()
            has_gap = self._has_gap(now)
            # The absolute difference also covers a clock that was set back.
            if has_gap or self._stored_at is None or abs(now - self._stored_at) >= _STORE_INTERVAL:
                gap = await self._db.write(lambda tx: self._store(tx, now), is_synced=has_gap)
                self._stored_at = now
                if gap is not None:
                    self._grace_end = now + GRACE_PERIOD
                    _log.info("agents.gap", seconds=gap.seconds, leases=gap.lease_count)
            self._beat_at = now

    async def require_beat(self) -> None:
        """Beat if the last beat is too long ago, so that no lease expires before a gap is known."""
        if self._has_gap(self.clock()):
            await self.beat()

    def _has_gap(self, now: datetime) -> bool:
        return self._beat_at is None or now - self._beat_at > MIN_GAP

    def _store(self, tx: Tx, now: datetime) -> _Gap | None:
        """Store the beat. Return the time before it in which no process had one, if there was such a time."""
        alive_at, gap = store.lock_alive_at(tx), None
        if alive_at is not None:
            # Another process stores its beats seldom, so its last one may be later than the record store shows.
            is_own = alive_at == self._stored_at and self._beat_at is not None
            start = alive_at if self._beat_at is None else max(alive_at, self._beat_at)
            if now - start > (MIN_GAP if is_own else MIN_GAP + _STORE_INTERVAL):
                lease_count = store.extend_leases(tx, after=start, until=now + GRACE_PERIOD)
                gap = _Gap(round((now - start).total_seconds()), lease_count)
        store.save_alive_at(tx, now)
        return gap
