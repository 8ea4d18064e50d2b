"""What deliveries come to, as Prometheus reads it."""

from __future__ import annotations

from collections.abc import Sequence

from rookery.kernel.clock import Clock
from rookery.kernel.db import Database
from rookery.kernel.metrics import Described, Metrics, Sample, Source
from rookery.webhooks.models import DeliveryState
from rookery.webhooks.sending import Sent
from rookery.webhooks.store import queue
from rookery.webhooks.store.queue import Settled

_ENDS = frozenset({DeliveryState.DELIVERED, DeliveryState.FAILED})


class Figures:
    """Counts and times of this process, and how many deliveries of the whole store are open."""

    def __init__(self, metrics: Metrics, db: Database, clock: Clock) -> None:
        self._db, self._clock = db, clock
        self._attempts = metrics.counter("rookery_webhook_attempts_total", "Attempts at deliveries, by how they ended.", "outcome")
        self._durations = metrics.histogram(
            "rookery_webhook_attempt_duration_seconds", "An attempt, from the look-up of the name to the end of the answer."
        )
        self._deliveries = metrics.counter(
            "rookery_webhook_deliveries_total", "Deliveries that came to their end: delivered, or failed for good.", "state"
        )
        metrics.read_from(Source(name="webhooks", metrics=_DESCRIBED, read=self._samples))

    def attempted(self, sent: Sent) -> None:
        """Count an attempt."""
        self._attempts.add(sent.outcome.value)
        self._durations.took(sent.duration_s)

    def settled(self, settled: Sequence[Settled]) -> None:
        """Count what is written down."""
        for each in settled:
            if each.state in _ENDS:
                self._deliveries.add(each.state.value)

    async def _samples(self) -> Sequence[Sample]:
        count, oldest = await self._db.read(queue.standing)
        age_s = 0.0 if oldest is None else max(0.0, (self._clock() - oldest).total_seconds())
        return [("rookery_webhook_deliveries_open", (), count), ("rookery_webhook_oldest_delivery_seconds", (), age_s)]


_DESCRIBED = (
    Described(name="rookery_webhook_deliveries_open", kind="gauge", says="Deliveries of the whole store that wait or are under way."),
    Described(
        name="rookery_webhook_oldest_delivery_seconds", kind="gauge", says="How old the oldest of those is that wait or are under way."
    ),
)
