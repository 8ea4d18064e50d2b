"""Training rows: what was stored, and which memories were of use to which question, for those who train on it (D-57)."""

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
"""So many rows a transaction, so that writers beside it wait a few milliseconds."""

_FLUSH_INTERVAL_S = 0.5
_MAX_PENDING = 50_000
"""So many stored memories are held until they are written; of more, the oldest have no row."""

_log = structlog.stdlib.get_logger("rookery.memory")


class Training:
    """
    Keeps rows in the workspaces that want them, and reads them out.

    What feedback teaches is written in its own transaction; that a memory was stored is heard from the bus and written
    soon after, so that storing waits for nothing. A process that is killed may leave out the last half second of these.
    """

    def __init__(self, *, db: Database, bus: EventBus, clock: Clock) -> None:
        """Hear of stored memories from now on."""
        self._db = db
        self._clock = clock
        self._pending = deque[MemoryStored](maxlen=_MAX_PENDING)
        self._failures = FailureLog(_log, "memory.training_rows_not_written")
        self._flush_lock = asyncio.Lock()
        bus.subscribe(MemoryStored, self._pending.append)

    async def get_status(self, workspace_id: int) -> TrainingStatus:
        """Return whether the workspace keeps rows, and how many it has."""
        return await self._db.read(lambda tx: training.get_status(tx, workspace_id))

    async def set_enabled(self, workspace_id: int, *, is_enabled: bool) -> TrainingStatus:
        """Keep rows from now on, or no more; those that are there stay, until `delete_all` or until their memory is deleted."""
        now = self._clock()

        def write(tx: Tx) -> TrainingStatus:
            if is_enabled:
                training.enable(tx, workspace_id, at=now)
            else:
                training.disable(tx, workspace_id)
            return training.get_status(tx, workspace_id)

        return await self._db.write(write)

    async def delete_all(self, workspace_id: int) -> int:
        """Delete all rows of the workspace; return how many."""
        return await self._db.write(lambda tx: training.delete_all(tx, workspace_id))

    async def iter_pages(self, workspace_id: int) -> AsyncGenerator[Sequence[LabelledMemory]]:
        """Read all rows out in stretches, by memory, then by recall; any number needs no more room than a few."""
        after = ("", "")
        while taught := await self._db.read(lambda tx, at=after: training.list_examples(tx, workspace_id, after=at, limit=BATCH_SIZE)):
            yield taught
            last = taught[-1].example
            after = (last.memory_id, last.recall_id or "")

    async def run(self) -> None:
        """Write every half second until cancelled; call `flush` after that."""
        while True:
            await asyncio.sleep(_FLUSH_INTERVAL_S)
            try:
                await self.flush()
            except Exception as error:  # noqa: BLE001 - logged; the rows are still held, and written when the store is there again
                self._failures.report(error)

    @asynccontextmanager
    async def run_in_background(self) -> AsyncGenerator[None]:
        """Do as `run` while the block runs, and `flush` at its end: for a command that stores more than are held."""
        running = asyncio.create_task(self.run())
        try:
            yield
        finally:
            running.cancel()
            await asyncio.wait([running])
            await self.flush()

    async def flush(self) -> None:
        """Write what was heard; if that fails, it is still held."""
        async with self._flush_lock:
            while self._pending:
                batch = list(self._pending)[:BATCH_SIZE]
                workspaces = {event.workspace_id for event in batch}
                wanted = await self._db.lookup(lambda tx, ids=workspaces: training.filter_enabled(tx, ids))
                stored = [event for event in batch if event.workspace_id in wanted]
                if stored:
                    await self._db.write(lambda tx, events=stored: _add_examples(tx, events))
                for _ in batch:
                    self._pending.popleft()


def _add_examples(tx: Tx, stored: Sequence[MemoryStored]) -> None:
    """Give a row to those that are still there; they are held, by id, so that none is deleted between the look and the row."""
    for event in sorted(stored, key=lambda event: event.memory_id):
        if records.lock_memory(tx, event.workspace_id, event.memory_id) is not None:
            training.add(
                tx,
                TrainingExample(memory_id=event.memory_id, recall_id=None, workspace_id=event.workspace_id, label="stored", at=event.at),
            )
