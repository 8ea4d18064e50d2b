"""The times since when servers in servers.json are deprecated, for the header of RFC 9745."""

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"


def upgrade() -> None:
    """Create the table."""
    op.create_table(
        "tool_deprecations",
        sa.Column("server_id", sa.Text, primary_key=True),
        sa.Column("deprecated_at", sa.BigInteger, nullable=False),
    )
