"""The end of a workspace's memory: its rows now, its places in the indexes by jobs."""

from __future__ import annotations

from dataclasses import dataclass

from rookery.kernel.clock import Clock
from rookery.kernel.db import Tx
from rookery.kernel.jobs import JobQueue
from rookery.memory.indexing import DELETE_JOB
from rookery.memory.maintenance.erasure import DELETED_TEXT, add_pending_erasure
from rookery.memory.store import purge


@dataclass(frozen=True, slots=True)
class MemoryPurge:
    """Deletes what a workspace remembers, in the transaction that deletes the workspace; returns how many rows went."""

    jobs: JobQueue
    clock: Clock

    def __call__(self, tx: Tx, workspace_id: int) -> int:
        """Delete the rows, forget the jobs that were for them, and have the indexes cleared."""
        ids, rows = purge.purge_workspace(tx, workspace_id)
        self.jobs.purge(tx, workspace_id)
        for memory_id in ids:
            self.jobs.enqueue(tx, DELETE_JOB, workspace_id=workspace_id, payload={"memory_id": memory_id})
        add_pending_erasure(tx, DELETED_TEXT, clock=self.clock)
        return rows
