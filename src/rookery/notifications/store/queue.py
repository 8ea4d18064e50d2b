"""
The dispatcher's queries: leases of campaigns, claims of due deliveries, results.

They cover all tenants; each row has its workspace_id. One process leases a campaign, so that its rate holds over all processes. A claimed
delivery has an owner, whose lease ends at `next_at`. It is claimed and committed before anything is sent. `crash_recovery` says what
happens to the claims of a worker that dies.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import BigInteger, BindParameter, and_, bindparam, exists, func, literal, or_, select, update

from rookery.kernel.clock import from_micros, to_micros
from rookery.kernel.db import Row, Tx, upsert
from rookery.kernel.db.leases import DeliveryLeases, Leases, find_dead_workers
from rookery.kernel.delivery_engine import Claim
from rookery.notifications.messages import SendOutcome
from rookery.notifications.models import (
    Campaign,
    CampaignStatus,
    ChannelStatus,
    HostKey,
    NotificationAttempt,
    NotificationState,
    SubscriberChannel,
)
from rookery.notifications.pacing import Allowance, HostRate
from rookery.notifications.store import host_rates, host_waits
from rookery.notifications.store.host_waits import is_host_of_delivery
from rookery.notifications.store.tables import ATTEMPTS, CAMPAIGNS, CHANNELS, attempts, campaigns, channels, deliveries, hosts, waits

EXPIRED_REASON = "It was not sent before its time to live ended."

_SENDING = NotificationState.SENDING.value
_PENDING = NotificationState.PENDING.value
_IDS: BindParameter[str] = bindparam("ids", expanding=True)
_NOW: BindParameter[int] = bindparam("now")

_CAMPAIGN_LEASES = Leases(campaigns, owner=campaigns.c.owner, until=campaigns.c.lease_until)
DELIVERY_LEASES = DeliveryLeases(deliveries, on_claim={"claimed_at": _NOW})

_IS_SENDING = campaigns.c.status == CampaignStatus.SENDING.value
_IS_FREE = or_(campaigns.c.owner.is_(None), campaigns.c.lease_until <= _NOW)
_IS_DUE = and_(deliveries.c.state == _PENDING, deliveries.c.next_at.is_not(None), deliveries.c.next_at <= _NOW)
_IS_SCHEDULE_DUE = and_(campaigns.c.status == CampaignStatus.SCHEDULED.value, campaigns.c.scheduled_at <= _NOW)
_SELECT_SCHEDULED = select(campaigns).where(_IS_SCHEDULE_DUE).order_by(campaigns.c.id).limit(bindparam("at_most"))
_SELECT_SCHEDULED_LOCKED = _SELECT_SCHEDULED.with_for_update(skip_locked=True)
_IS_PROBE_DUE = and_(campaigns.c.status == CampaignStatus.PAUSED.value, campaigns.c.resume_at <= _NOW)
_IS_LEASABLE = (
    _IS_FREE,
    campaigns.c.id.not_in(_IDS),
    campaigns.c.workspace_id.not_in(bindparam("full", type_=BigInteger(), expanding=True)),
)
_SELECT_FREE = select(campaigns).where(*_IS_LEASABLE).order_by(campaigns.c.id).limit(bindparam("at_most"))
_SELECT_FREE_LOCKED = tuple(_SELECT_FREE.where(condition).with_for_update(skip_locked=True) for condition in (_IS_SENDING, _IS_PROBE_DUE))
"""The campaigns in sending, and those that are paused until now by a fault that may have passed. Each query has its index."""
_SELECT_CAMPAIGNS = select(campaigns).where(campaigns.c.id.in_(_IDS)).order_by(campaigns.c.id).with_for_update()
_IS_ANY_FREE = tuple(select(literal(1).label("one")).where(*_IS_LEASABLE, condition).limit(1) for condition in (_IS_SENDING, _IS_PROBE_DUE))
_IS_ANY_SCHEDULED = select(literal(1).label("one")).where(_IS_SCHEDULE_DUE).limit(1)
_IS_ANY_DUE = select(literal(1).label("one")).where(deliveries.c.campaign_id.in_(_IDS), _IS_DUE).limit(1)
_IS_ANY_DONE = (
    select(literal(1).label("one"))
    .where(
        campaigns.c.id.in_(_IDS),
        ~exists(select(literal(1)).where(deliveries.c.campaign_id == campaigns.c.id, deliveries.c.next_at.is_not(None))),
    )
    .limit(1)
)
_IS_OPEN = exists(select(literal(1)).where(deliveries.c.campaign_id == bindparam("of_campaign"), deliveries.c.next_at.is_not(None)))
_SELECT_IS_OPEN = select(literal(1).label("one")).where(_IS_OPEN)
_SELECT_OWNERS = (
    select(deliveries.c.owner, func.min(deliveries.c.next_at).label("until"))
    .where(deliveries.c.owner.is_not(None))
    .group_by(deliveries.c.owner)
)
_SELECT_CAMPAIGN_OWNERS = select(campaigns.c.owner).where(campaigns.c.owner.is_not(None), _IS_SENDING).distinct()
"""A paused campaign is leased only while it has a claim, whose owner is found by the deliveries."""

_IS_ABANDONED = and_(
    deliveries.c.owner.is_not(None),
    deliveries.c.state == _SENDING,
    or_(deliveries.c.next_at <= _NOW, deliveries.c.owner.in_(_IDS)),
)
_SELECT_ABANDONED_CAMPAIGNS = select(deliveries.c.campaign_id).where(_IS_ABANDONED).distinct()
_CLAIM_COLUMNS = (
    deliveries.c.id,
    deliveries.c.workspace_id,
    deliveries.c.campaign_id,
    deliveries.c.external_id,
    deliveries.c.channel_id,
    deliveries.c.host,
    deliveries.c.channel_type,
    deliveries.c.locale,
    deliveries.c.attributes,
    deliveries.c.attempts,
    deliveries.c.spent,
    deliveries.c.next_at,
    deliveries.c.expires_at,
)
_SELECT_ABANDONED = (
    select(*_CLAIM_COLUMNS, deliveries.c.owner, deliveries.c.claimed_at)
    .where(_IS_ABANDONED)
    .order_by(deliveries.c.id)
    .limit(bindparam("at_most"))
    .with_for_update(skip_locked=True)
)
_MARK_UNKNOWN = (
    update(deliveries)
    .where(deliveries.c.id.in_(_IDS), deliveries.c.state == _SENDING)
    .values(state=NotificationState.UNKNOWN.value, owner=None, next_at=None, ended_at=_NOW, reason=bindparam("new_reason"), attributes=None)
)
_SELECT_DUE = (
    select(*_CLAIM_COLUMNS)
    .where(
        deliveries.c.campaign_id == bindparam("of_campaign"),
        _IS_DUE,
        deliveries.c.channel_type.in_(bindparam("types", expanding=True)),
        deliveries.c.host.not_in(bindparam("hosts", expanding=True)),
    )
    .order_by(deliveries.c.next_at)
    .limit(bindparam("at_most"))
    .with_for_update(skip_locked=True, of=deliveries)
)
_SELECT_DUE_BY_HOST_RATE = _SELECT_DUE.where(
    ~exists(select(literal(1)).where(hosts.c.host == deliveries.c.host, hosts.c.paid_until > bindparam("latest_paid")))
)
_SELECT_ALL_DUE = (_SELECT_DUE, _SELECT_DUE_BY_HOST_RATE)
"""The queries of due deliveries without and with a rate per host."""

_IS_BEING_TRIED = exists(select(literal(1)).where(is_host_of_delivery, waits.c.probe_until > _NOW))
_HAS_WAIT = exists(select(literal(1)).where(is_host_of_delivery))
_SELECT_DUE_BESIDE_WAITS = tuple(statement.where(~_IS_BEING_TRIED) for statement in _SELECT_ALL_DUE)
_SELECT_PROBES = tuple(statement.where(_HAS_WAIT) for statement in _SELECT_DUE_BESIDE_WAITS)
_SELECT_CHANNELS = select(channels).where(channels.c.id.in_(_IDS))
_SKIP = (
    update(deliveries)
    .where(deliveries.c.id.in_(_IDS))
    .values(state=NotificationState.SKIPPED.value, next_at=None, ended_at=_NOW, reason=bindparam("new_reason"))
)
_EXPIRE = (
    update(deliveries)
    .where(deliveries.c.campaign_id == bindparam("of_campaign"), _IS_DUE, deliveries.c.expires_at <= _NOW)
    .values(
        state=NotificationState.FAILED.value,
        next_at=None,
        ended_at=_NOW,
        reason=func.coalesce(literal(f"{EXPIRED_REASON} The last answer: ") + deliveries.c.reason, EXPIRED_REASON),
    )
)
# The result of a worker that was taken over still counts if its attempt is the latest: nothing was sent since.
_IS_ATTEMPT = and_(
    deliveries.c.id == bindparam("of_id"),
    deliveries.c.attempts == bindparam("of_number"),
    or_(deliveries.c.state == _SENDING, deliveries.c.state == NotificationState.UNKNOWN.value),
)
_STORE_RESULT = (
    update(deliveries)
    .where(_IS_ATTEMPT)
    .values(
        owner=None,
        state=bindparam("new_state"),
        next_at=bindparam("new_next_at"),
        spent=bindparam("new_spent"),
        status=bindparam("new_status"),
        reason=bindparam("new_reason"),
        provider_id=bindparam("new_provider_id"),
        ended_at=bindparam("new_ended_at"),
    )
)
_CLEAR_ATTRIBUTES = update(deliveries).where(deliveries.c.id.in_(_IDS)).values(attributes=None)
_ADD_ATTEMPT = upsert(
    attempts,
    index_elements=["delivery_id", "number"],
    set_=lambda new: {name: new[name] for name in ("ended_at", "outcome", "status", "reason", "duration_ms")},
)
_INVALIDATE = (
    update(channels)
    .where(channels.c.id.in_(_IDS), channels.c.status == ChannelStatus.ACTIVE.value)
    .values(status=ChannelStatus.INVALID.value, status_reason=bindparam("new_reason"))
)
_REVALIDATE = (
    update(channels)
    .where(channels.c.id == bindparam("of_id"), channels.c.status == ChannelStatus.INVALID.value)
    .values(status=ChannelStatus.ACTIVE.value, status_reason=None)
)
_REOPEN = (
    update(deliveries)
    .where(deliveries.c.id.in_(_IDS), deliveries.c.state.in_([NotificationState.FAILED.value, _PENDING]))
    .values(state=_PENDING, next_at=bindparam("until"), spent=0, ended_at=None)
)

ABANDONED_REASON = "The server stopped while it was being sent. It may have arrived, so it is not sent again."


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseRoom:
    """
    The campaigns that a process may lease besides those that it has.

    Attributes:
        per_workspace: Maximum campaigns of one workspace, including those of *counts*.
        counts: The campaigns that it has, by workspace.
    """

    total: int
    per_workspace: int
    counts: Mapping[int, int]

    @property
    def full_workspaces(self) -> list[int]:
        """The workspaces of which no further campaign is leased."""
        return [workspace_id for workspace_id, count in self.counts.items() if count >= self.per_workspace]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimedNotification(Claim):
    """
    A delivery claimed by this process.

    Attributes:
        attributes: The frozen attributes of the subscriber, as JSON.
        used_attempts: Attempts before the coming one that count.
        due_at: The time when it was due.
    """

    campaign_id: str
    external_id: str
    channel: SubscriberChannel
    locale: str | None
    attributes: str
    used_attempts: int
    due_at: datetime
    expires_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class AbandonedClaim(Claim):
    """
    A claim of a process that died, or that did not renew its lease.

    Attributes:
        claim: The claim as that process had it; None: the channel was removed since.
    """

    campaign_id: str
    owner: str
    claimed_at: datetime
    claim: ClaimedNotification | None


@dataclass(frozen=True, slots=True, kw_only=True)
class NotificationResult:
    """The result of an attempt, and the new state of its delivery; *next_at* is set only if it is sent again."""

    claim: ClaimedNotification
    state: NotificationState
    used_attempts: int
    next_at: datetime | None
    attempt: NotificationAttempt
    provider_id: str | None


def is_any_due(tx: Tx, now: datetime, *, ready_ids: Sequence[str], leased_ids: Sequence[str], full_workspaces: Sequence[int]) -> bool:
    """
    Return whether a round has something to do.

    Args:
        ready_ids: Leased campaigns that may claim due deliveries.
        leased_ids: All leased campaigns. One without open deliveries is to end.
        full_workspaces: See `LeaseRoom`. Campaigns of others that nobody leases count too.
    """
    params = {"now": to_micros(now), "ids": list(ready_ids)}
    if ready_ids and tx.fetch_one(_IS_ANY_DUE, params) is not None:
        return True
    if leased_ids and tx.fetch_one(_IS_ANY_DONE, {"ids": list(leased_ids)}) is not None:
        return True
    params = {"now": params["now"], "ids": list(leased_ids), "full": list(full_workspaces)}
    return any(tx.fetch_one(statement, params) is not None for statement in _IS_ANY_FREE)


def is_any_scheduled(tx: Tx, now: datetime) -> bool:
    """Return whether the time of a scheduled campaign has come."""
    return tx.fetch_one(_IS_ANY_SCHEDULED, {"now": to_micros(now)}) is not None


def find_abandoned_owners(tx: Tx, now: datetime) -> list[str] | None:
    """Return the dead workers of this host with claims or leases; None: there are no abandoned claims at all."""
    rows = tx.fetch_all(_SELECT_OWNERS)
    owners = {row.text("owner") for row in rows} | {row.text("owner") for row in tx.fetch_all(_SELECT_CAMPAIGN_OWNERS)}
    dead = find_dead_workers(tx, owners)
    is_any_over = any((row.maybe_integer("until") or 0) <= to_micros(now) for row in rows)
    return dead if dead or is_any_over else None


def find_abandoned_campaigns(tx: Tx, dead_owners: Sequence[str], now: datetime) -> list[str]:
    """Return the campaigns with claims of dead workers, or with claims whose lease ended."""
    return [row.text("campaign_id") for row in tx.fetch_all(_SELECT_ABANDONED_CAMPAIGNS, {"now": to_micros(now), "ids": list(dead_owners)})]


def end_campaign_leases(tx: Tx, dead_owners: Sequence[str], now: datetime) -> None:
    """End the leases of the campaigns of dead workers."""
    _CAMPAIGN_LEASES.end(tx, dead_owners, at=now)


def lock_abandoned(tx: Tx, dead_owners: Sequence[str], now: datetime, *, limit: int) -> list[AbandonedClaim]:
    """Return at most *limit* claims of dead workers, and claims whose lease ended, locked until the transaction ends."""
    rows = tx.fetch_all(_SELECT_ABANDONED, {"now": to_micros(now), "ids": list(dead_owners), "at_most": limit})
    by_id = _find_channels(tx, rows)
    return [_to_abandoned(row, by_id.get(row.text("channel_id")), now) for row in rows]


def mark_unknown(tx: Tx, claims: Sequence[AbandonedClaim], now: datetime) -> None:
    """Mark claims as unknown: their messages may have arrived."""
    if not claims:
        return
    tx.execute(_MARK_UNKNOWN, {"ids": [claim.id for claim in claims], "now": to_micros(now), "new_reason": ABANDONED_REASON})
    unknown = [
        NotificationAttempt(
            delivery_id=claim.id,
            workspace_id=claim.workspace_id,
            number=claim.attempt_number,
            started_at=claim.claimed_at,
            ended_at=None,
            outcome=SendOutcome.UNKNOWN,
            status=None,
            reason=ABANDONED_REASON,
            duration_ms=None,
        )
        for claim in claims
    ]
    tx.execute_many(_ADD_ATTEMPT, [ATTEMPTS.to_row(attempt) for attempt in unknown])


def lock_scheduled(tx: Tx, now: datetime, *, limit: int) -> list[Campaign]:
    """Return scheduled campaigns whose time has come, locked until the transaction ends."""
    return CAMPAIGNS.fetch_all(tx, _SELECT_SCHEDULED_LOCKED, {"now": to_micros(now), "at_most": limit})


def lease_campaigns(
    tx: Tx, worker_id: str, now: datetime, *, until: datetime, excluded_ids: Collection[str], room: LeaseRoom
) -> list[Campaign]:
    """Lease campaigns that no live worker leases, as far as there is room: those in sending, and those that are to be tried again."""
    params = {"now": to_micros(now), "ids": list(excluded_ids), "full": list(room.full_workspaces), "at_most": room.total}
    counts, leased = Counter(room.counts), list[Campaign]()
    free = [campaign for statement in _SELECT_FREE_LOCKED for campaign in CAMPAIGNS.fetch_all(tx, statement, params)]
    for campaign in free[: room.total]:
        counts[campaign.workspace_id] += 1
        if counts[campaign.workspace_id] <= room.per_workspace:
            leased.append(campaign)
    if leased:
        _CAMPAIGN_LEASES.acquire(tx, [campaign.id for campaign in leased], worker_id, until=until)
    return leased


def lock_campaigns(tx: Tx, campaign_ids: Collection[str]) -> dict[str, Campaign]:
    """Return existing campaigns of any worker, locked until the transaction ends."""
    rows = CAMPAIGNS.fetch_all(tx, _SELECT_CAMPAIGNS, {"ids": sorted(campaign_ids)})
    return {campaign.id: campaign for campaign in rows}


def free_campaigns(tx: Tx, worker_id: str, campaign_ids: Collection[str]) -> None:
    """Give up the leases of campaigns."""
    if campaign_ids:
        _CAMPAIGN_LEASES.release(tx, sorted(campaign_ids), worker_id, at=None)


def renew_leases(tx: Tx, worker_id: str, *, until: datetime) -> None:
    """Extend the leases of all campaigns and claims of a worker."""
    _CAMPAIGN_LEASES.renew(tx, worker_id, until=until)
    DELIVERY_LEASES.renew(tx, worker_id, until=until)


def is_open(tx: Tx, campaign_id: str) -> bool:
    """Return whether a campaign has pending or sending deliveries."""
    return tx.fetch_one(_SELECT_IS_OPEN, {"of_campaign": campaign_id}) is not None


def expire_due(tx: Tx, campaign_id: str, now: datetime) -> int:
    """Fail the due deliveries whose time to live has ended; return their number."""
    return tx.execute(_EXPIRE, {"of_campaign": campaign_id, "now": to_micros(now)})


def claim(
    tx: Tx,
    campaign: Campaign,
    *,
    worker_id: str,
    now: datetime,
    until: datetime,
    allowance: Allowance,
    host_rate: HostRate | None,
    has_waits: bool,
    limit: int,
) -> list[ClaimedNotification]:
    """
    Claim at most *limit* due deliveries of a leased campaign, oldest first. Deliveries whose channel is no longer active are skipped.

    The caller sends only what this transaction has committed. A host whose wait has ended gets one message until its result is stored. A
    paused campaign claims only messages to such hosts.

    Args:
        allowance: The room of channels and hosts, from which the claims are taken.
        host_rate: The messages per second that a host gets from all processes; None: no limit.
        has_waits: Some host of the campaign may wait; see `host_waits`.
    """
    if has_waits:
        host_waits.delay(tx, campaign.id, now)
    rows = _select_due(tx, campaign, now, allowance=allowance, host_rate=host_rate, has_waits=has_waits, limit=limit)
    if not rows:
        return []
    claims, skipped = list[ClaimedNotification](), dict[str, list[str]]()
    for row, channel, reason in _choose(tx, rows, allowance, now, has_waits=has_waits):
        if channel is None:
            skipped.setdefault(reason, []).append(row.text("id"))
        else:
            claims.append(_to_claim(row, channel, row.text("external_id"), row.integer("attempts") + 1))
    for reason, ids in skipped.items():
        tx.execute(_SKIP, {"ids": ids, "now": to_micros(now), "new_reason": reason})
    if claims:
        DELIVERY_LEASES.acquire(tx, [claimed.id for claimed in claims], worker_id, until=until, params={"now": to_micros(now)})
    if host_rate is not None:
        host_rates.take(tx, Counter(claimed.channel.host for claimed in claims if claimed.channel.host), host_rate, now)
    return claims


def _choose(
    tx: Tx, rows: Sequence[Row], allowance: Allowance, now: datetime, *, has_waits: bool
) -> Iterator[tuple[Row, SubscriberChannel | None, str]]:
    """Yield the due deliveries to claim with their channel, and those to skip with the reason. Take the claims from *allowance*."""
    by_id = _find_channels(tx, rows)
    waiting = host_waits.load(tx, {HostKey.of_channel(channel) for channel in by_id.values()}) if has_waits else {}
    tried = set[HostKey]()
    for row in rows:
        channel = by_id.get(row.text("channel_id"))
        if channel is None or row.maybe_text("external_id") is None:
            yield row, None, "The channel was removed."
        elif channel.status is not ChannelStatus.ACTIVE:
            yield row, None, f"The channel is {channel.status.value}."
        else:
            key = HostKey.of_channel(channel) if waiting else None
            if key not in tried and allowance.take(channel.type, row.text("host")):
                if key in waiting:
                    tried.add(key)
                    host_waits.begin_probe(tx, key, now)
                yield row, channel, ""


def _find_channels(tx: Tx, rows: Sequence[Row]) -> dict[str, SubscriberChannel]:
    """Return the channels of deliveries that still exist, by id."""
    if not rows:
        return {}
    return {channel.id: channel for channel in CHANNELS.fetch_all(tx, _SELECT_CHANNELS, {"ids": [row.text("channel_id") for row in rows]})}


def _select_due(
    tx: Tx, campaign: Campaign, now: datetime, *, allowance: Allowance, host_rate: HostRate | None, has_waits: bool, limit: int
) -> list[Row]:
    """Return due deliveries whose channel and host have room, and limit *allowance* to the rates of their hosts."""
    params = {
        "of_campaign": campaign.id,
        "now": to_micros(now),
        "types": [kind.value for kind in allowance.types],
        "hosts": allowance.full_hosts,
        "at_most": limit,
    }
    statements = _SELECT_PROBES if campaign.is_probing else _SELECT_DUE_BESIDE_WAITS if has_waits else _SELECT_ALL_DUE
    statement = statements[host_rate is not None]
    if host_rate is None:
        return tx.fetch_all(statement, params)
    rows = tx.fetch_all(statement, {**params, "latest_paid": host_rate.get_latest_with_room(to_micros(now))})
    names = {row.text("host") for row in rows} - {""}
    allowance.limit_hosts(host_rates.load_room(tx, names, host_rate, now))
    return rows


def store_results(tx: Tx, results: Sequence[NotificationResult]) -> None:
    """Store results of attempts."""
    tx.execute_many(_ADD_ATTEMPT, [ATTEMPTS.to_row(result.attempt) for result in results])
    tx.execute_many(
        _STORE_RESULT,
        [
            {
                "of_id": result.claim.id,
                "of_number": result.claim.attempt_number,
                "new_state": result.state.value,
                "new_next_at": None if result.next_at is None else to_micros(result.next_at),
                "new_spent": result.used_attempts,
                "new_status": result.attempt.status,
                "new_reason": result.attempt.reason,
                "new_provider_id": result.provider_id,
                "new_ended_at": None
                if result.next_at is not None or result.attempt.ended_at is None
                else to_micros(result.attempt.ended_at),
            }
            for result in results
        ],
    )
    finished_ids = [result.claim.id for result in results if result.state in {NotificationState.SENT, NotificationState.UNKNOWN}]
    if finished_ids:
        tx.execute(_CLEAR_ATTRIBUTES, {"ids": finished_ids})


def release_claims(
    tx: Tx,
    claims: Sequence[tuple[ClaimedNotification | AbandonedClaim, datetime]],
    *,
    worker_id: str,
    skipped_campaigns: Collection[str],
) -> None:
    """
    Release claims of which nothing was sent.

    Args:
        claims: The claims, each with the time when it is due again.
        skipped_campaigns: Campaigns that were cancelled or deleted, whose deliveries are skipped.
    """
    unsent = [
        (claimed.id, NotificationState.SKIPPED.value, None) if claimed.campaign_id in skipped_campaigns else (claimed.id, _PENDING, due_at)
        for claimed, due_at in claims
    ]
    DELIVERY_LEASES.release_unsent(tx, unsent, worker_id)


def invalidate_channels(tx: Tx, channel_ids: Sequence[str], *, reason: str) -> int:
    """Mark active channels as invalid; return their number."""
    return tx.execute(_INVALIDATE, {"ids": channel_ids, "new_reason": reason})


def revalidate_channel(tx: Tx, channel_id: str) -> bool:
    """Mark an invalid channel as active; return False if it has another status or was deleted."""
    return tx.execute(_REVALIDATE, {"of_id": channel_id}) == 1


def reopen(tx: Tx, delivery_ids: Sequence[str], *, until: datetime) -> None:
    """Make those of the deliveries that failed, or that wait for another attempt, due at *until*. Their attempts no longer count."""
    tx.execute(_REOPEN, {"ids": list(delivery_ids), "until": to_micros(until)})


def _to_claim(row: Row, channel: SubscriberChannel, external_id: str, attempt_number: int) -> ClaimedNotification:
    return ClaimedNotification(
        id=row.text("id"),
        workspace_id=row.integer("workspace_id"),
        campaign_id=row.text("campaign_id"),
        external_id=external_id,
        channel=channel,
        locale=row.maybe_text("locale"),
        attributes=row.maybe_text("attributes") or "{}",
        attempt_number=attempt_number,
        used_attempts=row.integer("spent"),
        due_at=from_micros(row.integer("next_at")),
        expires_at=from_micros(row.integer("expires_at")),
    )


def _to_abandoned(row: Row, channel: SubscriberChannel | None, now: datetime) -> AbandonedClaim:
    number, claimed_at = row.integer("attempts"), row.maybe_integer("claimed_at")
    return AbandonedClaim(
        id=row.text("id"),
        workspace_id=row.integer("workspace_id"),
        campaign_id=row.text("campaign_id"),
        owner=row.text("owner"),
        attempt_number=number,
        claimed_at=now if claimed_at is None else from_micros(claimed_at),
        claim=None if channel is None else _to_claim(row, channel, row.maybe_text("external_id") or "", number),
    )
