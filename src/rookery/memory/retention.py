"""Periodic deletion of expired memories and old recalls (D-17, D-43)."""

from __future__ import annotations

from datetime import timedelta

from rookery.kernel.clock import Clock
from rookery.kernel.db import Database, Tx
from rookery.kernel.events import EventBus, MemoryDeleted
from rookery.kernel.jobs import JobQueue
from rookery.memory.records import delete_memory
from rookery.memory.store import feedback, indexing, recalls

RECALL_RETENTION = timedelta(days=30)

_BATCH_SIZE = 200
"""Rows per transaction, so that writers wait a few milliseconds at most."""

_MAX_BATCHES = 1_000


class RetentionTask:
    """Deletion of what has expired, once a minute in every process. Concurrent sweeps are harmless."""

    def __init__(self, *, db: Database, jobs: JobQueue, bus: EventBus, clock: Clock) -> None:
        self._db = db
        self._jobs = jobs
        self._bus = bus
        self._clock = clock

    async def sweep(self) -> tuple[int, int]:
        """Delete expired memories, and recalls and feedback past their retention. Return the numbers of memories and of recalls."""
        memories = recalled = 0
        for _ in range(_MAX_BATCHES):
            swept = await self._db.write(self._delete_expired)
            memories += swept
            if swept < _BATCH_SIZE:
                break
        before = self._clock() - RECALL_RETENTION
        for _ in range(_MAX_BATCHES):
            swept = await self._db.write(lambda tx: recalls.delete_before(tx, before, limit=_BATCH_SIZE))
            recalled += swept
            if swept < _BATCH_SIZE:
                break
        for _ in range(_MAX_BATCHES):
            if await self._db.write(lambda tx: feedback.delete_before(tx, before, limit=_BATCH_SIZE)) < _BATCH_SIZE:
                break
        return memories, recalled

    def _delete_expired(self, tx: Tx) -> int:
        now = self._clock()
        expired = indexing.list_expired(tx, at=now, limit=_BATCH_SIZE)
        for memory in expired:
            delete_memory(tx, self._jobs, self._bus, memory, MemoryDeleted(workspace_id=memory.workspace_id, memory_id=memory.id, at=now))
        return len(expired)
