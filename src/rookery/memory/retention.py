"""Deletion of what has expired, and of all memory of a deleted workspace."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta

from rookery.kernel.clock import Clock
from rookery.kernel.db import Database, Tx
from rookery.kernel.events import EventBus
from rookery.kernel.jobs import JobQueue
from rookery.memory.events import MemoryDeleted
from rookery.memory.indexing import DELETE_JOB
from rookery.memory.records import delete_memory
from rookery.memory.store import feedback, indexing, recalls
from rookery.memory.store.maintenance import DELETED_TEXT, add_pending_erasure
from rookery.memory.store.tables import purge_workspace

DEFAULT_RECALL_RETENTION = timedelta(days=30)

_BATCH_SIZE = 200
"""Rows per transaction, so that writers wait a few milliseconds at most."""

_MAX_BATCHES = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionTask:
    """Deletion of what has expired, once a minute in every process. Concurrent sweeps are harmless."""

    db: Database
    jobs: JobQueue
    bus: EventBus
    clock: Clock
    recall_retention: timedelta = DEFAULT_RECALL_RETENTION

    async def sweep(self) -> tuple[int, int]:
        """Delete expired memories, and recalls and feedback past their retention. Return the numbers of memories and of recalls."""
        memories = recalled = 0
        for _ in range(_MAX_BATCHES):
            swept = await self.db.write(self._delete_expired)
            memories += swept
            if swept < _BATCH_SIZE:
                break
        before = self.clock() - self.recall_retention
        for _ in range(_MAX_BATCHES):
            swept = await self.db.write(lambda tx: recalls.delete_before(tx, before, limit=_BATCH_SIZE))
            recalled += swept
            if swept < _BATCH_SIZE:
                break
        for _ in range(_MAX_BATCHES):
            if await self.db.write(lambda tx: feedback.delete_before(tx, before, limit=_BATCH_SIZE)) < _BATCH_SIZE:
                break
        return memories, recalled

    def _delete_expired(self, tx: Tx) -> int:
        now = self.clock()
        expired = indexing.list_expired(tx, at=now, limit=_BATCH_SIZE)
        for memory in expired:
            delete_memory(tx, self.jobs, self.bus, memory, MemoryDeleted(workspace_id=memory.workspace_id, memory_id=memory.id, at=now))
        return len(expired)


@dataclass(frozen=True, slots=True)
class MemoryPurge:
    """A hook that deletes the memories of a workspace in the transaction that deletes the workspace. It returns the number of rows."""

    jobs: JobQueue
    clock: Clock

    def __call__(self, tx: Tx, workspace_id: int) -> int:
        """Delete the rows and their pending jobs, and enqueue jobs that clear the indexes."""
        ids, rows = purge_workspace(tx, workspace_id)
        self.jobs.purge(tx, workspace_id)
        for memory_id in ids:
            self.jobs.enqueue(tx, DELETE_JOB, workspace_id=workspace_id, payload={"memory_id": memory_id})
        add_pending_erasure(tx, DELETED_TEXT, at=self.clock())
        return rows
