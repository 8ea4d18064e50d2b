"""The excess of the costs of calls over their estimates, by model, for later reservations."""

import sqlalchemy as sa
from alembic import op

revision = "0045"
down_revision = "0044"


def upgrade() -> None:
    """Create the table."""
    op.create_table(
        "cost_overruns",
        sa.Column("workspace_id", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("model", sa.Text, primary_key=True),
        sa.Column("factor_millis", sa.BigInteger, nullable=False),
        sa.Column("extra_nanos", sa.BigInteger, nullable=False),
        sa.Column("updated_at", sa.BigInteger, nullable=False),
    )
