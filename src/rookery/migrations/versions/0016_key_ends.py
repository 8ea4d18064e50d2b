"""Keys whose end by time is still to be announced (D-80: key.expired)."""

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"


def upgrade() -> None:
    """Note it on both kinds; what has expired already is announced to whoever wants to know by then: nobody."""
    op.add_column("access_keys", sa.Column("expiry_due", sa.BigInteger))
    op.create_index("ix_access_keys_expiry_due", "access_keys", ["expiry_due"])
    op.execute("UPDATE access_keys SET expiry_due = expires_at")
