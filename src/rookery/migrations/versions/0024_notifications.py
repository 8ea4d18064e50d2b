"""Subscribers, campaigns and deliveries of notifications."""

import sqlalchemy as sa
from alembic import op

revision = "0024"
down_revision = "0023"


def upgrade() -> None:
    """Create the tables of subscribers, campaigns, deliveries, attempts and the outbox of test keys."""
    op.create_table(
        "notify_subscribers",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("workspace_id", sa.BigInteger, nullable=False),
        sa.Column("external_id", sa.Text, nullable=False),
        sa.Column("locale", sa.Text),
        sa.Column("tags", sa.Text, nullable=False),
        sa.Column("attributes", sa.Text, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("updated_at", sa.BigInteger, nullable=False),
    )
    op.create_index("ix_notify_subscribers_workspace_id", "notify_subscribers", ["workspace_id", "id"])
    op.create_index("uq_notify_subscribers_external_id", "notify_subscribers", ["workspace_id", "external_id"], unique=True)
    op.create_table(
        "notify_tags",
        sa.Column("subscriber_id", sa.Text, primary_key=True),
        sa.Column("tag", sa.Text, primary_key=True),
        sa.Column("workspace_id", sa.BigInteger, nullable=False),
    )
    op.create_index("ix_notify_tags_tag", "notify_tags", ["workspace_id", "tag", "subscriber_id"])
    op.create_table(
        "notify_channels",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("workspace_id", sa.BigInteger, nullable=False),
        sa.Column("subscriber_id", sa.Text, nullable=False),
        sa.Column("position", sa.BigInteger, nullable=False),
        sa.Column("type", sa.Text, nullable=False),
        sa.Column("address", sa.Text, nullable=False),
        sa.Column("p256dh", sa.Text, nullable=False),
        sa.Column("auth", sa.Text, nullable=False),
        sa.Column("host", sa.Text, nullable=False),
        sa.Column("status", sa.Text, nullable=False),
        sa.Column("status_reason", sa.Text),
        sa.Column("last_confirmed_at", sa.BigInteger),
        sa.Column("created_at", sa.BigInteger, nullable=False),
    )
    op.create_index("ix_notify_channels_subscriber_id", "notify_channels", ["subscriber_id", "position"])
    op.create_index("ix_notify_channels_type", "notify_channels", ["workspace_id", "type", "status", "subscriber_id"])
    op.create_table(
        "notify_campaigns",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("workspace_id", sa.BigInteger, nullable=False),
        sa.Column("shown_workspace_id", sa.BigInteger, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("title", sa.Text, nullable=False),
        sa.Column("body", sa.Text, nullable=False),
        sa.Column("url", sa.Text),
        sa.Column("channels", sa.Text),
        sa.Column("audience", sa.Text, nullable=False),
        sa.Column("variables", sa.Text, nullable=False),
        sa.Column("rate_per_second", sa.Double),
        sa.Column("ttl_s", sa.BigInteger, nullable=False),
        sa.Column("scheduled_at", sa.BigInteger),
        sa.Column("schedule_local", sa.Text),
        sa.Column("time_zone", sa.Text),
        sa.Column("status", sa.Text, nullable=False),
        sa.Column("status_reason", sa.Text),
        sa.Column("test_of", sa.Text),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("updated_at", sa.BigInteger, nullable=False),
        sa.Column("started_at", sa.BigInteger),
        sa.Column("ended_at", sa.BigInteger),
        sa.Column("owner", sa.Text),
        sa.Column("lease_until", sa.BigInteger),
        sa.Column("final_counts", sa.Text),
    )
    op.create_index(
        "ix_notify_campaigns_active",
        "notify_campaigns",
        ["status", "id"],
        sqlite_where=sa.text("status IN ('scheduled', 'sending')"),
        postgresql_where=sa.text("status IN ('scheduled', 'sending')"),
    )
    op.create_index("ix_notify_campaigns_ended_at", "notify_campaigns", ["ended_at"])
    op.create_index("ix_notify_campaigns_workspace_id", "notify_campaigns", ["workspace_id", "id"])
    op.create_table(
        "notify_deliveries",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("workspace_id", sa.BigInteger, nullable=False),
        sa.Column("campaign_id", sa.Text, nullable=False),
        sa.Column("subscriber_id", sa.Text, nullable=False),
        sa.Column("external_id", sa.Text),
        sa.Column("channel_id", sa.Text, nullable=False),
        sa.Column("channel_type", sa.Text, nullable=False),
        sa.Column("host", sa.Text, nullable=False),
        sa.Column("locale", sa.Text),
        sa.Column("attributes", sa.Text),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("attempts", sa.BigInteger, nullable=False),
        sa.Column("spent", sa.BigInteger, nullable=False),
        sa.Column("claimed_at", sa.BigInteger),
        sa.Column("next_at", sa.BigInteger),
        sa.Column("owner", sa.Text),
        sa.Column("expires_at", sa.BigInteger, nullable=False),
        sa.Column("status", sa.BigInteger),
        sa.Column("reason", sa.Text),
        sa.Column("provider_id", sa.Text),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("ended_at", sa.BigInteger),
    )
    op.create_index(
        "ix_notify_deliveries_due",
        "notify_deliveries",
        ["campaign_id", "next_at"],
        sqlite_where=sa.text("next_at IS NOT NULL"),
        postgresql_where=sa.text("next_at IS NOT NULL"),
    )
    op.create_index("ix_notify_deliveries_id", "notify_deliveries", ["campaign_id", "id"])
    op.create_index(
        "ix_notify_deliveries_owner",
        "notify_deliveries",
        ["owner", "next_at"],
        sqlite_where=sa.text("owner IS NOT NULL"),
        postgresql_where=sa.text("owner IS NOT NULL"),
    )
    op.create_index("ix_notify_deliveries_state", "notify_deliveries", ["campaign_id", "state", "channel_type", "id"])
    op.create_index("ix_notify_deliveries_subscriber_id", "notify_deliveries", ["subscriber_id"])
    op.create_index("uq_notify_deliveries_channel", "notify_deliveries", ["campaign_id", "subscriber_id", "channel_id"], unique=True)
    op.create_table(
        "notify_attempts",
        sa.Column("delivery_id", sa.Text, primary_key=True),
        sa.Column("number", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("workspace_id", sa.BigInteger, nullable=False),
        sa.Column("started_at", sa.BigInteger, nullable=False),
        sa.Column("ended_at", sa.BigInteger),
        sa.Column("outcome", sa.Text, nullable=False),
        sa.Column("status", sa.BigInteger),
        sa.Column("reason", sa.Text),
        sa.Column("duration_ms", sa.Double),
    )
    op.create_table(
        "notify_outbox",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("workspace_id", sa.BigInteger, nullable=False),
        sa.Column("campaign_id", sa.Text, nullable=False),
        sa.Column("delivery_id", sa.Text, nullable=False),
        sa.Column("external_id", sa.Text, nullable=False),
        sa.Column("channel_type", sa.Text, nullable=False),
        sa.Column("address", sa.Text, nullable=False),
        sa.Column("title", sa.Text, nullable=False),
        sa.Column("body", sa.Text, nullable=False),
        sa.Column("url", sa.Text),
        sa.Column("created_at", sa.BigInteger, nullable=False),
    )
    op.create_index("ix_notify_outbox_created_at", "notify_outbox", ["created_at"])
    op.create_index("ix_notify_outbox_workspace_id", "notify_outbox", ["workspace_id", "id"])
    op.create_table(
        "notify_secrets",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("workspace_id", sa.BigInteger, nullable=False),
        sa.Column("secret", sa.LargeBinary),
        sa.Column("previous_secret", sa.LargeBinary),
        sa.Column("previous_until", sa.BigInteger),
        sa.Column("created_at", sa.BigInteger, nullable=False),
    )
    op.create_index("uq_notify_secrets_workspace_id", "notify_secrets", ["workspace_id"], unique=True)
