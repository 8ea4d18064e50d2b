"""The end of a workspace's memory: its rows now, its places in the indexes by jobs."""

from __future__ import annotations

from dataclasses import dataclass

from rookery.kernel.clock import Clock
from rookery.kernel.db import Tx
from rookery.kernel.jobs import Jobs
from rookery.memory.indexing import DELETE
from rookery.memory.maintenance.erasing import DELETED, owe
from rookery.memory.store import purging


@dataclass(frozen=True, slots=True)
class Purge:
    """Deletes what a workspace remembers, in the transaction that deletes the workspace; returns how many rows went."""

    jobs: Jobs
    clock: Clock

    def __call__(self, tx: Tx, workspace_id: int) -> int:
        """Delete the rows, forget the jobs that were for them, and have the indexes cleared."""
        ids, rows = purging.purge(tx, workspace_id)
        self.jobs.purge(tx, workspace_id)
        for memory_id in ids:
            self.jobs.enqueue(tx, DELETE, workspace_id=workspace_id, payload={"memory_id": memory_id})
        owe(tx, DELETED, clock=self.clock)
        return rows
