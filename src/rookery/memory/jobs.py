"""The background jobs of memory: EmbedMemory and DeleteFromIndex (spec 6.1, D-51)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rookery.kernel.clock import Clock
from rookery.kernel.db import Database, Tx
from rookery.kernel.jobs import Job, JobDeferred, JobDone, JobFailed, JobKind, JobOutcome
from rookery.memory.fair_batches import FairBatches
from rookery.memory.indexing import DELETE_JOB, EMBED_IMPORTED_JOB, EMBED_JOB, FORCE_FIELD, Indexer
from rookery.memory.models import Memory
from rookery.memory.store import indexing, records

RETRY_DELAYS_S = (10, 60, 300)
"""Delays of the three retries. After them the memory is failed until an engine recovers or a day passes (spec 6.1 and 8)."""

BATCH_SIZE = 32

MAX_BATCH_CHARS = 100_000
"""
Maximum characters of the memories that a batch indexes, unless it has only one memory. Embedding them takes 2 to 3 s on one core.

Without it, a batch of the longest memories takes a minute, and short ones of other workspaces wait for it.
"""

_HANDOVER_DELAY_S = 0.5
"""Longer than the wait of a busy process for an idle moment and the batch that it indexes before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryJobs:
    """The handlers of the job kinds. Each is idempotent."""

    db: Database
    indexer: Indexer
    clock: Clock
    _batches: FairBatches = field(default_factory=lambda: FairBatches(MAX_BATCH_CHARS))

    def kinds(self) -> list[JobKind]:
        """Return the job kinds for a worker."""
        return [
            self._embed_kind(EMBED_JOB),
            self._embed_kind(EMBED_IMPORTED_JOB),
            JobKind(
                name=DELETE_JOB,
                handler=self.delete,
                batch_size=BATCH_SIZE,
                retry_delays_s=RETRY_DELAYS_S,
                handover_delay_s=_HANDOVER_DELAY_S,
            ),
        ]

    def _embed_kind(self, name: str) -> JobKind:
        return JobKind(
            name=name,
            handler=self.embed,
            batch_size=BATCH_SIZE,
            retry_delays_s=RETRY_DELAYS_S,
            before_claim=self.indexer.wait_for_idle,
            handover_delay_s=_HANDOVER_DELAY_S,
            on_failed=self._mark_failed,
        )

    async def embed(self, jobs: Sequence[Job]) -> Mapping[str, JobOutcome]:
        """
        Index the memories of *jobs*. Those that were deleted or archived or that expired meanwhile are removed from the indexes.

        At most `MAX_BATCH_CHARS` are indexed, with turns of the workspaces. The other jobs are deferred.

        Raises:
            EngineUnavailable: An engine is down; the jobs wait until it is back.
        """
        ids_by_workspace: dict[int, dict[str, None]] = {}
        # A worker that died during the job may have overwritten a newer version with an old one.
        forced_ids = {_memory_id(job) for job in jobs if job.is_taken_over or job.payload.get(FORCE_FIELD) is True}
        for job in jobs:
            ids_by_workspace.setdefault(job.workspace_id, {})[_memory_id(job)] = None
        at, model = self.clock(), self.indexer.model

        def read(tx: Tx) -> tuple[list[Memory], dict[int, list[str]]]:
            pending_memories, dead_ids = list[Memory](), dict[int, list[str]]()
            for workspace_id, ids in ids_by_workspace.items():
                memories_by_id = {memory.id: memory for memory in records.get_memories(tx, workspace_id, list(ids))}
                live_ids = indexing.filter_live(tx, workspace_id, list(ids), at=at)
                pending_memories.extend(
                    memories_by_id[memory_id]
                    for memory_id in ids
                    if memory_id in live_ids and (memory_id in forced_ids or not _is_indexed(memories_by_id[memory_id], model))
                )
                dead_ids[workspace_id] = [memory_id for memory_id in ids if memory_id not in live_ids]
            return pending_memories, dead_ids

        pending_memories, dead_ids = await self.db.read(read)
        for workspace_id, ids in dead_ids.items():
            # A worker that died between its write and its last check may have left them in the indexes.
            await self.indexer.delete(workspace_id, ids)
        batch = self._batches.select(pending_memories)
        deferred_ids = {memory.id for memory in pending_memories} - {memory.id for memory in batch}
        reasons = await self.indexer.index(batch)
        outcomes = dict[str, JobOutcome]()
        for job in jobs:
            memory_id = _memory_id(job)
            if memory_id in reasons:
                outcomes[job.id] = JobFailed(reasons[memory_id])
            else:
                outcomes[job.id] = JobDeferred() if memory_id in deferred_ids else JobDone()
        return outcomes

    async def delete(self, jobs: Sequence[Job]) -> Mapping[str, JobOutcome]:
        """
        Remove the memories of *jobs* from the indexes, except those restored meanwhile.

        Raises:
            EngineUnavailable: An engine is down; the jobs wait until it is back.
        """
        ids_by_workspace: dict[int, list[str]] = {}
        for job in jobs:
            ids_by_workspace.setdefault(job.workspace_id, []).append(_memory_id(job))
        at = self.clock()

        def read(tx: Tx) -> dict[int, set[str]]:
            return {workspace_id: indexing.filter_live(tx, workspace_id, ids, at=at) for workspace_id, ids in ids_by_workspace.items()}

        live_ids = await self.db.read(read)
        for workspace_id, ids in ids_by_workspace.items():
            await self.indexer.delete(workspace_id, [memory_id for memory_id in ids if memory_id not in live_ids[workspace_id]])
        return {job.id: JobDone() for job in jobs}

    def _mark_failed(self, tx: Tx, job: Job) -> None:
        indexing.mark_failed(tx, job.workspace_id, _memory_id(job), at=self.clock())


def _is_indexed(memory: Memory, model: str) -> bool:
    """Return whether an earlier run, or another job of the same memory, has indexed it already."""
    return memory.indexed_at is not None and memory.indexed_at >= memory.updated_at and memory.indexed_model == model


def _memory_id(job: Job) -> str:
    memory_id = job.payload["memory_id"]
    if not isinstance(memory_id, str):
        msg = f"job {job.id} of kind {job.kind} has no memory_id"
        raise TypeError(msg)
    return memory_id
