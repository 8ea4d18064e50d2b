"""The embedding model that serves each workspace, and the models that have vectors in it."""

import sqlalchemy as sa
from alembic import op

revision = "0023"
down_revision = "0022"


def upgrade() -> None:
    """Create the tables. The first process that needs them copies what earlier versions stored in `vectors.db`."""
    op.create_table(
        "memory_active_models",
        sa.Column("workspace_id", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("model", sa.Text, nullable=False),
        sa.Column("dimension", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "memory_vector_sets",
        sa.Column("workspace_id", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("model", sa.Text, primary_key=True),
        sa.Column("dimension", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("is_retired", sa.BigInteger, nullable=False),
        sqlite_with_rowid=False,
    )
