"""Queries of webhook endpoints and their subscriptions."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Text, bindparam, func, or_, select, update

from rookery.kernel.clock import to_micros
from rookery.kernel.db import KeysetList, Tx, match_part, purge_tables
from rookery.kernel.events import EventType
from rookery.kernel.pages import ListPage, PageSlice
from rookery.webhooks.models import DisabledReason, Subscription, WebhookEndpoint
from rookery.webhooks.store.tables import ENDPOINTS, SUBSCRIPTIONS, endpoints

_OF_WORKSPACE = endpoints.c.workspace_id == bindparam("of_workspace")

_PATTERN = bindparam("pattern", type_=Text())
_IS_DESCRIBED, _HAS_URL = (func.lower(column).like(_PATTERN, escape="\\") for column in (endpoints.c.description, endpoints.c.url))
_LIST = KeysetList(select(endpoints).where(_OF_WORKSPACE, or_(_IS_DESCRIBED, _HAS_URL)), endpoints.c.id.desc())
_LIST_DESCRIBED = KeysetList(select(endpoints).where(_OF_WORKSPACE, _IS_DESCRIBED), endpoints.c.id.desc())
# A key-share lock: it prevents deleting an endpoint until the new deliveries are committed, but lets the dispatcher update its
# statistics (PostgreSQL; SQLite has a single writer).
_SELECT_SUBSCRIPTIONS = (
    select(*SUBSCRIPTIONS.columns).where(_OF_WORKSPACE).order_by(endpoints.c.id).with_for_update(read=True, key_share=True)
)
_SELECT_PATTERNS = select(endpoints.c.workspace_id, endpoints.c.events).distinct()
_SELECT_AUTO_DISABLED = (
    select(endpoints)
    .where(endpoints.c.disabled_reason.in_((DisabledReason.FAILURES.value, DisabledReason.GONE.value)))
    .order_by(endpoints.c.disabled_at.desc(), endpoints.c.id)
    .limit(bindparam("at_most"))
)
_DELETE_EXPIRED_SECRETS = (
    update(endpoints).where(endpoints.c.previous_until <= bindparam("now")).values(previous_secret=None, previous_until=None)
)


def list_page(tx: Tx, workspace_id: int, *, page: PageSlice, text: str = "", searches_urls: bool = True) -> ListPage[WebhookEndpoint]:
    """
    Return a page of a workspace's endpoints, newest first, and the total.

    Args:
        text: A part of the description or the URL, in upper or lower case.
        searches_urls: Look for *text* in URLs too.
    """
    params = {"of_workspace": workspace_id, "pattern": match_part(text)}
    return ENDPOINTS.fetch_page(tx, _LIST if searches_urls else _LIST_DESCRIBED, page, params)


def list_subscriptions(tx: Tx, workspace_id: int) -> list[Subscription]:
    """Return the subscriptions of a workspace, disabled endpoints included; none is deleted before this transaction ends."""
    return SUBSCRIPTIONS.fetch_all(tx, _SELECT_SUBSCRIPTIONS, {"of_workspace": workspace_id})


def list_subscribed_tenants(tx: Tx, type: EventType) -> list[int]:
    """Return the ids of all tenants with an endpoint that subscribes to *type*, sorted; only for events of several tenants."""
    return sorted({row.integer("workspace_id") for row in tx.fetch_all(_SELECT_PATTERNS) if type.matches(row.text("events").split(" "))})


def list_auto_disabled(tx: Tx, *, limit: int) -> list[WebhookEndpoint]:
    """Return endpoints of all tenants that were disabled automatically, newest first; only for the operator."""
    return ENDPOINTS.fetch_all(tx, _SELECT_AUTO_DISABLED, {"at_most": limit})


def delete_expired_secrets(tx: Tx, now: datetime) -> int:
    """Delete previous secrets whose grace period has ended; return the number."""
    return tx.execute(_DELETE_EXPIRED_SECRETS, {"now": to_micros(now)})


purge = purge_tables(endpoints)
