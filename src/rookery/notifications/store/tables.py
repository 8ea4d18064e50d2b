"""
The tables of notifications, and the mappers of their rows.

`migrations/versions/0024_notifications.py`, `0027_notification_hosts.py` and `0043_notification_waits.py` create the same tables.
"""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Double, Index, LargeBinary, Table, Text

from rookery.kernel.db import Mapper, metadata
from rookery.kernel.sealing import SealedColumn
from rookery.notifications.models import (
    Campaign,
    HostWait,
    NotificationAttempt,
    NotificationDelivery,
    OutboxMessage,
    Subscriber,
    SubscriberChannel,
)

subscribers = Table(
    "notify_subscribers",
    metadata,
    Column("id", Text, primary_key=True),
    Column("workspace_id", BigInteger, nullable=False),
    Column("external_id", Text, nullable=False),
    Column("locale", Text),
    Column("tags", Text, nullable=False),
    Column("attributes", Text, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("updated_at", BigInteger, nullable=False),
    Index("uq_notify_subscribers_external_id", "workspace_id", "external_id", unique=True),
    Index("ix_notify_subscribers_workspace_id", "workspace_id", "id"),
)
SUBSCRIBERS = Mapper(Subscriber, subscribers)

subscriber_tags = Table(
    "notify_tags",
    metadata,
    Column("subscriber_id", Text, primary_key=True),
    Column("tag", Text, primary_key=True),
    Column("workspace_id", BigInteger, nullable=False),
    Index("ix_notify_tags_tag", "workspace_id", "tag", "subscriber_id"),
)

channels = Table(
    "notify_channels",
    metadata,
    Column("id", Text, primary_key=True),
    Column("workspace_id", BigInteger, nullable=False),
    Column("subscriber_id", Text, nullable=False),
    Column("position", BigInteger, nullable=False),
    Column("type", Text, nullable=False),
    Column("address", Text, nullable=False),
    Column("p256dh", Text, nullable=False),
    Column("auth", Text, nullable=False),
    Column("host", Text, nullable=False),
    Column("status", Text, nullable=False),
    Column("status_reason", Text),
    Column("last_confirmed_at", BigInteger),
    Column("created_at", BigInteger, nullable=False),
    Index("ix_notify_channels_subscriber_id", "subscriber_id", "position"),
    Index("ix_notify_channels_type", "workspace_id", "type", "status", "subscriber_id"),
)
CHANNELS = Mapper(SubscriberChannel, channels)

campaigns = Table(
    "notify_campaigns",
    metadata,
    Column("id", Text, primary_key=True),
    Column("workspace_id", BigInteger, nullable=False),
    Column("shown_workspace_id", BigInteger, nullable=False),
    Column("name", Text, nullable=False),
    Column("title", Text, nullable=False),
    Column("body", Text, nullable=False),
    Column("url", Text),
    Column("channels", Text),
    Column("audience", Text, nullable=False),
    Column("variables", Text, nullable=False),
    Column("rate_per_second", Double),
    Column("ttl_s", BigInteger, nullable=False),
    Column("scheduled_at", BigInteger),
    Column("schedule_local", Text),
    Column("time_zone", Text),
    Column("status", Text, nullable=False),
    Column("status_reason", Text),
    Column("test_of", Text),
    Column("created_at", BigInteger, nullable=False),
    Column("updated_at", BigInteger, nullable=False),
    Column("started_at", BigInteger),
    Column("ended_at", BigInteger),
    Column("owner", Text),
    Column("lease_until", BigInteger),
    Column("final_counts", Text),
    Column("resume_at", BigInteger),
    Index("ix_notify_campaigns_workspace_id", "workspace_id", "id"),
    Index("ix_notify_campaigns_ended_at", "ended_at"),
)
CAMPAIGNS = Mapper(Campaign, campaigns, columns={"public_workspace_id": "shown_workspace_id"})
# Few campaigns are active, so that the queries of the dispatcher have a small index.
_is_active = campaigns.c.status.in_(["scheduled", "sending"])
Index("ix_notify_campaigns_active", campaigns.c.status, campaigns.c.id, sqlite_where=_is_active)
_is_resumable = campaigns.c.resume_at.is_not(None)
Index("ix_notify_campaigns_resume_at", campaigns.c.resume_at, sqlite_where=_is_resumable)

deliveries = Table(
    "notify_deliveries",
    metadata,
    Column("id", Text, primary_key=True),
    Column("workspace_id", BigInteger, nullable=False),
    Column("campaign_id", Text, nullable=False),
    Column("subscriber_id", Text, nullable=False),
    Column("external_id", Text),
    Column("channel_id", Text, nullable=False),
    Column("channel_type", Text, nullable=False),
    Column("host", Text, nullable=False),
    Column("locale", Text),
    Column("attributes", Text),
    Column("state", Text, nullable=False),
    Column("attempts", BigInteger, nullable=False),
    Column("spent", BigInteger, nullable=False),
    Column("claimed_at", BigInteger),
    Column("next_at", BigInteger),
    Column("owner", Text),
    Column("expires_at", BigInteger, nullable=False),
    Column("status", BigInteger),
    Column("reason", Text),
    Column("provider_id", Text),
    Column("created_at", BigInteger, nullable=False),
    Column("ended_at", BigInteger),
    Index("uq_notify_deliveries_channel", "campaign_id", "subscriber_id", "channel_id", unique=True),
    Index("ix_notify_deliveries_state", "campaign_id", "state", "channel_type", "id"),
    Index("ix_notify_deliveries_id", "campaign_id", "id"),
    Index("ix_notify_deliveries_subscriber_id", "subscriber_id"),
)
DELIVERIES = Mapper(NotificationDelivery, deliveries, columns={"attempt_count": "attempts", "used_attempts": "spent"})
_is_open = deliveries.c.next_at.is_not(None)
Index("ix_notify_deliveries_due", deliveries.c.campaign_id, deliveries.c.next_at, sqlite_where=_is_open)
_is_owned = deliveries.c.owner.is_not(None)
Index("ix_notify_deliveries_owner", deliveries.c.owner, deliveries.c.next_at, sqlite_where=_is_owned)

attempts = Table(
    "notify_attempts",
    metadata,
    Column("delivery_id", Text, primary_key=True),
    Column("number", BigInteger, primary_key=True, autoincrement=False),
    Column("workspace_id", BigInteger, nullable=False),
    Column("started_at", BigInteger, nullable=False),
    Column("ended_at", BigInteger),
    Column("outcome", Text, nullable=False),
    Column("status", BigInteger),
    Column("reason", Text),
    Column("duration_ms", Double),
)
ATTEMPTS = Mapper(NotificationAttempt, attempts)

outbox = Table(
    "notify_outbox",
    metadata,
    Column("id", Text, primary_key=True),
    Column("workspace_id", BigInteger, nullable=False),
    Column("campaign_id", Text, nullable=False),
    Column("delivery_id", Text, nullable=False),
    Column("external_id", Text, nullable=False),
    Column("channel_type", Text, nullable=False),
    Column("address", Text, nullable=False),
    Column("title", Text, nullable=False),
    Column("body", Text, nullable=False),
    Column("url", Text),
    Column("created_at", BigInteger, nullable=False),
    Index("ix_notify_outbox_workspace_id", "workspace_id", "id"),
    Index("ix_notify_outbox_created_at", "created_at"),
)
OUTBOX = Mapper(OutboxMessage, outbox)

hosts = Table(
    "notify_hosts",
    metadata,
    Column("host", Text, primary_key=True),
    Column("paid_until", BigInteger, nullable=False),
    Index("ix_notify_hosts_paid_until", "paid_until"),
)
"""The hosts that got messages under a rate per host, of all workspaces together."""

waits = Table(
    "notify_waits",
    metadata,
    Column("scope_id", BigInteger, primary_key=True, autoincrement=False),
    Column("channel_type", Text, primary_key=True),
    Column("host", Text, primary_key=True),
    Column("until", BigInteger, nullable=False),
    Column("probe_until", BigInteger),
    Column("refusal_count", BigInteger, nullable=False),
    Column("refused_at", BigInteger, nullable=False),
    Column("reason", Text),
    Column("is_fault", BigInteger, nullable=False),
)
WAITS = Mapper(HostWait, waits)

signing_secrets = Table(
    "notify_secrets",
    metadata,
    Column("id", Text, primary_key=True),
    Column("workspace_id", BigInteger, nullable=False),
    Column("secret", LargeBinary),
    Column("previous_secret", LargeBinary),
    Column("previous_until", BigInteger),
    Column("created_at", BigInteger, nullable=False),
    Index("uq_notify_secrets_workspace_id", "workspace_id", unique=True),
)
SECRET_PURPOSE, PREVIOUS_SECRET_PURPOSE = "secret of notifications", "previous secret of notifications"
SEALED_COLUMNS = (
    SealedColumn(signing_secrets, "secret", purpose=SECRET_PURPOSE),
    SealedColumn(signing_secrets, "previous_secret", purpose=PREVIOUS_SECRET_PURPOSE),
)
"""After a lost key, campaigns with webhooks pause with a message that a new secret is needed."""
