"""Training examples: stored memories, and the memories that callers used or ignored per query (D-57)."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

import structlog

from rookery.kernel.clock import Clock
from rookery.kernel.db import Database, Tx
from rookery.kernel.events import EventBus, MemoryStored
from rookery.kernel.logs import FailureLog
from rookery.memory.recall_records import LabelledMemory, TrainingExample, TrainingStatus
from rookery.memory.store import records, training

BATCH_SIZE = 200
"""Rows per transaction, so that other writers wait a few milliseconds at most."""

_FLUSH_INTERVAL_S = 0.5
_MAX_PENDING = 50_000
"""Maximum stored memories that wait to be written; beyond it, the oldest get no example."""

_log = structlog.stdlib.get_logger("rookery.memory")


class Training:
    """
    The recorder and reader of training examples, in workspaces that enable them.

    Examples from feedback are written in the transaction of the feedback. Examples of stored memories come from the event bus and are
    written shortly after, so that storing does not wait. A killed process may lose the last half second of them.
    """

    def __init__(self, *, db: Database, bus: EventBus, clock: Clock) -> None:
        """Subscribe to stored memories."""
        self._db = db
        self._clock = clock
        self._pending = deque[MemoryStored](maxlen=_MAX_PENDING)
        self._failures = FailureLog(_log, "memory.training_rows_not_written")
        self._flush_lock = asyncio.Lock()
        bus.subscribe(MemoryStored, self._pending.append)

    async def get_status(self, workspace_id: int) -> TrainingStatus:
        """Return the training settings of the workspace and its number of examples."""
        return await self._db.read(lambda tx: training.get_status(tx, workspace_id))

    async def set_enabled(self, workspace_id: int, *, is_enabled: bool) -> TrainingStatus:
        """Start or stop recording. Existing examples stay until `delete_all`, or until their memory is deleted."""
        now = self._clock()

        def write(tx: Tx) -> TrainingStatus:
            if is_enabled:
                training.enable(tx, workspace_id, at=now)
            else:
                training.disable(tx, workspace_id)
            return training.get_status(tx, workspace_id)

        return await self._db.write(write)

    async def delete_all(self, workspace_id: int) -> int:
        """Delete all examples of the workspace. Return their number."""
        return await self._db.write(lambda tx: training.delete_all(tx, workspace_id))

    async def iter_pages(self, workspace_id: int) -> AsyncGenerator[Sequence[LabelledMemory]]:
        """Yield all examples in pages, by memory, then by recall. Memory use does not depend on their number."""
        after = ("", "")
        while page := await self._db.read(lambda tx, at=after: training.list_examples(tx, workspace_id, after=at, limit=BATCH_SIZE)):
            yield page
            last = page[-1].example
            after = (last.memory_id, last.recall_id or "")

    async def run(self) -> None:
        """Write every half second until cancelled; call `flush` afterwards."""
        while True:
            await asyncio.sleep(_FLUSH_INTERVAL_S)
            try:
                await self.flush()
            except Exception as error:  # noqa: BLE001 - logged; the rows stay pending and are written when the store is back
                self._failures.report(error)

    @asynccontextmanager
    async def run_in_background(self) -> AsyncGenerator[None]:
        """Run `run` during the block and `flush` at its end, for a command that stores more memories than the queue holds."""
        running = asyncio.create_task(self.run())
        try:
            yield
        finally:
            running.cancel()
            await asyncio.wait([running])
            await self.flush()

    async def flush(self) -> None:
        """Write the pending examples. If the write fails, they stay pending."""
        async with self._flush_lock:
            while self._pending:
                batch = list(self._pending)[:BATCH_SIZE]
                workspaces = {event.workspace_id for event in batch}
                enabled = await self._db.lookup(lambda tx, ids=workspaces: training.filter_enabled(tx, ids))
                events = [event for event in batch if event.workspace_id in enabled]
                if events:
                    await self._db.write(lambda tx, events=events: _add_examples(tx, events))
                for _ in batch:
                    self._pending.popleft()


def _add_examples(tx: Tx, events: Sequence[MemoryStored]) -> None:
    """Add an example for each memory that still exists. Rows are locked in the order of ids, so that none is deleted meanwhile."""
    for event in sorted(events, key=lambda event: event.memory_id):
        if records.lock_memory(tx, event.workspace_id, event.memory_id) is not None:
            training.add(
                tx,
                TrainingExample(memory_id=event.memory_id, recall_id=None, workspace_id=event.workspace_id, label="stored", at=event.at),
            )
