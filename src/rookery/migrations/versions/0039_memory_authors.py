"""The authors of memories: who stored each and who changed it last. Memories from before have none."""

import sqlalchemy as sa
from alembic import op

revision = "0039"
down_revision = "0038"


def upgrade() -> None:
    """Add the columns."""
    op.add_column("memories", sa.Column("created_by", sa.Text))
    op.add_column("memories", sa.Column("updated_by", sa.Text))
