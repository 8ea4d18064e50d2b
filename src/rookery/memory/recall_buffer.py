"""A write buffer for the results of recalls, which are kept for 30 days for feedback (D-17, D-47)."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from rookery.kernel.db import Database
from rookery.kernel.ids import is_uuid
from rookery.kernel.write_buffer import WriteBuffer
from rookery.memory.recall_records import RecallRecord
from rookery.memory.store import recalls

_MAX_PENDING = 5_000
"""Maximum number of unwritten recalls; beyond it, the next recall waits for a write."""

_LOOKUP_RETRIES = 6
_LOOKUP_RETRY_DELAY_S = 0.2
_RECENT_MS = 60_000
"""Maximum age, by its id, of a recall that another process may not have written yet. It allows for wrong clocks."""


class RecallBuffer:
    """The unwritten recalls of this process, and the table of all recalls behind them."""

    def __init__(self, *, db: Database) -> None:
        self._db = db
        self._pending: dict[str, RecallRecord] = {}
        self._buffer = WriteBuffer[RecallRecord](self._write, name="memory.recalls")
        self.flush = self._buffer.flush

    async def add(self, recall: RecallRecord) -> None:
        """Add *recall* to the buffer. Wait for a write only if the buffer is full."""
        self._pending[recall.id] = recall
        self._buffer.add(recall)
        if len(self._buffer) > _MAX_PENDING:
            await self.flush()

    async def find(self, workspace_id: int, recall_id: str) -> RecallRecord | None:
        """
        Return a recall of the workspace.

        A recent unknown recall may belong to another process that has not written it yet. The lookup is therefore retried before it
        returns None.
        """
        pending = self._pending.get(recall_id)
        if pending is not None:
            return pending if pending.workspace_id == workspace_id else None
        record = await self._load(workspace_id, recall_id)
        for _ in range(_LOOKUP_RETRIES if _is_recent(recall_id) else 0):
            if record is not None:
                break
            await asyncio.sleep(_LOOKUP_RETRY_DELAY_S)
            record = await self._load(workspace_id, recall_id)
        return record

    async def _load(self, workspace_id: int, recall_id: str) -> RecallRecord | None:
        return await self._db.lookup(lambda tx: recalls.get_recall(tx, workspace_id, recall_id))

    async def _write(self, batch: Sequence[RecallRecord]) -> None:
        await self._db.write(lambda tx: recalls.add(tx, batch))
        for record in batch:
            self._pending.pop(record.id, None)


def _is_recent(recall_id: str) -> bool:
    if not is_uuid(recall_id):
        return False
    created_ms = int(recall_id[:8] + recall_id[9:13], 16)
    return abs(time.time() * 1000 - created_ms) < _RECENT_MS
