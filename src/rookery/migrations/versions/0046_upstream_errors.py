"""The calls that ended with an error of a tool, its server or a language model, in the usage of keys."""

import sqlalchemy as sa
from alembic import op

revision = "0046"
down_revision = "0045"


def upgrade() -> None:
    """Add the columns. Existing calls keep counting as errors by their status."""
    op.add_column("access_calls", sa.Column("is_upstream_error", sa.BigInteger, nullable=False, server_default="0"))
    op.add_column("access_days", sa.Column("upstream_errors", sa.BigInteger, nullable=False, server_default="0"))
