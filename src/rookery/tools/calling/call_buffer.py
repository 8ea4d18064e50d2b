"""
The rows of calls, written many at once right after the answers (D-38).

A commit for each call would cost more than the call: at 16 callers the rows of one moment share a transaction. A row is on
the disk some 20 ms after its answer; only a process that is killed loses what was answered in that time.
"""

from __future__ import annotations

import asyncio
from collections import deque

import structlog

from rookery.kernel.db import Database, Tx
from rookery.kernel.errors import RookeryError
from rookery.kernel.events import EventBus, ToolCalled
from rookery.kernel.log_limits import LimitedWarning
from rookery.tools.models import CallRecord
from rookery.tools.store import calls as store

_WRITE_DELAY_S = 0.02
_RETRY_DELAY_S = 1.0
"""After a write that failed."""
_MAX_BUFFERED_CALLS = 10_000
"""So many unwritten rows are held; then the next call waits for a write, and is refused if that fails."""
_BATCH_SIZE = 1_000

_log = structlog.stdlib.get_logger("rookery.tools")


class CallBuffer:
    """The rows of this process that are not written yet. `aclose` writes the last ones."""

    def __init__(self, db: Database, *, bus: EventBus | None = None, max_calls: int = _MAX_BUFFERED_CALLS) -> None:
        self._db = db
        self._max_calls = max_calls
        self._bus = bus or EventBus()
        self._calls: deque[CallRecord] = deque()
        self._flushing = asyncio.Lock()
        self._write_warning = LimitedWarning(_log, "tools.calls_not_written")
        self._writing: asyncio.Task[None] | None = None
        self.lost = 0
        """How many rows were given up since the start; for metrics."""

    @property
    def unwritten(self) -> int:
        """How many rows wait for the record store."""
        return len(self._calls)

    def add(self, row: CallRecord) -> None:
        """Keep *row*; `ToolCalled` is published once it is committed."""
        self._calls.append(row)
        if self._writing is None:
            self._writing = asyncio.create_task(self._write_soon(), name="tools-journal")

    async def require_capacity(self) -> None:
        """
        Do nothing unless very many rows are unwritten; then write them first.

        Raises:
            EngineUnavailable: They cannot be written. A call that would leave no row is not made.
        """
        if len(self._calls) >= self._max_calls:
            await self.flush()

    async def flush(self) -> None:
        """Write what is held; what cannot be written is still held, and the reason raised."""
        async with self._flushing:
            while self._calls:
                batch = [self._calls[place] for place in range(min(_BATCH_SIZE, len(self._calls)))]
                await self._write(batch)
                for _ in batch:
                    self._calls.popleft()

    async def aclose(self) -> None:
        """Write the last rows."""
        try:
            await self.flush()
        except RookeryError as error:
            _log.error("tools.calls_lost", rows=len(self._calls), reason=error.message)
            self.lost += len(self._calls)
            self._calls.clear()
        if self._writing is not None:
            self._writing.cancel()
            await asyncio.wait({self._writing})

    async def _write_soon(self) -> None:
        while self._calls:
            await asyncio.sleep(_WRITE_DELAY_S)
            try:
                await self.flush()
            except RookeryError as error:
                self._write_warning.warn(rows=len(self._calls), reason=error.message)
                await asyncio.sleep(_RETRY_DELAY_S)
        self._writing = None

    async def _write(self, batch: list[CallRecord]) -> None:
        """Write *batch*. A row that the store does not take must not hold up all others for ever: it is left out, and logged."""
        try:
            await self._db.write(lambda tx: self._insert(tx, batch))
        except RookeryError:
            raise
        except Exception:  # noqa: BLE001 - whatever the driver says of a row; the last one is logged with it
            if len(batch) == 1:
                self.lost += 1
                _log.exception("tools.call_not_kept", server=batch[0].server_id, request_id=batch[0].request_id)
                return
            for row in batch:
                await self._write([row])

    def _insert(self, tx: Tx, batch: list[CallRecord]) -> None:
        store.insert_calls(tx, batch)
        for row in batch:
            self._bus.publish_on_commit(
                tx,
                ToolCalled(
                    workspace_id=row.workspace_id,
                    call_id=row.id,
                    server=row.server_id,
                    tool=row.tool,
                    success=row.success,
                    code=row.code,
                    duration_ms=round(row.duration_ms),
                    at=row.called_at,
                ),
            )
