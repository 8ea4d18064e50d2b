"""Agent sessions, their events and hand-offs."""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"


def upgrade() -> None:
    """Create the tables, and indexes of the calls and memories of a session."""
    op.create_table(
        "agent_sessions",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("workspace_id", sa.BigInteger, nullable=False),
        sa.Column("agent_id", sa.Text, nullable=False),
        sa.Column("agent_type", sa.Text, nullable=False),
        sa.Column("key_id", sa.Text, nullable=False),
        sa.Column("plan_id", sa.Text),
        sa.Column("org", sa.Text),
        sa.Column("project", sa.Text),
        sa.Column("status", sa.Text, nullable=False),
        sa.Column("goal", sa.Text),
        sa.Column("context", sa.Text, nullable=False),
        sa.Column("summary", sa.Text),
        sa.Column("resumed_from", sa.Text),
        sa.Column("resumed_by", sa.Text),
        sa.Column("offered_id", sa.Text),
        sa.Column("end_reason", sa.Text),
        sa.Column("started_at", sa.BigInteger, nullable=False),
        sa.Column("last_activity_at", sa.BigInteger, nullable=False),
        sa.Column("ended_at", sa.BigInteger),
        sa.Column("memories_due", sa.BigInteger),
        sa.Column("last_seq", sa.BigInteger, nullable=False),
        sa.Column("size", sa.BigInteger, nullable=False),
        sa.Column("tokens_in", sa.BigInteger, nullable=False),
        sa.Column("tokens_out", sa.BigInteger, nullable=False),
        sa.Column("version", sa.BigInteger, nullable=False),
    )
    op.create_index("ix_agent_sessions_newest", "agent_sessions", ["workspace_id", "started_at", "id"])
    op.create_index("ix_agent_sessions_plan", "agent_sessions", ["plan_id"])
    is_open, is_due = sa.text("ended_at IS NULL"), sa.text("memories_due IS NOT NULL")
    op.create_index(
        "uq_agent_sessions_open",
        "agent_sessions",
        ["workspace_id", "plan_id", "agent_id"],
        unique=True,
        sqlite_where=is_open,
        postgresql_where=is_open,
    )
    op.create_index("ix_agent_sessions_idle", "agent_sessions", ["last_activity_at"], sqlite_where=is_open, postgresql_where=is_open)
    op.create_index("ix_agent_sessions_due", "agent_sessions", ["memories_due"], sqlite_where=is_due, postgresql_where=is_due)
    op.create_table(
        "agent_session_events",
        sa.Column("session_id", sa.Text, primary_key=True),
        sa.Column("seq", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("workspace_id", sa.BigInteger, nullable=False),
        sa.Column("type", sa.Text, nullable=False),
        sa.Column("message", sa.Text, nullable=False),
        sa.Column("data", sa.Text, nullable=False),
        sa.Column("state", sa.Text),
        sa.Column("task_id", sa.Text),
        sa.Column("tokens_in", sa.BigInteger, nullable=False),
        sa.Column("tokens_out", sa.BigInteger, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sqlite_with_rowid=False,
    )
    has_state = sa.text("state IS NOT NULL")
    op.create_index(
        "ix_agent_session_events_checkpoints",
        "agent_session_events",
        ["session_id", "seq"],
        sqlite_where=has_state,
        postgresql_where=has_state,
    )
    op.create_index("ix_agent_session_events_workspace_id", "agent_session_events", ["workspace_id"])
    op.create_table(
        "agent_handoffs",
        sa.Column("session_id", sa.Text, primary_key=True),
        sa.Column("workspace_id", sa.BigInteger, nullable=False),
        sa.Column("plan_id", sa.Text),
        sa.Column("agent_id", sa.Text, nullable=False),
        sa.Column("notes", sa.Text, nullable=False),
        sa.Column("written_at", sa.BigInteger, nullable=False),
        sa.Column("taken_by", sa.Text),
        sa.Column("taken_at", sa.BigInteger),
        sa.Column("taken_how", sa.Text),
    )
    op.create_index("ix_agent_handoffs_plan_id", "agent_handoffs", ["plan_id", "written_at"])
    of_session = sa.text("session_id IS NOT NULL")
    op.create_index("ix_tool_calls_session_id", "tool_calls", ["session_id"], sqlite_where=of_session, postgresql_where=of_session)
    op.create_index("ix_plan_events_session_id", "plan_events", ["session_id"], sqlite_where=of_session, postgresql_where=of_session)
    is_theirs = sa.text("memory_scope = 'session'")
    op.create_index("ix_memories_session_id", "memories", ["session_id"], sqlite_where=is_theirs, postgresql_where=is_theirs)
