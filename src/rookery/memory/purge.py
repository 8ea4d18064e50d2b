"""Deletion of all memory of a workspace: the rows at once, the index entries by jobs."""

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
    """A hook that deletes the memories of a workspace in the transaction that deletes the workspace. It returns the number of rows."""

    jobs: JobQueue
    clock: Clock

    def __call__(self, tx: Tx, workspace_id: int) -> int:
        """Delete the rows and their pending jobs, and enqueue jobs that clear the indexes."""
        ids, rows = purge.purge_workspace(tx, workspace_id)
        self.jobs.purge(tx, workspace_id)
        for memory_id in ids:
            self.jobs.enqueue(tx, DELETE_JOB, workspace_id=workspace_id, payload={"memory_id": memory_id})
        add_pending_erasure(tx, DELETED_TEXT, clock=self.clock)
        return rows
