"""The tables of webhooks, and the mappers of their rows."""

from __future__ import annotations

from sqlalchemy import Index

from rookery.kernel.db import Codec, Mapper, map_table
from rookery.kernel.sealing import SealedColumn
from rookery.webhooks.models import Attempt, Delivery, Subscription, WebhookEndpoint, WebhookEvent


def _split_words(text: str) -> tuple[str, ...]:
    return tuple(text.split(" "))


_WORDS = Codec((str,), _split_words, " ".join)

endpoints, ENDPOINTS = map_table(
    "webhook_endpoints",
    WebhookEndpoint,
    Index("ix_webhook_endpoints_workspace_id", "workspace_id", "id"),
    columns={"public_workspace_id": "shown_workspace_id", "sealed_secret": "secret"},
    codecs={"events": _WORDS},
    fixed=("shown_workspace_id", "created_at"),
)
SUBSCRIPTIONS = Mapper(Subscription, endpoints, columns={"public_workspace_id": "shown_workspace_id"}, codecs={"events": _WORDS})
SECRET_PURPOSE, PREVIOUS_SECRET_PURPOSE = "webhook's secret", "webhook's previous secret"
SEALED_COLUMNS = (
    SealedColumn(endpoints, "secret", purpose=SECRET_PURPOSE),
    SealedColumn(endpoints, "previous_secret", purpose=PREVIOUS_SECRET_PURPOSE),
)
"""After a lost key, the endpoint stays without its secrets, and its deliveries fail with a message that it needs a new one."""

events, EVENTS = map_table(
    "webhook_events",
    WebhookEvent,
    Index("ix_webhook_events_created_at", "created_at"),
    Index("ix_webhook_events_workspace_id", "workspace_id"),
    columns={"memory_id": "about"},
)
DELETED_MEMORY = ""
"""Marks events whose memory was deleted. Their content is removed, and new responses to them are not stored."""

_has_content = events.c.about.is_not(None)
Index("ix_webhook_events_about", events.c.workspace_id, events.c.about, sqlite_where=_has_content)

deliveries, DELIVERIES = map_table(
    "webhook_deliveries",
    Delivery,
    Index("ix_webhook_deliveries_newest", "endpoint_id", "created_at", "id"),
    Index("ix_webhook_deliveries_event_id", "event_id"),
    columns={"attempt_count": "attempts", "used_attempts": "spent", "resend_of": "of_delivery"},
)
# Few deliveries are open, so the dispatcher's queries have small partial indexes.
_is_open = deliveries.c.next_at.is_not(None)
Index("ix_webhook_deliveries_due", deliveries.c.endpoint_id, deliveries.c.next_at, sqlite_where=_is_open)
Index("ix_webhook_deliveries_order", deliveries.c.endpoint_id, deliveries.c.id, sqlite_where=_is_open)
_is_owned = deliveries.c.owner.is_not(None)
Index("ix_webhook_deliveries_owner", deliveries.c.owner, sqlite_where=_is_owned)

attempts, ATTEMPTS = map_table("webhook_attempts", Attempt, key=("delivery_id", "number"))
