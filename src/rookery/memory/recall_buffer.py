"""Which recall returned what, kept 30 days for feedback; written after the answer, many at once (D-17, D-47)."""

from __future__ import annotations

import asyncio
import time

import structlog

from rookery.kernel.db import Database
from rookery.kernel.ids import is_uuid
from rookery.kernel.logs import FailureLog
from rookery.memory.recall_records import RecallRecord
from rookery.memory.store import recalls

_FLUSH_INTERVAL_S = 0.5
_MAX_PENDING = 5_000
"""So many unwritten recalls are held; then the next one waits for a write."""

_LOOKUP_RETRIES = 6
_LOOKUP_RETRY_DELAY_S = 0.2
_RECENT_MS = 60_000
"""An id says when it was made: only one of the last minute may be another process's that is not written yet, whose clock may be wrong."""

_log = structlog.stdlib.get_logger("rookery.memory")


class RecallBuffer:
    """The recalls of this process that are not written yet, in front of the table of all."""

    def __init__(self, *, db: Database) -> None:
        self._db = db
        self._pending: dict[str, RecallRecord] = {}
        self._failures = FailureLog(_log, "memory.recalls_not_written")
        self._flush_lock = asyncio.Lock()

    async def add(self, recall: RecallRecord) -> None:
        """Keep *recall*; only if very many are unwritten, wait for that."""
        self._pending[recall.id] = recall
        if len(self._pending) > _MAX_PENDING:
            await self.flush()

    async def find(self, workspace_id: int, recall_id: str) -> RecallRecord | None:
        """
        Return a recall of the workspace.

        One that is unknown may have been answered by another process within the last half second: it is looked for
        again before it is said not to be there.
        """
        held = self._pending.get(recall_id)
        if held is not None:
            return held if held.workspace_id == workspace_id else None
        found = await self._load(workspace_id, recall_id)
        for _ in range(_LOOKUP_RETRIES if _is_recent(recall_id) else 0):
            if found is not None:
                break
            await asyncio.sleep(_LOOKUP_RETRY_DELAY_S)
            found = await self._load(workspace_id, recall_id)
        return found

    async def _load(self, workspace_id: int, recall_id: str) -> RecallRecord | None:
        return await self._db.lookup(lambda tx: recalls.get_recall(tx, workspace_id, recall_id))

    async def run(self) -> None:
        """Write every half second until cancelled; call `flush` after that."""
        while True:
            await asyncio.sleep(_FLUSH_INTERVAL_S)
            try:
                await self.flush()
            except Exception as error:  # noqa: BLE001 - logged; the rows are still held, and written when the store is there again
                self._failures.report(error)

    async def flush(self) -> None:
        """Write what is held; if that fails, it is still held."""
        async with self._flush_lock:
            batch = dict(self._pending)
            if batch:
                await self._db.write(lambda tx: recalls.add(tx, list(batch.values())))
            for recall_id in batch:
                self._pending.pop(recall_id, None)


def _is_recent(recall_id: str) -> bool:
    if not is_uuid(recall_id):
        return False
    made_ms = int(recall_id[:8] + recall_id[9:13], 16)
    return abs(time.time() * 1000 - made_ms) < _RECENT_MS
