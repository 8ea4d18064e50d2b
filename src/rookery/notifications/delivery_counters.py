"""Prometheus metrics of notifications."""

from __future__ import annotations

from collections.abc import Sequence

from rookery.kernel.clock import Clock
from rookery.kernel.db import Database
from rookery.kernel.metrics import MetricDescription, Metrics, MetricSample, MetricSource
from rookery.notifications.models import NotificationState
from rookery.notifications.sending import SendAttempt
from rookery.notifications.store import queue
from rookery.notifications.store.queue import NotificationResult


class DeliveryCounters:
    """The counters and durations of this process, and the open deliveries of the whole store."""

    def __init__(self, metrics: Metrics, db: Database, clock: Clock) -> None:
        self._db, self._clock = db, clock
        self._attempts = metrics.add_counter(
            "rookery_notification_attempts_total", "Attempts to send a notification, by channel and outcome.", "channel", "outcome"
        )
        self._durations = metrics.add_histogram("rookery_notification_attempt_duration_seconds", "Duration of an attempt.", "channel")
        self._deliveries = metrics.add_counter(
            "rookery_notification_deliveries_total",
            "Finished deliveries, by state: sent, failed or unknown.",
            "channel",
            "state",
        )
        metrics.add_source(MetricSource(name="notifications", metrics=_METRICS, read=self._samples, is_shared=True))

    def record_attempt(self, attempt: SendAttempt) -> None:
        """Count an attempt."""
        channel = attempt.claim.channel.type.value
        self._attempts.add(channel, attempt.result.outcome.value)
        self._durations.observe(attempt.duration_s, channel)

    def record_results(self, results: Sequence[NotificationResult]) -> None:
        """Count stored results."""
        for result in results:
            if result.state is not NotificationState.PENDING:
                self._deliveries.add(result.claim.channel.type.value, result.state.value)

    async def _samples(self) -> Sequence[MetricSample]:
        count, oldest = await self._db.read(queue.DELIVERY_LEASES.get_open_stats)
        age_s = 0.0 if oldest is None else max(0.0, (self._clock() - oldest).total_seconds())
        return [("rookery_notification_deliveries_open", (), count), ("rookery_notification_oldest_delivery_seconds", (), age_s)]


_METRICS = (
    MetricDescription("rookery_notification_deliveries_open", "gauge", "Pending and sending notifications of the whole store."),
    MetricDescription("rookery_notification_oldest_delivery_seconds", "gauge", "Age of the oldest pending or sending notification."),
)
