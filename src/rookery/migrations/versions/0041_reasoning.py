"""The reasoning of generations, and its tokens and those of the provider's cache in their usage."""

import sqlalchemy as sa
from alembic import op

revision = "0041"
down_revision = "0040"


def upgrade() -> None:
    """Add the columns."""
    op.add_column("generations", sa.Column("reasoning", sa.Text))
    for table in ("generations", "content_usage"):
        op.add_column(table, sa.Column("reasoning_tokens", sa.BigInteger, nullable=False, server_default="0"))
        op.add_column(table, sa.Column("cached_tokens", sa.BigInteger, nullable=False, server_default="0"))
