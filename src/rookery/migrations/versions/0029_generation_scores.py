"""The scores of generations whose request asked for them."""

import sqlalchemy as sa
from alembic import op

revision = "0029"
down_revision = "0028"


def upgrade() -> None:
    """Add the columns."""
    op.add_column("generations", sa.Column("wants_score", sa.BigInteger, nullable=False, server_default="0"))
    op.add_column("generations", sa.Column("score", sa.Text))
