"""
The engine of deliveries: it claims what is due, sends it and stores the results, in rounds. Its subclasses send webhooks and notifications.

A round is one transaction. It stores the results since the last round, then claims deliveries for free capacity. Sending continues
meanwhile, so one transaction serves many deliveries. A claim has a lease, which is renewed until its result is stored.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import Any, ClassVar, Generic, TypeVar

import structlog

from rookery.kernel.cancellation import run_to_end, wait_until_set
from rookery.kernel.clock import Clock
from rookery.kernel.db import Database, Tx, dry_run
from rookery.kernel.db.leases import make_worker_id
from rookery.kernel.errors import OUTAGES
from rookery.kernel.ids import IdFactory

POLL_INTERVAL_S = 1.0
_BATCH_DELAY_S = 0.005
"""Seconds to collect results before storing them. A transaction for each would cost more than sending."""

AttemptKey = tuple[str, int]
"""The id of a delivery and the number of an attempt. Each claim that is not released has a new number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """
    A delivery claimed by a process.

    Attributes:
        attempt_number: The number of the attempt for which it was claimed.
    """

    id: str
    workspace_id: int
    attempt_number: int

    @property
    def attempt_key(self) -> AttemptKey:
        """The attempt for which it was claimed."""
        return self.id, self.attempt_number


ClaimT = TypeVar("ClaimT", bound=Claim)
ResultT = TypeVar("ResultT")
PlanT = TypeVar("PlanT")
OutcomeT = TypeVar("OutcomeT")


class Signal:
    """A signal to the dispatcher of this process. In a command there is no dispatcher, and it has no effect."""

    def __init__(self) -> None:
        self._listeners: list[Callable[[], None]] = []

    def connect(self, listener: Callable[[], None]) -> None:
        """Call *listener* at each `send`."""
        self._listeners.append(listener)

    def send(self) -> None:
        """Call the listeners. Call this on the event loop, after the commit of the change."""
        for listener in self._listeners:
            listener()


@dataclass(frozen=True, slots=True, kw_only=True)
class Round(Generic[ClaimT, ResultT, PlanT]):
    """
    The input of a round. Its transaction may run twice, so it does not change the input.

    Attributes:
        until: The end of the leases of new claims.
        to_release: Claims of which nothing was sent.
        plan: What else the subclass needs to store and to claim.
    """

    now: datetime
    until: datetime
    results: Mapping[AttemptKey, ResultT]
    to_release: Mapping[AttemptKey, ClaimT]
    plan: PlanT


@dataclass(slots=True, kw_only=True)
class DeliveryEngine(ABC, Generic[ClaimT, ResultT, PlanT, OutcomeT]):
    """
    Sends due deliveries until it is stopped. Several processes may send those of one store at the same time.

    Attributes:
        due: The signal at which it looks for due deliveries at once.
    """

    name: ClassVar[str]
    """The prefix of its log messages, and the end of the name of their logger."""

    db: Database
    clock: Clock
    ids: IdFactory
    due: Signal = field(default_factory=Signal)
    lease_s: int = 30
    pause_s: float = 2.0
    stop_timeout_s: float = 2.0
    _worker_id: str = ""
    _results: dict[AttemptKey, ResultT] = field(default_factory=dict[AttemptKey, ResultT])
    """The results that are not stored yet, in the order in which they came."""

    _to_release: dict[AttemptKey, ClaimT] = field(default_factory=dict[AttemptKey, ClaimT])
    _failed_releases: dict[AttemptKey, ClaimT] = field(default_factory=dict[AttemptKey, ClaimT])
    """Claims whose release failed. It is tried again, apart from the rounds, with each renewal of the leases."""

    _sends: dict[asyncio.Task[None], tuple[ClaimT, datetime]] = field(default_factory=dict[asyncio.Task[None], tuple[ClaimT, datetime]])
    _lease_ends_s: float = 0.0
    """The monotonic time from which on another process may take over the claims."""

    _round_lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    _wake: asyncio.Event = field(default_factory=asyncio.Event)
    _tasks: list[asyncio.Task[None]] = field(default_factory=list[asyncio.Task[None]])

    def __post_init__(self) -> None:
        self.due.connect(self.wake)

    def wake(self) -> None:
        """Check for due deliveries at once. Call it from the event loop's thread."""
        self._wake.set()

    async def wait_until_idle(self) -> None:
        """Wait until nothing is due and all results are stored."""
        # Read the store first: a round that begins meanwhile is seen after it.
        while await self.is_any_due() or self._round_lock.locked() or self._results or self._to_release or self._sends:
            self._wake.set()
            await asyncio.sleep(_BATCH_DELAY_S)

    async def start(self) -> None:
        """Start. Call `stop` at the end."""
        self._worker_id = make_worker_id(self.ids())
        await self.open()
        self._tasks = [
            asyncio.create_task(self._run_forever(), name=f"{self.name}-dispatch"),
            asyncio.create_task(self._renew_leases(), name=f"{self.name}-leases"),
        ]

    async def stop(self) -> None:
        """Stop. Running attempts get *stop_timeout_s* to finish. Then `interrupt` decides about them; the other claims are released."""
        running, self._tasks = self._tasks, []
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        self.release_waiting()
        if self._sends:
            await asyncio.wait(self._sends, timeout=self.stop_timeout_s)
        interrupted, self._sends = self._sends, {}
        for task in interrupted:
            task.cancel()
        await asyncio.gather(*interrupted, return_exceptions=True)
        for claim, started_at in interrupted.values():
            if claim.attempt_key not in self._results:
                self.interrupt(claim, started_at)
        self._to_release |= self._failed_releases
        is_stored = False
        with self.log_failure("round_failed"):  # if it fails, another process takes over the claims of this one after its end
            await self._run_transaction(self._build_round(self.plan(is_claiming=False), self._results, self._to_release))
            is_stored = True
        await self.close(is_stored=is_stored)

    # Hooks of subclasses.

    @abstractmethod
    async def open(self) -> None:
        """Prepare the start of this worker."""

    async def close(self, *, is_stored: bool) -> None:
        """End this worker. *is_stored*: all its results are stored."""

    async def prepare_round(self) -> bool:
        """Do what comes before the search for due deliveries. Return whether a round is needed, even if nothing is due."""
        return False

    @abstractmethod
    async def is_any_due(self) -> bool:
        """Return whether a round has something to do besides storing results."""

    @abstractmethod
    def plan(self, *, is_claiming: bool) -> PlanT:
        """Return the plan of a round. Without *is_claiming*, it must not lead to claims."""

    @abstractmethod
    def store(self, tx: Tx, work: Round[ClaimT, ResultT, PlanT]) -> OutcomeT:
        """Lock what the round may change, store its results and release its claims."""

    @abstractmethod
    def claim(self, tx: Tx, work: Round[ClaimT, ResultT, PlanT], outcome: OutcomeT) -> None:
        """Claim due deliveries as planned, and add them to the outcome of `store`, in the same transaction."""

    @abstractmethod
    def record(self, outcome: OutcomeT) -> None:
        """Count and log what a transaction has stored."""

    @abstractmethod
    async def accept(self, outcome: OutcomeT) -> bool:
        """Send the new claims with `start_send`. Return whether more deliveries may be ready to be claimed."""

    @abstractmethod
    def interrupt(self, claim: ClaimT, started_at: datetime) -> None:
        """Add a result for an attempt that the end of this process interrupted, or release its claim."""

    @abstractmethod
    def release_waiting(self) -> None:
        """Release all claims that are not being sent."""

    @abstractmethod
    async def renew(self, until: datetime) -> None:
        """Renew the leases of this worker, if it has any."""

    def get_pause_s(self) -> float:
        """Return the longest time until the next round."""
        return POLL_INTERVAL_S

    @abstractmethod
    def get_versions(self, result: ResultT) -> Sequence[ResultT]:
        """Return *result* and what to store in its place if it cannot be stored."""

    @abstractmethod
    def log_set_aside(self, delivery_id: str | None) -> None:
        """Log the present exception, for which a result is not stored; None: for which a plan makes no claims."""

    async def isolate_claims(self) -> None:
        """Set aside due deliveries that cannot be claimed."""

    # Methods for subclasses.

    def add_result(self, claim: ClaimT, result: ResultT) -> None:
        """Store *result* in the next round."""
        self._results[claim.attempt_key] = result

    def release(self, claims: Iterable[ClaimT]) -> None:
        """Release claims of which nothing was sent in the next round."""
        self._to_release.update((claim.attempt_key, claim) for claim in claims)

    def start_send(self, claim: ClaimT, send: Coroutine[Any, Any, None]) -> None:
        """Run *send*, which sends *claim* and adds its result."""
        self._sends[asyncio.create_task(self._run_send(send))] = (claim, self.clock())

    async def can_claim(self, plan: PlanT) -> bool:
        """Return whether claims by *plan* succeed. They are not made. Raise if the store has an outage."""
        work = self._build_round(plan, {}, {})
        return await self._succeeds(dry_run(self.db, lambda tx: self._apply(tx, work)), partial(self.log_set_aside, None))

    @contextlib.contextmanager
    def log_failure(self, event: str) -> Generator[None]:
        """Log an exception of the block, except an outage of the store, and continue after the block."""
        try:
            yield
        except OUTAGES:
            pass
        except Exception:
            self._log_exception(event)

    async def _run_forever(self) -> None:
        while True:
            try:
                # A wait that ends between the search for due deliveries and the pause would otherwise last a whole interval.
                first_pause_s = self.get_pause_s()
                is_needed = await self.prepare_round()
                if is_needed or self._results or self._to_release or await self.is_any_due():
                    async with self._round_lock:
                        # A round runs to its end: otherwise nobody would send its claims until their leases expire.
                        await run_to_end(self._run_round())
                    await asyncio.sleep(_BATCH_DELAY_S)
                await wait_until_set(self._wake, timeout_s=min(first_pause_s, self.get_pause_s()))
                self._wake.clear()
            except Exception as error:
                if not isinstance(error, OUTAGES):
                    self._log_exception("round_failed")
                    with contextlib.suppress(*OUTAGES):
                        await self._isolate_failures()
                await asyncio.sleep(self.pause_s)
                self._wake.set()

    async def _run_round(self) -> None:
        started_s = time.monotonic()
        outcome = await self._run_transaction(self._build_round(self.plan(is_claiming=True), self._results, self._to_release))
        self._lease_ends_s = started_s + self.lease_s
        if await self.accept(outcome) or self._to_release or self._results:
            self._wake.set()

    def _build_round(
        self, plan: PlanT, results: Mapping[AttemptKey, ResultT], to_release: Mapping[AttemptKey, ClaimT]
    ) -> Round[ClaimT, ResultT, PlanT]:
        now = self.clock()
        until = now + timedelta(seconds=self.lease_s)
        return Round(now=now, until=until, results=dict(results), to_release=dict(to_release), plan=plan)

    async def _run_transaction(self, work: Round[ClaimT, ResultT, PlanT]) -> OutcomeT:
        outcome = await self.db.write(lambda tx: self._apply(tx, work))
        for key in work.results:
            self._results.pop(key, None)
        for key in work.to_release:
            self._to_release.pop(key, None)
        self.record(outcome)
        return outcome

    def _apply(self, tx: Tx, work: Round[ClaimT, ResultT, PlanT]) -> OutcomeT:
        outcome = self.store(tx, work)
        self.claim(tx, work, outcome)
        return outcome

    async def _isolate_failures(self) -> None:
        """Retry each item of a failed round alone, and set aside those that fail, so that one row cannot block all others."""
        plan = self.plan(is_claiming=False)
        for key, result in list(self._results.items()):
            *reduced, last = self.get_versions(result)
            for version in reduced:
                if await self._succeeds(self._run_transaction(self._build_round(plan, {key: version}, {})), self._log_reduced):
                    break
            else:
                last_round = self._build_round(plan, {key: last}, {})
                await self._succeeds(self._run_transaction(last_round), partial(self.log_set_aside, key[0]))
            self._results.pop(key, None)
        await self._release_apart(self._to_release)
        await self.isolate_claims()

    async def _release_apart(self, claims: dict[AttemptKey, ClaimT]) -> None:
        """Release each of *claims* alone, and keep those that fail for the next time."""
        plan = self.plan(is_claiming=False)
        for key, claim in list(claims.items()):
            work = self._run_transaction(self._build_round(plan, {}, {key: claim}))
            is_released = await self._succeeds(work, partial(self._log_exception, "release_failed"))
            claims.pop(key, None)
            if not is_released:
                self._failed_releases[key] = claim

    async def _succeeds(self, work: Coroutine[Any, Any, object], log: Callable[[], None]) -> bool:
        """Return whether *work* ends without an exception. Call *log* with one, but raise an outage of the store."""
        try:
            await work
        except OUTAGES:
            raise
        except Exception:
            log()
            return False
        return True

    def _log_reduced(self) -> None:
        self._log_exception("result_reduced")

    def _log_exception(self, event: str) -> None:
        structlog.stdlib.get_logger(f"rookery.{self.name}").exception(f"{self.name}.{event}")

    async def _run_send(self, send: Coroutine[Any, Any, None]) -> None:
        try:
            await send
        except Exception:
            self._log_exception("send_failed")
        finally:
            task = asyncio.current_task()
            if task is not None:
                self._sends.pop(task, None)
            self._wake.set()

    async def _renew_leases(self) -> None:
        while True:
            await asyncio.sleep(self.lease_s / 3)
            started_s = time.monotonic()
            with self.log_failure("leases_failed"):
                await self.renew(self.clock() + timedelta(seconds=self.lease_s))
                self._lease_ends_s = started_s + self.lease_s
                if self._failed_releases:
                    async with self._round_lock:
                        await self._release_apart(self._failed_releases)
