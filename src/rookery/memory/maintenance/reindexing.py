"""Operators' work on the whole memory: re-index, set up the full-text index (spec 4.4, D-52)."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

from rookery.kernel.clock import Clock
from rookery.kernel.db import Database, Tx
from rookery.kernel.errors import OUTAGES
from rookery.kernel.events import EventBus, ReindexCompleted
from rookery.memory.batch_runs import RunCheckpoint, RunItem, RunReport
from rookery.memory.embedding_migration import EmbeddingMigration
from rookery.memory.indexing import Indexer
from rookery.memory.maintenance.erasure import Erasure
from rookery.memory.models import Memory
from rookery.memory.ports import TextIndex
from rookery.memory.store import queries, runs

_BATCH_SIZE = 64

_MAX_TRACKED_FAILURES = 10_000
"""So many memories that cannot be embedded do not keep the others' new vectors from answering; with more, something else is wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReindexRequest:
    """
    Which memories to index again; archived and expired ones never.

    Attributes:
        workspace_id: None: of all workspaces.
        org: Exactly this one, so too *project*; None: any.
        is_stale: Only those that are not indexed as they are now, by the model of now.
        words_only: Only the full-text index.
        resume: Go on where the same run was ended in the middle; one of what is stale does so anyway.
    """

    workspace_id: int | None = None
    org: str | None = None
    project: str | None = None
    is_stale: bool = False
    words_only: bool = False
    resume: bool = False

    @property
    def run_name(self) -> str:
        """The run, by its options."""
        kind = f"reindex{' stale' * self.is_stale}{' words' * self.words_only}"
        return f"{kind} {self.workspace_id} {self.org!r} {self.project!r}"


class Reindexer:
    """Safe beside a server at work: what it does twice does no harm."""

    def __init__(
        self,
        *,
        db: Database,
        indexer: Indexer,
        texts: TextIndex,
        bus: EventBus,
        clock: Clock,
        migration: EmbeddingMigration,
        erasure: Erasure,
        timer: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._db = db
        self._indexer = indexer
        self._texts = texts
        self._bus = bus
        self._clock = clock
        self._migration = migration
        self._erasure = erasure
        self._timer = timer

    async def count(self, request: ReindexRequest) -> int:
        """Return how many memories a re-index would go through."""
        return await self._db.read(lambda tx: self._count(tx, request))

    async def reindex(self, request: ReindexRequest, *, on_progress: Callable[[int, int], None] | None = None) -> RunReport:
        """
        Embed and index what is *request*, batch by batch in the order of ids.

        A memory that fails is counted and left as it was; an engine that goes down ends it. Memories stored meanwhile have
        jobs of their own, so it ends beside busy writers too. Vectors of a new model answer once all are there (D-54).

        Args:
            on_progress: Told after each batch how many of how many are done.
        """
        started_s = self._timer()
        total = await self.count(request)
        failures = 0
        failed = set[str]()
        indexed = Counter[int]()
        mark = (
            await self._db.read(lambda tx: runs.get_checkpoint(tx, request.run_name)) if request.resume and not request.is_stale else None
        )
        after, stopped = mark.cursor if mark else "", None
        done = earlier = mark.done if mark else 0
        while done < total and (batch := (await self._load_batch(request, after))[: total - done]):
            try:
                reasons = await self._indexer.index(batch, words_only=request.words_only)
            except OUTAGES as error:
                stopped = error.message
                break
            failures += len(reasons)
            indexed.update(memory.workspace_id for memory in batch if memory.id not in reasons)
            if len(failed) < _MAX_TRACKED_FAILURES:
                failed.update(reasons)
            done += len(batch)
            after = batch[-1].id
            at = RunCheckpoint(name=request.run_name, workspace_id=request.workspace_id, cursor=after, done=done, at=self._clock())
            await self._db.write(lambda tx, mark=at: runs.save_checkpoint(tx, mark))
            if on_progress is not None:
                on_progress(done, total)
        if stopped is None:
            await self._db.write(lambda tx: runs.delete_checkpoint(tx, request.run_name))
            if not request.words_only:
                await self._migration.activate_complete(ignored_ids=failed)
                stopped = await self._run_erasure()
        duration_s = self._timer() - started_s
        event = ReindexCompleted(
            org=request.org,
            project=request.project,
            count=done - earlier - failures,
            by_workspace=indexed,
            duration_s=duration_s,
            at=self._clock(),
        )
        await self._db.write(lambda tx: self._bus.publish_on_commit(tx, event))
        return RunReport(total=total, successes=done - failures, failures=failures, duration_s=duration_s, stopped=stopped)

    async def _run_erasure(self) -> str | None:
        """Leave no traces of what was cleaned, once nothing is Stale any more; return why there are some."""
        if not await self._erasure.list_pending():
            return None
        return await self._erasure.run(is_reindexed=not await self.count(ReindexRequest(is_stale=True)))

    async def preview(self, request: ReindexRequest, on_item: Callable[[RunItem], None]) -> int:
        """Tell what a re-index would go through and why, and return how many."""
        after, total = "", 0
        while batch := await self._load_batch(request, after):
            for memory in batch:
                on_item(RunItem(id=memory.id, action="index", why=self._reason(memory)))
            total, after = total + len(batch), batch[-1].id
        return total

    def _reason(self, memory: Memory) -> str:
        if memory.indexed_at is None:
            return "never indexed"
        if memory.indexed_model != self._indexer.model:
            return f"indexed by {memory.indexed_model}"
        return "changed since it was indexed" if memory.indexed_at < memory.updated_at else "indexed as it is now"

    async def setup_text_index(self) -> None:
        """
        Create the full-text index, if it is not there (spec 4.4, brain:elastic-setup).

        Raises:
            EngineUnavailable: The engine is down.
        """
        await self._texts.setup()

    async def _load_batch(self, request: ReindexRequest, after: str) -> list[Memory]:
        at = self._clock()

        def scan(tx: Tx) -> list[Memory]:
            return queries.scan(
                tx,
                after=after,
                limit=_BATCH_SIZE,
                at=at,
                workspace_id=request.workspace_id,
                org=request.org,
                project=request.project,
                stale_model=self._stale_model(request),
            )

        return await self._db.read(scan)

    def _count(self, tx: Tx, request: ReindexRequest) -> int:
        return queries.count_scan(
            tx,
            at=self._clock(),
            workspace_id=request.workspace_id,
            org=request.org,
            project=request.project,
            stale_model=self._stale_model(request),
        )

    def _stale_model(self, request: ReindexRequest) -> str | None:
        return self._indexer.model if request.is_stale else None
