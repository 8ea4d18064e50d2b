"""The hosts that take no notifications for now, and the time at which a paused campaign tries again."""

import sqlalchemy as sa
from alembic import op

revision = "0043"
down_revision = "0042"


def upgrade() -> None:
    """Create the table, and add the column with its index."""
    op.create_table(
        "notify_waits",
        sa.Column("scope_id", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("channel_type", sa.Text, primary_key=True),
        sa.Column("host", sa.Text, primary_key=True),
        sa.Column("until", sa.BigInteger, nullable=False),
        sa.Column("probe_until", sa.BigInteger),
        sa.Column("refusal_count", sa.BigInteger, nullable=False),
        sa.Column("refused_at", sa.BigInteger, nullable=False),
        sa.Column("reason", sa.Text),
        sa.Column("is_fault", sa.BigInteger, nullable=False),
    )
    op.add_column("notify_campaigns", sa.Column("resume_at", sa.BigInteger))
    op.create_index("ix_notify_campaigns_resume_at", "notify_campaigns", ["resume_at"], sqlite_where=sa.text("resume_at IS NOT NULL"))
