"""A record store that counts, times and traces its writes."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from rookery.kernel.db.database import Database
from rookery.kernel.db.transaction import Dialect, Tx
from rookery.kernel.engine_breakers import EngineBreaker
from rookery.kernel.metrics import MetricDescription, Metrics, MetricSample, MetricSource
from rookery.kernel.tracing import start_span

T = TypeVar("T")


class InstrumentedDatabase:
    """
    A `Database` that measures the writes of *db*, and does not keep requests waiting while it does not answer.

    Args:
        breaker: The circuit breaker of a record store on a server. None: the store is a file.
    """

    def __init__(self, db: Database, metrics: Metrics, *, breaker: EngineBreaker | None = None) -> None:
        self._db = db
        self._breaker = breaker
        self._pending = 0
        self._durations = metrics.add_histogram(
            "rookery_database_write_duration_seconds", "Duration of a transaction from its request to its commit, including the queue."
        )
        metrics.add_source(MetricSource(name="database writes", metrics=_METRICS, read=self._samples))

    @property
    def dialect(self) -> Dialect:
        return self._db.dialect

    async def write(self, work: Callable[[Tx], T], *, is_synced: bool = True) -> T:
        started = time.perf_counter()
        self._pending += 1
        try:
            with start_span("database write"):
                return await self._call(lambda: self._db.write(work, is_synced=is_synced))
        finally:
            self._pending -= 1
            self._durations.observe(time.perf_counter() - started)

    async def read(self, work: Callable[[Tx], T]) -> T:
        return await self._call(lambda: self._db.read(work))

    async def read_from_replica(self, work: Callable[[Tx], T]) -> T:
        return await self._call(lambda: self._db.read_from_replica(work))

    async def lookup(self, work: Callable[[Tx], T]) -> T:
        return await (self._db.lookup(work) if self._breaker is None else self._breaker.call(lambda: self._db.lookup(work)))

    async def close(self) -> None:
        await self._db.close()

    async def _call(self, run: Callable[[], Awaitable[T]]) -> T:
        return await (run() if self._breaker is None else self._breaker.call(run))

    async def _samples(self) -> Sequence[MetricSample]:
        return [("rookery_database_writes_pending", (), self._pending)]


_METRICS = (MetricDescription("rookery_database_writes_pending", "gauge", "Transactions of this process that are not committed yet."),)
