"""Tool servers that workspaces add, stopped servers and tools, and logins at tool servers."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    """Create the tables."""
    op.create_table(
        "tool_servers",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("workspace_id", sa.BigInteger, nullable=False),
        sa.Column("server_id", sa.Text, nullable=False),
        sa.Column("entry", sa.Text, nullable=False),
        sa.Column("secrets", sa.LargeBinary),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("updated_at", sa.BigInteger, nullable=False),
    )
    op.create_index("uq_tool_servers_workspace_id_server_id", "tool_servers", ["workspace_id", "server_id"], unique=True)
    op.create_table(
        "tool_stops",
        sa.Column("workspace_id", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("server_id", sa.Text, primary_key=True),
        sa.Column("tool", sa.Text, primary_key=True),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("stopped_at", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "tool_revisions",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("revision", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "tool_logins",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("workspace_id", sa.BigInteger, nullable=False),
        sa.Column("server_key", sa.Text, nullable=False),
        sa.Column("sealed", sa.LargeBinary, nullable=False),
        sa.Column("busy_until", sa.BigInteger),
        sa.Column("changed_at", sa.BigInteger, nullable=False),
    )
    op.create_index("ix_tool_logins_workspace_id_server_key", "tool_logins", ["workspace_id", "server_key"])
