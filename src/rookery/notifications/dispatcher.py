"""
The dispatcher: starts scheduled campaigns, claims due deliveries, sends them and stores the results, in rounds.

A round is one transaction. It stores the results since the last round, leases campaigns, and claims deliveries for free slots. Only
claims that are committed and written to the journal are sent, so that after a crash (kill -9) nothing is sent twice: the deliveries that
were being sent become unknown. One process leases a campaign and keeps its rate.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial

import structlog

from rookery.kernel.cancellation import run_to_end, wait_until_set
from rookery.kernel.clock import Clock
from rookery.kernel.db import Database, Tx
from rookery.kernel.db.leases import make_worker_id
from rookery.kernel.errors import OUTAGES
from rookery.kernel.ids import IdFactory
from rookery.kernel.workspace_shares import MAX_WAITING_HOLD_S, WorkspaceShares
from rookery.notifications.campaign_progress import CampaignProgress
from rookery.notifications.common_failures import CommonFailure, FailureStreaks
from rookery.notifications.crash_recovery import CrashRecovery, DeadWorkers
from rookery.notifications.delivery_counters import DeliveryCounters
from rookery.notifications.errors import ChannelNotReady
from rookery.notifications.messages import ChannelType, SendOutcome
from rookery.notifications.models import ALL_WORKSPACES, Campaign, CampaignStatus, HostKey
from rookery.notifications.pacing import Allowance, HostRate, SendSlots, TokenBucket
from rookery.notifications.send_journal import SendJournal
from rookery.notifications.sending import NotificationSender, SendAttempt, evaluate_attempt_result
from rookery.notifications.store import host_rates, host_waits, queue
from rookery.notifications.store.queue import ClaimedNotification, LeaseRoom, NotificationResult

ClaimRelease = tuple[ClaimedNotification, datetime]
"""A claim of which nothing was sent, and the time when it is due again."""

_POLL_INTERVAL_S = 1.0
_BATCH_DELAY_S = 0.005
"""Seconds to collect results before storing them. A transaction for each would cost more than sending."""

_STALL_S = 0.2
"""Seconds until a campaign is tried again whose due deliveries are all for hosts without room."""

_NO_JOURNAL = "the folder sends in the data folder can be neither written nor emptied, so a crash could lead to a second message."
MAX_LEASED_CAMPAIGNS = 512
"""Campaigns that a process sends at the same time. Beyond this, only workspaces of which it sends none get one more."""

MAX_LEASED_PER_WORKSPACE = 64
"""Campaigns of one workspace that a process sends at the same time. The others wait, so that they do not delay other workspaces."""

_MAX_LEASES_PER_ROUND = 64
_MAX_IDLE_WAIT = timedelta(days=1)
MAX_CLAIMS_PER_ROUND = 256
_MAX_STARTS_PER_ROUND = 20
_SANDBOX_ALLOWANCE = 1_000


@dataclass(slots=True)
class LeasedCampaign:
    """
    A campaign that this process sends.

    Attributes:
        campaign: The campaign when its row was last read.
        waiting: Claims that are not sent yet, in order.
        in_flight: Number of messages being sent.
        stalled_until_s: No claim is tried until this monotonic time.
        failures: The failures that may have one cause.
    """

    campaign: Campaign
    bucket: TokenBucket
    waiting: deque[ClaimedNotification] = field(default_factory=deque[ClaimedNotification])
    in_flight: int = 0
    stalled_until_s: float = 0.0
    failures: FailureStreaks = field(default_factory=FailureStreaks)

    @property
    def held_count(self) -> int:
        """Number of claims of this process."""
        return self.in_flight + len(self.waiting)


_log = structlog.stdlib.get_logger("rookery.notifications")


@dataclass(frozen=True, slots=True, kw_only=True)
class _RoundInput:
    """
    The input of a round. Its transaction may run twice, so it does not change the input.

    Attributes:
        leased: The campaigns that this process leases, with the number of claims without a result.
        lease_room: The campaigns that it may lease besides; None: none.
        limits: The number of claims that each of them may make now, in the order of claiming.
    """

    now: datetime
    until: datetime
    results: Sequence[SendAttempt]
    common_failures: Sequence[CommonFailure]
    to_release: Sequence[ClaimRelease]
    leased: Mapping[str, int]
    limits: Sequence[tuple[str, int]]
    dead: DeadWorkers | None
    lease_room: LeaseRoom | None
    allowance: Allowance


@dataclass(slots=True, kw_only=True)
class _RoundResult:
    """
    The result of a round.

    Attributes:
        campaigns: The campaigns that this process leases now.
        has_more: More work may be ready.
        has_more_abandoned: More claims of dead processes may be left.
    """

    campaigns: dict[str, Campaign]
    claims: list[ClaimedNotification]
    results: Sequence[NotificationResult]
    has_more: bool = False
    has_more_abandoned: bool = False


@dataclass(slots=True, kw_only=True)
class CampaignDispatcher:
    """Sends campaigns until it is stopped. Several processes may dispatch at the same time."""

    db: Database
    sender: NotificationSender
    progress: CampaignProgress
    recovery: CrashRecovery
    journal: SendJournal
    counters: DeliveryCounters
    slots: SendSlots
    clock: Clock
    ids: IdFactory
    host_rate: HostRate | None = None
    shares: WorkspaceShares = field(default_factory=WorkspaceShares)
    lease_s: int = 30
    pause_s: float = 2.0
    stop_timeout_s: float = 2.0
    _worker_id: str = ""
    _leased: dict[str, LeasedCampaign] = field(default_factory=dict[str, LeasedCampaign])
    _results: list[SendAttempt] = field(default_factory=list[SendAttempt])
    _common_failures: list[CommonFailure] = field(default_factory=list[CommonFailure])
    _to_release: list[ClaimRelease] = field(default_factory=list[ClaimRelease])
    _new_refusals: set[HostKey] = field(default_factory=set[HostKey])
    """Hosts that refused a message since the input of the present round, which may still claim messages to them."""

    _lease_ends_s: float = 0.0
    _rotation: int = 0
    _is_running_round: bool = False
    _wake: asyncio.Event = field(default_factory=asyncio.Event)
    _tasks: list[asyncio.Task[None]] = field(default_factory=list[asyncio.Task[None]])
    _sends: dict[asyncio.Task[None], tuple[LeasedCampaign, ClaimedNotification, datetime]] = field(
        default_factory=dict[asyncio.Task[None], tuple[LeasedCampaign, ClaimedNotification, datetime]]
    )

    def wake(self) -> None:
        """Check for work at once. Call it from the event loop's thread."""
        for leased in self._leased.values():
            leased.stalled_until_s = 0.0
        self._wake.set()

    async def wait_until_idle(self) -> None:
        """Wait until nothing is due and all results are stored."""
        # The store is asked first: a round that begins while it answers is seen after it.
        while await self._is_any_due() or self._is_running_round or self._results or self._to_release or self._sends:
            self._wake.set()
            await asyncio.sleep(_BATCH_DELAY_S)

    async def delete_idle_hosts(self) -> int:
        """Delete the rates of hosts that have their full rate again, and waits that no message has ended; return their number."""
        now = self.clock()
        return await self.db.write(
            lambda tx: host_rates.delete_old(tx, before=now) + host_waits.delete_old(tx, before=now - _MAX_IDLE_WAIT)
        )

    async def start(self) -> None:
        """Start. Call `stop` at the end."""
        self._worker_id = make_worker_id(self.ids())
        await asyncio.to_thread(self.journal.open, self._worker_id)
        self._tasks = [
            asyncio.create_task(self._run_forever(), name="notifications-dispatch"),
            asyncio.create_task(self._renew_leases(), name="notifications-leases"),
        ]

    async def stop(self) -> None:
        """Stop. Messages being sent get *stop_timeout_s* to finish. Then those that may arrive are unknown; other claims are released."""
        running, self._tasks = self._tasks, []
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        for leased in self._leased.values():
            self._release_waiting(leased)
        if self._sends:
            await asyncio.wait(self._sends, timeout=self.stop_timeout_s)
        remaining_sends = list(self._sends.items())
        for task, _ in remaining_sends:
            task.cancel()
        await asyncio.gather(*(task for task, _ in remaining_sends), return_exceptions=True)
        for _, (_, claim, started_at) in remaining_sends:
            if self.journal.has_begun(claim.attempt_key):
                self._results.append(self.sender.interrupt(claim, started_at))
            else:
                self._to_release.append((claim, claim.due_at))
        self._sends.clear()
        is_stored = False
        try:
            await self._write(replace(self._collect_input(None), limits=(), lease_room=None))
            is_stored = True
            await self.db.write(lambda tx: queue.free_campaigns(tx, self._worker_id, list(self._leased)))
        except Exception as error:
            # Another process settles the claims of this process after its end.
            if not isinstance(error, OUTAGES):
                _log.exception("notifications.round_failed")
        self.journal.close(is_empty=is_stored)

    async def _run_forever(self) -> None:
        while True:
            try:
                # A campaign whose wait ends between the check of what is due and the pause would wait a whole interval.
                first_pause_s = self._get_pause_s()
                await self.progress.start_scheduled(limit=_MAX_STARTS_PER_ROUND)
                dead = await self.recovery.find()
                if self._results or self._to_release or dead is not None or await self._is_any_due():
                    await self._run_round_shielded(dead)
                    await asyncio.sleep(_BATCH_DELAY_S)
                await wait_until_set(self._wake, timeout_s=min(first_pause_s, self._get_pause_s()))
                self._wake.clear()
            except Exception as error:
                if not isinstance(error, OUTAGES):
                    _log.exception("notifications.round_failed")
                    with contextlib.suppress(*OUTAGES):
                        await self._store_separately()
                await asyncio.sleep(self.pause_s)
                self._wake.set()

    def _get_pause_s(self) -> float:
        """Return the time until the next round: less than usual if a rate or a stalled campaign ends its wait before."""
        now_s = time.monotonic()
        waits = [leased.bucket.wait_s() for leased in self._leased.values()]
        waits += [leased.stalled_until_s - now_s for leased in self._leased.values()]
        return min([_POLL_INTERVAL_S, *(wait for wait in waits if wait > 0)])

    async def _store_separately(self) -> None:
        """Store each result of a failed round alone, and drop those that fail, so that one row cannot block all others."""
        empty_input = replace(self._collect_input(None), results=(), common_failures=(), to_release=(), limits=(), lease_room=None)
        for attempt in tuple(self._results):
            try:
                await self._write(replace(empty_input, results=(attempt,)))
            except OUTAGES:
                raise
            except Exception:
                _log.exception("notifications.result_dropped", delivery=attempt.claim.id)
                del self._results[:1]

    async def _run_round_shielded(self, dead: DeadWorkers | None) -> None:
        """Run a round to its end even if cancelled: otherwise its claims would become unknown although nothing was sent."""
        self._is_running_round = True
        try:
            await run_to_end(self._run_round(dead))
        finally:
            self._is_running_round = False

    async def _is_any_due(self) -> bool:
        now_s = time.monotonic()
        ready = [
            campaign_id
            for campaign_id, leased in self._leased.items()
            if leased.stalled_until_s <= now_s and leased.bucket.available() >= 1
        ]
        room, leased_ids = self._measure_lease_room(), list(self._leased)
        return await self.db.lookup(
            lambda tx: queue.is_any_due(tx, self.clock(), ready_ids=ready, leased_ids=leased_ids, full_workspaces=room.full_workspaces)
        )

    async def _run_round(self, dead: DeadWorkers | None) -> None:
        started_s = time.monotonic()
        result = await self._write(self._collect_input(dead))
        self._lease_ends_s = started_s + self.lease_s
        self._update_leased(result.campaigns)
        by_campaign: dict[str, list[ClaimedNotification]] = {}
        for claim in result.claims:
            by_campaign.setdefault(claim.campaign_id, []).append(claim)
        now_s = time.monotonic()
        for campaign_id, leased in self._leased.items():
            claims = by_campaign.get(campaign_id, [])
            leased.bucket.take(len(claims))
            if not claims:
                leased.stalled_until_s = now_s + (_STALL_S if self.host_rate is None else self.host_rate.wait_s)
            self._accept_claims(leased, claims)
        if dead is not None:
            await self.recovery.close_round(dead, has_more=result.has_more_abandoned)
        if result.has_more or result.has_more_abandoned or self._to_release or self._results:
            self._wake.set()

    def _update_leased(self, campaigns: Mapping[str, Campaign]) -> None:
        for campaign_id in list(self._leased):
            if campaign_id not in campaigns:
                self._release_waiting(self._leased.pop(campaign_id))
        for campaign_id, campaign in campaigns.items():
            leased = self._leased.get(campaign_id)
            if leased is None:
                self._leased[campaign_id] = LeasedCampaign(campaign, TokenBucket(campaign.rate_per_second))
            else:
                leased.campaign = campaign

    def _accept_claims(self, leased: LeasedCampaign, claims: Sequence[ClaimedNotification]) -> None:
        if leased.campaign.is_sandbox:
            self._results += [self.sender.store_in_outbox(leased.campaign, claim) for claim in claims]
            return
        self.slots.add_claims((claim.channel.type, claim.channel.host) for claim in claims)
        leased.waiting.extend(claims)
        self._release(leased, [claim for claim in claims if HostKey.of_channel(claim.channel) in self._new_refusals])
        self._send_waiting(leased)

    def _collect_input(self, dead: DeadWorkers | None) -> _RoundInput:
        now = self.clock()
        self._new_refusals.clear()
        result_count = dict[str, int]()
        for attempt in self._results:
            result_count[attempt.claim.campaign_id] = result_count.get(attempt.claim.campaign_id, 0) + 1
        return _RoundInput(
            now=now,
            until=now + timedelta(seconds=self.lease_s),
            results=tuple(self._results),
            common_failures=tuple(self._common_failures),
            to_release=tuple(self._to_release),
            leased={campaign_id: leased.held_count for campaign_id, leased in self._leased.items()},
            limits=self._plan_claims(),
            dead=dead,
            lease_room=self._measure_lease_room(),
            allowance=self.slots.get_allowance(),
        )

    def _measure_lease_room(self) -> LeaseRoom:
        """Return the room for further campaigns. A workspace of which none is sent always has room for one."""
        counts = Counter(leased.campaign.workspace_id for leased in self._leased.values())
        is_full = len(self._leased) >= MAX_LEASED_CAMPAIGNS
        return LeaseRoom(
            total=_MAX_LEASES_PER_ROUND if is_full else min(_MAX_LEASES_PER_ROUND, MAX_LEASED_CAMPAIGNS - len(self._leased)),
            per_workspace=1 if is_full else MAX_LEASED_PER_WORKSPACE,
            counts=counts,
        )

    def _plan_claims(self) -> list[tuple[str, int]]:
        """
        Return the number of claims that each campaign may make now.

        Workspaces share the claims of a round equally, and so do the campaigns of a workspace. What one leaves, others may take in a second
        turn.
        """
        now_s = time.monotonic()
        ready = [leased for leased in self._leased.values() if leased.stalled_until_s <= now_s and leased.bucket.available() >= 1]
        if not ready:
            return []
        self._rotation = (self._rotation + 1) % len(ready)
        ready = ready[self._rotation :] + ready[: self._rotation]
        by_workspace: dict[int, int] = {}
        for leased in ready:
            by_workspace[leased.campaign.workspace_id] = by_workspace.get(leased.campaign.workspace_id, 0) + 1
        first, second = list[tuple[str, int]](), list[tuple[str, int]]()
        for leased in ready:
            share = max(1, MAX_CLAIMS_PER_ROUND // len(by_workspace) // by_workspace[leased.campaign.workspace_id])
            most = int(min(leased.bucket.available(), MAX_CLAIMS_PER_ROUND))
            first.append((leased.campaign.id, min(most, max(1, share - leased.held_count))))
            second.append((leased.campaign.id, most - min(most, max(1, share - leased.held_count))))
        return [*first, *second] if len(ready) > 1 else first

    async def _write(self, round_input: _RoundInput) -> _RoundResult:
        result = await self.db.write(lambda tx: self._apply(tx, round_input))
        del self._results[: len(round_input.results)], self._to_release[: len(round_input.to_release)]
        del self._common_failures[: len(round_input.common_failures)]
        self.journal.forget_stored(self._results)
        self.counters.record_results(result.results)
        return result

    def _apply(self, tx: Tx, round_input: _RoundInput) -> _RoundResult:
        now = round_input.now
        touched_ids = {
            *round_input.leased,
            *(attempt.claim.campaign_id for attempt in round_input.results),
            *(claim.campaign_id for claim, _ in round_input.to_release),
        }
        dead = round_input.dead
        if dead is not None:
            touched_ids.update(queue.find_abandoned_campaigns(tx, dead.ids, now))
        campaigns = queue.lock_campaigns(tx, touched_ids) if touched_ids else {}
        recovered = None if dead is None else self.recovery.settle(tx, dead, campaigns, now)
        results = [evaluate_attempt_result(attempt) for attempt in round_input.results]
        self.progress.store_results(tx, round_input.results, results, campaigns, now, common_failures=round_input.common_failures)
        if round_input.to_release:
            self.progress.release(tx, round_input.to_release, campaigns, worker_id=self._worker_id)
        leased = {
            campaign_id: campaign
            for campaign_id, campaign in campaigns.items()
            if campaign_id in round_input.leased and campaign.owner == self._worker_id and _may_send(campaign, round_input)
        }
        ended_ids = [campaign_id for campaign_id in round_input.leased if campaign_id in campaigns and campaign_id not in leased]
        queue.free_campaigns(tx, self._worker_id, ended_ids)
        new = self._lease(tx, round_input, leased)
        claims = self._claim(tx, round_input, leased, new)
        self._finish(tx, round_input, leased, claims)
        return _RoundResult(
            campaigns=leased,
            claims=claims,
            results=results if recovered is None else [*results, *recovered.results],
            has_more=bool(new),
            has_more_abandoned=recovered is not None and recovered.has_more,
        )

    def _lease(self, tx: Tx, round_input: _RoundInput, leased: dict[str, Campaign]) -> list[Campaign]:
        if round_input.lease_room is None:
            return []
        new = queue.lease_campaigns(
            tx, self._worker_id, round_input.now, until=round_input.until, excluded_ids=list(leased), room=round_input.lease_room
        )
        leased.update((campaign.id, replace(campaign, owner=self._worker_id)) for campaign in new)
        return new

    def _claim(self, tx: Tx, round_input: _RoundInput, leased: dict[str, Campaign], new: Sequence[Campaign]) -> list[ClaimedNotification]:
        allowance = round_input.allowance.copy()
        claims = list[ClaimedNotification]()
        scopes = host_waits.find_scopes(tx, {campaign.workspace_id for campaign in leased.values()}) if leased else frozenset[int]()
        waiting_ids = {
            campaign.id for campaign in leased.values() if campaign.test_of is None and scopes & {ALL_WORKSPACES, campaign.workspace_id}
        }
        unlimited = [(campaign.id, MAX_CLAIMS_PER_ROUND // len(new)) for campaign in new if campaign.rate_per_second is None]
        for campaign_id, count in (*round_input.limits, *unlimited):
            limit = min(count, MAX_CLAIMS_PER_ROUND - len(claims))
            if limit <= 0 or campaign_id not in leased:
                continue
            campaign = leased[campaign_id]
            queue.expire_due(tx, campaign_id, round_input.now)
            claims += queue.claim(
                tx,
                campaign,
                worker_id=self._worker_id,
                now=round_input.now,
                until=round_input.until,
                allowance=_sandbox_allowance() if campaign.is_sandbox else allowance,
                host_rate=None if campaign.is_sandbox else self.host_rate,
                has_waits=campaign_id in waiting_ids and not campaign.is_sandbox,
                limit=limit,
            )
        busy_ids = {claim.campaign_id for claim in claims}
        for campaign in [*leased.values()]:
            is_idle = campaign.id not in busy_ids and not round_input.leased.get(campaign.id, 0)
            if is_idle and (campaign.is_probing or campaign.id in waiting_ids) and queue.is_open(tx, campaign.id):
                leased[campaign.id] = self.progress.pause_if_only_faults_remain(tx, campaign, round_input.now)
        return claims

    def _finish(self, tx: Tx, round_input: _RoundInput, leased: dict[str, Campaign], claims: Sequence[ClaimedNotification]) -> None:
        busy = {claim.campaign_id for claim in claims}
        for campaign_id, campaign in list(leased.items()):
            if campaign_id in busy or round_input.leased.get(campaign_id, 0):
                continue
            if not queue.is_open(tx, campaign_id):
                self.progress.finish(tx, campaign, round_input.now)
            elif campaign.status is CampaignStatus.SENDING or _may_send(campaign, round_input):
                continue
            del leased[campaign_id]
            queue.free_campaigns(tx, self._worker_id, [campaign_id])

    def _send_waiting(self, leased: LeasedCampaign) -> None:
        """Start to send waiting claims as far as there are slots. A claim whose lease may be over is released instead."""
        if time.monotonic() > self._lease_ends_s:
            self._release_waiting(leased)
            return
        blocked = deque[ClaimedNotification]()
        while leased.waiting:
            claim = leased.waiting.popleft()
            if not self.slots.try_start(claim.channel.type, claim.channel.host):
                blocked.append(claim)
                continue
            leased.in_flight += 1
            task = asyncio.create_task(self._send(leased, claim))
            self._sends[task] = (leased, claim, self.clock())
        leased.waiting = blocked

    async def _send(self, leased: LeasedCampaign, claim: ClaimedNotification) -> None:
        async with self.shares.take(leased.campaign.workspace_id, max_hold_s=MAX_WAITING_HOLD_S):
            attempt = await self.sender.send(leased.campaign, claim, partial(self._begin, claim))
        task = asyncio.current_task()
        if task is not None:
            self._sends.pop(task, None)
        leased.in_flight -= 1
        leased.stalled_until_s = 0.0
        kind, host = claim.channel.type, claim.channel.host
        result = attempt.result
        self.slots.finish(kind, host, is_answered=result.status is not None or result.outcome is not SendOutcome.RETRY)
        self.slots.remove_claim(kind, host)
        common_failure = None if leased.campaign.test_of is not None else leased.failures.record(attempt)
        self._results.append(attempt)
        self.journal.finish(attempt)
        self.counters.record_attempt(attempt)
        if common_failure is not None:
            self._common_failures.append(common_failure)
        if result.outcome is SendOutcome.BLOCKED:
            self._release_waiting(leased)
        if result.concerns_host or common_failure is not None or result.outcome is SendOutcome.BLOCKED:
            self._release_host(HostKey.of_channel(claim.channel))
        for other in self._leased.values():
            if other.waiting:
                self._send_waiting(other)
        self._wake.set()

    def _begin(self, claim: ClaimedNotification) -> None:
        """Write to the journal that a message may arrive from now on. Raise ChannelNotReady if it must not be sent."""
        if not self.journal.begin(claim.attempt_key):
            raise ChannelNotReady(claim.channel.type, _NO_JOURNAL)

    def _release_waiting(self, leased: LeasedCampaign) -> None:
        self._release(leased, list(leased.waiting))

    def _release_host(self, host: HostKey) -> None:
        """Release the claims of all campaigns to a host that waits from now on."""
        self._new_refusals.add(host)
        for leased in self._leased.values():
            self._release(leased, [claim for claim in leased.waiting if HostKey.of_channel(claim.channel) == host])

    def _release(self, leased: LeasedCampaign, claims: Sequence[ClaimedNotification]) -> None:
        released_ids = {claim.id for claim in claims}
        leased.waiting = deque(claim for claim in leased.waiting if claim.id not in released_ids)
        for claim in claims:
            self.slots.remove_claim(claim.channel.type, claim.channel.host)
            self._to_release.append((claim, claim.due_at))

    async def _renew_leases(self) -> None:
        """Renew the leases of all campaigns and claims periodically."""
        while True:
            await asyncio.sleep(self.lease_s / 3)
            if self._leased or self._sends:
                started_s, until = time.monotonic(), self.clock() + timedelta(seconds=self.lease_s)
                try:
                    await self.db.write(lambda tx, until=until: queue.renew_leases(tx, self._worker_id, until=until))
                    self._lease_ends_s = started_s + self.lease_s
                except Exception as error:
                    if not isinstance(error, OUTAGES):
                        _log.exception("notifications.leases_failed")


def _may_send(campaign: Campaign, round_input: _RoundInput) -> bool:
    """Return whether a leased campaign is sent, or is paused and has a message that is tried, or has one to try now."""
    if campaign.status is CampaignStatus.SENDING:
        return True
    is_due = campaign.resume_at is not None and campaign.resume_at <= round_input.now
    return campaign.is_probing and (is_due or round_input.leased.get(campaign.id, 0) > 0)


def _sandbox_allowance() -> Allowance:
    """Return the room for messages of test keys, which are not sent."""
    return Allowance(dict.fromkeys(ChannelType, _SANDBOX_ALLOWANCE), {}, _SANDBOX_ALLOWANCE)
