"""Merged memories, and the progress of maintenance commands."""

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    """Create both tables, and add the id of the replacement to memories."""
    op.add_column("memories", sa.Column("superseded_by", sa.Text))
    op.create_table(
        "memory_merges",
        sa.Column("memory_id", sa.Text, primary_key=True),
        sa.Column("workspace_id", sa.BigInteger, nullable=False),
        sa.Column("primary_id", sa.Text, nullable=False),
        sa.Column("run", sa.Text, nullable=False),
        sa.Column("seen_at", sa.BigInteger, nullable=False),
        sa.Column("length", sa.BigInteger, nullable=False),
        sa.Column("digest", sa.Text, nullable=False),
        sa.Column("tags", sa.Text, nullable=False),
        sa.Column("is_done", sa.BigInteger, nullable=False),
    )
    op.create_index("ix_memory_merges_primary_id", "memory_merges", ["primary_id"])
    op.create_table(
        "memory_runs",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("workspace_id", sa.BigInteger),
        sa.Column("cursor", sa.Text, nullable=False),
        sa.Column("done", sa.BigInteger, nullable=False),
        sa.Column("at", sa.BigInteger, nullable=False),
    )
