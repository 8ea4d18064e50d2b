"""Memories that say the same become one: written, indexed, verified, and only then the others archived (spec 4.4, D-52)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from operator import mul
from struct import unpack

from rookery.kernel.clock import Clock
from rookery.kernel.db import Database, Tx
from rookery.kernel.errors import EngineUnavailable
from rookery.kernel.events import Bus
from rookery.kernel.ids import Ids
from rookery.kernel.jobs import Jobs
from rookery.memory.indexing import EMBED, Indexer
from rookery.memory.maintenance.rounds import Course, Rounds, batches
from rookery.memory.merging import Merge, has, merged, rank, space
from rookery.memory.models import Memory, MemoryScope, Vector, Within
from rookery.memory.ports import VectorIndex
from rookery.memory.records import put_away, take_back
from rookery.memory.runs import BATCH, Item, Report, Watch, unwatched
from rookery.memory.store import merges, records, tidying
from rookery.memory.store.tidying import Range

THRESHOLD = 0.92

_TICK = timedelta(microseconds=1)
_FEW, _MANY = 32, 512
"""So many neighbours are asked for; if all of those few are similar enough, so many."""

_CLIMBS = 64
"""A bound on the way from a memory to a more trusted one like it, and to the next: each step ends sooner in practice."""


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
        pretended: In a dry run, who would have been archived or merged into already.
    """

    wanted: Wanted
    id: str
    watch: Watch
    pretended: set[str]
    clusters: int = 0
    merged: int = 0
    failures: int = 0


class Consolidation:
    """
    Makes one of those that say the same, by their stored vectors; safe beside a server at work.

    A memory is merged into the most trusted one that is like it, never over a chain of others like each other. Those that
    expire are left out: their end was chosen. So are those whose vector is not of their content of now.
    """

    def __init__(
        self,
        *,
        db: Database,
        indexer: Indexer,
        vectors: VectorIndex,
        jobs: Jobs,
        bus: Bus,
        clock: Clock,
        ids: Ids,
        rounds: Rounds,
    ) -> None:
        self._db = db
        self._indexer = indexer
        self._vectors = vectors
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
        run = _Run(wanted=wanted, id=self._ids(), watch=watch or unwatched(), pretended=set())
        counting = Range(workspace_id=wanted.workspace_id, at=self._clock(), org=wanted.org, project=wanted.project)
        within = replace(counting, lasting_for=self._indexer.model)

        async def work(stretch: Sequence[Memory]) -> None:
            chunks = await self._vectors.stored(wanted.workspace_id, [memory.id for memory in stretch])
            for memory in stretch:
                # Most are like no other, and are done with by this one look at the index.
                if await self._neighbours(run, memory, chunks.get(memory.id, ())):
                    await self._settle(run, memory)

        everything = await self._db.read(lambda tx: tidying.number(tx, counting))
        name = f"consolidate {wanted.workspace_id} {wanted.org!r} {wanted.project!r} {wanted.threshold}"
        course = Course(name=name, of=within, resume=wanted.resume, is_kept=not wanted.dry_run)
        gone = await self._rounds.through(course, batches(within), work, watch=run.watch, first=lambda: self._finish_begun(run))
        whole = gone.total if gone.stopped is None else gone.done
        return Report(
            total=gone.total,
            successes=max(whole - run.failures, 0),
            failures=run.failures,
            duration_s=gone.duration_s,
            counts={"clusters": run.clusters, "merged": run.merged, "left_out": max(everything - gone.total, 0)},
            stopped=gone.stopped,
        )

    async def _settle(self, run: _Run, memory: Memory) -> None:
        """Merge *memory* into the most trusted one like it, or what is like it into *memory*, if there is any."""
        for _ in range(_CLIMBS):
            fresh = await self._open(run, [memory.id])
            if not fresh:
                return
            top = fresh[0]
            alike = await self._alike(run, top)
            for _ in range(_CLIMBS):
                best = min([top, *alike], key=rank)
                if best.id == top.id:
                    break
                top, alike = best, await self._alike(run, best)
            if not alike:
                return
            taken = await self._merge(run, top, sorted(alike, key=rank))
            if not taken or top.id == memory.id or memory.id in taken:
                return

    async def _open(self, run: _Run, ids: Sequence[str]) -> list[Memory]:
        """Return those of *ids* that this run may still merge, as they are now."""
        wanted, at, model = run.wanted, self._clock(), self._indexer.model

        def read(tx: Tx) -> list[Memory]:
            settled = merges.settled(tx, wanted.workspace_id, ids, run=run.id)
            found = records.by_ids(tx, wanted.workspace_id, [each for each in ids if each not in settled])
            return [each for each in found if _is_open(each, model) and (each.expires_at is None or each.expires_at > at)]

        return [each for each in await self._db.read(read) if each.id not in run.pretended]

    async def _alike(self, run: _Run, memory: Memory) -> list[Memory]:
        """Return the memories of the same space that are like *memory*, chunk by chunk of theirs."""
        chunks = (await self._vectors.stored(memory.workspace_id, [memory.id])).get(memory.id, ())
        near = await self._neighbours(run, memory, chunks)
        candidates = [each for each in await self._open(run, sorted(near)) if space(each) == space(memory)] if near else []
        if not candidates:
            return []
        theirs = await self._vectors.stored(memory.workspace_id, [each.id for each in candidates])
        threshold = run.wanted.threshold
        return [each for each in candidates if each.id in theirs and _likeness(chunks, theirs[each.id]) > threshold]

    async def _neighbours(self, run: _Run, memory: Memory, chunks: Sequence[Vector]) -> set[str]:
        near = set[str]()
        for chunk in chunks:
            near |= await self._near(run, memory, chunk)
        return near - {memory.id}

    async def _near(self, run: _Run, memory: Memory, chunk: Vector) -> set[str]:
        within = Within(
            workspace_id=memory.workspace_id,
            at=self._clock(),
            org=memory.org,
            project=memory.project,
            agent_id=memory.agent_id if memory.memory_scope is MemoryScope.AGENT else None,
            session_id=memory.session_id if memory.memory_scope is MemoryScope.SESSION else None,
            scopes=frozenset({memory.memory_scope}),
            type=memory.type,
        )
        limit = _FEW
        while True:
            found = await self._vectors.near(chunk, within=within, limit=limit)
            if len(found) < limit or limit >= _MANY or found[-1].similarity <= run.wanted.threshold:
                return {each.memory_id for each in found if each.similarity > run.wanted.threshold}
            limit = _MANY

    async def _merge(self, run: _Run, top: Memory, others: Sequence[Memory]) -> set[str]:
        """Merge *others* into *top*; return those that were."""
        if run.wanted.dry_run:
            planned = merged(top, others, run=run.id)[1]
        else:
            planned = await self._db.write(lambda tx: self._plan(tx, run, top, others))
        if planned and not run.wanted.dry_run:
            planned = await self._finish(run, planned)
        if not planned:
            return set()
        taken = {each.memory_id for each in planned}
        run.clusters += 1
        run.merged += len(planned)
        if run.wanted.dry_run:
            run.pretended |= {top.id, *taken}
        for each in planned:
            why = "it says nothing that the other does not" if each.length == 0 else f"{each.length:,} characters of it were new"
            run.watch.item(Item(id=each.memory_id, action="merge", why=why, into=top.id))
        return taken

    def _plan(self, tx: Tx, run: _Run, top: Memory, others: Sequence[Memory]) -> list[Merge]:
        """Write the merged content, if nobody changed any of them meanwhile; the others stay until that is verified."""
        seen = {each.id: each for each in (top, *others)}
        held = [records.locked(tx, top.workspace_id, each) for each in sorted(seen)]
        same = {each.id for each in held if each is not None and each == seen[each.id]}
        if top.id not in same:
            return []
        whole, planned = merged(top, [each for each in others if each.id in same], run=run.id)
        merges.add(tx, planned)
        if whole != top:
            updated_at = max(self._clock(), top.updated_at + _TICK)
            records.change(tx, top, replace(whole, updated_at=updated_at, index_failed_at=None))
            self._jobs.enqueue(tx, EMBED, workspace_id=top.workspace_id, payload={"memory_id": top.id})
        return planned

    async def _finish_begun(self, run: _Run) -> None:
        """Finish what a run that was killed had written and not verified."""
        after = ""
        while begun := await self._db.read(lambda tx, at=after: merges.unfinished(tx, run.wanted.workspace_id, after=at, limit=BATCH)):
            for primary_id in begun:
                into = await self._db.read(lambda tx, at=primary_id: merges.into(tx, run.wanted.workspace_id, at))
                planned = [each for each in into if not each.is_done]
                done = planned if run.wanted.dry_run else await self._finish(run, planned)
                run.merged += len(done)
                run.pretended |= {primary_id, *(each.memory_id for each in done)} if run.wanted.dry_run else set()
                for each in done:
                    run.watch.item(Item(id=each.memory_id, action="merge", why="an earlier run had begun it", into=primary_id))
            after = begun[-1]

    async def _finish(self, run: _Run, planned: Sequence[Merge]) -> list[Merge]:
        """Index the primary of *planned*, look whether all is there, then archive the others; return what was done."""
        workspace_id, primary_id = planned[0].workspace_id, planned[0].primary_id
        primary = await self._db.read(lambda tx: records.by_id(tx, workspace_id, primary_id))
        try:
            if primary is not None and primary.archived_at is None and not _is_open(primary, self._indexer.model):
                await self._indexer.index([primary])
            is_there = primary_id in await self._vectors.stored(workspace_id, [primary_id])
        except EngineUnavailable:
            await self._db.write(lambda tx: take_back(tx, self._jobs, planned, at=self._clock()))
            raise
        done = await self._db.write(lambda tx: self._archive(tx, planned, is_there=is_there))
        run.failures += len(planned) - len(done)
        return done

    def _archive(self, tx: Tx, planned: Sequence[Merge], *, is_there: bool) -> list[Merge]:
        now = self._clock()
        workspace_id, primary_id = planned[0].workspace_id, planned[0].primary_id
        held = {each: records.locked(tx, workspace_id, each) for each in sorted({primary_id, *(merge.memory_id for merge in planned)})}
        primary = held[primary_id]
        is_verified = is_there and primary is not None and _is_open(primary, self._indexer.model)
        done, undone = list[Merge](), list[Merge]()
        for merge in planned:
            other = held[merge.memory_id]
            is_same = other is not None and other.archived_at is None and other.updated_at == merge.seen_at
            if is_verified and is_same and other is not None and primary is not None and has(primary, merge):
                put_away(tx, self._jobs, self._bus, other, at=now, superseded_by=primary_id)
                merges.finish(tx, merge)
                done.append(merge)
            else:
                undone.append(merge)
        take_back(tx, self._jobs, undone, at=now)
        return done


def _is_open(memory: Memory, model: str) -> bool:
    """Tell whether *memory* counts, for good, and its vectors are of what it says now."""
    is_indexed = memory.indexed_at is not None and memory.indexed_at >= memory.updated_at and memory.indexed_model == model
    return is_indexed and memory.archived_at is None and memory.expires_at is None


def _likeness(mine: Sequence[Vector], theirs: Sequence[Vector]) -> float:
    """Return how like to *mine* that of *theirs* is which is least so: all that they say must be like something here."""
    own = [_numbers(vector) for vector in mine]
    return min(max(sum(map(mul, one, _numbers(vector))) for one in own) for vector in theirs)


def _numbers(vector: Vector) -> tuple[float, ...]:
    return unpack(f"<{len(vector) // 4}f", vector)
