"""The current secret key, and the responses stored for requests with an Idempotency-Key."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    """Create the tables."""
    op.create_table(
        "sealing",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("key_id", sa.Text, nullable=False),
        sa.Column("previous_id", sa.Text),
        sa.Column("since", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "kept_answers",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("workspace_id", sa.BigInteger, nullable=False),
        sa.Column("owner", sa.Text),
        sa.Column("until", sa.BigInteger, nullable=False),
        sa.Column("sealed", sa.LargeBinary, nullable=False),
    )
    op.create_index("ix_kept_answers_until", "kept_answers", ["until"])
    op.create_index("ix_kept_answers_workspace_id", "kept_answers", ["workspace_id"])
