"""A record store whose writes are counted, timed and traced."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TypeVar

from rookery.kernel.db.database import Database
from rookery.kernel.db.transaction import Dialect, Tx
from rookery.kernel.metrics import Described, Metrics, Sample, Source
from rookery.kernel.tracing import span

T = TypeVar("T")


class ObservedDatabase:
    """`Database` as *db* is it; reads pass through."""

    def __init__(self, db: Database, metrics: Metrics) -> None:
        self._db = db
        self._pending = 0
        self._durations = metrics.histogram(
            "rookery_database_write_duration_seconds", "A transaction, from when it was asked for to its commit; waiting in line included."
        )
        metrics.read_from(Source(name="database writes", metrics=_DESCRIBED, read=self._samples))

    @property
    def dialect(self) -> Dialect:
        return self._db.dialect

    async def write(self, work: Callable[[Tx], T]) -> T:
        started = time.perf_counter()
        self._pending += 1
        try:
            with span("database write"):
                return await self._db.write(work)
        finally:
            self._pending -= 1
            self._durations.took(time.perf_counter() - started)

    async def read(self, work: Callable[[Tx], T]) -> T:
        return await self._db.read(work)

    async def quick(self, work: Callable[[Tx], T]) -> T:
        return await self._db.quick(work)

    async def close(self) -> None:
        await self._db.close()

    async def _samples(self) -> Sequence[Sample]:
        return [("rookery_database_writes_pending", (), self._pending)]


_DESCRIBED = (
    Described(name="rookery_database_writes_pending", kind="gauge", says="Transactions of this process that are not committed yet."),
)
