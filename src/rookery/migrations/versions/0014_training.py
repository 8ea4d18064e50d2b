"""Training examples: recalls and the feedback on them."""

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"


def upgrade() -> None:
    """Create the tables, and a column for the query of a recall in workspaces that collect training examples."""
    op.add_column("recalls", sa.Column("asked", sa.Text))
    op.create_table(
        "training_workspaces",
        sa.Column("workspace_id", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("since", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "training_rows",
        sa.Column("memory_id", sa.Text, primary_key=True),
        sa.Column("recall_id", sa.Text, primary_key=True),
        sa.Column("workspace_id", sa.BigInteger, nullable=False),
        sa.Column("verdict", sa.Text, nullable=False),
        sa.Column("query", sa.Text),
        sa.Column("mode", sa.Text),
        sa.Column("place", sa.BigInteger),
        sa.Column("semantic_rank", sa.BigInteger),
        sa.Column("keyword_rank", sa.BigInteger),
        sa.Column("at", sa.BigInteger, nullable=False),
    )
    op.create_index("ix_training_rows_workspace", "training_rows", ["workspace_id", "memory_id", "recall_id"])
