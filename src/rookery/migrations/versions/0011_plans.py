"""Plans with their phases and tasks."""

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"


def upgrade() -> None:
    """Create the tables."""
    op.create_table(
        "plans",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("workspace_id", sa.BigInteger, nullable=False),
        sa.Column("slug", sa.Text, nullable=False),
        sa.Column("title", sa.Text, nullable=False),
        sa.Column("description", sa.Text, nullable=False),
        sa.Column("status", sa.Text, nullable=False),
        sa.Column("org", sa.Text),
        sa.Column("project", sa.Text),
        sa.Column("template", sa.Text),
        sa.Column("template_version", sa.Text),
        sa.Column("variables", sa.Text),
        sa.Column("metadata", sa.Text, nullable=False),
        sa.Column("created_by", sa.Text, nullable=False),
        sa.Column("archived_from", sa.Text),
        sa.Column("archive_reason", sa.Text),
        sa.Column("event_seq", sa.BigInteger, nullable=False),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("updated_at", sa.BigInteger, nullable=False),
        sa.Column("started_at", sa.BigInteger),
        sa.Column("completed_at", sa.BigInteger),
        sa.Column("archived_at", sa.BigInteger),
    )
    op.create_index("ix_plans_slug", "plans", ["workspace_id", "slug"], unique=True)
    op.create_index("ix_plans_newest", "plans", ["workspace_id", "created_at", "id"])
    op.create_index("ix_plans_status", "plans", ["workspace_id", "status", "id"])
    op.create_table(
        "plan_phases",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("workspace_id", sa.BigInteger, nullable=False),
        sa.Column("plan_id", sa.Text, nullable=False),
        sa.Column("position", sa.BigInteger, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("description", sa.Text, nullable=False),
        sa.Column("status", sa.Text, nullable=False),
        sa.Column("hold_reason", sa.Text),
        sa.Column("acceptance_criteria", sa.Text, nullable=False),
        sa.Column("metadata", sa.Text, nullable=False),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("updated_at", sa.BigInteger, nullable=False),
        sa.Column("started_at", sa.BigInteger),
        sa.Column("completed_at", sa.BigInteger),
    )
    op.create_index("ix_plan_phases_position", "plan_phases", ["plan_id", "position"])
    op.create_table(
        "plan_tasks",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("workspace_id", sa.BigInteger, nullable=False),
        sa.Column("plan_id", sa.Text, nullable=False),
        sa.Column("phase_id", sa.Text, nullable=False),
        sa.Column("position", sa.BigInteger, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("description", sa.Text, nullable=False),
        sa.Column("status", sa.Text, nullable=False),
        sa.Column("hold_reason", sa.Text),
        sa.Column("priority", sa.BigInteger, nullable=False),
        sa.Column("notes", sa.Text, nullable=False),
        sa.Column("result", sa.Text),
        sa.Column("error", sa.Text),
        sa.Column("acceptance_criteria", sa.Text, nullable=False),
        sa.Column("metadata", sa.Text, nullable=False),
        sa.Column("attempts", sa.BigInteger, nullable=False),
        sa.Column("claim_token", sa.Text),
        sa.Column("claim_key_id", sa.Text),
        sa.Column("claim_agent_id", sa.Text),
        sa.Column("claim_session_id", sa.Text),
        sa.Column("claimed_at", sa.BigInteger),
        sa.Column("claim_expires_at", sa.BigInteger),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("updated_at", sa.BigInteger, nullable=False),
        sa.Column("started_at", sa.BigInteger),
        sa.Column("completed_at", sa.BigInteger),
    )
    op.create_index("ix_plan_tasks_next", "plan_tasks", ["phase_id", "status", "priority", "position"])
    op.create_index("ix_plan_tasks_urgent", "plan_tasks", ["plan_id", "status", "priority"])
    op.create_index("ix_plan_tasks_counted", "plan_tasks", ["plan_id", "phase_id", "status"])
    op.create_index("ix_plan_tasks_newest", "plan_tasks", ["workspace_id", "created_at", "id"])
    op.create_index(
        "ix_plan_tasks_leases",
        "plan_tasks",
        ["claim_expires_at"],
        sqlite_where=sa.text("claim_expires_at IS NOT NULL"),
        postgresql_where=sa.text("claim_expires_at IS NOT NULL"),
    )
    op.create_index(
        "ix_plan_tasks_session",
        "plan_tasks",
        ["claim_session_id"],
        sqlite_where=sa.text("claim_session_id IS NOT NULL"),
        postgresql_where=sa.text("claim_session_id IS NOT NULL"),
    )
    op.create_table(
        "plan_needs",
        sa.Column("item_id", sa.Text, primary_key=True),
        sa.Column("needs_id", sa.Text, primary_key=True),
        sa.Column("workspace_id", sa.BigInteger, nullable=False),
        sa.Column("plan_id", sa.Text, nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_plan_needs_plan_id", "plan_needs", ["plan_id"])
    op.create_index("ix_plan_needs_needs_id", "plan_needs", ["needs_id"])
    op.create_table(
        "phase_checkpoints",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("workspace_id", sa.BigInteger, nullable=False),
        sa.Column("plan_id", sa.Text, nullable=False),
        sa.Column("phase_id", sa.Text, nullable=False),
        sa.Column("note", sa.Text, nullable=False),
        sa.Column("context", sa.Text, nullable=False),
        sa.Column("key_id", sa.Text, nullable=False),
        sa.Column("agent_id", sa.Text),
        sa.Column("created_at", sa.BigInteger, nullable=False),
    )
    op.create_index("ix_phase_checkpoints_plan", "phase_checkpoints", ["plan_id", "phase_id", "id"])
    op.create_table(
        "plan_events",
        sa.Column("plan_id", sa.Text, primary_key=True),
        sa.Column("seq", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("workspace_id", sa.BigInteger, nullable=False),
        sa.Column("type", sa.Text, nullable=False),
        sa.Column("at", sa.BigInteger, nullable=False),
        sa.Column("key_id", sa.Text, nullable=False),
        sa.Column("agent_id", sa.Text),
        sa.Column("session_id", sa.Text),
        sa.Column("phase_id", sa.Text),
        sa.Column("task_id", sa.Text),
        sa.Column("data", sa.Text, nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_index(
        "ix_plan_events_session",
        "plan_events",
        ["session_id"],
        sqlite_where=sa.text("session_id IS NOT NULL"),
        postgresql_where=sa.text("session_id IS NOT NULL"),
    )
