"""
The tables of webhooks, and the mappers of their rows.

`migrations/versions/0015_webhooks.py` and `0017_webhook_subjects.py` create the same tables.
"""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Double, Index, LargeBinary, Table, Text

from rookery.kernel.db import Codec, Mapper, metadata
from rookery.kernel.sealing import SealedColumn
from rookery.webhooks.models import Attempt, Delivery, Subscription, WebhookEndpoint, WebhookEvent


def _split_words(text: str) -> tuple[str, ...]:
    return tuple(text.split(" "))


_WORDS = Codec((str,), _split_words, " ".join)

endpoints = Table(
    "webhook_endpoints",
    metadata,
    Column("id", Text, primary_key=True),
    Column("workspace_id", BigInteger, nullable=False),
    Column("shown_workspace_id", BigInteger, nullable=False),
    Column("url", Text, nullable=False),
    Column("events", Text, nullable=False),
    Column("description", Text, nullable=False),
    Column("include_content", BigInteger, nullable=False),
    Column("strict_order", BigInteger, nullable=False),
    Column("concurrency", BigInteger, nullable=False),
    Column("enabled", BigInteger, nullable=False),
    Column("enabled_at", BigInteger, nullable=False),
    Column("disabled_at", BigInteger),
    Column("disabled_reason", Text),
    Column("failures", BigInteger, nullable=False),
    Column("last_success_at", BigInteger),
    Column("secret", LargeBinary),
    Column("previous_secret", LargeBinary),
    Column("previous_until", BigInteger),
    Column("created_at", BigInteger, nullable=False),
    Column("updated_at", BigInteger, nullable=False),
    Index("ix_webhook_endpoints_workspace_id", "workspace_id", "id"),
)
ENDPOINTS = Mapper(
    WebhookEndpoint,
    endpoints,
    columns={"public_workspace_id": "shown_workspace_id", "sealed_secret": "secret"},
    codecs={"events": _WORDS},
)
SUBSCRIPTIONS = Mapper(Subscription, endpoints, columns={"public_workspace_id": "shown_workspace_id"}, codecs={"events": _WORDS})
SECRET_PURPOSE, PREVIOUS_SECRET_PURPOSE = "webhook's secret", "webhook's previous secret"
SEALED_COLUMNS = (
    SealedColumn(endpoints, "secret", purpose=SECRET_PURPOSE),
    SealedColumn(endpoints, "previous_secret", purpose=PREVIOUS_SECRET_PURPOSE),
)
"""After a lost key, the endpoint stays without its secrets, and its deliveries fail with a message that it needs a new one."""

events = Table(
    "webhook_events",
    metadata,
    Column("id", Text, primary_key=True),
    Column("workspace_id", BigInteger, nullable=False),
    Column("type", Text, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("body", LargeBinary, nullable=False),
    Column("full_body", LargeBinary),
    Column("about", Text),
    Index("ix_webhook_events_created_at", "created_at"),
    Index("ix_webhook_events_workspace_id", "workspace_id"),
)
EVENTS = Mapper(WebhookEvent, events, columns={"memory_id": "about"})
DELETED_MEMORY = ""
"""Marks events whose memory was deleted. Their content is removed, and new responses to them are not stored."""

_has_content = events.c.about.is_not(None)
Index("ix_webhook_events_about", events.c.workspace_id, events.c.about, sqlite_where=_has_content)

deliveries = Table(
    "webhook_deliveries",
    metadata,
    Column("id", Text, primary_key=True),
    Column("workspace_id", BigInteger, nullable=False),
    Column("endpoint_id", Text, nullable=False),
    Column("event_id", Text, nullable=False),
    Column("event_type", Text, nullable=False),
    Column("kind", Text, nullable=False),
    Column("state", Text, nullable=False),
    Column("with_content", BigInteger, nullable=False),
    Column("attempts", BigInteger, nullable=False),
    Column("spent", BigInteger, nullable=False),
    Column("next_at", BigInteger),
    Column("owner", Text),
    Column("status", BigInteger),
    Column("error", Text),
    Column("created_at", BigInteger, nullable=False),
    Column("ended_at", BigInteger),
    Column("of_delivery", Text),
    Index("ix_webhook_deliveries_newest", "endpoint_id", "created_at", "id"),
    Index("ix_webhook_deliveries_event_id", "event_id"),
)
DELIVERIES = Mapper(Delivery, deliveries, columns={"attempt_count": "attempts", "used_attempts": "spent", "resend_of": "of_delivery"})
# Few deliveries are open, so the dispatcher's queries have small partial indexes.
_is_open = deliveries.c.next_at.is_not(None)
Index("ix_webhook_deliveries_due", deliveries.c.endpoint_id, deliveries.c.next_at, sqlite_where=_is_open)
Index("ix_webhook_deliveries_order", deliveries.c.endpoint_id, deliveries.c.id, sqlite_where=_is_open)
_is_owned = deliveries.c.owner.is_not(None)
Index("ix_webhook_deliveries_owner", deliveries.c.owner, sqlite_where=_is_owned)

attempts = Table(
    "webhook_attempts",
    metadata,
    Column("delivery_id", Text, primary_key=True),
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    Column("workspace_id", BigInteger, nullable=False),
    Column("started_at", BigInteger, nullable=False),
    Column("ended_at", BigInteger),
    Column("outcome", Text),
    Column("status", BigInteger),
    Column("error", Text),
    Column("response", Text),
    Column("duration_ms", Double),
)
ATTEMPTS = Mapper(Attempt, attempts)
