"""The tables of notifications, and the mappers of their rows."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Index, LargeBinary, Table, Text

from rookery.kernel.db import Nested, map_table, metadata
from rookery.kernel.sealing import SealedColumn
from rookery.notifications.models import (
    Campaign,
    CampaignSchedule,
    HostWait,
    NotificationAttempt,
    NotificationDelivery,
    OutboxMessage,
    Subscriber,
    SubscriberChannel,
)

subscribers, SUBSCRIBERS = map_table(
    "notify_subscribers",
    Subscriber,
    Index("uq_notify_subscribers_external_id", "workspace_id", "external_id", unique=True),
    Index("ix_notify_subscribers_workspace_id", "workspace_id", "id"),
    fixed=("created_at",),
)

subscriber_tags = Table(
    "notify_tags",
    metadata,
    Column("subscriber_id", Text, primary_key=True),
    Column("tag", Text, primary_key=True),
    Column("workspace_id", BigInteger, nullable=False),
    Index("ix_notify_tags_tag", "workspace_id", "tag", "subscriber_id"),
)

channels, CHANNELS = map_table(
    "notify_channels",
    SubscriberChannel,
    Index("ix_notify_channels_subscriber_id", "subscriber_id", "position"),
    Index("ix_notify_channels_type", "workspace_id", "type", "status", "subscriber_id"),
    fixed=("created_at", "last_confirmed_at"),
)

campaigns, CAMPAIGNS = map_table(
    "notify_campaigns",
    Campaign,
    Index("ix_notify_campaigns_workspace_id", "workspace_id", "id"),
    Index("ix_notify_campaigns_ended_at", "ended_at"),
    columns={"public_workspace_id": "shown_workspace_id"},
    nested={"schedule": Nested(CampaignSchedule, {"at": "schedule_local", "at_utc": "scheduled_at"})},
    fixed=("shown_workspace_id", "created_at", "owner", "lease_until"),
)
# Few campaigns are active, so that the queries of the dispatcher have a small index.
_is_active = campaigns.c.status.in_(["scheduled", "sending"])
Index("ix_notify_campaigns_active", campaigns.c.status, campaigns.c.id, sqlite_where=_is_active)
_is_resumable = campaigns.c.resume_at.is_not(None)
Index("ix_notify_campaigns_resume_at", campaigns.c.resume_at, sqlite_where=_is_resumable)

deliveries, DELIVERIES = map_table(
    "notify_deliveries",
    NotificationDelivery,
    Column("host", Text, nullable=False),
    Column("locale", Text),
    Column("attributes", Text),
    Column("claimed_at", BigInteger),
    Column("owner", Text),
    Index("uq_notify_deliveries_channel", "campaign_id", "subscriber_id", "channel_id", unique=True),
    Index("ix_notify_deliveries_state", "campaign_id", "state", "channel_type", "id"),
    Index("ix_notify_deliveries_id", "campaign_id", "id"),
    Index("ix_notify_deliveries_subscriber_id", "subscriber_id"),
    columns={"attempt_count": "attempts", "used_attempts": "spent"},
)
_is_open = deliveries.c.next_at.is_not(None)
Index("ix_notify_deliveries_due", deliveries.c.campaign_id, deliveries.c.next_at, sqlite_where=_is_open)
_is_owned = deliveries.c.owner.is_not(None)
Index("ix_notify_deliveries_owner", deliveries.c.owner, deliveries.c.next_at, sqlite_where=_is_owned)

attempts, ATTEMPTS = map_table("notify_attempts", NotificationAttempt, key=("delivery_id", "number"))

outbox, OUTBOX = map_table(
    "notify_outbox",
    OutboxMessage,
    Index("ix_notify_outbox_workspace_id", "workspace_id", "id"),
    Index("ix_notify_outbox_created_at", "created_at"),
)

hosts = Table(
    "notify_hosts",
    metadata,
    Column("host", Text, primary_key=True),
    Column("paid_until", BigInteger, nullable=False),
    Index("ix_notify_hosts_paid_until", "paid_until"),
)
"""The hosts that got messages under a rate per host, of all workspaces together."""

waits, WAITS = map_table("notify_waits", HostWait, key=("scope_id", "channel_type", "host"))

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
