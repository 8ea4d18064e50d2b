"""Queries of subscribers, their channels and tags."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import BindParameter, Select, bindparam, delete, exists, func, insert, literal, or_, select, update

from rookery.kernel.clock import to_micros
from rookery.kernel.db import KeysetList, Tx, purge_tables
from rookery.kernel.pages import ListPage, PageSlice
from rookery.notifications.models import (
    ChannelStatus,
    NotificationState,
    Subscriber,
    SubscriberChannel,
    SubscriberFilter,
    SubscriberView,
)
from rookery.notifications.store.tables import CHANNELS, SUBSCRIBERS, channels, deliveries, outbox, subscriber_tags, subscribers

_IDS: BindParameter[str] = bindparam("ids", expanding=True)
_OF_WORKSPACE = subscribers.c.workspace_id == bindparam("of_workspace")
_SELECT_REFS = select(subscribers.c.id, subscribers.c.external_id).where(
    _OF_WORKSPACE, or_(subscribers.c.id.in_(_IDS), subscribers.c.external_id.in_(_IDS))
)
_SELECT_AFTER = (
    select(subscribers).where(_OF_WORKSPACE, subscribers.c.id > bindparam("past")).order_by(subscribers.c.id).limit(bindparam("at_most"))
)
_SELECT_CHANNELS = select(channels).where(channels.c.subscriber_id.in_(_IDS)).order_by(channels.c.subscriber_id, channels.c.position)
_DELETE = delete(subscribers).where(subscribers.c.id.in_(_IDS))
_DELETE_TAGS = delete(subscriber_tags).where(subscriber_tags.c.subscriber_id.in_(_IDS))
_DELETE_CHANNELS_OF = delete(channels).where(channels.c.subscriber_id.in_(_IDS))
_DELETE_CHANNELS = delete(channels).where(channels.c.id.in_(_IDS))
_INSERT_TAG = insert(subscriber_tags)
_SELECT_CHANNEL = select(channels).where(channels.c.id == bindparam("of_id"))
_SET_CHANNEL_STATUS = (
    update(channels)
    .where(channels.c.id == bindparam("of_id"), channels.c.status == bindparam("from_status"))
    .values(status=bindparam("to_status"), status_reason=bindparam("new_reason"))
)
_CONFIRM_CHANNELS = update(channels).where(channels.c.id.in_(_IDS)).values(last_confirmed_at=bindparam("at"))
# A deleted subscriber leaves only rows that count.
_SKIP_PENDING = (
    update(deliveries)
    .where(deliveries.c.subscriber_id == bindparam("of_subscriber"), deliveries.c.state == NotificationState.PENDING.value)
    .values(state=NotificationState.SKIPPED.value, next_at=None, ended_at=bindparam("at"), reason="The subscriber was deleted.")
)
_ANONYMISE = (
    update(deliveries)
    .where(deliveries.c.subscriber_id == bindparam("of_subscriber"))
    .values(external_id=None, locale=None, attributes=None, provider_id=None)
)
_DELETE_OUTBOX = delete(outbox).where(
    outbox.c.workspace_id == bindparam("of_workspace"),
    outbox.c.delivery_id.in_(select(deliveries.c.id).where(deliveries.c.subscriber_id == bindparam("of_subscriber"))),
)


def find(tx: Tx, workspace_id: int, ref: str, *, lock: bool = False) -> SubscriberView | None:
    """Return the subscriber with the id or the external id *ref*; *lock* locks it until the transaction ends."""
    subscriber = SUBSCRIBERS.find(tx, workspace_id, id=ref, lock=lock) or SUBSCRIBERS.find(tx, workspace_id, external_id=ref, lock=lock)
    return None if subscriber is None else add_channels(tx, [subscriber])[0]


def find_by_external_ids(tx: Tx, workspace_id: int, external_ids: Sequence[str]) -> dict[str, SubscriberView]:
    """Return the subscribers with these external ids, locked until the transaction ends."""
    rows = SUBSCRIBERS.find_all(tx, workspace_id, external_id=external_ids, lock=True)
    return {view.subscriber.external_id: view for view in add_channels(tx, rows)}


def resolve_refs(tx: Tx, workspace_id: int, refs: Sequence[str]) -> dict[str, str]:
    """Return the ids of subscribers by their id and by their external id, as far as *refs* has them."""
    ids: dict[str, str] = {}
    for row in tx.fetch_all(_SELECT_REFS, {"of_workspace": workspace_id, "ids": list(refs)}) if refs else ():
        ids[row.text("external_id")] = ids[row.text("id")] = row.text("id")
    return ids


def list_page(tx: Tx, workspace_id: int, filters: SubscriberFilter, *, page: PageSlice) -> ListPage[SubscriberView]:
    """Return a page of subscribers, newest first, and the total."""
    subscriber_page = SUBSCRIBERS.fetch_page(tx, KeysetList(_filter(workspace_id, filters), subscribers.c.id.desc()), page)
    return subscriber_page.with_items(add_channels(tx, subscriber_page.items))


def list_after(tx: Tx, workspace_id: int, after_id: str, *, limit: int) -> list[SubscriberView]:
    """Return subscribers in the order of their ids, which is that of their creation, from after *after_id* on."""
    rows = SUBSCRIBERS.fetch_all(tx, _SELECT_AFTER, {"of_workspace": workspace_id, "past": after_id, "at_most": limit})
    return add_channels(tx, rows)


def add_channels(tx: Tx, rows: Sequence[Subscriber]) -> list[SubscriberView]:
    """Return subscribers with their channels."""
    if not rows:
        return []
    by_subscriber: dict[str, list[SubscriberChannel]] = {}
    for channel in CHANNELS.fetch_all(tx, _SELECT_CHANNELS, {"ids": [row.id for row in rows]}):
        by_subscriber.setdefault(channel.subscriber_id, []).append(channel)
    return [SubscriberView(subscriber=row, channels=tuple(by_subscriber.get(row.id, ()))) for row in rows]


def insert_subscribers(tx: Tx, views: Sequence[SubscriberView]) -> None:
    """Insert new subscribers with their channels and tags."""
    SUBSCRIBERS.insert(tx, *(view.subscriber for view in views))
    CHANNELS.insert(tx, *(channel for view in views for channel in view.channels))
    tx.execute_many(_INSERT_TAG, [row for view in views for row in _tag_rows(view.subscriber)])


def update_subscribers(tx: Tx, changes: Sequence[tuple[SubscriberView, SubscriberView]]) -> None:
    """Store changed subscribers; *changes*: the old and the new state of each."""
    SUBSCRIBERS.update(tx, *(new.subscriber for _, new in changes))
    retagged = [new.subscriber for old, new in changes if old.subscriber.tags != new.subscriber.tags]
    if retagged:
        tx.execute(_DELETE_TAGS, {"ids": [subscriber.id for subscriber in retagged]})
        tx.execute_many(_INSERT_TAG, [row for subscriber in retagged for row in _tag_rows(subscriber)])
    old_channels = {channel.id: channel for old, _ in changes for channel in old.channels}
    new_channels = {channel.id: channel for _, new in changes for channel in new.channels}
    removed = [channel_id for channel_id in old_channels if channel_id not in new_channels]
    if removed:
        tx.execute(_DELETE_CHANNELS, {"ids": removed})
    CHANNELS.insert(tx, *(channel for channel_id, channel in new_channels.items() if channel_id not in old_channels))
    changed = [channel for channel_id, channel in new_channels.items() if old_channels.get(channel_id, channel) != channel]
    CHANNELS.update(tx, *changed)


def remove(tx: Tx, subscriber: Subscriber, *, at: datetime) -> None:
    """Delete a subscriber with its messages in the outbox, skip its pending deliveries, and remove its data from the others."""
    params = {"of_subscriber": subscriber.id}
    tx.execute(_DELETE_OUTBOX, {**params, "of_workspace": subscriber.workspace_id})
    tx.execute(_SKIP_PENDING, {**params, "at": to_micros(at)})
    tx.execute(_ANONYMISE, params)
    for statement in (_DELETE_TAGS, _DELETE_CHANNELS_OF, _DELETE):
        tx.execute(statement, {"ids": [subscriber.id]})


def find_channel(tx: Tx, channel_id: str) -> SubscriberChannel | None:
    """Return a channel of any tenant; for the dispatcher and for links that name the channel."""
    return CHANNELS.fetch_one(tx, _SELECT_CHANNEL, {"of_id": channel_id})


def set_channel_status(tx: Tx, channel_id: str, *, current: ChannelStatus, to: ChannelStatus, reason: str | None) -> bool:
    """Change the status of a channel from *current*; return False if it has another status or was deleted."""
    params = {"of_id": channel_id, "from_status": current.value, "to_status": to.value, "new_reason": reason}
    return tx.execute(_SET_CHANNEL_STATUS, params) == 1


def confirm_channels(tx: Tx, channel_ids: Sequence[str], *, at: datetime) -> None:
    """Store that the service accepted a message for these channels."""
    if channel_ids:
        tx.execute(_CONFIRM_CHANNELS, {"ids": channel_ids, "at": to_micros(at)})


def _filter(workspace_id: int, filters: SubscriberFilter) -> Select[Any]:
    statement = select(subscribers).where(subscribers.c.workspace_id == workspace_id)
    if filters.tag is not None:
        statement = statement.where(
            subscribers.c.id.in_(
                select(subscriber_tags.c.subscriber_id).where(
                    subscriber_tags.c.workspace_id == workspace_id, subscriber_tags.c.tag == filters.tag
                )
            )
        )
    if filters.channel is not None or filters.status is not None:
        conditions = [channels.c.subscriber_id == subscribers.c.id]
        if filters.channel is not None:
            conditions.append(channels.c.type == filters.channel.value)
        if filters.status is not None:
            conditions.append(channels.c.status == filters.status.value)
        statement = statement.where(exists(select(literal(1)).where(*conditions)))
    if filters.text is not None:
        text = filters.text.lower()
        has_address = exists(
            select(literal(1)).where(
                channels.c.subscriber_id == subscribers.c.id, func.lower(channels.c.address).contains(text, autoescape=True)
            )
        )
        statement = statement.where(or_(func.lower(subscribers.c.external_id).contains(text, autoescape=True), has_address))
    return statement


def _tag_rows(subscriber: Subscriber) -> list[dict[str, str | int]]:
    return [{"subscriber_id": subscriber.id, "tag": tag, "workspace_id": subscriber.workspace_id} for tag in subscriber.tags]


purge = purge_tables(subscriber_tags, channels, subscribers)
