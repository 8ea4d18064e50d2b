"""What time does to sessions: those that nobody came back to are abandoned, and memories that were kept for a successor go (D-53, D-62)."""

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

PAUSED_TIMEOUT = timedelta(days=7)
"""A paused session waits for somebody who said so; after a week its memories would go, and it with them (D-53)."""

_SESSION_BATCH_SIZE = 20
_MAX_BATCHES = 1_000


class SessionSweeper:
    """Sweeps, in every process: what another one swept is not there any more, and what it is at is passed over."""

    def __init__(self, *, db: Database, clock: Clock, memories: SessionMemoryStore, closer: SessionCloser) -> None:
        self._db = db
        self._clock = clock
        self._memories = memories
        self._closer = closer

    async def sweep(self) -> tuple[int, int]:
        """Abandon sessions and put memories away; return how many of the one, and of how many sessions the others."""
        return await self._run_batches(self._abandon_batch), await self._run_batches(self._archive_batch)

    async def _run_batches(self, work: Callable[[Tx], int]) -> int:
        done = 0
        for _ in range(_MAX_BATCHES):
            swept = await self._db.write(work)
            done += swept
            if swept == 0:
                break
        return done

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
