"""
The dispatcher of campaigns: starts the scheduled ones, leases those that it sends, and shares the claims of a round among them.

Only claims that are committed and written to the journal are sent, so that after a crash (kill -9) nothing is sent twice: the deliveries
that were being sent become unknown. One process leases a campaign and keeps its rate.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial
from typing import ClassVar

import structlog

from rookery.kernel.db import Tx
from rookery.kernel.delivery_engine import POLL_INTERVAL_S, DeliveryEngine, Round
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


@dataclass(frozen=True, slots=True)
class FinishedAttempt:
    """
    An attempt that ended.

    Attributes:
        common_failure: The failure that this attempt has in common with earlier ones, if it shows one.
    """

    attempt: SendAttempt
    common_failure: CommonFailure | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    """
    The campaigns of a round, and the claims that it may make.

    Attributes:
        leased: The campaigns that this process leases, with the number of claims without a result.
        lease_room: The campaigns that it may lease besides; None: none.
        limits: The number of claims that each of them may make now, in the order of claiming.
    """

    leased: Mapping[str, int]
    limits: Sequence[tuple[str, int]]
    dead: DeadWorkers | None
    lease_room: LeaseRoom | None
    allowance: Allowance


@dataclass(slots=True, kw_only=True)
class _Outcome:
    """
    The outcome of a round.

    Attributes:
        campaigns: The campaigns that this process leases now.
        has_more: More work may be ready.
        has_more_abandoned: More claims of dead processes may be left.
    """

    campaigns: dict[str, Campaign]
    results: Sequence[NotificationResult]
    claims: list[ClaimedNotification] = field(default_factory=list[ClaimedNotification])
    has_more: bool = False
    has_more_abandoned: bool = False


_Round = Round[ClaimedNotification, FinishedAttempt, _Plan]


@dataclass(slots=True, kw_only=True)
class CampaignDispatcher(DeliveryEngine[ClaimedNotification, FinishedAttempt, _Plan, _Outcome]):
    """Sends the due deliveries of all campaigns."""

    name: ClassVar[str] = "notifications"

    sender: NotificationSender
    progress: CampaignProgress
    recovery: CrashRecovery
    journal: SendJournal
    counters: DeliveryCounters
    slots: SendSlots
    host_rate: HostRate | None = None
    shares: WorkspaceShares = field(default_factory=WorkspaceShares)
    _leased: dict[str, LeasedCampaign] = field(default_factory=dict[str, LeasedCampaign])
    _dead: DeadWorkers | None = None
    """The dead processes whose claims the present round settles."""

    _new_refusals: set[HostKey] = field(default_factory=set[HostKey])
    """Hosts that refused a message since the plan of the present round, which may still claim messages to them."""

    _rotation: int = 0

    def wake(self) -> None:
        """Check for work at once. Call it from the event loop's thread."""
        for leased in self._leased.values():
            leased.stalled_until_s = 0.0
        self._wake.set()

    async def delete_idle_hosts(self) -> int:
        """Delete the rates of hosts that have their full rate again, and waits that no message has ended; return their number."""
        now = self.clock()
        return await self.db.write(
            lambda tx: host_rates.delete_old(tx, before=now) + host_waits.delete_old(tx, before=now - _MAX_IDLE_WAIT)
        )

    async def open(self) -> None:
        await asyncio.to_thread(self.journal.open, self._worker_id)

    async def close(self, *, is_stored: bool) -> None:
        if is_stored:
            with self.log_failure("round_failed"):
                await self.db.write(lambda tx: queue.free_campaigns(tx, self._worker_id, list(self._leased)))
        self.journal.close(is_empty=is_stored)

    async def prepare_round(self) -> bool:
        """Start scheduled campaigns, and look for dead processes, whose claims the round settles."""
        await self.progress.start_scheduled(limit=_MAX_STARTS_PER_ROUND)
        self._dead = await self.recovery.find()
        return self._dead is not None

    def get_pause_s(self) -> float:
        """Return the time until the next round: less than usual if a rate or a stalled campaign ends its wait before."""
        now_s = time.monotonic()
        waits = [leased.bucket.wait_s() for leased in self._leased.values()]
        waits += [leased.stalled_until_s - now_s for leased in self._leased.values()]
        return min([POLL_INTERVAL_S, *(wait for wait in waits if wait > 0)])

    async def is_any_due(self) -> bool:
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

    async def accept(self, outcome: _Outcome) -> bool:
        self._update_leased(outcome.campaigns)
        by_campaign: dict[str, list[ClaimedNotification]] = {}
        for claim in outcome.claims:
            by_campaign.setdefault(claim.campaign_id, []).append(claim)
        now_s = time.monotonic()
        for campaign_id, leased in self._leased.items():
            claims = by_campaign.get(campaign_id, [])
            leased.bucket.take(len(claims))
            if not claims:
                leased.stalled_until_s = now_s + (_STALL_S if self.host_rate is None else self.host_rate.wait_s)
            self._accept_claims(leased, claims)
        if self._dead is not None:
            await self.recovery.close_round(self._dead, has_more=outcome.has_more_abandoned)
        return outcome.has_more or outcome.has_more_abandoned

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
            for claim in claims:
                self.add_result(claim, FinishedAttempt(self.sender.store_in_outbox(leased.campaign, claim)))
            return
        self.slots.add_claims((claim.channel.type, claim.channel.host) for claim in claims)
        leased.waiting.extend(claims)
        self._release(leased, [claim for claim in claims if HostKey.of_channel(claim.channel) in self._new_refusals])
        self._send_waiting(leased)

    def plan(self, *, is_claiming: bool) -> _Plan:
        self._new_refusals.clear()
        return _Plan(
            leased={campaign_id: leased.held_count for campaign_id, leased in self._leased.items()},
            limits=self._plan_claims() if is_claiming else (),
            dead=self._dead if is_claiming else None,
            lease_room=self._measure_lease_room() if is_claiming else None,
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

    def record(self, outcome: _Outcome) -> None:
        self.journal.forget_stored(result.attempt for result in self._results.values())
        self.counters.record_results(outcome.results)

    def store(self, tx: Tx, work: _Round) -> _Outcome:
        now, plan, dead = work.now, work.plan, work.plan.dead
        attempts = [result.attempt for result in work.results.values()]
        touched_ids = {
            *plan.leased,
            *(attempt.claim.campaign_id for attempt in attempts),
            *(claim.campaign_id for claim in work.to_release.values()),
        }
        if dead is not None:
            touched_ids.update(queue.find_abandoned_campaigns(tx, dead.ids, now))
        campaigns = queue.lock_campaigns(tx, touched_ids) if touched_ids else {}
        recovered = None if dead is None else self.recovery.settle(tx, dead, campaigns, now)
        common_failures = [result.common_failure for result in work.results.values() if result.common_failure is not None]
        results = [evaluate_attempt_result(attempt) for attempt in attempts]
        self.progress.store_results(tx, attempts, results, campaigns, now, common_failures=common_failures)
        if work.to_release:
            unsent = [(claim, claim.due_at) for claim in work.to_release.values()]
            self.progress.release(tx, unsent, campaigns, worker_id=self._worker_id)
        leased = {
            campaign_id: campaign
            for campaign_id, campaign in campaigns.items()
            if campaign_id in plan.leased and campaign.owner == self._worker_id and _may_send(campaign, work)
        }
        ended_ids = [campaign_id for campaign_id in plan.leased if campaign_id in campaigns and campaign_id not in leased]
        queue.free_campaigns(tx, self._worker_id, ended_ids)
        return _Outcome(
            campaigns=leased,
            results=results if recovered is None else [*results, *recovered.results],
            has_more_abandoned=recovered is not None and recovered.has_more,
        )

    def claim(self, tx: Tx, work: _Round, outcome: _Outcome) -> None:
        new = self._lease(tx, work, outcome.campaigns)
        outcome.has_more = bool(new)
        outcome.claims = self._claim_due(tx, work, outcome.campaigns, new)
        self._finish(tx, work, outcome.campaigns, outcome.claims)

    def _lease(self, tx: Tx, work: _Round, leased: dict[str, Campaign]) -> list[Campaign]:
        if work.plan.lease_room is None:
            return []
        new = queue.lease_campaigns(tx, self._worker_id, work.now, until=work.until, excluded_ids=list(leased), room=work.plan.lease_room)
        leased.update((campaign.id, replace(campaign, owner=self._worker_id)) for campaign in new)
        return new

    def _claim_due(self, tx: Tx, work: _Round, leased: dict[str, Campaign], new: Sequence[Campaign]) -> list[ClaimedNotification]:
        allowance = work.plan.allowance.copy()
        claims = list[ClaimedNotification]()
        scopes = host_waits.find_scopes(tx, {campaign.workspace_id for campaign in leased.values()}) if leased else frozenset[int]()
        waiting_ids = {
            campaign.id for campaign in leased.values() if campaign.test_of is None and scopes & {ALL_WORKSPACES, campaign.workspace_id}
        }
        unlimited = [(campaign.id, MAX_CLAIMS_PER_ROUND // len(new)) for campaign in new if campaign.rate_per_second is None]
        for campaign_id, count in (*work.plan.limits, *unlimited):
            limit = min(count, MAX_CLAIMS_PER_ROUND - len(claims))
            if limit <= 0 or campaign_id not in leased:
                continue
            campaign = leased[campaign_id]
            queue.expire_due(tx, campaign_id, work.now)
            claims += queue.claim(
                tx,
                campaign,
                worker_id=self._worker_id,
                now=work.now,
                until=work.until,
                allowance=_sandbox_allowance() if campaign.is_sandbox else allowance,
                host_rate=None if campaign.is_sandbox else self.host_rate,
                has_waits=campaign_id in waiting_ids and not campaign.is_sandbox,
                limit=limit,
            )
        busy_ids = {claim.campaign_id for claim in claims}
        for campaign in [*leased.values()]:
            is_idle = campaign.id not in busy_ids and not work.plan.leased.get(campaign.id, 0)
            if is_idle and (campaign.is_probing or campaign.id in waiting_ids) and queue.is_open(tx, campaign.id):
                leased[campaign.id] = self.progress.pause_if_only_faults_remain(tx, campaign, work.now)
        return claims

    def _finish(self, tx: Tx, work: _Round, leased: dict[str, Campaign], claims: Sequence[ClaimedNotification]) -> None:
        busy = {claim.campaign_id for claim in claims}
        for campaign_id, campaign in list(leased.items()):
            if campaign_id in busy or work.plan.leased.get(campaign_id, 0):
                continue
            if not queue.is_open(tx, campaign_id):
                self.progress.finish(tx, campaign, work.now)
            elif campaign.status is CampaignStatus.SENDING or _may_send(campaign, work):
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
            self.start_send(claim, self._send(leased, claim))
        leased.waiting = blocked

    async def _send(self, leased: LeasedCampaign, claim: ClaimedNotification) -> None:
        async with self.shares.take(leased.campaign.workspace_id, max_hold_s=MAX_WAITING_HOLD_S):
            attempt = await self.sender.send(leased.campaign, claim, partial(self._begin, claim))
        leased.in_flight -= 1
        leased.stalled_until_s = 0.0
        kind, host = claim.channel.type, claim.channel.host
        result = attempt.result
        self.slots.finish(kind, host, is_answered=result.status is not None or result.outcome is not SendOutcome.RETRY)
        self.slots.remove_claim(kind, host)
        common_failure = None if leased.campaign.test_of is not None else leased.failures.record(attempt)
        self.add_result(claim, FinishedAttempt(attempt, common_failure))
        self.journal.finish(attempt)
        self.counters.record_attempt(attempt)
        if result.outcome is SendOutcome.BLOCKED:
            self._release_waiting(leased)
        if result.concerns_host or common_failure is not None or result.outcome is SendOutcome.BLOCKED:
            self._release_host(HostKey.of_channel(claim.channel))
        for other in self._leased.values():
            if other.waiting:
                self._send_waiting(other)

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
        self.release(claims)

    def interrupt(self, claim: ClaimedNotification, started_at: datetime) -> None:
        """Make a message unknown that may arrive, and release its claim otherwise."""
        if self.journal.has_begun(claim.attempt_key):
            self.add_result(claim, FinishedAttempt(self.sender.interrupt(claim, started_at)))
        else:
            self.release([claim])

    def release_waiting(self) -> None:
        for leased in self._leased.values():
            self._release_waiting(leased)

    async def renew(self, until: datetime) -> None:
        if self._leased or self._sends:
            await self.db.write(lambda tx: queue.renew_leases(tx, self._worker_id, until=until))

    def get_versions(self, result: FinishedAttempt) -> Sequence[FinishedAttempt]:
        return (result,) if result.common_failure is None else (result, FinishedAttempt(result.attempt))

    def log_set_aside(self, delivery_id: str | None) -> None:
        _log.exception("notifications.result_dropped", delivery=delivery_id)


def _may_send(campaign: Campaign, work: _Round) -> bool:
    """Return whether a leased campaign is sent, or is paused and has a message that is tried, or has one to try now."""
    if campaign.status is CampaignStatus.SENDING:
        return True
    is_due = campaign.resume_at is not None and campaign.resume_at <= work.now
    return campaign.is_probing and (is_due or work.plan.leased.get(campaign.id, 0) > 0)


def _sandbox_allowance() -> Allowance:
    """Return the room for messages of test keys, which are not sent."""
    return Allowance(dict.fromkeys(ChannelType, _SANDBOX_ALLOWANCE), {}, _SANDBOX_ALLOWANCE)
