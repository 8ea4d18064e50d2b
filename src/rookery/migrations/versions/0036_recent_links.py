"""The links that tool servers recently gave to each key, so that every process can read them back."""

import sqlalchemy as sa
from alembic import op

revision = "0036"
down_revision = "0035"


def upgrade() -> None:
    """Create the table."""
    op.create_table(
        "tool_recent_links",
        sa.Column("workspace_id", sa.BigInteger, nullable=False),
        sa.Column("key_id", sa.Text, nullable=False),
        sa.Column("digest", sa.Text, nullable=False),
        sa.Column("server_id", sa.Text, nullable=False),
        sa.Column("given_at", sa.BigInteger, nullable=False),
        sa.PrimaryKeyConstraint("workspace_id", "key_id", "digest", "server_id", name="pk_tool_recent_links"),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_tool_recent_links_workspace_id_given_at", "tool_recent_links", ["workspace_id", "given_at"])
    op.create_index("ix_tool_recent_links_given_at", "tool_recent_links", ["given_at"])
