"""
The hosts that get no messages for now.

A message to such a host is pending until the wait ends. Then one message is tried, and the others follow when it is accepted.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from datetime import datetime, timedelta

from sqlalchemy import BigInteger, BindParameter, and_, bindparam, case, delete, exists, func, literal, or_, select, update

from rookery.kernel.clock import from_micros, to_micros
from rookery.kernel.db import Tx, upsert
from rookery.notifications.messages import ChannelType
from rookery.notifications.models import ALL_WORKSPACES, Campaign, CampaignStatus, CampaignWait, HostKey, HostWait, NotificationState
from rookery.notifications.store.tables import WAITS, campaigns, deliveries, waits

PROBE_TIMEOUT = timedelta(seconds=150)
"""The time after which a message that was tried alone counts as lost with its process. Longer than any attempt takes."""

MAX_REPORTED_WAITS = 20
"""Hosts that a campaign lists. With more, those with the most deliveries."""

_NOW: BindParameter[int] = bindparam("now")
_SCOPES: BindParameter[int] = bindparam("scopes", type_=BigInteger(), expanding=True)
_IS_PENDING = deliveries.c.state == NotificationState.PENDING.value
_SCOPE = case((deliveries.c.channel_type == ChannelType.EMAIL.value, ALL_WORKSPACES), else_=deliveries.c.workspace_id)

is_host_of_delivery = and_(waits.c.scope_id == _SCOPE, waits.c.channel_type == deliveries.c.channel_type, waits.c.host == deliveries.c.host)
"""Joins a delivery with the wait of its host."""

_OF_KEY = (
    waits.c.scope_id == bindparam("of_scope", type_=BigInteger()),
    waits.c.channel_type == bindparam("of_type"),
    waits.c.host == bindparam("of_host"),
)
_SELECT_SCOPES = select(waits.c.scope_id).where(waits.c.scope_id.in_(_SCOPES)).distinct()
_SELECT = select(waits).where(waits.c.scope_id.in_(_SCOPES), waits.c.host.in_(bindparam("names", expanding=True)))
_SET = upsert(
    waits,
    index_elements=["scope_id", "channel_type", "host"],
    set_=lambda new: {name: new[name] for name in ("until", "probe_until", "refusal_count", "refused_at", "reason", "is_fault")},
)
_DELETE = delete(waits).where(*_OF_KEY)
_DELETE_OLD = delete(waits).where(waits.c.until < bindparam("before"))
_SET_PROBE = update(waits).where(*_OF_KEY).values(probe_until=bindparam("new_probe_until"))
_END_ALL = update(waits).where(waits.c.scope_id.in_(_SCOPES), waits.c.until > _NOW).values(until=_NOW)

_BEFORE_REFUSED_US = 1_000
"""Microseconds by which messages that were not tried are due before one that was refused, so that one of them is tried next."""

_IS_WAITING = exists(select(literal(1)).where(is_host_of_delivery, waits.c.until > _NOW))
_UNTIL = select(waits.c.until - _BEFORE_REFUSED_US).where(is_host_of_delivery).scalar_subquery()
_REASON = select(waits.c.reason).where(is_host_of_delivery).scalar_subquery()
_DELAY = (
    update(deliveries)
    .where(
        deliveries.c.campaign_id == bindparam("of_campaign"),
        _IS_PENDING,
        deliveries.c.next_at <= _NOW,
        deliveries.c.expires_at > _NOW,
        _IS_WAITING,
    )
    .values(next_at=case((deliveries.c.expires_at > _UNTIL, _UNTIL), else_=deliveries.c.expires_at), reason=_REASON)
)
_IS_ACTIVE_CAMPAIGN = or_(
    campaigns.c.status == CampaignStatus.SENDING.value,
    and_(campaigns.c.status == CampaignStatus.PAUSED.value, campaigns.c.resume_at.is_not(None)),
)
_SELECT_ACTIVE = select(campaigns.c.id).where(_IS_ACTIVE_CAMPAIGN)
_SELECT_ACTIVE_OF_SCOPE = _SELECT_ACTIVE.where(campaigns.c.workspace_id == bindparam("of_scope", type_=BigInteger()))
_AFTER: BindParameter[int] = bindparam("after")
_RELEASED_AT = case((deliveries.c.next_at >= bindparam("until"), _AFTER), else_=_NOW)
_IS_OF_HOST = (
    _IS_PENDING,
    deliveries.c.channel_type == bindparam("of_type"),
    deliveries.c.host == bindparam("of_host"),
    deliveries.c.next_at > _NOW,
)
_RELEASE = update(deliveries).where(deliveries.c.campaign_id.in_(_SELECT_ACTIVE), *_IS_OF_HOST).values(next_at=_RELEASED_AT)
_RELEASE_OF_SCOPE = (
    update(deliveries).where(deliveries.c.campaign_id.in_(_SELECT_ACTIVE_OF_SCOPE), *_IS_OF_HOST).values(next_at=_RELEASED_AT)
)
_RELEASE_CAMPAIGN = (
    update(deliveries)
    .where(
        deliveries.c.campaign_id == bindparam("of_campaign"),
        _IS_PENDING,
        deliveries.c.next_at > _NOW,
        exists(select(literal(1)).where(is_host_of_delivery)),
    )
    .values(next_at=_NOW)
)
_IS_OPEN = and_(deliveries.c.campaign_id == bindparam("of_campaign"), deliveries.c.next_at.is_not(None))
_HAS_FAULT = exists(select(literal(1)).where(is_host_of_delivery, waits.c.is_fault == 1))
_SELECT_FREE_OF_FAULTS = select(literal(1).label("one")).where(_IS_OPEN, ~_HAS_FAULT).limit(1)
_SELECT_NEXT = (
    select(waits)
    .select_from(deliveries.join(waits, is_host_of_delivery))
    .where(_IS_OPEN, waits.c.is_fault == 1)
    .order_by(waits.c.until)
    .limit(1)
)
_SELECT_OF_CAMPAIGNS = (
    select(
        deliveries.c.campaign_id,
        waits.c.channel_type,
        waits.c.host,
        waits.c.until,
        waits.c.reason,
        func.count().label("n"),
    )
    .select_from(deliveries.join(waits, is_host_of_delivery))
    .where(deliveries.c.campaign_id.in_(bindparam("ids", expanding=True)), deliveries.c.next_at.is_not(None))
    .group_by(deliveries.c.campaign_id, waits.c.channel_type, waits.c.host, waits.c.until, waits.c.reason)
    .order_by(func.count().desc(), waits.c.host)
    .limit(bindparam("at_most"))
)
_SELECT_OF_SCOPE = select(waits).where(waits.c.scope_id.in_(_SCOPES)).order_by(waits.c.until)


def find_scopes(tx: Tx, workspace_ids: Collection[int]) -> frozenset[int]:
    """Return those of the workspaces, and `ALL_WORKSPACES`, that have a host that waits."""
    rows = tx.fetch_all(_SELECT_SCOPES, {"scopes": sorted({ALL_WORKSPACES, *workspace_ids})})
    return frozenset(row.integer("scope_id") for row in rows)


def load(tx: Tx, keys: Collection[HostKey]) -> dict[HostKey, HostWait]:
    """Return the waits of those of the hosts that wait."""
    if not keys:
        return {}
    params = {"scopes": sorted({key.scope_id for key in keys}), "names": sorted({key.host for key in keys})}
    by_key = {wait.key: wait for wait in WAITS.fetch_all(tx, _SELECT, params)}
    return {key: by_key[key] for key in keys if key in by_key}


def list_shared(tx: Tx) -> list[HostWait]:
    return WAITS.fetch_all(tx, _SELECT_OF_SCOPE, {"scopes": [ALL_WORKSPACES]})


def store(tx: Tx, host_waits: Iterable[HostWait]) -> None:
    """Insert or replace waits."""
    tx.execute_many(_SET, [WAITS.to_row(wait) for wait in sorted(host_waits, key=_sort_key)])


def end(tx: Tx, wait: HostWait, now: datetime) -> None:
    """Delete a wait, and make the messages due that waited for it."""
    tx.execute(_DELETE, _key_params(wait.key))
    params = {
        "of_type": wait.channel_type.value,
        "of_host": wait.host,
        "until": to_micros(wait.until),
        "now": to_micros(now),
        "after": to_micros(now) + _BEFORE_REFUSED_US,
    }
    if wait.scope_id == ALL_WORKSPACES:
        tx.execute(_RELEASE, params)
    else:
        tx.execute(_RELEASE_OF_SCOPE, {**params, "of_scope": wait.scope_id})


def begin_probe(tx: Tx, key: HostKey, now: datetime) -> None:
    """Let nobody else try the host until the result of a message to it is stored."""
    tx.execute(_SET_PROBE, {**_key_params(key), "new_probe_until": to_micros(now + PROBE_TIMEOUT)})


def cancel_probes(tx: Tx, keys: Collection[HostKey]) -> None:
    """Let the hosts be tried by other messages: those that tried them were not sent."""
    for key, wait in load(tx, keys).items():
        if wait.probe_until is not None:
            tx.execute(_SET_PROBE, {**_key_params(key), "new_probe_until": None})


def try_again(tx: Tx, campaign: Campaign, now: datetime) -> None:
    """End the waits of the hosts that a campaign may use, so that one message to each is tried at once."""
    params = {"now": to_micros(now)}
    tx.execute(_RELEASE_CAMPAIGN, {**params, "of_campaign": campaign.id})
    tx.execute(_END_ALL, {**params, "scopes": [ALL_WORKSPACES, campaign.workspace_id]})


def delay(tx: Tx, campaign_id: str, now: datetime) -> int:
    """Delay the due messages of a campaign to hosts that wait; return their number."""
    return tx.execute(_DELAY, {"of_campaign": campaign_id, "now": to_micros(now)})


def find_next_fault(tx: Tx, campaign_id: str) -> HostWait | None:
    """Return the faulty host of a campaign that is tried next; None: no open delivery is to such a host."""
    return WAITS.fetch_one(tx, _SELECT_NEXT, {"of_campaign": campaign_id})


def is_anything_else_open(tx: Tx, campaign_id: str) -> bool:
    """Return whether a campaign has open deliveries to hosts without a fault."""
    return tx.fetch_one(_SELECT_FREE_OF_FAULTS, {"of_campaign": campaign_id}) is not None


def list_of_campaigns(tx: Tx, campaign_ids: Sequence[str]) -> list[CampaignWait]:
    """Return the hosts for which deliveries of campaigns wait, those with the most deliveries first."""
    if not campaign_ids:
        return []
    rows = tx.fetch_all(_SELECT_OF_CAMPAIGNS, {"ids": list(campaign_ids), "at_most": MAX_REPORTED_WAITS * len(campaign_ids)})
    return [
        CampaignWait(
            campaign_id=row.text("campaign_id"),
            channel_type=ChannelType(row.text("channel_type")),
            host=row.text("host"),
            until=from_micros(row.integer("until")),
            reason=row.maybe_text("reason"),
            delivery_count=row.integer("n"),
        )
        for row in rows
    ]


def delete_old(tx: Tx, *, before: datetime) -> int:
    """Delete the waits that ended before *before* and that no message has tried since; return their number."""
    return tx.execute(_DELETE_OLD, {"before": to_micros(before)})


def purge(tx: Tx, workspace_id: int) -> int:
    """Delete the waits of a workspace; return their number."""
    return tx.execute(delete(waits).where(waits.c.scope_id == workspace_id))


def _key_params(key: HostKey) -> dict[str, int | str]:
    return {"of_scope": key.scope_id, "of_type": key.channel_type.value, "of_host": key.host}


def _sort_key(wait: HostWait) -> tuple[int, str, str]:
    """Order the rows, so that processes lock them in one order."""
    return wait.scope_id, wait.channel_type.value, wait.host
