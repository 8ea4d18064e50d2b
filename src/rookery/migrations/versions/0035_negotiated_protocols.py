"""The protocol revision that each tool server negotiated last, so that its next start begins with the right message."""

import sqlalchemy as sa
from alembic import op

revision = "0035"
down_revision = "0034"


def upgrade() -> None:
    """Create the table."""
    op.create_table(
        "tool_negotiated_protocols",
        sa.Column("server_id", sa.Text, primary_key=True),
        sa.Column("fingerprint", sa.Text, nullable=False),
        sa.Column("version", sa.Text, nullable=False),
        sa.Column("software", sa.Text, nullable=False),
        sa.Column("negotiated_at", sa.BigInteger, nullable=False),
    )
