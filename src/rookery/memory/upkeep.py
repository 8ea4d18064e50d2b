"""What time does to memories and recalls: expiry and retention (D-17, D-43)."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import structlog

from rookery.kernel.clock import Clock
from rookery.kernel.db import Database, Tx
from rookery.kernel.events import Bus, MemoryDeleted
from rookery.kernel.jobs import Jobs
from rookery.kernel.log_limits import FailureLog
from rookery.memory.records import remove
from rookery.memory.store import feedback, indexing, recalls

RECALLS_KEPT = timedelta(days=30)

_EVERY_S = 60.0
_AT_ONCE = 200
"""So many rows a transaction, so that writers wait a few milliseconds at most."""

_MOST_ROUNDS = 1_000

_log = structlog.stdlib.get_logger("rookery.memory")


class Upkeep:
    """Sweeps once a minute, in every process: what another one swept already is not there any more."""

    def __init__(self, *, db: Database, jobs: Jobs, bus: Bus, clock: Clock) -> None:
        self._db = db
        self._jobs = jobs
        self._bus = bus
        self._clock = clock

    async def run(self) -> None:
        """Sweep until cancelled."""
        failures = FailureLog(_log, "memory.sweep_failed")
        while True:
            try:
                await self.sweep()
            except Exception as error:  # noqa: BLE001 - logged; the next sweep may do better
                failures.report(error)
            await asyncio.sleep(_EVERY_S)

    async def sweep(self) -> tuple[int, int]:
        """Delete memories whose time is over and recalls past their retention; return how many of each."""
        memories = recalled = 0
        for _ in range(_MOST_ROUNDS):
            swept = await self._db.write(self._expire)
            memories += swept
            if swept < _AT_ONCE:
                break
        before = self._clock() - RECALLS_KEPT
        for _ in range(_MOST_ROUNDS):
            swept = await self._db.write(lambda tx: recalls.drop_before(tx, before, limit=_AT_ONCE))
            recalled += swept
            if swept < _AT_ONCE:
                break
        for _ in range(_MOST_ROUNDS):
            if await self._db.write(lambda tx: feedback.drop_before(tx, before, limit=_AT_ONCE)) < _AT_ONCE:
                break
        return memories, recalled

    def _expire(self, tx: Tx) -> int:
        now = self._clock()
        over = indexing.expired(tx, at=now, limit=_AT_ONCE)
        for memory in over:
            remove(tx, self._jobs, self._bus, memory, MemoryDeleted(workspace_id=memory.workspace_id, memory_id=memory.id, at=now))
        return len(over)
