"""
A buffer of call records, written in batches right after the responses (D-38).

A commit per call would cost more than the call. At 16 callers, the records of one moment share a transaction. A record is on
disk about 20 ms after its response. Records are lost only if the process is killed within that time.
"""

from __future__ import annotations

import asyncio
from collections import deque

import structlog

from rookery.kernel.db import Database, Tx
from rookery.kernel.errors import RookeryError
from rookery.kernel.events import EventBus, ToolCalled
from rookery.kernel.logs import LimitedWarning
from rookery.tools.models import CallRecord
from rookery.tools.store import calls as store

_WRITE_DELAY_S = 0.02
_RETRY_DELAY_S = 1.0
"""Delay after a failed write."""
_MAX_BUFFERED_CALLS = 10_000
"""Limit on buffered records. At the limit, a call first waits for a write, and is rejected if the write fails."""
_BATCH_SIZE = 1_000

_log = structlog.stdlib.get_logger("rookery.tools")


class CallBuffer:
    """The call records of this process that are not yet written. `aclose` writes the last ones."""

    def __init__(self, db: Database, *, bus: EventBus | None = None, max_calls: int = _MAX_BUFFERED_CALLS) -> None:
        self._db = db
        self._max_calls = max_calls
        self._bus = bus or EventBus()
        self._calls: deque[CallRecord] = deque()
        self._flushing = asyncio.Lock()
        self._write_warning = LimitedWarning(_log, "tools.calls_not_written")
        self._writing: asyncio.Task[None] | None = None
        self.lost = 0
        """Records dropped since the start, for metrics."""

    @property
    def unwritten(self) -> int:
        """The number of buffered records."""
        return len(self._calls)

    def add(self, row: CallRecord) -> None:
        """Buffer *row*. `ToolCalled` is published once the record is committed."""
        self._calls.append(row)
        if self._writing is None:
            self._writing = asyncio.create_task(self._write_soon(), name="tools-journal")

    async def require_capacity(self) -> None:
        """
        Write the buffer first if it is full.

        Raises:
            EngineUnavailable: The write failed. A call that cannot be recorded is not made.
        """
        if len(self._calls) >= self._max_calls:
            await self.flush()

    async def flush(self) -> None:
        """Write all buffered records. If a write fails, the records stay buffered and the error is raised."""
        async with self._flushing:
            while self._calls:
                batch = [self._calls[index] for index in range(min(_BATCH_SIZE, len(self._calls)))]
                await self._write(batch)
                for _ in batch:
                    self._calls.popleft()

    async def aclose(self) -> None:
        """Write the last records."""
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
        """Write *batch*. A record that the store rejects is dropped and logged, so that it does not block all others."""
        try:
            await self._db.write(lambda tx: self._insert(tx, batch))
        except RookeryError:
            raise
        except Exception:  # noqa: BLE001 - the driver's error for a single record is logged with it
            if len(batch) == 1:
                self.lost += 1
                _log.exception("tools.call_not_recorded", server=batch[0].server_id, request_id=batch[0].request_id)
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
