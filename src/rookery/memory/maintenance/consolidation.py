"""Memories that say the same become one: written, indexed, verified, and only then the others archived (spec 4.4, D-52)."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from datetime import timedelta

from rookery.kernel.clock import Clock
from rookery.kernel.db import Database, Tx
from rookery.kernel.errors import OUTAGES
from rookery.kernel.events import EventBus
from rookery.kernel.ids import IdFactory
from rookery.kernel.jobs import JobQueue
from rookery.memory.batch_runs import BATCH_SIZE, RunItem, RunObserver, RunReport, null_observer
from rookery.memory.indexing import EMBED_JOB, Indexer
from rookery.memory.maintenance.batch_runner import BatchRun, BatchRunner
from rookery.memory.maintenance.clusters import Cluster, ClusterFinder, is_mergeable
from rookery.memory.merging import Merge, contains_merge, merge_memories
from rookery.memory.ports import VectorComparer, VectorIndex
from rookery.memory.records import archive_memory, revert_merges
from rookery.memory.store import maintenance, merges, records
from rookery.memory.store.maintenance import MemoryIdRow, MemorySelection

DEFAULT_THRESHOLD = 0.92

_MIN_TIME_STEP = timedelta(microseconds=1)

_COMPARE_BATCH_SIZE = 2048
"""
So many memories are compared with all others at once, and gone through again after a run that was killed among them. The more, the
less often the vectors of large spaces are read.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsolidationRequest:
    """
    What to consolidate; *org* and *project* exactly.

    Attributes:
        threshold: Cosine similarity that a memory must exceed to the one that it is merged into.
        resume: Go on where the same run was ended in the middle.
    """

    workspace_id: int
    org: str | None = None
    project: str | None = None
    threshold: float = DEFAULT_THRESHOLD
    dry_run: bool = False
    resume: bool = False


@dataclass(slots=True, kw_only=True)
class _Run:
    """
    What one run knows.

    Attributes:
        resumed_ids: What an earlier run had begun and this one finished; it goes on with none of these.
        pending_clusters: Clusters that are found and not yet merged.
    """

    request: ConsolidationRequest
    id: str
    observer: RunObserver
    resumed_ids: set[str] = field(default_factory=set[str])
    pending_clusters: list[Cluster] = field(default_factory=list[Cluster])
    cluster_count: int = 0
    merged_count: int = 0
    failure_count: int = 0


class Consolidation:
    """
    Makes one of those that say the same, by their stored vectors; safe beside a server at work.

    A memory is merged into the most trusted one that is like it, never over a chain of others like each other. Those that
    expire are left out: their end was chosen. So are those whose vector is not of their content of now. What comes while it
    goes is left to the next run.
    """

    def __init__(
        self,
        *,
        db: Database,
        indexer: Indexer,
        vectors: VectorIndex,
        comparer: VectorComparer,
        jobs: JobQueue,
        bus: EventBus,
        clock: Clock,
        ids: IdFactory,
        runner: BatchRunner,
    ) -> None:
        self._db = db
        self._indexer = indexer
        self._vectors = vectors
        self._comparer = comparer
        self._jobs = jobs
        self._bus = bus
        self._clock = clock
        self._ids = ids
        self._runner = runner

    async def run(self, request: ConsolidationRequest, *, observer: RunObserver | None = None) -> RunReport:
        """
        Consolidate, or tell what would be merged into what.

        What an earlier run left unfinished is finished first. A memory that cannot be embedded again is given its old words
        back and counted as a failure; an engine that goes down ends the run, and nothing is archived that was not verified.
        """
        run = _Run(request=request, id=self._ids(), observer=observer or null_observer())
        counting = MemorySelection(workspace_id=request.workspace_id, at=self._clock(), org=request.org, project=request.project)
        within = replace(counting, permanent_model=self._indexer.model)
        everything = await self._db.read(lambda tx: maintenance.count_memories(tx, counting))
        name = f"consolidate {request.workspace_id} {request.org!r} {request.project!r} {request.threshold}"
        course = BatchRun(name=name, selection=within, resume=request.resume, is_resumable=not request.dry_run)
        looking = list[ClusterFinder]()
        async with AsyncExitStack() as stack:

            async def first() -> None:
                await self._finish_interrupted(run)
                looking.append(await self._open_finder(run, stack))

            async def work(stretch: Sequence[MemoryIdRow]) -> None:
                clusters = looking[0]
                for batch in await clusters.find_candidates([each.id for each in stretch]):
                    await clusters.preload(batch)
                    for memory_id in batch:
                        for cluster in await clusters.find_clusters(memory_id):
                            await self._queue_cluster(run, cluster)
                await self._flush(run)

            gone = await self._runner.run(
                course,
                lambda tx, after: maintenance.list_ids(tx, within, after=after, limit=_COMPARE_BATCH_SIZE),
                work,
                observer=run.observer,
                before=first,
            )
        whole = gone.total if gone.stopped is None else gone.done
        return RunReport(
            total=gone.total,
            successes=max(whole - run.failure_count, 0),
            failures=run.failure_count,
            duration_s=gone.duration_s,
            counts={"clusters": run.cluster_count, "merged": run.merged_count, "left_out": max(everything - gone.total, 0)},
            stopped=gone.stopped,
        )

    async def _open_finder(self, run: _Run, stack: AsyncExitStack) -> ClusterFinder:
        wanted = run.request
        comparing = self._comparer.open_comparison(wanted.workspace_id, org=wanted.org, project=wanted.project)
        return ClusterFinder(
            db=self._db,
            vectors=self._vectors,
            comparison=await stack.enter_async_context(comparing),
            clock=self._clock,
            model=self._indexer.model,
            workspace_id=wanted.workspace_id,
            threshold=wanted.threshold,
            run=run.id,
            excluded_ids=run.resumed_ids,
        )

    async def _queue_cluster(self, run: _Run, cluster: Cluster) -> None:
        """Merge *cluster*, with others: as many as may be written at once, for they share commits, the embedder's batch and look-ups."""
        if sum(each.size for each in run.pending_clusters) + cluster.size > BATCH_SIZE:
            await self._flush(run)
        run.pending_clusters.append(cluster)

    async def _flush(self, run: _Run) -> None:
        """Merge what waits, or tell it."""
        clusters, run.pending_clusters = run.pending_clusters, []
        if not clusters:
            return
        if run.request.dry_run:
            done = [merge for cluster in clusters for merge in cluster.merges]
        else:
            planned = await self._db.write(lambda tx: self._write_merged(tx, run, clusters))
            done = await self._finish(run, planned) if planned else []
        run.cluster_count += len({each.primary_id for each in done})
        run.merged_count += len(done)
        for each in done:
            why = "it says nothing that the other does not" if each.length == 0 else f"{each.length:,} characters of it were new"
            run.observer.on_item(RunItem(id=each.memory_id, action="merge", why=why, into=each.primary_id))

    def _write_merged(self, tx: Tx, run: _Run, clusters: Sequence[Cluster]) -> list[Merge]:
        """Write the merged contents, if nobody changed any of them meanwhile; the others stay until that is verified."""
        seen = {each.id: each for cluster in clusters for each in (cluster.primary, *cluster.others)}
        held = [records.lock_memory(tx, run.request.workspace_id, each) for each in sorted(seen)]
        same = {each.id for each in held if each is not None and each == seen[each.id]}
        everything = list[Merge]()
        for cluster in clusters:
            top = cluster.primary
            if top.id not in same:
                continue
            whole, planned = merge_memories(top, [each for each in cluster.others if each.id in same], run=run.id)
            everything += planned
            if whole != top:
                updated_at = max(self._clock(), top.updated_at + _MIN_TIME_STEP)
                records.update_memory(tx, top, replace(whole, updated_at=updated_at, index_failed_at=None))
                self._jobs.enqueue(tx, EMBED_JOB, workspace_id=top.workspace_id, payload={"memory_id": top.id})
        merges.add(tx, everything)
        return everything

    async def _finish_interrupted(self, run: _Run) -> None:
        """Finish what a run that was killed had written and not verified."""
        after = ""
        while begun := await self._db.read(
            lambda tx, at=after: merges.list_unfinished(tx, run.request.workspace_id, after=at, limit=BATCH_SIZE)
        ):
            for primary_id in begun:
                into = await self._db.read(lambda tx, at=primary_id: merges.list_merged_into(tx, run.request.workspace_id, at))
                planned = [each for each in into if not each.is_done]
                done = planned if run.request.dry_run else await self._finish(run, planned)
                run.merged_count += len(done)
                run.resumed_ids |= {primary_id, *(each.memory_id for each in done)}
                for each in done:
                    run.observer.on_item(RunItem(id=each.memory_id, action="merge", why="an earlier run had begun it", into=primary_id))
            after = begun[-1]

    async def _finish(self, run: _Run, planned: Sequence[Merge]) -> list[Merge]:
        """Index the primaries of *planned*, look whether all is there, then archive the others; return what was done."""
        workspace_id = run.request.workspace_id
        ids = sorted({each.primary_id for each in planned})
        primaries = await self._db.read(lambda tx: records.get_memories(tx, workspace_id, ids))
        try:
            await self._indexer.index(
                [each for each in primaries if each.archived_at is None and not is_mergeable(each, self._indexer.model)]
            )
            there = set(await self._vectors.get_vectors(workspace_id, ids))
        except OUTAGES:
            await self._db.write(lambda tx: self._revert_merges(tx, planned))
            raise
        done = await self._db.write(lambda tx: self._archive(tx, workspace_id, planned, indexed_ids=there))
        run.failure_count += len(planned) - len(done)
        return done

    def _archive(self, tx: Tx, workspace_id: int, planned: Sequence[Merge], *, indexed_ids: set[str]) -> list[Merge]:
        now = self._clock()
        ids = {each.primary_id for each in planned} | {each.memory_id for each in planned}
        held = {each: records.lock_memory(tx, workspace_id, each) for each in sorted(ids)}
        done, undone = list[Merge](), list[Merge]()
        for merge in planned:
            primary, other = held[merge.primary_id], held[merge.memory_id]
            is_verified = merge.primary_id in indexed_ids and primary is not None and is_mergeable(primary, self._indexer.model)
            is_same = other is not None and other.archived_at is None and other.updated_at == merge.seen_at
            if is_verified and is_same and other is not None and primary is not None and contains_merge(primary, merge):
                archive_memory(tx, self._jobs, self._bus, other, at=now, superseded_by=merge.primary_id)
                merges.mark_done(tx, merge)
                done.append(merge)
                if primary.supersedes_id is None:
                    held[primary.id] = replace(primary, supersedes_id=other.id)
                    records.update_memory(tx, primary, replace(primary, supersedes_id=other.id))
            else:
                undone.append(merge)
        self._revert_merges(tx, undone)
        return done

    def _revert_merges(self, tx: Tx, merges_to_revert: Sequence[Merge]) -> None:
        """Give the primaries of *merges_to_revert* their old words back."""
        for primary_id in dict.fromkeys(each.primary_id for each in merges_to_revert):
            revert_merges(tx, self._jobs, [each for each in merges_to_revert if each.primary_id == primary_id], at=self._clock())
