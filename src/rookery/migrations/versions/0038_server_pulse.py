"""The last time at which a process of the server was alive, so that leases that ended while none was get more time."""

import sqlalchemy as sa
from alembic import op

revision = "0038"
down_revision = "0037"


def upgrade() -> None:
    """Create the table."""
    op.create_table(
        "agent_server_pulse",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("alive_at", sa.BigInteger, nullable=False),
    )
