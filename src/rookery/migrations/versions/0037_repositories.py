"""The projects of repositories, and the last events of the sessions of coding agents."""

import sqlalchemy as sa
from alembic import op

revision = "0037"
down_revision = "0036"


def upgrade() -> None:
    """Create the tables, and the columns that find the session in which an agent works."""
    op.create_table(
        "agent_repositories",
        sa.Column("workspace_id", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("repository", sa.Text, primary_key=True),
        sa.Column("project", sa.Text, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "agent_project_names",
        sa.Column("workspace_id", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("project", sa.Text, primary_key=True),
        sa.Column("repository", sa.Text, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sqlite_with_rowid=False,
    )
    op.add_column("agent_client_sessions", sa.Column("holder", sa.Text))
    op.add_column("agent_client_sessions", sa.Column("turn_started_at", sa.BigInteger))
    op.create_index("ix_agent_client_sessions_holder", "agent_client_sessions", ["workspace_id", "holder", "used_at"])
