"""Operators' work on the whole memory: re-index, set up the full-text index (spec 4.4, D-52)."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from rookery.kernel.clock import Clock
from rookery.kernel.db import Database, Tx
from rookery.kernel.errors import EngineUnavailable
from rookery.kernel.events import Bus, ReindexCompleted
from rookery.memory.indexing import Indexer
from rookery.memory.models import Memory
from rookery.memory.ports import TextIndex
from rookery.memory.store import queries

_BATCH = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """
    Which memories to index again; archived and expired ones never.

    Attributes:
        workspace_id: None: of all workspaces.
        org: Exactly this one, so too *project*; None: any.
        is_stale: Only those that are not indexed as they are now, by the model of now.
        words_only: Only the full-text index.
    """

    workspace_id: int | None = None
    org: str | None = None
    project: str | None = None
    is_stale: bool = False
    words_only: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """
    How a re-index ended.

    Attributes:
        total: How many memories matched when it began.
        stopped: Why it ended early: the engine that went down; None: it did not.
    """

    total: int
    successes: int
    failures: int
    duration_s: float
    stopped: str | None = None


class Lifecycle:
    """Safe beside a server at work: what it does twice does no harm."""

    def __init__(
        self, *, db: Database, indexer: Indexer, texts: TextIndex, bus: Bus, clock: Clock, timer: Callable[[], float] = time.perf_counter
    ) -> None:
        self._db = db
        self._indexer = indexer
        self._texts = texts
        self._bus = bus
        self._clock = clock
        self._timer = timer

    async def count(self, wanted: Wanted) -> int:
        """Return how many memories a re-index would go through."""
        return await self._db.read(lambda tx: self._count(tx, wanted))

    async def reindex(self, wanted: Wanted, *, on_progress: Callable[[int, int], None] | None = None) -> Report:
        """
        Embed and index what is *wanted*, batch by batch in the order of ids.

        A memory that fails is counted and left as it was; an engine that goes down ends it. Memories stored meanwhile have
        jobs of their own, so it ends beside busy writers too.

        Args:
            on_progress: Told after each batch how many of how many are done.
        """
        started_s = self._timer()
        total = await self.count(wanted)
        done = failures = 0
        after, stopped = "", None
        while done < total and (batch := (await self._next(wanted, after))[: total - done]):
            try:
                failures += len(await self._indexer.index(batch, words_only=wanted.words_only))
            except EngineUnavailable as error:
                stopped = error.message
                break
            done += len(batch)
            after = batch[-1].id
            if on_progress is not None:
                on_progress(done, total)
        duration_s = self._timer() - started_s
        self._bus.publish(ReindexCompleted(org=wanted.org, project=wanted.project, count=done - failures, duration_s=duration_s))
        return Report(total=total, successes=done - failures, failures=failures, duration_s=duration_s, stopped=stopped)

    async def setup_texts(self) -> None:
        """
        Create the full-text index, if it is not there (spec 4.4, brain:elastic-setup).

        Raises:
            EngineUnavailable: The engine is down.
        """
        await self._texts.setup()

    async def _next(self, wanted: Wanted, after: str) -> list[Memory]:
        at = self._clock()

        def scan(tx: Tx) -> list[Memory]:
            return queries.scan(
                tx,
                after=after,
                limit=_BATCH,
                at=at,
                workspace_id=wanted.workspace_id,
                org=wanted.org,
                project=wanted.project,
                stale_for=self._stale_for(wanted),
            )

        return await self._db.read(scan)

    def _count(self, tx: Tx, wanted: Wanted) -> int:
        return queries.scanned(
            tx,
            at=self._clock(),
            workspace_id=wanted.workspace_id,
            org=wanted.org,
            project=wanted.project,
            stale_for=self._stale_for(wanted),
        )

    def _stale_for(self, wanted: Wanted) -> str | None:
        return self._indexer.model if wanted.is_stale else None
