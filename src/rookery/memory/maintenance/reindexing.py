"""Re-indexing of memories and set-up of the full-text index."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rookery.kernel.clock import Clock
from rookery.kernel.db import Database
from rookery.kernel.errors import OUTAGES
from rookery.kernel.events import EventBus
from rookery.memory.batch_runs import RunCheckpoint, RunItem, RunReport
from rookery.memory.embedding_migration import EmbeddingMigration
from rookery.memory.events import ReindexCompleted
from rookery.memory.indexing import Indexer
from rookery.memory.maintenance.erasure import Erasure
from rookery.memory.maintenance.orphaned_texts import OrphanedTexts
from rookery.memory.models import Memory, read_fields
from rookery.memory.ports import TextIndex
from rookery.memory.store import maintenance, queries

_BATCH_SIZE = 64

_MAX_TRACKED_FAILURES = 10_000
"""Maximum failed memories that do not block the switch to a new model. With more, something else is wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReindexRequest:
    """
    The memories to index again. Archived and expired ones are never included.

    Attributes:
        workspace_id: None for all workspaces.
        org: Exact match, as for *project*; None for any.
        is_stale: Only memories whose current version is not indexed by the current model.
        words_only: Only the full-text index.
        resume: Continue an interrupted run. A run of stale memories always does.
    """

    workspace_id: int | None = None
    org: str | None = None
    project: str | None = None
    is_stale: bool = False
    words_only: bool = False
    resume: bool = False

    @property
    def run_name(self) -> str:
        """The name of the run: the command with its options."""
        kind = f"reindex{' stale' * self.is_stale}{' words' * self.words_only}"
        return f"{kind} {self.workspace_id} {self.org!r} {self.project!r}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reindexer:
    """The re-indexing service. Idempotent, and safe while a server runs."""

    db: Database
    indexer: Indexer
    texts: TextIndex
    bus: EventBus
    clock: Clock
    migration: EmbeddingMigration
    erasure: Erasure
    orphans: OrphanedTexts | None = None
    timer: Callable[[], float] = time.perf_counter

    async def count(self, request: ReindexRequest) -> int:
        """Return the number of memories that a re-index processes."""
        selection = self._select(request)
        return await self.db.read(lambda tx: queries.count_scan(tx, **selection))

    async def reindex(self, request: ReindexRequest, *, on_progress: Callable[[int, int], None] | None = None) -> RunReport:
        """
        Embed and index the memories of *request*, in batches in the order of ids.

        A memory that fails is counted and left as it was. An engine that goes down ends the run. Memories stored meanwhile have jobs of
        their own, so the run ends even if others keep writing. A new model serves a workspace once all of its vectors exist.

        Args:
            on_progress: Called after each batch with the number processed and the total.
        """
        started_s = self.timer()
        total = await self.count(request)
        failures = 0
        failed = set[str]()
        indexed = Counter[int]()
        checkpoint = (
            await self.db.read(lambda tx: maintenance.get_checkpoint(tx, request.run_name))
            if request.resume and not request.is_stale
            else None
        )
        after, stop_reason = checkpoint.cursor if checkpoint else "", None
        done = earlier = checkpoint.done if checkpoint else 0
        while done < total and (batch := (await self._load_batch(request, after))[: total - done]):
            try:
                reasons = await self.indexer.index(batch, words_only=request.words_only)
            except OUTAGES as error:
                stop_reason = error.message
                break
            failures += len(reasons)
            indexed.update(memory.workspace_id for memory in batch if memory.id not in reasons)
            if len(failed) < _MAX_TRACKED_FAILURES:
                failed.update(reasons)
            done += len(batch)
            after = batch[-1].id
            at = RunCheckpoint(name=request.run_name, workspace_id=request.workspace_id, cursor=after, done=done, at=self.clock())
            await self.db.write(lambda tx, checkpoint=at: maintenance.save_checkpoint(tx, checkpoint))
            if on_progress is not None:
                on_progress(done, total)
        if stop_reason is None:
            stop_reason = await self._remove_orphans()
        if stop_reason is None:
            await self.db.write(lambda tx: maintenance.delete_checkpoint(tx, request.run_name))
            if not request.words_only:
                await self.migration.activate_complete(ignored_ids=failed)
                stop_reason = await self._run_erasure()
        duration_s = self.timer() - started_s
        event = ReindexCompleted(
            org=request.org,
            project=request.project,
            count=done - earlier - failures,
            by_workspace=indexed,
            duration_s=duration_s,
            at=self.clock(),
        )
        await self.db.write(lambda tx: self.bus.publish_on_commit(tx, event))
        return RunReport(total=total, successes=done - failures, failures=failures, duration_s=duration_s, stopped=stop_reason)

    async def _remove_orphans(self) -> str | None:
        """Remove texts without a memory from the full-text index. Return the reason if it is down."""
        if self.orphans is not None:
            try:
                await self.orphans.remove()
            except OUTAGES as error:
                return error.message
        return None

    async def _run_erasure(self) -> str | None:
        """Erase cleaned texts once no memory is stale. Return the reason if some data remains."""
        if not await self.erasure.list_pending():
            return None
        return await self.erasure.run(is_reindexed=not await self.count(ReindexRequest(is_stale=True)))

    async def preview(self, request: ReindexRequest, on_item: Callable[[RunItem], None]) -> int:
        """Report the memories that a re-index would process, with reasons. Return their number."""
        after, total = "", 0
        while batch := await self._load_batch(request, after):
            for memory in batch:
                on_item(RunItem(id=memory.id, action="index", why=self._reason(memory)))
            total, after = total + len(batch), batch[-1].id
        return total

    def _reason(self, memory: Memory) -> str:
        if memory.indexed_at is None:
            return "never indexed"
        if memory.indexed_model != self.indexer.model:
            return f"indexed by {memory.indexed_model}"
        return "changed since it was indexed" if memory.indexed_at < memory.updated_at else "the index is current"

    async def setup_text_index(self) -> None:
        """
        Create the full-text index if it is missing. For `brain:elastic-setup`.

        Raises:
            EngineUnavailable: The engine is down.
        """
        await self.texts.setup()

    async def _load_batch(self, request: ReindexRequest, after: str) -> list[Memory]:
        selection = self._select(request)
        return await self.db.read(lambda tx: queries.scan(tx, after=after, limit=_BATCH_SIZE, **selection))

    def _select(self, request: ReindexRequest) -> dict[str, Any]:
        """Return the arguments of `queries.scan` that select the memories of *request*."""
        stale_model = self.indexer.model if request.is_stale else None
        return {"at": self.clock(), "stale_model": stale_model, **read_fields(request, ("workspace_id", "org", "project"))}
