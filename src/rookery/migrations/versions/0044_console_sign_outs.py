"""The sign-ins to the console that have ended, so that a copy of a cookie is refused."""

import sqlalchemy as sa
from alembic import op

revision = "0044"
down_revision = "0043"


def upgrade() -> None:
    """Create the table."""
    op.create_table(
        "console_sign_outs",
        sa.Column("sign_in_id", sa.Text, primary_key=True),
        sa.Column("expires_at", sa.BigInteger, nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_index("ix_console_sign_outs_expires_at", "console_sign_outs", ["expires_at"])
