"""Removal of the second of two equal indexes on the sessions of plan events, which 0011 and 0012 created."""

from alembic import op

revision = "0021"
down_revision = "0020"


def upgrade() -> None:
    """Drop the index of 0011. That of 0012 covers the same rows."""
    op.drop_index("ix_plan_events_session", "plan_events")
