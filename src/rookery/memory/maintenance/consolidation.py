"""Memories that say the same become one: written, indexed, verified, and only then the others archived (spec 4.4, D-52)."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from datetime import timedelta

from rookery.kernel.clock import Clock
from rookery.kernel.db import Database, Tx
from rookery.kernel.errors import OUTAGES
from rookery.kernel.events import Bus
from rookery.kernel.ids import Ids
from rookery.kernel.jobs import Jobs
from rookery.memory.indexing import EMBED, Indexer
from rookery.memory.maintenance.clusters import Cluster, Clusters, is_open
from rookery.memory.maintenance.rounds import Course, Rounds
from rookery.memory.merging import Merge, has, merged
from rookery.memory.ports import Comparisons, VectorIndex
from rookery.memory.records import put_away, take_back
from rookery.memory.runs import BATCH, Item, Report, Watch, unwatched
from rookery.memory.store import merges, records, tidying
from rookery.memory.store.tidying import Listed, Range

THRESHOLD = 0.92

_TICK = timedelta(microseconds=1)

_STRETCH = 2048
"""
So many memories are compared with all others at once, and gone through again after a run that was killed among them. The more, the
less often the vectors of large spaces are read.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """
    What to consolidate; *org* and *project* exactly.

    Attributes:
        threshold: Cosine similarity that a memory must exceed to the one that it is merged into.
        resume: Go on where the same run was ended in the middle.
    """

    workspace_id: int
    org: str | None = None
    project: str | None = None
    threshold: float = THRESHOLD
    dry_run: bool = False
    resume: bool = False


@dataclass(slots=True, kw_only=True)
class _Run:
    """
    What one run knows.

    Attributes:
        begun: What an earlier run had begun and this one finished; it goes on with none of these.
        waiting: Clusters that are found and not yet merged.
    """

    wanted: Wanted
    id: str
    watch: Watch
    begun: set[str] = field(default_factory=set[str])
    waiting: list[Cluster] = field(default_factory=list[Cluster])
    clusters: int = 0
    merged: int = 0
    failures: int = 0


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
        comparisons: Comparisons,
        jobs: Jobs,
        bus: Bus,
        clock: Clock,
        ids: Ids,
        rounds: Rounds,
    ) -> None:
        self._db = db
        self._indexer = indexer
        self._vectors = vectors
        self._comparisons = comparisons
        self._jobs = jobs
        self._bus = bus
        self._clock = clock
        self._ids = ids
        self._rounds = rounds

    async def run(self, wanted: Wanted, *, watch: Watch | None = None) -> Report:
        """
        Consolidate, or tell what would be merged into what.

        What an earlier run left unfinished is finished first. A memory that cannot be embedded again is given its old words
        back and counted as a failure; an engine that goes down ends the run, and nothing is archived that was not verified.
        """
        run = _Run(wanted=wanted, id=self._ids(), watch=watch or unwatched())
        counting = Range(workspace_id=wanted.workspace_id, at=self._clock(), org=wanted.org, project=wanted.project)
        within = replace(counting, lasting_for=self._indexer.model)
        everything = await self._db.read(lambda tx: tidying.number(tx, counting))
        name = f"consolidate {wanted.workspace_id} {wanted.org!r} {wanted.project!r} {wanted.threshold}"
        course = Course(name=name, of=within, resume=wanted.resume, is_kept=not wanted.dry_run)
        looking = list[Clusters]()
        async with AsyncExitStack() as stack:

            async def first() -> None:
                await self._finish_begun(run)
                looking.append(await self._look(run, stack))

            async def work(stretch: Sequence[Listed]) -> None:
                clusters = looking[0]
                for batch in await clusters.candidates([each.id for each in stretch]):
                    await clusters.read(batch)
                    for memory_id in batch:
                        for cluster in await clusters.of(memory_id):
                            await self._take(run, cluster)
                await self._flush(run)

            gone = await self._rounds.through(
                course, lambda tx, after: tidying.listed(tx, within, after=after, limit=_STRETCH), work, watch=run.watch, first=first
            )
        whole = gone.total if gone.stopped is None else gone.done
        return Report(
            total=gone.total,
            successes=max(whole - run.failures, 0),
            failures=run.failures,
            duration_s=gone.duration_s,
            counts={"clusters": run.clusters, "merged": run.merged, "left_out": max(everything - gone.total, 0)},
            stopped=gone.stopped,
        )

    async def _look(self, run: _Run, stack: AsyncExitStack) -> Clusters:
        wanted = run.wanted
        comparing = self._comparisons.comparing(wanted.workspace_id, org=wanted.org, project=wanted.project)
        return Clusters(
            db=self._db,
            vectors=self._vectors,
            comparing=await stack.enter_async_context(comparing),
            clock=self._clock,
            model=self._indexer.model,
            workspace_id=wanted.workspace_id,
            threshold=wanted.threshold,
            run=run.id,
            taken=run.begun,
        )

    async def _take(self, run: _Run, cluster: Cluster) -> None:
        """Merge *cluster*, with others: as many as may be written at once, for they share commits, the embedder's batch and look-ups."""
        if sum(each.size for each in run.waiting) + cluster.size > BATCH:
            await self._flush(run)
        run.waiting.append(cluster)

    async def _flush(self, run: _Run) -> None:
        """Merge what waits, or tell it."""
        clusters, run.waiting = run.waiting, []
        if not clusters:
            return
        if run.wanted.dry_run:
            done = [merge for cluster in clusters for merge in cluster.merges]
        else:
            planned = await self._db.write(lambda tx: self._plan(tx, run, clusters))
            done = await self._finish(run, planned) if planned else []
        run.clusters += len({each.primary_id for each in done})
        run.merged += len(done)
        for each in done:
            why = "it says nothing that the other does not" if each.length == 0 else f"{each.length:,} characters of it were new"
            run.watch.item(Item(id=each.memory_id, action="merge", why=why, into=each.primary_id))

    def _plan(self, tx: Tx, run: _Run, clusters: Sequence[Cluster]) -> list[Merge]:
        """Write the merged contents, if nobody changed any of them meanwhile; the others stay until that is verified."""
        seen = {each.id: each for cluster in clusters for each in (cluster.primary, *cluster.others)}
        held = [records.locked(tx, run.wanted.workspace_id, each) for each in sorted(seen)]
        same = {each.id for each in held if each is not None and each == seen[each.id]}
        everything = list[Merge]()
        for cluster in clusters:
            top = cluster.primary
            if top.id not in same:
                continue
            whole, planned = merged(top, [each for each in cluster.others if each.id in same], run=run.id)
            everything += planned
            if whole != top:
                updated_at = max(self._clock(), top.updated_at + _TICK)
                records.change(tx, top, replace(whole, updated_at=updated_at, index_failed_at=None))
                self._jobs.enqueue(tx, EMBED, workspace_id=top.workspace_id, payload={"memory_id": top.id})
        merges.add(tx, everything)
        return everything

    async def _finish_begun(self, run: _Run) -> None:
        """Finish what a run that was killed had written and not verified."""
        after = ""
        while begun := await self._db.read(lambda tx, at=after: merges.unfinished(tx, run.wanted.workspace_id, after=at, limit=BATCH)):
            for primary_id in begun:
                into = await self._db.read(lambda tx, at=primary_id: merges.into(tx, run.wanted.workspace_id, at))
                planned = [each for each in into if not each.is_done]
                done = planned if run.wanted.dry_run else await self._finish(run, planned)
                run.merged += len(done)
                run.begun |= {primary_id, *(each.memory_id for each in done)}
                for each in done:
                    run.watch.item(Item(id=each.memory_id, action="merge", why="an earlier run had begun it", into=primary_id))
            after = begun[-1]

    async def _finish(self, run: _Run, planned: Sequence[Merge]) -> list[Merge]:
        """Index the primaries of *planned*, look whether all is there, then archive the others; return what was done."""
        workspace_id = run.wanted.workspace_id
        ids = sorted({each.primary_id for each in planned})
        primaries = await self._db.read(lambda tx: records.by_ids(tx, workspace_id, ids))
        try:
            await self._indexer.index([each for each in primaries if each.archived_at is None and not is_open(each, self._indexer.model)])
            there = set(await self._vectors.stored(workspace_id, ids))
        except OUTAGES:
            await self._db.write(lambda tx: self._take_back(tx, planned))
            raise
        done = await self._db.write(lambda tx: self._archive(tx, workspace_id, planned, there=there))
        run.failures += len(planned) - len(done)
        return done

    def _archive(self, tx: Tx, workspace_id: int, planned: Sequence[Merge], *, there: set[str]) -> list[Merge]:
        now = self._clock()
        ids = {each.primary_id for each in planned} | {each.memory_id for each in planned}
        held = {each: records.locked(tx, workspace_id, each) for each in sorted(ids)}
        done, undone = list[Merge](), list[Merge]()
        for merge in planned:
            primary, other = held[merge.primary_id], held[merge.memory_id]
            is_verified = merge.primary_id in there and primary is not None and is_open(primary, self._indexer.model)
            is_same = other is not None and other.archived_at is None and other.updated_at == merge.seen_at
            if is_verified and is_same and other is not None and primary is not None and has(primary, merge):
                put_away(tx, self._jobs, self._bus, other, at=now, superseded_by=merge.primary_id)
                merges.finish(tx, merge)
                done.append(merge)
                if primary.supersedes_id is None:
                    held[primary.id] = replace(primary, supersedes_id=other.id)
                    records.change(tx, primary, replace(primary, supersedes_id=other.id))
            else:
                undone.append(merge)
        self._take_back(tx, undone)
        return done

    def _take_back(self, tx: Tx, undone: Sequence[Merge]) -> None:
        """Give the primaries of *undone* their old words back."""
        for primary_id in dict.fromkeys(each.primary_id for each in undone):
            take_back(tx, self._jobs, [each for each in undone if each.primary_id == primary_id], at=self._clock())
