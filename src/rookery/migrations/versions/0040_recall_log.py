"""The log of recalls: the request of each recall, and the workspaces that keep no log."""

import sqlalchemy as sa
from alembic import op

revision = "0040"
down_revision = "0039"


def upgrade() -> None:
    """Add the columns, the index of the list, and the table of workspaces."""
    op.add_column("recalls", sa.Column("request", sa.Text))
    op.add_column("recalls", sa.Column("org", sa.Text))
    op.add_column("recalls", sa.Column("project", sa.Text))
    op.add_column("recalls", sa.Column("agent_id", sa.Text))
    op.add_column("recalls", sa.Column("session_id", sa.Text))
    op.create_index("ix_recalls_workspace_id", "recalls", ["workspace_id", "id"])
    op.create_table(
        "recall_log_exclusions",
        sa.Column("workspace_id", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("since", sa.BigInteger, nullable=False),
    )
