"""Queries of the log of deliveries, and of the outbox of test keys. The queries of the dispatcher are in `queue`."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import bindparam, delete, or_, select

from rookery.kernel.clock import to_micros
from rookery.kernel.db import KeysetList, Tx, purge_tables
from rookery.kernel.pages import ListPage, PageSlice
from rookery.notifications.models import (
    NotificationDelivery,
    NotificationFilter,
)
from rookery.notifications.store.tables import DELIVERIES, deliveries, outbox, subscribers

_SELECT_OLD_OUTBOX = select(outbox.c.id).where(outbox.c.created_at < bindparam("before")).limit(bindparam("at_most"))
_DELETE_OUTBOX = delete(outbox).where(outbox.c.id.in_(bindparam("ids", expanding=True)))


def list_page(
    tx: Tx, workspace_id: int, campaign_id: str, filters: NotificationFilter, *, page: PageSlice
) -> ListPage[NotificationDelivery]:
    """Return a page of a campaign's deliveries in the order of their ids, and the total."""
    statement = select(*DELIVERIES.columns).where(deliveries.c.campaign_id == campaign_id, deliveries.c.workspace_id == workspace_id)
    if filters.state is not None:
        statement = statement.where(deliveries.c.state == filters.state.value)
    if filters.channel is not None:
        statement = statement.where(deliveries.c.channel_type == filters.channel.value)
    if filters.subscriber is not None:
        by_external_id = select(subscribers.c.id).where(
            subscribers.c.workspace_id == workspace_id, subscribers.c.external_id == filters.subscriber
        )
        statement = statement.where(or_(deliveries.c.subscriber_id == filters.subscriber, deliveries.c.subscriber_id.in_(by_external_id)))
    return DELIVERIES.fetch_page(tx, KeysetList(statement, deliveries.c.id), page)


def delete_old_outbox(tx: Tx, *, before: datetime, limit: int) -> int:
    """Delete at most *limit* messages before *before*; return the number."""
    ids = [row.text("id") for row in tx.fetch_all(_SELECT_OLD_OUTBOX, {"before": to_micros(before), "at_most": limit})]
    return tx.execute(_DELETE_OUTBOX, {"ids": ids}) if ids else 0


purge = purge_tables(outbox)
