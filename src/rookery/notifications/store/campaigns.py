"""Queries of campaigns, their audiences and statistics."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import (
    BindParameter,
    ColumnElement,
    Select,
    Text,
    bindparam,
    case,
    cast,
    delete,
    func,
    insert,
    literal,
    null,
    or_,
    select,
    update,
)

from rookery.kernel.clock import to_micros
from rookery.kernel.db import Dialect, KeysetList, Tx, fetch_count, purge_tables
from rookery.kernel.pages import ListPage, PageSlice
from rookery.notifications.models import (
    Audience,
    Campaign,
    CampaignStatistics,
    CampaignStatus,
    ChannelStatus,
    NotificationState,
)
from rookery.notifications.store.tables import CAMPAIGNS, attempts, campaigns, channels, deliveries, subscriber_tags, subscribers

_IDS: BindParameter[str] = bindparam("ids", expanding=True)
_DELETE = delete(campaigns).where(campaigns.c.id.in_(_IDS))
_DELETE_ATTEMPTS = delete(attempts).where(attempts.c.delivery_id.in_(select(deliveries.c.id).where(deliveries.c.campaign_id.in_(_IDS))))
_DELETE_DELIVERIES = delete(deliveries).where(deliveries.c.campaign_id.in_(_IDS))
_COUNT_BY_STATE = (
    select(deliveries.c.campaign_id, deliveries.c.state, deliveries.c.channel_type, func.count().label("n"))
    .where(deliveries.c.campaign_id.in_(_IDS))
    .group_by(deliveries.c.campaign_id, deliveries.c.state, deliveries.c.channel_type)
)
_SELECT_LAST_FAILURE = (
    select(deliveries.c.reason)
    .where(deliveries.c.campaign_id == bindparam("of_campaign"), deliveries.c.state == NotificationState.FAILED.value)
    .order_by(deliveries.c.ended_at.desc())
    .limit(1)
)
_SKIP_PENDING = (
    update(deliveries)
    .where(deliveries.c.campaign_id == bindparam("of_campaign"), deliveries.c.state == NotificationState.PENDING.value)
    .values(state=NotificationState.SKIPPED.value, next_at=None, ended_at=bindparam("at"), reason=bindparam("new_reason"))
)
_RETRY_FAILED = (
    update(deliveries)
    .where(deliveries.c.campaign_id == bindparam("of_campaign"), deliveries.c.state == NotificationState.FAILED.value)
    .values(
        state=NotificationState.PENDING.value,
        next_at=bindparam("at"),
        spent=0,
        ended_at=None,
        reason=None,
        expires_at=bindparam("until"),
    )
)
_ENDED = (CampaignStatus.SENT.value, CampaignStatus.CANCELLED.value, CampaignStatus.FAILED.value)
_SELECT_OLD = (
    select(campaigns)
    .where(campaigns.c.ended_at < bindparam("before"), campaigns.c.final_counts.is_(None), campaigns.c.status.in_(_ENDED))
    .order_by(campaigns.c.ended_at)
    .limit(bindparam("at_most"))
)
_NEW_ID: Mapping[Dialect, ColumnElement[str]] = {
    "sqlite": func.lower(func.hex(func.randomblob(16))),
    "postgresql": func.replace(cast(func.gen_random_uuid(), Text), "-", ""),
}
"""The id of a row that SQL creates, in each dialect."""


def list_page(
    tx: Tx, workspace_id: int, *, status: CampaignStatus | None, text: str | None, test_of: str | None, page: PageSlice
) -> ListPage[Campaign]:
    """Return a page of campaigns, newest first, and the total. Tests are listed only with *test_of*."""
    statement = select(campaigns).where(campaigns.c.workspace_id == workspace_id)
    statement = statement.where(campaigns.c.test_of.is_(None) if test_of is None else campaigns.c.test_of == test_of)
    if status is not None:
        statement = statement.where(campaigns.c.status == status.value)
    if text is not None:
        statement = statement.where(func.lower(campaigns.c.name).contains(text.lower(), autoescape=True))
    return CAMPAIGNS.fetch_page(tx, KeysetList(statement, campaigns.c.id.desc()), page)


def remove(tx: Tx, campaign_ids: Sequence[str]) -> None:
    """Delete campaigns with their deliveries and attempts."""
    for statement in (_DELETE_ATTEMPTS, _DELETE_DELIVERIES, _DELETE):
        tx.execute(statement, {"ids": campaign_ids})


def count_by_state(tx: Tx, items: Iterable[Campaign]) -> dict[str, CampaignStatistics]:
    """Return the statistics of campaigns by their id, counted from their deliveries."""
    counts: dict[str, dict[str, dict[str, int]]] = {campaign.id: {} for campaign in items}
    for row in tx.fetch_all(_COUNT_BY_STATE, {"ids": list(counts)}) if counts else ():
        counts[row.text("campaign_id")].setdefault(row.text("channel_type"), {})[row.text("state")] = row.integer("n")
    return {campaign_id: CampaignStatistics(by_channel=by_channel) for campaign_id, by_channel in counts.items()}


def find_last_failure(tx: Tx, campaign_id: str) -> str | None:
    """Return the reason of the delivery that failed last."""
    row = tx.fetch_one(_SELECT_LAST_FAILURE, {"of_campaign": campaign_id})
    return None if row is None else row.maybe_text("reason")


def skip_pending(tx: Tx, campaign_id: str, *, reason: str, at: datetime) -> int:
    """Skip all pending deliveries of a campaign; return their number."""
    return tx.execute(_SKIP_PENDING, {"of_campaign": campaign_id, "new_reason": reason, "at": to_micros(at)})


def retry_failed(tx: Tx, campaign_id: str, *, at: datetime, until: datetime) -> int:
    """Make failed deliveries pending again, until *until*; return their number. They keep their attempts."""
    return tx.execute(_RETRY_FAILED, {"of_campaign": campaign_id, "at": to_micros(at), "until": to_micros(until)})


def freeze_audience(tx: Tx, campaign: Campaign, *, at: datetime, until: datetime, keeps_attributes: bool) -> int:
    """
    Insert a delivery for each channel of each member of the audience, in one statement. Return the number of rows.

    Args:
        until: The time after which the deliveries are no longer sent.
        keeps_attributes: Copy the attributes, because the texts use them. The rows then do not depend on later changes.
    """
    is_active = channels.c.status == ChannelStatus.ACTIVE.value
    values: dict[str, ColumnElement[Any]] = {
        "id": _NEW_ID[tx.dialect],
        "workspace_id": channels.c.workspace_id,
        "campaign_id": literal(campaign.id),
        "subscriber_id": subscribers.c.id,
        "external_id": subscribers.c.external_id,
        "channel_id": channels.c.id,
        "channel_type": channels.c.type,
        "host": channels.c.host,
        "locale": subscribers.c.locale,
        "attributes": subscribers.c.attributes if keeps_attributes else literal("{}"),
        "state": case((is_active, NotificationState.PENDING.value), else_=NotificationState.SKIPPED.value),
        "attempts": literal(0),
        "spent": literal(0),
        "next_at": case((is_active, to_micros(at)), else_=null()),
        "expires_at": literal(to_micros(until)),
        "reason": case((is_active, null()), else_=literal("The channel is ") + channels.c.status + literal(".")),
        "created_at": literal(to_micros(at)),
        "ended_at": case((is_active, null()), else_=to_micros(at)),
    }
    chosen_rows = _select_audience(campaign, *(value.label(name) for name, value in values.items()))
    return tx.execute(insert(deliveries).from_select(list(values), chosen_rows))


def count_audience(tx: Tx, campaign: Campaign) -> tuple[int, dict[str, int], int]:
    """Return the number of members with a channel, of deliveries by type of channel, and of deliveries that would be skipped."""
    is_skipped = case((channels.c.status == ChannelStatus.ACTIVE.value, 0), else_=1)
    per_type = _select_audience(campaign, channels.c.type, func.count().label("n"), func.sum(is_skipped).label("skipped"))
    rows = tx.fetch_all(per_type.group_by(channels.c.type))
    members = fetch_count(tx, _select_audience(campaign, func.count(func.distinct(subscribers.c.id)).label("n")))
    return members, {row.text("type"): row.integer("n") for row in rows}, sum(int(row.number("skipped")) for row in rows)


def find_sample(tx: Tx, campaign: Campaign) -> str | None:
    """Return the id of the oldest member with an active channel."""
    sample = _select_audience(campaign, subscribers.c.id).where(channels.c.status == ChannelStatus.ACTIVE.value)
    row = tx.fetch_one(sample.order_by(subscribers.c.id).limit(1))
    return None if row is None else row.text("id")


def find_members_without(tx: Tx, campaign: Campaign, name: str, *, limit: int) -> tuple[int, list[str]]:
    """
    Return the number of members with an active channel that have no value for the placeholder *name*, and the first external ids.

    Attributes are compact JSON with flat values, in which `"name":` occurs only as a key.
    """
    lacks = subscribers.c.locale.is_(None) if name == "locale" else func.coalesce(_position(tx.dialect, f'"{name}":'), 0) == 0
    condition = (channels.c.status == ChannelStatus.ACTIVE.value, lacks)
    members = _select_audience(campaign, subscribers.c.external_id).where(*condition).distinct()
    count = fetch_count(tx, _select_audience(campaign, func.count(func.distinct(subscribers.c.id)).label("n")).where(*condition))
    if not count:
        return 0, []
    return count, [row.text("external_id") for row in tx.fetch_all(members.order_by(subscribers.c.external_id).limit(limit))]


def list_old(tx: Tx, *, before: datetime, limit: int) -> list[Campaign]:
    """Return campaigns of all tenants that ended before *before* and still have their deliveries, oldest first; for the retention."""
    return CAMPAIGNS.fetch_all(tx, _SELECT_OLD, {"before": to_micros(before), "at_most": limit})


def remove_deliveries(tx: Tx, campaign_ids: Sequence[str]) -> None:
    """Delete the deliveries of campaigns with their attempts."""
    for statement in (_DELETE_ATTEMPTS, _DELETE_DELIVERIES):
        tx.execute(statement, {"ids": campaign_ids})


def purge(tx: Tx, workspace_id: int) -> int:
    """Delete the campaigns of a workspace with their deliveries and attempts; return the number of rows."""
    of_workspace = select(campaigns.c.id).where(campaigns.c.workspace_id == workspace_id)
    of_campaigns = select(deliveries.c.id).where(deliveries.c.campaign_id.in_(of_workspace))
    count = tx.execute(delete(attempts).where(attempts.c.delivery_id.in_(of_campaigns)))
    count += tx.execute(delete(deliveries).where(deliveries.c.campaign_id.in_(of_workspace)))
    return count + purge_tables(campaigns)(tx, workspace_id)


def _position(dialect: Dialect, text: str) -> ColumnElement[int]:
    """Return the position of *text* in the attributes; 0: not at all."""
    find_text = func.instr if dialect == "sqlite" else func.strpos
    return find_text(subscribers.c.attributes, text)


def _select_audience(campaign: Campaign, *columns: ColumnElement[Any]) -> Select[Any]:
    """Return a query of *columns* for each channel of each member of the audience."""
    statement = (
        select(*columns)
        .select_from(channels.join(subscribers, subscribers.c.id == channels.c.subscriber_id))
        .where(subscribers.c.workspace_id == campaign.workspace_id)
    )
    if campaign.channels is not None:
        statement = statement.where(channels.c.type.in_(campaign.channels))
    condition = _is_member(campaign.audience, campaign.workspace_id)
    return statement if condition is None else statement.where(condition)


def _is_member(audience: Audience, workspace_id: int) -> ColumnElement[bool] | None:
    if audience.all:
        return None
    conditions: list[ColumnElement[bool]] = []
    if audience.tags:
        tagged = select(subscriber_tags.c.subscriber_id).where(
            subscriber_tags.c.workspace_id == workspace_id, subscriber_tags.c.tag.in_(audience.tags)
        )
        conditions.append(subscribers.c.id.in_(tagged))
    if audience.subscribers:
        conditions += [subscribers.c.id.in_(audience.subscribers), subscribers.c.external_id.in_(audience.subscribers)]
    return or_(*conditions) if conditions else literal(1) == literal(0)
