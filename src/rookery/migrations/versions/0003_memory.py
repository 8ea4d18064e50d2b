"""Memories, their tags, the tombstones of replaced and deleted memories, and past recalls."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Create the tables of memory."""
    op.create_table(
        "memories",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("workspace_id", sa.BigInteger, nullable=False),
        sa.Column("org", sa.Text),
        sa.Column("project", sa.Text),
        sa.Column("agent_id", sa.Text),
        sa.Column("session_id", sa.Text),
        sa.Column("memory_scope", sa.Text, nullable=False),
        sa.Column("type", sa.Text, nullable=False),
        sa.Column("tags", sa.Text, nullable=False),
        sa.Column("confidence", sa.Double, nullable=False),
        sa.Column("base_confidence", sa.Double, nullable=False),
        sa.Column("source", sa.Text, nullable=False),
        sa.Column("content", sa.Text, nullable=False),
        sa.Column("fingerprint", sa.Text, nullable=False),
        sa.Column("supersedes_id", sa.Text),
        sa.Column("expires_at", sa.BigInteger),
        sa.Column("archived_at", sa.BigInteger),
        sa.Column("index_failed_at", sa.BigInteger),
        sa.Column("indexed_at", sa.BigInteger),
        sa.Column("indexed_model", sa.Text),
        sa.Column("recalled_at", sa.BigInteger),
        sa.Column("content_at", sa.BigInteger, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("updated_at", sa.BigInteger, nullable=False),
    )
    op.create_index("ix_memories_newest", "memories", ["workspace_id", "created_at", "id"])
    op.create_index("ix_memories_places", "memories", ["workspace_id", "org", "project"])
    op.create_index("ix_memories_fingerprint", "memories", ["fingerprint"])
    for name, column in (("ix_memories_expiry", "expires_at"), ("ix_memories_failed", "index_failed_at")):
        has_one = sa.column(column).is_not(None)
        op.create_index(name, "memories", [column], sqlite_where=has_one, postgresql_where=has_one)
    op.create_table(
        "memory_tags",
        sa.Column("workspace_id", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("tag", sa.Text, primary_key=True),
        sa.Column("memory_id", sa.Text, primary_key=True),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "memory_tombstones",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("workspace_id", sa.BigInteger, nullable=False),
        sa.Column("supersedes_id", sa.Text),
        sa.Column("superseded_by", sa.Text),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("ended_at", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "recalls",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("workspace_id", sa.BigInteger, nullable=False),
        sa.Column("key_id", sa.Text, nullable=False),
        sa.Column("memory_ids", sa.Text, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
    )
    op.create_index("ix_recalls_created_at", "recalls", ["created_at"])
