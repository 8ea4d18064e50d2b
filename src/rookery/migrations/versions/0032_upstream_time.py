"""The part of a call that its tool server took."""

import sqlalchemy as sa
from alembic import op

revision = "0032"
down_revision = "0031"


def upgrade() -> None:
    """Add the column. Older calls have no value."""
    op.add_column("tool_calls", sa.Column("upstream_ms", sa.Double))
