"""Training rows: what was stored, and which memories were of use to which question, for those who train on it (D-57)."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

import structlog

from rookery.kernel.clock import Clock
from rookery.kernel.db import Database, Tx
from rookery.kernel.events import Bus, MemoryStored
from rookery.kernel.log_limits import FailureLog
from rookery.memory.past import Schooling, Taught, TrainingRow
from rookery.memory.store import records, training

BATCH = 200
"""So many rows a transaction, so that writers beside it wait a few milliseconds."""

_EVERY_S = 0.5
_MOST = 50_000
"""So many stored memories are held until they are written; of more, the oldest have no row."""

_log = structlog.stdlib.get_logger("rookery.memory")


class Training:
    """
    Keeps rows in the workspaces that want them, and reads them out.

    What feedback teaches is written in its own transaction; that a memory was stored is heard from the bus and written
    soon after, so that storing waits for nothing. A process that is killed may leave out the last half second of these.
    """

    def __init__(self, *, db: Database, bus: Bus, clock: Clock) -> None:
        """Hear of stored memories from now on."""
        self._db = db
        self._clock = clock
        self._heard = deque[MemoryStored](maxlen=_MOST)
        self._failures = FailureLog(_log, "memory.training_rows_not_written")
        self._writing = asyncio.Lock()
        bus.subscribe(MemoryStored, self._heard.append)

    async def standing(self, workspace_id: int) -> Schooling:
        """Return whether the workspace keeps rows, and how many it has."""
        return await self._db.read(lambda tx: training.schooling(tx, workspace_id))

    async def switch(self, workspace_id: int, *, on: bool) -> Schooling:
        """Keep rows from now on, or no more; those that are there stay, until `forget` or until their memory is deleted."""
        now = self._clock()

        def write(tx: Tx) -> Schooling:
            if on:
                training.begin(tx, workspace_id, at=now)
            else:
                training.end(tx, workspace_id)
            return training.schooling(tx, workspace_id)

        return await self._db.write(write)

    async def forget(self, workspace_id: int) -> int:
        """Delete all rows of the workspace; return how many."""
        return await self._db.write(lambda tx: training.forget(tx, workspace_id))

    async def pages(self, workspace_id: int) -> AsyncGenerator[Sequence[Taught]]:
        """Read all rows out in stretches, by memory, then by recall; any number needs no more room than a few."""
        after = ("", "")
        while taught := await self._db.read(lambda tx, at=after: training.page(tx, workspace_id, after=at, limit=BATCH)):
            yield taught
            last = taught[-1].row
            after = (last.memory_id, last.recall_id or "")

    async def run(self) -> None:
        """Write every half second until cancelled; call `flush` after that."""
        while True:
            await asyncio.sleep(_EVERY_S)
            try:
                await self.flush()
            except Exception as error:  # noqa: BLE001 - logged; the rows are still held, and written when the store is there again
                self._failures.report(error)

    @asynccontextmanager
    async def kept(self) -> AsyncGenerator[None]:
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
        async with self._writing:
            while self._heard:
                batch = list(self._heard)[:BATCH]
                workspaces = {event.workspace_id for event in batch}
                wanted = await self._db.quick(lambda tx, ids=workspaces: training.among(tx, ids))
                stored = [event for event in batch if event.workspace_id in wanted]
                if stored:
                    await self._db.write(lambda tx, events=stored: _write(tx, events))
                for _ in batch:
                    self._heard.popleft()


def _write(tx: Tx, stored: Sequence[MemoryStored]) -> None:
    """Give a row to those that are still there; they are held, by id, so that none is deleted between the look and the row."""
    for event in sorted(stored, key=lambda event: event.memory_id):
        if records.locked(tx, event.workspace_id, event.memory_id) is not None:
            training.add(
                tx,
                TrainingRow(memory_id=event.memory_id, recall_id=None, workspace_id=event.workspace_id, lesson="stored", at=event.at),
            )
