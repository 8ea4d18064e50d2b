"""What time does to sessions: those that nobody came back to are abandoned, and memories that were kept for a successor go (D-53, D-62)."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

from rookery.agents.models.plans import SWEEPER
from rookery.agents.models.sessions import SessionStatus
from rookery.agents.ports import Memories
from rookery.agents.sessions.ending import AT_ONCE, Closing
from rookery.agents.store import sessions as store
from rookery.kernel.clock import Clock
from rookery.kernel.db import Database, Tx

ABANDONED_AFTER = timedelta(hours=24)

PAUSED_FOR = timedelta(days=7)
"""A paused session waits for somebody who said so; after a week its memories would go, and it with them (D-53)."""

_SESSIONS_AT_ONCE = 20
_MOST_ROUNDS = 1_000


class SessionUpkeep:
    """Sweeps, in every process: what another one swept is not there any more, and what it is at is passed over."""

    def __init__(self, *, db: Database, clock: Clock, memories: Memories, closing: Closing) -> None:
        self._db = db
        self._clock = clock
        self._memories = memories
        self._closing = closing

    async def sweep(self) -> tuple[int, int]:
        """Abandon sessions and put memories away; return how many of the one, and of how many sessions the others."""
        return await self._in_rounds(self._abandon), await self._in_rounds(self._put_away)

    async def _in_rounds(self, work: Callable[[Tx], int]) -> int:
        done = 0
        for _ in range(_MOST_ROUNDS):
            swept = await self._db.write(work)
            done += swept
            if swept == 0:
                break
        return done

    def _abandon(self, tx: Tx) -> int:
        now = self._clock()
        idle = store.idle(tx, at=now, active_for=ABANDONED_AFTER, paused_for=PAUSED_FOR, limit=_SESSIONS_AT_ONCE)
        for session in idle:
            self._closing.close(tx, session, status=SessionStatus.ABANDONED, by=SWEEPER, at=now)
        return len(idle)

    def _put_away(self, tx: Tx) -> int:
        now = self._clock()
        due = store.due(tx, at=now, limit=1)
        for session in due:
            if self._memories.put_away(tx, session.workspace_id, session.id, at=now, limit=AT_ONCE):
                store.set_due(tx, session.workspace_id, session.id, None)
        return len(due)
