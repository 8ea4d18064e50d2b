"""
The dispatcher of webhooks: the deliveries that each endpoint gets, and the changes of endpoints by their results.

No endpoint delays another. A round inserts a row for each attempt that it claims. After a crash (kill -9), another worker takes over the
claims whose lease expired: every delivery is sent at least once.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from http import HTTPStatus
from typing import ClassVar, Protocol

import structlog

from rookery.kernel.clock import Clock
from rookery.kernel.db import Database, Tx
from rookery.kernel.delivery_engine import DeliveryEngine, Round
from rookery.kernel.metrics import MetricDescription, Metrics, MetricSample, MetricSource
from rookery.webhooks.models import DeliveryState, DisabledReason, Outcome, WebhookEndpoint
from rookery.webhooks.queues import MAX_PREFETCH, EndpointQueue
from rookery.webhooks.retry_policy import should_disable
from rookery.webhooks.sender import AttemptResult, DeliverySender, apply_result, evaluate_attempt, retry_state
from rookery.webhooks.store import queue
from rookery.webhooks.store.queue import ClaimedDelivery, DeliveryResult

_FINAL_STATES = frozenset({DeliveryState.DELIVERED, DeliveryState.FAILED})

_METRICS = (
    MetricDescription("rookery_webhook_deliveries_open", "gauge", "Pending and sending deliveries of the whole store."),
    MetricDescription("rookery_webhook_oldest_delivery_seconds", "gauge", "Age of the oldest pending or sending delivery."),
)

MAX_CLAIMED = 1024
"""Maximum deliveries claimed by one process, including those being sent. Each needs a connection, memory and a lease."""

MAX_UNRESPONSIVE_CLAIMED = 256
"""Maximum of those for endpoints that did not answer last time. The rest is for endpoints that do."""

_MAX_ENDPOINTS_PER_ROUND = 256
_MAX_UNRESPONSIVE_ENDPOINTS = 10_000

_SUSPENSION_S = 60.0
"""Seconds to skip an endpoint whose deliveries cannot be claimed."""


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
        count, oldest = await self._db.read(queue.LEASES.get_open_stats)
        age_s = 0.0 if oldest is None else max(0.0, (self._clock() - oldest).total_seconds())
        return [("rookery_webhook_deliveries_open", (), count), ("rookery_webhook_oldest_delivery_seconds", (), age_s)]


_log = structlog.stdlib.get_logger("rookery.webhooks")


class DisableEndpoint(Protocol):
    """A function that disables an endpoint in the given transaction."""

    def __call__(self, tx: Tx, endpoint: WebhookEndpoint, reason: DisabledReason, at: datetime) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    """
    The claims that a round may make.

    Attributes:
        capacities: The number of further claims of each endpoint with a queue.
        suspended: Endpoints without claims.
    """

    capacities: dict[str, int]
    unresponsive: frozenset[str]
    after_endpoint_id: str
    suspended: frozenset[str]
    budget: int
    unresponsive_budget: int


@dataclass(slots=True, kw_only=True)
class _Outcome:
    """
    The outcome of a round.

    Attributes:
        endpoints: The endpoints with a queue or a new claim. An endpoint that is missing here was deleted.
        after_endpoint_id: The last endpoint with a new claim, where the next round continues.
        has_more: More deliveries may be ready to be claimed.
    """

    endpoints: dict[str, WebhookEndpoint]
    results: Sequence[DeliveryResult]
    disabled_endpoints: Sequence[tuple[WebhookEndpoint, DisabledReason]]
    after_endpoint_id: str
    has_more: bool
    claims: Sequence[ClaimedDelivery] = ()


_Round = Round[ClaimedDelivery, AttemptResult, _Plan]


@dataclass(slots=True, kw_only=True)
class Dispatcher(DeliveryEngine[ClaimedDelivery, AttemptResult, _Plan, _Outcome]):
    """Sends the due deliveries of all endpoints."""

    name: ClassVar[str] = "webhooks"

    sender: DeliverySender
    disable_endpoint: DisableEndpoint
    metrics: DeliveryMetrics
    _queues: dict[str, EndpointQueue] = field(default_factory=dict[str, EndpointQueue])
    _after_endpoint_id: str = ""
    _suspended_until: dict[str, float] = field(default_factory=dict[str, float])
    _unresponsive: set[str] = field(default_factory=set[str])

    async def open(self) -> None:
        """Take over the claims of dead processes on this host."""
        await self.db.write(lambda tx: queue.LEASES.end_orphaned(tx, at=self.clock()))

    async def is_any_due(self) -> bool:
        self._suspended_until = {endpoint_id: until for endpoint_id, until in self._suspended_until.items() if until > time.monotonic()}
        full = [
            *self._suspended_until,
            *(endpoint_id for endpoint_id, endpoint_queue in self._queues.items() if not endpoint_queue.capacity),
        ]
        return await self.db.lookup(lambda tx: queue.is_any_due(tx, self.clock(), excluded_ids=full))

    def plan(self, *, is_claiming: bool) -> _Plan:
        claimed_count = sum(endpoint_queue.claimed_count for endpoint_queue in self._queues.values())
        unresponsive_count = sum(endpoint_queue.is_unresponsive for endpoint_queue in self._queues.values())
        queues = self._queues if is_claiming else {}
        return _Plan(
            capacities={endpoint_id: endpoint_queue.capacity for endpoint_id, endpoint_queue in queues.items()},
            unresponsive=frozenset(self._unresponsive),
            after_endpoint_id=self._after_endpoint_id,
            suspended=frozenset(self._suspended_until),
            budget=max(0, MAX_CLAIMED - claimed_count) if is_claiming else 0,
            unresponsive_budget=max(0, MAX_UNRESPONSIVE_CLAIMED - unresponsive_count),
        )

    def store(self, tx: Tx, work: _Round) -> _Outcome:
        endpoint_ids = {
            *work.plan.capacities,
            *(attempt.claim.endpoint_id for attempt in work.results.values()),
            *(claim.endpoint_id for claim in work.to_release.values()),
        }
        endpoints = queue.lock_endpoints(tx, endpoint_ids) if endpoint_ids else {}
        results, reasons = self._store_results(tx, work, endpoints)
        if work.to_release:
            unsent = [(claim, retry_state(endpoints.get(claim.endpoint_id))) for claim in work.to_release.values()]
            queue.release_claims(tx, unsent, worker_id=self._worker_id)
        disabled = [(endpoints[endpoint_id], reason) for endpoint_id, reason in reasons.items() if endpoints[endpoint_id].enabled]
        for endpoint, reason in disabled:
            self.disable_endpoint(tx, endpoint, reason, work.now)
            endpoints[endpoint.id] = replace(endpoint, enabled=False)
        return _Outcome(
            endpoints=endpoints,
            results=results,
            disabled_endpoints=disabled,
            after_endpoint_id=work.plan.after_endpoint_id,
            has_more=bool(disabled),
        )

    def _store_results(
        self, tx: Tx, work: _Round, endpoints: dict[str, WebhookEndpoint]
    ) -> tuple[list[DeliveryResult], dict[str, DisabledReason]]:
        """Store results in the order in which they came; return them with the endpoints to disable. Updates *endpoints*."""
        results, changed_ids, reasons = list[DeliveryResult](), set[str](), dict[str, DisabledReason]()
        for attempt in work.results.values():
            endpoint = endpoints.get(attempt.claim.endpoint_id)
            result = evaluate_attempt(attempt, endpoint)
            results.append(result)
            if endpoint is not None and result.state in _FINAL_STATES:
                endpoints[endpoint.id] = endpoint = apply_result(endpoint, result)
                changed_ids.add(endpoint.id)
                if result.status == HTTPStatus.GONE:
                    reasons[endpoint.id] = DisabledReason.GONE
                elif should_disable(endpoint, work.now):
                    reasons.setdefault(endpoint.id, DisabledReason.FAILURES)
        if results:
            queue.store_results(tx, results, worker_id=self._worker_id)
        for endpoint_id in changed_ids:
            queue.update_endpoint_stats(tx, endpoints[endpoint_id])
        return results, reasons

    def claim(self, tx: Tx, work: _Round, outcome: _Outcome) -> None:
        plan, budget, unresponsive_budget = work.plan, work.plan.budget, work.plan.unresponsive_budget
        # Disabling an endpoint comes last in its transaction, so claiming has to wait for the next round.
        if not budget or outcome.disabled_endpoints:
            return
        full = [*plan.suspended, *(endpoint_id for endpoint_id, capacity in plan.capacities.items() if not capacity)]
        due = queue.lock_due_endpoints(tx, work.now, after_id=plan.after_endpoint_id, excluded_ids=full, limit=_MAX_ENDPOINTS_PER_ROUND)
        if not due:
            return
        claimed_by_others = queue.count_other_workers(tx, self._worker_id, work.now)
        capacities = list[tuple[WebhookEndpoint, int]]()
        for endpoint in due:
            new = EndpointQueue.for_endpoint(endpoint, plan.unresponsive)
            if new.is_unresponsive and not unresponsive_budget:
                continue
            capacity = min(plan.capacities.get(endpoint.id, new.capacity), budget)
            if endpoint.id in claimed_by_others:
                capacity = min(capacity, max(0, endpoint.concurrency - claimed_by_others[endpoint.id]))
            if capacity:
                capacities.append((endpoint, capacity))
                budget -= capacity
                unresponsive_budget -= new.is_unresponsive
            outcome.after_endpoint_id = endpoint.id
            if not budget:
                break
        outcome.endpoints.update((endpoint.id, endpoint) for endpoint in due)
        outcome.claims = queue.claim(tx, capacities, worker_id=self._worker_id, now=work.now, until=work.until)
        outcome.has_more = len(due) == _MAX_ENDPOINTS_PER_ROUND

    def record(self, outcome: _Outcome) -> None:
        self.metrics.record_results(outcome.results)
        for endpoint, reason in outcome.disabled_endpoints:
            _log.warning("webhooks.endpoint_disabled", endpoint=endpoint.id, reason=reason.value, failures=endpoint.failures)

    async def accept(self, outcome: _Outcome) -> bool:
        self._after_endpoint_id = outcome.after_endpoint_id
        for endpoint_id, endpoint_queue in self._queues.items():
            fresh = outcome.endpoints.get(endpoint_id)
            if fresh is None or not fresh.enabled:
                self.release(endpoint_queue.drain())
            endpoint_queue.endpoint = fresh or endpoint_queue.endpoint
        for claim in outcome.claims:
            endpoint = outcome.endpoints[claim.endpoint_id]
            endpoint_queue = self._queues.get(endpoint.id)
            if endpoint_queue is None:
                endpoint_queue = self._queues[endpoint.id] = EndpointQueue.for_endpoint(endpoint, self._unresponsive)
            endpoint_queue.waiting.append(claim)
        for endpoint_id, endpoint_queue in list(self._queues.items()):
            self._send_waiting(endpoint_queue)
            if endpoint_queue.is_idle:
                del self._queues[endpoint_id]
        return outcome.has_more

    def _send_waiting(self, endpoint_queue: EndpointQueue) -> None:
        """Start sending waiting deliveries up to the limit of the endpoint."""
        while (claim := endpoint_queue.pop_next()) is not None:
            endpoint_queue.in_flight += 1
            self.start_send(claim, self._send(endpoint_queue, claim))

    async def _send(self, endpoint_queue: EndpointQueue, claim: ClaimedDelivery) -> None:
        attempt = await self.sender.send(endpoint_queue.endpoint, claim)
        endpoint_queue.in_flight -= 1
        self.add_result(claim, attempt)
        self.metrics.record_attempt(attempt)
        unsent = endpoint_queue.record_attempt(
            is_success=attempt.outcome is Outcome.SUCCESS, is_answered=attempt.status is not None, duration_s=attempt.duration_s
        )
        self.release(unsent)
        self._update_unresponsive(endpoint_queue)
        self._send_waiting(endpoint_queue)

    def _update_unresponsive(self, endpoint_queue: EndpointQueue) -> None:
        if not endpoint_queue.is_unresponsive:
            self._unresponsive.discard(endpoint_queue.endpoint.id)
        elif len(self._unresponsive) < _MAX_UNRESPONSIVE_ENDPOINTS:
            self._unresponsive.add(endpoint_queue.endpoint.id)

    def interrupt(self, claim: ClaimedDelivery, started_at: datetime) -> None:
        self.add_result(claim, self.sender.interrupt(claim, started_at))

    def release_waiting(self) -> None:
        for endpoint_queue in self._queues.values():
            self.release(endpoint_queue.drain())

    async def renew(self, until: datetime) -> None:
        if self._queues:
            await self.db.write(lambda tx: queue.LEASES.renew(tx, self._worker_id, until=until))

    def get_versions(self, result: AttemptResult) -> Sequence[AttemptResult]:
        return result, result.without_response()

    def log_set_aside(self, delivery_id: str | None) -> None:
        _log.exception("webhooks.set_aside", deliveries=[] if delivery_id is None else [delivery_id], is_claim=delivery_id is None)

    async def isolate_claims(self) -> None:
        """Skip endpoints whose deliveries cannot be claimed for a while."""
        due = await self.db.lookup(
            lambda tx: queue.list_due_ids(tx, self.clock(), excluded_ids=list(self._suspended_until), limit=_MAX_ENDPOINTS_PER_ROUND)
        )
        plan = replace(self.plan(is_claiming=False), after_endpoint_id="", budget=MAX_PREFETCH)
        for endpoint_id in due:
            others = frozenset(due) - {endpoint_id} | self._suspended_until.keys()
            if not await self.can_claim(replace(plan, suspended=others)):
                self._suspended_until[endpoint_id] = time.monotonic() + _SUSPENSION_S
