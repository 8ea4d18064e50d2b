"""Templates of plans, with one row per version."""

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"


def upgrade() -> None:
    """Create the tables: templates with their current version, and all versions."""
    op.create_table(
        "plan_templates",
        sa.Column("workspace_id", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("slug", sa.Text, primary_key=True),
        sa.Column("version", sa.Text, nullable=False),
        sa.Column("name", sa.Text, nullable=False),
        sa.Column("description", sa.Text, nullable=False),
        sa.Column("category", sa.Text, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("updated_at", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "plan_template_versions",
        sa.Column("workspace_id", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("slug", sa.Text, primary_key=True),
        sa.Column("version", sa.Text, primary_key=True),
        sa.Column("document", sa.Text, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
    )
