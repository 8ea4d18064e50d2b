"""Keys whose expiry has not been published yet, as `key.expired`."""

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"


def upgrade() -> None:
    """Add the column to both kinds of keys. Expired keys are published too, when there are no webhooks yet to receive the event."""
    op.add_column("access_keys", sa.Column("expiry_due", sa.BigInteger))
    op.create_index("ix_access_keys_expiry_due", "access_keys", ["expiry_due"])
    op.execute("UPDATE access_keys SET expiry_due = expires_at")
