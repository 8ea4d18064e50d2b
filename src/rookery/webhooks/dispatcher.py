"""
The dispatcher: claims due deliveries, sends them and stores the results, in rounds.

A round is one transaction. It stores the results since the last round, then claims deliveries for free capacity and inserts a row
for each attempt. Sending continues meanwhile, so one transaction serves many deliveries, and no endpoint delays another. After
a crash (kill -9), another worker takes over the claims whose lease expired: every delivery is sent at least once.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Protocol

import structlog

from rookery.kernel.cancellation import run_to_end, wait_until_set
from rookery.kernel.clock import Clock
from rookery.kernel.db import Database, Tx
from rookery.kernel.db.leases import make_worker_id
from rookery.kernel.errors import OUTAGES
from rookery.kernel.ids import IdFactory
from rookery.kernel.metrics import MetricDescription, Metrics, MetricSample, MetricSource
from rookery.webhooks.models import DeliveryState, DisabledReason, Outcome, WebhookEndpoint
from rookery.webhooks.queues import MAX_PREFETCH, EndpointQueue
from rookery.webhooks.retry_policy import STATUS_GONE, should_disable
from rookery.webhooks.sender import AttemptResult, DeliverySender, apply_result, evaluate_attempt, retry_state
from rookery.webhooks.store import queue
from rookery.webhooks.store.queue import ClaimedDelivery, DeliveryResult

_FINAL_STATES = frozenset({DeliveryState.DELIVERED, DeliveryState.FAILED})

_METRICS = (
    MetricDescription("rookery_webhook_deliveries_open", "gauge", "Pending and sending deliveries of the whole store."),
    MetricDescription("rookery_webhook_oldest_delivery_seconds", "gauge", "Age of the oldest pending or sending delivery."),
)

_POLL_INTERVAL_S = 1.0
_BATCH_DELAY_S = 0.005
"""Seconds to collect results before storing them. A transaction for each would cost more than sending."""

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
        count, oldest = await self._db.read(queue.get_open_stats)
        age_s = 0.0 if oldest is None else max(0.0, (self._clock() - oldest).total_seconds())
        return [("rookery_webhook_deliveries_open", (), count), ("rookery_webhook_oldest_delivery_seconds", (), age_s)]


_log = structlog.stdlib.get_logger("rookery.webhooks")


class _Rollback(Exception):
    """Rolls back the transaction of a dry run."""


class DisableEndpoint(Protocol):
    """A function that disables an endpoint in the given transaction."""

    def __call__(self, tx: Tx, endpoint: WebhookEndpoint, reason: DisabledReason, at: datetime) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class _RoundInput:
    """The input of a round. Its transaction may run twice, so it does not change the input."""

    now: datetime
    results: Sequence[AttemptResult]
    to_release: Sequence[ClaimedDelivery]
    capacities: dict[str, int]
    unresponsive: frozenset[str]
    after_endpoint_id: str
    suspended: frozenset[str]
    budget: int
    unresponsive_budget: int


@dataclass(slots=True, kw_only=True)
class _RoundResult:
    """
    The result of a round.

    Attributes:
        endpoints: The endpoints with a queue or a new claim. An endpoint that is missing here was deleted.
        after_endpoint_id: The last endpoint with a new claim, where the next round continues.
        has_more: More deliveries may be ready to be claimed.
    """

    endpoints: dict[str, WebhookEndpoint]
    delivery_results: Sequence[DeliveryResult]
    claims: Sequence[ClaimedDelivery]
    disabled_endpoints: Sequence[tuple[WebhookEndpoint, DisabledReason]]
    after_endpoint_id: str
    has_more: bool


@dataclass(slots=True, kw_only=True)
class Dispatcher:
    """Sends due deliveries until it is stopped. Several processes may dispatch at the same time."""

    db: Database
    sender: DeliverySender
    disable_endpoint: DisableEndpoint
    metrics: DeliveryMetrics
    clock: Clock
    ids: IdFactory
    lease_s: int = 30
    pause_s: float = 2.0
    stop_timeout_s: float = 2.0
    _worker_id: str = ""
    _queues: dict[str, EndpointQueue] = field(default_factory=dict[str, EndpointQueue])
    _results: list[AttemptResult] = field(default_factory=list[AttemptResult])
    _to_release: list[ClaimedDelivery] = field(default_factory=list[ClaimedDelivery])
    _after_endpoint_id: str = ""
    _is_running_round: bool = False
    _suspended_until: dict[str, float] = field(default_factory=dict[str, float])
    _unresponsive: set[str] = field(default_factory=set[str])
    _wake: asyncio.Event = field(default_factory=asyncio.Event)
    _tasks: list[asyncio.Task[None]] = field(default_factory=list[asyncio.Task[None]])
    _sends: dict[asyncio.Task[None], tuple[EndpointQueue, ClaimedDelivery, datetime]] = field(
        default_factory=dict[asyncio.Task[None], tuple[EndpointQueue, ClaimedDelivery, datetime]]
    )

    def wake(self) -> None:
        """Check for due deliveries at once. Call it from the event loop's thread."""
        self._wake.set()

    async def wait_until_idle(self) -> None:
        """Wait until nothing is due and all results are stored."""
        # The store is asked first: a round that begins while it answers is seen after it.
        while await self._is_any_due() or self._is_running_round or self._results or self._to_release or self._queues:
            self._wake.set()
            await asyncio.sleep(_BATCH_DELAY_S)

    async def start(self) -> None:
        """Take over the claims of dead processes on this host, then start. Call `stop` at the end."""
        self._worker_id = make_worker_id(self.ids())
        await self.db.write(lambda tx: queue.LEASES.end_orphaned(tx, at=self.clock()))
        self._tasks = [
            asyncio.create_task(self._run_forever(), name="webhooks-dispatch"),
            asyncio.create_task(self._renew_leases(), name="webhooks-leases"),
        ]

    async def stop(self) -> None:
        """Stop. Running attempts get *stop_timeout_s* to finish; the other claims are released."""
        running, self._tasks = self._tasks, []
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        self._unclaim_waiting()
        if self._sends:
            await asyncio.wait(self._sends, timeout=self.stop_timeout_s)
        remaining_sends = list(self._sends.items())
        for task, _ in remaining_sends:
            task.cancel()
        await asyncio.gather(*(task for task, _ in remaining_sends), return_exceptions=True)
        self._results += [self._interrupted_result(claim, started_at) for _, (_, claim, started_at) in remaining_sends]
        try:
            await self._write(self._collect_input(budget=0))
        except Exception as error:
            # The next start takes over the claims of this dead process.
            if not isinstance(error, OUTAGES):
                _log.exception("webhooks.round_failed")

    async def _run_forever(self) -> None:
        while True:
            try:
                if self._results or self._to_release or await self._is_any_due():
                    await self._run_round_shielded()
                    await asyncio.sleep(_BATCH_DELAY_S)
                await wait_until_set(self._wake, timeout_s=_POLL_INTERVAL_S)
                self._wake.clear()
            except Exception as error:
                if not isinstance(error, OUTAGES):
                    _log.exception("webhooks.round_failed")
                    with contextlib.suppress(*OUTAGES):
                        await self._isolate_failures()
                await asyncio.sleep(self.pause_s)
                self._wake.set()

    async def _isolate_failures(self) -> None:
        """
        Retry each item of a failed round alone, and set aside those that fail, so that one row cannot block all others.

        A result that cannot be stored is stored without the receiver's response. An endpoint whose deliveries cannot be
        claimed is skipped for a while.
        """
        empty_input = replace(self._collect_input(budget=0), results=(), to_release=(), capacities={})
        for attempt in tuple(self._results):
            if not await self._try_write(replace(empty_input, results=(attempt,))) and not await self._try_write(
                replace(empty_input, results=(attempt.without_response(),))
            ):
                del self._results[:1]
        for claim in tuple(self._to_release):
            if not await self._try_write(replace(empty_input, to_release=(claim,))):
                del self._to_release[:1]
        due = await self.db.lookup(
            lambda tx: queue.list_due_ids(tx, self.clock(), excluded_ids=list(self._suspended_until), limit=_MAX_ENDPOINTS_PER_ROUND)
        )
        for endpoint_id in due:
            others = frozenset(due) - {endpoint_id} | self._suspended_until.keys()
            if not await self._try_write(replace(empty_input, suspended=others, after_endpoint_id="", budget=MAX_PREFETCH), dry_run=True):
                self._suspended_until[endpoint_id] = time.monotonic() + _SUSPENSION_S

    async def _try_write(self, round_input: _RoundInput, *, dry_run: bool = False) -> bool:
        """Store *round_input*, or only try it; return False if it fails for a reason other than an outage."""
        try:
            if dry_run:
                await self.db.write(lambda tx: self._apply_and_roll_back(tx, round_input))
            await self._write(round_input)
        except _Rollback:
            return True
        except OUTAGES:
            raise
        except Exception:
            delivery_ids = [attempt.claim.id for attempt in round_input.results] or [claim.id for claim in round_input.to_release]
            _log.exception("webhooks.set_aside", deliveries=delivery_ids, is_claim=dry_run)
            return False
        return True

    def _apply_and_roll_back(self, tx: Tx, round_input: _RoundInput) -> None:
        self._apply(tx, round_input)
        raise _Rollback

    async def _run_round_shielded(self) -> None:
        """Run a round to its end even if cancelled: otherwise its claims would be unusable until their leases expire."""
        self._is_running_round = True
        try:
            await run_to_end(self._run_round())
        finally:
            self._is_running_round = False

    async def _is_any_due(self) -> bool:
        self._suspended_until = {endpoint_id: until for endpoint_id, until in self._suspended_until.items() if until > time.monotonic()}
        full = [
            *self._suspended_until,
            *(endpoint_id for endpoint_id, endpoint_queue in self._queues.items() if not endpoint_queue.capacity),
        ]
        return await self.db.lookup(lambda tx: queue.is_any_due(tx, self.clock(), excluded_ids=full))

    async def _run_round(self) -> None:
        claimed_count = sum(endpoint_queue.in_flight + len(endpoint_queue.waiting) for endpoint_queue in self._queues.values())
        result = await self._write(self._collect_input(budget=max(0, MAX_CLAIMED - claimed_count)))
        self._after_endpoint_id = result.after_endpoint_id
        for endpoint_id, endpoint_queue in self._queues.items():
            fresh = result.endpoints.get(endpoint_id)
            if fresh is None or not fresh.enabled:
                self._to_release += endpoint_queue.drain()
            endpoint_queue.endpoint = fresh or endpoint_queue.endpoint
        for claim in result.claims:
            endpoint = result.endpoints[claim.endpoint_id]
            endpoint_queue = self._queues.get(endpoint.id)
            if endpoint_queue is None:
                endpoint_queue = self._queues[endpoint.id] = EndpointQueue.for_endpoint(endpoint, self._unresponsive)
            endpoint_queue.waiting.append(claim)
        for endpoint_id, endpoint_queue in list(self._queues.items()):
            self._send_waiting(endpoint_queue)
            if endpoint_queue.is_idle:
                del self._queues[endpoint_id]
        if result.has_more or self._to_release:
            self._wake.set()

    def _collect_input(self, *, budget: int) -> _RoundInput:
        unresponsive_count = sum(endpoint_queue.is_unresponsive for endpoint_queue in self._queues.values())
        return _RoundInput(
            now=self.clock(),
            results=tuple(self._results),
            to_release=tuple(self._to_release),
            capacities={endpoint_id: endpoint_queue.capacity for endpoint_id, endpoint_queue in self._queues.items()},
            unresponsive=frozenset(self._unresponsive),
            after_endpoint_id=self._after_endpoint_id,
            suspended=frozenset(self._suspended_until),
            budget=budget,
            unresponsive_budget=max(0, MAX_UNRESPONSIVE_CLAIMED - unresponsive_count),
        )

    async def _write(self, round_input: _RoundInput) -> _RoundResult:
        result = await self.db.write(lambda tx: self._apply(tx, round_input))
        del self._results[: len(round_input.results)], self._to_release[: len(round_input.to_release)]
        self.metrics.record_results(result.delivery_results)
        for endpoint, reason in result.disabled_endpoints:
            _log.warning("webhooks.endpoint_disabled", endpoint=endpoint.id, reason=reason.value, failures=endpoint.failures)
        return result

    def _apply(self, tx: Tx, round_input: _RoundInput) -> _RoundResult:
        endpoint_ids = {
            *round_input.capacities,
            *(attempt.claim.endpoint_id for attempt in round_input.results),
            *(claim.endpoint_id for claim in round_input.to_release),
        }
        endpoints = queue.lock_endpoints(tx, endpoint_ids) if endpoint_ids else {}
        results, reasons = self._apply_results(tx, round_input, endpoints)
        if round_input.to_release:
            states = {claim.id: retry_state(endpoints.get(claim.endpoint_id)) for claim in round_input.to_release}
            queue.release_claims(tx, states, round_input.to_release, worker_id=self._worker_id)
        disabled = [(endpoints[endpoint_id], reason) for endpoint_id, reason in reasons.items() if endpoints[endpoint_id].enabled]
        result = _RoundResult(
            endpoints=endpoints,
            delivery_results=results,
            claims=(),
            disabled_endpoints=disabled,
            after_endpoint_id=round_input.after_endpoint_id,
            has_more=bool(disabled),
        )
        # Disabling comes last in its transaction, so claiming has to wait for the next round.
        for endpoint, reason in disabled:
            self.disable_endpoint(tx, endpoint, reason, round_input.now)
            endpoints[endpoint.id] = replace(endpoint, enabled=False)
        if round_input.budget and not disabled:
            self._claim(tx, round_input, result)
        return result

    def _apply_results(
        self, tx: Tx, round_input: _RoundInput, endpoints: dict[str, WebhookEndpoint]
    ) -> tuple[list[DeliveryResult], dict[str, DisabledReason]]:
        """Store results in the order in which they came; return them with the endpoints to disable. Updates *endpoints*."""
        results, changed_ids, reasons = list[DeliveryResult](), set[str](), dict[str, DisabledReason]()
        for attempt in round_input.results:
            endpoint = endpoints.get(attempt.claim.endpoint_id)
            result = evaluate_attempt(attempt, endpoint)
            results.append(result)
            if endpoint is not None and result.state in {DeliveryState.DELIVERED, DeliveryState.FAILED}:
                endpoints[endpoint.id] = endpoint = apply_result(endpoint, result)
                changed_ids.add(endpoint.id)
                if result.status == STATUS_GONE:
                    reasons[endpoint.id] = DisabledReason.GONE
                elif should_disable(endpoint, round_input.now):
                    reasons.setdefault(endpoint.id, DisabledReason.FAILURES)
        if results:
            queue.store_results(tx, results, worker_id=self._worker_id)
        for endpoint_id in changed_ids:
            queue.update_endpoint_stats(tx, endpoints[endpoint_id])
        return results, reasons

    def _claim(self, tx: Tx, round_input: _RoundInput, result: _RoundResult) -> None:
        now, budget, unresponsive_budget = round_input.now, round_input.budget, round_input.unresponsive_budget
        full = [*round_input.suspended, *(endpoint_id for endpoint_id, capacity in round_input.capacities.items() if not capacity)]
        due = queue.lock_due_endpoints(tx, now, after_id=round_input.after_endpoint_id, excluded_ids=full, limit=_MAX_ENDPOINTS_PER_ROUND)
        if not due:
            return
        claimed_by_others = queue.count_other_workers(tx, self._worker_id, now)
        capacities = list[tuple[WebhookEndpoint, int]]()
        for endpoint in due:
            new = EndpointQueue.for_endpoint(endpoint, round_input.unresponsive)
            if new.is_unresponsive and not unresponsive_budget:
                continue
            capacity = min(round_input.capacities.get(endpoint.id, new.capacity), budget)
            if endpoint.id in claimed_by_others:
                capacity = min(capacity, max(0, endpoint.concurrency - claimed_by_others[endpoint.id]))
            if capacity:
                capacities.append((endpoint, capacity))
                budget -= capacity
                unresponsive_budget -= new.is_unresponsive
            result.after_endpoint_id = endpoint.id
            if not budget:
                break
        result.endpoints.update((endpoint.id, endpoint) for endpoint in due)
        result.claims = queue.claim(tx, capacities, worker_id=self._worker_id, now=now, until=now + timedelta(seconds=self.lease_s))
        result.has_more = len(due) == _MAX_ENDPOINTS_PER_ROUND

    def _send_waiting(self, endpoint_queue: EndpointQueue) -> None:
        """Start sending waiting deliveries up to the limit of the endpoint."""
        while (claim := endpoint_queue.pop_next()) is not None:
            endpoint_queue.in_flight += 1
            task = asyncio.create_task(self._send(endpoint_queue, claim))
            self._sends[task] = (endpoint_queue, claim, self.clock())

    async def _send(self, endpoint_queue: EndpointQueue, claim: ClaimedDelivery) -> None:
        attempt = await self.sender.send(endpoint_queue.endpoint, claim)
        endpoint_queue.in_flight -= 1
        self._results.append(attempt)
        task = asyncio.current_task()
        if task is not None:
            self._sends.pop(task, None)
        self.metrics.record_attempt(attempt)
        self._to_release += endpoint_queue.record_attempt(
            is_success=attempt.outcome is Outcome.SUCCESS, is_answered=attempt.status is not None, duration_s=attempt.duration_s
        )
        self._update_unresponsive(endpoint_queue)
        self._send_waiting(endpoint_queue)
        self._wake.set()

    def _update_unresponsive(self, endpoint_queue: EndpointQueue) -> None:
        if not endpoint_queue.is_unresponsive:
            self._unresponsive.discard(endpoint_queue.endpoint.id)
        elif len(self._unresponsive) < _MAX_UNRESPONSIVE_ENDPOINTS:
            self._unresponsive.add(endpoint_queue.endpoint.id)

    def _unclaim_waiting(self) -> None:
        for endpoint_queue in self._queues.values():
            self._to_release += endpoint_queue.drain()

    def _interrupted_result(self, claim: ClaimedDelivery, started_at: datetime) -> AttemptResult:
        now = self.clock()
        return AttemptResult(
            claim=claim,
            started_at=started_at,
            ended_at=now,
            outcome=Outcome.INTERRUPTED,
            duration_s=(now - started_at).total_seconds(),
            error="The attempt was interrupted because the server stopped.",
        )

    async def _renew_leases(self) -> None:
        """Renew the leases of all claims periodically."""
        while True:
            await asyncio.sleep(self.lease_s / 3)
            if self._queues:
                until = self.clock() + timedelta(seconds=self.lease_s)
                try:
                    await self.db.write(lambda tx, until=until: queue.LEASES.renew(tx, self._worker_id, until=until))
                except Exception as error:
                    if not isinstance(error, OUTAGES):
                        _log.exception("webhooks.leases_failed")
