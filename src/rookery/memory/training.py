"""Training examples: stored memories, and the memories that callers used or ignored per query."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

from rookery.access.models import SYSTEM_ACTOR, Actor
from rookery.kernel.clock import Clock
from rookery.kernel.db import Database, Tx
from rookery.kernel.events import EventBus
from rookery.kernel.runtime import PeriodicTask, run_periodic_tasks
from rookery.kernel.write_buffer import WriteBuffer
from rookery.memory.events import MemoryStored
from rookery.memory.memory_audit import MemoryAudit
from rookery.memory.recall_models import LabelledMemory, TrainingExample, TrainingStatus
from rookery.memory.store import training
from rookery.memory.store.tables import MEMORIES, TRAINING_EXAMPLES

BATCH_SIZE = 200
"""Rows per transaction, so that other writers wait a few milliseconds at most."""

_FLUSH_INTERVAL_S = 0.5
_MAX_PENDING = 50_000
"""Maximum stored memories that wait to be written; beyond it, the oldest get no example."""


class Training:
    """
    The recorder and reader of training examples, in workspaces that enable them.

    Examples from feedback are written in the transaction of the feedback. Examples of stored memories come from the event bus and are
    written shortly after, so that storing does not wait. A killed process may lose the last half second of them.
    """

    def __init__(self, *, db: Database, bus: EventBus, clock: Clock, audit: MemoryAudit) -> None:
        """Subscribe to stored memories."""
        self._db = db
        self._audit = audit
        self._clock = clock
        self._buffer = WriteBuffer[MemoryStored](
            self._write, name="memory.training_rows", max_rows=_MAX_PENDING, batch_size=BATCH_SIZE, drops="oldest"
        )
        self.flush = self._buffer.flush
        bus.subscribe(MemoryStored, self._buffer.add)

    async def get_status(self, workspace_id: int) -> TrainingStatus:
        """Return the training settings of the workspace and its number of examples."""
        return await self._db.read(lambda tx: training.get_status(tx, workspace_id))

    async def set_enabled(self, workspace_id: int, *, is_enabled: bool, by: Actor = SYSTEM_ACTOR) -> TrainingStatus:
        """Start or stop recording. Existing examples stay until `delete_all`, or until their memory is deleted."""
        now = self._clock()

        def write(tx: Tx) -> TrainingStatus:
            if is_enabled:
                training.enable(tx, workspace_id, at=now)
            else:
                training.disable(tx, workspace_id)
            self._audit.record_setting(tx, by, workspace_id, "training.enabled" if is_enabled else "training.disabled", {})
            return training.get_status(tx, workspace_id)

        return await self._db.write(write)

    async def delete_all(self, workspace_id: int, *, by: Actor = SYSTEM_ACTOR) -> int:
        """Delete all examples of the workspace. Return their number."""

        def write(tx: Tx) -> int:
            count = TRAINING_EXAMPLES.delete(tx, workspace_id)
            self._audit.record_setting(tx, by, workspace_id, "training.deleted", {"rows": count})
            return count

        return await self._db.write(write)

    async def iter_pages(self, workspace_id: int, *, by: Actor = SYSTEM_ACTOR) -> AsyncGenerator[Sequence[LabelledMemory]]:
        """Yield all examples in pages, by memory, then by recall. Memory use does not depend on their number."""
        await self._db.write(lambda tx: self._audit.record_setting(tx, by, workspace_id, "training.exported", {}))
        after = ("", "")
        while page := await self._db.read(lambda tx, at=after: training.list_examples(tx, workspace_id, after=at, limit=BATCH_SIZE)):
            yield page
            last = page[-1].example
            after = (last.memory_id, last.recall_id or "")

    @asynccontextmanager
    async def run_in_background(self) -> AsyncGenerator[None]:
        """Flush twice a second during the block and at its end, for a command that stores more memories than the buffer holds."""
        task = PeriodicTask(name="training examples", interval_s=_FLUSH_INTERVAL_S, run=self.flush)
        running = asyncio.create_task(run_periodic_tasks([task]))
        try:
            yield
        finally:
            running.cancel()
            await asyncio.wait([running])
            await self.flush()

    async def _write(self, batch: Sequence[MemoryStored]) -> None:
        """Write examples of the memories of *batch* whose workspaces record them."""
        enabled = await self._db.lookup(lambda tx: training.filter_enabled(tx, {event.workspace_id for event in batch}))
        events = [event for event in batch if event.workspace_id in enabled]
        if events:
            await self._db.write(lambda tx: _add_examples(tx, events))


def _add_examples(tx: Tx, events: Sequence[MemoryStored]) -> None:
    """Add an example for each memory that still exists. Rows are locked in the order of ids, so that none is deleted meanwhile."""
    for event in sorted(events, key=lambda event: event.memory_id):
        if MEMORIES.find(tx, event.workspace_id, id=event.memory_id, lock=True) is not None:
            training.add(
                tx,
                TrainingExample(memory_id=event.memory_id, recall_id=None, workspace_id=event.workspace_id, label="stored", at=event.at),
            )
