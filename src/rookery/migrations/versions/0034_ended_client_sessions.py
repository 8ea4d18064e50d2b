"""The MCP client sessions that their clients have ended, so that they are not revived."""

import sqlalchemy as sa
from alembic import op

revision = "0034"
down_revision = "0033"


def upgrade() -> None:
    """Create the table."""
    op.create_table(
        "tool_ended_client_sessions",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("workspace_id", sa.BigInteger, nullable=False),
        sa.Column("expires_at", sa.BigInteger, nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_tool_ended_client_sessions_expires_at", "tool_ended_client_sessions", ["expires_at"])
    op.create_index("ix_tool_ended_client_sessions_workspace_id", "tool_ended_client_sessions", ["workspace_id"])
