"""Periodic clean-up: idle sessions are abandoned, and memories kept for a successor are archived when they are due (D-53, D-62)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from rookery.agents.models.plans import SYSTEM_ACTOR
from rookery.agents.models.sessions import SessionStatus
from rookery.agents.ports import SessionMemoryStore
from rookery.agents.sessions.end import MEMORY_BATCH_SIZE, SessionCloser
from rookery.agents.store import sessions as store
from rookery.kernel.clock import Clock
from rookery.kernel.db import Database, Tx

ACTIVE_TIMEOUT = timedelta(hours=24)
"""Time without activity after which an active session is abandoned."""

PAUSED_TIMEOUT = timedelta(days=7)
"""Time without activity after which a paused session is abandoned. Its memories would be archived then, too (D-53)."""

_SESSION_BATCH_SIZE = 20
_MAX_BATCHES = 1_000


class SessionSweeper:
    """Abandons idle sessions and archives due memories. It runs in every process; rows locked by another one are skipped."""

    def __init__(self, *, db: Database, clock: Clock, memories: SessionMemoryStore, closer: SessionCloser) -> None:
        self._db = db
        self._clock = clock
        self._memories = memories
        self._closer = closer

    async def sweep(self) -> tuple[int, int]:
        """Abandon idle sessions and archive due memories. Return the numbers of abandoned sessions and of archived batches."""
        return await self._run_batches(self._abandon_batch), await self._run_batches(self._archive_batch)

    async def _run_batches(self, work: Callable[[Tx], int]) -> int:
        swept_count = 0
        for _ in range(_MAX_BATCHES):
            swept = await self._db.write(work)
            swept_count += swept
            if swept == 0:
                break
        return swept_count

    def _abandon_batch(self, tx: Tx) -> int:
        now = self._clock()
        idle = store.list_idle(tx, at=now, active_timeout=ACTIVE_TIMEOUT, paused_timeout=PAUSED_TIMEOUT, limit=_SESSION_BATCH_SIZE)
        for session in idle:
            self._closer.close(tx, session, status=SessionStatus.ABANDONED, actor=SYSTEM_ACTOR, at=now)
        return len(idle)

    def _archive_batch(self, tx: Tx) -> int:
        now = self._clock()
        due = store.list_memories_due(tx, at=now, limit=1)
        for session in due:
            if self._memories.archive(tx, session.workspace_id, session.id, at=now, limit=MEMORY_BATCH_SIZE):
                store.set_memories_due(tx, session.workspace_id, session.id, None)
        return len(due)
