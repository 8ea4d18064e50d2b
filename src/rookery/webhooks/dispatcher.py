"""
Deliveries on their way: what is due is claimed, sent, and what came of it written down, in turns.

One turn is one transaction: the outcomes since the last one, then claims for whatever has room, each with its attempt's row. While
the turn is written, what was claimed before goes on being sent; so the store is asked once for many deliveries, and a delivery
waits for no other endpoint's. After kill -9 the rows that nobody settled are taken over: every delivery goes out at least once.
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

from rookery.kernel.clock import Clock
from rookery.kernel.db import Database, Tx
from rookery.kernel.errors import OUTAGES
from rookery.kernel.ids import IdFactory
from rookery.kernel.worker_ids import find_dead_workers, make_worker_id
from rookery.webhooks.delivery_metrics import DeliveryMetrics
from rookery.webhooks.delivery_results import apply_result, evaluate_attempt, retry_state
from rookery.webhooks.models import DeliveryState, DisabledReason, Outcome, WebhookEndpoint
from rookery.webhooks.queues import MAX_PREFETCH, EndpointQueue
from rookery.webhooks.retry_policy import STATUS_GONE, should_disable
from rookery.webhooks.sender import AttemptResult, DeliverySender
from rookery.webhooks.store import queue
from rookery.webhooks.store.queue import ClaimedDelivery, DeliveryResult

_log = structlog.stdlib.get_logger("rookery.webhooks")

_POLL_INTERVAL_S = 1.0
_BATCH_DELAY_S = 0.005
"""So long outcomes are gathered before they are written: a transaction for each would cost more than the sending."""

MAX_CLAIMED = 1024
"""Deliveries of one process that are claimed, those under way included: each is a connection, some memory, and a lease."""

MAX_UNRESPONSIVE_CLAIMED = 256
"""Of those, to receivers that did not answer the last time: the rest is for those that do."""

_MAX_ENDPOINTS_PER_ROUND = 256
_MAX_UNRESPONSIVE_ENDPOINTS = 10_000


_SUSPENSION_S = 60.0
"""So long an endpoint of which nothing can be claimed is left alone."""


class _Rollback(Exception):
    """Undoes a transaction that was only tried."""


class DisableEndpoint(Protocol):
    """Disables an endpoint in the transaction in which that is found out."""

    def __call__(self, tx: Tx, endpoint: WebhookEndpoint, reason: DisabledReason, at: datetime) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class _RoundInput:
    """What this process knows when a turn begins; the transaction may be run twice, and changes nothing of it."""

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
    What a turn came to.

    Attributes:
        endpoints: Those that have a lane, or were given one; who is not in it is gone.
        after_endpoint_id: The last endpoint that something was claimed of, where the next turn goes on.
        has_more: There may be more to claim at once.
    """

    endpoints: dict[str, WebhookEndpoint]
    delivery_results: Sequence[DeliveryResult]
    claims: Sequence[ClaimedDelivery]
    disabled_endpoints: Sequence[tuple[WebhookEndpoint, DisabledReason]]
    after_endpoint_id: str
    has_more: bool


@dataclass(slots=True, kw_only=True)
class Dispatcher:
    """Sends what is due from this process until it is stopped; others may do so beside it."""

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
        """Look for something due at once; from the event loop's thread."""
        self._wake.set()

    async def wait_until_idle(self) -> None:
        """Wait until nothing is due and all that was under way is written down."""
        while self._is_running_round or self._results or self._to_release or self._queues or await self._is_any_due():
            self._wake.set()
            await asyncio.sleep(_BATCH_DELAY_S)

    async def start(self) -> None:
        """Take over what dead processes of this host had in hand, then begin; `stop` must follow."""
        self._worker_id = make_worker_id(self.ids())

        def free(tx: Tx) -> int:
            gone = find_dead_workers(queue.list_owners(tx))
            return queue.release_orphans(tx, gone, self.clock()) if gone else 0

        await self.db.write(free)
        self._tasks = [
            asyncio.create_task(self._run_forever(), name="webhooks-dispatch"),
            asyncio.create_task(self._renew_leases(), name="webhooks-leases"),
        ]

    async def stop(self) -> None:
        """End; what is under way has a moment to be answered, and whatever is not sent by then is given back."""
        running, self._tasks = self._tasks, []
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        self._unclaim_waiting()
        if self._sends:
            await asyncio.wait(self._sends, timeout=self.stop_timeout_s)
        left = list(self._sends.items())
        for task, _ in left:
            task.cancel()
        await asyncio.gather(*(task for task, _ in left), return_exceptions=True)
        self._results += [self._interrupted_result(claimed, started_at) for _, (_, claimed, started_at) in left]
        try:
            await self._write(self._collect_input(budget=0))
        except Exception as error:
            # The next start finds what is ours still, and whose owner is dead.
            if not isinstance(error, OUTAGES):
                _log.exception("webhooks.turn_failed")

    async def _run_forever(self) -> None:
        while True:
            try:
                if self._results or self._to_release or await self._is_any_due():
                    await self._run_round_shielded()
                    await asyncio.sleep(_BATCH_DELAY_S)
                if not self._wake.is_set():
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(self._wake.wait(), _POLL_INTERVAL_S)
                self._wake.clear()
            except Exception as error:
                if not isinstance(error, OUTAGES):
                    _log.exception("webhooks.turn_failed")
                    with contextlib.suppress(*OUTAGES):
                        await self._isolate_failures()
                await asyncio.sleep(self.pause_s)
                self._wake.set()

    async def _isolate_failures(self) -> None:
        """
        Find what a turn fails of, by taking each thing by itself, and put it aside: one row must not stop all others.

        An outcome that cannot be written down is, without what a stranger said. Of an endpoint of which nothing can be claimed nothing
        is, for a while.
        """
        alone = replace(self._collect_input(budget=0), results=(), to_release=(), capacities={})
        for sent in tuple(self._results):
            if not await self._try_write(replace(alone, results=(sent,))) and not await self._try_write(
                replace(alone, results=(sent.without_response(),))
            ):
                del self._results[:1]
        for claimed in tuple(self._to_release):
            if not await self._try_write(replace(alone, to_release=(claimed,))):
                del self._to_release[:1]
        due = await self.db.lookup(
            lambda tx: queue.list_due_ids(tx, self.clock(), excluded_ids=list(self._suspended_until), limit=_MAX_ENDPOINTS_PER_ROUND)
        )
        for endpoint_id in due:
            others = frozenset(due) - {endpoint_id} | self._suspended_until.keys()
            if not await self._try_write(replace(alone, suspended=others, after_endpoint_id="", budget=MAX_PREFETCH), dry_run=True):
                self._suspended_until[endpoint_id] = time.monotonic() + _SUSPENSION_S

    async def _try_write(self, known: _RoundInput, *, dry_run: bool = False) -> bool:
        """Write *known* down, or only see whether that can be done; false: it cannot, for a reason that is in it."""
        try:
            if dry_run:
                await self.db.write(lambda tx: self._apply_and_roll_back(tx, known))
            await self._write(known)
        except _Rollback:
            return True
        except OUTAGES:
            raise
        except Exception:
            about = [each.claim.id for each in known.results] or [each.id for each in known.to_release]
            _log.exception("webhooks.put_aside", deliveries=about, is_claim=dry_run)
            return False
        return True

    def _apply_and_roll_back(self, tx: Tx, known: _RoundInput) -> None:
        self._apply(tx, known)
        raise _Rollback

    async def _run_round_shielded(self) -> None:
        """Take a turn, and when it is cancelled, to its end all the same: what it claims would be nobody's until its lease is over."""
        self._is_running_round = True
        turning = asyncio.ensure_future(self._run_round())
        try:
            await asyncio.shield(turning)
        except asyncio.CancelledError:
            await asyncio.wait([turning])
            raise
        finally:
            self._is_running_round = False

    async def _is_any_due(self) -> bool:
        self._suspended_until = {endpoint_id: until for endpoint_id, until in self._suspended_until.items() if until > time.monotonic()}
        full = [*self._suspended_until, *(endpoint_id for endpoint_id, lane in self._queues.items() if not lane.capacity)]
        return await self.db.lookup(lambda tx: queue.is_any_due(tx, self.clock(), excluded_ids=full))

    async def _run_round(self) -> None:
        in_hand = sum(lane.in_flight + len(lane.waiting) for lane in self._queues.values())
        turn = await self._write(self._collect_input(budget=max(0, MAX_CLAIMED - in_hand)))
        self._after_endpoint_id = turn.after_endpoint_id
        for endpoint_id, lane in self._queues.items():
            fresh = turn.endpoints.get(endpoint_id)
            if fresh is None or not fresh.enabled:
                self._to_release += lane.drain()
            lane.endpoint = fresh or lane.endpoint
        for claimed in turn.claims:
            endpoint = turn.endpoints[claimed.endpoint_id]
            lane = self._queues.get(endpoint.id)
            if lane is None:
                lane = self._queues[endpoint.id] = EndpointQueue.for_endpoint(endpoint, self._unresponsive)
            lane.waiting.append(claimed)
        for endpoint_id, lane in list(self._queues.items()):
            self._send_waiting(lane)
            if lane.is_idle:
                del self._queues[endpoint_id]
        if turn.has_more or self._to_release:
            self._wake.set()

    def _collect_input(self, *, budget: int) -> _RoundInput:
        doubtful = sum(lane.is_unresponsive for lane in self._queues.values())
        return _RoundInput(
            now=self.clock(),
            results=tuple(self._results),
            to_release=tuple(self._to_release),
            capacities={endpoint_id: lane.capacity for endpoint_id, lane in self._queues.items()},
            unresponsive=frozenset(self._unresponsive),
            after_endpoint_id=self._after_endpoint_id,
            suspended=frozenset(self._suspended_until),
            budget=budget,
            unresponsive_budget=max(0, MAX_UNRESPONSIVE_CLAIMED - doubtful),
        )

    async def _write(self, known: _RoundInput) -> _RoundResult:
        turn = await self.db.write(lambda tx: self._apply(tx, known))
        del self._results[: len(known.results)], self._to_release[: len(known.to_release)]
        self.metrics.record_results(turn.delivery_results)
        for endpoint, reason in turn.disabled_endpoints:
            _log.warning("webhooks.endpoint_disabled", endpoint=endpoint.id, reason=reason.value, failures=endpoint.failures)
        return turn

    def _apply(self, tx: Tx, known: _RoundInput) -> _RoundResult:
        concerned = {
            *known.capacities,
            *(each.claim.endpoint_id for each in known.results),
            *(each.endpoint_id for each in known.to_release),
        }
        endpoints = queue.lock_endpoints(tx, concerned) if concerned else {}
        written, reasons = self._apply_results(tx, known, endpoints)
        if known.to_release:
            fates = {each.id: retry_state(endpoints.get(each.endpoint_id)) for each in known.to_release}
            queue.release_claims(tx, fates, known.to_release, worker_id=self._worker_id)
        disabled = [(endpoints[endpoint_id], reason) for endpoint_id, reason in reasons.items() if endpoints[endpoint_id].enabled]
        turn = _RoundResult(
            endpoints=endpoints,
            delivery_results=written,
            claims=(),
            disabled_endpoints=disabled,
            after_endpoint_id=known.after_endpoint_id,
            has_more=bool(disabled),
        )
        # Disabling comes last in its transaction, so what is due then has to wait for the next one.
        for endpoint, reason in disabled:
            self.disable_endpoint(tx, endpoint, reason, known.now)
            endpoints[endpoint.id] = replace(endpoint, enabled=False)
        if known.budget and not disabled:
            self._claim(tx, known, turn)
        return turn

    def _apply_results(
        self, tx: Tx, known: _RoundInput, endpoints: dict[str, WebhookEndpoint]
    ) -> tuple[list[DeliveryResult], dict[str, DisabledReason]]:
        """Write outcomes down, in the order in which they came, and find out who must be disabled; *endpoints* are brought up to date."""
        written, told, reasons = list[DeliveryResult](), set[str](), dict[str, DisabledReason]()
        for sent in known.results:
            endpoint = endpoints.get(sent.claim.endpoint_id)
            each = evaluate_attempt(sent, endpoint)
            written.append(each)
            if endpoint is not None and each.state in {DeliveryState.DELIVERED, DeliveryState.FAILED}:
                endpoints[endpoint.id] = endpoint = apply_result(endpoint, each)
                told.add(endpoint.id)
                if each.status == STATUS_GONE:
                    reasons[endpoint.id] = DisabledReason.GONE
                elif should_disable(endpoint, known.now):
                    reasons.setdefault(endpoint.id, DisabledReason.FAILURES)
        if written:
            queue.store_results(tx, written, worker_id=self._worker_id)
        for endpoint_id in told:
            queue.update_endpoint_stats(tx, endpoints[endpoint_id])
        return written, reasons

    def _claim(self, tx: Tx, known: _RoundInput, turn: _RoundResult) -> None:
        now, budget, doubtful = known.now, known.budget, known.unresponsive_budget
        full = [*known.suspended, *(endpoint_id for endpoint_id, room in known.capacities.items() if not room)]
        due = queue.lock_due_endpoints(tx, now, after_id=known.after_endpoint_id, excluded_ids=full, limit=_MAX_ENDPOINTS_PER_ROUND)
        if not due:
            return
        elsewhere = queue.count_other_workers(tx, self._worker_id, now)
        rooms = list[tuple[WebhookEndpoint, int]]()
        for endpoint in due:
            new = EndpointQueue.for_endpoint(endpoint, known.unresponsive)
            if new.is_unresponsive and not doubtful:
                continue
            room = min(known.capacities.get(endpoint.id, new.capacity), budget)
            if endpoint.id in elsewhere:
                room = min(room, max(0, endpoint.concurrency - elsewhere[endpoint.id]))
            if room:
                rooms.append((endpoint, room))
                budget -= room
                doubtful -= new.is_unresponsive
            turn.after_endpoint_id = endpoint.id
            if not budget:
                break
        turn.endpoints.update((endpoint.id, endpoint) for endpoint in due)
        turn.claims = queue.claim(tx, rooms, worker_id=self._worker_id, now=now, until=now + timedelta(seconds=self.lease_s))
        turn.has_more = len(due) == _MAX_ENDPOINTS_PER_ROUND

    def _send_waiting(self, endpoint_queue: EndpointQueue) -> None:
        """Send as much of what waits as may be under way."""
        while (claimed := endpoint_queue.pop_next()) is not None:
            endpoint_queue.in_flight += 1
            task = asyncio.create_task(self._send(endpoint_queue, claimed))
            self._sends[task] = (endpoint_queue, claimed, self.clock())

    async def _send(self, endpoint_queue: EndpointQueue, claimed: ClaimedDelivery) -> None:
        sent = await self.sender.send(endpoint_queue.endpoint, claimed)
        endpoint_queue.in_flight -= 1
        self._results.append(sent)
        task = asyncio.current_task()
        if task is not None:
            self._sends.pop(task, None)
        self.metrics.record_attempt(sent)
        self._to_release += endpoint_queue.record_attempt(
            is_success=sent.outcome is Outcome.SUCCESS, is_answered=sent.status is not None, duration_s=sent.duration_s
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
        for lane in self._queues.values():
            self._to_release += lane.drain()

    def _interrupted_result(self, claimed: ClaimedDelivery, started_at: datetime) -> AttemptResult:
        now = self.clock()
        return AttemptResult(
            claim=claimed,
            started_at=started_at,
            ended_at=now,
            outcome=Outcome.INTERRUPTED,
            duration_s=(now - started_at).total_seconds(),
            error="It was interrupted: the server stopped.",
        )

    async def _renew_leases(self) -> None:
        """Renew the leases of all that is in hand."""
        while True:
            await asyncio.sleep(self.lease_s / 3)
            if self._queues:
                until = self.clock() + timedelta(seconds=self.lease_s)
                try:
                    await self.db.write(lambda tx, until=until: queue.renew_leases(tx, self._worker_id, until))
                except Exception as error:
                    if not isinstance(error, OUTAGES):
                        _log.exception("webhooks.leases_failed")
