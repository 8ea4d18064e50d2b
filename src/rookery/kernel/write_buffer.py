"""A buffer of rows that are written to the record store in batches, shortly after they were added."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, Literal, TypeVar

import structlog

from rookery.kernel.errors import RookeryError
from rookery.kernel.logs import LimitedWarning

T = TypeVar("T")

_RETRY_DELAY_S = 1.0
"""Delay after a failed write."""


class WriteBuffer(Generic[T]):
    """
    Rows in memory that wait to be written.

    A row stays until it is committed. A row that the store rejects is dropped and logged, so that it does not block the others. A killed
    process loses the rows that it has not written.

    Args:
        write: Writes a batch in one transaction.
        name: The prefix of the log events, such as `tools.calls`.
        delay_s: Seconds from the first row to its write. None: rows are written only by `flush`.
        max_rows: Maximum number of rows; beyond it, rows are dropped as *drops* says. None: no limit.
        batch_size: Maximum number of rows per transaction.
    """

    def __init__(
        self,
        write: Callable[[Sequence[T]], Awaitable[object]],
        *,
        name: str,
        delay_s: float | None = None,
        max_rows: int | None = None,
        batch_size: int = 1_000,
        drops: Literal["newest", "oldest"] = "newest",
    ) -> None:
        self._write = write
        self._name = name
        self._delay_s = delay_s
        self._max_rows = max_rows
        self._batch_size = batch_size
        self._drops = drops
        self._rows: deque[T] = deque()
        self._is_awake = False
        self._lock = asyncio.Lock()
        self._writing: asyncio.Task[None] | None = None
        self._is_closed = False
        self._log = structlog.stdlib.get_logger(f"rookery.{name.partition('.')[0]}")
        self._warning = LimitedWarning(self._log, f"{name}_not_written")
        self.dropped = 0
        """Rows dropped since the start, for metrics."""

    def __len__(self) -> int:
        """Return the number of rows that wait, without those of a write in progress."""
        return len(self._rows)

    def add(self, row: T) -> None:
        self._rows.append(row)
        self._drop_surplus()
        self._schedule()

    def wake(self) -> None:
        """Call *write* at the next flush, even without rows. For an owner that also writes values of its own."""
        self._is_awake = True
        self._schedule()

    async def flush(self) -> None:
        """
        Write all rows. If a write fails, its rows stay.

        Raises:
            RookeryError: The store is unavailable.
        """
        async with self._lock:
            while self._rows or self._is_awake:
                batch = [self._rows.popleft() for _ in range(min(self._batch_size, len(self._rows)))]
                was_awake, self._is_awake = self._is_awake, False
                try:
                    await self._write_batch(batch)
                except BaseException:
                    self._rows.extendleft(reversed(batch))
                    self._is_awake = self._is_awake or was_awake
                    self._drop_surplus()
                    raise

    async def aclose(self) -> None:
        """Write the last rows and stop. Rows that cannot be written are dropped and counted in the log."""
        self._is_closed = True
        try:
            await self.flush()
        except RookeryError as error:
            self._log.error(f"{self._name}_lost", rows=len(self._rows), reason=error.message)
            self.dropped += len(self._rows)
            self._rows.clear()
        if self._writing is not None:
            self._writing.cancel()
            await asyncio.wait({self._writing})

    def _schedule(self) -> None:
        if self._writing is None and self._delay_s is not None and not self._is_closed:
            self._writing = asyncio.create_task(self._write_soon(self._delay_s), name=f"write-{self._name}")

    async def _write_soon(self, delay_s: float) -> None:
        while self._rows or self._is_awake:
            await asyncio.sleep(delay_s)
            try:
                await self.flush()
            except RookeryError as error:
                self._warning.warn(rows=len(self._rows), reason=error.message)
                await asyncio.sleep(_RETRY_DELAY_S)
        self._writing = None

    async def _write_batch(self, batch: Sequence[T]) -> None:
        try:
            await self._write(batch)
        except RookeryError:
            raise
        except Exception:  # noqa: BLE001 - the driver's error for a single row is logged with it
            if len(batch) <= 1:
                self.dropped += len(batch)
                self._log.exception(f"{self._name}_rejected")
                return
            for row in batch:
                await self._write_batch([row])

    def _drop_surplus(self) -> None:
        while self._max_rows is not None and len(self._rows) > self._max_rows:
            self._rows.pop() if self._drops == "newest" else self._rows.popleft()
            self.dropped += 1
