"""Cached capabilities of tool servers, and one row for every call."""

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Create the tables of tool servers."""
    op.create_table(
        "tool_catalogue",
        sa.Column("server_id", sa.Text, primary_key=True),
        sa.Column("fingerprint", sa.Text, nullable=False),
        sa.Column("offer", sa.Text, nullable=False),
        sa.Column("seen_at", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "tool_calls",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("workspace_id", sa.BigInteger, nullable=False),
        sa.Column("server_id", sa.Text, nullable=False),
        sa.Column("tool", sa.Text, nullable=False),
        sa.Column("key_id", sa.Text, nullable=False),
        sa.Column("key_kind", sa.Text, nullable=False),
        sa.Column("agent_id", sa.Text),
        sa.Column("session_id", sa.Text),
        sa.Column("success", sa.BigInteger, nullable=False),
        sa.Column("code", sa.Text),
        sa.Column("duration_ms", sa.Double, nullable=False),
        sa.Column("arguments_bytes", sa.BigInteger, nullable=False),
        sa.Column("result_bytes", sa.BigInteger, nullable=False),
        sa.Column("request_id", sa.Text, nullable=False),
        sa.Column("called_at", sa.BigInteger, nullable=False),
    )
    op.create_index(
        "ix_tool_calls_workspace_id_server_id_tool_called_at",
        "tool_calls",
        ["workspace_id", "server_id", "tool", "called_at"],
    )
    op.create_index("ix_tool_calls_called_at", "tool_calls", ["called_at"])
