"""The index by which workspaces take turns in the queue of jobs."""

from alembic import op

revision = "0033"
down_revision = "0032"


def upgrade() -> None:
    """Add the time from which on a job may run."""
    op.drop_index("ix_jobs_workspace", "jobs")
    op.create_index("ix_jobs_workspace", "jobs", ["workspace_id", "kind", "run_at"])
