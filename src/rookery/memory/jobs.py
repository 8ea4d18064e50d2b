"""The background jobs of memory: EmbedMemory, IndexWords and DeleteFromIndex."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from operator import attrgetter

from rookery.kernel.clock import Clock
from rookery.kernel.db import Database, Tx
from rookery.kernel.errors import OUTAGES
from rookery.kernel.jobs import Job, JobDeferred, JobDone, JobFailed, JobKind, JobOutcome, JobQueue
from rookery.kernel.workspace_shares import WorkspaceShares
from rookery.memory.indexing import DELETE_JOB, EMBED_IMPORTED_JOB, EMBED_JOB, FORCE_FIELD, WORDS_JOB, Indexer
from rookery.memory.models import Memory
from rookery.memory.store import indexing, records

RETRY_DELAYS_S = (10, 60, 300)
"""Delays of the three retries. After them the memory is failed until an engine recovers or a day passes."""

BATCH_SIZE = 32

MAX_BATCH_CHARS = 100_000
"""
Maximum characters of the memories that a batch indexes, unless it has only one memory. Embedding them takes 2 to 3 s on one core.

Without it, a batch of the longest memories takes a minute, and short ones of other workspaces wait for it.
"""

_WORDS_BATCH_SIZE = 128
_MAX_EARLY_WORDS = 16 * _WORDS_BATCH_SIZE
"""Maximum memories whose words are written at one attempt while their vectors cannot be."""

_HANDOVER_DELAY_S = 0.5
"""Longer than the wait of a busy process for an idle moment and the batch that it indexes before."""


@dataclass(frozen=True, slots=True)
class _Candidate:
    """A memory with the characters of its workspace before and after it, counted from the same point for all workspaces."""

    memory: Memory
    start: int
    end: int


class FairBatches:
    """
    Limits batches by fair queueing: each memory has an end, the characters of its workspace up to and with it. The lowest ends go first.

    A workspace whose memories have to wait keeps its start, at most *max_chars* behind the others. So short memories do not wait for long
    ones, and a long one waits only until each of the others has had as many characters.

    Args:
        max_chars: Maximum characters of a batch with more than one memory.
    """

    def __init__(self, max_chars: int) -> None:
        self._max_chars = max_chars
        self._starts: dict[int, int] = {}
        """The start of each workspace that waits."""
        self._served_end = 0
        """The highest end of a batch so far, at which other workspaces start."""

    def select(self, memories: Sequence[Memory]) -> list[Memory]:
        """Return those of *memories* that are indexed now, at least one if there are any. Those of a workspace are in their order."""
        ends, candidates = dict[int, int](), list[_Candidate]()
        for memory in memories:
            start = ends.get(memory.workspace_id, self._get_start(memory.workspace_id))
            end = ends[memory.workspace_id] = start + len(memory.content)
            candidates.append(_Candidate(memory, start, end))
        candidates.sort(key=attrgetter("end"))
        count = self._count_fitting(candidates)
        if candidates:
            self._update(candidates[:count], candidates[count:])
        return [candidate.memory for candidate in candidates[:count]]

    def _get_start(self, workspace_id: int) -> int:
        return max(self._starts.get(workspace_id, self._served_end), self._served_end - self._max_chars)

    def _count_fitting(self, candidates: Sequence[_Candidate]) -> int:
        total = 0
        for count, candidate in enumerate(candidates):
            total += len(candidate.memory.content)
            if count and total > self._max_chars:
                return count
        return len(candidates)

    def _update(self, selected: Sequence[_Candidate], waiting: Sequence[_Candidate]) -> None:
        if not waiting:
            self._starts, self._served_end = {}, 0
            return
        self._served_end = max(self._served_end, selected[-1].end)
        for candidate in selected:
            self._starts.pop(candidate.memory.workspace_id, None)
        for candidate in reversed(waiting):
            self._starts[candidate.memory.workspace_id] = candidate.start


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryJobs:
    """The handlers of the job kinds. Each is idempotent."""

    db: Database
    queue: JobQueue
    indexer: Indexer
    clock: Clock
    shares: WorkspaceShares | None = None
    _batches: FairBatches = field(default_factory=lambda: FairBatches(MAX_BATCH_CHARS))
    _early_word_ids: dict[str, str] = field(default_factory=dict[str, str])
    """The last job of each kind whose words were written while its vectors could not be."""

    def kinds(self) -> list[JobKind]:
        """Return the job kinds for a worker."""
        return [
            self._embed_kind(EMBED_JOB),
            self._embed_kind(EMBED_IMPORTED_JOB),
            JobKind(
                name=WORDS_JOB,
                handler=self.index_words,
                batch_size=_WORDS_BATCH_SIZE,
                retry_delays_s=RETRY_DELAYS_S,
                before_claim=self.indexer.wait_for_idle,
                handover_delay_s=_HANDOVER_DELAY_S,
            ),
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
            shares=self.shares,
        )

    async def embed(self, jobs: Sequence[Job]) -> Mapping[str, JobOutcome]:
        """
        Index the memories of *jobs*. Those that were deleted or archived or that expired meanwhile are removed from the indexes.

        At most `MAX_BATCH_CHARS` are indexed, with turns of the workspaces. The other jobs are deferred. While the full-text index accepts
        no writes, only vectors are written, and jobs of another kind write the words later. While vectors cannot be written, the words of
        the waiting jobs are.

        Raises:
            EngineUnavailable: The embedder or the vector index is down; the jobs wait until it is back.
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
            await self.indexer.delete_or_defer(workspace_id, ids)
        batch = self._batches.select(pending_memories)
        deferred_ids = {memory.id for memory in pending_memories} - {memory.id for memory in batch}
        try:
            reasons = await self.indexer.index(batch, defers_words=True)
        except OUTAGES:
            with suppress(*OUTAGES):
                await self._write_waiting_words(jobs[0].kind)
            raise
        self._early_word_ids.pop(jobs[0].kind, None)
        outcomes = dict[str, JobOutcome]()
        for job in jobs:
            memory_id = _memory_id(job)
            if memory_id in reasons:
                outcomes[job.id] = JobFailed(reasons[memory_id])
            else:
                outcomes[job.id] = JobDeferred() if memory_id in deferred_ids else JobDone()
        return outcomes

    async def index_words(self, jobs: Sequence[Job]) -> Mapping[str, JobOutcome]:
        """
        Write the words of the memories of *jobs*. Those that were deleted meanwhile are skipped: jobs of their own remove them.

        Raises:
            EngineUnavailable: The full-text index is down or accepts no writes; the jobs wait until it does.
        """
        reasons = await self._write_words(jobs)
        return {job.id: JobFailed(reasons[_memory_id(job)]) if _memory_id(job) in reasons else JobDone() for job in jobs}

    async def _write_waiting_words(self, kind: str) -> None:
        """Write the words of the memories that wait for their vectors, once for each job."""
        for _ in range(0, _MAX_EARLY_WORDS, _WORDS_BATCH_SIZE):
            after_id = self._early_word_ids.get(kind, "")
            jobs = await self.queue.list_waiting(kind, after_id=after_id, limit=_WORDS_BATCH_SIZE)
            if not jobs:
                return
            await self._write_words(jobs)
            self._early_word_ids[kind] = jobs[-1].id

    async def _write_words(self, jobs: Sequence[Job]) -> Mapping[str, str]:
        """Write the words of the live memories of *jobs*. Return the reasons of failures by memory id."""
        ids_by_workspace: dict[int, list[str]] = {}
        for job in jobs:
            ids_by_workspace.setdefault(job.workspace_id, []).append(_memory_id(job))
        at = self.clock()

        def read(tx: Tx) -> list[Memory]:
            return [memory for workspace_id, ids in ids_by_workspace.items() for memory in indexing.get_live(tx, workspace_id, ids, at=at)]

        return await self.indexer.index(await self.db.read(read), words_only=True)

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
