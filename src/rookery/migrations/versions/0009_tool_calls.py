"""Error, cache flag and, by setting, arguments of tool calls, and an index for analytics."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    """Add the columns and the index."""
    op.add_column("tool_calls", sa.Column("cached", sa.BigInteger, nullable=False, server_default="0"))
    op.add_column("tool_calls", sa.Column("error", sa.Text))
    op.add_column("tool_calls", sa.Column("arguments", sa.Text))
    op.create_index("ix_tool_calls_workspace_id_called_at", "tool_calls", ["workspace_id", "called_at"])
