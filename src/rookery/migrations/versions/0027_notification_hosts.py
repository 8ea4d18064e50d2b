"""The hosts of notifications whose rate is limited."""

import sqlalchemy as sa
from alembic import op

revision = "0027"
down_revision = "0026"


def upgrade() -> None:
    """Create the table."""
    op.create_table(
        "notify_hosts",
        sa.Column("host", sa.Text, primary_key=True),
        sa.Column("paid_until", sa.BigInteger, nullable=False),
    )
    op.create_index("ix_notify_hosts_paid_until", "notify_hosts", ["paid_until"])
