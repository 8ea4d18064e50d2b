"""Metadata of memories, and an index of its pairs."""

import sqlalchemy as sa
from alembic import op

revision = "0019"
down_revision = "0018"


def upgrade() -> None:
    """Add the column, and the table that filters read."""
    op.add_column("memories", sa.Column("metadata", sa.Text))
    op.create_table(
        "memory_labels",
        sa.Column("workspace_id", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("label", sa.Text, primary_key=True),
        sa.Column("memory_id", sa.Text, primary_key=True),
        sqlite_with_rowid=False,
    )
