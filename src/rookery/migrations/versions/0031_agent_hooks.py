"""The sessions of coding agents by the ids of their clients, and what hooks have done in them."""

import sqlalchemy as sa
from alembic import op

revision = "0031"
down_revision = "0030"


def upgrade() -> None:
    """Create the tables, and the index that finds the last sessions of a project."""
    op.create_table(
        "agent_client_sessions",
        sa.Column("workspace_id", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("client_session", sa.Text, primary_key=True),
        sa.Column("session_id", sa.Text, nullable=False),
        sa.Column("used_at", sa.BigInteger, nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_agent_client_sessions_used_at", "agent_client_sessions", ["used_at"])
    op.create_table(
        "agent_hook_marks",
        sa.Column("workspace_id", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("client_session", sa.Text, primary_key=True),
        sa.Column("kind", sa.Text, primary_key=True),
        sa.Column("mark", sa.Text, primary_key=True),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_agent_hook_marks_created_at", "agent_hook_marks", ["created_at"])
    op.create_index("ix_agent_sessions_project", "agent_sessions", ["workspace_id", "project", "started_at", "id"])
