"""Feedback on recalled memories, with its key and day."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    """Create the table."""
    op.create_table(
        "recall_feedback",
        sa.Column("recall_id", sa.Text, primary_key=True),
        sa.Column("memory_id", sa.Text, primary_key=True),
        sa.Column("workspace_id", sa.BigInteger, nullable=False),
        sa.Column("key_id", sa.Text, nullable=False),
        sa.Column("day", sa.BigInteger, nullable=False),
        sa.Column("used", sa.BigInteger, nullable=False),
    )
    op.create_index("ix_recall_feedback_memory_id", "recall_feedback", ["memory_id"])
    op.create_index("ix_recall_feedback_day", "recall_feedback", ["day"])
