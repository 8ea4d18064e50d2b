"""The audit log: a chain of entries for each workspace with its last entry, and the names of deleted keys."""

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Create the tables."""
    op.create_table(
        "access_audit",
        sa.Column("workspace_id", sa.BigInteger, nullable=False),
        sa.Column("seq", sa.BigInteger, nullable=False),
        sa.Column("at", sa.BigInteger, nullable=False),
        sa.Column("actor_kind", sa.Text, nullable=False),
        sa.Column("actor_id", sa.Text),
        sa.Column("actor_name", sa.Text, nullable=False),
        sa.Column("address", sa.Text),
        sa.Column("request_id", sa.Text),
        sa.Column("action", sa.Text, nullable=False),
        sa.Column("subject_kind", sa.Text, nullable=False),
        sa.Column("subject_id", sa.Text, nullable=False),
        sa.Column("subject_name", sa.Text, nullable=False),
        sa.Column("environment", sa.Text, nullable=False),
        sa.Column("before", sa.Text),
        sa.Column("after", sa.Text),
        sa.Column("previous", sa.Text, nullable=False),
        sa.Column("hash", sa.Text, nullable=False),
        sa.PrimaryKeyConstraint("workspace_id", "seq"),
    )
    op.create_index("ix_access_audit_workspace_id_subject_id", "access_audit", ["workspace_id", "subject_id"])
    op.create_table(
        "access_audit_ends",
        sa.Column("workspace_id", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("seq", sa.BigInteger, nullable=False),
        sa.Column("hash", sa.Text, nullable=False),
    )
    op.create_table(
        "access_former_keys",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("workspace_id", sa.BigInteger, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("environment", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("deleted_at", sa.BigInteger, nullable=False),
    )
    op.create_index("ix_access_former_keys_workspace_id", "access_former_keys", ["workspace_id"])
