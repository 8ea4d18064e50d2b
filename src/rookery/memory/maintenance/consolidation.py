"""Consolidation: similar memories are merged, indexed and verified; only then the merged ones are archived."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace

from rookery.access.models import SYSTEM_ACTOR, Actor
from rookery.kernel.clock import Clock
from rookery.kernel.db import Database, Tx
from rookery.kernel.errors import OUTAGES
from rookery.kernel.events import EventBus
from rookery.kernel.ids import IdFactory
from rookery.kernel.jobs import JobQueue
from rookery.kernel.sentences import format_count
from rookery.memory.authorship import Author
from rookery.memory.batch_runs import BATCH_SIZE, SILENT, RunItem, RunObserver, RunReport
from rookery.memory.indexing import EMBED_JOB, Indexer
from rookery.memory.maintenance.batch_runner import BatchRun, BatchRunner
from rookery.memory.maintenance.clusters import Cluster, ClusterFinder, is_mergeable
from rookery.memory.merging import Merge, contains_merge, merge_memories
from rookery.memory.ports import OpenComparison, SpaceRow, VectorIndex
from rookery.memory.records import archive_memory, next_version, revert_merges
from rookery.memory.store import maintenance, records
from rookery.memory.store.maintenance import MemoryIdRow, MemorySelection
from rookery.memory.store.tables import MEMORIES, MERGES

DEFAULT_THRESHOLD = 0.92

_LISTED_MEMORIES = 4096
_COMPARE_BATCH_SIZE = 2048
"""
Memories compared with all others at once. A killed run repeats its last batch.

With larger batches the vectors of large spaces are read less often.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsolidationRequest:
    """
    The parameters of a consolidation; *org* and *project* must match exactly.

    Attributes:
        threshold: Exclusive minimum cosine similarity of a memory and the one that it is merged into.
        resume: Continue an interrupted run.
        by: The author of the merged memories.
    """

    workspace_id: int
    org: str | None = None
    project: str | None = None
    threshold: float = DEFAULT_THRESHOLD
    dry_run: bool = False
    resume: bool = False
    by: Actor = SYSTEM_ACTOR

    @property
    def author(self) -> Author:
        """The author of the merged memories."""
        return Author.from_actor(self.by)


@dataclass(slots=True, kw_only=True)
class _Run:
    """
    The state of one run.

    Attributes:
        resumed_ids: Memories whose merge an earlier run began and this one finished. This run does not merge them again.
        pending_clusters: Clusters that are found but not yet merged.
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
    The merge of similar memories, by their stored vectors. Safe while a server runs.

    A memory is merged into the most trusted similar one that states nothing else, and never through a chain of similar memories. Memories
    that expire and memories whose vectors are stale are left out. Memories added meanwhile are left to the next run.
    """

    def __init__(
        self,
        *,
        db: Database,
        indexer: Indexer,
        vectors: VectorIndex,
        open_comparison: OpenComparison,
        jobs: JobQueue,
        bus: EventBus,
        clock: Clock,
        ids: IdFactory,
        runner: BatchRunner,
    ) -> None:
        self._db = db
        self._indexer = indexer
        self._vectors = vectors
        self._open_comparison = open_comparison
        self._jobs = jobs
        self._bus = bus
        self._clock = clock
        self._ids = ids
        self._runner = runner

    async def run(self, request: ConsolidationRequest, *, observer: RunObserver | None = None) -> RunReport:
        """
        Consolidate, or report the merges in a dry run.

        Merges that an earlier run left unfinished are finished first. If a merged memory cannot be embedded, its old text is restored
        and a failure is counted. An engine that goes down ends the run; only verified merges are archived.
        """
        run = _Run(request=request, id=self._ids(), observer=observer or SILENT)
        all_live = MemorySelection(workspace_id=request.workspace_id, at=self._clock(), org=request.org, project=request.project)
        selection = replace(all_live, permanent_model=self._indexer.model)
        live_count = await self._db.read(lambda tx: maintenance.count_memories(tx, all_live))
        name = f"consolidate {request.workspace_id} {request.org!r} {request.project!r} {request.threshold}"
        batch_run = BatchRun(name=name, selection=selection, resume=request.resume, is_resumable=not request.dry_run)
        finders = list[ClusterFinder]()
        async with AsyncExitStack() as stack:

            async def prepare() -> None:
                await self._finish_interrupted(run)
                finders.append(await self._open_finder(run, stack))

            async def work(batch: Sequence[MemoryIdRow]) -> None:
                finder = finders[0]
                for candidates in await finder.find_candidates([row.id for row in batch]):
                    await finder.preload(candidates)
                    for memory_id in candidates:
                        for cluster in await finder.find_clusters(memory_id):
                            await self._queue_cluster(run, cluster)
                await self._flush(run)

            result = await self._runner.run(
                batch_run,
                lambda tx, after: maintenance.list_ids(tx, selection, after=after, limit=_COMPARE_BATCH_SIZE),
                work,
                observer=run.observer,
                before=prepare,
            )
        kept_apart = [item for finder in finders for item in finder.list_kept_apart()]
        for item in kept_apart:
            run.observer.on_item(RunItem(id=item.memory_id, action="keep apart", why=str(item.distinction), apart_from=item.primary_id))
        processed = result.total if result.stopped is None else result.successes
        return RunReport(
            total=result.total,
            successes=max(processed - run.failure_count, 0),
            failures=run.failure_count,
            duration_s=result.duration_s,
            counts={
                "clusters": run.cluster_count,
                "merged": run.merged_count,
                "kept_apart": len(kept_apart),
                "left_out": max(live_count - result.total, 0),
            },
            stopped=result.stopped,
        )

    async def _open_finder(self, run: _Run, stack: AsyncExitStack) -> ClusterFinder:
        request = run.request
        selection = MemorySelection(
            workspace_id=request.workspace_id, org=request.org, project=request.project, permanent_model=self._indexer.model
        )
        comparison = self._open_comparison(self._vectors, request.workspace_id, self._list_spaces(selection))
        return ClusterFinder(
            db=self._db,
            vectors=self._vectors,
            comparison=await stack.enter_async_context(comparison),
            clock=self._clock,
            model=self._indexer.model,
            workspace_id=request.workspace_id,
            threshold=request.threshold,
            run=run.id,
            excluded_ids=run.resumed_ids,
        )

    async def _list_spaces(self, selection: MemorySelection) -> AsyncGenerator[Sequence[SpaceRow]]:
        """Yield the selected memories with their spaces, in batches."""
        after = ""
        while rows := await self._db.read(lambda tx, at=after: maintenance.list_spaces(tx, selection, after=at, limit=_LISTED_MEMORIES)):
            yield rows
            after = rows[-1][0]

    async def _queue_cluster(self, run: _Run, cluster: Cluster) -> None:
        """Queue *cluster* and merge the queue when it is full. Clusters share commits, look-ups and the embedder's batch."""
        if sum(pending.size for pending in run.pending_clusters) + cluster.size > BATCH_SIZE:
            await self._flush(run)
        run.pending_clusters.append(cluster)

    async def _flush(self, run: _Run) -> None:
        """Merge the queued clusters, or report them in a dry run."""
        clusters, run.pending_clusters = run.pending_clusters, []
        if not clusters:
            return
        if run.request.dry_run:
            done_merges = [merge for cluster in clusters for merge in cluster.merges]
        else:
            planned_merges = await self._db.write(lambda tx: self._write_merged(tx, run, clusters))
            done_merges = await self._finish(run, planned_merges) if planned_merges else []
        run.cluster_count += len({merge.primary_id for merge in done_merges})
        run.merged_count += len(done_merges)
        for merge in done_merges:
            reason = (
                "it has no text that the other lacks"
                if merge.length == 0
                else f"{format_count(merge.length, 'character of it was', 'characters of it were')} added"
            )
            run.observer.on_item(RunItem(id=merge.memory_id, action="merge", why=reason, into=merge.primary_id))

    def _write_merged(self, tx: Tx, run: _Run, clusters: Sequence[Cluster]) -> list[Merge]:
        """Write the merged contents of clusters whose memories did not change meanwhile. The other memories stay until verification."""
        memories_by_id = {memory.id: memory for cluster in clusters for memory in (cluster.primary, *cluster.others)}
        locked_memories = [MEMORIES.find(tx, run.request.workspace_id, id=memory_id, lock=True) for memory_id in sorted(memories_by_id)]
        unchanged = {memory.id for memory in locked_memories if memory is not None and memory == memories_by_id[memory.id]}
        all_merges = list[Merge]()
        for cluster in clusters:
            top = cluster.primary
            if top.id not in unchanged:
                continue
            merged_memory, planned_merges = merge_memories(top, [memory for memory in cluster.others if memory.id in unchanged], run=run.id)
            all_merges += planned_merges
            if merged_memory != top:
                records.update_memory(tx, top, next_version(top, merged_memory, by=run.request.author, at=self._clock()))
                self._jobs.enqueue(tx, EMBED_JOB, workspace_id=top.workspace_id, payload={"memory_id": top.id})
        records.add_merges(tx, all_merges)
        return all_merges

    async def _finish_interrupted(self, run: _Run) -> None:
        """Finish the merges that a killed run wrote but did not verify."""
        after = ""
        while unfinished_ids := await self._db.read(
            lambda tx, at=after: records.list_unfinished_merges(tx, run.request.workspace_id, after=at, limit=BATCH_SIZE)
        ):
            for primary_id in unfinished_ids:
                into = await self._db.read(lambda tx, at=primary_id: MERGES.find_all(tx, run.request.workspace_id, primary_id=at))
                planned_merges = [merge for merge in into if not merge.is_done]
                done_merges = planned_merges if run.request.dry_run else await self._finish(run, planned_merges)
                run.merged_count += len(done_merges)
                run.resumed_ids |= {primary_id, *(merge.memory_id for merge in done_merges)}
                for merge in done_merges:
                    run.observer.on_item(RunItem(id=merge.memory_id, action="merge", why="begun by an earlier run", into=primary_id))
            after = unfinished_ids[-1]

    async def _finish(self, run: _Run, planned_merges: Sequence[Merge]) -> list[Merge]:
        """Index the primaries of *planned_merges*, verify the merges, archive the merged memories. Return the completed merges."""
        workspace_id = run.request.workspace_id
        ids = sorted({merge.primary_id for merge in planned_merges})
        primaries = await self._db.read(lambda tx: records.get_memories(tx, workspace_id, ids))
        try:
            await self._indexer.index(
                [memory for memory in primaries if memory.archived_at is None and not is_mergeable(memory, self._indexer.model)]
            )
            indexed = set(await self._vectors.fetch(workspace_id, ids))
        except OUTAGES:
            await self._db.write(lambda tx: self._revert_merges(tx, planned_merges, by=run.request.author))
            raise
        done_merges = await self._db.write(lambda tx: self._archive(tx, run.request, planned_merges, indexed_ids=indexed))
        run.failure_count += len(planned_merges) - len(done_merges)
        return done_merges

    def _archive(self, tx: Tx, request: ConsolidationRequest, planned_merges: Sequence[Merge], *, indexed_ids: set[str]) -> list[Merge]:
        now, workspace_id = self._clock(), request.workspace_id
        ids = {merge.primary_id for merge in planned_merges} | {merge.memory_id for merge in planned_merges}
        locked_memories = {memory_id: MEMORIES.find(tx, workspace_id, id=memory_id, lock=True) for memory_id in sorted(ids)}
        done_merges, undone = list[Merge](), list[Merge]()
        for merge in planned_merges:
            primary, other = locked_memories[merge.primary_id], locked_memories[merge.memory_id]
            is_verified = merge.primary_id in indexed_ids and primary is not None and is_mergeable(primary, self._indexer.model)
            is_same = other is not None and other.archived_at is None and other.updated_at == merge.seen_at
            if is_verified and is_same and other is not None and primary is not None and contains_merge(primary, merge):
                archive_memory(tx, self._jobs, self._bus, other, at=now, superseded_by=merge.primary_id)
                MERGES.update(tx, replace(merge, is_done=True))
                done_merges.append(merge)
                if primary.supersedes_id is None:
                    locked_memories[primary.id] = replace(primary, supersedes_id=other.id)
                    records.update_memory(tx, primary, replace(primary, supersedes_id=other.id))
            else:
                undone.append(merge)
        self._revert_merges(tx, undone, by=request.author)
        return done_merges

    def _revert_merges(self, tx: Tx, merges_to_revert: Sequence[Merge], *, by: Author) -> None:
        """Restore the old text of the primaries of *merges_to_revert*."""
        for primary_id in dict.fromkeys(merge.primary_id for merge in merges_to_revert):
            of_primary = [merge for merge in merges_to_revert if merge.primary_id == primary_id]
            revert_merges(tx, self._jobs, of_primary, by=by, at=self._clock())
