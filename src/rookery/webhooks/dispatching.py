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
from rookery.kernel.ids import Ids
from rookery.kernel.owners import dead, owner
from rookery.webhooks.figures import Figures
from rookery.webhooks.lanes import MOST_AHEAD, Lane
from rookery.webhooks.models import DeliveryState, DisabledReason, Endpoint, Outcome
from rookery.webhooks.outcomes import GONE, must_be_disabled
from rookery.webhooks.sending import Sender, Sent
from rookery.webhooks.settling import fate, noted, settled
from rookery.webhooks.store import queue
from rookery.webhooks.store.queue import Claimed, Settled

_log = structlog.stdlib.get_logger("rookery.webhooks")

_POLL_S = 1.0
_GATHER_S = 0.005
"""So long outcomes are gathered before they are written: a transaction for each would cost more than the sending."""

MOST_IN_HAND = 1024
"""Deliveries of one process that are claimed, those under way included: each is a connection, some memory, and a lease."""

MOST_DOUBTFUL = 256
"""Of those, to receivers that did not answer the last time: the rest is for those that do."""

_ENDPOINTS_A_TURN = 256
_MOST_REMEMBERED = 10_000


_BARRED_S = 60.0
"""So long an endpoint of which nothing can be claimed is left alone."""


class _Undone(Exception):
    """Undoes a transaction that was only tried."""


class Disable(Protocol):
    """Disables an endpoint in the transaction in which that is found out."""

    def __call__(self, tx: Tx, endpoint: Endpoint, reason: DisabledReason, at: datetime) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class _Known:
    """What this process knows when a turn begins; the transaction may be run twice, and changes nothing of it."""

    now: datetime
    ended: Sequence[Sent]
    unsent: Sequence[Claimed]
    rooms: dict[str, int]
    doubtful: frozenset[str]
    past: str
    barred: frozenset[str]
    budget: int
    doubtful_budget: int


@dataclass(slots=True, kw_only=True)
class _Turn:
    """
    What a turn came to.

    Attributes:
        endpoints: Those that have a lane, or were given one; who is not in it is gone.
        past: The last endpoint that something was claimed of, where the next turn goes on.
        is_more: There may be more to claim at once.
    """

    endpoints: dict[str, Endpoint]
    settled: Sequence[Settled]
    claimed: Sequence[Claimed]
    disabled: Sequence[tuple[Endpoint, DisabledReason]]
    past: str
    is_more: bool


@dataclass(slots=True, kw_only=True)
class Dispatcher:
    """Sends what is due from this process until it is stopped; others may do so beside it."""

    db: Database
    sender: Sender
    disable: Disable
    figures: Figures
    clock: Clock
    ids: Ids
    lease_s: int = 30
    rest_s: float = 2.0
    stop_s: float = 2.0
    _me: str = ""
    _lanes: dict[str, Lane] = field(default_factory=dict[str, Lane])
    _ended: list[Sent] = field(default_factory=list[Sent])
    _unsent: list[Claimed] = field(default_factory=list[Claimed])
    _past: str = ""
    _is_turning: bool = False
    _barred: dict[str, float] = field(default_factory=dict[str, float])
    _doubtful: set[str] = field(default_factory=set[str])
    _wake: asyncio.Event = field(default_factory=asyncio.Event)
    _running: list[asyncio.Task[None]] = field(default_factory=list[asyncio.Task[None]])
    _sends: dict[asyncio.Task[None], tuple[Lane, Claimed, datetime]] = field(
        default_factory=dict[asyncio.Task[None], tuple[Lane, Claimed, datetime]]
    )

    def wake(self) -> None:
        """Look for something due at once; from the event loop's thread."""
        self._wake.set()

    async def rest(self) -> None:
        """Wait until nothing is due and all that was under way is written down."""
        while self._is_turning or self._ended or self._unsent or self._lanes or await self._is_any_due():
            self._wake.set()
            await asyncio.sleep(_GATHER_S)

    async def start(self) -> None:
        """Take over what dead processes of this host had in hand, then begin; `stop` must follow."""
        self._me = owner(self.ids())

        def free(tx: Tx) -> int:
            gone = dead(queue.owners(tx))
            return queue.orphan(tx, gone, self.clock()) if gone else 0

        await self.db.write(free)
        self._running = [
            asyncio.create_task(self._run(), name="webhooks-dispatch"),
            asyncio.create_task(self._keep(), name="webhooks-leases"),
        ]

    async def stop(self) -> None:
        """End; what is under way has a moment to be answered, and whatever is not sent by then is given back."""
        running, self._running = self._running, []
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        self._take_back()
        if self._sends:
            await asyncio.wait(self._sends, timeout=self.stop_s)
        left = list(self._sends.items())
        for task, _ in left:
            task.cancel()
        await asyncio.gather(*(task for task, _ in left), return_exceptions=True)
        self._ended += [self._interrupted(claimed, started_at) for _, (_, claimed, started_at) in left]
        try:
            await self._write(self._known(budget=0))
        except Exception as error:
            # The next start finds what is ours still, and whose owner is dead.
            if not isinstance(error, OUTAGES):
                _log.exception("webhooks.turn_failed")

    async def _run(self) -> None:
        while True:
            try:
                if self._ended or self._unsent or await self._is_any_due():
                    await self._whole_turn()
                    await asyncio.sleep(_GATHER_S)
                if not self._wake.is_set():
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(self._wake.wait(), _POLL_S)
                self._wake.clear()
            except Exception as error:
                if not isinstance(error, OUTAGES):
                    _log.exception("webhooks.turn_failed")
                    with contextlib.suppress(*OUTAGES):
                        await self._sift()
                await asyncio.sleep(self.rest_s)
                self._wake.set()

    async def _sift(self) -> None:
        """
        Find what a turn fails of, by taking each thing by itself, and put it aside: one row must not stop all others.

        An outcome that cannot be written down is, without what a stranger said. Of an endpoint of which nothing can be claimed nothing
        is, for a while.
        """
        alone = replace(self._known(budget=0), ended=(), unsent=(), rooms={})
        for sent in tuple(self._ended):
            if not await self._can(replace(alone, ended=(sent,))) and not await self._can(replace(alone, ended=(sent.without_words(),))):
                del self._ended[:1]
        for claimed in tuple(self._unsent):
            if not await self._can(replace(alone, unsent=(claimed,))):
                del self._unsent[:1]
        due = await self.db.quick(lambda tx: queue.due_ids(tx, self.clock(), but=list(self._barred), at_most=_ENDPOINTS_A_TURN))
        for endpoint_id in due:
            others = frozenset(due) - {endpoint_id} | self._barred.keys()
            if not await self._can(replace(alone, barred=others, past="", budget=MOST_AHEAD), is_trial=True):
                self._barred[endpoint_id] = time.monotonic() + _BARRED_S

    async def _can(self, known: _Known, *, is_trial: bool = False) -> bool:
        """Write *known* down, or only see whether that can be done; false: it cannot, for a reason that is in it."""
        try:
            if is_trial:
                await self.db.write(lambda tx: self._tried(tx, known))
            await self._write(known)
        except _Undone:
            return True
        except OUTAGES:
            raise
        except Exception:
            about = [each.claimed.id for each in known.ended] or [each.id for each in known.unsent]
            _log.exception("webhooks.put_aside", deliveries=about, is_claim=is_trial)
            return False
        return True

    def _tried(self, tx: Tx, known: _Known) -> None:
        self._written(tx, known)
        raise _Undone

    async def _whole_turn(self) -> None:
        """Take a turn, and when it is cancelled, to its end all the same: what it claims would be nobody's until its lease is over."""
        self._is_turning = True
        turning = asyncio.ensure_future(self._turn())
        try:
            await asyncio.shield(turning)
        except asyncio.CancelledError:
            await asyncio.wait([turning])
            raise
        finally:
            self._is_turning = False

    async def _is_any_due(self) -> bool:
        self._barred = {endpoint_id: until for endpoint_id, until in self._barred.items() if until > time.monotonic()}
        full = [*self._barred, *(endpoint_id for endpoint_id, lane in self._lanes.items() if not lane.room)]
        return await self.db.quick(lambda tx: queue.is_any_due(tx, self.clock(), but=full))

    async def _turn(self) -> None:
        in_hand = sum(lane.sending + len(lane.waiting) for lane in self._lanes.values())
        turn = await self._write(self._known(budget=max(0, MOST_IN_HAND - in_hand)))
        self._past = turn.past
        for endpoint_id, lane in self._lanes.items():
            fresh = turn.endpoints.get(endpoint_id)
            if fresh is None or not fresh.enabled:
                self._unsent += lane.emptied()
            lane.endpoint = fresh or lane.endpoint
        for claimed in turn.claimed:
            endpoint = turn.endpoints[claimed.endpoint_id]
            lane = self._lanes.get(endpoint.id)
            if lane is None:
                lane = self._lanes[endpoint.id] = Lane.to(endpoint, self._doubtful)
            lane.waiting.append(claimed)
        for endpoint_id, lane in list(self._lanes.items()):
            self._feed(lane)
            if lane.is_idle:
                del self._lanes[endpoint_id]
        if turn.is_more or self._unsent:
            self._wake.set()

    def _known(self, *, budget: int) -> _Known:
        doubtful = sum(lane.is_doubtful for lane in self._lanes.values())
        return _Known(
            now=self.clock(),
            ended=tuple(self._ended),
            unsent=tuple(self._unsent),
            rooms={endpoint_id: lane.room for endpoint_id, lane in self._lanes.items()},
            doubtful=frozenset(self._doubtful),
            past=self._past,
            barred=frozenset(self._barred),
            budget=budget,
            doubtful_budget=max(0, MOST_DOUBTFUL - doubtful),
        )

    async def _write(self, known: _Known) -> _Turn:
        turn = await self.db.write(lambda tx: self._written(tx, known))
        del self._ended[: len(known.ended)], self._unsent[: len(known.unsent)]
        self.figures.settled(turn.settled)
        for endpoint, reason in turn.disabled:
            _log.warning("webhooks.endpoint_disabled", endpoint=endpoint.id, reason=reason.value, failures=endpoint.failures)
        return turn

    def _written(self, tx: Tx, known: _Known) -> _Turn:
        concerned = {*known.rooms, *(each.claimed.endpoint_id for each in known.ended), *(each.endpoint_id for each in known.unsent)}
        endpoints = queue.these_endpoints(tx, concerned) if concerned else {}
        written, reasons = self._settle(tx, known, endpoints)
        if known.unsent:
            fates = {each.id: fate(endpoints.get(each.endpoint_id)) for each in known.unsent}
            queue.give_back(tx, fates, known.unsent, me=self._me)
        disabled = [(endpoints[endpoint_id], reason) for endpoint_id, reason in reasons.items() if endpoints[endpoint_id].enabled]
        turn = _Turn(endpoints=endpoints, settled=written, claimed=(), disabled=disabled, past=known.past, is_more=bool(disabled))
        # Disabling comes last in its transaction, so what is due then has to wait for the next one.
        for endpoint, reason in disabled:
            self.disable(tx, endpoint, reason, known.now)
            endpoints[endpoint.id] = replace(endpoint, enabled=False)
        if known.budget and not disabled:
            self._claim(tx, known, turn)
        return turn

    def _settle(self, tx: Tx, known: _Known, endpoints: dict[str, Endpoint]) -> tuple[list[Settled], dict[str, DisabledReason]]:
        """Write outcomes down, in the order in which they came, and find out who must be disabled; *endpoints* are brought up to date."""
        written, told, reasons = list[Settled](), set[str](), dict[str, DisabledReason]()
        for sent in known.ended:
            endpoint = endpoints.get(sent.claimed.endpoint_id)
            each = settled(sent, endpoint)
            written.append(each)
            if endpoint is not None and each.state in {DeliveryState.DELIVERED, DeliveryState.FAILED}:
                endpoints[endpoint.id] = endpoint = noted(endpoint, each)
                told.add(endpoint.id)
                if each.status == GONE:
                    reasons[endpoint.id] = DisabledReason.GONE
                elif must_be_disabled(endpoint, known.now):
                    reasons.setdefault(endpoint.id, DisabledReason.FAILURES)
        if written:
            queue.settle(tx, written, me=self._me)
        for endpoint_id in told:
            queue.note(tx, endpoints[endpoint_id])
        return written, reasons

    def _claim(self, tx: Tx, known: _Known, turn: _Turn) -> None:
        now, budget, doubtful = known.now, known.budget, known.doubtful_budget
        full = [*known.barred, *(endpoint_id for endpoint_id, room in known.rooms.items() if not room)]
        due = queue.due_endpoints(tx, now, past=known.past, but=full, at_most=_ENDPOINTS_A_TURN)
        if not due:
            return
        elsewhere = queue.others_at_work(tx, self._me, now)
        rooms = list[tuple[Endpoint, int]]()
        for endpoint in due:
            new = Lane.to(endpoint, known.doubtful)
            if new.is_doubtful and not doubtful:
                continue
            room = min(known.rooms.get(endpoint.id, new.room), budget)
            if endpoint.id in elsewhere:
                room = min(room, max(0, endpoint.concurrency - elsewhere[endpoint.id]))
            if room:
                rooms.append((endpoint, room))
                budget -= room
                doubtful -= new.is_doubtful
            turn.past = endpoint.id
            if not budget:
                break
        turn.endpoints.update((endpoint.id, endpoint) for endpoint in due)
        turn.claimed = queue.claim(tx, rooms, me=self._me, now=now, until=now + timedelta(seconds=self.lease_s))
        turn.is_more = len(due) == _ENDPOINTS_A_TURN

    def _feed(self, lane: Lane) -> None:
        """Send as much of what waits as may be under way."""
        while (claimed := lane.next()) is not None:
            lane.sending += 1
            task = asyncio.create_task(self._send(lane, claimed))
            self._sends[task] = (lane, claimed, self.clock())

    async def _send(self, lane: Lane, claimed: Claimed) -> None:
        sent = await self.sender.send(lane.endpoint, claimed)
        lane.sending -= 1
        self._ended.append(sent)
        task = asyncio.current_task()
        if task is not None:
            self._sends.pop(task, None)
        self.figures.attempted(sent)
        self._unsent += lane.heard(is_success=sent.outcome is Outcome.SUCCESS, is_answered=sent.status is not None, took_s=sent.duration_s)
        self._note_doubt(lane)
        self._feed(lane)
        self._wake.set()

    def _note_doubt(self, lane: Lane) -> None:
        if not lane.is_doubtful:
            self._doubtful.discard(lane.endpoint.id)
        elif len(self._doubtful) < _MOST_REMEMBERED:
            self._doubtful.add(lane.endpoint.id)

    def _take_back(self) -> None:
        for lane in self._lanes.values():
            self._unsent += lane.emptied()

    def _interrupted(self, claimed: Claimed, started_at: datetime) -> Sent:
        now = self.clock()
        return Sent(
            claimed=claimed,
            started_at=started_at,
            ended_at=now,
            outcome=Outcome.INTERRUPTED,
            duration_s=(now - started_at).total_seconds(),
            error="It was interrupted: the server stopped.",
        )

    async def _keep(self) -> None:
        """Renew the leases of all that is in hand."""
        while True:
            await asyncio.sleep(self.lease_s / 3)
            if self._lanes:
                until = self.clock() + timedelta(seconds=self.lease_s)
                try:
                    await self.db.write(lambda tx, until=until: queue.extend(tx, self._me, until))
                except Exception as error:
                    if not isinstance(error, OUTAGES):
                        _log.exception("webhooks.leases_failed")
