"""Prometheus metrics of deliveries."""

from __future__ import annotations

from collections.abc import Sequence

from rookery.kernel.clock import Clock
from rookery.kernel.db import Database
from rookery.kernel.metrics import MetricDescription, Metrics, MetricSample, MetricSource
from rookery.webhooks.models import DeliveryState
from rookery.webhooks.sender import AttemptResult
from rookery.webhooks.store import queue
from rookery.webhooks.store.queue import DeliveryResult

_FINAL_STATES = frozenset({DeliveryState.DELIVERED, DeliveryState.FAILED})


class DeliveryMetrics:
    """The counters and durations of this process, and the open deliveries of the whole store."""

    def __init__(self, metrics: Metrics, db: Database, clock: Clock) -> None:
        self._db, self._clock = db, clock
        self._attempts = metrics.add_counter("rookery_webhook_attempts_total", "Delivery attempts, by outcome.", "outcome")
        self._durations = metrics.add_histogram(
            "rookery_webhook_attempt_duration_seconds", "Duration of an attempt, from the DNS lookup to the end of the response."
        )
        self._deliveries = metrics.add_counter(
            "rookery_webhook_deliveries_total", "Finished deliveries, by state: delivered or failed.", "state"
        )
        metrics.add_source(MetricSource(name="webhooks", metrics=_METRICS, read=self._samples, is_shared=True))

    def record_attempt(self, attempt: AttemptResult) -> None:
        """Count an attempt."""
        self._attempts.add(attempt.outcome.value)
        self._durations.observe(attempt.duration_s)

    def record_results(self, results: Sequence[DeliveryResult]) -> None:
        """Count stored results."""
        for result in results:
            if result.state in _FINAL_STATES:
                self._deliveries.add(result.state.value)

    async def _samples(self) -> Sequence[MetricSample]:
        count, oldest = await self._db.read(queue.get_open_stats)
        age_s = 0.0 if oldest is None else max(0.0, (self._clock() - oldest).total_seconds())
        return [("rookery_webhook_deliveries_open", (), count), ("rookery_webhook_oldest_delivery_seconds", (), age_s)]


_METRICS = (
    MetricDescription("rookery_webhook_deliveries_open", "gauge", "Pending and sending deliveries of the whole store."),
    MetricDescription("rookery_webhook_oldest_delivery_seconds", "gauge", "Age of the oldest pending or sending delivery."),
)
