"""The jobs table."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Create the table of jobs."""
    op.create_table(
        "jobs",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("workspace_id", sa.BigInteger, nullable=False),
        sa.Column("payload", sa.Text, nullable=False),
        sa.Column("attempts", sa.BigInteger, nullable=False),
        sa.Column("run_at", sa.BigInteger, nullable=False),
        sa.Column("owner", sa.Text),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("failed_at", sa.BigInteger),
        sa.Column("last_error", sa.Text),
    )
    op.create_index("ix_jobs_ready", "jobs", ["kind", "run_at"])
    op.create_index("ix_jobs_workspace", "jobs", ["workspace_id", "kind"])
