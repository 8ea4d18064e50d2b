"""Webhook endpoints, events and deliveries."""

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"


def upgrade() -> None:
    """Create the tables of endpoints, events, deliveries and attempts."""
    op.create_table(
        "webhook_endpoints",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("workspace_id", sa.BigInteger, nullable=False),
        sa.Column("shown_workspace_id", sa.BigInteger, nullable=False),
        sa.Column("url", sa.Text, nullable=False),
        sa.Column("events", sa.Text, nullable=False),
        sa.Column("description", sa.Text, nullable=False),
        sa.Column("include_content", sa.BigInteger, nullable=False),
        sa.Column("strict_order", sa.BigInteger, nullable=False),
        sa.Column("concurrency", sa.BigInteger, nullable=False),
        sa.Column("enabled", sa.BigInteger, nullable=False),
        sa.Column("enabled_at", sa.BigInteger, nullable=False),
        sa.Column("disabled_at", sa.BigInteger),
        sa.Column("disabled_reason", sa.Text),
        sa.Column("failures", sa.BigInteger, nullable=False),
        sa.Column("last_success_at", sa.BigInteger),
        sa.Column("secret", sa.LargeBinary),
        sa.Column("previous_secret", sa.LargeBinary),
        sa.Column("previous_until", sa.BigInteger),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("updated_at", sa.BigInteger, nullable=False),
    )
    op.create_index("ix_webhook_endpoints_workspace_id", "webhook_endpoints", ["workspace_id", "id"])
    op.create_table(
        "webhook_events",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("workspace_id", sa.BigInteger, nullable=False),
        sa.Column("type", sa.Text, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("body", sa.LargeBinary, nullable=False),
        sa.Column("full_body", sa.LargeBinary),
    )
    op.create_index("ix_webhook_events_created_at", "webhook_events", ["created_at"])
    op.create_index("ix_webhook_events_workspace_id", "webhook_events", ["workspace_id"])
    op.create_table(
        "webhook_deliveries",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("workspace_id", sa.BigInteger, nullable=False),
        sa.Column("endpoint_id", sa.Text, nullable=False),
        sa.Column("event_id", sa.Text, nullable=False),
        sa.Column("event_type", sa.Text, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("with_content", sa.BigInteger, nullable=False),
        sa.Column("attempts", sa.BigInteger, nullable=False),
        sa.Column("spent", sa.BigInteger, nullable=False),
        sa.Column("next_at", sa.BigInteger),
        sa.Column("owner", sa.Text),
        sa.Column("status", sa.BigInteger),
        sa.Column("error", sa.Text),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("ended_at", sa.BigInteger),
        sa.Column("of_delivery", sa.Text),
    )
    op.create_index("ix_webhook_deliveries_newest", "webhook_deliveries", ["endpoint_id", "created_at", "id"])
    op.create_index("ix_webhook_deliveries_event_id", "webhook_deliveries", ["event_id"])
    _partial("ix_webhook_deliveries_due", ["endpoint_id", "next_at"], "next_at IS NOT NULL")
    _partial("ix_webhook_deliveries_order", ["endpoint_id", "id"], "next_at IS NOT NULL")
    _partial("ix_webhook_deliveries_owner", ["owner"], "owner IS NOT NULL")
    op.create_table(
        "webhook_attempts",
        sa.Column("delivery_id", sa.Text, primary_key=True),
        sa.Column("number", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("workspace_id", sa.BigInteger, nullable=False),
        sa.Column("started_at", sa.BigInteger, nullable=False),
        sa.Column("ended_at", sa.BigInteger),
        sa.Column("outcome", sa.Text),
        sa.Column("status", sa.BigInteger),
        sa.Column("error", sa.Text),
        sa.Column("response", sa.Text),
        sa.Column("duration_ms", sa.Double),
    )


def _partial(name: str, columns: list[str], where: str) -> None:
    op.create_index(name, "webhook_deliveries", columns, sqlite_where=sa.text(where), postgresql_where=sa.text(where))
