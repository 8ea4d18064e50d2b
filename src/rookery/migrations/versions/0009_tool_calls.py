"""Of each call also why it failed, whether it was answered from the cache and, by setting, its arguments; an index for figures."""

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    """Widen the table of calls."""
    op.add_column("tool_calls", sa.Column("cached", sa.BigInteger, nullable=False, server_default="0"))
    op.add_column("tool_calls", sa.Column("error", sa.Text))
    op.add_column("tool_calls", sa.Column("arguments", sa.Text))
    op.create_index("ix_tool_calls_workspace_id_called_at", "tool_calls", ["workspace_id", "called_at"])
