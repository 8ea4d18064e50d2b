"""The check whether a session is open, for tool calls and memory (D-38, D-53)."""

from __future__ import annotations

from datetime import timedelta

from rookery.agents.store import sessions as store
from rookery.kernel.clock import Clock
from rookery.kernel.db import Database

_ACTIVITY_WRITE_INTERVAL = timedelta(minutes=5)
"""Minimum time between two writes of the last activity."""


class OpenSessionChecker:
    """Checks whether sessions are open."""

    def __init__(self, *, db: Database, clock: Clock) -> None:
        self._db = db
        self._clock = clock

    async def is_open(self, workspace_id: int, session_id: str) -> bool:
        """Return True if the workspace has the session and it is open. The call counts as activity in the session."""
        session = await self._db.lookup(lambda tx: store.find(tx, workspace_id, session_id))
        if session is None or not session.is_open:
            return False
        now = self._clock()
        if now - session.last_activity_at > _ACTIVITY_WRITE_INTERVAL:
            return await self._db.write(lambda tx: store.touch(tx, workspace_id, session_id, at=now)) is not None
        return True
